"""Raw events from record batches to columns at once: the compiled form of payloads.py and raw.py.

`RawDecoder` is the definition. It decodes what the scanner leaves, and these rows are put between those that were taken: columns
are, in every field, those of `RawDecoder` for all records in order (tests/topics/test_raw_batches.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from susurrus.topics.records.assembly import spread
from susurrus.topics.records.fields import Path
from susurrus.topics.records.raw import ComputedField, RawColumns, RawDecoder, RawSchema, whole_key
from susurrus.topics.records.scanning import (
    CodedScalars,
    DecompressedBatch,
    FoundFields,
    JsonSource,
    Over,
    Scanned,
    Scanner,
    ValueSource,
    never,
)
from susurrus.topics.wire.packing import Int32s, Int64s
from susurrus.topics.wire.partitioner import placements


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComputedRows:
    """What expressions say of some records. reason: uint8[n], a Reason where it is decided, 0 for all others. rows: int64,
    ascending: those that count and of which all is computed. results: a `compiled.Results` for each computed scalar."""

    reason: npt.NDArray[np.uint8]
    rows: Int64s
    results: Sequence[Any]


class Computing(Protocol):
    """Evaluates the expressions of a schema over whole batches (agents/expressions/typed.py)."""

    @property
    def paths(self) -> Sequence[Path]:
        """The fields that are read of each record, each once."""

    @property
    def computed(self) -> Sequence[ComputedField]:
        """The scalars that are computed, each once."""

    def of(self, found: FoundFields) -> ComputedRows:
        """Filters and computes. A row that is in neither part of the result is decoded by the definition."""


class RawBatchDecoder:
    """Turns record batches into columns, for one schema; only where ``compiled`` is there.

    source: what reads the values at the paths of `RawDecoder`, or of ``computing``; by default JSON. It knows the paths by their
    numbers among the distinct ones, and decodes the rows left as far as `RawDecoder` needs them. computing: where records are
    filtered or scalars computed.
    """

    def __init__(
        self, schema: RawSchema, source: ValueSource | None = None, computing: Computing | None = None
    ) -> None:
        self._schema, self._decoder = schema, RawDecoder(schema)
        self._computing = computing
        paths = self._decoder.paths
        if computing is None and len(paths) < len(self._decoder.scalars):
            raise ValueError("a scalar is computed: it is no field of the record")
        self._source = source = JsonSource(paths) if source is None else source
        self._places = [value.placer() for value in schema.values]
        distinct: list[Path] = list(dict.fromkeys(paths if computing is None else computing.paths))
        computed = () if computing is None else computing.computed
        scalars: list[Path | ComputedField] = [*distinct, *computed]
        number = [scalars.index(scalar) for scalar in self._decoder.scalars]
        users, values = len(schema.user), len(schema.values)
        measured = users + len(schema.key)
        groups = [
            (number[:users], schema.null_user == "value", schema.empty_user == "value", schema.max_key_bytes),
            (number[users:measured], schema.null_key == "value", True, schema.max_key_bytes),
        ][: 2 if schema.key else 1]  # without parts, a group would be Kafka's key
        time = None if schema.time is None else (number[-1], schema.time_reader().scanned)
        self._scanner = Scanner(
            source, distinct, groups, number[measured : measured + values], time, computed=len(computed)
        )

    def decode(
        self, sections: Sequence[DecompressedBatch], start: int, below: int | None = None, over: Over = never
    ) -> tuple[Scanned, RawColumns]:
        """The records with start <= offset < below. over: which of them may no longer wait. Never raises for what a record holds;
        raises MalformedBatch and UnknownNumbers."""
        schema = self._schema
        found, reason = self._found(sections, start, below)
        left = found.left
        rest = self._decoder.decode(self._source.read(found, over)) if left.size else None
        if rest is not None:
            reason[left] = rest.reason
        user, *grouped = found.groups
        if rest is not None:
            user = with_rest(user, left, rest.user, rest.users, reason == 0)
            grouped = [with_rest(key, left, rest.key, rest.keys, reason == 0) for key in grouped]
        key, keys = (grouped[0].codes, grouped[0].items) if grouped else whole_key(reason)
        values = np.zeros((len(found), len(schema.values)), np.int64)
        for number, place in enumerate(self._places):
            values[:, number] = place(found.numbers[number])
        if self._computing is not None:
            values[reason != 0] = 0
        if rest is not None:
            values[left] = rest.values
        times = None
        if schema.time is not None:
            times = found.times
            if rest is not None and rest.event_time is not None:
                times = times.copy()
                times[left] = rest.event_time
        columns = RawColumns(
            reason=reason,
            user=user.codes,
            users=user.items,
            key=key,
            keys=keys,
            values=values,
            event_time=times,
            placements=user.placements,
        )
        return found, columns

    def _found(
        self, sections: Sequence[DecompressedBatch], start: int, below: int | None
    ) -> tuple[Scanned, npt.NDArray[np.uint8]]:
        """The records as far as they are decoded, and the reasons that are known."""
        if self._computing is None:
            found = self._scanner.scan(sections, start, below)
            return found, np.zeros(len(found), np.uint8)
        fields = self._scanner.find(sections, start, below)
        computed = self._computing.of(fields)
        return fields.coded(computed.rows, computed.results, computed.reason != 0), computed.reason


def with_rest(
    group: CodedScalars, left: npt.NDArray[np.int64], codes: Int32s, items: list[bytes], good: npt.NDArray[np.bool_]
) -> CodedScalars:
    """A group with the rows that were left. codes, items: theirs. good: of all rows, whether it has an item."""
    if not items:
        return group
    known = {item: code for code, item in enumerate(group.items)}
    merged = np.array([*(known.setdefault(item, len(known)) for item in items), -1], np.int32)
    whole = group.codes.copy()
    whole[left] = merged[codes]  # -1 is the last
    added = list(known)[len(group.items) :]
    hashes = np.concatenate([group.placements, placements(added)])
    order = np.flatnonzero(good)
    ordered, names = spread(whole[order], list(known), good)
    placed = np.empty(len(names), np.uint32)
    placed[ordered[order]] = hashes[whole[order]]
    return CodedScalars(codes=ordered, items=names, placements=placed)
