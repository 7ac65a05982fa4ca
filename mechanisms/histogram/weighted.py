"""The strategy for whole-window histograms: selection by weights that fall with a user's rank, values apart.

A user's i-th distinct key weighs w_i, sum w_i^2 = 1, instead of 1/sqrt(C) for every key: keys that a user brings early
in its list are found with a third of the users. A key first brought at trigger t can only use the rest of its column of
C, so its weight is w_i / sqrt(cc_t), cc_t = |C e_t|^2 / |C e_1|^2, at the same sensitivity. Values are plain counts and
sums with their own noise and their own cap. What it costs: keys that come late and last in their users' lists.
Argument and the price: docs/guarantees/weighted.md.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import Caps, joint_cost
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.factored import Factored, Values
from susurrus.mechanisms.histogram.factorization import Factorization, power
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.strategy import Plan
from susurrus.mechanisms.histogram.toeplitz import USERS, counts_users, split_delta, value_mechanism

SELECTION = "selection"
RANKED_KEYS = 32
"""Keys of a user that take part in selection, unless `max_keys` says otherwise."""
UNIT_BITS = 12
"""Weights are multiples of 2^-12 ..."""
COEFFICIENT_BITS = 16
"""... and coefficients of 2^-16, so that C x and the noise share the grid 2^-28, where draws are quick to round."""


class Weighted(Factored):
    """Design "two mechanisms": C = (1 - x)^-gamma on weights for selection, (1 - x)^-1/2 on counts and sums for values.

    lag, ranked_keys, prior: what `adaptive` sets otherwise, as defaults of the plan's `max_keys` and `prior`.
    stream_share, selection_delta_share: of mu^2, and of delta's part for selection; `closing` keeps the rest for the last trigger.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove; see `guarantee`.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        lag: int | None = None,
        ranked_keys: int = RANKED_KEYS,
        prior: Callable[[int], tuple[float, ...]] | None = None,
        stream_share: float = 1.0,
        selection_delta_share: float = 1.0,
    ) -> None:
        if not plan.discover:
            raise ConfigurationError(
                f'strategy="{plan.strategy}", discover=False: there is nothing to select; use strategy="toeplitz"'
            )
        ranked = min(plan.max_keys or ranked_keys, plan.max_records)
        budget = split_delta(plan, ranked)
        factorization = power(plan.triggers, plan.gamma, COEFFICIENT_BITS)
        law = plan.prior or (prior or default_prior)(ranked)
        weights = column_weights(factorization, rank_weights(law, ranked))
        ranks = rank_costs(factorization, weights)
        users = [column for column in plan.columns if counts_users(column, plan)]
        measured = [column for column in plan.columns if not counts_users(column, plan)]
        groups = len(measured) + bool(users)
        value_share = (1 - plan.selection_share) / groups
        caps = Caps(records=plan.max_records, records_per_key=plan.max_records_per_key)
        # Separate worst cases first, then all of them raised together until the joint worst case is the budget.
        per_rank = [plan.selection_share * cost / sum(ranks) for cost in ranks]
        per_key = value_share / plan.max_records if users else 0.0
        squares = joint_cost(caps, per_square=1.0)
        per_square = value_share * len(measured) / squares
        joint = joint_cost(caps, ranks=per_rank, per_key=per_key, per_square=per_square)
        factor = budget.mu**2 * stream_share / joint * (1 - 1e-12)
        values: list[Values] = []
        if users:
            values.append(value_mechanism(USERS, plan.triggers, 1, factor * per_key))
        values += [
            value_mechanism("column/" + column.name, plan.triggers, column.bound, factor * value_share / squares)
            for column in measured
        ]
        names = [value.mechanism for value in values]
        # ranks: squared shift of y per rank; sigma^2 = sum of them / (factor * selection_share)
        sigma = math.sqrt(sum(ranks) / (factor * plan.selection_share)) * (1 + 1e-12)
        super().__init__(
            plan,
            guarantee=budget,
            bounding=Bounding(
                max_records=plan.max_records,
                max_records_per_key=plan.max_records_per_key,
                weights=weights << (20 - UNIT_BITS),
                lag=lag,
            ),
            selector=Selector(
                factorization,
                sigma=sigma,
                unit_bits=UNIT_BITS,
                heights=weights[0],
                minimum_users=plan.minimum_users,
                beta=budget.delta_selection * selection_delta_share / ranked,
            ),
            selection_mechanism=SELECTION,
            values=values,
            source=[
                0 if counts_users(column, plan) else names.index("column/" + column.name) for column in plan.columns
            ],
            notes={
                "keys_per_user": ranked,
                **({} if lag is None else {"lag": lag}),
                "mu": math.sqrt(factor * joint),
                "weights_first_trigger": [float(w) * 2.0**-UNIT_BITS for w in weights[:, 0]],
            },
        )


def default_prior(ranked: int) -> tuple[float, ...]:
    """S_i = (1 + i / 26)^-5.738: the tail of the Zipf-Mandelbrot law with which the literature models web users.

    A public constant. A deployment that knows better from public sources sets `prior`.
    """
    return tuple((1 + i / 26) ** -5.738 for i in range(ranked))


def rank_weights(prior: tuple[float, ...], ranked: int) -> npt.NDArray[np.float64]:
    """w_i = S_i / |S|_2 for i < ranked, zero beyond the prior's end: maximises the expected sum of a user's weights.

    Cauchy-Schwarz: E[sum of w_i over a user's keys] = sum w_i S_i is largest, at sum w_i^2 = 1, for w = S / |S|.
    """
    chosen = np.array(prior[:ranked], np.float64)
    weights = np.zeros(ranked)
    weights[: len(chosen)] = chosen / math.sqrt(float(chosen @ chosen))
    return weights


def column_weights(factorization: Factorization, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """int64[ranks, T], units of 2^-UNIT_BITS: floor(w_i / sqrt(cc_t)), not increasing in i.

    Asserted in exact fractions: sum_i max_t weight(i, t)^2 |C e_t|^2 <= |C e_1|^2, whatever triggers the keys come at.
    Raises ConfigurationError if no weight is left on the grid.
    """
    columns = factorization.column_squares
    ratio = np.array([float(square / columns[0]) for square in columns])
    grid: npt.NDArray[np.int64] = np.floor(
        weights[:, None] * 2.0**UNIT_BITS / np.sqrt(ratio)[None, :] * (1 - 1e-12)
    ).astype(np.int64)
    if not grid[0].all():
        raise ConfigurationError("prior: the first weights vanish on the grid; use fewer ranked keys (max_keys)")
    worst = sum(
        (max(w * w * square for w, square in zip(row, columns, strict=True)) for row in grid.tolist()), Fraction(0)
    )
    if worst > columns[0] * (1 << (2 * UNIT_BITS)):
        raise AssertionError("column weights exceed the sensitivity they were made for")
    return grid


def rank_costs(factorization: Factorization, weights: npt.NDArray[np.int64]) -> list[float]:
    """Squared shift of C x by the key of each rank, at its worst trigger; made not increasing, rounded up."""
    columns = np.array([float(square) for square in factorization.column_squares])
    costs = (weights.astype(np.float64) ** 2 * columns[None, :]).max(axis=1) * 2.0 ** (-2 * UNIT_BITS) * (1 + 1e-12)
    return [float(cost) for cost in np.maximum.accumulate(costs[::-1])[::-1]]
