"""Quantiles and the interquartile range from released cumulative counts, with intervals. Post-processing only.

    F_1..F_B (cells.py), public borders ──estimate──▶ the value at which F crosses p F_B
                                        ──interval──▶ all buckets that the counts do not contradict

Only sums, products and quotients of single numbers are used, so the same rows give the same bytes on every machine. Argument:
docs/guarantees/quantiles.md.
"""

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from susurrus.mechanisms.arrays import Bools, Floats, Int64s
from susurrus.mechanisms.histogram.cells import covariances, rank_variances

REACH: Final = 1.96
"""Standard deviations by which counts must contradict a bucket."""
SPREAD_REACH: Final = 2.2415
"""The same for both ends of a range: each of two quantiles may miss with half of the probability."""
_ROUNDING: Final = 1 / 12
_EXACT: Final = Context(prec=50)

Scale = Literal["linear", "log"]
"""How borders divide a range: in equal steps, or by equal factors."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantileRows:
    """Values with the ends of their 95 % intervals, float64[n] each, in the unit of the borders."""

    estimate: Floats
    lower: Floats
    upper: Floats

    @property
    def std_error(self) -> Floats:
        """float64[n]: that of the normal distribution whose 95 % interval is as wide as the interval."""
        return (self.upper - self.lower) / (2 * REACH)


def quantile(counts: Int64s, scale: Floats, borders: Floats, share: float) -> QuantileRows:
    """The ``share`` quantile of each row: the smallest value at or below which so large a part of the row's records lies.

    counts: int64[n, B], cumulative counts as they are released. scale: float64[n], the standard deviation of F_B. borders:
    float64[B + 1], ascending; a value v is in bucket j if borders[j - 1] < v <= borders[j].

    The interval holds the quantile of the counted records with a probability of at least 95 %, for any records. It is wide for a
    row of few records.
    Raises ValueError for a share outside (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f"share={share}: must be between 0 and 1")
    first, last = _kept(counts, scale, share, REACH)
    lower, upper = borders[first], borders[last + 1]
    return QuantileRows(estimate=_estimate(counts, borders, share, lower, upper), lower=lower, upper=upper)


def spread(counts: Int64s, scale: Floats, borders: Floats) -> QuantileRows:
    """The interquartile range of each row: the quantile of 0.75 less that of 0.25. Arguments and errors as in `quantile`.

    The ends come from intervals of both quartiles, each of 97.5 %, so that together they hold the range with at least 95 %.
    """
    ends = []
    for share in (0.25, 0.75):
        first, last = _kept(counts, scale, share, SPREAD_REACH)
        lower, upper = borders[first], borders[last + 1]
        ends.append((_estimate(counts, borders, share, lower, upper), lower, upper))
    (low, low_from, low_to), (high, high_from, high_to) = ends
    return QuantileRows(
        estimate=np.maximum(high - low, 0), lower=np.maximum(high_from - low_to, 0), upper=high_to - low_from
    )


def rank_errors(scale: float, buckets: int, share: float) -> Floats:
    """float64[B - 1]: standard deviations of F_j - share F_B at the inner borders. scale: of F_B."""
    covariance = covariances(buckets)
    whole = max(scale * scale - _ROUNDING, 0.0)
    variance = rank_variances(covariance, share) * (whole / covariance[-1, -1]) + (1 + share * share) * _ROUNDING
    errors: Floats = np.sqrt(variance)
    return errors


def _kept(counts: Int64s, scale: Floats, share: float, reach: float) -> tuple[Int64s, Int64s]:
    """(first, last) bucket that no border contradicts, int64[n] each, from 0 on.

    A border is below the quantile for sure where F_j - share F_B is far below 0, and above it where that is far above. The first
    bucket lies behind the borders up to which all are below; the last one before those from which on all are above.
    """
    buckets = counts.shape[1]
    if buckets == 1:
        nothing = np.zeros(len(counts), np.int64)
        return nothing, nothing
    # One row for each scale: a release has one, or few.
    scales, of = np.unique(scale, return_inverse=True)
    errors = np.stack([rank_errors(float(each), buckets, share) for each in scales.tolist()])[of] if len(scales) else 0
    difference = counts[:, :-1] - share * counts[:, -1:]
    first = _first(difference >= -reach * errors, buckets - 1)
    last = buckets - 1 - _first((difference <= reach * errors)[:, ::-1], buckets - 1)
    return np.minimum(first, last), np.maximum(first, last)


def _estimate(counts: Int64s, borders: Floats, share: float, lower: Floats, upper: Floats) -> Floats:
    """Where the counts cross share F_B, in the straight line between two borders, and within the interval.

    Noise makes counts fall now and then. Above the median the running maximum is taken, below it the running minimum from the other
    end: so the flat part of the distribution that is far away cannot move the crossing. Without any count the middle of the
    interval stands.
    """
    rising = np.concatenate((np.zeros((len(counts), 1), np.int64), counts), axis=1)
    whole = counts[:, -1]
    if share >= 0.5:
        rising = np.maximum.accumulate(rising, axis=1)
    else:
        rising = np.minimum.accumulate(rising[:, ::-1], axis=1)[:, ::-1]
    target = share * whole
    # The first border at which the target is reached. F_B reaches it if there are any records.
    place = _first(rising[:, 1:] >= target[:, None], counts.shape[1] - 1)
    rows = np.arange(len(counts))
    before, after = rising[rows, place].astype(np.float64), rising[rows, place + 1].astype(np.float64)
    step = np.maximum(after - before, 1)
    inside = np.clip((target - before) / step, 0, 1)
    value = borders[place] + inside * (borders[place + 1] - borders[place])
    value = np.where(whole > 0, value, lower + 0.5 * (upper - lower))
    return np.minimum(np.maximum(value, lower), upper)


def _first(found: Bools, otherwise: int) -> Int64s:
    """int64[n]: the first true place of each row."""
    return np.where(found.any(axis=1), found.argmax(axis=1), otherwise).astype(np.int64)


def borders_of(lower: float, upper: float, buckets: int, scale: Scale) -> Floats:
    """float64[B + 1]: the borders of the buckets, from lower to upper, in equal steps or by equal factors.

    Each is a correctly rounded float64, so they are the same on every machine. Raises ValueError where they do not ascend: lower
    must be below upper, above 0 for factors, and wide enough apart for so many buckets.
    """
    if not (buckets >= 1 and lower < upper and (scale == "linear" or lower > 0)):
        raise ValueError(f"lower={lower}, upper={upper}, buckets={buckets}, scale={scale}: no borders")
    if scale == "linear":
        low, width = Fraction(lower), Fraction(upper) - Fraction(lower)
        found = [float(low + width * Fraction(j, buckets)) for j in range(buckets + 1)]
    else:
        low_log, high_log = _EXACT.ln(Decimal(lower)), _EXACT.ln(Decimal(upper))
        step = _EXACT.divide(_EXACT.subtract(high_log, low_log), Decimal(buckets))
        inner = (_EXACT.exp(_EXACT.fma(step, Decimal(j), low_log)) for j in range(1, buckets))
        found = [lower, *map(float, inner), upper]
    borders = np.array(found, np.float64)
    if not (np.diff(borders) > 0).all():
        raise ValueError(f"lower={lower}, upper={upper}, buckets={buckets}: too close together for so many borders")
    return borders
