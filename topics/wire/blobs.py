"""Byte strings of a record as columns: no Python object for each of them until somebody asks for it.

record ──Reader.columns_of_blobs──▶ BlobColumns ──take, listed──▶ some of them, or bytes objects
"""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

PADDING = 8
"""Bytes behind the last byte string, so that words can be read from anywhere."""


class BlobColumns(Sequence[bytes]):
    """n byte strings: number i has length[i] bytes of data from start[i] on. start, length: int64[n]. data: with ``PADDING``."""

    __slots__ = ("data", "length", "start")

    def __init__(self, data: bytes, start: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> None:
        self.data, self.start, self.length = data, start, length

    def __len__(self) -> int:
        """Number of byte strings."""
        return len(self.length)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "BlobColumns": ...
    def __getitem__(self, index: int | slice) -> "bytes | BlobColumns":
        if isinstance(index, slice):
            return BlobColumns(self.data, self.start[index], self.length[index])
        start = int(self.start[index])
        return self.data[start : start + int(self.length[index])]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.listed())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.listed() == list(other)

    __hash__ = None  # type: ignore[assignment]  # as lists

    def listed(self) -> list[bytes]:
        """All of them as objects."""
        data, ends = self.data, (self.start + self.length).tolist()
        return [data[start:end] for start, end in zip(self.start.tolist(), ends, strict=True)]

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> "BlobColumns":
        """Some of them, in this order."""
        return BlobColumns(self.data, self.start[rows], self.length[rows])


def some_of(items: Sequence[bytes], rows: npt.NDArray[np.integer[Any]]) -> Sequence[bytes]:
    """Items in this order, in the form in which they are given: columns, or a list."""
    return items.take(rows) if isinstance(items, BlobColumns) else [items[row] for row in rows.tolist()]
