"""Calibrated rows: what the rows of a window's last trigger, of all partitions together, say about each of them.

    rows (direct estimate, second measurement) ──fit──▶ what the second measurement lacks, and the spread around that
                                               ──rows──▶ each row's mean of both, by their variances

A direct estimate is unbiased, with the noise of a stream over the whole window. The second measurement has less noise, but counts
users in part, and may be what the key was selected by. These faults are the same for rows that look alike, and the direct
estimates of many such rows show how large they are.
It uses rows of published keys and constants alone, so it is post-processing: docs/guarantees/closing.md, "Calibrated rows".

Sums are exactly rounded and equations are solved in fractions. So a fit depends neither on the order of the rows nor on the
processor.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats

LEAST_ROWS = 200
"""With fewer rows of a kind, each keeps its direct estimate."""
OUTLIER = 3.0
"""A row further from what is expected than so many standard deviations is drawn towards it less."""
CAUTION = 2.0
"""Spreads are taken so many of their standard errors larger than estimated."""
EVEN_FROM = 60
"""Rows weigh the same in a ratio, relative to their size, from this size on."""
TYPICAL_SPREAD = 0.03
"""How far rows are from a ratio beside noise, relative to their size, when they are weighed to find the spread. A ratio that is
below 1 by no more is taken for 1: whole lists are nearer to the true counts than what the caps keep of them."""
CONSTANTS = (LEAST_ROWS, OUTLIER, CAUTION, EVEN_FROM, TYPICAL_SPREAD)
"""What no parameter changes, for the digest of a plan."""
_SINGULAR = 1e-9
"""A pivot that is smaller, relatively, is taken for zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Rows whose keys were selected by the second measurement: a line of the direct estimates on statistics.

    coefficients: float64[p], of the regressors. inverse: float64[p, p], of their sums of products. spread: the variance of the
    truth around the line. residual: that of the direct estimates. variance: of their noise.
    """

    coefficients: Floats
    inverse: Floats
    spread: float
    residual: float
    variance: float

    @classmethod
    def fit(cls, direct: Floats, regressors: Sequence[Floats], variance: float) -> Self | None:
        """Fits by least squares; None for fewer than LEAST_ROWS rows, or where they do not determine a line.

        direct: float64[n], with noise of `variance`; regressors: p of float64[n].
        """
        n, p = len(direct), len(regressors)
        if n < LEAST_ROWS:
            return None
        inverse = _inverse([[_sum(a * b) for b in regressors] for a in regressors])
        if inverse is None:
            return None
        moments = [Fraction(_sum(a * direct)) for a in regressors]
        coefficients = np.array([float(sum(a * b for a, b in zip(row, moments, strict=True))) for row in inverse])
        residual = _sum((direct - _value(coefficients, regressors)) ** 2) / (n - p)
        return cls(
            coefficients=coefficients,
            inverse=np.array([[float(value) for value in row] for row in inverse]),
            # More than estimated: with too small a spread, all rows' standard errors would be too small together.
            spread=max(residual - variance, 0.0) + CAUTION * residual * math.sqrt(2 / (n - p)),
            residual=residual,
            variance=variance,
        )

    def rows(self, direct: Floats, regressors: Sequence[Floats]) -> tuple[Floats, Floats]:
        """(estimates, their standard errors), float64[n] each, of rows that the fit has seen or not."""
        line = _value(self.coefficients, regressors)
        leverage = np.zeros(len(line))
        for i, first in enumerate(regressors):
            for j, second in enumerate(regressors):
                leverage += self.inverse[i, j] * first * second
        far = np.maximum((direct - line) ** 2 - OUTLIER**2 * (self.spread + self.variance), 0)
        around = self.spread + far
        share = around / (around + self.variance)
        uncertain = (1 - share) ** 2 * self.residual * np.maximum(leverage, 0)
        return line + share * (direct - line), np.sqrt(share * self.variance + uncertain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Rows whose keys were public before: the ratio of direct estimates to second measurements.

    factor: above 1 where long lists are counted in part, below 1 where the caps keep less than the lists hold. spread: the variance
    of single rows' factors. variance: of the direct estimates' noise.
    """

    factor: float
    spread: float
    variance: float

    @classmethod
    def fit(cls, direct: Floats, again: Floats, noise: Floats, variance: float) -> Self | None:
        """Fits from sums; None for fewer than LEAST_ROWS rows, or where their sums are no ratio.

        direct, again: float64[n]; noise: float64[n], the variance of `again`.
        """
        if len(direct) < LEAST_ROWS:
            return None
        size = np.maximum(again, EVEN_FROM)
        # A weight that follows the noisy number would draw the sum down, by E[w'(x)] var(x) for Gaussian noise (Stein's lemma).
        total = _sum(again / size + np.where(again > EVEN_FROM, noise / size**2, 0))
        counted = _sum(direct / size)
        if total <= 0 or counted <= 0:
            return None
        factor = counted / total
        if 1 - TYPICAL_SPREAD <= factor < 1:
            factor = 1.0
        # Products and no powers of single numbers: C's pow may round differently on another machine.
        expected = variance + factor * factor * noise
        square, shape = (direct - factor * again) ** 2, again**2
        weight = shape / (expected + TYPICAL_SPREAD**2 * shape) ** 2
        weights = _sum(weight * shape)
        spread = max(_sum(weight * (square - expected)) / weights, 0.0)
        error = math.sqrt(2 * _sum((weight * (expected + spread * shape)) ** 2)) / weights
        return cls(factor=factor, spread=spread + CAUTION * error, variance=variance)

    def rows(self, direct: Floats, again: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """(estimates, their standard errors), float64[n] each, of rows that the fit has seen or not."""
        expected = self.factor * again
        # Users with long lists are counted in part, by more for one row than for another, and no row counts users that are not
        # there. So a row can be far above what is expected, and below only by about as much as the factor changes.
        below = abs(self.factor - 1) * np.maximum(again, 0)
        away = np.maximum(direct - expected, 0) + np.minimum(np.maximum(expected - direct, 0), below)
        unlike = self.spread * again**2
        around = self.factor * self.factor * noise + np.where(direct > expected, unlike, np.minimum(unlike, below**2))
        around = around + np.maximum(away**2 - OUTLIER**2 * (around + self.variance), 0)
        share = around / (around + self.variance)
        return expected + share * (direct - expected), np.sqrt(share * self.variance)


def quantile(values: npt.NDArray[np.int64], share: Fraction) -> int:
    """An order statistic: at least this share of the values is not above it; 0 of none."""
    return int(np.sort(values)[math.floor(share * (len(values) - 1))]) if len(values) else 0


def _value(coefficients: Floats, regressors: Sequence[Floats]) -> Floats:
    # Term by term: a matrix product may round differently for another number of rows.
    value = np.zeros(len(regressors[0]))
    for coefficient, regressor in zip(coefficients.tolist(), regressors, strict=True):
        value += coefficient * regressor
    return value


def _sum(values: Floats) -> float:
    return math.fsum(values.tolist())


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[Fraction]] | None:
    """The exact inverse of a positive definite matrix, by Gauss and Jordan; None where it is close to singular."""
    size = len(matrix)
    rows = [
        [Fraction(value) for value in row] + [Fraction(int(i == j)) for j in range(size)]
        for i, row in enumerate(matrix)
    ]
    for column in range(size):
        pivot = rows[column][column]
        if pivot <= _SINGULAR * Fraction(matrix[column][column]):
            return None
        rows[column] = [value / pivot for value in rows[column]]
        for row in range(size):
            if row != column and rows[row][column]:
                factor = rows[row][column]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return [row[size:] for row in rows]
