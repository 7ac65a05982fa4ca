"""report-totals: exact integer totals of reports, per interval and threshold, from one reports partition. Class: internal.

collect adds up what one commit brought, server adds up what all partitions sent. A tick (topics/tick.py) in the same
topic says that a partition has closed an interval: no later record of it changes that interval. The reports are private
already, so these totals are sensitive only as far as early results are.
"""

from dataclasses import dataclass

import numpy as np

from susurrus.topics.packing import Int64s, Kind, MalformedRecord, Reader, Writer

VERSION = 1
BUCKETS = 256
"""Output buckets in which phase 1 reports are counted."""

COLUMNS = ("interval", "version", "wide", "codes", "squares", "bits", "ones")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportTotals:
    """partition: of reports. Columns int64[n], one row per (interval number, threshold version): number of piecewise
    reports (wide), sum of their codes, sum of (code >> 16)^2, number of rounding reports (bits), how many of them
    were 1 (ones). first_phase: int64[BUCKETS], phase 1 reports by output bucket.
    """

    partition: int
    interval: Int64s
    version: Int64s
    wide: Int64s
    codes: Int64s
    squares: Int64s
    bits: Int64s
    ones: Int64s
    first_phase: Int64s

    def __len__(self) -> int:
        return int(self.interval.size)


def encode(totals: ReportTotals) -> bytes:
    """One record. Raises ValueError when the columns do not fit together."""
    columns = [getattr(totals, name) for name in COLUMNS]
    if any(column.shape != (len(totals),) for column in columns) or totals.first_phase.shape != (BUCKETS,):
        raise ValueError(f"shapes {[c.shape for c in (*columns, totals.first_phase)]} do not make totals")
    writer = Writer(Kind.BLOCK, VERSION)
    writer.scalar(totals.partition)
    writer.scalar(len(totals))
    for column in columns:
        writer.column(column)
    writer.column(totals.first_phase)
    return writer.finish()


def decode(data: bytes) -> ReportTotals:
    """Raises MalformedRecord."""
    reader = Reader(data, Kind.BLOCK, VERSION)
    partition = reader.scalar()
    rows = reader.scalar()
    if partition < 0 or not 0 <= rows <= 1_000_000:
        raise MalformedRecord(f"totals of partition={partition} with rows={rows}")
    columns = {name: reader.column(rows) for name in COLUMNS}
    first_phase = reader.column(BUCKETS)
    reader.finish()
    for name in COLUMNS[1:]:
        if rows and int(columns[name].min()) < 0:
            raise MalformedRecord(f"totals with a negative number in {name}")
    if int(first_phase.min()) < 0 or bool(np.any(columns["ones"] > columns["bits"])):
        raise MalformedRecord("totals that no reports can have")
    return ReportTotals(partition=partition, **columns, first_phase=first_phase)
