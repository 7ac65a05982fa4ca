"""Parts of the binary records of the internal topics; blocks.py makes codecs of them from declarations.

A record is: kind (1 byte), version (1 byte), then fields in a fixed order, integers little-endian. Three kinds of
field:

    scalar    int64, 8 bytes
    column    n integers: base int64, width byte in {0, 1, 2, 4, 8}, then n unsigned differences to the base of that
              width. A constant column (the window, mostly) costs 9 bytes, an offset column two or four bytes a row.
    blobs     m byte strings: their lengths as a column, then all of them joined

Every count and length is checked against the bytes that are left, and a record must be read to its last byte. So a decoder
either returns what an encoder was given or raises MalformedRecord.
"""

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.blobs import PADDING, BlobColumns

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

_INT64 = struct.Struct("<q")
_WIDTHS = {0: None, 1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}
_INT64_MAX = 2**63 - 1
_WORD = 2**64 - 1

MAX_COLUMNS = 64
"""Value columns of a block; a constant column costs nine bytes at any height, so a decoder needs a bound."""


class MalformedRecord(ValueError):
    """The bytes are no record of this format. Operator action: find out who else writes to this internal topic."""


class Kind(IntEnum):
    """First byte of a record of an internal topic."""

    BLOCK = 1
    TICK = 2
    COMMIT = 3
    EVIDENCE = 4
    LASTING = 5


def kind_of(data: bytes) -> Kind:
    """What a record of by-user, bounded or published-keys is, by its first byte. Raises MalformedRecord for anything else."""
    try:
        return Kind(data[0])
    except (IndexError, ValueError):
        raise MalformedRecord(f"record kind={data[:1].hex() or 'none'} is unknown") from None


def width_of(low: int, high: int) -> int:
    """Bytes per row of a column whose values lie in [low, high]."""
    spread = high - low
    return 0 if spread == 0 else 1 if spread < 1 << 8 else 2 if spread < 1 << 16 else 4 if spread < 1 << 32 else 8


def column_size(column: npt.NDArray[np.integer]) -> int:
    """Exact encoded size of a column, without encoding it."""
    n = column.size
    return 9 + (n * width_of(int(column.min()), int(column.max())) if n else 0)


def blobs_size(blobs: Sequence[bytes]) -> int:
    """Exact encoded size of a list of byte strings, without encoding it."""
    if not blobs:
        return 9
    lengths = np.fromiter(map(len, blobs), np.int64, len(blobs))
    return column_size(lengths) + int(lengths.sum())


def pack_scalar(value: int) -> bytes:
    """One int64."""
    return _INT64.pack(value)


def pack_column(column: npt.NDArray[np.integer]) -> bytes:
    """A one-dimensional integer column; its length is written elsewhere."""
    if not column.size:
        return _INT64.pack(0) + b"\0"
    low, high = int(column.min()), int(column.max())
    width = width_of(low, high)
    dtype = _WIDTHS[width]
    head = _INT64.pack(low) + bytes((width,))
    if dtype is None:
        return head
    # Unsigned arithmetic modulo 2^64, so that even the full range of int64 has a spread.
    words = np.ascontiguousarray(column, np.int64).view(np.uint64) - np.uint64(low & _WORD)
    return head + words.astype(dtype).tobytes()


def pack_blobs(blobs: Sequence[bytes]) -> bytes:
    """Byte strings; their number is written elsewhere."""
    return b"".join([pack_column(np.fromiter(map(len, blobs), np.int64, len(blobs))), *blobs])


class Reader:
    """Takes the fields of one record apart, in the order they were written."""

    def __init__(self, data: bytes, kind: Kind, *versions: int) -> None:
        if len(data) < 2 or data[0] != kind:
            raise MalformedRecord(f"record kind={data[:1].hex() or 'none'} where {kind.name} was expected")
        self.version = data[1]
        if self.version not in versions:
            known = " or ".join(map(str, versions))
            raise MalformedRecord(
                f"{kind.name} version={self.version} is not {known}: upgrade the readers before the writers"
            )
        self._data = data
        self._at = 2

    @property
    def left(self) -> int:
        """Bytes that were not taken yet."""
        return len(self._data) - self._at

    def raw(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise MalformedRecord(f"field of size={size} at={self._at} runs over the record's end={len(self._data)}")
        data = self._data[self._at : end]
        self._at = end
        return data

    def scalar(self) -> int:
        """One int64."""
        value: int = _INT64.unpack(self.raw(8))[0]
        return value

    def count(self, *, bytes_each: int = 1) -> int:
        """A number of rows or items; refused where that many cannot follow, before anything is allocated for them."""
        value = self.scalar()
        if value < 0 or value * bytes_each > self.left:
            raise MalformedRecord(f"count={value} at={self._at - 8} is impossible")
        return value

    def column(self, n: int) -> Int64s:
        """int64[n], writable, every value inside int64."""
        low = self.scalar()
        width = self.raw(1)[0]
        if width not in _WIDTHS:
            raise MalformedRecord(f"column width={width} at={self._at - 1} is unknown")
        dtype = _WIDTHS[width]
        if dtype is None:
            return np.full(n, low, np.int64)
        differences = np.frombuffer(self.raw(n * width), dtype)
        if n and low + int(differences.max()) > _INT64_MAX:
            raise MalformedRecord(f"column at={self._at} leaves int64")
        return (differences.astype(np.uint64) + np.uint64(low & _WORD)).view(np.int64)

    def codes(self, n: int, size: int) -> Int32s:
        """int32[n] of codes into a list of `size` items."""
        codes = self.column(n)
        if n and (int(codes.min()) < 0 or int(codes.max()) >= size):
            raise MalformedRecord(f"codes point outside a list of {size} items")
        return codes.astype(np.int32)

    def blobs(self, n: int) -> list[bytes]:
        """n byte strings."""
        lengths = self._lengths(n)
        data, start = self._data, self._at
        ends = list(accumulate(lengths.tolist(), initial=start))
        self._at = ends[-1]
        return [data[a:b] for a, b in pairwise(ends)]

    def blob_columns(self, n: int) -> BlobColumns:
        """n byte strings, as columns."""
        lengths = self._lengths(n)
        ends = np.cumsum(lengths)
        data = self.raw(int(ends[-1]) if n else 0)
        return BlobColumns(data + bytes(PADDING), ends - lengths, lengths)

    def _lengths(self, n: int) -> Int64s:
        """int64[n], of byte strings that the record has."""
        lengths = self.column(n)
        if n and int(lengths.min()) < 0:
            raise MalformedRecord("a byte string has a negative length")
        if n and (int(lengths.max()) > self.left or int(lengths.sum()) > self.left):
            raise MalformedRecord(f"byte strings run over the record's end={len(self._data)}")
        return lengths

    def finish(self) -> None:
        """The record must end here."""
        if self.left:
            raise MalformedRecord(f"{self.left} bytes follow the record's end")


def as_column(values: Iterable[int] | npt.NDArray[np.integer]) -> Int64s:
    """int64 column of an iterable or array."""
    return np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int64)
