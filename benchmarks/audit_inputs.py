"""What a scenario of the audit is: one small input with and without one user, and the plan that it is played under."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from susurrus.mechanisms.histogram import registry
from susurrus.mechanisms.histogram.plan import Column, Level, Plan
from susurrus.mechanisms.histogram.registry import STRATEGIES

L = 64
"""Bound of the measured values: large against the rounding to integers, so that an audit can be tight."""
REAL = "none"
USERS = (Column(name="users", kind="users"),)
COUNT_AND_CENTRED = (Column(name="visits", kind="count"), Column(name="amount", kind="sum", bound=L))
"""Of a field between 0 and 2 L, the distances from the middle are at most L."""
WEIGHED = (Column(name="visits", kind="count"), Column(name="amount", kind="sum", bound=L, weight=8.0))
BUCKETS = (Column(name="amount/buckets", kind="cells", buckets=256),)
"""So many that the norm of the bucket factor's column is large: 1.7."""
ALONE = "no last look"
"""Strategy `closing` with its stream alone; measures no users, so a sum is enough."""
STREAM = {"unknown_share": 0.01, "public_share": 0.01}
"""Hardly anything for the last trigger's own measurements, so that what is wrong before shows (closing only)."""
TIGHT = {"gaussian_delta_fraction": 0.95, "selection_share": 0.02, **STREAM}
"""Nearly all of the budget on the values, so that what is wrong with them shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Records of one trial, as columns; `present` says whether the audited user is there."""

    user: Sequence[int]
    key: Sequence[int]
    trigger: Sequence[int]
    source: Sequence[int]
    arrival: Sequence[int]
    """Position in by-user, which follows fetch timing; a record's offset within its source is its position here."""
    stamp: Sequence[int] | None = None
    """Live scenarios: milliseconds after the window's start, when the broker stamps the record."""
    schema: Sequence[int] | None = None
    """Avro: the schema id a record names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A scenario under clock `broker`, played moment by moment. Milliseconds after the window's start.

    grows_at: the raw topic gets its second partition; registered_at: the registry learns the schema id `SCHEMA_ID`.
    """

    grace: int
    idle_grace: int
    grows_at: int | None = None
    registered_at: int | None = None


SCHEMA_ID = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One pair of neighbouring inputs. `plan`: what differs from `plan_of`; `exposes`: the defects it is made for.

    `only`: the strategies that it tests; empty: all. `fetch`: rows of a trial that route reads at a time, where that matters.
    `live`: it needs the wall clock, and tests the pipeline only. `lasting`: one worker runs without a
    restart, with one partition of each topic, because the scenario tests what a worker remembers. `long_keys`: keys look like
    addresses of pages, also without a pipeline. `pipeline_trials`: the number of trials through the pipeline. It is smaller where
    a trial has many records, and larger where a defect has a small effect. `trials`: the most trials of the mechanism alone.
    `apart`: each trial has a pipeline of its own, because the scenario is about rows that are calibrated together. `fields`:
    records have so many fields beside, and a condition names them all; the audited user's last one has another type than the
    others'. `items`: what a user has at one trigger and in one partition are the items of one record. `topics`: every source is the
    only partition of a topic of its own; with one, all are of one topic. `table`: keys are looked up in a table, which has the
    keys of the scenario and no others. `centred`: the field lies between 0 and 2 L, and every value is 2 L, so that each adds
    L to the sum of the distances from the middle; else they are L, between -L and L.
    `rolling`: readers see two windows, the first of which has the user, and the rolling view; the mechanism alone.
    `remember`: users of a last row, from which on its key is remembered. `windows`: the triggers are those of so many windows in a
    row, one after the other; the pipeline alone.
    `late`: so many of a window's triggers come after its end (allowed lateness).
    `levels`: a record has the same key at so many levels of grouping sets, and each level counts as keys of its own.
    """

    what: str
    keys: int
    users: int
    build: Callable[[bool], Input]
    plan: dict[str, Any]
    declared: bool = False
    inputs: int = 1
    exposes: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    by_strategy: dict[str, dict[str, Any]] = field(default_factory=dict)
    fetch: int | None = None
    lasting: bool = False
    long_keys: bool = False
    pipeline_trials: int | None = None
    live: Live | None = None
    trials: int | None = None
    apart: bool = False
    fields: int = 0
    items: bool = False
    topics: int = 1
    table: bool = False
    centred: bool = False
    rolling: bool = False
    levels: int = 0
    remember: int | None = None
    windows: int = 1
    late: int = 0

    @property
    def mechanism_only(self) -> bool:
        """Whether the scenario tests the mechanism only. The pipeline publishes what is computed of counts by bucket, not these."""
        return self.rolling or any(column.kind == "cells" for column in self.plan.get("columns", ()))

    @property
    def pipeline_only(self) -> bool:
        """Whether the scenario tests the pipeline only."""
        return (
            self.live is not None
            or self.fields > 0
            or self.items
            or self.topics > 1
            or self.table
            or self.levels > 0
            or self.windows > 1
        )

    @property
    def level_names(self) -> tuple[str, ...]:
        """What rows call the levels."""
        return tuple(f"level{number}" for number in range(self.levels))


def make(
    rows: list[tuple[int, int, int]], *, source: list[int] | None = None, arrival: list[int] | None = None
) -> Input:
    """Input from (user, key, trigger) rows, by default from one partition, in order of arrival."""
    user, key, trigger = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return Input(
        user=user,
        key=key,
        trigger=trigger,
        source=source or [0] * len(rows),
        arrival=arrival or list(range(len(rows))),
    )


def plan_of(scenario: Scenario, strategy: str) -> Plan:
    """The plan of a scenario: one sum column, and δ so large that faults show in thousands of trials.

    `closing` measures users again, so its plan has a column of users in addition.
    """
    columns = [Column(name="amount", kind="sum", bound=L)]
    if strategy == "closing":
        columns += USERS
    fields: dict[str, Any] = {
        "delta": 0.05,
        "columns": tuple(columns),
        **scenario.plan,
        **scenario.by_strategy.get(strategy, {}),
    }
    if strategy == ALONE:
        strategy = "closing"
        fields |= {"unknown_share": 0.0, "public_share": 0.0}
    if strategy == "closing":
        # Its stream has a share of the budget, and selection a share of that.
        closing = fields.get("unknown_share", 0.13) + fields.get("public_share", 0.05)
        fields.setdefault("discovery_share", fields.pop("selection_share", 0.5) * (1 - closing))
    # Parameters of other strategies that the scenario is played with, too, mean nothing to this one.
    known = {*Plan.__dataclass_fields__, *STRATEGIES[strategy].Parameters.__dataclass_fields__}
    plan = registry.plan_of(strategy, **{name: value for name, value in fields.items() if name in known})
    levels = tuple(
        Level(
            name=name,
            strategy=plan.strategy,
            parameters=plan.parameters,
            max_records=plan.max_records,
            max_records_per_key=plan.max_records_per_key,
            share=1 / scenario.levels,
        )
        for name in scenario.level_names
    )
    return replace(plan, levels=levels) if levels else plan
