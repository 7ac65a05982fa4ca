"""The users' lists of keys: numbers for their keys, and the measurement of all lists at a window's last trigger.

    bound, every interval:    (window, key) ──KeyNumbers──▶ number, which a user's row holds instead of a hash
    bound, last trigger:  all rows of the window ──measure──▶ one block of list sums for bounded

For caps a hash is enough: a collision makes one user's caps tighter. Here a number must lead back to its key, and two keys with
one number would be added up, so numbers are exact. They are given in order of arrival, mean nothing outside this partition's
state, and are never given twice.

State keys: ``k`` window key -> number, ``i`` window number -> key.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.user_caps import CapsLayout
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.mechanisms.histogram.user_lists import ListWeights
from susurrus.topics.bounded import BoundedBlock

NUMBERS, KEYS = b"k", b"i"
_PIECE_BYTES = 1 << 24
"""Of users' rows that are weighed at once."""

Int64 = npt.NDArray[np.int64]


class KeyNumbers:
    """Numbers of keys, by window. ``next`` is part of the stage's meta record."""

    def __init__(self, store: Store, following: int) -> None:
        self._store = store
        self.next = following
        self._new: dict[int, tuple[WindowIndex, bytes]] = {}

    def of(self, windows: Sequence[WindowIndex], keys: Sequence[bytes]) -> npt.NDArray[np.uint64]:
        """uint64[n]: numbers of distinct (window, key) pairs; a new one is stored only if `listed` is asked for it."""
        stored = self._store.get([NUMBERS + ordered(w) + key for w, key in zip(windows, keys, strict=True)])
        numbers = np.empty(len(keys), np.uint64)
        self._new = {}
        for index, row in enumerate(stored):
            if row is None:
                self._new[self.next] = (windows[index], keys[index])
                numbers[index] = self.next
                self.next += 1
            else:
                numbers[index] = int.from_bytes(row, "little")
        return numbers

    def listed(self, numbers: npt.NDArray[np.uint64]) -> list[tuple[bytes, bytes]]:
        """What to store so that these numbers, some of them new, are known: keys that are on no list leave no trace."""
        puts = []
        for number in np.unique(numbers).tolist():
            if number in self._new:
                window, key = self._new[number]
                puts.append((NUMBERS + ordered(window) + key, number.to_bytes(8, "little")))
                puts.append((KEYS + ordered(window) + number.to_bytes(8, "big"), key))
        return puts


def keys_of(store: Store, window: WindowIndex, puts: dict[bytes, bytes]) -> tuple[npt.NDArray[np.uint64], list[bytes]]:
    """(numbers ascending, their keys) of a window, with what the commit at hand adds."""
    prefix = KEYS + ordered(window)
    numbers: list[int] = []
    keys: list[bytes] = []
    # What is new has the highest numbers.
    new = sorted((name, key) for name, key in puts.items() if name.startswith(prefix))
    for name, key in chain(store.scan(prefix, prefix_end(prefix)), new):
        numbers.append(int.from_bytes(name[len(prefix) :], "big"))
        keys.append(key)
    return np.array(numbers, np.uint64), keys


def rows_of(store: Store, prefix: bytes, puts: dict[bytes, bytes]) -> Iterator[list[bytes]]:
    """The values of all state keys with a prefix, in pieces. puts: written by the commit at hand, in place of what is stored."""
    written = (value for name, value in puts.items() if name.startswith(prefix))
    stored = (value for name, value in store.scan(prefix, prefix_end(prefix)) if name not in puts)
    piece: list[bytes] = []
    size = 0
    # By bytes, not by rows: the row of a user with a full list is ten thousand times as long as most.
    for value in chain(written, stored):
        piece.append(value)
        size += len(value)
        if size >= _PIECE_BYTES:
            yield piece
            piece, size = [], 0
    yield piece


def measure(
    pieces: Iterable[list[bytes]],
    layout: CapsLayout,
    lists: ListWeights,
    numbers: npt.NDArray[np.uint64],
    unit: Int64,
) -> Int64:
    """int64[keys, 3]: users, weight and public weight of every key, over all of a window's users.

    pieces: the users' rows. layout: of the rows; an entry's field "hash" is a number. numbers: ascending; unit: int64[keys],
    see `ListWeights.add_up`.
    """
    sums = np.zeros((len(numbers), 3), np.int64)
    for rows in filter(None, pieces):
        indptr, entries = layout.entries(rows)
        held = entries["hash"]
        key = np.minimum(np.searchsorted(numbers, held), max(len(numbers) - 1, 0))
        if len(held) and not (len(numbers) and np.array_equal(numbers[key], held)):
            raise RuntimeError("a user's list names a key that has no number in its window")
        sums += lists.add_up(indptr, key, unit)
    return sums


def block_of(
    partition: int, interval: Interval, window: WindowStart, keys: list[bytes], sums: Int64, columns: int
) -> BoundedBlock:
    """The block for bounded: keys with any weight, in byte order, since numbers mean nothing. It has no increments."""
    rows = np.array(sorted(np.flatnonzero(sums.any(axis=1)).tolist(), key=keys.__getitem__), np.intp)
    zeros = np.zeros(len(rows), np.int64)
    return BoundedBlock(
        partition=partition,
        interval=interval,
        window=np.full(len(rows), window, np.int64),
        keys=[keys[i] for i in rows.tolist()],
        users=zeros,
        weight=zeros,
        sums=np.zeros((len(rows), columns), np.int64),
        lists=sums[rows],
    )
