"""The sum of the squares of a field's distances from the middle of its range, less the middle of the squares: for variances.

Argument: docs/guarantees/means.md.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnOfField, Kept
from susurrus.agents.histogram.columns.centred import centre_of, half_range
from susurrus.agents.histogram.columns.room import room_problems
from susurrus.mechanisms.arrays import Int64s
from susurrus.topics.records.raw import ValueField

MOST_STEPS: Final = 1 << 18
"""Squares have at most so many units, so that their sums fit 64 bits for as many records as users may have."""
_FAR: Final = 64
"""Values that are not clamped, in the truth of a plan, are taken to be so many half ranges away at most: squares fit 64 bits."""


class CentredSquare(ColumnOfField):
    """Q: the sum of s - h over the kept records, s the square of v - c in units of 2^shift, and h half of the largest s.

    Sensitivity: a record moves it by at most ``bound`` = max(largest s - h, h), in these units. It is no kind of its own.
    """

    kind = "sum"
    measures = "sum"

    @property
    def shift(self) -> int:
        """Squares are rounded to multiples of 2^shift; 0 where they have few enough units."""
        return max(0, (half_range(self.value) ** 2).bit_length() - MOST_STEPS.bit_length() + 1)

    @property
    def middle(self) -> int:
        """h: half of the largest square, in the column's units."""
        return self._largest // 2

    @property
    def bound(self) -> int:
        """Half of the squares' range."""
        return max(1, self._largest - self.middle)

    @property
    def grid(self) -> float:
        """The square of the field's grid, times 2^shift."""
        return self.value.grid**2 * 2.0**self.shift

    def problems(self, records: int) -> Iterator[str]:
        """Sums of squares must fit 64 bits."""
        yield from room_problems(self.value, lambda: self.bound, records)

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """The sum of the squares without the middle of each record."""
        assert values is not None
        most = _FAR * half_range(self.value)
        distance = np.clip(values - centre_of(self.value), -most, most)
        return kept.total(_rounded(distance * distance, self.shift)) - self.middle * kept.counts()

    @property
    def _largest(self) -> int:
        return int(_rounded(np.array([half_range(self.value) ** 2], np.int64), self.shift)[0])


def largest_deviation(value: ValueField) -> float:
    """The largest standard deviation of values within a field's range, in its unit: half of the range."""
    return (value.highest - value.lowest) / 2 * value.grid


def _rounded(squares: Int64s, shift: int) -> Int64s:
    """To the nearest multiple of 2^shift, in units of it; halves go up. It does not decrease, so the largest distance decides."""
    half = (1 << shift) >> 1
    return (squares + half) >> shift
