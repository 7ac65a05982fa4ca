"""A toy column kind: the sum of the squares of a field. It plugs in by one line: ``COLUMNS[SumOfSquares.kind] = SumOfSquares``."""

from susurrus.agents.histogram.columns import Kept, Sum
from susurrus.topics.wire.packing import Int64s


class SumOfSquares(Sum):
    """A sum whose unit is the square of the field's."""

    kind = "sum-of-squares"
    meaning = "of the squares of `field`"

    @property
    def bound(self) -> int:
        """The square of the field's bound in grid units."""
        return super().bound ** 2

    @property
    def grid(self) -> float:
        """The square of the field's grid."""
        return self.value.grid**2

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """The sum of the squares."""
        assert values is not None
        return kept.total(values**2)
