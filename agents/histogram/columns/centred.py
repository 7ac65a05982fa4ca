"""The sum of a field's distances from the middle of its range: measured for means, and for sums beside a count.

A value is at most half of the range away from the middle, so the noise follows that half, and not the largest value. Argument:
docs/guarantees/means.md.
"""

from collections.abc import Iterator

from susurrus.agents.histogram.columns.base import ColumnOfField, Kept
from susurrus.agents.histogram.columns.room import room_problems
from susurrus.mechanisms.arrays import Int64s
from susurrus.topics.records.raw import ValueField


class CentredSum(ColumnOfField):
    """U: the sum of v - c over the kept records. It is measured for other columns and is no kind of its own.

    Sensitivity: a record moves it by at most ``bound`` = max(highest - c, c - lowest), in grid units.
    """

    kind = "sum"
    measures = "sum"

    @property
    def bound(self) -> int:
        """Half of the range in grid units."""
        return half_range(self.value)

    @property
    def grid(self) -> float:
        """The field's grid."""
        return self.value.grid

    def problems(self, records: int) -> Iterator[str]:
        """The range must hold a multiple of the grid, and sums must fit 64 bits."""
        yield from room_problems(self.value, lambda: self.bound, records)

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """The sum of the field without the centre of each record."""
        assert values is not None
        return kept.total(values) - centre_of(self.value) * kept.counts()


def centre_of(value: ValueField) -> int:
    """c: the middle of a field's range, in grid units, rounded down."""
    return (value.lowest + value.highest) // 2


def half_range(value: ValueField) -> int:
    """w: the largest distance from the centre, in grid units. A range of one multiple of the grid has none; w is 1 at least."""
    centre = centre_of(value)
    return max(value.highest - centre, centre - value.lowest, 1)
