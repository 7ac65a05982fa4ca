"""A hash table that looks up arrays: which of the places of some columns an entry stands in.

    hashes of entries ──find──▶ places, -1 where there is none          of new entries ──enter──▶ slots for the next places

The columns are the caller's, who says which entries are the same. Nothing is ever taken out, so no slot on the way to an entry
is free.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Int32s, Int64s

Mixed = npt.NDArray[np.uint64]
"""Hashes of which all bits depend on all of an entry."""

_LEAST = 32
_FREE = -1
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
"""Shift and multiplier of SplitMix64, as in record_order.py."""


class Slots:
    """Places of entries by their hashes: at least twice as many slots as entries, a power of two."""

    def __init__(self) -> None:
        self._slots = np.full(_LEAST, _FREE, np.int32)

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self._slots.nbytes

    def find(self, mixed: Mixed, same: Callable[[npt.NDArray[np.intp], Int32s], Bools]) -> Int64s:
        """int64[n]: places of the entries with these hashes, -1 for those that are not here.

        same: whether the entries of some rows, intp[k], are those in these places, int32[k].
        """
        slot = self._first(mixed)
        place = self._slots[slot]
        asked, at = np.flatnonzero(place != _FREE), place[place != _FREE]
        step = 1
        while len(asked):
            others = np.flatnonzero(~same(asked, at))
            asked = asked[others]
            slot[asked] = (slot[asked] + step) & (len(self._slots) - 1)
            at = self._slots[slot[asked]]
            place[asked] = at
            taken = at != _FREE
            asked, at = asked[taken], at[taken]
            step += 1
        return place.astype(np.int64)

    def enter(self, start: int, end: int, mixed: Callable[[int], Mixed]) -> None:
        """Give slots to the entries in places start to end, which are not here and distinct. mixed: the hashes from a place on."""
        if 2 * end > len(self._slots):
            self._slots = np.full(1 << (2 * end - 1).bit_length(), _FREE, np.int32)
            start = 0
        slot, place = self._first(mixed(start)), np.arange(start, end, dtype=np.int32)
        step = 1
        while len(place):
            free = self._slots[slot] == _FREE
            self._slots[slot[free]] = place[free]
            # Of several that want one slot, one has it now, whichever.
            left = np.flatnonzero(self._slots[slot] != place)
            slot, place = (slot[left] + step) & (len(self._slots) - 1), place[left]
            step += 1  # steps of 1, 2, 3, ... come to every slot of a power of two

    def _first(self, mixed: Mixed) -> npt.NDArray[np.intp]:
        return (mixed >> np.uint64(65 - len(self._slots).bit_length())).astype(np.intp)


def mix(words: Mixed) -> Mixed:
    """The words, mixed in place: a permutation of 64 bits."""
    for shift, multiplier in _MIX:
        words ^= words >> shift
        words *= multiplier
    return words
