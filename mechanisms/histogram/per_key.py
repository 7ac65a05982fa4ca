"""Structures of arrays with one row per key, and the histories among them: lists of different lengths, compressed by key."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class PerKey:
    """The base of frozen dataclasses whose fields are arrays with one row per key, or `PerKey` themselves."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, index: npt.NDArray[np.intp]) -> Self:
        """The rows at these positions, in this order."""

        def rows(value: Any) -> Any:
            return value.take(index) if isinstance(value, PerKey) else value[index]

        return type(self)(**{each.name: rows(getattr(self, each.name)) for each in fields(self)})

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The rows of one after the other; at least one part."""

        def joined(values: Sequence[Any]) -> Any:
            first = values[0]
            return type(first).concatenate(values) if isinstance(first, PerKey) else np.concatenate(values)

        return cls(**{each.name: joined([getattr(part, each.name) for part in parts]) for each in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Histories(PerKey):
    """Which selection weight was brought at which trigger, for k keys. The entries of a key stand together, by trigger.

    indptr int64[k + 1]: where the entries of each key begin and end; when int32[entries]: triggers; weight int64[entries].
    """

    indptr: Int64s
    when: npt.NDArray[np.int32]
    weight: Int64s

    @classmethod
    def empty(cls, size: int) -> Self:
        """The entries of keys to which nothing was brought."""
        return cls(indptr=np.zeros(size + 1, np.int64), when=np.empty(0, np.int32), weight=np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def lengths(self) -> Int64s:
        """int64[k]: entries of each key."""
        return np.diff(self.indptr)

    @property
    def owner(self) -> Int64s:
        """int64[entries]: the position of each entry's key."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def totals(self) -> Int64s:
        """int64[k]: the weight of each key."""
        return segment_sums(self.weight, self.indptr)

    def take(self, index: npt.NDArray[np.intp]) -> Self:
        """The histories at these positions, in this order."""
        lengths = self.lengths[index]
        indptr = offsets(lengths)
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[:-1][index] - indptr[:-1], lengths)
        return type(self)(indptr=indptr, when=self.when[entries], weight=self.weight[entries])

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The histories of one after the other; at least one part."""
        return cls(
            indptr=offsets(np.concatenate([part.lengths for part in parts])),
            when=np.concatenate([part.when for part in parts]),
            weight=np.concatenate([part.weight for part in parts]),
        )

    def plus(self, trigger: int, weight: Int64s) -> Self:
        """Returns these entries with one of this trigger for each key whose weight, int64[k], is not zero."""
        added = weight != 0
        indptr = offsets(self.lengths + added)
        when, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
        old = np.arange(len(self.when)) + np.repeat(indptr[:-1] - self.indptr[:-1], self.lengths)
        when[old], weights[old] = self.when, self.weight
        new = indptr[1:][added] - 1
        when[new], weights[new] = trigger, weight[added]
        return type(self)(indptr=indptr, when=when, weight=weights)

    def without(self, keys: Bools) -> Self:
        """Returns these entries without those of some keys: bool[k]."""
        stay = ~keys[self.owner]
        return type(self)(
            indptr=offsets(np.where(keys, 0, self.lengths)), when=self.when[stay], weight=self.weight[stay]
        )


def offsets(lengths: Int64s) -> Int64s:
    """int64[k + 1]: where each of k segments begins and ends."""
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def segment_sums(values: Int64s, indptr: Int64s) -> Int64s:
    """Exact int64 sum of each segment along axis 0; zero for empty ones."""
    total = np.zeros((len(values) + 1, *values.shape[1:]), np.int64)
    np.cumsum(values, axis=0, out=total[1:])
    difference: Int64s = np.subtract(total[indptr[1:]], total[indptr[:-1]])
    return difference
