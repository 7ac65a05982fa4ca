"""From how many records of a key on a quantile means something. It follows from public constants: no data enter.

strategy.standard_errors ──rank_errors──▶ noise of a rank ──▶ records for a narrow interval of ranks, and of values
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from scipy.special import ndtri

from susurrus.agents.histogram.columns import Layout, Quantiles
from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.histogram.quantiles import REACH, SPREAD_REACH, rank_errors
from susurrus.topics.records.raw import BucketField

POINTS: Final = 0.05
"""How far the ends of a narrow interval are from the quantile, as a part of the records; less near 0 and 1."""
FACTORS: Final = (1.4, 2.0, 4.0, 10.0)
"""How far apart the ends of a narrow interval of values are: the first that is wide enough for one and a half buckets."""


def records_for_ranks(scale: float, buckets: int, share: float, reach: float = REACH) -> tuple[int, float]:
    """(N, points): with N records or more, the interval's ends lie within ``points`` of the quantile's rank, but for one bucket.

    scale: the standard error of the key's total, from the same counts.
    """
    points = min(POINTS, share / 2, (1 - share) / 2)
    return _rounded(reach * float(rank_errors(scale, buckets, share).max()) / points), points


def records_for_factor(
    scale: float, borders: tuple[float, ...], share: float, reach: float = REACH
) -> tuple[int, float] | None:
    """(N, factor): from N records on the ends are a factor apart, where the values' logarithms are normal with deviation 1.

    None where even ten times the value is narrower than the buckets. The density of ranks is phi(z) per unit of the logarithm.
    """
    buckets = len(borders) - 1
    step = math.log(borders[-1] / borders[0]) / buckets
    factor = next((factor for factor in FACTORS if math.log(factor) >= 1.5 * step), None)
    if factor is None:
        return None
    z = float(ndtri(share))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    noise = float(np.median(rank_errors(scale, buckets, share)))
    return _rounded(2 * reach * noise / (density * (math.log(factor) - step))), factor


def quantile_needs(layout: Layout, std_errors: Floats) -> Iterator[str]:
    """A sentence for every published quantile and range. std_errors: float64[width], of what is measured at the last trigger."""
    for each in layout.published:
        column, field = each.column, each.column.field
        if not (column.has_interval and isinstance(field, BucketField)):
            continue
        scale, buckets = float(std_errors[each.sources[-1]]), len(each.sources)
        if isinstance(column, Quantiles):
            what, share, reach = "its interval lies", column.at[0], REACH
        else:
            what, share, reach = "both quartiles lie", 0.25, SPREAD_REACH
        number, points = records_for_ranks(scale, buckets, share, reach)
        near = f"within {100 * points:.3g} percentage points of rank"
        text = f"{column.name}: about {number:,} records of a key, so that {what} {near}"
        if isinstance(column, Quantiles) and (found := _factor(field, scale, share)) is not None:
            apart = f"its ends are a factor of {found[1]:g} apart where values spread by a factor of 2.7"
            text += f"; about {found[0]:,}, so that {apart}"
        yield text


def _factor(field: BucketField, scale: float, share: float) -> tuple[int, float] | None:
    """Where the borders grow by one factor."""
    first, second, third = field.borders[:3]
    if not (first > 0 and math.isclose(second / first, third / second, rel_tol=1e-6)):
        return None
    return records_for_factor(scale, field.borders, share)


def _rounded(number: float) -> int:
    """Up to two digits that mean something."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(number, 1))) - 1)
    return math.ceil(number / unit) * unit
