"""Payloads to the fields at some paths, each payload on its own: the step all topics written by others share.

`map(decode, payloads)` lets no record reach into another. `decode_lines` over the joined payloads is no faster once it
is proved that the lines are whole values (measured: 0.29 us against 0.21 us a record), and takes several values on a
line or one value on several lines. A refused payload costs its own exception and no more: the map goes on behind it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from susurrus.topics.records.fields import ENVELOPE, Fields, Path, plain, walk
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import MAX_DEPTH, reason_of, too_deep
from susurrus.topics.wire.packing import Int64s

CHUNK = 8192
"""Payloads to decode at a time, so that their objects stay in the processor's cache."""

_DEEP = 2 * MAX_DEPTH  # bytes: what is well-formed and shorter cannot nest deeper than MAX_DEPTH
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive payloads of a batch, as far as some paths need them.

    rows: number of rows, one for each payload; or for each item of the payloads, where these are taken apart. columns: one list per
    path, of the accepted rows in order, UNSET where a field is absent. refused: why the others were refused, by their row in the
    chunk. pending: why accepted rows are to be refused, unless they are left out before that; of these, only the fields that a
    condition asks for need be in the columns. records: the number of payloads; record: int64[rows], each row's payload among them,
    which rises; item: int64[rows], its place there. None where every payload is one row.
    """

    rows: int
    columns: list[list[Any]]
    refused: dict[int, Reason]
    pending: dict[int, Reason] = field(default_factory=dict)
    records: int | None = None
    record: Int64s | None = None
    item: Int64s | None = None


@dataclass(frozen=True, slots=True)
class Enveloped:
    """A decoded value and what is around it: the fields below `$envelope`.

    reason: why the record is refused, unless a condition over what is around it leaves it out before that. It has no value then.
    """

    value: Any
    around: Mapping[str, Any]
    reason: Reason = Reason.OK


class JsonReader:
    """Reads JSON objects as far as some paths need it. paths: of `fields.parse_paths`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._fields = Fields(paths)
        self._decode = self._fields.decode

    def read(self, payloads: Sequence[bytes | None]) -> Iterator[Chunk]:
        """A batch of payloads, chunk by chunk; None is a tombstone. Never raises for what a payload holds."""
        for start in range(0, len(payloads), CHUNK):
            chunk = payloads[start : start + CHUNK]
            records, refused = self._records(chunk)
            columns = [self._fields.column(records, path) for path in self._paths]
            yield Chunk(rows=len(chunk), columns=columns, refused=refused)

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
            except _REFUSED:
                row = rows[len(records) + skipped]
                refused[row] = reason_of(payloads[row], self._paths)
                skipped += 1
        return records, refused


def chunk_of_objects(objects: Sequence[Any], paths: Sequence[Path]) -> Chunk:
    """The same of records that another format's parser has decoded. None: a tombstone. A Reason: refused over there.

    The empty path is the whole object, which then may be any value. Paths below `$envelope` lead through what is around an
    Enveloped; of one that has a reason the row is pending, and no other path finds anything.
    """
    columns: list[list[Any]] = [[] for _ in paths]
    refused: dict[int, Reason] = {}
    pending: dict[int, Reason] = {}
    steps = [(path[:2] == ENVELOPE, path[2:] if path[:2] == ENVELOPE else path) for path in paths]
    for row, record in enumerate(objects):
        if record is None or isinstance(record, Reason):
            refused[row] = Reason.TOMBSTONE if record is None else record
            continue
        if isinstance(record, Enveloped):
            reason, found = _of_enveloped(record, steps)
        else:
            found = _found(record, {}, steps)
            reason = Reason.OK if found is not None else Reason.WRONG_TYPE
        if found is None:
            refused[row] = reason
            continue
        if reason != Reason.OK:
            pending[row] = reason
        for column, value in zip(columns, found, strict=True):
            column.append(value)
    return Chunk(rows=len(objects), columns=columns, refused=refused, pending=pending)


_Steps = list[tuple[bool, Path]]
"""Paths, and whether each leads through what is around a value."""


def _found(value: Any, around: Mapping[str, Any], steps: _Steps) -> list[Any] | None:
    """What is at the paths; None where a parent is no object."""
    try:
        return [plain(walk(around if beside else value, path)) for beside, path in steps]
    except TypeError:
        return None


def _of_enveloped(record: Enveloped, steps: _Steps) -> tuple[Reason, list[Any] | None]:
    """The same, and what is wrong. With a reason the value's paths find nothing."""
    found = _found(record.value, record.around, steps) if record.reason == Reason.OK else None
    if found is not None:
        return Reason.OK, found
    return record.reason or Reason.WRONG_TYPE, _found(UNSET, record.around, steps)
