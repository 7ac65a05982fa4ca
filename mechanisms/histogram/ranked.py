"""Selection by weights that fall with a user's rank among the keys that are not published yet.

A user's i-th distinct key weighs w_i, sum w_i^2 = 1, instead of 1/sqrt(C) for every key: keys that a user brings early
in its list are found with a third of the users. A key first brought at trigger t can only use the rest of its column of
C, so its weight is w_i / sqrt(cc_t), cc_t = |C e_t|^2 / |C e_1|^2, at the same sensitivity.

A key that was published at a trigger up to t - lag is public at trigger t: its records need no selection, so they use no
weight, and a user who brings it first then spends no rank on it. So a user's whole selection weight goes to
unpublished keys, and each of them is found with fewer users. The published keys come back to where users are
bounded: `Bounding.close` gets which keys are public.
Argument: docs/guarantees/ranks.md.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.factorization import Factorization, power
from susurrus.mechanisms.histogram.plan import MAX_TRIGGERS, Constants, Plan, constant
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
    lag: int = constant(
        1,
        "Triggers from a key's publication until its records need no selection. Bounding waits for what was "
        "published so many triggers before: more than 1 lets the stages work further apart, and finds fewer keys.",
        ge=1,
        le=MAX_TRIGGERS,
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

    Raises ConfigurationError where there is nothing to select.
    """

    def __init__(self, plan: Plan, parameters: RankedParameters) -> None:
        if not plan.discover:
            raise ConfigurationError(
                f'strategy="{plan.strategy}", discover=False: there is nothing to select; use a strategy that does not rank keys'
            )
        self.ranked, self.lag = parameters.ranked_keys, parameters.lag
        self.factorization = power(plan.triggers, parameters.gamma, COEFFICIENT_BITS)
        self.weights = column_weights(self.factorization, rank_weights(parameters.prior_by_rank(), self.ranked))
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

    def notes(self) -> dict[str, Any]:
        """Return the constants that `Strategy.describe` adds for the ranks."""
        return {
            "keys_per_user": self.ranked,
            "lag": self.lag,
            "weights_first_trigger": [float(w) * 2.0**-UNIT_BITS for w in self.weights[:, 0]],
        }


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
