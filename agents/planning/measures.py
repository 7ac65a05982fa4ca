"""What the records of a window add to a pipeline's columns, by the very classes of the columns, for the offline harness."""

import numpy as np

from susurrus.agents.histogram.columns import Kept, Layout
from susurrus.agents.planning.workload import UserRecords
from susurrus.mechanisms.arrays import Bools, Int64s


class LayoutMeasures:
    """`Measures` of the columns of a configuration. The values of `UserRecords` are the layout's, in grid units, not clamped."""

    def __init__(self, layout: Layout) -> None:
        self.columns = layout.width
        self._layout = layout
        self._lowest = np.array([value.lowest for value in layout.values], np.int64)
        self._highest = np.array([value.highest for value in layout.values], np.int64)
        self.clamped = np.zeros(len(layout.values), np.int64)
        """Records with a value outside of the bounds, so far, by field."""
        self.lost = np.zeros(len(layout.values), np.float64)
        """The sum by which the values so far lie outside, in grid units."""
        self.size = np.zeros(len(layout.values), np.float64)
        """The absolute values of all records, so far."""

    def adds(self, records: UserRecords, kept: Bools) -> Int64s:
        """int64[n, columns]; see `Measures`."""
        values = self._values(records)
        inside = np.clip(values, self._lowest, self._highest)
        self.clamped += (inside != values).sum(axis=0)
        self.lost += np.abs(inside - values).sum(axis=0, dtype=np.float64)
        self.size += np.abs(values).sum(axis=0, dtype=np.float64)
        return self._added(records, kept, inside)

    def truth(self, records: UserRecords) -> Int64s:
        """int64[n, columns]; see `Measures`."""
        return self._added(records, np.ones(len(records.key), np.bool_), self._values(records))

    def _values(self, records: UserRecords) -> Int64s:
        return np.zeros((len(records.key), 0), np.int64) if records.values is None else records.values

    def _added(self, records: UserRecords, kept: Bools, values: Int64s) -> Int64s:
        """Every record as a cell of its own."""
        rows = np.flatnonzero(kept)
        starts = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))[:-1]
        first = first_of_pairs(records, kept)
        return self._layout.aggregate(Kept(rows=rows, starts=starts, first=first, values=values))


def first_of_pairs(records: UserRecords, kept: Bools) -> Bools:
    """bool[n]: whether a record is the first kept one of its user and key."""
    rows = np.flatnonzero(kept)
    pair = records.user[rows].astype(np.int64) << 32 | records.key[rows]
    first = np.zeros(len(kept), np.bool_)
    first[rows[np.unique(pair, return_index=True)[1]]] = True
    return first
