r"""Banks of Kalman filters over released numbers: steady levels are averaged, moving levels are not.

One model (drift q, white w) says of the true numbers x_k that

.. math:: x_k = \text{level}_k + \text{own}_k,\quad \text{level}_k - \text{level}_{k-1} \sim N(0, q),\quad
          \text{own}_k \sim N(0, w)

and the released number is x_k plus noise of known variance.  A bank runs one filter for each pair (q, w) of a grid and
weights them by their likelihood on the numbers released so far.  The grid contains models under which the released
number is its own best estimate, so the averaging stops while the level moves.

Privacy: post-processing of released numbers and public constants, so it costs nothing.  The answers are shrunk towards
the recent level, so they are biased in general, and their standard errors are those of the posterior.  Publish the plain
estimate beside them.

``IntervalBank`` filters means of reports over intervals (local privacy), ``BlockBank`` the block sums of trees whose
blocks share noise (streams).  The published bits depend on the order of the operations: keep it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Models:
    """The models of a bank: pairs (white, drift), float64[models], and the prior mean and variance of the level."""

    white: Floats
    drift: Floats
    mean: float = 0.0
    level: float = 0.0

    @property
    def count(self) -> int:
        """Number of models."""
        return len(self.white)

    def covariance(self, model: int, numbers: int) -> Floats:
        """Return the prior covariance float64[numbers, numbers] of x_1..x_numbers under one model."""
        index = np.arange(1, numbers + 1)
        shared = self.level + self.drift[model] * np.minimum(index[:, None], index[None, :])
        result: Floats = shared + self.white[model] * np.eye(numbers)
        return result


@dataclass(frozen=True, slots=True)
class Filtered:
    """The filter's answer: posterior mean and standard deviation of a sum of true numbers."""

    sum: float
    standard_error: float


def mixture_weights(log_likelihood: Floats) -> Floats:
    """Return the softmax over the last axis."""
    weights = np.exp(log_likelihood - log_likelihood.max(axis=-1, keepdims=True))
    result: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return result


class Bank:
    """What both banks share: the models and their likelihood, forgotten at the rate 1 - ``memory`` a number."""

    memory = 1.0

    def __init__(self, models: Models) -> None:
        self.models = models
        self.log_likelihood = np.zeros(models.count)

    def weights(self) -> Floats:
        """Return float64[models]: posterior probabilities of the models."""
        return mixture_weights(self.log_likelihood)

    def _weigh(self, innovation: Floats, variance: Floats) -> None:
        """Take in how far a released number lies from each model's prediction, and the variance of that distance."""
        self.log_likelihood = self.memory * self.log_likelihood - (np.log(variance) + innovation**2 / variance) / 2


_DRIFTS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e3)
_WHITES = (0.0, 1e-2, 1e-1, 1.0, 10.0, 1e3)
# In units of the first interval's noise variance.
_INTERVAL_MODELS = Models(np.tile(_WHITES, len(_DRIFTS)), np.repeat(_DRIFTS, len(_WHITES)))


class IntervalBank(Bank):
    """Filters of interval means; a range of intervals is opened with its first interval and read at any later one."""

    memory = 0.999

    def __init__(self) -> None:
        super().__init__(_INTERVAL_MODELS)
        self._unit = 0.0
        self._level = np.zeros(self.models.count)
        self._level_variance = np.zeros(self.models.count)
        # [3, open ranges, models]: posterior mean of the range's sum, its covariance with the level, its variance.
        self._ranges = np.zeros((3, 0, self.models.count))

    def state(self) -> dict[str, list[float] | float]:
        """Return what a successor needs to go on; open ranges are not part of it."""
        return {
            "unit": self._unit,
            "score": self.log_likelihood.tolist(),
            "level": self._level.tolist(),
            "variance": self._level_variance.tolist(),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """Return the bank as `state` left it, bit for bit."""
        bank = cls()
        bank._unit = float(state["unit"])
        bank.log_likelihood = np.array(state["score"], dtype=np.float64)
        bank._level = np.array(state["level"], dtype=np.float64)
        bank._level_variance = np.array(state["variance"], dtype=np.float64)
        return bank

    def step(self, count: float, mean: float, variance: float, *, open_range: bool = False) -> Filtered:
        """Take in one interval: `count` reports with plain mean `mean` of noise variance `variance` (> 0).

        Return the interval's own sum.  open_range: open a range that starts with this interval; ranges are numbered from 0.
        `variance` must not come from this interval's reports alone: an estimate that is low by chance would seem precise
        as well, and averages would be drawn to it.  Pool it over all intervals so far.
        """
        if self._unit == 0.0:
            self._unit = variance
            prior = np.full_like(self._level, 1e6 * variance)  # flat
            self._level = np.full_like(self._level, mean)
        else:
            prior = self._level_variance + self.models.drift * self._unit
        own = self.models.white * self._unit
        spread = prior + own + variance
        innovation = mean - self._level
        if self._level_variance.any():  # the first interval fits every model
            self._weigh(innovation, spread)
        gain = prior / spread
        # The true mean x enters every range: S + count * x, with Cov(x, S) = cross and Var(x) = prior + own.  The last row
        # is the range that starts here.
        sums, cross, variances = np.concatenate([self._ranges, np.zeros((3, 1, self.models.count))], axis=1)
        with_x = cross + count * (prior + own)
        sums = sums + count * self._level + with_x / spread * innovation
        variances = variances + 2 * count * cross + count**2 * (prior + own) - with_x**2 / spread
        ranges = np.stack([sums, cross + count * prior - gain * with_x, variances])
        self._ranges = ranges if open_range else ranges[:, :-1]
        self._level = self._level + gain * innovation
        self._level_variance = prior - gain * prior
        return self._read(ranges[:, -1])

    def read(self, opened: int) -> Filtered:
        """Return the sum of an open range as of the last interval taken."""
        return self._read(self._ranges[:, opened])

    def _read(self, numbers: Floats) -> Filtered:
        weights, (sums, _, variances) = self.weights(), numbers
        mean = float(weights @ sums)
        variance = float(weights @ (variances + (sums - mean) ** 2))
        return Filtered(mean, max(variance, 0.0) ** 0.5)


def filter_ranges(counts: Floats, means: Floats, variances: Floats, ranges: npt.NDArray[np.int64]) -> list[Filtered]:
    """Return the answers to range queries [first, last) over intervals, each as of its own last interval.

    `counts`, `means`, `variances` (of the means): float64[intervals]; `ranges`: int64[queries, 2] with first < last.
    """
    bank, answers = IntervalBank(), [Filtered(0.0, 0.0)] * len(ranges)
    starts = np.unique(ranges[:, 0])
    opened = np.searchsorted(starts, ranges[:, 0])
    for interval in range(int(ranges[:, 1].max(initial=0))):
        numbers = (float(column[interval]) for column in (counts, means, variances))
        bank.step(*numbers, open_range=interval in starts)
        for query in np.flatnonzero(ranges[:, 1] == interval + 1).tolist():
            answers[query] = bank.read(int(opened[query]))
    return answers


_UPPER = np.triu_indices(3)


class BlockBank(Bank):
    """Filters of one stream's released block sums; memory does not grow with the stream.

    The state of one model is (level, noise that the open tree's blocks share, running sum of the true blocks):
    mean float64[models, 3], covariance float64[models, 3, 3].
    """

    def __init__(self, models: Models) -> None:
        super().__init__(models)
        self.mean = np.zeros((models.count, 3))
        self.mean[:, 0] = models.mean
        self.covariance = np.zeros((models.count, 3, 3))
        self.covariance[:, 0, 0] = models.level

    def pack(self) -> bytes:
        """Return the little-endian bytes of the state."""
        parts = (self.mean, self.covariance[:, *_UPPER], self.log_likelihood)
        return b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in parts)

    @classmethod
    def unpack(cls, data: bytes, models: Models) -> Self:
        """Return the bank packed by ``pack``."""
        bank, count = cls(models), models.count
        numbers = np.frombuffer(data, dtype="<f8").astype(np.float64)
        mean, upper, bank.log_likelihood = np.split(numbers, (3 * count, 9 * count))
        bank.mean = mean.reshape(count, 3)
        rows, columns = _UPPER
        bank.covariance[:, rows, columns] = bank.covariance[:, columns, rows] = upper.reshape(count, 6)
        return bank

    def step(self, block: float, *, own: float, new_common: float | None) -> Filtered:
        """Take in the next released block sum; return the running sum of the true blocks.

        own: variance of the block's own noise.  new_common: where the block opens a tree, the variance of the noise
        that the tree's blocks share (usually negative), else None.
        The state before the block: level m, common noise A, running sum S.  The block is x = m + W and is seen as
        z = x + A + D; S gains x.
        """
        P, mean, white = self.covariance, self.mean, self.models.white
        P[:, 0, 0] += self.models.drift
        if new_common is not None:
            P[:, 1, :] = P[:, :, 1] = 0.0
            P[:, 1, 1] = new_common
            mean[:, 1] = 0.0
        with_level, with_common = P[:, 0, :].copy(), P[:, 1, :].copy()
        P[:, 2, 2] += 2 * with_level[:, 2] + with_level[:, 0] + white
        for other in (0, 1):
            P[:, 2, other] += with_level[:, other]
            P[:, other, 2] = P[:, 2, other]
        mean[:, 2] += mean[:, 0]
        seen = P[:, 0, :] + P[:, 1, :]
        seen[:, 2] += white
        variance = with_level[:, 0] + 2 * with_level[:, 1] + with_common[:, 1] + white + own
        innovation = block - mean[:, 0] - mean[:, 1]
        mean += seen / variance[:, None] * innovation[:, None]
        P -= seen[:, :, None] * seen[:, None, :] / variance[:, None, None]  # symmetric to the last bit
        self._weigh(innovation, variance)
        weights = self.weights()
        running = (weights * mean[:, 2]).sum()
        # About the mean, not E x^2 - (E x)^2: after many blocks the running sum's square has no digits left for it.
        spread = (weights * (P[:, 2, 2] + (mean[:, 2] - running) ** 2)).sum()
        return Filtered(float(running), float(np.sqrt(spread)))
