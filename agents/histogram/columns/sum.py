"""``kind = "sum"``: the sum of a field, measured by itself, or computed from a count and the centred sum."""

from collections.abc import Iterator, Sequence

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, ColumnOfField, Kept
from susurrus.agents.histogram.columns.centred import CentredSum, centre_of
from susurrus.agents.histogram.columns.count import Count
from susurrus.agents.histogram.columns.room import room_problems
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.topics.records.numbers import steps_within
from susurrus.topics.wire.json_rows import Numbers


class Sum(ColumnOfField):
    """The sum of a field, measured by itself."""

    kind = "sum"
    meaning = "of `field`"
    measures = "sum"

    @property
    def bound(self) -> int:
        """The field's bound in grid units."""
        return steps_within(self.value.bound, self.value.grid)

    @property
    def grid(self) -> float:
        """The field's grid."""
        return self.value.grid

    def problems(self, records: int) -> Iterator[str]:
        """The grid must fit the bound, and sums must fit 64 bits."""
        yield from room_problems(self.value, lambda: self.bound, records)

    def from_count(self) -> ColumnKind | None:
        """From the count and the centred sum; a range around 0 has nothing to gain. A subclass adds up something else."""
        if type(self) is not Sum or not centre_of(self.value):
            return None
        return SumFromCount(name=self.name, field=self.field, weight=self.weight)

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """The sum of the field."""
        assert values is not None
        return kept.total(values)

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Scaled to the field's unit."""
        return (estimates[:, 0] * self.grid).astype(np.float64), std_errors[:, 0] * self.grid


class SumFromCount(ColumnOfField):
    """The same sum as c N + U. Which sums are computed this way: docs/guarantees/means.md."""

    kind = "sum"
    post_processing = (
        "it is computed from the count and from how far the values are from the middle, which is more exact"
    )

    @property
    def grid(self) -> float:
        """The field's grid."""
        return self.value.grid

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return centre_of(self.value) * self.grid

    def measured(self) -> tuple[ColumnKind, ...]:
        """The centred sum and the count."""
        return CentredSum(name=f"{self.name}/centred", field=self.field), Count(name=f"{self.name}/count")

    def formula(self, measured: Sequence[str]) -> str:
        """C N + U in words."""
        return f"{self.centre:g} × {measured[1]} + {measured[0]}"

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Exact in grid units, then scaled. The noises of both are independent."""
        centre = centre_of(self.value)
        total = estimates[:, 0] + centre * estimates[:, 1]
        return (total * self.grid).astype(np.float64), np.hypot(std_errors[:, 0], centre * std_errors[:, 1]) * self.grid
