"""How time is cut into windows: all of one length, or days, weeks or months on the clocks of a country.

Pure integer arithmetic in milliseconds since the Unix epoch. A window has an index, and its start follows from public constants
alone. calendar.py adds the triggers. agents/config/calendars.py makes the tables of calendar windows, from the rules of a time zone
(topics/records/zones.py). Windows never overlap and leave no gap, so a record is in one window. That is all that the guarantee
needs of them (docs/guarantees/membership.md): they may differ in length.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.errors import ConfigurationError

FIRST_YEAR: Final = 1970
END_YEAR: Final = 2100
"""Calendar windows exist from the first of these years on, and before the second."""


class CalendarLength(StrEnum):
    """Lengths that a calendar gives. Weeks begin on Monday, as in ISO 8601."""

    DAY = "1 day"
    WEEK = "1 week"
    MONTH = "1 month"

    def first_days(self) -> Int64s:
        """int64[n + 1]: the local dates on which the n windows begin, and the one on which the last ends; in days since 1970-01-01.

        Index 0 is the window with 1970-01-01 in it.
        """
        first, end = (np.datetime64(f"{year}-01-01", "D") for year in (FIRST_YEAR, END_YEAR))
        if self is CalendarLength.MONTH:
            months = np.arange(first.astype("M8[M]"), end.astype("M8[M]") + 1)
            return months.astype("M8[D]").astype(np.int64)
        step = 7 if self is CalendarLength.WEEK else 1
        back = 3 if self is CalendarLength.WEEK else 0  # 1970-01-01 is a Thursday
        return np.arange(int(first.astype(np.int64)) - back, int(end.astype(np.int64)) + step, step)


class TumblingWindows(ABC):
    """Windows by their index. Every instant is in one of them."""

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """The lengths, in ms, that windows have, from the shortest to the longest."""

    @property
    @abstractmethod
    def usual(self) -> int:
        """The length that most windows have, in ms."""

    @abstractmethod
    def of_times(self, times: Int64s) -> Int64s:
        """Indexes of the windows of instants: int64[n] ms -> int64[n]."""

    @abstractmethod
    def starts(self, indexes: Int64s) -> Int64s:
        """First milliseconds of windows: int64[n] -> int64[n]."""

    @abstractmethod
    def of_time(self, time: int) -> int:
        """The index of the window of one instant in ms."""

    @abstractmethod
    def start(self, index: int) -> int:
        """First millisecond of one window. That of the next index is this window's end."""

    def length(self, index: int) -> int:
        """How long a window is, in ms: 0 for an index without a window, such as that of a day that a country has skipped."""
        return self.start(index + 1) - self.start(index)

    @abstractmethod
    def later(self, start: int, number: int) -> int:
        """The start (ms) of the window that is ``number`` later than the one that starts at ``start``."""

    @abstractmethod
    def count(self, start: int, until: int) -> int:
        """How many windows begin from ``start``, which is a start, to before ``until``, both in ms."""

    def following(self, index: int) -> int:
        """The index of the next window."""
        return self.of_time(self.start(index + 1))

    def preceding(self, index: int) -> int:
        """The index of the window before."""
        return self.of_time(self.start(index) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWindows(TumblingWindows):
    """Windows of ``length_ms``; one of them begins at ``origin``, and has index 0. Both in ms.

    Raises ConfigurationError for a length below 1.
    """

    origin: int
    length_ms: int

    def __post_init__(self) -> None:
        if self.length_ms < 1:
            raise ConfigurationError(f"window={self.length_ms} ms: must be at least 1; choose a longer one")

    @property
    def lengths(self) -> tuple[int, ...]:
        return (self.length_ms,)

    @property
    def usual(self) -> int:
        return self.length_ms

    def of_times(self, times: Int64s) -> Int64s:
        return (times - self.origin) // self.length_ms

    def starts(self, indexes: Int64s) -> Int64s:
        return self.origin + indexes * self.length_ms

    def of_time(self, time: int) -> int:
        return (time - self.origin) // self.length_ms

    def start(self, index: int) -> int:
        return self.origin + index * self.length_ms

    def later(self, start: int, number: int) -> int:
        return start + number * self.length_ms

    def count(self, start: int, until: int) -> int:
        return max(0, -(-(until - start) // self.length_ms))


class CalendarWindows(TumblingWindows):
    """Windows whose starts are listed. Two objects are equal only where they are the same.

    starts: int64[n + 1] ms, not decreasing; the last one is the end of the last window. first: the index of the first. Of two equal
    starts the first is of an index that has no window. Instants before all windows have the index before the first, and those
    behind them the one after the last; these are no windows, and start at the nearest instant of the list.
    """

    def __init__(self, starts: Int64s, first: int = 0) -> None:
        lengths = np.diff(starts)
        if len(starts) < 2 or bool((lengths < 0).any()) or not lengths.any():
            raise ConfigurationError("starts: must be two or more instants, none before the one ahead of it; sort them")
        self._starts, self._first = starts.astype(np.int64), first
        self._last = len(starts) - 1
        self._begins = np.unique(self._starts)
        found, number = np.unique(lengths[lengths > 0], return_counts=True)
        self._lengths, self._usual = tuple(found.tolist()), int(found[np.argmax(number)])

    @property
    def lengths(self) -> tuple[int, ...]:
        return self._lengths

    @property
    def usual(self) -> int:
        return self._usual

    def of_times(self, times: Int64s) -> Int64s:
        # Of equal starts the last one counts: the window that is not empty.
        return np.searchsorted(self._starts, times, side="right") + (self._first - 1)

    def starts(self, indexes: Int64s) -> Int64s:
        return self._starts[np.clip(indexes - self._first, 0, self._last)]

    def of_time(self, time: int) -> int:
        return int(np.searchsorted(self._starts, time, side="right")) + self._first - 1

    def start(self, index: int) -> int:
        return int(self._starts[min(max(index - self._first, 0), self._last)])

    def later(self, start: int, number: int) -> int:
        at = int(np.searchsorted(self._begins, start)) + number
        return int(self._begins[min(max(at, 0), len(self._begins) - 1)])

    def count(self, start: int, until: int) -> int:
        # The last one of the list is an end, and no window begins there.
        first, behind = np.searchsorted(self._begins[:-1], (start, until))
        return max(0, int(behind - first))


def aligned_since(starts: Int64s, every: int) -> int:
    """The first index from which on all starts are whole multiples of ``every`` ms apart. starts: int64[n + 1], as above."""
    off = np.flatnonzero((starts[-1] - starts) % every)
    return int(off[-1]) + 1 if len(off) else 0
