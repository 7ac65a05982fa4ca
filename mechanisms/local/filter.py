r"""A causal filter beside the plain estimates: levels that do not move are averaged, levels that move are not.

Interval k's true (clipped) mean is x_k = level_k + own_k, level_k - level_{k-1} ~ N(0, q), own_k ~ N(0, w); the plain
estimate is y_k = x_k + noise of known variance. A bank of (q, w), both measured in the first interval's noise variance,
runs side by side, each a Kalman filter, weighted by its likelihood on the estimates already released, old ones
forgotten at rate 1 - `memory`. The bank contains the plain estimate as its limit, so a level that moves switches the
averaging off.

Post-processing: free. But biased (it shrinks towards the recent level), and its error is conditional on the bank:
publish the plain estimate beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DRIFTS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e3)
WHITES = (0.0, 1e-2, 1e-1, 1.0, 10.0, 1e3)
MEMORY = 0.999


@dataclass(frozen=True)
class Filtered:
    """The filter's answer for one range: the sum of the true clipped values over the range, and its posterior
    deviation.
    """

    sum: float
    standard_error: float


class Bank:
    """All filters of the bank, one step per interval; ranges are opened at their first interval and read at any later one."""

    def __init__(self, *, memory: float = MEMORY) -> None:
        drift, white = np.meshgrid(DRIFTS, WHITES, indexing="ij")
        self._drift, self._white = drift.ravel(), white.ravel()
        self._unit = 0.0
        self._memory = memory
        models = self._drift.size
        self._score = np.zeros(models)
        self._level = np.zeros(models)
        self._level_variance = np.zeros(models)
        # open ranges, [ranges, models]: posterior mean of the range's sum, its covariance with the level, its variance
        self._sum = np.zeros((0, models))
        self._cross = np.zeros((0, models))
        self._variance = np.zeros((0, models))

    def state(self) -> dict[str, list[float] | float]:
        """What a successor needs to go on; open ranges are not part of it."""
        return {
            "unit": self._unit,
            "score": self._score.tolist(),
            "level": self._level.tolist(),
            "variance": self._level_variance.tolist(),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any], *, memory: float = MEMORY) -> "Bank":
        """The bank as `state` left it, bit for bit."""
        bank = cls(memory=memory)
        bank._unit = float(state["unit"])
        bank._score = np.array(state["score"], dtype=np.float64)
        bank._level = np.array(state["level"], dtype=np.float64)
        bank._level_variance = np.array(state["variance"], dtype=np.float64)
        return bank

    def open(self) -> int:
        """Open a range that starts with the next interval; returns its number."""
        self._sum = np.vstack((self._sum, np.zeros_like(self._level)))
        self._cross = np.vstack((self._cross, np.zeros_like(self._level)))
        self._variance = np.vstack((self._variance, np.zeros_like(self._level)))
        return self._sum.shape[0] - 1

    def step(self, count: float, mean: float, variance: float) -> None:
        """Take interval k: `count` reports with plain mean `mean` of noise variance `variance` (> 0).

        `variance` must not come from this interval's reports alone: an estimate that is low by chance would seem precise as
        well, and averages would be drawn to it. Pool it over all intervals so far.
        """
        if self._unit == 0.0:
            self._unit = variance
            prior = np.full_like(self._level, 1e6 * variance)  # flat
            self._level[:] = mean
        else:
            prior = self._level_variance + self._drift * self._unit
        own = self._white * self._unit
        spread = prior + own + variance
        innovation = mean - self._level
        if self._level_variance.any():
            self._score = self._memory * self._score - (np.log(spread) + innovation**2 / spread) / 2
        gain = prior / spread
        # the interval's own sum enters every open range: S + count * x, with Cov(x, S) = cross and Var(x) = prior + own
        with_x = self._cross + count * (prior + own)
        self._sum = self._sum + count * self._level + with_x / spread * innovation
        self._variance = self._variance + 2 * count * self._cross + count**2 * (prior + own) - with_x**2 / spread
        self._cross = self._cross + count * prior - gain * with_x
        self._level = self._level + gain * innovation
        self._level_variance = prior - gain * prior

    def one(self, count: float, mean: float, variance: float) -> Filtered:
        """`step`, and the interval's own filtered sum."""
        opened = self.open()
        self.step(count, mean, variance)
        answer = self.read(opened)
        self._sum, self._cross, self._variance = self._sum[:opened], self._cross[:opened], self._variance[:opened]
        return answer

    def _weights(self) -> Floats:
        weights = np.exp(self._score - self._score.max())
        return np.asarray(weights / weights.sum())

    def read(self, opened: int) -> Filtered:
        """The range's sum as of the last interval taken, averaged over the bank."""
        weights = self._weights()
        mean = float(weights @ self._sum[opened])
        variance = float(weights @ (self._variance[opened] + (self._sum[opened] - mean) ** 2))
        return Filtered(mean, max(variance, 0.0) ** 0.5)


def filter_ranges(
    counts: Floats, means: Floats, variances: Floats, ranges: npt.NDArray[np.int64], *, memory: float = MEMORY
) -> list[Filtered]:
    """The filter's answers to range queries [first, last) over intervals, each as of its own last interval.

    `counts`, `means`, `variances` (of the means): float64[intervals]; `ranges`: int64[queries, 2] with first < last.
    """
    bank = Bank(memory=memory)
    answers: list[Filtered | None] = [None] * len(ranges)
    opens: dict[int, int] = {}
    ends: dict[int, list[int]] = {}
    for query, (_, last) in enumerate(ranges):
        ends.setdefault(int(last), []).append(query)
    starts = {int(first) for first in ranges[:, 0]}
    for interval in range(int(ranges[:, 1].max()) if len(ranges) else 0):
        if interval in starts:
            opens[interval] = bank.open()
        bank.step(float(counts[interval]), float(means[interval]), float(variances[interval]))
        for query in ends.get(interval + 1, ()):
            answers[query] = bank.read(opens[int(ranges[query, 0])])
    return [answer for answer in answers if answer is not None]
