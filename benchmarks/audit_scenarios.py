"""Neighbouring inputs chosen to hurt, played through the real bounding and strategy code, whole or with a defect.

Flow: `SCENARIOS` (one small input, with and without one user) → `play` (many trials side by side) → audit_statistics.
A trial is a copy of the input with users and keys of its own; a strategy treats keys independently of each other, so N
trials are N independent runs of the mechanism although they share a window.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from audit_statistics import Outputs
from offline import StateTable

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.histogram import dp_sqlp, ranked, registry, tree
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, UserKeys
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.registry import STRATEGIES, build_strategy
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.strategy import Increments, Strategy
from susurrus.mechanisms.histogram.user_lists import ListSums, ListWeights
from susurrus.mechanisms.noise import NoiseSource, RowMemory, WindowNoise

L = 64
"""Bound of the measured values: large against the rounding to integers, so that an audit can be tight."""
REAL = "none"
DEFECTS = {
    "no union bound": "thresholds hold at each trigger by themselves, not at all of them together",
    "cap lost": "every restart forgets what users brought before",
    "by-user order": "caps applied in the order records arrived in, which follows other users' load",
    "noise reused": "two different inputs published with the same noise",
    "tested when touched": "keys without news are not tested",
    "no plus one": "threshold at minimum_users instead of minimum_users + 1",
    "noise scale": "noise smaller by the square root of two",
    "rank given back": "adaptive: a user's rank is free again once its key is published",
    "list not scaled": "closing: a key weighs the same however long its user's list is",
    "closing unpaid": "closing: the stream uses the whole budget, and the last trigger measures on top of that",
    "noise by prefix": "remembered noise is found by the first 32 bytes of a key",
    "epoch by name": "the epoch is made from the pipeline's name, so a pipeline begun again has its noise again",
    "dropped too early": "route drops what exceeds the caps in one fetch also where distinct keys are capped",
    "growth at a tick": "a new raw partition counts from behind wherever source 0 stands when it sees it",
    "unknown id kept": "a schema id that was unknown once stays unknown to the worker",
}
MECHANISM_ONLY = ("rank given back",)
"""Planted where the pipeline has no such place: it stores hashes of keys only."""
PIPELINE_ONLY = ("epoch by name",)
"""Of scenarios that run through both, the defects of what only the pipeline has."""


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

    `only`: the strategies it is about; empty: all. `fetch`: rows of a trial that route reads at a time, where that matters.
    `live`: it needs the wall clock. Where either is given, the scenario is about the pipeline alone. `lasting`: there, one
    worker runs on with one partition of each topic, for it is about what a worker remembers. `long_keys`: also where there is
    no pipeline, keys look like addresses of pages. `pipeline_trials`: where a trial has so many records
    that fewer must do, or a defect shows so little that it takes more.
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

    @property
    def pipeline_only(self) -> bool:
        """Whether nothing of it happens in the mechanism."""
        return self.fetch is not None or self.live is not None


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


def boundary(present: bool, *, others: int, keys: int) -> Input:
    """`others` users bring every key, one record short of opening its gate; the user, number 0, opens all."""
    rows = [(1 + key * others + other, key, 1) for key in range(keys) for other in range(others)]
    return make(rows + [(0, key, 1) for key in range(keys) if present])


def burst(present: bool, *, records: int) -> Input:
    """All the user's records on one key at the first trigger."""
    return make([(0, 0, 1)] * records if present else [])


def spread(present: bool, *, records: int) -> Input:
    """One record on each of several keys, one per trigger."""
    return make([(0, i, i + 1) for i in range(records)] if present else [])


def over_the_caps(present: bool, *, cap: int, triggers: int) -> Input:
    """As many keys as the cap, at every trigger again; before each of them a worker restarts."""
    rows = [(0, cap * (t - 1) + key, t) for t in range(1, triggers + 1) for key in range(cap)]
    return make(rows if present else [])


def partitions(present: bool, *, others: int) -> Input:
    """The user's load delays partition 0, so that other users' records there arrive behind those of partition 1.

    Each other user has one record in partition 0 (key 0) and one in partition 1 (key 1), and a cap of one.
    """
    rows = [(1 + other, 0, 1) for other in range(others)] + [(1 + other, 1, 1) for other in range(others)]
    source = [0] * others + [1] * others
    arrival = list(range(others, 2 * others)) + list(range(others)) if present else list(range(2 * others))
    if present:
        rows, source, arrival = [*rows, (0, 2, 1)], [*source, 0], [*arrival, 2 * others]
    return make(rows, source=source, arrival=arrival)


def touch(present: bool, *, crowds: tuple[int, ...]) -> Input:
    """Popular keys get nothing new at trigger 2, except from the user."""
    rows, user = [], 1
    for key, crowd in enumerate(crowds):
        rows += [(user + i, key, 1) for i in range(crowd)]
        user += crowd
    return make(rows + [(0, key, 2) for key in range(len(crowds)) if present])


def discovered(present: bool, *, crowds: tuple[int, ...]) -> Input:
    """Key i comes at trigger 2 i + 1 with so many others that one user more tips the scales, and at the next once more.

    The user brings every key at its first trigger.
    """
    rows, user = [], 1
    for key, crowd in enumerate(crowds):
        for trigger in (2 * key + 1, 2 * key + 2):
            rows += [(user + other, key, trigger) for other in range(crowd)]
            user += crowd
    return make(rows + [(0, key, 2 * key + 1) for key in range(len(crowds)) if present])


def long_list(present: bool, *, others: int, keys: int, halves: bool) -> Input:
    """The user brings every key, half of them a trigger later if `halves`; of the others, each brings one, first of all."""
    rows = [(1 + key * others + other, key, 1) for key in range(keys) for other in range(others)]
    return make(rows + [(0, key, 1 + (halves and 2 * key >= keys)) for key in range(keys) if present])


def one_of_two(present: bool) -> Input:
    """The user has one record, on the first of two keys."""
    return make([(0, 0, 1)] if present else [])


def shared_fetches(present: bool, *, others: int, cap: int) -> Input:
    """Each other user has a key, then `cap` records of another and one more of the first, all of which fill one fetch.

    The audited user's record is the first of all, so that every later fetch begins one record earlier.
    """
    rows = [(1 + other, 0, 1) for other in range(others)]
    for other in range(others):
        rows += [(1 + other, 1, 2)] * cap + [(1 + other, 0, 2)]
    return make([(0, 2, 1)] * present + rows)


def grown(present: bool, *, others: int) -> Input:
    """The user's record lets source 0 tick before the topic grows; the others write to the new partition behind that."""
    rows = [(0, 1, 2)] * present + [(1 + other, 0, 2) for other in range(others)]
    stamps = [66_000] * present + [80_000] * others
    return replace(make(rows, source=[0] * present + [1] * others), stamp=stamps)


def early_schema(present: bool, *, others: int) -> Input:
    """The user's record names a schema that is registered later; the others' records name it then."""
    rows = [(0, 1, 1)] * present + [(1 + other, 0, 1) for other in range(others)]
    stamps = [6_000] * present + [30_000] * others
    return replace(make(rows), stamp=stamps, schema=[SCHEMA_ID] * len(rows))


USERS = (Column(name="users", kind="users"),)
STREAM = {"unknown_share": 0.01, "public_share": 0.01}
"""Hardly anything for the last trigger's own measurements, so that what is wrong before shows (closing only)."""
TIGHT = {"gaussian_delta_fraction": 0.95, "selection_share": 0.02, **STREAM}
"""Nearly all of the budget on the values, so that what is wrong with them shows."""
VALUES_ONLY = {"dp-sqlp": {"discover": False}}
CROWDS = (3, 5, 8, 12, 18)
EVEN_CROWDS = (7,) * 6 + (6,) * 3 + (5,)
"""Just below what names a key at triggers 1, 3, 5, ... of 20."""

SCENARIOS: dict[str, Scenario] = {
    "boundary": Scenario(
        what="keys one user short of the gate",
        keys=1,
        users=2,
        build=partial(boundary, others=1, keys=1),
        plan={
            "epsilon": 3.0,
            "triggers": 1,
            "max_records": 1,
            "minimum_users": 1,
            "selection_share": 0.98,
        },
        # The stream's threshold is adaptive's; here it is the one of the last trigger.
        by_strategy={"closing": {"unknown_share": 0.9, "public_share": 0.05}},
        exposes=("no plus one",),
    ),
    "boundary, many triggers": Scenario(
        what="keys that no other user has, tested at every trigger",
        keys=2,
        users=1,
        build=partial(boundary, others=0, keys=2),
        plan={"epsilon": 2.0, "triggers": 24, "max_records": 2, **STREAM},
        exposes=("no union bound",),
    ),
    "burst": Scenario(
        what="all records on one key at the first trigger",
        keys=1,
        users=1,
        build=partial(burst, records=4),
        plan={"epsilon": 1.0, "triggers": 4, "max_records": 4, "max_records_per_key": 4, **TIGHT},
        declared=True,
        by_strategy=VALUES_ONLY,
        exposes=("noise scale",),
        pipeline_trials=20_000,
    ),
    "spread": Scenario(
        what="a record on each of C keys, one per trigger",
        keys=4,
        users=1,
        build=partial(spread, records=4),
        plan={"epsilon": 1.0, "triggers": 4, "max_records": 4, **TIGHT},
        declared=True,
        by_strategy=VALUES_ONLY,
    ),
    "over the caps": Scenario(
        what="three times the cap, a restart before each third",
        keys=6,
        users=1,
        build=partial(over_the_caps, cap=2, triggers=3),
        plan={"epsilon": 1.0, "triggers": 3, "max_records": 2, **TIGHT},
        declared=True,
        by_strategy={"dp-sqlp": {"discover": False, "max_records": 1}},
        exposes=("cap lost",),
    ),
    "several partitions": Scenario(
        what="a load that delays one raw partition",
        keys=3,
        users=9,
        build=partial(partitions, others=8),
        plan={"epsilon": 1.0, "triggers": 1, "max_records": 1, **TIGHT},
        declared=True,
        by_strategy=VALUES_ONLY,
        exposes=("by-user order",),
    ),
    "published twice": Scenario(
        what="the same window published from an input without and one with the user",
        keys=1,
        users=1,
        build=partial(burst, records=1),
        plan={"epsilon": 1.0, "triggers": 2, "max_records": 1, **TIGHT},
        declared=True,
        inputs=2,
        by_strategy=VALUES_ONLY,
        exposes=("noise reused", "epoch by name"),
    ),
    "keys that begin alike": Scenario(
        what="two long keys with a common beginning, of which the user has one",
        keys=2,
        users=1,
        build=one_of_two,
        plan={"epsilon": 1.0, "triggers": 3, "max_records": 1, **TIGHT},
        declared=True,
        only=("toeplitz", "weighted", "adaptive", "closing"),
        lasting=True,
        long_keys=True,
        exposes=("noise by prefix",),
    ),
    "fetches shared with others": Scenario(
        what="a record that moves where every later fetch begins, under a cap on distinct keys",
        keys=3,
        users=13,
        build=partial(shared_fetches, others=12, cap=2),
        plan={
            "epsilon": 1.0,
            "triggers": 2,
            "max_records": 2,
            "max_records_per_key": 2,
            "max_keys": 1,
            **TIGHT,
        },
        declared=True,
        only=("toeplitz",),
        fetch=3,
        exposes=("dropped too early",),
    ),
    "a topic that grows": Scenario(
        what="a record that moves source 0's tick to the other side of the moment when the topic grows",
        keys=2,
        users=9,
        build=partial(grown, others=8),
        plan={"epsilon": 1.0, "triggers": 3, "max_records": 1, **TIGHT},
        declared=True,
        only=("toeplitz",),
        live=Live(grace=5_000, idle_grace=30_000, grows_at=75_000),
        exposes=("growth at a tick",),
    ),
    "a schema registered late": Scenario(
        what="a record with a schema id that is registered a moment later, and others' records with it",
        keys=2,
        users=9,
        build=partial(early_schema, others=8),
        plan={"epsilon": 1.0, "triggers": 2, "max_records": 1, **TIGHT},
        declared=True,
        only=("toeplitz",),
        lasting=True,
        live=Live(grace=5_000, idle_grace=30_000, registered_at=20_000),
        exposes=("unknown id kept",),
    ),
    "popular keys touched": Scenario(
        what="popular keys whose only news at trigger 2 is the user",
        keys=len(CROWDS),
        users=1 + sum(CROWDS),
        build=partial(touch, crowds=CROWDS),
        plan={"epsilon": 4.0, "triggers": 3, "max_records": len(CROWDS), "selection_share": 0.9, **STREAM},
        exposes=("tested when touched",),
    ),
    "one key after another": Scenario(
        what="a user whose every key is published before the next one comes",
        keys=len(EVEN_CROWDS),
        users=1 + 2 * sum(EVEN_CROWDS),
        build=partial(discovered, crowds=EVEN_CROWDS),
        plan={
            "epsilon": 2.0,
            "triggers": 2 * len(EVEN_CROWDS),
            "max_records": len(EVEN_CROWDS),
            "ranked_keys": 1,
            "gaussian_delta_fraction": 0.95,
            "selection_share": 0.98,
        },
        only=("adaptive",),
        pipeline_trials=1_000,
        exposes=("rank given back",),
    ),
    "long list": Scenario(
        what="a user with many keys that the last trigger finds",
        keys=6,
        users=1 + 6 * 10,
        build=partial(long_list, others=10, keys=6, halves=True),
        plan={
            "epsilon": 2.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 6,
            "gaussian_delta_fraction": 0.95,
            "unknown_share": 0.95,
            "public_share": 0.01,
        },
        only=("closing",),
        exposes=("list not scaled",),
    ),
    "long list, all public": Scenario(
        what="a user with many public keys, counted when they come and once more at the last trigger",
        keys=12,
        users=1,
        build=partial(long_list, others=0, keys=12, halves=False),
        plan={
            "epsilon": 1.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 12,
            "gaussian_delta_fraction": 0.95,
            "selection_share": 0.02,
            "unknown_share": 0.01,
            "public_share": 0.9,
        },
        declared=True,
        only=("closing",),
        exposes=("list not scaled", "closing unpaid"),
    ),
}


def plan_of(scenario: Scenario, strategy: str) -> Plan:
    """The plan a scenario is played with: δ so large that faults show in thousands of trials, one sum column.

    `closing` measures users again, so there it has a column of users besides.
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
    # Parameters of other strategies that the scenario is played with, too, mean nothing to this one.
    known = {*Plan.__dataclass_fields__, *STRATEGIES[strategy].Parameters.__dataclass_fields__}
    return registry.plan_of(strategy, **{name: value for name, value in fields.items() if name in known})


class FlatWeights(ListWeights):
    """What lists would weigh if every key had a short list's weight."""

    def weigh(
        self, indptr: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return np.where(unit == 0, WEIGHT_ONE, 0).astype(np.int64), unit


def build(plan: Plan, defect: str) -> Strategy:
    """The strategy of a plan; four of the defects are faults of its constants."""
    changes = {
        "no union bound": lambda given: {**given, "beta": given["beta"] * plan.triggers},
        "no plus one": lambda given: {**given, "minimum_users": given["minimum_users"] - 1},
    }
    if defect == "closing unpaid":

        def whole(plan: Plan, parameters: Any, *, mu_square: float, **given: Any) -> Any:
            stream = 1 - (parameters.unknown_share + parameters.public_share)
            return ranked.ranked_design(plan, parameters, mu_square=mu_square / stream, **given)

        with patch("susurrus.mechanisms.histogram.closing.ranked_design", whole):
            return build_strategy(plan)
    if defect == "list not scaled":
        strategy = build_strategy(plan)
        keys = plan.parameters_as(Closing.Parameters).keys
        strategy.lists = FlatWeights(keys=keys, max_keys=plan.max_records, column=strategy.lists.column)
        return strategy
    if defect not in changes:
        return build_strategy(plan)

    def broken(*positional: Any, **given: Any) -> Selector:
        return Selector(*positional, **changes[defect](given))

    with (
        patch("susurrus.mechanisms.histogram.toeplitz.Selector", broken),
        patch("susurrus.mechanisms.histogram.ranked.Selector", broken),
    ):
        strategy = build_strategy(plan)
    if isinstance(strategy, Closing) and defect == "no plus one":
        strategy._threshold -= WEIGHT_ONE
    if isinstance(strategy, dp_sqlp.DpSqlp):
        if defect == "no plus one":
            strategy.thresholds -= dp_sqlp.GRID
        else:
            tau = tail_quantile(strategy.beta) * strategy.selection_sigma * tree.prefix_std(plan.triggers)
            strategy.thresholds = np.ceil((tau + plan.minimum_users + 1) * dp_sqlp.GRID).astype(np.int64)
    return strategy


def key_name(trial: int, key: int) -> str:
    """Long, and the same for all keys of a trial over more than 32 bytes, as addresses of pages are."""
    return f"{trial:020d}/a/long/page/of/one/site/{key}"


@contextmanager
def remembered_by_prefix(defect: str) -> Iterator[None]:
    """Plants "noise by prefix", if that is asked for."""
    find, add = RowMemory.find, RowMemory.add
    with ExitStack() as stack:
        if defect == "noise by prefix":
            short = operator.itemgetter(slice(32))
            stack.enter_context(patch.object(RowMemory, "find", lambda self, keys: find(self, list(map(short, keys)))))
            stack.enter_context(
                patch.object(RowMemory, "add", lambda self, keys, rows: add(self, list(map(short, keys)), rows))
            )
        yield


class QuietNoise(WindowNoise):
    """A window's noise, too small by the square root of two."""

    def __init__(self, noise: WindowNoise) -> None:
        self.__dict__.update(noise.__dict__)

    def normal(
        self, labels: npt.NDArray[np.uint8], first: int, last: int, *, sigma: float = 1.0, bits: int = 20
    ) -> npt.NDArray[np.int64]:
        return super().normal(labels, first, last, sigma=sigma / 2**0.5, bits=bits)


def play(scenario: Scenario, strategy: str, *, present: bool, trials: int, seed: int, defect: str = REAL) -> Outputs:
    """Runs `trials` independent copies and returns what their readers see."""
    plan = plan_of(scenario, strategy)
    mechanism = build(plan, defect)
    source = NoiseSource(seed.to_bytes(32, "little"), epoch=b"audit", config=plan.digest(), pipeline="audit")
    seen = []
    for number in range(scenario.inputs):
        # With two inputs of one window, only the second has the user; a second epoch has noise of its own.
        here = present and number == scenario.inputs - 1
        noise = source.window(2 * number + present if defect != "noise reused" else present)
        if defect == "noise scale":
            noise = QuietNoise(noise)
        with remembered_by_prefix(defect):
            seen.append(_window(scenario, mechanism, scenario.build(here), noise, trials, defect))
    return Outputs(
        published=np.concatenate([one.published for one in seen], axis=1),
        estimates=np.concatenate([one.estimates for one in seen], axis=1),
    )


def _window(
    scenario: Scenario, mechanism: Strategy, given: Input, noise: WindowNoise, trials: int, defect: str
) -> Outputs:
    K, U, T, lag = scenario.keys, scenario.users, mechanism.plan.triggers, mechanism.bounding.lag
    columns = mechanism.plan.columns
    size = K * trials
    names = [b"%d" % code for code in range(size)]
    if scenario.long_keys:
        names = [key_name(*divmod(code, K)).encode() for code in range(size)]
    table = StateTable(mechanism, size)
    declared = np.full(size, scenario.declared)
    due = np.where(declared, 0, T + 1).astype(np.int32)
    published, estimates = np.zeros((T, size), np.bool_), np.zeros((T, size, len(columns)))
    unit = np.where(declared, WEIGHT_ONE, 0)
    held = UserKeys.empty(U * trials)
    rows = np.arange(len(given.user))
    order = np.lexsort((rows, given.source, given.user))
    if defect == "by-user order":
        order = np.lexsort((given.arrival, given.user))
    user, key, when = (np.asarray(column, np.int32)[order] for column in (given.user, given.key, given.trigger))
    for trigger in range(1, T + 1):
        if defect == "cap lost":
            held = UserKeys.empty(U * trials)
        copy = np.arange(trials, dtype=np.int32)[:, None]
        now = when == trigger
        code = (copy * K + key[now]).ravel()
        public = declared | published[: max(0, trigger - (lag or 0))].any(axis=0)
        if defect == "rank given back":
            held = replace(held, unranked=held.unranked | public[held.key])
        bounded = mechanism.bounding.close(
            (copy * U + user[now]).ravel(),
            code,
            np.full(U * trials, trigger, np.int32),
            held,
            None if lag is None else public[code],
        )
        held = bounded.state
        ranked = bounded.weight > 0
        users = np.bincount(code[ranked], minlength=size)
        weight = np.bincount(code[ranked], weights=bounded.weight[ranked], minlength=size).astype(np.int64)
        kept, first = (np.bincount(code[which], minlength=size) for which in (bounded.kept, bounded.first))
        sums = np.stack([kept * L if column.kind == "sum" else first for column in columns], axis=1)
        lists = None
        if mechanism.lists is not None and trigger == T:
            lists = ListSums.of(mechanism.lists.add_up(held.indptr, held.key, unit), unit)
        wanted = (kept > 0) | (due == 0)
        if lists is not None:
            wanted |= lists.users > 0
        if defect != "tested when touched":
            wanted |= due == trigger
        chunk = np.flatnonzero(wanted)
        step = mechanism.step(
            trigger,
            [names[i] for i in chunk],
            table.get(chunk),
            Increments(
                users=users[chunk],
                weight=weight[chunk],
                sums=sums[chunk],
                lists=None if lists is None else lists.take(chunk),
            ),
            noise,
            declared[chunk],
        )
        table.put(chunk, step.states)
        due[chunk] = step.due
        published[trigger - 1, chunk] = step.published
        estimates[trigger - 1, chunk] = step.estimates
        if mechanism.lists is not None and trigger == T - lag:
            shown = np.flatnonzero(published[trigger - 1])
            unit[shown] = mechanism.lists.row_units(estimates[trigger - 1, shown].astype(np.int64))
    # Every column counts as keys of its own: one row of numbers a trial.
    return Outputs(
        published=published.T.reshape(trials, K, T).copy(),
        estimates=estimates.transpose(1, 2, 0).reshape(trials, K * len(columns), T).copy(),
    )
