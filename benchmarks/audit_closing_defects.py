"""Defects planted in strategy `closing`, and what an audit of it needs beside them.

Every defect is a change of the strategy object, so the pipeline plays it as well as the mechanism alone, if not said otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

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

    def price(self, spent: Int64, added: Int64 | int, root: Int64 | int) -> Int64:
        cost: Int64 = (self.measured + self.counting) * added * root * root + np.zeros_like(spent)
        return cost


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
    lists = {"list not scaled": FlatWeights, "list cut from its end": LastKeys, "gate before the cut": EarlyGate}
    if defect in lists:
        strategy.lists = _as(lists[defect], strategy.lists)
    elif defect == "fewer keys than ranks":
        strategy.look_at(ListWeights(keys=1, max_keys=MAX_LISTED_KEYS, column=strategy.lists.column))
    elif defect == "filter without height":
        strategy.look.level -= strategy.look.filter_weight * float(strategy.look.selector.matched_height[-1])
    elif defect == "filter without noise":
        height = plan.minimum_users + 1 + strategy.look.filter_weight * float(strategy.look.selector.matched_height[-1])
        strategy.look.level = height + strategy.look.quantile * strategy.look.unknown_sigma
    elif defect == "repeats at the price of one":
        strategy.bounding.ledger = _as(FlatLedger, strategy.bounding.ledger)
    elif defect in _STEPS:
        strategy.step = partial(_STEPS[defect], strategy, strategy.step)  # type: ignore[method-assign]
    return strategy


def no_plus_one(strategy: Closing) -> None:
    """The level of the last trigger where minimum_users users alone reach it."""
    height = float(strategy.look.selector.matched_height[-1]) / (strategy.plan.minimum_users + 1)
    strategy.look.level -= 1 + strategy.look.filter_weight * height


def no_union_bound(strategy: Closing) -> None:
    """The level of the last trigger where each key of a list may fail with the probability of all together."""
    weaker = tail_quantile(strategy.look.delta)
    std = np.hypot(strategy.look.unknown_sigma, strategy.look.filter_weight * strategy.look.selector.matched_std[-1])
    strategy.look.level -= float((strategy.look.quantile - weaker) * std)


def _unpaid(plan: Plan) -> Strategy[Any]:
    stream = Closing._stream

    def whole(self: Closing, plan: Plan, parameters: Closing.Parameters, budget: Guarantee, delta: float) -> Design:
        share = parameters.discovery_share + parameters.value_share
        return stream(self, plan, parameters, replace(budget, mu=budget.mu / share**0.5), delta)

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
    statistics = strategy.look.statistics(keys, public, states, increments, increments.lists, noise)[failed]
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
    hope = strategy.look.selector.matched(trigger, labels, states.history, noise)
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
