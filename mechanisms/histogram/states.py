"""States of keys in one window, as columns, and their layout in the store.

    selected or declared key: running totals only
    other key: running totals, gate, skip index, and the history of its selection weight (few entries: it is small)

Internal: a state is a function of raw data and of the secret. It never leaves the store and its changelog.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.per_key import Histories, PerKey, offsets

LAYOUT = 1
"""First byte of every stored state."""
UNKNOWN = -1
"""`need` of a key whose noise has not been looked at yet."""

_HEAD = 2  # layout, flags
_HISTORY_ENTRY = np.dtype([("when", "<u2"), ("weight", "<i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class FactoredStates(PerKey):
    """k keys.

    selected  bool[k]           published at this and every later trigger
    users     int64[k]          distinct users with positive selection weight; 0 once selected
    need      int64[k]          no test can succeed at a later trigger while the weight is below this many 2^-20 units;
                                UNKNOWN before the first look, 0 once selected
    sums      int64[k, columns] running totals
    history                     selection weights by trigger, 2^-20 units; empty once selected
    """

    selected: npt.NDArray[np.bool_]
    users: npt.NDArray[np.int64]
    need: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    history: Histories

    @classmethod
    def empty(cls, size: int, columns: int) -> Self:
        """Keys never seen."""
        return cls(
            selected=np.zeros(size, np.bool_),
            users=np.zeros(size, np.int64),
            need=np.full(size, UNKNOWN, np.int64),
            sums=np.zeros((size, columns), np.int64),
            history=Histories.empty(size),
        )

    def pack(self) -> list[bytes]:
        """One byte string per key.

        layout u8, flags u8 (bit 0: selected), sums i64[columns]; unselected keys go on with users i64, need i64 and
        the history, (trigger u16, weight i64) per entry.
        """
        size, columns = len(self), self.sums.shape[1]
        fixed, width = _HEAD + 8 * columns, _HISTORY_ENTRY.itemsize
        if size and self.selected.all():
            table = np.empty((size, fixed), np.uint8)
            table[:, 0], table[:, 1] = LAYOUT, 1
            table[:, _HEAD:] = np.ascontiguousarray(self.sums, "<i8").view(np.uint8).reshape(size, -1)
            data = table.tobytes()
            return [data[a : a + fixed] for a in range(0, size * fixed, fixed)]
        lengths = np.where(self.selected, fixed, fixed + 16 + width * self.history.lengths)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        buffer = np.empty(int(ends[-1]) if size else 0, np.uint8)
        buffer[starts] = LAYOUT
        buffer[starts + 1] = self.selected
        for column in range(columns):
            _scatter(buffer, starts + _HEAD + 8 * column, self.sums[:, column])
        open_ = np.flatnonzero(~self.selected)
        _scatter(buffer, starts[open_] + fixed, self.users[open_])
        _scatter(buffer, starts[open_] + fixed + 8, self.need[open_])
        entries = np.empty(len(self.history.when), _HISTORY_ENTRY)
        entries["when"], entries["weight"] = self.history.when, self.history.weight
        at = _entry_places(starts + fixed + 16, self.history.indptr)
        buffer[at] = entries.view(np.uint8).reshape(-1, width)
        data = buffer.tobytes()
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    @classmethod
    def unpack(cls, rows: Sequence[bytes], columns: int) -> Self:
        """The inverse of `pack`. Raises ValueError for anything else."""
        size = len(rows)
        lengths = np.fromiter(map(len, rows), np.int64, size)
        fixed, width = _HEAD + 8 * columns, _HISTORY_ENTRY.itemsize
        if np.any(lengths < fixed):
            raise ValueError("stored state is too short; the store was written by another version or configuration")
        buffer = np.frombuffer(b"".join(rows), np.uint8)
        if size and lengths.max() == fixed:
            table = buffer.reshape(size, fixed)
            if (table[:, 0] == LAYOUT).all() and (table[:, 1] == 1).all():
                sums = np.ascontiguousarray(table[:, _HEAD:]).view("<i8").astype(np.int64)
                nothing = cls.empty(size, 0)
                return replace(nothing, selected=~nothing.selected, need=np.zeros(size, np.int64), sums=sums)
        starts = np.cumsum(lengths) - lengths
        selected = buffer[starts + 1] == 1
        rest = np.where(selected, lengths - fixed, lengths - fixed - 16)
        counts = np.where(selected, 0, rest // width)
        if np.any(buffer[starts] != LAYOUT) or np.any(buffer[starts + 1] > 1) or np.any(rest != counts * width):
            raise ValueError("stored state has an unknown layout; it was written by another version or configuration")
        states = cls.empty(size, columns)
        states.selected[:] = selected
        for column in range(columns):
            states.sums[:, column] = _gather(buffer, starts + _HEAD + 8 * column)
        open_ = np.flatnonzero(~selected)
        states.users[open_] = _gather(buffer, starts[open_] + fixed)
        states.need[open_] = _gather(buffer, starts[open_] + fixed + 8)
        states.need[selected] = 0
        indptr = offsets(counts)
        entries = buffer[_entry_places(starts + fixed + 16, indptr)].reshape(-1).view(_HISTORY_ENTRY)
        history = Histories(
            indptr=indptr, when=entries["when"].astype(np.int32), weight=entries["weight"].astype(np.int64)
        )
        return replace(states, history=history)


def _entry_places(begins: npt.NDArray[np.int64], indptr: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[entries, bytes of an entry]: where the bytes of each entry stand. begins: int64[k], of each key's first entry."""
    owner = np.repeat(np.arange(len(begins)), np.diff(indptr))
    at = begins[owner] + (np.arange(len(owner)) - indptr[:-1][owner]) * _HISTORY_ENTRY.itemsize
    places: npt.NDArray[np.int64] = at[:, None] + np.arange(_HISTORY_ENTRY.itemsize)
    return places


def _scatter(buffer: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> None:
    buffer[at[:, None] + np.arange(8)] = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)


def _gather(buffer: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = buffer[at[:, None] + np.arange(8)].reshape(-1).view("<i8").astype(np.int64)
    return values
