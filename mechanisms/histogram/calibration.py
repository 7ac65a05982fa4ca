"""Calibrated rows: what the keys that are published together say about each of them.

    rows first published at a window's last trigger, of all partitions: (direct, closing, filter) each
        ──fit──▶ a line of the direct estimates on the two statistics that selected the rows
        ──rows──▶ every row is drawn towards the line, by as much as the direct estimate's noise is larger than the rows' spread

The direct estimate alone is unbiased, with the noise of a stream over the whole window. The two statistics are less noisy but count
users in part, and were looked at when the keys were selected. Regression on them takes their information without their bias.
It uses rows of published keys and constants alone, so it is post-processing: docs/guarantees/closing.md, "Calibrated rows".

Coefficients are solved in exact fractions of integer sums. So they depend neither on the order of the rows nor on the processor.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import mul
from typing import Self

import numpy as np
import numpy.typing as npt

EVIDENCE_COLUMNS = 3
"""Of a row: its direct estimate; its closing statistic; its matched filter. The statistics in units of 2^-20 users."""
STATISTIC_BITS = 20
LEAST_ROWS = 200
"""With fewer rows, each keeps its direct estimate."""
KNOT = Fraction(9, 10)
"""The line has a bend at this quantile of the closing statistic."""
CONSTANTS = (LEAST_ROWS, str(KNOT))
"""What no parameter changes, for the digest of a plan."""

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted line. variance: of the direct estimates' noise.

    knot: where the line bends, in units of the statistic. coefficients: of (1, closing, min(closing, knot), filter), statistics in
    users. inverse: float64[4, 4], of the regressors' sums of products. share: how much of a row's distance from the line is
    kept. residual: mean square of the distances.
    """

    variance: float
    knot: int
    coefficients: Floats
    inverse: Floats
    share: float
    residual: float

    @classmethod
    def fit(cls, pooled: Int64, variance: float) -> Self | None:
        """The line through int64[n, 3] evidence; None for fewer than LEAST_ROWS rows, or if they do not determine a line."""
        n = len(pooled)
        if n < LEAST_ROWS:
            return None
        direct, closing, matched = (pooled[:, column].tolist() for column in range(EVIDENCE_COLUMNS))
        knot = sorted(closing)[math.floor(KNOT * (n - 1))]
        regressors: list[list[int]] = [[1 << STATISTIC_BITS] * n, closing, [min(x, knot) for x in closing], matched]
        products = [[sum(map(mul, a, b)) for b in regressors] for a in regressors]
        inverse = _inverse(products)
        if inverse is None:
            return None
        moments = [sum(map(mul, a, direct)) for a in regressors]
        coefficients = [sum(map(mul, row, moments)) for row in inverse]
        residual = (sum(map(mul, direct, direct)) - sum(map(mul, coefficients, moments))) / (n - len(regressors))
        # The spread of the rows around the line beside their noise; a standard error more than estimated, since too small a
        # spread would make the rows' errors too small.
        spread = max(float(residual) * (1 + math.sqrt(2 / (n - len(regressors)))) - variance, 0.0)
        one = 1 << STATISTIC_BITS
        return cls(
            variance=variance,
            knot=knot,
            coefficients=np.array([float(value * one) for value in coefficients]),
            inverse=np.array([[float(value * one * one) for value in row] for row in inverse]),
            share=spread / (spread + variance),
            residual=float(residual),
        )

    def rows(self, evidence: Int64) -> tuple[Int64, Floats]:
        """(estimates, their standard errors), of int64[f, 3] evidence: for rows that the fit has seen or not."""
        scale = 2.0**-STATISTIC_BITS
        direct = evidence[:, 0].astype(np.float64)
        regressors = (
            np.ones(len(evidence)),
            evidence[:, 1] * scale,
            np.minimum(evidence[:, 1], self.knot) * scale,
            evidence[:, 2] * scale,
        )
        line, leverage = np.zeros(len(evidence)), np.zeros(len(evidence))
        # Term by term: a matrix product may round differently for another number of rows.
        for i, first in enumerate(regressors):
            line += self.coefficients[i] * first
            for j, second in enumerate(regressors):
                leverage += self.inverse[i, j] * first * second
        estimates = np.rint(line + self.share * (direct - line)).astype(np.int64)
        uncertain = (1 - self.share) ** 2 * self.residual * np.maximum(leverage, 0)
        return estimates, np.sqrt(self.share * self.variance + uncertain + 1 / 12)


def _inverse(matrix: Sequence[Sequence[int]]) -> list[list[Fraction]] | None:
    """The exact inverse, by Gauss and Jordan; None for a singular matrix."""
    size = len(matrix)
    rows = [
        [Fraction(value) for value in row] + [Fraction(int(i == j)) for j in range(size)]
        for i, row in enumerate(matrix)
    ]
    for column in range(size):
        pivot = next((row for row in range(column, size) if rows[row][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for row in range(size):
            if row != column and rows[row][column]:
                factor = rows[row][column]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return [row[size:] for row in rows]
