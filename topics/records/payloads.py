"""Payloads to the fields at some paths, each payload on its own: the step all topics written by others share.

`map(decode, payloads)` lets no record reach into another. `decode_lines` over the joined payloads is no faster once it
is proved that the lines are whole values (measured: 0.29 us against 0.21 us a record), and takes several values on a
line or one value on several lines. A refused payload costs its own exception and no more: the map goes on behind it.
"""

import contextlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any, Final

import msgspec
from msgspec import UNSET

from susurrus.topics.records.fields import BESIDE, ENVELOPE, PLAIN, Fields, Path, plain, walk
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import MAX_DEPTH, reason_of, too_deep
from susurrus.topics.wire.packing import Int64s

CHUNK = 8192
"""Payloads to decode at a time, so that their objects stay in the processor's cache."""

_DEEP = 2 * MAX_DEPTH  # bytes: what is well-formed and shorter cannot nest deeper than MAX_DEPTH
REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What msgspec raises for a payload."""
AS_THEY_ARE: Final = PLAIN | {type(UNSET), list, dict, bytes, date, datetime, time, msgspec.Raw}
"""Types of values that `fields.plain` leaves as they are, and of an absent one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive payloads of a batch, as far as some paths need them.

    rows: number of rows, one for each payload; or for each item of the payloads, where these are taken apart. columns: one list per
    path, of the accepted rows in order, UNSET where a field is absent. refused: why the others were refused, by their row in the
    chunk. pending: why accepted rows are to be refused, unless they are left out before that; of these, only the fields that a
    condition asks for need be in the columns. records: the number of payloads; record: int64[rows], each row's payload among them,
    which rises; item: int64[rows], its place there, -1 for a payload that could not be taken apart. None where every payload is one
    row.
    """

    rows: int
    columns: list[list[Any]]
    refused: dict[int, Reason]
    pending: dict[int, Reason] = field(default_factory=dict)
    records: int | None = None
    record: Int64s | None = None
    item: Int64s | None = None

    @property
    def payloads(self) -> int:
        """How many payloads it is of."""
        return self.rows if self.records is None else self.records

    def spread(self, column: Sequence[Any]) -> list[Any]:
        """One of its columns with a value for every row, UNSET where the row was refused."""
        if not self.refused:
            return list(column)
        found = iter(column)
        return [UNSET if row in self.refused else next(found) for row in range(self.rows)]


@dataclass(frozen=True, slots=True)
class Enveloped:
    """A decoded value and what is around it: the fields below `$envelope`.

    reason: why the record is refused, unless a condition over what is around it leaves it out before that. It has no value then.
    """

    value: Any
    around: Mapping[str, Any]
    reason: Reason = Reason.OK


class JsonReader:
    """Reads JSON objects as far as some paths need it. paths: of `fields.parse_paths`. first: of these, the ones that are read even
    where others cannot be; such a payload is pending. lists: as of Fields."""

    def __init__(self, paths: Sequence[Path], first: Sequence[Path] = (), lists: Sequence[Path] = ()) -> None:
        self._paths = paths
        self._first, self._first_fields = first, Fields(first) if first and len(first) < len(paths) else None
        self._fields = Fields(paths, lists)
        self._decode = self._fields.decode

    def read(self, payloads: Sequence[bytes | None]) -> Iterator[Chunk]:
        """A batch of payloads, chunk by chunk; None is a tombstone. Never raises for what a payload holds."""
        for start in range(0, len(payloads), CHUNK):
            chunk = payloads[start : start + CHUNK]
            records, refused = self._records(chunk)
            columns = [self._fields.column(records, path) for path in self._paths]
            pending = {} if self._first_fields is None or not refused else self._asked(chunk, refused, columns)
            yield Chunk(rows=len(chunk), columns=columns, refused=refused, pending=pending)

    def _asked(
        self, payloads: Sequence[bytes | None], refused: dict[int, Reason], columns: list[list[Any]]
    ) -> dict[int, Reason]:
        """Moves payloads of which the first fields can be read from the refused to the pending ones, with these fields."""
        found: dict[int, Any] = {}
        fields = self._first_fields
        assert fields is not None
        for row, why in refused.items():
            payload = payloads[row]
            if payload is None or why is Reason.TOO_DEEP:
                continue
            with contextlib.suppress(*REFUSED):
                found[row] = fields.decode(payload.removeprefix(BOM_UTF8))
        pending = {row: refused.pop(row) for row in found}
        for path, column in zip(self._paths, columns, strict=True):
            read = fields.column(list(found.values()), path) if path in self._first else [UNSET] * len(found)
            insert_rows(column, dict(zip(found, read, strict=True)), refused, len(payloads))
        return pending

    def _records(self, payloads: Sequence[bytes | None]) -> tuple[list[Any], dict[int, Reason]]:
        """Decoded records of the accepted payloads, in order, and why the others (by position) were refused."""
        refused: dict[int, Reason] = {}
        try:
            longest = max(map(len, payloads), default=0)  # type: ignore[arg-type]
        except TypeError:  # a tombstone
            longest = _DEEP
            refused = {i: Reason.TOMBSTONE for i, p in enumerate(payloads) if p is None}
        if longest >= _DEEP:
            refused |= {
                i: Reason.TOO_DEEP
                for i, p in enumerate(payloads)
                if p and len(p) >= _DEEP and p.count(b"{") + p.count(b"[") > MAX_DEPTH and too_deep(p)
            }
        rows = [i for i in range(len(payloads)) if i not in refused] if refused else range(len(payloads))
        accepted = [payloads[i] for i in rows] if refused else payloads
        records: list[Any] = []
        decoded = map(self._decode, accepted)  # type: ignore[arg-type]
        skipped = 0
        while len(records) + skipped < len(accepted):
            try:
                records.extend(decoded)  # keeps what came before an exception, and the map goes on behind it
            except REFUSED:
                row = rows[len(records) + skipped]
                found = self._behind_mark(payloads[row])
                if found is UNSET:
                    refused[row] = reason_of(payloads[row], self._paths)
                    skipped += 1
                else:
                    records.append(found)
        return records, refused

    def _behind_mark(self, payload: bytes | None) -> Any:
        """The record behind a byte order mark, which the decoder does not pass over; UNSET where there is none."""
        if payload is None or not payload.startswith(BOM_UTF8):
            return UNSET
        try:
            return self._decode(payload[len(BOM_UTF8) :])
        except REFUSED:
            return UNSET


def insert_rows(column: list[Any], added: Mapping[int, Any], refused: Mapping[int, Reason], rows: int) -> None:
    """Puts values at their rows into a column that has neither them nor the refused rows."""
    if added:
        others = iter(column[:])
        column[:] = [added[row] if row in added else next(others) for row in range(rows) if row not in refused]


def chunk_of_objects(objects: Sequence[Any], paths: Sequence[Path], first: Sequence[Path] = ()) -> Chunk:
    """The same of records that another format's parser has decoded. None: a tombstone. A Reason: refused over there.

    The empty path is the whole object, which then may be any value. Paths below `$envelope` lead through what is around an
    Enveloped. first: as of JsonReader; of an Enveloped that has a reason, only what is around it can be had.
    """
    if (found_at_once := plain_columns(objects, paths)) is not None:
        return Chunk(rows=len(objects), columns=found_at_once, refused={})
    columns: list[list[Any]] = [[] for _ in paths]
    refused: dict[int, Reason] = {}
    pending: dict[int, Reason] = {}
    for row, record in enumerate(objects):
        if record is None or isinstance(record, Reason):
            refused[row] = Reason.TOMBSTONE if record is None else record
            continue
        value, around, reason = record, _NOTHING, Reason.OK
        if isinstance(record, Enveloped):
            value, around, reason = record.value, record.around, record.reason
        if reason:
            value = UNSET  # it has none
        else:
            try:
                found = [_found(value, around, path) for path in paths]
            except TypeError:
                reason = Reason.WRONG_TYPE
        if reason:
            asked = _asked(value, around, first)
            if asked is None:
                refused[row] = reason
                continue
            pending[row] = reason
            found = [asked.get(path, UNSET) for path in paths]
        for column, one in zip(columns, found, strict=True):
            column.append(one)
    return Chunk(rows=len(objects), columns=columns, refused=refused, pending=pending)


def plain_columns(objects: Sequence[Any], paths: Sequence[Path]) -> list[list[Any]] | None:
    """The columns where all objects are dicts, each step of a path leads to dicts, and all values stay as they are; else None."""
    if set(map(type, objects)) != {dict}:
        return None
    columns = []
    for path in paths:
        column: Sequence[Any] = objects
        if not path or path[:1] == (BESIDE,):
            return None
        for depth, name in enumerate(path):
            if depth and set(map(type, column)) != {dict}:
                return None
            column = [one.get(name, UNSET) for one in column]
        if not set(map(type, column)) <= AS_THEY_ARE:
            return None
        columns.append(list(column))
    return columns


_NOTHING: Final[Mapping[str, Any]] = {}


def _found(value: Any, around: Mapping[str, Any], path: Path) -> Any:
    """Raises TypeError where a parent is no object."""
    return plain(walk(around, path[2:]) if path[:2] == ENVELOPE else walk(value, path))


def _asked(value: Any, around: Mapping[str, Any], first: Sequence[Path]) -> dict[Path, Any] | None:
    """What is at the first paths; None where there are none, or one cannot be had. value: UNSET where there is none."""
    if not first or (value is UNSET and any(path[:2] != ENVELOPE for path in first)):
        return None
    try:
        return {path: _found(value, around, path) for path in first}
    except TypeError:
        return None
