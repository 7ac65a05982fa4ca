"""Smoothed rows: rows of keys that the window before has published, drawn to what it says of them.

    rows of today, rows of yesterday ──fit──▶ how much of yesterday has come, which keys have changed, and how far
                                     ──rows──▶ each row's mean over "as yesterday" and "changed"
                                     ──rates──▶ what the next window is told of each key

A key has a rate: how many come to it on average in such a window. It is, today at trigger t, that of yesterday times today's
progress, or the key has changed. Many rows together show the progress and the share of changed keys; its own row shows which of
both a key is. No calendar or clock is needed. It uses rows of published keys and constants alone, so it is post-processing:
docs/guarantees/smoothing.md has the model.

Every step rounds in one way only (elementary.py), and rows are put into an order of their own. So a fit depends neither on the
order of the rows nor on the processor.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Floats
from susurrus.mechanisms.elementary import exponential, logarithm, total, totals

LEAST_ROWS = 40
"""Fewer rows are not smoothed."""
MOST_ROWS = 8192
"""A fit uses so many rows: the larger half are those with the largest remembered values, the others stand for all that follow."""
ROUNDS = 25
FIRST_ROUNDS = 5
"""Of ROUNDS, those that every start has. The likeliest one has the rest."""
CAUTION = 0.35
"""The spread is taken so many of its standard errors larger than estimated."""
_WEIGHING_SPREAD = 0.1
"""Rows are weighed as if the spread were at least this: otherwise the few largest rows alone would say that there is none."""
LEAST_SHOWN = 3
"""A remembered key's row is shown from so many users on."""
_LEAST_WEIGHT = 0.0005
_LEAST_SPREAD, _MOST_SPREAD = 1e-5, 1.0
_MOST_FACTOR = 2.0**20
_LEAST_WIDTH, _MOST_WIDTH = 1.0, 2.0**124
_MOST_ESTIMATE = 2.0**62
_START_SPREAD = 1e-3
_START_QUANTILES = (0.5, 0.9, 0.95)
"""Of today's rows over yesterday's, among the largest tenth: the factors where fits begin, beside the ratio of the sums."""
_START_SCALE = 0.05
"""Widths begin in proportion to the factor, but no lower than for this one."""
_STARTS = (
    ((0.40, 0.30, 0.20, 0.10), (5.0, 100.0, 10_000.0)),
    ((0.15, 0.40, 0.35, 0.10), (5.0, 40.0, 300.0)),
)
"""(weights, widths) where fits begin: keys that mostly stay, with a few large ones that are new; keys that mostly change."""
CONSTANTS = (
    *(LEAST_ROWS, MOST_ROWS, ROUNDS, FIRST_ROUNDS, CAUTION, LEAST_SHOWN),
    *(_LEAST_WEIGHT, _LEAST_SPREAD, _MOST_SPREAD, _MOST_FACTOR, _LEAST_WIDTH, _MOST_WIDTH, _WEIGHING_SPREAD),
    *(_START_SPREAD, _START_SCALE, *_START_QUANTILES, str(_STARTS)),
)
"""What no parameter changes, for a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows of a fit: today's, yesterday's, and how many rows each stands for."""

    direct: Floats
    variance: Floats
    value: Floats
    value_variance: Floats
    count: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beliefs:
    """What a fit says of rows. share: float64[4, n], of each component. variance: float64[4, n], of a row in each, noise included.
    density, nearest: float64[n], of all components, relative to the nearest one; and the squared distance to that one."""

    share: Floats
    variance: Floats
    density: Floats
    nearest: Floats

    def likelihood(self) -> Floats:
        """float64[n], its logarithm, up to a constant. Few rounds need it, and a logarithm takes as long as all the rest."""
        return np.asarray(logarithm(self.density) - 0.5 * self.nearest, np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """How rows of one kind follow from those of the window before: a mixture of four components.

    weights: their shares, first of keys that stay. factor: how much of yesterday's value has come. spread: the variance of single
    keys' factors, relative to it. widths: the variances around 0 of the three sorts of keys that have changed.
    """

    weights: tuple[float, ...]
    factor: float
    spread: float
    widths: tuple[float, ...]

    @classmethod
    def fit(cls, direct: Floats, variance: Floats, value: Floats, value_variance: Floats) -> Self | None:
        """Fit by expectation maximisation; None for fewer than LEAST_ROWS rows.

        direct, variance: float64[n], today's rows and the variances of their errors. value, value_variance: float64[n], the
        rates >= 0 that the window before has left of the same keys, and the variances of their errors: `rates`, of a fit or
        without one. All are finite, and their sizes at most 2^62 (variances: the square).
        """
        if len(direct) < LEAST_ROWS:
            return None
        # An order of their own, the largest values first. Equal rows are equal wherever they stand.
        order = np.lexsort((value_variance, variance, direct, -value))
        chosen, count = _chosen(len(order))
        places = order[chosen]
        columns = (direct, variance, value, value_variance)
        rows = _Rows(
            **dict(zip(("direct", "variance", "value", "value_variance"), (c[places] for c in columns), strict=True)),
            count=count,
        )
        begins = _factors(rows, direct[order], value[order])
        found, best = None, -math.inf
        for weights, widths in _STARTS:
            for factor in begins:
                start = cls._start(weights, widths, factor)
                for _ in range(FIRST_ROUNDS):
                    start = start._better(rows)
                likelihood = total(rows.count * start._beliefs(rows).likelihood())
                if found is None or likelihood > best:
                    found, best = start, likelihood
        assert found is not None
        for _ in range(FIRST_ROUNDS, ROUNDS - 1):
            found = found._better(rows)
        return found._better(rows, caution=CAUTION)

    def rows(self, direct: Floats, variance: Floats, value: Floats, value_variance: Floats) -> tuple[Floats, Floats]:
        """(estimates, their standard errors), float64[n] each, of rows that the fit has seen or not; see `fit`."""
        given = _Rows(direct=direct, variance=variance, value=value, value_variance=value_variance, count=np.ones(0))
        beliefs = self._beliefs(given)
        prior = beliefs.variance - variance
        expected = np.zeros_like(prior)
        expected[0] = self.factor * value
        # Within a component: the mean of what is expected and what is measured, by their variances.
        estimates = (expected * variance + direct * prior) / beliefs.variance
        estimate = _over_components(beliefs.share * estimates)
        away = estimates - estimate
        squares = _over_components(beliefs.share * (prior * variance / beliefs.variance + away * away))
        return np.clip(estimate, -_MOST_ESTIMATE, _MOST_ESTIMATE), np.sqrt(squares)

    def rates(self, direct: Floats, variance: Floats, value: Floats, value_variance: Floats) -> tuple[Floats, Floats]:
        """What the next window is told of these keys, as `fit` takes it there: (their rates, the variances of the errors),
        float64[n] each.

        Today's number is a draw. So the rate of a key that stays follows its row less than the number does, and is less exact than
        the number where the row is exact, but more exact where the row is mostly noise.
        """
        given = _Rows(direct=direct, variance=variance, value=value, value_variance=value_variance, count=np.ones(0))
        beliefs = self._beliefs(given)
        prior = beliefs.variance - variance
        estimates, errors = np.empty_like(prior), np.empty_like(prior)
        expected = self.factor * value
        rate_variance = self.factor * self.factor * value_variance + self.spread * (expected * expected)
        row_variance = _drawn(expected) + variance
        both = rate_variance + row_variance
        estimates[0] = (expected * row_variance + direct * rate_variance) / both
        errors[0] = rate_variance * row_variance / both
        # Of a key that has changed, all that is known is its number, which is one draw.
        estimates[1:] = direct * prior[1:] / beliefs.variance[1:]
        errors[1:] = prior[1:] * variance / beliefs.variance[1:] + _drawn(estimates[1:])
        estimate = _over_components(beliefs.share * estimates)
        away = estimates - estimate
        squares = _over_components(beliefs.share * (errors + away * away))
        return np.clip(estimate, 0, _MOST_ESTIMATE), np.minimum(squares, _MOST_ESTIMATE * _MOST_ESTIMATE)

    @classmethod
    def _start(cls, weights: tuple[float, ...], widths: tuple[float, ...], factor: float) -> Self:
        scale = max(factor, _START_SCALE)
        return cls(
            weights=weights,
            factor=factor,
            spread=_START_SPREAD,
            widths=tuple(max(width * scale * (width * scale), _LEAST_WIDTH) for width in widths),
        )

    def _own(self, rows: _Rows, factor: float) -> Floats:
        """The variance of a row that stays, around factor * value, apart from the spread: of yesterday's error, of today's
        number, which is a draw, and of today's noise."""
        drawn = _drawn(factor * rows.value)
        return np.asarray(factor * factor * rows.value_variance + drawn + rows.variance, np.float64)

    def _beliefs(self, rows: _Rows) -> _Beliefs:
        expected = self.factor * rows.value
        variance = np.empty((1 + len(self.widths), len(expected)))
        variance[0] = self._own(rows, self.factor) + self.spread * (expected * expected)
        variance[1:] = np.array(self.widths)[:, None] + rows.variance
        far = np.empty_like(variance)
        far[0] = rows.direct - expected
        far[1:] = rows.direct
        far *= far
        far /= variance
        nearest = far.min(axis=0)
        share = exponential(-0.5 * (far - nearest))
        share *= np.array(self.weights)[:, None]
        share /= np.sqrt(variance)
        density = _over_components(share)
        share /= density
        return _Beliefs(share=share, variance=variance, density=density, nearest=nearest)

    def _better(self, rows: _Rows, caution: float = 0.0) -> Self:
        """One round. caution: the spread is taken so many standard errors larger."""
        beliefs = self._beliefs(rows)
        share = rows.count * beliefs.share
        least = _LEAST_WEIGHT * total(rows.count)
        sums = [max(each, least) for each in totals(share)]
        weights = tuple(each / (((sums[0] + sums[1]) + sums[2]) + sums[3]) for each in sums)
        weight = share[0] * rows.value / beliefs.variance[0]
        factor, squares = self.factor, total(weight * rows.value)
        if squares > 0:
            factor = min(max(total(weight * rows.direct) / squares, 0.0), _MOST_FACTOR)
        around = share[1:] / (beliefs.variance[1:] * beliefs.variance[1:])
        found = zip(totals(around * (rows.direct * rows.direct - rows.variance)), totals(around), strict=True)
        widths = tuple(min(max(square / whole, _LEAST_WIDTH), _MOST_WIDTH) for square, whole in found)
        return type(self)(
            weights=weights, factor=factor, spread=self._spread(rows, share[0], factor, caution), widths=widths
        )

    def _spread(self, rows: _Rows, share: Floats, factor: float, caution: float) -> float:
        expected = factor * rows.value
        shape = expected * expected
        own = self._own(rows, factor)
        around = own + max(self.spread, _WEIGHING_SPREAD) * shape
        relative = share * shape / around
        weight = relative / around
        weights = total(weight * shape)
        if not weights > 0:
            return self.spread
        away = rows.direct - expected
        # Negative where rows scatter less than they would without any spread: then caution has less to add.
        found = total(weight * (away * away - own)) / weights
        found += caution * math.sqrt(2 * total(relative * relative)) / weights
        return min(max(found, _LEAST_SPREAD), _MOST_SPREAD)


def rates(estimates: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """`Smoothing.rates` of keys without a smoothed row: (their rates, the variances of the errors), float64[n] each.

    estimates, errors: float64[n], rows and their standard errors.
    """
    found = np.clip(estimates, 0, _MOST_ESTIMATE)
    return found, np.minimum(errors * errors + _drawn(found), _MOST_ESTIMATE * _MOST_ESTIMATE)


def shown(estimates: npt.NDArray[np.int64], errors: Floats) -> Bools:
    """bool[n]: whether rows of remembered keys are shown: those that are large enough to mean something.

    estimates: int64[n], in users; errors: float64[n], their standard errors.
    """
    return np.asarray(estimates >= np.maximum(LEAST_SHOWN, errors), np.bool_)


def _chosen(size: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """(places, how many rows each stands for) of the rows of a fit, in the order of the fit.

    Large rows decide the factor and the spread, so all are kept. Of the others, which are many and alike, one out of each run of
    neighbours.
    """
    if size <= MOST_ROWS:
        return np.arange(size), np.ones(size)
    half = MOST_ROWS // 2
    ends = half + np.arange(half + 1) * (size - half) // half
    return (
        np.concatenate((np.arange(half), (ends[:-1] + ends[1:] - 1) // 2)),
        np.concatenate((np.ones(half), np.diff(ends).astype(np.float64))),
    )


def _factors(rows: _Rows, direct: Floats, value: Floats) -> list[float]:
    """Where fits begin. direct, value: float64[n], of all rows, the largest values first."""
    largest = max(1, len(value) // 10)
    ratios = np.sort(direct[:largest] / np.maximum(value[:largest], 1.0))
    found = [total(rows.count * rows.direct) / max(total(rows.count * rows.value), 1.0)]
    found += [float(ratios[int(quantile * (largest - 1))]) for quantile in _START_QUANTILES]
    return [min(max(factor, 0.0), _MOST_FACTOR) for factor in found]


def _drawn(rates: Floats) -> Floats:
    """The variances of numbers that are drawn by these rates; of at least 1."""
    return np.asarray(np.maximum(rates, 1.0), np.float64)


def _over_components(values: Floats) -> Floats:
    """The sum over the first axis, in its order."""
    return np.asarray(((values[0] + values[1]) + values[2]) + values[3], np.float64)
