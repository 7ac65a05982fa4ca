"""The (user, key) pairs of a window's table, and where each of them stands.

    pairs ──find──▶ places, -1 where there is none          new pairs ──enter──▶ the next places

A pair is one number of 64 bits, and is compared in full. Pairs are never taken out.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.histogram.slots import Mixed, Slots, mix

_ROOM = 16


class PairIndex:
    """Distinct pairs, numbered from 0 in order of arrival."""

    def __init__(self) -> None:
        self._pairs = np.zeros(_ROOM, np.int64)
        self._number = 0
        self._slots = Slots()

    def __len__(self) -> int:
        """Number of pairs."""
        return self._number

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self._pairs.nbytes + self._slots.size

    @property
    def pairs(self) -> Int64s:
        """int64[pairs], by place."""
        return self._pairs[: self._number]

    def find(self, pairs: Int64s) -> Int64s:
        """int64[n]: the pairs' places, -1 for those that are not here."""
        return self._slots.find(_mixed(pairs), lambda rows, at: self._pairs[at] == pairs[rows])

    def enter(self, pairs: Int64s) -> Int64s:
        """int64[n]: the places of pairs that are not here, and distinct."""
        before, self._number = self._number, self._number + len(pairs)
        self._pairs = grown(self._pairs, self._number)
        self._pairs[before : self._number] = pairs
        self._slots.enter(before, self._number, lambda start: _mixed(self.pairs[start:]))
        return np.arange(before, self._number)


def _mixed(pairs: Int64s) -> Mixed:
    return mix(pairs.astype(np.uint64))


def grown(column: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The column with room for ``size`` rows: itself, or a copy of twice as many, zero behind."""
    if size <= len(column):
        return column
    larger = np.zeros(max(size, 2 * len(column)), column.dtype)
    larger[: len(column)] = column
    return larger
