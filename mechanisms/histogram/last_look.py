"""The last look at a window: users' lists are measured once, and a test joins that with the stream's matched filter.

lists of all users ──unknown_sigma──▶ closing statistic ─┐
the stream's selector ──────────────▶ matched filter ────┴─▶ found: statistic + filter_weight * filter >= level
                   └──public_sigma──▶ second measurement of the keys that were public
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.arrays import Bools, Floats, Int64s
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.evidence_memory import ClosingRows, EvidenceTest, PastRows
from susurrus.mechanisms.histogram.per_key import Histories
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.states import FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListSums, ListWeights
from susurrus.mechanisms.noise import WindowNoise, grid_units

UNKNOWN, PUBLIC = "closing/unknown", "closing/public"
BITS = 20
"""Weights and noise share the grid 2^-20 of `WEIGHT_ONE`."""
_LEVEL_BITS = 30
FILTER_SIGNAL = 0.66
"""What a user of a key is taken to add to the stream's filter, relative to the closing statistic. Two measurements are best added
with weights in proportion to signal over variance."""


class LastLook:
    """Two measurements of the users' lists at the last trigger, and the joint test that names keys by the first.

    Privacy: the measurements cost `unknown_cost` and `public_cost` of mu^2, for any lists that `ListWeights` weighs. Of one user's
    keys at their boundary (docs/guarantees/closing.md) any passes the test with a probability of at most `delta`.
    """

    def __init__(
        self,
        plan: Plan,
        lists: ListWeights,
        selector: Selector,
        selection_mechanism: str,
        *,
        rank_weights: Int64s,
        unknown_cost: float,
        public_cost: float,
        delta: float,
        filter_weight: float | None,
    ) -> None:
        """selector, selection_mechanism: the stream's, and the address of its noise. rank_weights: int64[ranks, T], the stream's,
        not increasing by rank.

        filter_weight: None for the one that fits the variances of both measurements.
        """
        self.minimum_users, self.last = plan.minimum_users, plan.triggers
        self.keys, self.selector, self._selection_mechanism = lists.keys, selector, selection_mechanism
        suffix = "/" + plan.digest().hex()
        self._unknown_mechanism, self._public_mechanism = UNKNOWN + suffix, PUBLIC + suffix
        # In units of weight; rounded up like every sigma.
        one = float(WEIGHT_ONE)
        self.unknown_square, self.public_square = lists.unknown_square, lists.public_square
        self.unknown_sigma = math.sqrt(self.unknown_square / unknown_cost) / one * (1 + 1e-9)
        self.public_sigma = math.sqrt(self.public_square / public_cost) / one * (1 + 1e-9)
        grid_units(self.unknown_sigma, BITS)
        grid_units(self.public_sigma, BITS)
        if filter_weight is None:
            ratio = self.unknown_sigma / float(selector.matched_std[-1])
            filter_weight = FILTER_SIGNAL * ratio * ratio
        self.delta, self.filter_weight = delta, filter_weight
        self.test = EvidenceTest(plan.evidence_windows, delta / self.keys)
        height = self.minimum_users + 1 + filter_weight * float(selector.matched_height[-1])
        std = math.hypot(self.unknown_sigma, filter_weight * float(selector.matched_std[-1]))
        # The noise of both is rounded to a grid, and the sum is formed in float64.
        slack = 2.0 ** -(BITS + 1) + filter_weight * float(selector.matched_slack[-1])
        self.filter_heights = np.zeros(self.keys)
        self.filter_heights[: len(rank_weights)] = selector.matched_heights(rank_weights)[: self.keys]
        # What minimum_users others add to a key, and the one user by the number of its keys and their ranks.
        others = self.minimum_users * (1 + filter_weight * float(self.filter_heights[0]))
        own = [lists.unknown_weight(k) + filter_weight * self.filter_heights[:k] for k in range(1, self.keys + 1)]
        least = _least_level(
            own, std, delta / len(self.test.scales), height + tail_quantile(delta / self.keys / 4) * std
        )
        self.level = (others + least + slack) * (1 + 1e-9)
        self.quantile = (self.level / (1 + 1e-9) - height - slack) / std
        """By how many standard deviations the level is above what minimum_users + 1 users can add at most."""
        self.height, self.variance = height + slack, std * std
        """What a closing row may hold while no gate is open, rounding included; the variance of its noise."""

    def describe(self) -> dict[str, Any]:
        """Return the public constants from which a reader recomputes measurements and test."""
        return {
            "keys": self.keys,
            "unknown_sigma": self.unknown_sigma,
            "public_sigma": self.public_sigma,
            "unknown_square": self.unknown_square / WEIGHT_ONE**2,
            "public_square": self.public_square / WEIGHT_ONE**2,
            "filter_weight": self.filter_weight,
            "filter_height": float(self.selector.matched_height[-1]),
            "filter_heights": self.filter_heights.tolist(),
            "filter_std": float(self.selector.matched_std[-1]),
            "threshold": self.level,
            "quantile": self.quantile,
        } | self._described_windows()

    def _described_windows(self) -> dict[str, Any]:
        if not self.adds_up:
            return {}
        quantiles = {str(s): z for s, z in zip(self.test.scales, self.test.quantiles, strict=True)} | {
            "1": self.quantile
        }
        return {"evidence": {"quantiles": quantiles, "height": self.height, "variance": self.variance}}

    @property
    def adds_up(self) -> bool:
        """Whether rows of earlier windows count, too."""
        return len(self.test.scales) > 1

    def statistics(
        self,
        keys: Sequence[bytes],
        public: Bools,
        states: FactoredStates,
        increments: Increments,
        lists: ListSums,
        noise: WindowNoise,
    ) -> Floats:
        """Return float64[k, 2]: closing statistic and matched filter of the keys with an open gate, in users; zeros of the others.

        public: bool[k], before this trigger. The noise of both is there in any case. Where windows add up: also of the keys that
        somebody weighs, for later windows, and of those with a window in play.
        """
        minimum = self.minimum_users
        needed = (lists.users > minimum) | (states.users + increments.users > minimum)
        if self.adds_up:
            needed |= lists.users > 0
            needed |= False if increments.past is None else increments.past.in_play.any(axis=1)
        rows = np.flatnonzero(~public & needed)
        statistics = np.zeros((len(keys), 2))
        drawn = self._drawn(self._unknown_mechanism, self.unknown_sigma, keys, rows, noise)
        statistics[rows, 0] = (lists.weight[rows] + drawn) / WEIGHT_ONE
        labels = noise.labels(self._selection_mechanism, [keys[i] for i in rows.tolist()])
        history = states.history.plus(self.last, np.where(public, 0, increments.weight)).take(rows)
        statistics[rows, 1] = self.selector.matched(self.last, labels, history, noise)
        return statistics

    def found(self, public: Bools, lists: ListSums, statistics: Floats, past: PastRows | None) -> Bools:
        """Return bool[k]: which of the keys that were not public pass the joint test, the same for every key.

        past: of windows whose rows add up with this one's.
        """
        values, opened = self._joint(statistics), lists.users > self.minimum_users
        alone: Bools = opened & (values >= self.level)
        if past is not None and self.adds_up:
            alone = self.test.found(alone, values, opened, past, height=self.height, variance=self.variance)
        return ~public & alone

    def closing_rows(self, lists: ListSums, statistics: Floats) -> ClosingRows | None:
        """What later windows add to their own rows, by the `statistics` of this one; None where windows do not add up."""
        if not self.adds_up:
            return None
        return ClosingRows(values=self._joint(statistics), users=lists.users, opened=lists.users > self.minimum_users)

    def unbrought(self, keys: Sequence[bytes], noise: WindowNoise) -> Floats:
        """Return float64[k]: the closing rows of keys that nobody brought, which are their noise, by the code of all others."""
        drawn = self._drawn(self._unknown_mechanism, self.unknown_sigma, keys, np.arange(len(keys)), noise)
        labels = noise.labels(self._selection_mechanism, keys)
        matched = self.selector.matched(self.last, labels, Histories.empty(len(keys)), noise)
        return self._joint(np.stack((drawn / WEIGHT_ONE, matched), axis=1))

    def _joint(self, statistics: Floats) -> Floats:
        joint: Floats = statistics[:, 0] + self.filter_weight * statistics[:, 1]
        return joint

    def again(self, keys: Sequence[bytes], lists: ListSums, noise: WindowNoise, published: Bools) -> Int64s:
        """Return int64[k], in units of 2^-20: the second measurement of the published keys that were public to it; else 0."""
        rows = np.flatnonzero(published & (lists.unit > 0))
        out = np.zeros(len(keys), np.int64)
        drawn = self._drawn(self._public_mechanism, self.public_sigma, keys, rows, noise)
        out[rows] = lists.public_weight[rows] + drawn
        return out

    def _drawn(
        self, mechanism: str, sigma: float, keys: Sequence[bytes], rows: npt.NDArray[np.intp], noise: WindowNoise
    ) -> Int64s:
        """Return int64[rows]: the noise of the last trigger, in units of 2^-20."""
        labels = noise.labels(mechanism, [keys[i] for i in rows.tolist()])
        drawn: Int64s = noise.normal(labels, self.last, self.last, sigma=sigma, bits=BITS)[:, 0]
        return drawn

    def appearing(self, weights: Floats, normals: Floats, rng: np.random.Generator) -> Floats:
        """Return float64[keys]: users per trigger from which a key passes the joint test; see `Strategy.appearing`.

        weights: float64[T], of a first key. normals: float64[keys, T], the stream's draws.
        """
        gain, noise = self.selector.matched_linear(weights, normals)
        noise = self.filter_weight * noise + self.unknown_sigma * rng.standard_normal(len(normals))
        return (self.level - noise) / (self.last + self.filter_weight * gain)


def _least_level(own: Sequence[Floats], std: float, delta: float, high: float) -> float:
    """The lowest level, on a grid, that keys pass with a probability of at most `delta` altogether, whichever of these a user has.

    own: what a user adds to each of its keys, by their number. std: of the noise of each. high: a level that is high enough.
    """
    target, one = delta * (1 - 1e-9), 1 << _LEVEL_BITS
    low, top = 0, math.ceil(high * one)
    while low < top:
        middle = (low + top) // 2
        if max(math.fsum(ndtr((keys - middle / one) / std).tolist()) for keys in own) <= target:
            top = middle
        else:
            low = middle + 1
    return top / one
