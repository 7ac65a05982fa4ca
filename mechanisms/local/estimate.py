"""The server's plain estimator: exact integer totals of the reports, and sums, means and their errors from them.

An interval's state consists of integers, so it does not depend on the order or the batching of the reports, and a
restart repeats it exactly. The estimate is unbiased for the sum of the values CLIPPED at theta. The standard error does
not cover what clipping cuts off.
"""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from operator import add

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.window import GRID

_SQUARE_SHIFT = 16  # squares are of code >> 16: 2**32 reports fit an int64, and the loss is 2**-16 relatively


@dataclass(frozen=True)
class Totals:
    """What the estimates need of the phase 2 reports of one interval under one threshold, as integers."""

    wide: int = 0  # piecewise reports
    codes: int = 0  # sum of their codes
    squares: int = 0  # sum of (code >> 16)^2
    bits: int = 0  # stochastic rounding reports
    ones: int = 0  # of them, those with bit 1

    @classmethod
    def of(cls, codes: npt.NDArray[np.int64]) -> "Totals":
        """Totals of a batch of codes (int64[n], n < 2**31)."""
        wide = codes[codes < GRID]
        high = wide >> _SQUARE_SHIFT
        bits = codes.size - wide.size
        return cls(
            wide.size, int(wide.sum()), int((high * high).sum()), bits, int(codes.sum() - wide.sum()) - bits * GRID
        )

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*map(add, astuple(self), astuple(other)))

    @property
    def count(self) -> int:
        return self.wide + self.bits


@dataclass(frozen=True)
class Estimate:
    """Sum and mean of one interval or range; `variance` is the squared standard error of the sum."""

    count: int
    sum: float
    variance: float

    @property
    def standard_error(self) -> float:
        return math.sqrt(self.variance)

    @property
    def mean(self) -> float:
        """NaN without reports."""
        return self.sum / self.count if self.count else math.nan

    @property
    def mean_standard_error(self) -> float:
        return self.standard_error / self.count if self.count else math.nan


def estimate(totals: Totals, theta: float, perturber: Hybrid) -> Estimate:
    """The unbiased estimate of the clipped sum and its standard error, in the values' unit.

    The error is that of the noise: sum of Var(f_i), a quadratic in the unknown fractions f_i. Their mean is estimated.
    Their mean square is estimated from the piecewise reports, where there are some, and kept between the mean's square
    and the mean. It cannot be estimated from bits alone: then the mean's square is used, and the error is an upper bound,
    for few reports as for many.
    """
    count = totals.count
    if count == 0:
        return Estimate(0, 0.0, 0.0)
    total = 0.0
    if totals.wide:
        scale, offset = perturber.window.decoder
        total += scale * totals.codes + offset * totals.wide
    if totals.bits:
        bit_scale, bit_offset = perturber.rounding.decoder
        total += bit_scale * totals.ones + bit_offset * totals.bits
    mean = min(max(total / count, 0.0), 1.0)
    square = mean * mean
    variance = 0.0
    if totals.wide:
        constant, linear, quadratic = Hybrid(perturber.epsilon, 1.0).variance_coefficients()
        seen = (
            scale**2 * totals.squares * 4.0**_SQUARE_SHIFT + 2 * scale * offset * totals.codes + offset**2 * totals.wide
        ) / totals.wide
        # E[decode^2] = Var + f^2 = constant + linear f + (quadratic + 1) f^2
        square = min(max((seen - constant - linear * mean) / (quadratic + 1), mean * mean), mean)
        variance += totals.wide * (constant + linear * mean + quadratic * square)
    if totals.bits:
        constant, linear, quadratic = Hybrid(perturber.epsilon, 0.0).variance_coefficients()
        # A bit's variance falls towards the ends of the range, and the mean of few reports is often clipped to an end. So the
        # bits' variance is that at the mean nearest to 1/2 within two standard errors.
        reach = 2 * math.sqrt((constant + 0.25) / count)
        likely = min(max(0.5, mean - reach), mean + reach)
        variance += totals.bits * (
            constant + linear * mean + quadratic * square + likely * (1 - likely) - mean * (1 - mean)
        )
    return Estimate(count, theta * total, theta**2 * max(variance, 0.0))


def combine(parts: Iterable[Estimate]) -> Estimate:
    """A range query: the sum over intervals (and thresholds). Reports are perturbed independently, so variances add."""
    count, total, variance = 0, 0.0, 0.0
    for part in parts:
        count, total, variance = count + part.count, total + part.sum, variance + part.variance
    return Estimate(count, total, variance)
