"""The users' lists of keys: numbers for their keys, and the measurement of all lists at a window's last trigger.

    bound, every interval:    (window, key) ──KeyNumbers──▶ number, which a user's list holds instead of a hash
    bound, last trigger:  all lists of the window ──measure──▶ one block of list sums for bounded

For caps a hash is enough: a collision makes one user's caps tighter. Here a number must lead back to its key, and two keys with
one number would be added up, so numbers are exact. They are given in order of arrival, mean nothing outside this partition's
state, and are never given twice. Lists hold their lower 32 bits: the numbers of one window are less than 2^32 apart.

State keys: ``k`` window key -> number, ``i`` window number -> key.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.key_hashes import MAX_HASHED_BYTES, MAX_HASHES
from susurrus.agents.runtime.store import prefix_end
from susurrus.agents.runtime.store_part import ReadStore
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.mechanisms.histogram.user_lists import ListWeights
from susurrus.mechanisms.histogram.user_table import Codes, Lists
from susurrus.topics.bounded import BoundedBlock

NUMBERS, KEYS = b"k", b"i"


class KeyNumbers:
    """Numbers of keys, by window. ``next`` is part of the stage's meta record. Those that are stored are remembered."""

    def __init__(self, store: ReadStore, following: int) -> None:
        self._store = store
        self.next = following
        self._known: dict[WindowIndex, dict[bytes, int]] = {}
        """Some of what the store will have once the next commit is written. If it is not, this object goes with its stage."""
        self._bytes = 0
        """Of the keys in it."""
        self._asked: tuple[WindowIndex, Sequence[bytes]] = WindowIndex(0), ()
        self._new: dict[int, int] = {}
        """The keys asked for last that had no number: place -> number, in ascending order."""

    def of(self, window: WindowIndex, keys: Sequence[bytes]) -> Codes:
        """uint32[n]: what lists hold for the distinct keys of a window; a new number is stored only if `listed` is asked for it."""
        if sum(map(len, self._known.values())) > MAX_HASHES or self._bytes > MAX_HASHED_BYTES:
            self._known, self._bytes = {}, 0
        known = self._known.setdefault(window, {})
        numbers = list(map(known.get, keys))
        unknown = [at for at, number in enumerate(numbers) if number is None]
        prefix = NUMBERS + ordered(window)
        self._asked, self._new = (window, keys), {}
        for at, row in zip(unknown, self._store.get([prefix + keys[at] for at in unknown]), strict=True):
            if row is None:
                numbers[at] = self._new[at] = self.next
                self.next += 1
            else:
                numbers[at] = self._remember(known, keys[at], int.from_bytes(row, "little"))
        return np.array(numbers, np.uint64).astype(np.uint32)

    def listed(self, keys: npt.NDArray[np.integer]) -> list[tuple[bytes, bytes]]:
        """What to store so that the numbers of these keys, some of them new, are known: keys on no list leave no trace.

        keys: places among those that `of` was last asked for.
        """
        if not self._new:
            return []
        (window, asked), known = self._asked, self._known[self._asked[0]]
        number_of, key_of = NUMBERS + ordered(window), KEYS + ordered(window)
        new = np.fromiter(self._new, np.int64, len(self._new))
        puts = []
        for at in new[np.isin(new, keys)].tolist():
            key, number = asked[at], self._remember(known, asked[at], self._new[at])
            puts.append((number_of + key, number.to_bytes(8, "little")))
            puts.append((key_of + number.to_bytes(8, "big"), key))
        return puts

    def _remember(self, known: dict[bytes, int], key: bytes, number: int) -> int:
        known[key] = number
        self._bytes += len(key)
        return number

    def forget(self, oldest: WindowIndex) -> None:
        """Forget in memory the windows before this one."""
        for window in [window for window in self._known if window < oldest]:
            self._bytes -= sum(map(len, self._known.pop(window)))


def keys_of(
    store: ReadStore, window: WindowIndex, puts: dict[bytes, bytes]
) -> tuple[npt.NDArray[np.uint64], list[bytes]]:
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


def measure(pieces: Iterable[Lists], lists: ListWeights, numbers: npt.NDArray[np.uint64], unit: Int64s) -> Int64s:
    """int64[keys, 3]: users, weight and public weight of every key, over all of a window's users.

    pieces: the users' lists, whose codes are the lower halves of numbers. numbers: ascending; unit: int64[keys], see
    `ListWeights.add_up`. Raises RuntimeError where a code leads to no key or to several.
    """
    sums = np.zeros((len(numbers), 3), np.int64)
    if len(numbers) and int(numbers[-1] - numbers[0]) >= 1 << 32:
        raise RuntimeError(
            f"a window has keys with numbers {int(numbers[-1] - numbers[0])} apart: raise topics.by_user_partitions"
        )
    order = np.argsort(numbers.astype(np.uint32))
    codes = numbers.astype(np.uint32)[order]
    for piece in pieces:
        held = piece.code
        if not len(held):
            continue
        place = np.minimum(np.searchsorted(codes, held), max(len(codes) - 1, 0))
        if not (len(codes) and np.array_equal(codes[place], held)):
            raise RuntimeError("a user's list names a key that has no number in its window")
        sums += lists.add_up(piece.indptr, order[place], unit)
    return sums


def block_of(
    partition: int, interval: Interval, window: WindowStart, keys: list[bytes], sums: Int64s, columns: int
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
