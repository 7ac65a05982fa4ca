"""The (user, key) pairs of a window's table, and where each of them stands: a hash table that looks up arrays.

    pairs ──find──▶ places, -1 where there is none          new pairs ──enter──▶ the next places

A pair is one number of 64 bits, and is compared in full. Pairs are never taken out, so no slot on the way to a pair is free.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Int64s

_ROOM = 16
_FREE = -1
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
"""Shift and multiplier, as in record_order.py. Of a product the upper bits depend on all bits."""


class PairIndex:
    """Distinct pairs, numbered from 0 in order of arrival."""

    def __init__(self) -> None:
        self._pairs = np.zeros(_ROOM, np.int64)
        self._number = 0
        self._slots = np.full(2 * _ROOM, _FREE, np.int32)
        """Places of pairs: at least twice as many slots as pairs, a power of two."""

    def __len__(self) -> int:
        """Number of pairs."""
        return self._number

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self._pairs.nbytes + self._slots.nbytes

    @property
    def pairs(self) -> Int64s:
        """int64[pairs], by place."""
        return self._pairs[: self._number]

    def find(self, pairs: Int64s) -> Int64s:
        """int64[n]: the pairs' places, -1 for those that are not here."""
        slot = self._first_slots(pairs)
        place = self._slots[slot]
        asked = np.flatnonzero((place != _FREE) & (self._pairs[place] != pairs))
        step = 1
        while len(asked):
            slot[asked] = (slot[asked] + step) & (len(self._slots) - 1)
            at = self._slots[slot[asked]]
            place[asked] = at
            asked = asked[(at != _FREE) & (self._pairs[at] != pairs[asked])]
            step += 1
        return place.astype(np.int64)

    def enter(self, pairs: Int64s) -> Int64s:
        """int64[n]: the places of pairs that are not here, and distinct."""
        before, self._number = self._number, self._number + len(pairs)
        self._pairs = grown(self._pairs, self._number)
        self._pairs[before : self._number] = pairs
        if 2 * self._number > len(self._slots):
            self._slots = np.full(1 << (2 * self._number - 1).bit_length(), _FREE, np.int32)
            self._seat(0)
        else:
            self._seat(before)
        return np.arange(before, self._number)

    def _seat(self, start: int) -> None:
        """Find a slot for each pair from place ``start`` on."""
        slot, place = (
            self._first_slots(self._pairs[start : self._number]),
            np.arange(start, self._number, dtype=np.int32),
        )
        step = 1
        while len(place):
            free = self._slots[slot] == _FREE
            self._slots[slot[free]] = place[free]
            # Of several that want one slot, one has it now, whichever.
            left = np.flatnonzero(self._slots[slot] != place)
            slot, place = (slot[left] + step) & (len(self._slots) - 1), place[left]
            step += 1  # steps of 1, 2, 3, ... come to every slot of a power of two

    def _first_slots(self, pairs: Int64s) -> npt.NDArray[np.intp]:
        mixed = pairs.astype(np.uint64)
        for shift, multiplier in _MIX:
            mixed ^= mixed >> shift
            mixed *= multiplier
        return (mixed >> np.uint64(65 - len(self._slots).bit_length())).astype(np.intp)


def grown(column: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The column with room for ``size`` rows: itself, or a copy of twice as many, zero behind."""
    if size <= len(column):
        return column
    larger = np.zeros(max(size, 2 * len(column)), column.dtype)
    larger[: len(column)] = column
    return larger
