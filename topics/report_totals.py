"""report-totals: exact integer totals of reports, per interval and threshold, from one reports partition. Class: internal.

collect adds up what one commit brought, server adds up what all partitions sent. A tick (topics/tick.py) in the same
topic says that a partition has closed an interval: no later record of it changes that interval. The reports are private
already, so these totals are sensitive only as far as early results are.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from susurrus.topics.wire.blocks import Block, Codec, HeaderCount, IntColumn, Scalar
from susurrus.topics.wire.packing import Int64s, Kind

BUCKETS = 256
"""Output buckets in which phase 1 reports are counted."""

COLUMNS = ("interval", "version", "wide", "codes", "squares", "bits", "ones")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportTotals(Block):
    """partition: of reports. Columns int64[n], one row per (interval number, threshold version): number of piecewise
    reports (wide), sum of their codes, sum of (code >> 16)^2, number of rounding reports (bits), how many of them
    were 1 (ones). first_phase: int64[BUCKETS], phase 1 reports by output bucket.
    """

    partition: Annotated[int, Scalar(least=0)]
    interval: Annotated[Int64s, IntColumn()]
    version: Annotated[Int64s, IntColumn()]
    wide: Annotated[Int64s, IntColumn()]
    codes: Annotated[Int64s, IntColumn()]
    squares: Annotated[Int64s, IntColumn()]
    bits: Annotated[Int64s, IntColumn()]
    ones: Annotated[Int64s, IntColumn()]
    first_phase: Annotated[Int64s, IntColumn(BUCKETS)]


def _impossible(totals: ReportTotals) -> str | None:
    for name in (*COLUMNS[1:], "first_phase"):
        if int(getattr(totals, name).min(initial=0)) < 0:
            return f"totals with a negative number in {name}"
    return "totals with more ones than bits" if np.any(totals.ones > totals.bits) else None


_CODEC = Codec(ReportTotals, Kind.BLOCK, (HeaderCount("rows", bytes_each=0, most=1_000_000),), impossible=_impossible)
encode, decode = _CODEC.encode, _CODEC.decode
