"""Worst-case neighbouring inputs, played through the real bounding and strategy code, with or without a defect.

Flow: `SCENARIOS` (one small input, with and without one user) → `play` (many trials side by side) → audit_statistics.
A trial is a copy of the input with users and keys of its own; a strategy treats keys independently of each other, so N
trials are N independent runs of the mechanism although they share a window.
"""

import operator
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import audit_closing
import audit_closing_defects
import audit_remembering
import numpy as np
import numpy.typing as npt
from audit_inputs import (
    ALONE,
    BUCKETS,
    COUNT_AND_CENTRED,
    REAL,
    SCHEMA_ID,
    STREAM,
    TIGHT,
    WEIGHED,
    Input,
    L,
    Live,
    Scenario,
    make,
    plan_of,
)
from audit_statistics import Outputs

from susurrus.agents.histogram.evidence import EvidenceOf
from susurrus.agents.planning.states import StateTable
from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.histogram import dp_sqlp, tree
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, Bounding, UserKeys
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.factored import Values
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.rest import RestOfWindow
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.strategy import Increments, Strategy
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource, RowMemory, WindowNoise

DEFECTS = {
    "no union bound": "thresholds hold at each trigger by themselves, not at all of them together",
    "cap lost": "every restart forgets what users brought before",
    "by-user order": "caps applied in the order records arrived in, which follows other users' load",
    "noise reused": "two different inputs published with the same noise",
    "tested when touched": "keys without news are not tested",
    "no plus one": "threshold at minimum_users instead of minimum_users + 1",
    "noise scale": "noise smaller by the square root of two",
    "rank given back": "a user's rank is free again once its key is published",
    "noise by prefix": "remembered noise is found by the first 32 bytes of a key",
    "epoch by name": "the epoch is made from the pipeline's name, so a pipeline begun again has its noise again",
    "dropped too early": "route drops what exceeds the caps on records in one fetch also where more is kept of a user",
    "growth at a tick": "a new raw partition counts from the current position of source 0, when source 0 sees it",
    "kinds in one number": "the types of a record's fields are digits of a number of 64 bits, which some fields more overflow",
    "unknown id kept": "a schema id that was unknown once stays unknown to the worker",
    "items as one": "the items of a record count as one record, with the sum of their values",
    "norm of buckets": "noise of counts by bucket that forgets what the bucket factor adds to a record's norm",
    "caps for each topic": "a user has caps of its own in every raw topic",
    "weights not divided": "a column has its weight times an equal share, as if weights added up to the number of columns",
    "lookup remembers": "a key that a lookup table has not finds what was found for the record before it",
    "rest of exact counts": "a rolling view takes the rest of the window before from exact running totals",
    "half of the width": "the mechanism is told half of what a value may be away from the centre",
    "levels as one": "each level of grouping sets has the whole budget, as if a user were at one of them",
    **audit_closing_defects.DEFECTS,
    **audit_remembering.DEFECTS,
}
MECHANISM_ONLY = ("rank given back", *audit_closing_defects.MECHANISM_ONLY)
"""Planted where the pipeline has no such place: it stores hashes of keys only."""
PIPELINE_ONLY = ("epoch by name",)
"""Of scenarios that run through both, the defects of what only the pipeline has."""


def boundary(present: bool, *, others: int, keys: int) -> Input:
    """Each key has `others` users of its own, one too few to open its gate. The user, number 0, opens all gates."""
    rows = [(1 + key * others + other, key, 1) for key in range(keys) for other in range(others)]
    return make(rows + [(0, key, 1) for key in range(keys) if present])


def burst(present: bool, *, records: int) -> Input:
    """All the user's records on one key at the first trigger."""
    return make([(0, 0, 1)] * records if present else [])


def late(present: bool, *, trigger: int) -> Input:
    """One record, at this trigger."""
    return make([(0, 0, trigger)] if present else [])


def spread(present: bool, *, records: int) -> Input:
    """One record on each of several keys, one per trigger."""
    return make([(0, i, i + 1) for i in range(records)] if present else [])


def over_the_caps(present: bool, *, cap: int, triggers: int) -> Input:
    """At every trigger the user brings as many new keys as the cap allows. A worker restarts before each trigger."""
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
    """At trigger 2 only the audited user brings popular keys."""
    rows, user = [], 1
    for key, crowd in enumerate(crowds):
        rows += [(user + i, key, 1) for i in range(crowd)]
        user += crowd
    return make(rows + [(0, key, 2) for key in range(len(crowds)) if present])


def discovered(present: bool, *, crowds: tuple[int, ...]) -> Input:
    """Key i comes at trigger 2 i + 1 with so many other users that one more user decides, and again at the next trigger.

    The user brings every key at its first trigger.
    """
    rows, user = [], 1
    for key, crowd in enumerate(crowds):
        for trigger in (2 * key + 1, 2 * key + 2):
            rows += [(user + other, key, trigger) for other in range(crowd)]
            user += crowd
    return make(rows + [(0, key, 2 * key + 1) for key in range(len(crowds)) if present])


def one_of_two(present: bool) -> Input:
    """The user has one record, on the first of two keys."""
    return make([(0, 0, 1)] if present else [])


def shared_fetches(present: bool, *, others: int, cap: int) -> Input:
    """Each other user has a record of one key, then `cap` records of another key and one more of the first. These fill one fetch.

    The audited user's record is the first of all, so that every later fetch begins one record earlier.
    """
    rows = [(1 + other, 0, 1) for other in range(others)]
    for other in range(others):
        rows += [(1 + other, 1, 2)] * cap + [(1 + other, 0, 2)]
    return make([(0, 2, 1)] * present + rows)


def grown(present: bool, *, others: int) -> Input:
    """The user's record lets source 0 tick before the topic grows. The others then write to the new partition."""
    rows = [(0, 1, 2)] * present + [(1 + other, 0, 2) for other in range(others)]
    stamps = [66_000] * present + [80_000] * others
    return replace(make(rows, source=[0] * present + [1] * others), stamp=stamps)


def early_schema(present: bool, *, others: int) -> Input:
    """The user's record names a schema that is registered later; the others' records name it then."""
    rows = [(0, 1, 1)] * present + [(1 + other, 0, 1) for other in range(others)]
    stamps = [6_000] * present + [30_000] * others
    return replace(make(rows), stamp=stamps, schema=[SCHEMA_ID] * len(rows))


def in_each_source(present: bool, *, sources: int) -> Input:
    """The user has one record of the same key in every source."""
    rows = [(0, 0, 1)] * sources if present else []
    return make(rows, source=list(range(len(rows))))


def odd_field(present: bool, *, others: int) -> Input:
    """The user's record stands among the others' in one fetch."""
    return make([(0, 1, 1)] * present + [(1 + other, 0, 1) for other in range(others)])


def unlisted(present: bool, *, others: int) -> Input:
    """The others' keys are in no table. The user's record stands before theirs, and its key is in it."""
    return make([(0, 1, 1)] * present + [(1 + other, 2, 1) for other in range(others)])


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
        # The stream's threshold is that of `no last look`; here it is the one of the last trigger.
        by_strategy={
            ALONE: {"ranked_keys": 1},
            "closing": {"unknown_share": 0.9, "public_share": 0.05, "ranked_keys": 1, "keys": 1, "filter_weight": 0.0},
        },
        exposes=("no plus one",),
    ),
    "boundary, many triggers": Scenario(
        what="keys that no other user has, tested at every trigger",
        keys=2,
        users=1,
        build=partial(boundary, others=0, keys=2),
        plan={"epsilon": 2.0, "triggers": 24, "max_records": 2, **STREAM},
        by_strategy={ALONE: {"ranked_keys": 2}, "closing": {"ranked_keys": 2, "keys": 2}},
        exposes=("no union bound",),
    ),
    "burst": Scenario(
        what="all records on one key at the first trigger",
        keys=1,
        users=1,
        build=partial(burst, records=4),
        plan={"epsilon": 1.0, "triggers": 4, "max_records": 4, "max_records_per_key": 4, **TIGHT},
        declared=True,
        # 3 records of a key, counted and summed, cost 3^2 + 1 = 2 * 5, which is all that the ledger of `closing` allows.
        by_strategy={**VALUES_ONLY, "closing": {"max_records": 5}},
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
        only=("toeplitz", ALONE, "closing"),
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
    "a field of another type": Scenario(
        what="a condition over many fields, of which the user's record has one as a number",
        keys=2,
        users=9,
        build=partial(odd_field, others=8),
        plan={"epsilon": 1.0, "triggers": 2, "max_records": 1, **TIGHT},
        declared=True,
        only=("toeplitz",),
        fetch=9,
        fields=20,
        exposes=("kinds in one number",),
    ),
    "a public table": Scenario(
        what="keys that a lookup table has not, behind a record of the user whose key it has",
        keys=2,
        users=9,
        build=partial(unlisted, others=8),
        plan={"epsilon": 1.0, "triggers": 2, "max_records": 1, **TIGHT},
        declared=True,
        only=("toeplitz",),
        fetch=9,
        table=True,
        exposes=("lookup remembers",),
    ),
    "items of one record": Scenario(
        what="one record with four times as many items as the caps allow",
        keys=1,
        users=1,
        build=partial(burst, records=8),
        plan={"epsilon": 1.0, "triggers": 2, "max_records": 2, "max_records_per_key": 2, **TIGHT},
        declared=True,
        only=("toeplitz",),
        items=True,
        exposes=("items as one",),
    ),
    "several topics": Scenario(
        what="a record in each of four topics, of which the caps allow one",
        keys=1,
        users=1,
        build=partial(in_each_source, sources=4),
        plan={"epsilon": 1.0, "triggers": 2, "max_records": 1, **TIGHT},
        declared=True,
        only=("toeplitz",),
        topics=4,
        exposes=("caps for each topic",),
    ),
    "several levels": Scenario(
        what="a record that counts at four levels of grouping sets",
        keys=4,
        users=1,
        build=partial(burst, records=1),
        plan={"epsilon": 1.0, "triggers": 2, "max_records": 1, **TIGHT},
        declared=True,
        only=("toeplitz",),
        levels=4,
        exposes=("levels as one",),
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
        only=(ALONE,),
        pipeline_trials=1_000,
        exposes=("rank given back",),
    ),
    "a value at the end of its range": Scenario(
        what="one record with the largest value, counted, and summed from the middle of the range",
        keys=1,
        users=1,
        build=partial(burst, records=1),
        plan={"epsilon": 1.0, "triggers": 3, "max_records": 1, "columns": COUNT_AND_CENTRED, **TIGHT},
        declared=True,
        only=("toeplitz", ALONE, "closing"),
        centred=True,
        exposes=("half of the width",),
        pipeline_trials=20_000,
    ),
    "a column of eight times the weight": Scenario(
        what="one record, counted and summed; the sum has eight times the weight",
        keys=1,
        users=1,
        build=partial(burst, records=1),
        plan={"epsilon": 1.0, "triggers": 3, "max_records": 1, "columns": WEIGHED, **TIGHT},
        declared=True,
        by_strategy=VALUES_ONLY,
        exposes=("weights not divided",),
    ),
    "buckets": Scenario(
        what="one record in the first bucket, of 256 cumulative counts",
        keys=1,
        users=1,
        build=partial(burst, records=1),
        plan={"epsilon": 1.0, "triggers": 1, "max_records": 1, "columns": BUCKETS, **TIGHT},
        declared=True,
        only=("toeplitz", ALONE),
        exposes=("norm of buckets",),
    ),
    "a rolling view": Scenario(
        what="one record in a window, read there and in the view of the next one",
        keys=1,
        users=1,
        build=partial(late, trigger=3),
        plan={"epsilon": 1.0, "triggers": 4, "max_records": 1, **TIGHT},
        declared=True,
        inputs=2,
        only=("toeplitz", ALONE, "closing"),
        rolling=True,
        exposes=("rest of exact counts",),
    ),
    **audit_closing.SCENARIOS,
}


def build(plan: Plan, defect: str) -> Strategy:
    """The strategy of a plan. Four of the defects change its constants."""
    changes = {
        "no union bound": lambda given: {**given, "beta": given["beta"] * plan.triggers},
        "no plus one": lambda given: {**given, "minimum_users": given["minimum_users"] - 1},
    }
    if defect in audit_closing_defects.DEFECTS:
        return audit_closing_defects.build(plan, defect)
    if defect == "half of the width":
        halved = (replace(column, bound=max(1, column.bound // 2)) for column in plan.columns)
        return build_strategy(replace(plan, columns=tuple(halved)))
    if defect == "weights not divided":
        return _undivided(plan)
    if defect == "norm of buckets":
        strategy = build_strategy(plan)
        for value in strategy.values:
            if isinstance(value, Cells):
                value.sigma /= value.over_buckets.col2**0.5
        return strategy
    if defect == "dropped too early":
        strategy = build_strategy(plan)
        strategy.bounding.arriving = audit_closing_defects.dropped_too_early(strategy.bounding)  # type: ignore[method-assign]
        return strategy
    if defect == "levels as one":
        plans = tuple(replace(each, part=replace(each.part, share=1.0)) for each in plan.level_plans() if each.part)
        with patch.object(Plan, "level_plans", lambda of: plans):
            return build_strategy(plan)
    if defect not in changes:
        return build_strategy(plan)

    def broken(*positional: Any, **given: Any) -> Selector:
        return Selector(*positional, **changes[defect](given))

    with (
        patch("susurrus.mechanisms.histogram.toeplitz.Selector", broken),
        patch("susurrus.mechanisms.histogram.ranked.Selector", broken),
    ):
        strategy = build_strategy(plan)
    if isinstance(strategy, Closing) and strategy.look is not None:
        (audit_closing_defects.no_plus_one if defect == "no plus one" else audit_closing_defects.no_union_bound)(
            strategy
        )
    if isinstance(strategy, dp_sqlp.DpSqlp):
        if defect == "no plus one":
            strategy.thresholds -= dp_sqlp.GRID
        else:
            tau = tail_quantile(strategy.beta) * strategy.selection_sigma * tree.prefix_std(plan.triggers)
            strategy.thresholds = np.ceil((tau + plan.minimum_users + 1) * dp_sqlp.GRID).astype(np.int64)
    return strategy


def _undivided(plan: Plan) -> Strategy:
    """The strategy with equal shares, and less noise for columns of more weight."""
    strategy = build_strategy(replace(plan, columns=tuple(replace(column, weight=1.0) for column in plan.columns)))
    if isinstance(strategy, dp_sqlp.DpSqlp):
        pairs = zip(strategy.value_sigma, plan.columns, strict=True)
        strategy.value_sigma = [sigma / column.weight**0.5 for sigma, column in pairs]
        return strategy
    values = list(strategy.values)
    for column, source in zip(plan.columns, strategy.source, strict=True):
        value = values[source]
        values[source] = Values(value.mechanism, value.factorization, value.sigma / column.weight**0.5)
    strategy.values = tuple(values)
    return strategy


def key_name(trial: int, key: int) -> str:
    """A long key. More than its first 32 bytes are the same for all keys of a trial, as in addresses of pages."""
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
    """The planted defect: noise that is too small by a factor of the square root of two."""

    def __init__(self, noise: WindowNoise) -> None:
        self.__dict__.update(noise.__dict__)

    def normal(
        self, labels: npt.NDArray[np.uint8], first: int, last: int, *, sigma: float = 1.0, bits: int = 20
    ) -> npt.NDArray[np.int64]:
        return super().normal(labels, first, last, sigma=sigma / 2**0.5, bits=bits)


def play(scenario: Scenario, strategy: str, *, present: bool, trials: int, seed: int, defect: str = REAL) -> Outputs:
    """Run `trials` independent copies and return what their readers see."""
    plan = plan_of(scenario, strategy)
    mechanism = build(plan, defect)
    source = NoiseSource(seed.to_bytes(32, "little"), epoch=b"audit", config=plan.digest(), pipeline="audit")
    seen = []
    for number in range(scenario.inputs):
        # With two inputs of one window, only the second has the user; a second epoch has noise of its own. So has the next window.
        here = present and number == (0 if scenario.rolling else scenario.inputs - 1)
        noise = source.window(2 * number + present if defect != "noise reused" else present)
        if defect == "noise scale":
            noise = QuietNoise(noise)
        with remembered_by_prefix(defect):
            seen.append(play_window(scenario, mechanism, scenario.build(here), noise, trials, defect))
    if scenario.rolling:
        seen.append(_rolling(mechanism, *seen, scenario.build(present) if defect == "rest of exact counts" else None))
    return Outputs.joined(seen)


def _rolling(mechanism: Strategy, before: Outputs, now: Outputs, exact: Input | None) -> Outputs:
    """The rolling view of two windows, in which every key has a row. exact: of the first one, where the defect looks at it."""
    trials, numbers, T = now.estimates.shape
    columns = mechanism.plan.columns
    end = before.estimates[:, :, -1].reshape(-1, len(columns)).astype(np.int64)
    errors = np.broadcast_to(mechanism.standard_errors()[-1], end.shape)
    view = now.estimates.copy()
    for trigger in range(1, T):
        since = np.full(len(end), trigger)
        early = before.estimates[:, :, trigger - 1].reshape(-1, len(columns)).astype(np.int64)
        rest, _ = RestOfWindow.of(mechanism, since, Trigger(T)).rows(since, early, end, end, errors)
        if exact is not None:
            later = sum(when > trigger for when in exact.trigger)
            rest = np.broadcast_to([later * (L if column.kind == "sum" else 1) for column in columns], rest.shape)
        view[:, :, trigger - 1] += rest.reshape(trials, numbers)
    return Outputs(published=np.ones_like(now.published), estimates=view)


def play_window(
    scenario: Scenario,
    mechanism: Strategy,
    given: Input,
    noise: WindowNoise,
    trials: int,
    defect: str = REAL,
    *,
    remembered: npt.NDArray[np.bool_] | None = None,
    enters: int = 1,
    comes: npt.NDArray[np.bool_] | None = None,
    evidence: EvidenceOf | None = None,
) -> Outputs:
    """One window of all trials. remembered: bool[trials, keys], public from trigger `enters` on. comes: bool[trials, keys], whose
    records there are; None: all. evidence: of the windows before, which takes in what this one measures.
    """
    K, U, T, lag = scenario.keys, scenario.users, mechanism.plan.triggers, mechanism.bounding.lag
    columns, width = mechanism.plan.columns, mechanism.plan.width
    size = K * trials
    names = [b"%d" % code for code in range(size)]
    if scenario.long_keys:
        names = [key_name(*divmod(code, K)).encode() for code in range(size)]
    table = StateTable(mechanism, size)
    declared = np.full(size, scenario.declared)
    if remembered is not None and enters == 1:
        declared |= remembered.ravel()
    due = np.where(declared, 0, T + 1).astype(np.int32)
    published, estimates, errors = np.zeros((T, size), np.bool_), np.zeros((T, size, width)), np.zeros((T, size, width))
    unit = np.where(declared, WEIGHT_ONE, 0)
    held = UserKeys.empty(U * trials)
    seen = moved = None
    rows = np.arange(len(given.user))
    order = np.lexsort((rows, given.source, given.user))
    if defect == "by-user order":
        order = np.lexsort((given.arrival, given.user))
    if scenario.fetch is not None:
        order = order[_arriving(mechanism.bounding, given, scenario.fetch)[order]]
    user, key, when = (np.asarray(column, np.int32)[order] for column in (given.user, given.key, given.trigger))
    for trigger in range(1, T + 1):
        if defect == "cap lost":
            held = UserKeys.empty(U * trials)
        copy = np.arange(trials, dtype=np.int32)[:, None]
        now = when == trigger
        code = (copy * K + key[now]).ravel()
        owner = (copy * U + user[now]).ravel()
        if comes is not None:
            there = comes.ravel()[code]
            code, owner = code[there], owner[there]
        if remembered is not None and trigger == enters:
            declared = declared | remembered.ravel()
            due[declared] = 0
            if trigger > 1 and T - (lag or 0) == trigger - 1:  # lists look back at when these keys became public
                unit[declared & (unit == 0)] = WEIGHT_ONE
        public = declared | published[: max(0, trigger - (lag or 0))].any(axis=0)
        if defect == "rank given back":
            held = replace(held, unranked=held.unranked | public[held.key])
        bounded = mechanism.bounding.close(
            owner,
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
        sums = np.zeros((size, width), np.int64)
        for column, place in zip(columns, mechanism.plan.places, strict=True):
            # Every record is in the first bucket.
            sums[:, place.start] = {"sum": kept * L, "cells": kept}.get(column.kind, first)
        lists = None
        if mechanism.lists is not None and trigger == T:
            listed = held.key
            if defect == "list cut by hope":
                listed = audit_closing_defects.by_hope(
                    mechanism, names, table.get(np.arange(size)), held, T - lag, noise
                )
            lists = ListSums.of(mechanism.lists.add_up(held.indptr, listed, unit), unit)
        wanted = (kept > 0) | (due == 0)
        if lists is not None:
            wanted |= lists.users > 0
        if defect != "tested when touched":
            wanted |= due == trigger
        if evidence is not None and lists is not None:
            wanted[[int(name) for name in evidence.opened()]] = True
        chunk = np.flatnonzero(wanted)
        named, states, past = [names[i] for i in chunk], table.get(chunk), None
        if evidence is not None and lists is not None:
            opened = lists.users[chunk] > mechanism.plan.minimum_users
            past = evidence.past(named, ~(states.selected | declared[chunk]) & opened)
        step = mechanism.step(
            trigger,
            named,
            states,
            Increments(
                users=users[chunk],
                weight=weight[chunk],
                sums=sums[chunk],
                lists=None if lists is None else lists.take(chunk),
                past=past,
            ),
            noise,
            declared[chunk],
        )
        if evidence is not None and lists is not None:
            evidence.take(named, step, ())
        plain = step.estimates
        step = audit_closing_defects.calibrated(mechanism, step, chunk // K)
        table.put(chunk, step.states)
        due[chunk] = step.due
        published[trigger - 1, chunk] = step.published
        estimates[trigger - 1, chunk] = step.estimates
        errors[trigger - 1, chunk] = step.std_errors
        if step.pooled_rows is not None:
            rows = step.pooled_rows
            change = plain - step.estimates
            seen = np.zeros((size, width + 2))
            seen[chunk, :width] = change
            seen[chunk[rows.index], width:] = rows.evidence[:, 1:3] / WEIGHT_ONE
            moved = np.zeros(size, np.bool_)
            moved[chunk] = change.any(axis=1)
        if mechanism.lists is not None and trigger == T - lag:
            shown = np.flatnonzero(published[trigger - 1])
            unit[shown] = mechanism.lists.row_units(estimates[trigger - 1, shown].astype(np.int64))
    # Every column counts as keys of its own: one row of numbers a trial.
    return Outputs(
        published=published.T.reshape(trials, K, T).copy(),
        estimates=estimates.transpose(1, 2, 0).reshape(trials, K * width, T).copy(),
        errors=errors.transpose(1, 2, 0).reshape(trials, K * width, T).copy(),
        evidence=None if seen is None else seen.reshape(trials, -1),
        calibrated=None if moved is None else moved.reshape(trials, K).any(axis=1),
    )


def _arriving(bounding: Bounding, given: Input, fetch: int) -> npt.NDArray[np.bool_]:
    """bool[n]: what route hands on of one trial's records, if so many are in a fetch."""
    n = len(given.user)
    arrives = np.zeros(n, np.bool_)
    columns = [np.asarray(column, np.int64) for column in (given.source, given.user, given.trigger, given.key)]
    for source in np.unique(columns[0]):
        log = np.flatnonzero(columns[0] == source)
        for begin in range(0, len(log), fetch):
            rows = log[begin : begin + fetch]
            _, user, when, key = (column[rows] for column in columns)
            order = np.lexsort((rows, when, user))
            _, member = np.unique(user[order] * (int(when.max()) + 1) + when[order], return_inverse=True)
            arrives[rows[order]] = bounding.arriving(member.astype(np.int32), key[order].astype(np.int32))
    return arrives
