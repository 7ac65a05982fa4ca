"""What is attacked in strategy `closing` alone: inputs that its last trigger must stand, and defects planted in it.

Most inputs put keys at the boundary of the last trigger's gate: the audited user opens it. There, delta pays for a failure of the
joint test, and a test that is too easy fails more often than that. Every defect is a change of the strategy object, so the pipeline
plays it as well as the mechanism alone, if not said otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from audit_inputs import USERS, Input, Scenario, make

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.bounding import MAX_LISTED_KEYS, WEIGHT_ONE, Bounding, UserKeys
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.factored import Design
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Increments, PooledRows, Step, Strategy
from susurrus.mechanisms.histogram.user_lists import ListWeights
from susurrus.mechanisms.histogram.value_ledger import ValueLedger
from susurrus.mechanisms.noise import WindowNoise

DEFECTS = {
    "list not scaled": "closing: a key weighs the same in lists of any length",
    "list cut from its end": "closing: the last keys of a list are measured, and not the first",
    "list cut by hope": "closing: those keys of a list are measured whose noise in the stream is highest",
    "fewer keys than ranks": "closing: keys with a rank are not among those that are measured at the last trigger",
    "no gate at the end": "closing: the last trigger tests keys that nobody has weight on, too",
    "gate before the cut": "closing: the gate counts users whose lists name a key, also behind the cut",
    "filter without height": "closing: the level does not hold what minimum_users + 1 users add to the filter",
    "filter without noise": "closing: the level holds the noise of the lists, and not the noise of the filter",
    "only behind the stream's gate": "closing: the last trigger tests only keys whose gate in the stream is open",
    "repeats at the price of one": "closing: a record costs the same in the ledger, however many its key has",
    "calibrated by failures": "closing: keys that failed the test count in the calibration of those that passed",
    "closing unpaid": "closing: the stream uses the whole budget, and the last trigger measures on top of that",
}
MECHANISM_ONLY = ("list cut by hope",)
"""Bound, which cuts the lists, has no noise of the stream that it could look at."""

EVIDENCE = 1_024
"""By how much measurements are multiplied where a pipeline shows them as integers."""

Int64 = npt.NDArray[np.int64]


# ---- inputs ----------------------------------------------------------------------------------------------------------


def long_list(present: bool, *, others: int, keys: int, halves: bool) -> Input:
    """The user brings every key (`halves`: half of them a trigger later). Each other user brings one, before the user does."""
    rows = [(1 + key * others + other, key, 1) for key in range(keys) for other in range(others)]
    return make(rows + [(0, key, 1 + (halves and 2 * key >= keys)) for key in range(keys) if present])


def alone(present: bool, *, keys: int, trigger: int) -> Input:
    """The user brings keys that nobody else has."""
    return make([(0, key, trigger) for key in range(keys)] if present else [])


def hidden(present: bool, *, others: int, keys: int, before: int, behind: int) -> Input:
    """Each key has `others` users of its own, who bring so many other keys before it and behind it. The user brings the keys alone.

    The others' other keys are those from `keys` on, the same for all who bring the same key.
    """
    rows = []
    for key in range(keys):
        own = [keys + key * (before + behind) + i for i in range(before + behind)]
        order = [*own[:before], key, *own[before:]]
        rows += [(1 + key * others + other, each, 1) for other in range(others) for each in order]
    return make(rows + [(0, key, 1) for key in range(keys) if present])


def nearly_enough(present: bool, *, keys: int, others: int) -> Input:
    """Each key has `others` users of its own, who come at the end. The user brings one more key, which nobody else has."""
    rows = [(1 + key * others + other, key, 2) for key in range(keys) for other in range(others)]
    return make(rows + [(0, keys, 2)] * present)


def repeats(present: bool, *, records: int) -> Input:
    """All the user's records are of one key, at the first trigger."""
    return make([(0, 0, 1)] * records if present else [])


def pairs(present: bool, *, others: int) -> Input:
    """Each other user brings two keys, in one fetch if the audited user is not there. The audited user's record is the first."""
    return make([(0, 2, 1)] * present + [(1 + other, key, 1) for other in range(others) for key in range(2)])


AT_THE_END = {"columns": USERS, "max_records": 4, "public_share": 0.01}
"""Of scenarios about the test at the last trigger."""
LENGTH = 80
HIDDEN_KEYS = 4

SCENARIOS: dict[str, Scenario] = {
    "long list": Scenario(
        what="a user with many keys that the last trigger finds",
        keys=6,
        users=1 + 6 * 4,
        build=partial(long_list, others=4, keys=6, halves=True),
        plan={
            "epsilon": 2.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 6,
            "gaussian_delta_fraction": 0.95,
            "ranked_keys": 6,
            "keys": 6,
            "filter_weight": 0.0,
            "discovery_share": 0.02,
            "unknown_share": 0.95,
            "public_share": 0.01,
        },
        only=("closing",),
        exposes=("list not scaled",),
    ),
    "long list, all public": Scenario(
        what="a user with many public keys, counted when they come and once more at the last trigger",
        keys=24,
        users=1,
        build=partial(long_list, others=0, keys=24, halves=False),
        plan={
            "epsilon": 2.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 24,
            "gaussian_delta_fraction": 0.95,
            "discovery_share": 0.005,
            "unknown_share": 0.005,
            "public_share": 0.9,
        },
        declared=True,
        only=("closing",),
        exposes=("list not scaled", "closing unpaid"),
    ),
    "boundary at the end": Scenario(
        what="a key that nobody else has, tested with what the stream knows of it",
        keys=1,
        users=1,
        build=partial(alone, keys=1, trigger=1),
        plan={
            **AT_THE_END,
            "epsilon": 2.5,
            "triggers": 2,
            "ranked_keys": 1,
            "keys": 1,
            "filter_weight": 10.0,
            "discovery_share": 0.88,
            "unknown_share": 0.1,
        },
        only=("closing",),
        pipeline_trials=16_000,
        exposes=("filter without height", "filter without noise"),
    ),
    "many keys at the end": Scenario(
        what="a user with many keys that nobody else has, of which one counts",
        keys=LENGTH,
        users=1,
        build=partial(alone, keys=LENGTH, trigger=8),
        plan={
            **AT_THE_END,
            "epsilon": 0.5,
            "triggers": 8,
            "max_records": LENGTH,
            "ranked_keys": 1,
            "keys": 1,
            "filter_weight": 3.0,
            "discovery_share": 0.6,
            "unknown_share": 0.35,
        },
        only=("closing",),
        trials=10_000,
        pipeline_trials=2_000,
        exposes=("list cut by hope", "no gate at the end", "gate before the cut"),
    ),
    "keys that others bring first": Scenario(
        what="keys that others rank, and that are not the last ones of their lists",
        keys=HIDDEN_KEYS * (1 + HIDDEN_KEYS),
        users=1 + HIDDEN_KEYS * 7,
        build=partial(hidden, others=7, keys=HIDDEN_KEYS, before=0, behind=HIDDEN_KEYS),
        plan={
            **AT_THE_END,
            "epsilon": 1.0,
            "triggers": 24,
            "ranked_keys": HIDDEN_KEYS,
            "keys": HIDDEN_KEYS,
            "prior": (1.0,),
            "filter_weight": 100.0,
            "discovery_share": 0.95,
            "unknown_share": 0.03,
        },
        only=("closing",),
        trials=20_000,
        pipeline_trials=4_000,
        exposes=("list cut from its end",),
    ),
    "keys that others bring second": Scenario(
        what="a key that others rank second",
        keys=2,
        users=1 + 8,
        build=partial(hidden, others=8, keys=1, before=1, behind=0),
        plan={
            **AT_THE_END,
            "epsilon": 1.0,
            "triggers": 24,
            "ranked_keys": 64,
            "keys": 64,
            "prior": (1.0, 1.0),
            "filter_weight": 100.0,
            "discovery_share": 0.95,
            "unknown_share": 0.03,
        },
        only=("closing",),
        pipeline_trials=4_000,
        exposes=("fewer keys than ranks",),
    ),
    "a key without a rank": Scenario(
        what="a key that nobody else ranks, and that many others have",
        keys=2,
        users=1 + 30,
        build=partial(hidden, others=30, keys=1, before=1, behind=0),
        plan={
            **AT_THE_END,
            "epsilon": 1.0,
            "triggers": 2,
            "ranked_keys": 1,
            "keys": 2,
            "discovery_share": 0.3,
            "unknown_share": 0.6,
        },
        only=("closing",),
        pipeline_trials=2_000,
        exposes=("only behind the stream's gate",),
    ),
    "repeats of one key": Scenario(
        what="records on one key, as many as are kept",
        keys=1,
        users=1,
        build=partial(repeats, records=13),
        plan={
            "epsilon": 1.0,
            "triggers": 4,
            # 5 records of a key, counted and summed, cost 5^2 + 1 = 2 * 13.
            "max_records": 13,
            "max_records_per_key": 13,
            "gaussian_delta_fraction": 0.95,
            "discovery_share": 0.02,
            "unknown_share": 0.01,
            "public_share": 0.01,
        },
        declared=True,
        only=("closing",),
        exposes=("repeats at the price of one",),
    ),
    "lists shared with others": Scenario(
        what="a record that moves where every later fetch begins, and keys that the caps do not keep",
        keys=3,
        users=1 + 12,
        build=partial(pairs, others=12),
        plan={
            "epsilon": 1.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 1,
            "gaussian_delta_fraction": 0.95,
            "discovery_share": 0.02,
            "unknown_share": 0.01,
            "public_share": 0.9,
        },
        declared=True,
        only=("closing",),
        fetch=2,
        pipeline_trials=4_000,
        exposes=("dropped too early",),
    ),
    "one row too few": Scenario(
        what="one published row too few for a calibration, and a key that fails",
        keys=200,
        users=1 + 199 * 8,
        build=partial(nearly_enough, keys=199, others=8),
        plan={
            **AT_THE_END,
            "epsilon": 2.0,
            "triggers": 2,
            "ranked_keys": 1,
            "keys": 1,
            "filter_weight": 0.0,
            "discovery_share": 0.01,
            "unknown_share": 0.95,
        },
        only=("closing",),
        trials=800,
        pipeline_trials=300,
        apart=True,
        exposes=("calibrated by failures",),
    ),
}


# ---- defects ---------------------------------------------------------------------------------------------------------


class FlatWeights(ListWeights):
    """Every key of a list has the weight of a key of a short list."""

    def weigh(self, indptr: Int64, unit: Int64) -> tuple[Int64, Int64]:
        return np.where(unit == 0, WEIGHT_ONE, 0).astype(np.int64), unit


class LastKeys(ListWeights):
    """The last keys of a list count, and not the first."""

    def add_up(self, indptr: Int64, key: Int64, unit: Int64) -> Int64:
        length = np.diff(indptr)
        owner = np.repeat(np.arange(len(length)), length)
        return super().add_up(indptr, key[indptr[:-1][owner] + indptr[1:][owner] - 1 - np.arange(len(key))], unit)


class EarlyGate(ListWeights):
    """The gate counts every list that names a key."""

    def add_up(self, indptr: Int64, key: Int64, unit: Int64) -> Int64:
        sums = super().add_up(indptr, key, unit)
        sums[:, 0] = np.where(unit == 0, np.bincount(key, minlength=len(unit)), 0)
        return sums


class FlatLedger(ValueLedger):
    """No record costs more for the records of its key before it."""

    def admit(
        self, user: Any, root: Int64, pair: Int64, repeat: Int64, spent: Int64, charged: Int64, candidate: Any
    ) -> Any:
        return super().admit(user, root, pair, np.zeros_like(repeat), np.zeros_like(spent), charged, candidate)


def _as(kind: type, given: Any) -> Any:
    """The same object with the methods of a subclass."""
    out = object.__new__(kind)
    out.__dict__.update(given.__dict__)
    return out


def dropped_too_early(bounding: Bounding) -> Callable[..., npt.NDArray[np.bool_]]:
    """`Bounding.arriving` as it would be if records were all that is capped."""
    caps = Bounding(max_records=bounding.max_records, max_records_per_key=bounding.max_records_per_key)

    def arriving(user: npt.NDArray[np.int32], key: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        users = int(user.max(initial=-1)) + 1
        return caps.close(user, key, np.ones(users, np.int32), UserKeys.empty(users)).kept

    return arriving


def build(plan: Plan, defect: str) -> Strategy[Any]:
    """`closing` with one of `DEFECTS`."""
    if defect == "closing unpaid":
        return _unpaid(plan)
    strategy = build_strategy(plan)
    assert isinstance(strategy, Closing)
    parameters = plan.parameters_as(Closing.Parameters)
    lists = {"list not scaled": FlatWeights, "list cut from its end": LastKeys, "gate before the cut": EarlyGate}
    if defect in lists:
        strategy.lists = _as(lists[defect], strategy.lists)
    elif defect == "fewer keys than ranks":
        strategy.lists = ListWeights(keys=1, max_keys=MAX_LISTED_KEYS, column=strategy.lists.column)
        strategy._test(parameters)
    elif defect == "filter without height":
        strategy.level -= parameters.filter_weight * float(strategy._selector.matched_height[-1])
    elif defect == "filter without noise":
        height = plan.minimum_users + 1 + parameters.filter_weight * float(strategy._selector.matched_height[-1])
        strategy.level = height + strategy.quantile * strategy.unknown_sigma
    elif defect == "repeats at the price of one":
        strategy.bounding.ledger = _as(FlatLedger, strategy.bounding.ledger)
    elif defect in _STEPS:
        strategy.step = partial(_STEPS[defect], strategy, strategy.step)  # type: ignore[method-assign]
    return strategy


def no_plus_one(strategy: Closing) -> None:
    """The level of the last trigger where minimum_users users alone reach it."""
    height = float(strategy._selector.matched_height[-1]) / (strategy.plan.minimum_users + 1)
    strategy.level -= 1 + strategy.filter_weight * height


def no_union_bound(strategy: Closing) -> None:
    """The level of the last trigger where each key of a list may fail with the probability of all together."""
    weaker = tail_quantile(strategy._closing_delta)
    std = np.hypot(strategy.unknown_sigma, strategy.filter_weight * strategy._selector.matched_std[-1])
    strategy.level -= float((strategy.quantile - weaker) * std)


def _unpaid(plan: Plan) -> Strategy[Any]:
    stream = Closing._stream

    def whole(self: Closing, plan: Plan, parameters: Closing.Parameters, budget: Guarantee) -> Design:
        share = parameters.discovery_share + parameters.value_share
        return stream(self, plan, parameters, replace(budget, mu=budget.mu / share**0.5))

    with patch.object(Closing, "_stream", whole):
        return build_strategy(plan)


Given = tuple[Sequence[bytes], Any, Increments, WindowNoise, npt.NDArray[np.bool_]]
RealStep = Callable[..., Step[Any]]


def _no_gate(strategy: Closing, step: RealStep, trigger: int, *given: Any) -> Step[Any]:
    keys, states, increments, noise, declared = given
    if increments.lists is not None:
        users = np.full(len(keys), strategy.plan.minimum_users + 1)
        increments = replace(increments, lists=replace(increments.lists, users=users))
    return step(trigger, keys, states, increments, noise, declared)


def _stream_gate(strategy: Closing, step: RealStep, trigger: int, *given: Any) -> Step[Any]:
    keys, states, increments, noise, declared = given
    if increments.lists is not None:
        shut = states.users + increments.users <= strategy.plan.minimum_users
        users = np.where(shut, 0, increments.lists.users)
        increments = replace(increments, lists=replace(increments.lists, users=users))
    return step(trigger, keys, states, increments, noise, declared)


def _failures(strategy: Closing, step: RealStep, trigger: int, *given: Any) -> Step[Any]:
    keys, states, increments, noise, declared = given
    done = step(trigger, *given)
    if increments.lists is None or done.pooled_rows is None:
        return done
    public = states.selected | declared
    failed = np.flatnonzero(~done.published & (increments.lists.users > strategy.plan.minimum_users))
    statistics = strategy._statistics(keys, public, states, increments, increments.lists, noise)[failed]
    some = np.isin(np.arange(len(keys)), failed)
    direct, _ = strategy._estimate(trigger, keys, states.sums + increments.sums, some, noise)
    evidence = np.zeros((len(failed), 4), np.int64)
    evidence[:, 0] = direct[failed, strategy.counting[0]]
    evidence[:, 1:3] = np.rint(statistics * WEIGHT_ONE)
    rows = done.pooled_rows
    if not len(rows.index):
        return done
    # A failed key has no row. It stands before the row of a neighbour, which is calibrated after it.
    beside = rows.index[np.maximum(np.searchsorted(rows.index, failed) - 1, 0)]
    pooled = PooledRows(index=np.concatenate([beside, rows.index]), evidence=np.concatenate([evidence, rows.evidence]))
    return replace(done, pooled_rows=pooled)


_STEPS = {
    "no gate at the end": _no_gate,
    "only behind the stream's gate": _stream_gate,
    "calibrated by failures": _failures,
}


# ---- what an offline run needs ---------------------------------------------------------------------------------------


def by_hope(
    strategy: Closing, names: Sequence[bytes], states: Any, held: UserKeys, trigger: int, noise: WindowNoise
) -> npt.NDArray[np.int32]:
    """int32[nnz]: the lists' keys, those first whose matched filter at `trigger` is highest. states: of all keys."""
    labels = noise.labels(strategy._selection_mechanism, list(names))
    hope = strategy._selector.matched(trigger, labels, states.history, noise)
    owner = np.repeat(np.arange(len(held.kept)), np.diff(held.indptr))
    return held.key[np.lexsort((-hope[held.key], owner))]


def calibrated(strategy: Strategy[Any], step: Step[Any], group: Int64) -> Step[Any]:
    """A step whose pooled rows are calibrated, each with those of its group: int64[k], of every key of the step."""
    pooled = step.pooled_rows
    if pooled is None:
        return step
    estimates, std_errors = step.estimates.copy(), step.std_errors.copy()
    order = np.argsort(group[pooled.index], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[pooled.index][order])) + 1):
        at, evidence = pooled.index[rows], pooled.evidence[rows]
        estimates[at], std_errors[at] = strategy.calibrate(estimates[at], std_errors[at], evidence, evidence)
    return replace(step, estimates=estimates, std_errors=std_errors)


def show_evidence(strategy: Strategy[Any]) -> None:
    """Publish the second measurement of a row in place of its calibrated estimate, in units of 1 / EVIDENCE users.

    In the pipeline all trials share a window, so calibrated rows would depend on all of them. What a row is calibrated with is
    promised as much as the row, and shows more.
    """
    if not isinstance(strategy, Closing):
        return

    def shown(estimates: Int64, std_errors: npt.NDArray[np.float64], evidence: Int64, pooled: Int64) -> Any:
        estimates = estimates.copy()
        estimates[:, list(strategy.counting)] = evidence[:, 1:2] // (WEIGHT_ONE // EVIDENCE)
        return estimates, std_errors

    strategy.calibrate = shown  # type: ignore[method-assign]
