"""Selection by weights that fall with a user's rank, values apart: what strategies that rank a user's keys share.

A user's i-th distinct key weighs w_i, sum w_i^2 = 1, instead of 1/sqrt(C) for every key: keys that a user brings early
in its list are found with a third of the users. A key first brought at trigger t can only use the rest of its column of
C, so its weight is w_i / sqrt(cc_t), cc_t = |C e_t|^2 / |C e_1|^2, at the same sensitivity. Values are plain counts and
sums with their own noise and their own cap.
Argument: docs/guarantees/weighted.md.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import Caps, joint_cost
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.factored import Design, counts_users, value_mechanisms
from susurrus.mechanisms.histogram.factorization import Factorization, power
from susurrus.mechanisms.histogram.plan import Constants, Plan, constant
from susurrus.mechanisms.histogram.selection import Selector

SELECTION = "selection"
UNIT_BITS = 12
"""Weights are multiples of 2^-12 ..."""
COEFFICIENT_BITS = 16
"""... and coefficients of 2^-16, so that C x and the noise share the grid 2^-28, where draws are quick to round."""
MAX_RANKED_KEYS = 65_536


@dataclass(frozen=True, kw_only=True)
class RankedParameters(Constants, ABC):
    """Parameters of a strategy that ranks a user's keys."""

    gamma: float = constant(0.65, "Exponent of the selection strategy.", gt=0, lt=1)
    ranked_keys: int
    prior: tuple[float, ...] | None = constant(
        None, "Decreasing weights by rank, from public knowledge; by default the strategy's own."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        prior = self.prior
        if prior is not None and (
            not prior or not all(math.isfinite(p) and p > 0 for p in prior) or any(b > a for a, b in pairwise(prior))
        ):
            raise ConfigurationError("prior: must be positive and not increasing; give P(a user has more than i keys)")

    @abstractmethod
    def default_prior(self, rank: int) -> float:
        """The weight of a rank, counted from 0, where no prior is given. A public constant."""

    def prior_by_rank(self) -> tuple[float, ...]:
        """The prior that is given, or the default one of each ranked key."""
        return self.prior or tuple(self.default_prior(rank) for rank in range(self.ranked_keys))

    def published(self) -> dict[str, Any]:
        """The prior enters by its value: another default must not meet this epoch's noise."""
        return super().published() | {"prior": self.prior_by_rank()}


class Ranking:
    """The selection by ranked weights of one plan: factorization, weights by rank and trigger, and what each rank costs.

    ranked: how many of a user's keys have a rank. Raises ConfigurationError where there is nothing to select.
    """

    def __init__(self, plan: Plan, parameters: RankedParameters, *, ranked: int) -> None:
        if not plan.discover:
            raise ConfigurationError(
                f'strategy="{plan.strategy}", discover=False: there is nothing to select; use a strategy that does not rank keys'
            )
        self.ranked = ranked
        self.factorization = power(plan.triggers, parameters.gamma, COEFFICIENT_BITS)
        self.weights = column_weights(self.factorization, rank_weights(parameters.prior_by_rank(), ranked))
        self.costs = rank_costs(self.factorization, self.weights)

    @property
    def bounding_weights(self) -> npt.NDArray[np.int64]:
        """int64[ranks, T], in the units of `Bounding`."""
        return self.weights << (20 - UNIT_BITS)

    def selector(self, plan: Plan, *, cost: float, delta_selection: float) -> Selector:
        """The mechanism in which all ranks together cost `cost` of mu^2, and all thresholds `delta_selection`."""
        return Selector(
            self.factorization,
            # costs: squared shift of y per rank; sigma^2 = sum of them / cost
            sigma=math.sqrt(sum(self.costs) / cost) * (1 + 1e-12),
            unit_bits=UNIT_BITS,
            heights=self.weights[0],
            minimum_users=plan.minimum_users,
            beta=delta_selection / self.ranked,
        )

    def notes(self, lag: int | None) -> dict[str, Any]:
        """Sentences for `Strategy.describe`."""
        return {
            "keys_per_user": self.ranked,
            **({} if lag is None else {"lag": lag}),
            "weights_first_trigger": [float(w) * 2.0**-UNIT_BITS for w in self.weights[:, 0]],
        }


def ranked_design(
    plan: Plan, parameters: RankedParameters, *, mu_square: float, delta_selection: float, lag: int | None = None
) -> Design:
    """C = (1 - x)^-gamma on weights for selection, (1 - x)^-1/2 on counts and sums for values.

    mu_square, delta_selection: what the mechanisms may cost together. lag: of `Bounding`.
    Raises ConfigurationError where there is nothing to select.
    """
    ranking = Ranking(plan, parameters, ranked=min(parameters.ranked_keys, plan.max_records))
    ranks = ranking.costs
    measured = sum(not counts_users(column, plan) for column in plan.columns)
    counting = measured < len(plan.columns)
    value_share = (1 - plan.selection_share) / (measured + counting)
    caps = Caps(records=plan.max_records, records_per_key=plan.max_records_per_key)
    # Separate worst cases first, then all of them raised together until the joint worst case is the budget.
    per_rank = [plan.selection_share * cost / sum(ranks) for cost in ranks]
    per_key = value_share / plan.max_records if counting else 0.0
    squares = joint_cost(caps, per_square=1.0)
    joint = joint_cost(caps, ranks=per_rank, per_key=per_key, per_square=value_share * measured / squares)
    factor = mu_square / joint * (1 - 1e-12)
    values, source = value_mechanisms(
        plan, users_cost=factor * per_key if counting else None, column_cost=factor * value_share / squares
    )
    return Design(
        bounding=Bounding(
            max_records=plan.max_records,
            max_records_per_key=plan.max_records_per_key,
            weights=ranking.bounding_weights,
            lag=lag,
        ),
        selector=ranking.selector(plan, cost=factor * plan.selection_share, delta_selection=delta_selection),
        selection_mechanism=SELECTION,
        values=values,
        source=source,
        notes={
            **ranking.notes(lag),
            "mu": math.sqrt(factor * joint),
        },
    )


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

    Asserted in exact fractions: sum_i max_t weight(i, t)^2 |C e_t|^2 <= |C e_1|^2, for any triggers at which the keys come.
    Raises ConfigurationError if no weight is left on the grid.
    """
    columns = factorization.column_squares
    ratio = np.array([float(square / columns[0]) for square in columns])
    grid: npt.NDArray[np.int64] = np.floor(
        weights[:, None] * 2.0**UNIT_BITS / np.sqrt(ratio)[None, :] * (1 - 1e-12)
    ).astype(np.int64)
    if not grid[0].all():
        raise ConfigurationError("prior: the first weights vanish on the grid; use fewer ranked keys (ranked_keys)")
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
