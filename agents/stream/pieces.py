"""The released pieces of one private stream in flat columns, and the ranges that they answer.

A range of positions [first, last) has a plain answer, unbiased for the clipped values, and with ToPS a filtered one, which is
usually closer and biased towards smooth streams. Errors are standard errors; they do not cover what clipping cuts off.
"""

from array import array
from functools import cached_property
from typing import Final

import numpy as np

from susurrus.agents.stream.mechanism import grid_of
from susurrus.agents.stream.reader import RangeColumns
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.allocation import block_values
from susurrus.mechanisms.stream.range_sums import ReleasedStream
from susurrus.topics.private_stream import StreamRow

_CELLS: Final = 4_000_000
"""The most cells (ranges times pieces) of the matrix that a batch of ranges takes."""
Answers = tuple[Floats, Floats]
"""Estimates and standard errors, float64[q] each, in the unit of the values; NaN where there is no answer."""


class Pieces:
    """One stream of one partition, in one epoch. name: its decoded id."""

    def __init__(self, name: object, stream: StreamSection) -> None:
        self.name, self._stream = name, stream
        self.epoch = ""
        self._start()

    def _start(self) -> None:
        self.theta = 0.0
        self._columns = RangeColumns()
        self._last, self._sum, self._sum_error = array("q"), array("d"), array("d")

    def __len__(self) -> int:
        return len(self._last)

    def add(self, row: StreamRow) -> None:
        """Take in the next row. A new epoch starts over, for it has noise of its own."""
        if row.epoch != self.epoch:
            self.epoch = row.epoch
            self._start()
        if len(self) and row.first <= self._last[-1]:
            return  # known
        self.theta = row.theta
        self._columns.add(row)
        self._last.append(row.last)
        self._sum.append(row.sum.estimate)
        self._sum_error.append(row.sum.std_error)
        self.__dict__.pop("_released", None)

    @property
    def begin(self) -> int:
        """The first released position."""
        return self._columns.first[0] if len(self) else 0

    @property
    def end(self) -> int:
        """The position after the last released one."""
        return self._last[-1] + 1 if len(self) else 0

    @property
    def total(self) -> tuple[float, float]:
        """The sum of everything released, as the newest row has it, and its standard error."""
        return (self._sum[-1], self._sum_error[-1]) if len(self) else (0.0, 0.0)

    @cached_property
    def _released(self) -> ReleasedStream | None:
        """The stream of all pieces, of which ToPS answers ranges; None for PAK."""
        if self._stream.method == "pak":
            return None
        return self._columns.released(self._stream)

    def edges(self, first: int, last: int, most: int) -> Int64s:
        """The ends of at most so many ranges of whole pieces from about first to about last, one behind the other."""
        begins, ends = np.array(self._columns.first), np.array(self._last) + 1
        low = int(np.searchsorted(ends, first, side="right"))
        high = max(low + 1, int(np.searchsorted(begins, last, side="left")))
        places = np.unique(np.linspace(low, min(high, len(self)), min(most, high - low) + 1).astype(np.int64))
        return np.append(begins, self.end)[places]

    def plain(self, first: Int64s, last: Int64s) -> Answers:
        """The sums from the noisy pieces alone."""
        if self._released is None:
            return self._differences(first, last)
        return self._scaled(self._released, first, last, filtered=False)

    def filtered(self, first: Int64s, last: Int64s) -> Answers | None:
        """The filter's sums; None for PAK, NaN where a range ends behind the last complete block."""
        if self._released is None:
            return None
        answered = last - self.begin <= self._blocks_end
        estimate, error = np.full(len(first), np.nan), np.full(len(first), np.nan)
        if answered.any():
            found = self._scaled(self._released, first[answered], last[answered], filtered=True)
            estimate[answered], error[answered] = found
        return estimate, error

    def fits(self, first: int, last: int) -> bool:
        """Whether the filter's models fit in the range; True where there is no filter."""
        released = self._released
        return released is None or bool(released.fits(np.array([first - self.begin]), np.array([last - self.begin]))[0])

    @property
    def _blocks_end(self) -> int:
        released = self._released
        assert released is not None
        size = block_values(released.trees[0])
        return len(released.leaf_sums) * released.leaf // size * size

    def _scaled(self, released: ReleasedStream, first: Int64s, last: Int64s, *, filtered: bool) -> Answers:
        ask = released.filtered if filtered else released.plain
        step = max(1, _CELLS // len(self))
        parts = [
            ask(first[i : i + step] - self.begin, last[i : i + step] - self.begin) for i in range(0, len(first), step)
        ]
        estimate, error = (np.concatenate(each) for each in zip(*parts, strict=True))
        grid = grid_of(self._stream)
        return estimate * grid, error * grid

    def _differences(self, first: Int64s, last: Int64s) -> Answers:
        """PAK: the running sum at the end less that at the beginning. Both share noise, so the error is at most what it would be if
        they did not. Raises ConfigurationError for a range that begins inside the first piece."""
        ends = np.concatenate([[self.begin], np.array(self._last) + 1])
        sums, errors = (np.concatenate([[0.0], np.array(each)]) for each in (self._sum, self._sum_error))
        at, to = np.searchsorted(ends, first), np.searchsorted(ends, last)
        if not (np.array_equal(ends[at], first) and np.array_equal(ends[to], last)):
            raise ConfigurationError("the first piece is one sum; a range begins at its start, or behind it")
        return sums[to] - sums[at], np.hypot(errors[to], errors[at])
