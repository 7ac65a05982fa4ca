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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats


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


def _log_sum(log_likelihood: Floats) -> Floats:
    """Return the logarithm of the sum over the last axis."""
    top = log_likelihood.max(axis=-1)
    result: Floats = top + np.log(np.exp(log_likelihood - top[..., None]).sum(axis=-1))
    return result


_DRIFTS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e3)
_WHITES = (0.0, 1e-2, 1e-1, 1.0, 10.0, 1e3)
# In units of the first interval's noise variance.
_INTERVAL_MODELS = Models(np.tile(_WHITES, len(_DRIFTS)), np.repeat(_DRIFTS, len(_WHITES)))


_MEMORY = 0.999
"""The likelihood of an interval bank's models is forgotten at the rate 1 - this an interval."""


class IntervalBank:
    """Filters of interval means; a range of intervals is opened with its first interval and read at any later one."""

    def __init__(self) -> None:
        self.models = _INTERVAL_MODELS
        self.log_likelihood = np.zeros(self.models.count)
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

    def level(self) -> tuple[float, float]:
        """Return the posterior mean of the level after the last interval taken, and its standard deviation."""
        weights = self.weights()
        mean = float(weights @ self._level)
        variance = float(weights @ (self._level_variance + (self._level - mean) ** 2))
        return mean, max(variance, 0.0) ** 0.5

    def weights(self) -> Floats:
        """Return float64[models]: posterior probabilities of the models."""
        return mixture_weights(self.log_likelihood)

    def _weigh(self, innovation: Floats, variance: Floats) -> None:
        """Take in how far a released number lies from each model's prediction, and the variance of that distance."""
        self.log_likelihood = _MEMORY * self.log_likelihood - (np.log(variance) + innovation**2 / variance) / 2

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


_MEAN, _UPPER, _SCORE = slice(0, 3), slice(3, 9), 9
"""Rows of a bank's numbers: the mean, the covariance (00, 01, 02, 11, 12, 22), the log-likelihood."""
_NUMBERS = 10


class BlockBank:
    """Filters of one stream's released block sums; memory does not grow with the stream.

    The state of one model is (level, noise that the open tree's blocks share, running sum of the true blocks): its mean and
    its covariance.  ``numbers`` float64[10, models] holds these and the log-likelihood, a row for each.
    """

    def __init__(self, models: Models, numbers: Floats | None = None) -> None:
        self.models = models
        if numbers is None:
            numbers = np.zeros((_NUMBERS, models.count))
            numbers[0], numbers[3] = models.mean, models.level
        self.numbers = numbers

    def weights(self) -> Floats:
        """Return float64[models]: posterior probabilities of the models."""
        return mixture_weights(self.numbers[_SCORE])

    def evidence(self) -> float:
        """Return the logarithm of the models' mean likelihood, up to a constant."""
        return float(_log_sum(self.numbers[_SCORE]))

    def pack(self) -> bytes:
        """Return the little-endian bytes of the state: the models' means, their covariances, their log-likelihoods."""
        parts = (self.numbers[_MEAN].T, self.numbers[_UPPER].T, self.numbers[_SCORE])
        return b"".join(part.astype("<f8", copy=False).tobytes() for part in parts)

    @classmethod
    def unpack(cls, data: bytes, models: Models) -> Self:
        """Return the bank packed by ``pack``."""
        count = models.count
        mean, upper, score = np.split(np.frombuffer(data, dtype="<f8"), (3 * count, 9 * count))
        numbers = np.empty((_NUMBERS, count))
        numbers[_MEAN], numbers[_UPPER], numbers[_SCORE] = mean.reshape(count, 3).T, upper.reshape(count, 6).T, score
        return cls(models, numbers)

    def level(self) -> tuple[float, float]:
        """Return posterior mean and standard deviation of the level."""
        weights, (level, variance) = self.weights(), self.numbers[[0, 3]]
        mean = float((weights * level).sum())
        return mean, float((weights * (variance + (level - mean) ** 2)).sum()) ** 0.5

    def step(self, block: float, *, own: float, new_common: float | None, jump: float = 0.0) -> Filtered:
        """Take in the next released block sum; return the running sum of the true blocks, as ``BlockBanks.step`` does."""
        banks = BlockBanks([self])
        common = np.array([np.nan if new_common is None else new_common])
        [running], [error], _ = banks.step(
            np.array([block]), own=np.array([own]), new_common=common, jump=np.array([jump])
        )
        banks.give_back()
        return Filtered(float(running), float(error))


class BlockBanks:
    """The banks of several streams, stepped together: every number is the one that its bank alone would have.

    All operations are element by element, or reductions of one stream's contiguous row, so a stream's bits do not depend on
    the streams beside it.
    """

    def __init__(self, banks: Sequence[BlockBank]) -> None:
        self._banks = banks
        self._models = banks[0].models
        # In C order whatever the banks' order is: sums round by the order in memory.
        self._numbers = np.empty((_NUMBERS, len(banks), self._models.count))
        np.stack([bank.numbers for bank in banks], axis=1, out=self._numbers)

    def evidence(self) -> Floats:
        """Return `BlockBank.evidence` of each, float64[banks]."""
        return np.asarray(_log_sum(self._numbers[_SCORE]))

    def bank(self, place: int) -> BlockBank:
        """Return a copy of one bank as it is now."""
        return BlockBank(self._models, self._numbers[:, place].copy())

    def give_back(self) -> None:
        """Write the numbers back into the banks."""
        for place, bank in enumerate(self._banks):
            bank.numbers = self._numbers[:, place].copy()

    def step(self, blocks: Floats, *, own: Floats, new_common: Floats, jump: Floats) -> tuple[Floats, Floats, Floats]:
        """Take in the next released block sum of each of the first n streams, float64[n].

        own: variance of the block's own noise.  new_common: where the block opens a tree, the variance of the noise that the
        tree's blocks share (usually negative), else nan.  jump: variance of a jump of the level before the block, beside its
        drift.  Returns the running sums of the true blocks, their standard errors, and the squared distance of each block from what
        was expected of it, over its variance (about 1 while a model fits), float64[n] each.
        The state before the block: level m, common noise A, running sum S.  The block is x = m + W and is seen as
        z = x + A + D; S gains x.
        """
        level, common, running, P00, P01, P02, P11, P12, P22, score = self._numbers[:, : len(blocks)]
        white = self._models.white
        P00 += self._models.drift
        P00 += jump[:, None]
        opens = np.flatnonzero(~np.isnan(new_common))
        if len(opens):
            P01[opens] = P12[opens] = common[opens] = 0.0
            P11[opens] = new_common[opens, None]
        P22 += 2 * P02 + P00 + white
        P02 += P00
        P12 += P01
        running += level
        seen = np.stack([P00 + P01, P01 + P11, P02 + P12])
        seen[2] += white
        variance = P00 + 2 * P01 + P11 + white + own[:, None]
        innovation = blocks[:, None] - level - common
        self._numbers[_MEAN, : len(blocks)] += seen / variance * innovation
        for upper, (row, column) in zip((P00, P01, P02, P11, P12, P22), _PAIRS, strict=True):
            upper -= seen[row] * seen[column] / variance
        expected = mixture_weights(score)
        off = (expected * innovation).sum(axis=-1)
        surprise = off**2 / (expected * (variance + (innovation - off[:, None]) ** 2)).sum(axis=-1)
        score -= (np.log(variance) + innovation**2 / variance) / 2
        weights = mixture_weights(score)
        mean = (weights * running).sum(axis=-1)
        # About the mean, not E x^2 - (E x)^2: after many blocks the running sum's square has no digits left for it.
        spread = (weights * (P22 + (running - mean[:, None]) ** 2)).sum(axis=-1)
        return mean, np.sqrt(spread), surprise


_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
