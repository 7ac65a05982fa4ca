"""The columns of one trigger: the increments of an interval gathered by window and key, and the rows to be published."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Floats, Int64s
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.histogram.strategy import Increments, Step, Strategy
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.topics.bounded import LIST_COLUMNS, BoundedBlock


@dataclass(frozen=True, slots=True)
class Gathered:
    """Exact increments of one window in one interval, keys in byte order. ``index``: key -> row."""

    keys: list[bytes]
    index: dict[bytes, int]
    users: Int64s
    weight: Int64s
    sums: Int64s
    lists: Int64s | None = None
    """(n, 3), at a last trigger: what the users' lists add, where the strategy needs them."""

    @classmethod
    def nothing(cls, columns: int) -> Self:
        """A trigger without news."""
        none = np.empty(0, np.int64)
        return cls([], {}, none, none, np.empty((0, columns), np.int64))

    def increments(self, keys: list[bytes], unit: Int64s | None) -> Increments:
        """What these keys get, zeros without news. unit: int64[n] of `ListSums`, where the users' lists are measured."""
        at = np.fromiter(map(self.index.get, keys, repeat(-1)), np.int64, len(keys))
        has_news = np.flatnonzero(at >= 0)
        row = at[has_news]

        def of_keys(column: Int64s) -> Int64s:
            found = np.zeros((len(keys), *column.shape[1:]), np.int64)
            found[has_news] = column[row]
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
        index = dict(zip(keys, range(len(keys)), strict=True))
        users, weight = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        sums = np.zeros((len(keys), columns), np.int64)
        lists: Int64s | None = None
        for part in parts:
            at = np.fromiter(map(index.__getitem__, part.keys), np.int64, len(part))
            np.add.at(users, at, part.users)
            np.add.at(weight, at, part.weight)
            np.add.at(sums, at, part.sums)
            if part.lists is not None:
                lists = np.zeros((len(keys), LIST_COLUMNS), np.int64) if lists is None else lists
                np.add.at(lists, at, part.lists)
        result[start] = Gathered(keys, index, users, weight, sums, lists)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothed:
    """Numbers of rows that also use the window before. estimates int64, std_errors float64: [n, columns], in grid units; present:
    bool[n, columns], where they are. rates, rate_variances: float64[n, columns], what the next window is told; zeros before the
    last trigger."""

    estimates: Int64s
    std_errors: Floats
    present: Bools
    rates: Floats
    rate_variances: Floats

    @classmethod
    def nothing(cls, rows: "SortedRows") -> Self:
        """Of these rows, none yet."""
        shape = rows.estimates.shape
        return cls(
            estimates=np.zeros(shape, np.int64),
            std_errors=np.zeros(shape),
            present=np.zeros(shape, np.bool_),
            rates=np.zeros(shape),
            rate_variances=np.zeros(shape),
        )

    def put(self, rows: npt.NDArray[np.intp], column: int, estimates: Floats, std_errors: Floats) -> None:
        """Round and enter them at these rows. The errors are those before rounding."""
        self.estimates[rows, column] = np.rint(estimates).astype(np.int64)
        # Rounding to an integer adds at most a uniform error: variance 1/12.
        self.std_errors[rows, column] = np.sqrt(std_errors * std_errors + 1 / 12)
        self.present[rows, column] = True

    def take(self, rows: npt.NDArray[np.intp]) -> Self:
        """Those at these places, in this order."""
        return type(self)(
            estimates=self.estimates[rows],
            std_errors=self.std_errors[rows],
            present=self.present[rows],
            rates=self.rates[rows],
            rate_variances=self.rate_variances[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedRows:
    """Rows with their keys in byte order.

    estimates int64, std_errors float64: [n, columns], in grid units. direct: both before calibration, or None where there is none.
    smoothed: None where no row has such numbers.
    """

    keys: list[bytes]
    estimates: Int64s
    std_errors: Floats
    direct: tuple[Int64s, Floats] | None
    smoothed: Smoothed | None = None

    @property
    def newest(self) -> tuple[Int64s, Floats]:
        """(estimates, std_errors), [n, columns]: smoothed ones where there are such."""
        if (smoothed := self.smoothed) is None:
            return self.estimates, self.std_errors
        return (
            np.where(smoothed.present, smoothed.estimates, self.estimates),
            np.where(smoothed.present, smoothed.std_errors, self.std_errors),
        )

    def take(self, rows: npt.NDArray[np.intp]) -> "SortedRows":
        """Those at these places, in this order."""
        return SortedRows(
            keys=[self.keys[row] for row in rows.tolist()],
            estimates=self.estimates[rows],
            std_errors=self.std_errors[rows],
            direct=None if self.direct is None else (self.direct[0][rows], self.direct[1][rows]),
            smoothed=None if self.smoothed is None else self.smoothed.take(rows),
        )


class Rows:
    """Collects what a trigger publishes; one sort at the end, by key."""

    def __init__(self, columns: int) -> None:
        self._keys: list[bytes] = []
        self.first: list[bytes] = []
        """Keys that are published for the first time."""
        # Each starts with no rows, so that it can always be joined.
        none, exact = np.empty((0, columns), np.int64), np.empty((0, columns))
        self._estimates, self._std_errors = [none], [exact]
        self._calibrated: tuple[Int64s, Floats] | None = None
        self._pooled: list[npt.NDArray[np.intp]] = [np.empty(0, np.intp)]
        self._evidence: list[Int64s] = []

    def add(self, keys: list[bytes], step: Step[Any], *, first: bool = False) -> None:
        """Rows of one step; first: of keys that were not published before."""
        rows = np.flatnonzero(step.published)
        if step.pooled_rows is not None:
            self._pooled.append(len(self._keys) + np.searchsorted(rows, step.pooled_rows.index))
            self._evidence.append(step.pooled_rows.evidence)
        if not len(rows):
            return
        shown = keys if len(rows) == len(keys) else [keys[i] for i in rows.tolist()]
        self._keys += shown
        if first:
            self.first += shown
        self._estimates.append(step.estimates[rows])
        self._std_errors.append(step.std_errors[rows])

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> list[bytes]:
        """The keys of the rows, in no order."""
        return self._keys

    @property
    def evidence(self) -> Int64s:
        """int64[f, e] of the rows that are to be calibrated; (0, 0) for a trigger without keys."""
        return joined_evidence(self._evidence)

    def calibrate(self, strategy: Strategy[Any], pooled: Int64s) -> None:
        """Calibrate these rows with the evidence of all partitions, int64[n, e]."""
        estimates, std_errors = np.concatenate(self._estimates), np.concatenate(self._std_errors)
        rows = np.concatenate(self._pooled)
        if len(rows):
            calibrated = strategy.calibrate(estimates[rows], std_errors[rows], self.evidence, pooled)
            estimates[rows], std_errors[rows] = calibrated
        self._calibrated = estimates, std_errors

    @property
    def is_calibrated(self) -> bool:
        """Whether `calibrate` has been called."""
        return self._calibrated is not None

    def sorted(self) -> SortedRows:
        """The rows in the order of their keys."""
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        direct = np.concatenate(self._estimates)[order], np.concatenate(self._std_errors)[order]
        keys = [self._keys[i] for i in order]
        if self._calibrated is None:
            return SortedRows(keys=keys, estimates=direct[0], std_errors=direct[1], direct=None)
        estimates, std_errors = self._calibrated
        return SortedRows(keys=keys, estimates=estimates[order], std_errors=std_errors[order], direct=direct)


def joined_evidence(parts: Iterable[Int64s]) -> Int64s:
    """int64[n, e] of several; (0, 0) where all are empty, for a partition without keys does not know e."""
    some = [part for part in parts if len(part)]
    return np.concatenate(some) if some else np.empty((0, 0), np.int64)
