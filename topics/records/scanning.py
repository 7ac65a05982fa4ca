"""Record batches to columns in compiled code: what raw events (raw_batches.py) and values have in common.

The scanner (topics/rust) reads record batches as they came from the broker. It takes only rows whose result is beyond doubt that of
the Python path: plain strings, integers, short decimals. All other rows are left, and the caller decodes these as ever.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from susurrus.topics.compiled import compiled
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Chunk, JsonReader
from susurrus.topics.records.time_numbers import TimeUnit, parts_of, stamps_of
from susurrus.topics.wire.batch_reader import MalformedBatch, unpack_headers
from susurrus.topics.wire.packing import Int32s, Int64s

_INT64 = range(-(2**63), 2**63)
_NO_STAMPS: Final = (1, 0)


class DecompressedBatch(NamedTuple):
    """The records of one record batch of message format 2, decompressed: ``data[first:last]``, and what its header says."""

    data: bytes
    first: int
    last: int
    base_offset: int
    first_timestamp: int
    max_timestamp: int
    append_time: bool
    number: int
    """How many there are."""
    span: int
    """How many offsets the batch has: more than records where some were compacted away."""


class InputRecord(NamedTuple):
    """One record, as a stage sees it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    packed_headers: bytes = b"\0"
    """As they are in the batch, behind their number."""

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """In their order."""
        return unpack_headers(self.packed_headers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodedScalars:
    """Users, keys or streams. codes: int32[n], in order of first occurrence among the rows taken, -1 for rows left.

    items: canonical JSON by code. placements: uint32 each, see `partitioner.placements`.
    """

    codes: Int32s
    items: list[bytes]
    placements: npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scanned(Sequence[InputRecord]):
    """Records of some sections, and what was found in their values. As a sequence it makes objects of single records.

    offset, timestamp: int64[n]. timestamp_type: uint8[n]. left: int64, the rows to be decoded in Python, in order. beyond: how many
    records came behind the last offset wanted. numbers: float64[n] each, 0 for rows left. times: int64[n] in ms; 0 for rows left;
    empty if there is none.
    """

    sections: Sequence[DecompressedBatch]
    starts: Int64s
    """The first row of each section."""
    places: Int32s
    """int32[n, 4]: in the data of its section, where the key and the value of a record begin and end; -1 where there is none."""
    offset: Int64s
    timestamp: Int64s
    timestamp_type: npt.NDArray[np.uint8]
    left: Int64s
    left_headers: Int32s
    """int32[len(left), 2]: where the headers of the rows left begin and end, as ``places``."""
    beyond: int
    groups: list[CodedScalars]
    numbers: list[npt.NDArray[np.float64]]
    times: Int64s

    def __len__(self) -> int:
        return len(self.offset)

    @overload
    def __getitem__(self, row: int) -> InputRecord: ...
    @overload
    def __getitem__(self, row: slice) -> list[InputRecord]: ...
    def __getitem__(self, row: int | slice) -> InputRecord | list[InputRecord]:
        """Copies of single records."""
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        data = self.sections[int(np.searchsorted(self.starts, row, "right")) - 1].data
        key, key_end, value, value_end = self.places[row].tolist()
        return InputRecord(
            int(self.offset[row]),
            int(self.timestamp[row]),
            int(self.timestamp_type[row]),
            None if key < 0 else data[key:key_end],
            None if value < 0 else data[value:value_end],
        )

    def rest(self) -> list[InputRecord]:
        """The rows left, with their headers."""
        owners = (np.searchsorted(self.starts, self.left, "right") - 1).tolist()
        headers = [
            self.sections[owner].data[start:end]
            for owner, (start, end) in zip(owners, self.left_headers.tolist(), strict=True)
        ]
        return [
            self[row]._replace(packed_headers=packed) for row, packed in zip(self.left.tolist(), headers, strict=True)
        ]

    def values(self, rows: Int64s) -> list[bytes | None]:
        """The values of some rows."""
        owners = np.searchsorted(self.starts, rows, "right") - 1
        places = self.places[rows, 2:].tolist()
        sections = self.sections
        return [
            None if start < 0 else sections[owner].data[start:end]
            for owner, (start, end) in zip(owners.tolist(), places, strict=True)
        ]


class UnknownNumbers(Exception):
    """A record has to wait for its schema: the caller reads all of them by the definition, which says what waits."""


Over = Callable[[int, int], bool]
"""Whether a record, by its offset and its time stamp, may no longer wait for a schema that cannot be had."""


def never(offset: int, stamp: int) -> bool:
    """No record is over."""
    return False


def over_by_row(records: Sequence[Any], over: Over) -> Callable[[int], bool]:
    """The same of a row of records."""
    return lambda row: over(records[row].offset, records[row].timestamp)


class ValueSource(Protocol):
    """Reads the values of one source: what the scanner needs for that, and the definition for the rows that it leaves."""

    @property
    def framed(self) -> Any:
        """The programs of the schemas that records name (`compiled.Framed`); None where values are JSON."""

    def learn(self, numbers: Sequence[int]) -> bool:
        """Adds to ``framed`` what can be had now of these numbers of schemas; whether that was anything."""

    def read(self, scanned: Scanned, over: Over) -> Iterator[Chunk]:
        """The fields of the rows left, chunk by chunk. Raises UnknownNumbers where one has to wait, and nothing for what a record
        holds."""


class JsonSource:
    """Plain JSON. paths: of the fields."""

    framed = None

    def __init__(self, paths: Sequence[Path]) -> None:
        self._reader = JsonReader(paths)

    def learn(self, numbers: Sequence[int]) -> bool:
        """There is nothing to learn."""
        return False

    def read(self, scanned: Scanned, over: Over) -> Iterator[Chunk]:
        """Reads as `ValueSource.read` does."""
        return self._reader.read(scanned.values(scanned.left))


class FoundFields:
    """The fields of some records, before it is known which records count and what is computed of them.

    scanned: the records, of which those that are no plain ones are left already. headers: where the headers of all records are,
    int32[n, 2].
    """

    def __init__(self, scanned: Scanned, headers: Int32s, found: Any) -> None:
        self.scanned, self._headers, self._found = scanned, headers, found

    def __len__(self) -> int:
        return len(self.scanned)

    def kinds(
        self, paths: Sequence[int], rows: Int64s, longest: int
    ) -> tuple[list[tuple[tuple[int, ...], Int64s]], Int64s]:
        """Some rows by the kinds of their own fields at these paths; and the rows that have a field of no such kind, or a text of
        more than ``longest`` bytes. Kinds are numbered as in agents/expressions/kinds.py."""
        groups, left = self._found.kinds(list(paths), rows.tobytes(), longest)
        return [(tuple(kinds), np.frombuffer(members, np.int64)) for kinds, members in groups], np.frombuffer(
            left, np.int64
        )

    def alike(self, paths: Sequence[int], rows: Int64s) -> tuple[Int64s, npt.NDArray[np.uint32]] | None:
        """One row each of those that have the same fields at these paths, and for all rows which of these they are like. None where
        that is no gain."""
        found = self._found.alike(list(paths), rows.tobytes())
        return None if found is None else (np.frombuffer(found[0], np.int64), np.frombuffer(found[1], np.uint32))

    def table(self, paths: Sequence[int], kinds: Sequence[int], rows: Int64s) -> Any:
        """The fields at these paths in rows of the same kinds, as something that exports an Arrow stream: the columns c0, c1, …,
        but none for nulls. Its attribute ``longest`` is the size of its longest text in bytes."""
        return self._found.table(list(paths), bytes(kinds), rows.tobytes())

    def coded(self, rows: Int64s, results: Sequence[Any], decided: npt.NDArray[np.bool_]) -> Scanned:
        """The records with the columns of the layout. rows: those that count, ascending. results: what was computed of these, a
        `compiled.Results` for each scalar. decided: bool[n], the rows that are left out and not to be decoded in Python."""
        columns, left = self._found.coded(rows.tobytes(), list(results))
        groups, numbers, times = _columns(columns)
        others = ~decided
        others[rows] = False
        others[np.frombuffer(left, np.int64)] = True
        rest = np.flatnonzero(others)
        return replace(
            self.scanned,
            left=rest,
            left_headers=self._headers[rest],
            groups=groups,
            numbers=numbers,
            times=times,
        )


class Scanner:
    """Finds scalars of values in record batches; only where ``compiled`` is there.

    source: what reads the values. paths: of the fields. groups: for each the numbers of its parts among the paths (none: the
    record's own key as a string), whether null is an item of its own, whether the empty text is one, and the longest canonical text
    in bytes. numbers: the paths of the measured fields. time: that of the event time, and what of it may be taken
    (`TimeReader.scanned`). computed: how many scalars are no fields; their numbers are behind those of the paths, and only `find`
    knows them.
    """

    def __init__(
        self,
        source: ValueSource,
        paths: Sequence[Path],
        groups: Sequence[tuple[Sequence[int], bool, bool, int]],
        numbers: Sequence[int],
        time: tuple[int, TimeUnit | None] | None,
        computed: int = 0,
    ) -> None:
        times = None
        if time is not None:
            path, unit = time
            # Without a unit no integer lies within, and all rows are left.
            taken = (*_NO_STAMPS, 1, 1) if unit is None or unit == "iso" else (*stamps_of(unit), *parts_of(unit))
            times = (path, unit == "iso", *taken)
        self._learn = source.learn
        self._compiled: Any = compiled.Scanner(
            list(map(list, paths)), list(groups), list(numbers), times, source.framed, computed
        )

    def scan(self, sections: Sequence[DecompressedBatch], start: int, below: int | None = None) -> Scanned:
        """The records with start <= offset < below. Raises MalformedBatch."""
        facts, columns = self._read(self._compiled.scan, sections, start, below)
        return _scanned(sections, facts, columns)

    def find(self, sections: Sequence[DecompressedBatch], start: int, below: int | None = None) -> FoundFields:
        """The same records, of which only the fields were found yet. Raises as `scan`."""
        facts, found = self._read(self._compiled.find, sections, start, below)
        scanned = _scanned(sections, facts, ([], [], b""))
        return FoundFields(
            replace(scanned, left_headers=scanned.left_headers[scanned.left]), scanned.left_headers, found
        )

    def _read(self, read: Any, sections: Sequence[DecompressedBatch], start: int, below: int | None) -> tuple[Any, Any]:
        last = _INT64[-1] if below is None else below
        try:
            facts, found, unknown = read(list(sections), start, last)
            if unknown and self._learn(unknown):
                facts, found, _ = read(list(sections), start, last)
        except (ValueError, OverflowError) as error:
            raise MalformedBatch(*error.args) from None
        return facts, found


def _scanned(sections: Sequence[DecompressedBatch], facts: Any, columns: Any) -> Scanned:
    """facts, columns: as topics/rust/src/scanner.rs has them."""
    offset, timestamp, places, counts, left, headers, beyond = facts
    groups, numbers, times = _columns(columns)
    kinds = np.array([section.append_time for section in sections], np.uint8)
    return Scanned(
        sections=sections,
        starts=np.cumsum([0, *counts[:-1]], dtype=np.int64)[: len(counts)],
        places=np.frombuffer(places, np.int32).reshape(-1, 4),
        offset=np.frombuffer(offset, np.int64),
        timestamp=np.frombuffer(timestamp, np.int64),
        timestamp_type=np.repeat(kinds, counts),
        left=np.frombuffer(left, np.int64),
        left_headers=np.frombuffer(headers, np.int32).reshape(-1, 2),
        beyond=beyond,
        groups=groups,
        numbers=numbers,
        times=times,
    )


def _columns(columns: Any) -> tuple[list[CodedScalars], list[npt.NDArray[np.float64]], Int64s]:
    groups, numbers, times = columns
    return (
        [
            CodedScalars(
                codes=np.frombuffer(codes, np.int32), items=items, placements=np.frombuffer(placements, np.uint32)
            )
            for codes, items, placements in groups
        ],
        [np.frombuffer(column, np.float64) for column in numbers],
        np.frombuffer(times, np.int64),
    )
