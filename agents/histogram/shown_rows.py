"""What readers see of a trigger's rows, where keys are remembered: rows drawn to the window before, and which keys appear.

    rows of a trigger, of all public keys ──┐
    what the window before left of each ────┴─ShownRows.of─▶ smoothed numbers (mechanisms/histogram/smoothing.py)
                                                           ▶ which rows are shown, and which keys are not there any more

Declared keys, and keys that the window has found, are always shown; remembered ones where their row is large enough to mean
something. All of this is a function of released rows: docs/guarantees/smoothing.md.

State key: ``v`` window key -> a byte, of remembered keys whose row was shown at the newest trigger; 1 for those that the window
found before the list held, which stay shown.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

import numpy as np

from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.table import Smoothed, SortedRows
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.histogram.smoothing import Smoothing, shown

_SHOWN: Final = b"v"
_BY_ITS_ROW, _FOUND = b"\0", b"\1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """rows: those that are shown. withdrawn: keys that were shown at the trigger before and are not now, in byte order. remembered:
    how many keys the window before has handed on, 0 before it is over; None where no keys are remembered."""

    rows: SortedRows
    withdrawn: list[bytes]
    remembered: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """What is known of one window. places: of each key on the list. seen: what the state has."""

    remembered: Remembered
    places: dict[bytes, int]
    seen: dict[bytes, bytes]


class ShownRows:
    """Those of one bounded partition. declared: keys that are shown in any case."""

    def __init__(self, store: Store, memory: Memory, declared: frozenset[bytes]) -> None:
        self._store, self._memory, self._declared = store, memory, declared
        self._windows: dict[WindowIndex, _Window] = {}

    def of(
        self, window: WindowIndex, trigger: Trigger, rows: SortedRows, first: Collection[bytes], commit: Commit
    ) -> tuple[SortedRows, Display]:
        """(all rows with smoothed numbers, what is shown of them). The commit gets what changes in the state.

        rows: as they are published, calibrated where they are. first: keys without a row at an earlier trigger.
        """
        known = self._window(window, trigger)
        if known is None or not len(known.remembered):
            return rows, Display(rows=rows, withdrawn=[], remembered=0)
        found: dict[bytes, bytes] = {}
        if trigger == self._memory.enters and trigger > 1:
            entering = known.places.keys() & set(rows.keys)
            found = dict.fromkeys(sorted(entering.difference(first)), _FOUND)
        places = np.fromiter(map(known.places.get, rows.keys, repeat(-1)), np.int64, len(rows.keys))
        level = self._memory.levels_of(rows.keys)
        ends = self._memory.ends(window, trigger)
        whole = replace(rows, smoothed=self._smoothed(rows, known.remembered, places, level, ends))
        is_shown = self._large(whole, level)
        marks = known.seen | found
        for row in np.flatnonzero(places >= 0).tolist():
            key = rows.keys[row]
            if key in self._declared or marks.get(key) == _FOUND:
                is_shown[row] = True
        is_shown[places < 0] = True
        now = {
            rows.keys[row]: marks.get(rows.keys[row], _BY_ITS_ROW)
            for row in np.flatnonzero(is_shown & (places >= 0)).tolist()
        }
        withdrawn = sorted(known.seen.keys() - now.keys())
        self._keep(window, trigger, known, now, withdrawn, commit)
        shown_rows, number = whole.take(np.flatnonzero(is_shown)), len(known.remembered)
        return whole, Display(rows=shown_rows, withdrawn=withdrawn, remembered=number)

    def _window(self, window: WindowIndex, trigger: Trigger) -> _Window | None:
        """None before the window's list holds, and in an epoch's first window."""
        if not self._memory.holds(window, trigger):
            return None
        if window not in self._windows:
            remembered = self._memory.of(window)
            table = _SHOWN + ordered(window)
            seen = {key[len(table) :]: mark for key, mark in self._store.scan(table, prefix_end(table))}
            places = dict(zip(remembered.keys, range(len(remembered)), strict=True))
            self._windows[window] = _Window(remembered=remembered, places=places, seen=seen)
        return self._windows[window]

    def _smoothed(
        self, rows: SortedRows, remembered: Remembered, places: Int64s, level: Int64s, ends: bool
    ) -> Smoothed | None:
        """The rows of remembered keys by level and column, where there are enough of them. ends: whether another window follows."""
        smoothed = Smoothed.nothing(rows)
        for number, deciding in enumerate(self._memory.deciding):
            mine = np.flatnonzero((places >= 0) & (level == number))
            if deciding is None or not len(mine):
                continue
            there = places[mine]
            for at, column in enumerate(self._memory.columns):
                errors = rows.std_errors[mine, column]
                given = (
                    rows.estimates[mine, column].astype(np.float64),
                    errors * errors,
                    remembered.estimates[there, at],
                    remembered.variances[there, at],
                )
                fitted = Smoothing.fit(*given)
                if fitted is not None:
                    smoothed.put(mine, column, *fitted.rows(*given))
                    if ends:
                        smoothed.rates[mine, column], smoothed.rate_variances[mine, column] = fitted.rates(*given)
        return smoothed if smoothed.present.any() else None

    def _large(self, rows: SortedRows, level: Int64s) -> Bools:
        """bool[n]: whether each row is large enough, by the column that decides at its level."""
        estimates, errors = rows.newest
        large = np.zeros(len(rows.keys), np.bool_)
        for number, deciding in enumerate(self._memory.deciding):
            if deciding is not None:
                large |= (level == number) & shown(estimates[:, deciding], errors[:, deciding])
        return large

    def _keep(
        self,
        window: WindowIndex,
        trigger: Trigger,
        known: _Window,
        now: dict[bytes, bytes],
        withdrawn: list[bytes],
        commit: Commit,
    ) -> None:
        table = _SHOWN + ordered(window)
        if self._memory.ends(window, trigger):
            commit.drop(table, prefix_end(table))
            del self._windows[window]
            return
        commit.puts += [(table + key, mark) for key, mark in now.items() if known.seen.get(key) != mark]
        commit.deletes += [table + key for key in withdrawn]
        self._windows[window] = replace(known, seen=now)
