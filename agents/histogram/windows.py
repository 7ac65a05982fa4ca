"""The released histograms that a dashboard keeps: every key once per window, every trigger as packed columns.

    releases (complete triggers, oldest first) ──▶ Windows ──▶ tables, curves

Bounded: the newest ``keep`` windows stay, and of these at most ``curve_bytes`` of triggers before the newest one. Where that is not
enough, the oldest windows lose their earlier triggers, and then have a table and no curve. A table never mixes two triggers or two
epochs. Not thread-safe.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.display.drawing import Z95
from susurrus.agents.display.keys import folded, identity, name_of
from susurrus.agents.histogram.estimates import Estimates, Release, ShownNumber
from susurrus.agents.histogram.packed import Packed
from susurrus.topics.histogram import Measured

KEEP: Final = 8
CURVE_BYTES: Final = 512 << 20
Rows = npt.NDArray[np.intp]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Trigger:
    """One release. columns: name -> (estimates, standard errors), by the window's number of the key. present: bool[n], or None
    where all n keys are in it. ends: name -> (lower, upper) ends of the intervals, of columns that have them. smoothed, direct: as
    columns, of those that have such numbers. smoothed_rows: name -> bool[n], which rows have their own smoothed number."""

    time: int
    columns: Mapping[str, tuple[Packed, Packed]]
    present: npt.NDArray[np.bool_] | None
    ends: Mapping[str, tuple[Packed, Packed]] = field(default_factory=dict)
    smoothed: Mapping[str, tuple[Packed, Packed]] = field(default_factory=dict)
    direct: Mapping[str, tuple[Packed, Packed]] = field(default_factory=dict)
    smoothed_rows: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        kept = (self.columns, self.ends, self.smoothed, self.direct)
        numbers = sum(each.nbytes for of in kept for pair in of.values() for each in pair)
        return numbers + sum(rows.nbytes for rows in self.smoothed_rows.values())

    def numbers(self, name: str, shown: ShownNumber) -> tuple[Packed, Packed]:
        """The numbers of a column that are shown, and their standard errors: as `Estimates.shown`."""
        others = {"smoothed": self.smoothed, "direct": self.direct}.get(shown, {})
        return others.get(name, self.columns[name])

    def is_smoothed(self, name: str, row: int) -> bool:
        """Whether a row has a smoothed number of a column."""
        return name in self.smoothed_rows and bool(self.smoothed_rows[name][row])

    def measured(self, name: str, row: int, shown: ShownNumber = "smoothed") -> Measured:
        """One number of a column."""
        estimates, errors = self.numbers(name, shown)
        ends = [end.at(row) for end in self.ends.get(name, ())]
        return Measured(estimates.at(row), errors.at(row), *ends)

    def highest(self, name: str, rows: Rows, shown: ShownNumber = "smoothed") -> float:
        """The highest upper end of these rows' error bars; at least one row."""
        estimates, errors = self.numbers(name, shown)
        if name in self.ends:
            return float(np.max(self.ends[name][1].all()[rows]))
        return float(np.max(estimates.all()[rows] + Z95 * errors.all()[rows]))


@dataclass(slots=True)
class Window:
    """One window in one epoch. keys are numbered in the order in which they were first released."""

    start: int
    end: int
    epoch: str
    epoch_number: int
    of_triggers: int
    strategy: str = ""
    keys: list[Any] = field(default_factory=list)
    names: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    first: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """The trigger at which each key was first seen."""
    triggers: dict[int, Trigger] = field(default_factory=dict)
    thinned: bool = False
    """Whether earlier triggers were let go for want of memory."""
    _number: dict[Any, int] = field(default_factory=dict)
    _folded: list[str] = field(default_factory=list)
    _by_key: Rows | None = None

    @property
    def newest(self) -> int:
        """The newest complete trigger."""
        return max(self.triggers)

    @property
    def final(self) -> bool:
        """Whether nothing of the window is still to come."""
        return self.newest == self.of_triggers

    def add(self, release: Release, shared: Mapping[Any, Any]) -> None:
        """Take in the next trigger. shared: keys of another window, which need not be kept twice."""
        keys = release.shown_keys
        numbers = np.empty(len(keys), np.intp)
        fresh = []
        for row, key in enumerate(keys):
            known = identity(key)
            number = self._number.get(known)
            if number is None:
                number = len(self.keys)
                known, key = shared.get(known, (known, key))
                self._number[known] = number
                self.keys.append(key)
                fresh.append(name_of(key))
            numbers[row] = number
        if fresh:
            self.names = np.concatenate([self.names, np.array(fresh, np.uint64)])
            self.first = np.concatenate([self.first, np.full(len(fresh), release.trigger, np.int32)])
            self._by_key = None
        whole = len(numbers) == len(self.keys)
        order = np.argsort(numbers) if whole else numbers

        def wide(column: Array) -> Array:
            if whole:
                return column[order]
            found = np.zeros(len(self.keys), column.dtype)
            found[numbers] = column
            return found

        def placed(pair: tuple[Array, Array]) -> tuple[Packed, Packed]:
            return Packed.of(wide(pair[0])), Packed.of(wide(pair[1]))

        def of(pair: Callable[[Estimates], tuple[Array, Array] | None]) -> dict[str, tuple[Packed, Packed]]:
            pairs = ((name, pair(column)) for name, column in release.columns.items())
            return {name: placed(found) for name, found in pairs if found is not None}

        present = None
        if not whole:
            present = np.zeros(len(self.keys), np.bool_)
            present[numbers] = True
        self.of_triggers, self.strategy = release.of_triggers, release.strategy or self.strategy
        self.triggers[release.trigger] = Trigger(
            time=release.trigger_time,
            columns=of(lambda column: (column.estimate, column.std_error)),
            present=present,
            ends=of(lambda column: column.interval),
            smoothed=of(lambda column: column.smoothed),
            direct=of(lambda column: column.direct),
            smoothed_rows={
                name: wide(column.smoothed_rows)
                for name, column in release.columns.items()
                if column.smoothed_rows is not None
            },
        )
        self.triggers = dict(sorted(self.triggers.items()))

    def shared(self) -> Mapping[Any, Any]:
        """The keys, for another window: identity -> the same, and the key."""
        return {known: (known, self.keys[number]) for known, number in self._number.items()}

    def rows(self, trigger: int) -> Rows:
        """The numbers of the keys of a trigger."""
        found = self.triggers[trigger]
        if found.present is not None:
            return np.flatnonzero(found.present)
        return np.arange(next((e.length for e, _ in found.columns.values()), 0))

    def new(self, trigger: int) -> npt.NDArray[np.bool_]:
        """bool[keys]: which were released for the first time at a trigger. None counts as new where the trigger before was not
        read: nobody can know then."""
        known = trigger == 1 or trigger - 1 in self.triggers or (self.thinned and trigger == self.newest)
        return (self.first == trigger) if known else np.zeros(len(self.keys), np.bool_)

    def search(self, rows: Rows, text: str) -> Rows:
        """The rows whose key holds a text, in any case."""
        wanted = text.casefold()
        if not wanted:
            return rows
        for key in self.keys[len(self._folded) :]:
            self._folded.append(folded(key))
        return np.array([row for row in rows.tolist() if wanted in self._folded[row]], np.intp)

    def of_level(self, rows: Rows, level: str) -> Rows:
        """The rows of one level, of several groupings: keys begin with it there."""
        return rows[np.fromiter((self.keys[row][0] == level for row in rows.tolist()), np.bool_, len(rows))]

    def ordered(
        self, rows: Rows, trigger: int, sort: str, column: str, shown: ShownNumber = "smoothed", *, descending: bool
    ) -> Rows:
        """Rows by ``sort`` = "key", "estimate" (the shown number) or "interval" (the width of its error bar) of a column. Ties are
        in order of the key. A sort by key is by the text, as a search sees it."""
        by_key = self._place_of_keys()[rows]
        if sort == "key":
            return rows[np.argsort(-by_key if descending else by_key)]
        estimates, errors = self.triggers[trigger].numbers(column, shown)
        values = (estimates if sort == "estimate" else errors).all()[rows]
        return rows[np.lexsort((by_key, -values if descending else values))]

    def _place_of_keys(self) -> Rows:
        if self._by_key is None:
            for key in self.keys[len(self._folded) :]:
                self._folded.append(folded(key))
            order = sorted(range(len(self.keys)), key=self._folded.__getitem__)
            self._by_key = np.empty(len(order), np.intp)
            self._by_key[order] = np.arange(len(order))
        return self._by_key

    def number_of(self, name: int) -> int | None:
        """The number of a key, by its `name_of`; None where the window has no such key."""
        found = np.flatnonzero(self.names == np.uint64(name))
        return int(found[0]) if len(found) else None

    def curve(self, number: int, column: str, shown: ShownNumber = "smoothed") -> list[tuple[int, int, Measured, bool]]:
        """(trigger, time in ms, its shown number, whether it has a smoothed one) of one key, oldest first. number: of the key."""
        found = []
        for trigger, release in self.triggers.items():
            if column not in release.columns:
                continue
            length = release.columns[column][0].length
            if number < length and (release.present is None or release.present[number]):
                measured, smoothed = release.measured(column, number, shown), release.is_smoothed(column, number)
                found.append((trigger, release.time, measured, smoothed))
        return found

    def thin(self) -> None:
        """Let go of every trigger but the newest."""
        self.triggers = {self.newest: self.triggers[self.newest]}
        self.thinned = True

    @property
    def earlier_bytes(self) -> int:
        """Bytes of the triggers before the newest."""
        return sum(each.nbytes for number, each in self.triggers.items() if number != self.newest)


class Windows:
    """The newest windows. keep: how many. curve_bytes: most bytes of earlier triggers, over all windows."""

    def __init__(self, keep: int = KEEP, curve_bytes: int = CURVE_BYTES) -> None:
        self._keep, self._curve_bytes = keep, curve_bytes
        self._windows: dict[int, Window] = {}

    def add(self, release: Release) -> bool:
        """Take in a release; False where it is of an older epoch, of a window that is no longer kept, or known."""
        known = self._windows.get(release.window_start)
        if known is not None and known.epoch != release.epoch:
            if release.epoch_number < known.epoch_number:
                return False
            known = None  # published again: the rows of two epochs have noise of their own
        if known is None:
            if len(self._windows) >= self._keep and release.window_start < min(self._windows):
                return False
            known = Window(release.window_start, release.window_end, release.epoch, release.epoch_number, 0)
        elif known.triggers and release.trigger <= known.newest:
            return False
        before = max((start for start in self._windows if start < known.start), default=None)
        shared = {} if known.keys or before is None else self._windows[before].shared()
        known.add(release, shared)
        self._windows[known.start] = known
        for old in sorted(self._windows)[: -self._keep]:
            del self._windows[old]
        self._bound()
        return True

    def _bound(self) -> None:
        left = sum(window.earlier_bytes for window in self._windows.values())
        for start in sorted(self._windows):
            if left <= self._curve_bytes:
                return
            left -= self._windows[start].earlier_bytes
            self._windows[start].thin()

    def __iter__(self) -> Any:
        """Oldest first."""
        return iter(self._windows[start] for start in sorted(self._windows))

    def __len__(self) -> int:
        return len(self._windows)

    def get(self, start: int | None) -> Window | None:
        """The window that starts then; without a start the newest."""
        if start is None:
            start = max(self._windows, default=-1)
        return self._windows.get(start)
