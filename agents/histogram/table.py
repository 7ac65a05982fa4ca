"""The columns of one trigger: the increments of an interval gathered by window and key, and the rows to be published."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.topics.bounded import LIST_COLUMNS, BoundedBlock

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Exact increments of one window in one interval, keys in byte order. ``index``: key -> row."""

    keys: list[bytes]
    index: dict[bytes, int]
    users: Int64
    weight: Int64
    sums: Int64
    lists: Int64 | None = None
    """(n, 3), at a last trigger: what the users' lists add, where the strategy needs them."""

    @classmethod
    def nothing(cls, columns: int) -> Self:
        """A trigger without news."""
        none = np.empty(0, np.int64)
        return cls([], {}, none, none, np.empty((0, columns), np.int64))

    def increments(self, keys: list[bytes], unit: Int64 | None) -> Increments:
        """What these keys get, zeros without news. unit: int64[n] of `ListSums`, where the users' lists are measured."""
        at = np.fromiter((self.index.get(key, -1) for key in keys), np.int64, len(keys))

        def of_keys(column: Int64) -> Int64:
            found = np.zeros((len(keys), *column.shape[1:]), np.int64)
            found[at >= 0] = column[at[at >= 0]]
            return found

        lists = np.empty((0, LIST_COLUMNS), np.int64) if self.lists is None else self.lists
        return Increments(
            users=of_keys(self.users),
            weight=of_keys(self.weight),
            sums=of_keys(self.sums),
            lists=None if unit is None else ListSums.of(of_keys(lists), unit),
        )


def gather(blocks: list[BoundedBlock], columns: int) -> dict[WindowStart, Gathered]:
    """Add up the blocks of an interval, from all by-user partitions: window start in ms -> increments."""
    result: dict[WindowStart, Gathered] = {}
    for start in sorted({WindowStart(int(w)) for block in blocks for w in np.unique(block.window)}):
        parts = []
        for block in blocks:
            rows = np.flatnonzero(block.window == start)
            if len(rows):
                parts.append(block if len(rows) == len(block) else block.take(rows))
        keys = sorted({key for part in parts for key in part.keys})
        index = {key: row for row, key in enumerate(keys)}
        users, weight = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        sums = np.zeros((len(keys), columns), np.int64)
        lists: Int64 | None = None
        for part in parts:
            at = np.fromiter((index[key] for key in part.keys), np.int64, len(part))
            np.add.at(users, at, part.users)
            np.add.at(weight, at, part.weight)
            np.add.at(sums, at, part.sums)
            if part.lists is not None:
                lists = np.zeros((len(keys), LIST_COLUMNS), np.int64) if lists is None else lists
                np.add.at(lists, at, part.lists)
        result[start] = Gathered(keys, index, users, weight, sums, lists)
    return result


class Rows:
    """Collects what a trigger publishes; one sort at the end, by key."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self.first: list[bytes] = []
        """Keys that are published for the first time."""
        self._keys: list[bytes] = []
        self._estimates: list[Int64] = []
        self._std_errors: list[npt.NDArray[np.float64]] = []

    def add(
        self,
        keys: list[bytes],
        published: npt.NDArray[np.bool_],
        estimates: Int64,
        std_errors: npt.NDArray[np.float64],
        *,
        first: bool = False,
    ) -> None:
        """Rows of one step; first: of keys that were not published before."""
        rows = np.flatnonzero(published)
        if len(rows):
            shown = keys if len(rows) == len(keys) else [keys[i] for i in rows.tolist()]
            self._keys += shown
            if first:
                self.first += shown
            self._estimates.append(estimates[rows])
            self._std_errors.append(std_errors[rows])

    def __len__(self) -> int:
        return len(self._keys)

    def sorted(self) -> tuple[list[bytes], Int64, npt.NDArray[np.float64]]:
        """Keys in byte order with estimates and standard errors, (rows, columns) each, in grid units."""
        if not self._keys:
            empty = np.empty((0, self._columns))
            return [], empty.astype(np.int64), empty
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        return (
            [self._keys[i] for i in order],
            np.concatenate(self._estimates)[order],
            np.concatenate(self._std_errors)[order],
        )
