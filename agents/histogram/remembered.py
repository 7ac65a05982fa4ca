"""The keys that a window hands on to the next one, and their rates by its last rows: one release partition's memory.

    rows of a window's last trigger ──Memory.hand_on──▶ state; published-keys, for bound
    state ──Memory.entering──▶ the keys that are public in the next window from its first trigger behind them on (window_keys.py)

A key is handed on where its last row is at least `keys.remember`. The list is a function of published rows, and so public:
docs/guarantees/memory.md. A window that is skipped hands on what it was given.

State key: ``m`` window key -> a byte with the format, then the key's rates in the columns that count, and the variances of their
errors, float64 each, little-endian. The window is the one in which the key is public.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.arrays import Bools, Floats, Int64s
from susurrus.mechanisms.calendar import Interval, Trigger, WindowIndex
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.levels import level_of
from susurrus.mechanisms.histogram.smoothing import rates

_REMEMBERED: Final = b"m"
_FORMAT: Final = b"\x01"
COUNTING: Final = ("users", "count")
"""Kinds of measured columns of which something is kept."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Remembered:
    """The list of one window in one partition, and what the window before says of its keys.

    keys: in byte order. estimates, variances: float64[n, counting], their rates, which are not negative, and the variances of the
    errors, by the last rows (`rates` in mechanisms/histogram/smoothing.py); users or records, and their squares.
    """

    keys: list[bytes]
    estimates: Floats
    variances: Floats

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def nothing(cls, counting: int) -> Self:
        """The list of an epoch's first window. counting: how many columns count."""
        return cls(keys=[], estimates=np.empty((0, counting)), variances=np.empty((0, counting)))

    def take(self, rows: Bools) -> Self:
        """The keys at these places."""
        keys = [self.keys[at] for at in np.flatnonzero(rows).tolist()]
        return type(self)(keys=keys, estimates=self.estimates[rows], variances=self.variances[rows])

    def digest(self) -> bytes:
        """32 bytes over all of it; length-prefixed, so that no two lists give the same bytes."""
        digest = blake2b(digest_size=32, person=b"susurrus-memory")
        digest.update(len(self.keys).to_bytes(8, "big"))
        digest.update(np.fromiter(map(len, self.keys), "<i8", len(self.keys)).tobytes())
        digest.update(b"".join(self.keys))
        digest.update(self._numbers().tobytes())
        return digest.digest()

    def packed(self) -> list[bytes]:
        """The value of each key in the state."""
        return [_FORMAT + row.tobytes() for row in self._numbers()]

    @classmethod
    def unpack(cls, keys: list[bytes], values: Sequence[bytes], counting: int) -> Self:
        """What `packed` made. Raises Refusal for the state of another version."""
        if any(value[:1] != _FORMAT or len(value) != 1 + 16 * counting for value in values):
            raise Refusal(
                f"remembered keys have another format than {_FORMAT[0]}, which this version writes",
                "run the version that wrote them to the end of the window, and begin a new epoch with this one",
            )
        numbers = np.frombuffer(b"".join(value[1:] for value in values), "<f8").reshape(len(keys), 2 * counting)
        return cls(
            keys=keys,
            estimates=numbers[:, :counting].astype(np.float64),
            variances=numbers[:, counting:].astype(np.float64),
        )

    def _numbers(self) -> npt.NDArray[np.float64]:
        """float64[n, 2 * counting], little-endian."""
        return np.concatenate((self.estimates, self.variances), axis=1).astype("<f8")


class Memory:
    """What one bounded partition's windows hand on. Only where `keys.remember` is above 0."""

    def __init__(self, services: HistogramServices, store: Store) -> None:
        self._services, self._calendar, self._store = services, services.calendar, store
        self._least = services.settings.remember
        self._grouped = bool(services.settings.input.grouping_sets)
        self.columns = [at for at, column in enumerate(services.strategy.plan.columns) if column.kind in COUNTING]
        """The measured columns whose rows are kept."""
        self.deciding = [level.plan.counting for level in services.strategy.by_level]
        """By level, the first column that counts users; None where none does, and nothing is remembered."""

    @property
    def enters(self) -> Trigger:
        """The trigger of any window but an epoch's first at which its list holds for the first time."""
        return Trigger(self._calendar.late_intervals + 1)

    def of(self, window: WindowIndex) -> Remembered:
        """The list of a window, once the window before it is over; before that, and in an epoch's first window, an empty one."""
        table = _REMEMBERED + ordered(window)
        rows = list(self._store.scan(table, prefix_end(table)))
        if not rows:
            return Remembered.nothing(len(self.columns))
        return Remembered.unpack([key[len(table) :] for key, _ in rows], [row for _, row in rows], len(self.columns))

    def holds(self, window: WindowIndex, trigger: Trigger) -> bool:
        """Whether the window has a list at this trigger: from `enters` on, and not in an epoch's first window."""
        return trigger >= self.enters and not self._is_first(window)

    def ends(self, window: WindowIndex, trigger: Trigger) -> bool:
        """Whether it is the window's last trigger."""
        return trigger == self._calendar.triggers_of(window)

    def levels_of(self, keys: list[bytes]) -> Int64s:
        """int64[n]: the number of each key's level; zeros where there is one."""
        if not self._grouped or not keys:
            return np.zeros(len(keys), np.int64)
        return level_of(keys).astype(np.int64)

    def entering(self, window: WindowIndex, trigger: Trigger) -> Remembered | None:
        """The list that holds from this trigger of the window on; None at other triggers, and in an epoch's first window."""
        if trigger != self.enters or self._is_first(window):
            return None
        return self.of(window)

    def without_row(self, window: WindowIndex, trigger: Trigger) -> Remembered | None:
        """The list, at the last trigger where that looks back at the very interval that made it: its keys had no row by then."""
        lag, last = self._services.strategy.lag, self._calendar.triggers_of(window)
        if trigger != last or lag is None or last - lag != self.enters - 1 or self._is_first(window):
            return None
        return self.of(window)

    def lists_to_tell(self, interval: Interval, published: Collection[WindowIndex]) -> dict[WindowIndex, Remembered]:
        """The lists that enter at this interval, and those of windows that are open and skipped. published: windows that are."""
        lists: dict[WindowIndex, Remembered] = {}
        for window in self._calendar.open_windows(interval):
            trigger = self._calendar.trigger(window, interval)
            asked = trigger == self.enters or window not in published
            if window >= self._services.ledger.first_window and asked and self.holds(window, trigger):
                lists[window] = self.of(window)
        return lists

    def hand_on(self, window: WindowIndex, rows: SortedRows | None, commit: Commit) -> tuple[WindowIndex, Remembered]:
        """(the next window, its list), which the commit stores; the window's own list goes.

        window: whose last interval is closed. rows: of its last trigger, as they are published; None where it is skipped.
        """
        following = self._calendar.following(window)
        found = self.of(window) if rows is None else self._chosen(rows)
        commit.drop(*_table(window))
        place = _REMEMBERED + ordered(following)
        commit.puts += [(place + key, value) for key, value in zip(found.keys, found.packed(), strict=True)]
        return following, found

    def ending(self, interval: Interval) -> WindowIndex | None:
        """The window of this pipeline whose last interval it is."""
        window = self._calendar.oldest_open(interval)
        ends = window >= self._services.ledger.first_window and self._calendar.last_interval(window) == interval
        return window if ends else None

    def _is_first(self, window: WindowIndex) -> bool:
        return self._calendar.preceding(window) < self._services.ledger.first_window

    def _chosen(self, rows: SortedRows) -> Remembered:
        """Those of a window's last rows that are large enough: smoothed ones where there are such."""
        estimates, _ = rows.newest
        large = np.zeros(len(rows.keys), np.bool_)
        level = self.levels_of(rows.keys)
        for number, column in enumerate(self.deciding):
            if column is not None:
                large |= (level == number) & (estimates[:, column] >= self._least)
        values, variances = rates(rows.estimates[:, self.columns].astype(np.float64), rows.std_errors[:, self.columns])
        if (smoothed := rows.smoothed) is not None:
            present = smoothed.present[:, self.columns]
            values = np.where(present, smoothed.rates[:, self.columns], values)
            variances = np.where(present, smoothed.rate_variances[:, self.columns], variances)
        return Remembered(keys=rows.keys, estimates=values, variances=variances).take(large)


def _table(window: WindowIndex) -> tuple[bytes, bytes]:
    start = _REMEMBERED + ordered(window)
    return start, prefix_end(start)
