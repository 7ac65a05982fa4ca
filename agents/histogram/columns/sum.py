"""``kind = "sum"``: the sum of a field."""

from collections.abc import Iterator

import numpy as np

from susurrus.agents.histogram.columns.base import MAX_USERS_PER_WINDOW, ColumnOfField, Kept
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.histogram.plan import MAX_BOUND
from susurrus.topics.records.numbers import steps_within
from susurrus.topics.wire.json_rows import Numbers


class Sum(ColumnOfField):
    """The sum of a field."""

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
        if not 1 <= self.bound <= MAX_BOUND:
            yield f"grid = {self.value.grid:g} against bound = {self.value.bound:g}; use bound / 2^24 to bound"
            return
        if self.value.lowest > self.value.highest:
            value = self.value
            lower, upper = (
                -value.bound if value.lower is None else value.lower,
                value.bound if value.upper is None else value.upper,
            )
            yield (
                f"no multiple of grid = {value.grid:g} lies between lower = {lower:g} and upper = {upper:g}; use a smaller grid"
            )
            return
        # A key sums at most users * m * bound, a whole window at most users * C * bound; the product covers both.
        room = (2**63 - 1) // (records * MAX_USERS_PER_WINDOW)
        if self.bound > room:
            fix = f"use a grid of at least {self.value.bound / room:.3g}, or lower" if room else "lower"
            yield (
                "sums could leave 64 bits (m * C * 2^32 users * floor(bound / grid) >= 2^63); "
                f"{fix} bounds.max_records_per_user"
            )

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """The sum of the field."""
        assert values is not None
        return kept.total(values)

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Scaled to the field's unit."""
        return (estimates[:, 0] * self.grid).astype(np.float64), std_errors[:, 0] * self.grid
