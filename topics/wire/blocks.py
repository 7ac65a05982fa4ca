"""Declared records of the internal topics: a dataclass declares how its fields are written, and its codec follows from that.

    @dataclass(frozen=True, kw_only=True)
    class Sums(Block):
        partition: Annotated[int, Scalar(least=0)]
        window: Annotated[Int64s, IntColumn()]
        keys: Annotated[list[bytes], Items()]

    CODEC = Codec(Sums, Kind.BLOCK, (HeaderCount("rows"),))

The wire order is: scalars, counts, then the other fields, each in the order of the class. A decoder either returns what
an encoder was given or raises MalformedRecord.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.blobs import BlobColumns, some_of
from susurrus.topics.wire.packing import (
    Int32s,
    Kind,
    MalformedRecord,
    Reader,
    as_column,
    blobs_size,
    column_size,
    pack_blobs,
    pack_column,
    pack_scalar,
)

Heights = dict[str, int]
"""Numbers of rows and items of one record, by the names of its counts."""


@dataclass(frozen=True)
class Scalar:
    """One int64 in [least, most]. make: converts what was read."""

    least: int = -(2**63)
    most: int = 2**63 - 1
    make: Callable[[int], Any] = int

    def problem(self, name: str, value: int) -> str | None:
        """What is wrong with a value, or None."""
        return None if self.least <= value <= self.most else f"{name}={value}: must be in [{self.least}, {self.most}]"


@dataclass(frozen=True)
class HeaderCount:
    """A number of rows or items in the header.

    bytes_each: what one takes at least, 0 where it may take none. most: the largest, a number or an earlier count.
    """

    name: str
    bytes_each: int = 1
    most: int | str = 2**63 - 1

    def problem(self, heights: Heights) -> str | None:
        """What is wrong with this count among all, or None."""
        value, most = heights[self.name], _number(self.most, heights)
        return None if value <= most else f"{self.name}={value} items: must be at most {self.most}={most}"


@dataclass(frozen=True)
class Part:
    """A field after the header. height: rows or items, a number or a count. since: the first version that has it."""

    height: int | str = "rows"
    since: int = 1

    def read(self, reader: Reader, heights: Heights) -> Any:
        """The value. Raises MalformedRecord."""
        raise NotImplementedError


class Bytes(Part):
    """`height` bytes."""

    def read(self, reader: Reader, heights: Heights) -> bytes:
        return reader.raw(_number(self.height, heights))


@dataclass(frozen=True)
class Rest(Part):
    """The bytes up to the record's end."""

    height: int | str = "rest"

    def read(self, reader: Reader, heights: Heights) -> bytes:
        return reader.raw(reader.left)


@dataclass(frozen=True)
class Items(Part):
    """list[bytes]; empty: whether one may be empty; columns: whether they are read as `BlobColumns`."""

    empty: bool = False
    columns: bool = False

    def read(self, reader: Reader, heights: Heights) -> Sequence[bytes]:
        number = _number(self.height, heights)
        return reader.blob_columns(number) if self.columns else reader.blobs(number)


@dataclass(frozen=True)
class IntColumn(Part):
    """int64[height]; varied: the values differ, so that each takes a byte at least."""

    varied: bool = False

    def read(self, reader: Reader, heights: Heights) -> Any:
        return reader.column(_number(self.height, heights))


@dataclass(frozen=True)
class Codes(Part):
    """int32[height], codes into the items of the field `into`; a block holds only items that have a code."""

    into: str = ""

    def read(self, reader: Reader, heights: Heights) -> Int32s:
        return reader.codes(_number(self.height, heights), heights[self.into])


@dataclass(frozen=True)
class Table(Part):
    """int64[height, width], column by column."""

    width: int | str = "columns"

    def read(self, reader: Reader, heights: Heights) -> npt.NDArray[np.int64]:
        values = np.empty((_number(self.height, heights), _number(self.width, heights)), np.int64)
        for index in range(values.shape[1]):
            values[:, index] = reader.column(len(values))
        return values


@dataclass(frozen=True)
class Pairs(Part):
    """Pairs of integers as two columns, of a dict or of tuples; make: which."""

    make: type[dict[int, int]] | type[tuple[Any, ...]] = tuple

    def read(self, reader: Reader, heights: Heights) -> Any:
        first, second = (reader.column(_number(self.height, heights)).tolist() for _ in range(2))
        return self.make(zip(first, second, strict=True))


def _number(height: int | str, heights: Heights) -> int:
    return height if isinstance(height, int) else heights[height]


_PACK: dict[type, Callable[[Any], bytes]] = {bytes: bytes, list: pack_blobs, np.ndarray: pack_column}
_SIZE: dict[type, Callable[[Any], int]] = {bytes: len, list: blobs_size, np.ndarray: column_size}
"""How each type of piece is written, and how many bytes it takes."""


def _pieces(value: Any) -> list[Any]:
    """A value as it is written: bytes, lists of byte strings, and columns."""
    if isinstance(value, np.ndarray):
        return list(value.T) if value.ndim > 1 else [value]
    if isinstance(value, BlobColumns):
        return [value.listed()]
    if isinstance(value, bytes | list):
        return [value]
    pairs = list(value.items() if isinstance(value, dict) else value)
    return [as_column([pair[side] for pair in pairs]) for side in (0, 1)]


def _measure(name: str, part: Part, value: Any, heights: Heights) -> None:
    """Note the heights of a field. Raises ValueError where they contradict earlier ones, or the value is impossible."""
    shape = value.shape if isinstance(value, np.ndarray) else (len(value),)
    wanted = (part.height, part.width) if isinstance(part, Table) else (part.height,)
    expected = [height if isinstance(height, int) else heights.get(height) for height in wanted]
    if len(shape) != len(wanted) or any(n not in (None, size) for size, n in zip(shape, expected, strict=True)):
        raise ValueError(f"{name} of shape {shape} bytes, items or numbers and {wanted}={expected} do not make a block")
    heights.update({height: n for height, n in zip(wanted, shape, strict=True) if isinstance(height, str)})
    if isinstance(part, Items) and not part.empty and b"" in value:
        raise ValueError(f"one of {name} is empty, which no JSON and no state key is: it must be left out")
    if isinstance(part, IntColumn) and part.varied and len(value) > 1 and int(value.min()) == int(value.max()):
        raise ValueError(f"the rows share one {name}: they must be distinct")
    if isinstance(part, Codes) and len(value) and not 0 <= int(value.min()) <= int(value.max()) < heights[part.into]:
        raise ValueError(f"codes of {name} point outside a list of {heights[part.into]} items")


class BlockRecord:
    """A dataclass whose fields are Annotated[type, Scalar() or a Part]. declared: these annotations, by field."""

    __slots__ = ()
    declared: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True).items()
        cls.declared = {name: hint.__metadata__[0] for name, hint in hints if hasattr(hint, "__metadata__")}


class Block(BlockRecord):
    """A record with rows."""

    __slots__ = ()

    def __len__(self) -> int:
        """Number of rows."""
        parts = self.declared.items()
        return len(next(getattr(self, name) for name, part in parts if getattr(part, "height", None) == "rows"))

    def take(self, rows: npt.NDArray[np.integer[Any]] | slice) -> Self:
        """The block of some of the rows, with only the items that their codes need."""
        changes: dict[str, Any] = {}
        for name, part in self.declared.items():
            value = getattr(self, name)
            if isinstance(part, Codes):
                changes[name], changes[part.into] = _narrow(value[rows], getattr(self, part.into))
            elif getattr(part, "height", None) == "rows" and value is not None:
                by_index = isinstance(value, list) and not isinstance(rows, slice)
                changes[name] = [value[row] for row in rows.tolist()] if by_index else value[rows]  # type: ignore[union-attr]
        return replace(self, **changes)  # type: ignore[type-var]  # every subclass is a dataclass


def _narrow(codes: Int32s, items: Sequence[bytes]) -> tuple[Int32s, Sequence[bytes]]:
    """Codes into a list of only the items that they use, in the same order."""
    used = np.zeros(len(items), np.bool_)
    used[codes] = True
    if used.all():
        return codes, items
    renumbered = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return renumbered[codes], some_of(items, np.flatnonzero(used))


Declared = TypeVar("Declared", bound=BlockRecord)
Rows = TypeVar("Rows", bound=Block)


class Codec(Generic[Declared]):
    """Bytes of a declared record.

    version: the first one. A field with a later `since` may be None; a record that has it is of that later version.
    body: the order of the fields after the header, where it is not that of the class. impossible: what is wrong with a
    record although each field is possible, or None.
    """

    def __init__(
        self,
        block: type[Declared],
        kind: Kind,
        counts: Sequence[HeaderCount] = (),
        *,
        version: int = 1,
        body: Sequence[str] = (),
        impossible: Callable[[Declared], str | None] = lambda block: None,
    ) -> None:
        declared = block.declared
        self._block, self._kind, self._counts, self._impossible = block, kind, counts, impossible
        self._scalars: dict[str, Scalar] = {n: part for n, part in declared.items() if isinstance(part, Scalar)}
        self._parts: dict[str, Part] = {n: declared[n] for n in body or declared if n not in self._scalars}
        self._versions = sorted({version, *(max(version, part.since) for part in self._parts.values())})

    def _fields(self, block: Declared) -> dict[str, Any]:
        """The fields after the header that this block has."""
        values = ((name, getattr(block, name)) for name in self._parts)
        return {name: value for name, value in values if value is not None}

    def encode(self, block: Declared) -> bytes:
        """One record. Raises ValueError when the fields do not fit together or a value is impossible."""
        heights: Heights = {}
        fields = self._fields(block)
        for name in sorted(
            fields, key=lambda name: isinstance(self._parts[name], Codes)
        ):  # after the items they point to
            _measure(name, self._parts[name], fields[name], heights)
        scalars = {name: getattr(block, name) for name in self._scalars}
        problems = [self._scalars[name].problem(name, value) for name, value in scalars.items()]
        for problem in (*problems, *(count.problem(heights) for count in self._counts), self._impossible(block)):
            if problem is not None:
                raise ValueError(problem)
        version = max(self._versions[0], *(self._parts[name].since for name in fields))
        numbers = (*scalars.values(), *(heights[count.name] for count in self._counts))
        pieces = (piece for value in fields.values() for piece in _pieces(value))
        packed = (*map(pack_scalar, map(int, numbers)), *(_PACK[type(piece)](piece) for piece in pieces))
        return bytes((self._kind, version)) + b"".join(packed)

    def decode(self, data: bytes) -> Declared:
        """The block of one record, its arrays fresh and writable. Raises MalformedRecord."""
        reader = Reader(data, self._kind, *self._versions)
        values: dict[str, Any] = {}
        heights: Heights = {}
        for name, scalar in self._scalars.items():
            number = reader.scalar()
            _refuse(scalar.problem(name, number))
            values[name] = scalar.make(number)
        for count in self._counts:
            heights[count.name] = reader.count(bytes_each=count.bytes_each)
            _refuse(count.problem(heights))
        for name, part in self._parts.items():
            values[name] = part.read(reader, heights) if part.since <= reader.version else None
        reader.finish()
        block = self._block(**values)
        _refuse(self._impossible(block))
        return block

    def size(self, block: Declared) -> int:
        """len(encode(block)), at a fraction of the cost."""
        pieces = [piece for value in self._fields(block).values() for piece in _pieces(value)]
        return 2 + 8 * (len(self._scalars) + len(self._counts)) + sum(_SIZE[type(piece)](piece) for piece in pieces)


class BlockCodec(Codec[Rows]):
    """Bytes of a declared block, which may be split."""

    def split(self, block: Rows, max_bytes: int) -> Iterator[Rows]:
        """The block in pieces whose records are at most max_bytes long, rows in order; nothing for an empty block.

        Raises ValueError when a single row is longer than that.
        """
        if not len(block):
            return
        size = self.size(block)
        if size <= max_bytes:
            yield block
            return
        if len(block) == 1:
            raise ValueError(f"one row takes {size} bytes, more than max_bytes={max_bytes}: raise max.message.bytes")
        half = len(block) // 2
        yield from self.split(block.take(slice(0, half)), max_bytes)
        yield from self.split(block.take(slice(half, None)), max_bytes)


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise MalformedRecord(problem)
