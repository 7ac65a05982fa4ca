"""What route would make of raw records: reader, expressions, decoder, then where they belong (membership.py)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

import numpy as np

from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.lookup import LookupTables
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.histogram.membership import Membership
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.runtime.begun import Begun
from susurrus.agents.runtime.decisions import NOBODY, Decided, Decisions, RecordPart, called, stamps_of
from susurrus.mechanisms.arrays import Int64s
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.raw import ComputedField, RawColumns, RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason

_NEVER: Final = -(1 << 62)
"""An interval before all others."""


class HistogramDecisions(Decisions):
    """Of the kind's first stage."""

    blamed_by: ClassVar[Mapping[Reason, str]] = {
        Reason.WRONG_STAMP: "clock.kind",
        Reason.IN_FUTURE: "clock.max_future",
        Reason.BEFORE_FIRST_WINDOW: "start.first_window",
    }
    of_time = frozenset(blamed_by)
    never_told = frozenset((Reason.BEFORE_FIRST_WINDOW, Reason.WRONG_STAMP))

    def __init__(self, settings: HistogramSettings) -> None:
        self._settings = settings
        self._schema = schema = settings.raw_schema()
        self._nothing = replace(schema, user=(NOBODY,), key=(NOBODY,), values=(), time=None)

    def decide(
        self, source: InputSettings, records: Sequence[ReadRecord], types: Int64s, *, now: int, begun: Begun | None
    ) -> Decided:
        """See `Decisions`."""
        columns, read = _decoded(
            self._schema, self._settings.input.where, self._settings.lookup_tables, source, records
        )
        return self._placed(columns, read, records, types, now, begun)

    def _placed(
        self,
        columns: RawColumns,
        read: Decided,
        records: Sequence[ReadRecord],
        types: Int64s,
        now: int,
        begun: Begun | None,
    ) -> Decided:
        """As route says it, as far as a record, its stamp and the ledger say it."""
        clock, calendar, owner = self._settings.clock, self._settings.calendar, read.owner
        stamps, reason = stamps_of(records)[owner], columns.reason.copy()
        if "max_ahead" in clock.chosen.follows:
            too_far = stamps > now + clock.max_ahead + clock.idle_grace
        else:
            too_far = np.zeros(len(stamps), np.bool_)
        first = self._first_moment(begun)
        members = Membership(self._settings, None if first is None else calendar.window_at(first)).decide(
            reason,
            columns.event_time,
            stamps=stamps,
            interval=np.maximum(calendar.interval(stamps), _open(records, begun)[owner]),
            otherwise=clock.chosen.stamped_otherwise(types[owner]),
            too_far=too_far,
        )
        return replace(read, reason=reason, late=members.late)

    def _first_moment(self, begun: Begun | None) -> int | None:
        """A moment of the first window, in ms; None where the pipeline has not begun, and that will decide it."""
        start = self._settings.start
        if begun is not None:
            return begun.first_window
        if start.first_window is None and isinstance(start.from_, int):
            return start.from_
        return start.first_window

    def whole(self, source: InputSettings, records: Sequence[ReadRecord]) -> Decided:
        """See `Decisions`."""
        return _decoded(self._nothing, None, {}, source, records)[1]

    def parts(self) -> Sequence[RecordPart]:
        """The condition, user, key, columns, time."""
        return list(self._parts())

    def _parts(self) -> Iterator[RecordPart]:
        schema, source, nothing = self._schema, self._settings.input, self._nothing
        part = partial(_part, self._settings.lookup_tables)
        if source.where is not None:
            yield part("input.where", nothing, source.where)
        for user in schema.user:
            yield part(called("input.user", user), replace(nothing, user=(user,)))
        for key, name in zip(schema.key, source.key_names[: len(schema.key)], strict=True):
            setting = called("input.key", key if isinstance(key, str) else ComputedField(name))
            yield part(setting, replace(nothing, key=(key,)))
        for value in schema.values:
            yield part(called("columns.field", value.path), replace(nothing, values=(value,)))
        if schema.time is not None:
            yield part(called("input.time", schema.time), replace(nothing, time=schema.time))

    def undecided(self, begun: Begun | None) -> Iterator[str]:
        """Caps, the start, and what was closed when a record came."""
        yield "caps: which of a user's records count depends on its other records ([bounds])"
        if begun is not None:
            yield "of records that workers have taken already: whether their intervals were closed, which makes records late"
            return
        yield "closed intervals, which make records late"
        if self._first_moment(begun) is None:
            yield 'where the pipeline begins: with start.from = "latest" it reads only what comes after its start'


def _open(records: Sequence[ReadRecord], begun: Begun | None) -> Int64s:
    """int64[n]: the first interval that may be open when a record is taken."""
    if begun is None:
        return np.full(len(records), _NEVER, np.int64)
    closed = (begun.closed_at(record.topic, record.partition, record.offset) for record in records)
    return np.fromiter((_NEVER if one is None else one + 1 for one in closed), np.int64, len(records))


def _part(tables: LookupTables, setting: str, schema: RawSchema, where: str | None = None) -> RecordPart:
    nobody = parse_path(NOBODY)
    scalars = [scalar for scalar in schema.scalars if scalar != nobody]
    return RecordPart(setting, scalars, where, partial(_decided, schema, where, tables))


def _decided(
    schema: RawSchema,
    where: str | None,
    tables: LookupTables,
    source: InputSettings,
    records: Sequence[ReadRecord],
) -> Decided:
    return _decoded(schema, where, tables, source, records)[1]


def _decoded(
    schema: RawSchema,
    where: str | None,
    tables: LookupTables,
    source: InputSettings,
    records: Sequence[ReadRecord],
) -> tuple[RawColumns, Decided]:
    decoder = RawDecoder(schema)
    with closing(Computation(decoder.scalars, where, tables)) as computation:
        reader = reader_of(source, computation.paths, topic=None, partition=None, asked=computation.asked)
        with closing(reader):
            chunks = list(reader.read(records, lambda row: True))
            read = sum(chunk.payloads for chunk in chunks)
            columns = decoder.decode(computation.applied(chunks))
            decided = Decided(
                reason=columns.reason, read=read, waiting=reader.waits, record=columns.record, item=columns.item
            )
            return columns, decided
