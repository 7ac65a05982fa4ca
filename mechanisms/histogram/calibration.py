"""Calibrated rows: what the rows of a window's last trigger, of all partitions together, say about each of them.

    rows (direct estimate, second measurement)
        ──fit──▶ a line of the direct estimates on the second measurement, and the spread around it
        ──rows──▶ each row's mean of line and direct estimate, by their variances

A direct estimate is unbiased, with the noise of a stream over the whole window. The second measurement has less noise, but counts
users in part, and may be what the key was selected by. Regression takes its information without its bias: both faults are the same
for rows that look alike, and the direct estimates of these rows show how large they are.
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

LEAST_ROWS = 200
"""With fewer rows, each keeps its direct estimate."""
OUTLIER = 3.0
"""A row further from the line than so many standard deviations is drawn towards it less."""
CONSTANTS = (LEAST_ROWS, OUTLIER)
"""What no parameter changes, for the digest of a plan."""
_SINGULAR = 1e-9
"""A pivot that is smaller, relatively, is taken for zero."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """n rows as a fit sees them.

    direct: float64[n], with noise of `variance`. regressors: float64[n] each, of second measurements. known, shape: float64[n], the
    variance of the truth around the line is known + spread * shape, where the fit estimates spread. weight: float64[n], public.
    """

    direct: Floats
    variance: float
    regressors: tuple[Floats, ...]
    known: Floats
    shape: Floats
    weight: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted line. coefficients: of the regressors. inverse: float64[p, p], of their weighted sums of products."""

    coefficients: Floats
    inverse: Floats
    spread: float

    @classmethod
    def fit(cls, rows: Rows) -> Self | None:
        """The weighted least-squares line; None for fewer than LEAST_ROWS rows, or where they do not determine a line."""
        n, p = len(rows.direct), len(rows.regressors)
        if n < LEAST_ROWS:
            return None
        weighted = [regressor * rows.weight for regressor in rows.regressors]
        inverse = _inverse([[_sum(a * b) for b in rows.regressors] for a in weighted])
        if inverse is None:
            return None
        moments = [Fraction(_sum(a * rows.direct)) for a in weighted]
        coefficients = np.array([float(sum(a * b for a, b in zip(row, moments, strict=True))) for row in inverse])
        square = (rows.direct - _line(coefficients, rows.regressors)) ** 2 * (n / (n - p))
        # By moments, each row with the weight that suits its variance.
        noise = rows.variance + rows.known
        weight = rows.shape * rows.weight**2
        total = _sum(weight * rows.shape)
        spread = max(_sum(weight * (square - noise)) / total, 0.0)
        error = math.sqrt(2 * _sum((weight * (noise + spread * rows.shape)) ** 2)) / total
        return cls(
            coefficients=coefficients,
            inverse=np.array([[float(value) for value in row] for row in inverse]),
            # A standard error more than estimated: with too small a spread, the rows' standard errors would be too small.
            spread=spread + error,
        )

    def rows(self, rows: Rows) -> tuple[Floats, Floats]:
        """(estimates, their standard errors), float64[n] each, of rows that the fit has seen or not."""
        line = _line(self.coefficients, rows.regressors)
        leverage = np.zeros(len(line))
        for i, first in enumerate(rows.regressors):
            for j, second in enumerate(rows.regressors):
                leverage += self.inverse[i, j] * first * second
        around = rows.known + self.spread * rows.shape
        distance = (rows.direct - line) ** 2
        around = around + np.maximum(distance - OUTLIER**2 * (around + rows.variance), 0)
        share = around / (around + rows.variance)
        # The line's own error: of unit weight, the residuals have about the variance 1 / weight.
        uncertain = (1 - share) ** 2 * np.maximum(leverage, 0)
        return line + share * (rows.direct - line), np.sqrt(share * rows.variance + uncertain)


def quantile(values: npt.NDArray[np.int64], share: Fraction) -> int:
    """An order statistic: at least this share of the values is not above it."""
    return int(np.sort(values)[math.floor(share * (len(values) - 1))]) if len(values) else 0


def _line(coefficients: Floats, regressors: Sequence[Floats]) -> Floats:
    # Term by term: a matrix product may round differently for another number of rows.
    line = np.zeros(len(regressors[0]))
    for coefficient, regressor in zip(coefficients.tolist(), regressors, strict=True):
        line += coefficient * regressor
    return line


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
