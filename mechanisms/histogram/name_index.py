"""The names of a window's users, and their numbers: names are read as columns, without a Python object for each.

    names ──find──▶ numbers, -1 where there is none          ──enter──▶ numbers, the next ones for new names

Names are compared by all of their bytes. They are hashed with a seed of this process, so that nobody can write names that collide;
what they are numbered by is their order of arrival alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Int32s, Int64s
from susurrus.mechanisms.histogram.pair_index import grown
from susurrus.mechanisms.histogram.per_key import offsets
from susurrus.mechanisms.histogram.slots import Mixed, Slots, mix

WORD_BYTES = 8
_ROOM = 16
_SEED = hash(b"names of users") % (1 << 64)
"""Python salts the hashes of its byte strings once for each process."""
_STEP = np.uint64(0x9E3779B97F4A7C15)
_BITS = np.array([(1 << 8 * size) - 1 for size in range(WORD_BYTES + 1)], np.uint64)
"""By number of bytes, the bits that so many bytes of a word have."""
_OBJECT_BYTES = 50
"""What a name costs in a list, beside its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """n names in bytes: name i has length[i] bytes from start[i] on. start, length: int64[n]. data: has ``WORD_BYTES`` more bytes
    behind the last name."""

    data: bytes
    start: Int64s
    length: Int64s

    @classmethod
    def of(cls, names: Sequence[bytes]) -> Self:
        """These names."""
        length = np.fromiter(map(len, names), np.int64, len(names))
        return cls(data=b"".join((*names, bytes(WORD_BYTES))), start=offsets(length)[:-1], length=length)

    def __len__(self) -> int:
        """Number of names."""
        return len(self.length)

    def listed(self, rows: npt.NDArray[np.intp] | slice = slice(None)) -> list[bytes]:
        """Some of the names, by default all."""
        data, start = self.data, self.start[rows]
        return [data[at:end] for at, end in zip(start.tolist(), (start + self.length[rows]).tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class _Words:
    """Names as whole words, zero behind their ends. width int64[n]: words of each, at least one; begin int64[n]: the first."""

    width: Int64s
    begin: Int64s
    words: Mixed

    @classmethod
    def of(cls, names: Names) -> "_Words":
        """The words of these names."""
        width = np.maximum((names.length + (WORD_BYTES - 1)) // WORD_BYTES, 1)
        # A word may begin at any byte.
        every: Mixed = np.ndarray((len(names.data) - WORD_BYTES + 1,), "<u8", names.data, strides=(1,))
        if len(width) and int(width.max()) == 1:
            return cls(width, np.arange(len(width)), every[names.start] & _BITS[names.length])
        indptr = offsets(width)
        places = _spread(names.start, width, WORD_BYTES)
        words = every[places].astype(np.uint64)
        words[indptr[1:] - 1] &= _BITS[names.length - WORD_BYTES * (width - 1)]
        return cls(width, indptr[:-1], words)

    def mixed(self, length: Int64s) -> Mixed:
        """uint64[n]: hashes of the names, which have these lengths."""
        longest = int(self.width.max()) if len(self.width) else 1
        seeds = mix(np.uint64(_SEED) + _STEP * np.arange(1, longest + 1, dtype=np.uint64))
        if longest == 1:
            whole = mix(self.words ^ seeds[0])
        else:
            whole = np.add.reduceat(mix(self.words ^ seeds[_spread(np.zeros_like(self.width), self.width)]), self.begin)
        return mix(whole ^ length.astype(np.uint64) * _STEP)


class NameIndex:
    """Distinct names, numbered from 0 in order of arrival."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._slots = Slots()
        self._mixed = np.zeros(_ROOM, np.uint64)
        self._length, self._begin = np.zeros(_ROOM, np.int64), np.zeros(_ROOM, np.int64)
        self._words = np.zeros(_ROOM, np.uint64)
        self._used = 0

    def __len__(self) -> int:
        """Number of names."""
        return len(self.names)

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        columns = self._mixed.nbytes + self._length.nbytes + self._begin.nbytes + self._words.nbytes
        return columns + self._slots.size + WORD_BYTES * self._used + _OBJECT_BYTES * len(self)

    def find(self, names: Names) -> Int64s:
        """int64[n]: the names' numbers, -1 for those that are not here."""
        words = _Words.of(names)
        return self._find(names, words, words.mixed(names.length))

    def enter(self, names: Names) -> Int64s:
        """int64[n]: the names' numbers. Names that are new, perhaps several times here, get the next ones, in this order."""
        words = _Words.of(names)
        mixed = words.mixed(names.length)
        number = self._find(names, words, mixed)
        new = np.flatnonzero(number < 0)
        if not len(new):
            return number
        before, texts = len(self), names.listed(new)
        numbers = dict(zip(dict.fromkeys(texts), range(before, before + len(texts)), strict=False))
        number[new] = np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))
        # Numbers ascend where a name comes first.
        first = new[np.flatnonzero(np.diff(np.maximum.accumulate(number[new]), prepend=before - 1))]
        self.names += numbers
        self._append(names.length[first], words, first, mixed[first])
        return number

    def _append(self, length: Int64s, words: _Words, rows: npt.NDArray[np.intp], mixed: Mixed) -> None:
        before, after = len(self) - len(rows), len(self)
        width = words.width[rows]
        ends = self._used + offsets(width)
        self._mixed, self._length = grown(self._mixed, after), grown(self._length, after)
        self._begin, self._words = grown(self._begin, after), grown(self._words, int(ends[-1]))
        self._mixed[before:after], self._length[before:after], self._begin[before:after] = mixed, length, ends[:-1]
        self._words[self._used : ends[-1]] = words.words[_spread(words.begin[rows], width)]
        self._used = int(ends[-1])
        self._slots.enter(before, after, lambda start: self._mixed[start:after])

    def _find(self, names: Names, words: _Words, mixed: Mixed) -> Int64s:
        def same(rows: npt.NDArray[np.intp], at: Int32s) -> Bools:
            found: Bools = (self._mixed[at] == mixed[rows]) & (self._length[at] == names.length[rows])
            alike = np.flatnonzero(found)
            mine, theirs = words.begin[rows[alike]], self._begin[at[alike]]
            width = words.width[rows[alike]]
            if len(width) == int(width.sum()):
                found[alike] = words.words[mine] == self._words[theirs]
            else:
                equal = words.words[_spread(mine, width)] == self._words[_spread(theirs, width)]
                found[alike] = np.logical_and.reduceat(equal, offsets(width)[:-1])
            return found

        return self._slots.find(mixed, same)


def _spread(begin: Int64s, width: Int64s, step: int = 1) -> Int64s:
    """int64[sum of width]: for each row, width places from begin on, step apart."""
    indptr = offsets(width)
    places: Int64s = np.repeat(begin - step * indptr[:-1], width) + step * np.arange(indptr[-1])
    return places
