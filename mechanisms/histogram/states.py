"""States of keys in one window, as columns, and their layout in the store.

    selected or declared key: running totals only
    other key: running totals, gate, skip index, and the history of its selection weight (few entries: it is small)

Internal: a state is a function of raw data and of the secret. It never leaves the store and its changelog.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

LAYOUT = 1
"""First byte of every stored state."""
UNKNOWN = -1
"""`need` of a key whose noise has not been looked at yet."""

_HEAD = 2  # layout, flags
_HISTORY_ENTRY = np.dtype([("when", "<u2"), ("weight", "<i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class FactoredStates:
    """k keys.

    selected  bool[k]           published at this and every later trigger
    users     int64[k]          distinct users with positive selection weight; 0 once selected
    total     int64[k]          sum of selection weights, 2^-20 units; 0 once selected
    need      int64[k]          no test can succeed at a later trigger while the weight is below this many 2^-20 units;
                                UNKNOWN before the first look, 0 once selected
    sums      int64[k, columns] running totals
    indptr    int64[k + 1], when int32[nnz], weight int64[nnz]   history of `total` for unselected keys
    """

    selected: npt.NDArray[np.bool_]
    users: npt.NDArray[np.int64]
    total: npt.NDArray[np.int64]
    need: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    indptr: npt.NDArray[np.int64]
    when: npt.NDArray[np.int32]
    weight: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.selected)

    @classmethod
    def empty(cls, size: int, columns: int) -> Self:
        """Keys never seen."""
        return cls(
            selected=np.zeros(size, np.bool_),
            users=np.zeros(size, np.int64),
            total=np.zeros(size, np.int64),
            need=np.full(size, UNKNOWN, np.int64),
            sums=np.zeros((size, columns), np.int64),
            indptr=np.zeros(size + 1, np.int64),
            when=np.empty(0, np.int32),
            weight=np.empty(0, np.int64),
        )

    def take(self, index: npt.NDArray[np.intp]) -> Self:
        """The states at these positions, in this order."""
        indptr, entries = segments(self.indptr, index)
        return type(self)(
            selected=self.selected[index],
            users=self.users[index],
            total=self.total[index],
            need=self.need[index],
            sums=self.sums[index],
            indptr=indptr,
            when=self.when[entries],
            weight=self.weight[entries],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """States one after the other; at least one part."""
        counts = np.concatenate([np.diff(part.indptr) for part in parts])
        return cls(
            selected=np.concatenate([part.selected for part in parts]),
            users=np.concatenate([part.users for part in parts]),
            total=np.concatenate([part.total for part in parts]),
            need=np.concatenate([part.need for part in parts]),
            sums=np.concatenate([part.sums for part in parts]),
            indptr=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            when=np.concatenate([part.when for part in parts]),
            weight=np.concatenate([part.weight for part in parts]),
        )

    def pack(self) -> list[bytes]:
        """One byte string per key.

        layout u8, flags u8 (bit 0: selected), sums i64[columns]; unselected keys go on with users i64, need i64 and
        the history, (trigger u16, weight i64) per entry. `total` is the sum of the history.
        """
        size, columns = len(self), self.sums.shape[1]
        counts = np.diff(self.indptr)
        fixed = _HEAD + 8 * columns
        lengths = np.where(self.selected, fixed, fixed + 16 + _HISTORY_ENTRY.itemsize * counts)
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
        history = np.empty(len(self.when), _HISTORY_ENTRY)
        history["when"], history["weight"] = self.when, self.weight
        owner = np.repeat(np.arange(size), counts)
        place = np.arange(len(history)) - self.indptr[:-1][owner]
        at = starts[owner] + fixed + 16 + place * _HISTORY_ENTRY.itemsize
        width = _HISTORY_ENTRY.itemsize
        buffer[at[:, None] + np.arange(width)] = history.view(np.uint8).reshape(-1, width)
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
        starts = np.cumsum(lengths) - lengths
        selected = buffer[starts + 1] == 1
        rest = np.where(selected, lengths - fixed, lengths - fixed - 16)
        counts = np.where(selected, 0, rest // width)
        if np.any(buffer[starts] != LAYOUT) or np.any(buffer[starts + 1] > 1) or np.any(rest != counts * width):
            raise ValueError("stored state has an unknown layout; it was written by another version or configuration")
        states = cls.empty(size, columns)
        for column in range(columns):
            states.sums[:, column] = _gather(buffer, starts + _HEAD + 8 * column)
        open_ = np.flatnonzero(~selected)
        states.users[open_] = _gather(buffer, starts[open_] + fixed)
        states.need[open_] = _gather(buffer, starts[open_] + fixed + 8)
        states.need[selected] = 0
        indptr = np.zeros(size + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        owner = np.repeat(np.arange(size), counts)
        at = starts[owner] + fixed + 16 + (np.arange(len(owner)) - indptr[:-1][owner]) * width
        history = buffer[at[:, None] + np.arange(width)].reshape(-1).view(_HISTORY_ENTRY)
        weight = history["weight"].astype(np.int64)
        return cls(
            selected=selected,
            users=states.users,
            total=segment_sums(weight, indptr),
            need=states.need,
            sums=states.sums,
            indptr=indptr,
            when=history["when"].astype(np.int32),
            weight=weight,
        )


def segments(
    indptr: npt.NDArray[np.int64], index: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(new indptr, positions of the entries) of the segments at `index`."""
    counts = np.diff(indptr)[index]
    out = np.zeros(len(index) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    entries = np.arange(out[-1]) + np.repeat(indptr[:-1][index] - out[:-1], counts)
    return out, entries


def segment_sums(values: npt.NDArray[np.int64], indptr: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Exact int64 sum of each segment along axis 0; zero for empty ones."""
    total = np.zeros((len(values) + 1, *values.shape[1:]), np.int64)
    np.cumsum(values, axis=0, out=total[1:])
    difference: npt.NDArray[np.int64] = np.subtract(total[indptr[1:]], total[indptr[:-1]])
    return difference


def _scatter(buffer: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> None:
    buffer[at[:, None] + np.arange(8)] = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)


def _gather(buffer: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = buffer[at[:, None] + np.arange(8)].reshape(-1).view("<i8").astype(np.int64)
    return values
