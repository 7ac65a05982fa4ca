"""Standard errors of numbers that are computed from released ones: sums, shares, and means of several keys.

Post-processing of released estimates and their standard errors, so it costs no privacy. Every function takes estimates whose noise
is independent from one to the next, which docs/sums.md shows for the keys of one release and for windows. A ratio has the error of
its linear approximation (the delta method): with numerator and denominator x = sum of a_i y_i and n = sum of b_i y_i over
independent y_i of variance v_i, x / n changes by (a_i - (x / n) b_i) / n per unit of y_i, so its variance is

    sum over i of ((a_i - (x / n) b_i) / n)^2 v_i.

The covariance of numerator and denominator is inside the bracket.
"""

import math
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats

Numbers = npt.NDArray[np.int64] | Floats

LEAST_DENOMINATOR: Final = 5.0
"""Ratios are refused where the denominator is not so many of its standard errors above 0. At 5, what the linear approximation
leaves out is about 4 % of the ratio; the denominator's own error is 20 % of it."""


class Computed(NamedTuple):
    """A number and its standard error."""

    estimate: float
    std_error: float


def total(estimates: Numbers, std_errors: Floats) -> Computed:
    """The sum of n independent estimates; both [n]. The sum of integers is an exact integer."""
    exact = sum(estimates.tolist()) if estimates.dtype == np.int64 else math.fsum(estimates.tolist())
    return Computed(exact, math.sqrt(math.fsum((std_errors**2).tolist())))


def remainder(
    whole: tuple[Numbers, Floats], parts: tuple[Numbers, Floats], owner: npt.NDArray[np.intp]
) -> tuple[Numbers, Floats]:
    """What each whole has beyond its parts: (estimates, standard errors), [n].

    whole: both [n]; parts: both [k]; owner: intp[k], the whole of each part. All noises are independent. Integers stay exact.
    """
    left = whole[0].copy()
    if left.dtype != parts[0].dtype:
        left = left.astype(np.float64)
    np.subtract.at(left, owner, parts[0])
    variances = whole[1].astype(np.float64) ** 2
    np.add.at(variances, owner, parts[1] ** 2)
    return left, np.sqrt(variances)


def share(estimates: Numbers, std_errors: Floats, part: npt.NDArray[np.bool_]) -> Computed | None:
    """What a part of n independent estimates is of their sum; all [n]. None where the sum is not clear of 0."""
    whole = total(estimates, std_errors)
    if not _is_clear(whole):
        return None
    ratio = total(estimates[part], std_errors[part]).estimate / whole.estimate
    return Computed(ratio, _norm((part - ratio) / whole.estimate * std_errors))


def pooled_mean(
    means: Numbers, mean_errors: Floats, counts: Numbers, count_errors: Floats, *, added: Numbers | None = None
) -> Computed | None:
    """The mean over all records of n groups, from the mean and count of each, [n]. None where the counts' sum is not clear of 0.

    added: other estimates of the same counts, [n], to divide by the sum of; with errors that are at most `count_errors`.

    means: each a sum over max(count, 1), with the delta method's error for that, as the column kind `mean` publishes them. The
    sums are recovered from them: a mean r of a sum and a count c with errors e_s and e_c has the error hypot(e_s, r e_c) / c.
    Noise of sums and counts is independent. A mean that was clamped to the column's bound stays clamped.
    """
    whole = total(counts if added is None else added, count_errors)
    if not _is_clear(whole):
        return None
    divisors = np.maximum(counts, 1).astype(np.float64)
    sums = means * divisors
    variances = np.maximum((mean_errors * divisors) ** 2 - (means * count_errors) ** 2, 0)
    ratio = math.fsum(sums.tolist()) / whole.estimate
    own = math.sqrt(math.fsum(variances.tolist()))
    return Computed(ratio, math.hypot(own, ratio * whole.std_error) / whole.estimate)


def half_width(confidence: float) -> float:
    """How many standard errors an interval of this confidence reaches to either side, for normal noise: 1.96 at 0.95.

    Raises ValueError outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence:g}: must lie between 0 and 1, for example 0.95")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _is_clear(whole: Computed) -> bool:
    return whole.estimate > LEAST_DENOMINATOR * whole.std_error and whole.estimate > 0


def _norm(values: npt.NDArray[Any]) -> float:
    return math.sqrt(math.fsum((values**2).tolist()))
