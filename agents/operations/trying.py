"""What would become of a raw topic's newest records, decided as the stage route decides it, without writing anything.

newest records ──reader, expressions, decoder──▶ a reason for each row ──clock's limits──▶ Trial: kept, late, left out, refused

A refused row is read again for one setting alone, and then for the next: the first that refuses it for the same reason is to blame.
Each row is decided by its record and its stamp. What depends on other records is not said: caps, and intervals that are closed
already. It is exact raw data, so it is for operators inside the trust zone; it has references to records and no values.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from susurrus.agents.config.fields import said
from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.finding import Finding
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.histogram.membership import Membership
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.mechanisms.arrays import Int64s
from susurrus.topics.records.fields import Path, parse_path
from susurrus.topics.records.raw import ComputedField, RawColumns, RawDecoder, RawSchema
from susurrus.topics.records.reason import LEFT_OUT, Reason

Outcome = Literal["kept", "late", "left out", "dead letter"]
EXAMPLES: Final = 3
"""References to records, for each thing that became of some."""
_NOBODY: Final = "$offset"
"""Stands for users and keys while another setting is looked at: it is always there."""


class RecordPlace(NamedTuple):
    """Where a record is. item: which of its items is meant, where it was taken apart."""

    topic: str
    partition: int
    offset: int
    item: int | None = None


@dataclass(slots=True)
class Fate:
    """What became of some rows. setting: which setting of the file is to blame, as it stands there; empty where none is."""

    outcome: Outcome
    reason: Reason = Reason.OK
    setting: str = ""
    number: int = 0
    examples: list[RecordPlace] = field(default_factory=list)


@dataclass(slots=True)
class Trial:
    """What became of ``records`` records, which are ``rows`` rows. waiting: why the others, ``waits``, cannot be decided now."""

    records: int = 0
    rows: int = 0
    fates: list[Fate] = field(default_factory=list)
    waits: int = 0
    waiting: Finding | None = None

    def number(self, *outcomes: Outcome) -> int:
        """Rows of some outcomes."""
        return sum(fate.number for fate in self.fates if fate.outcome in outcomes)

    def share(self, number: int) -> float:
        """Of all rows, 0 to 1."""
        return number / self.rows if self.rows else 0.0

    @property
    def refused(self) -> list[Fate]:
        """Dead letters, the commonest first."""
        return [fate for fate in self.fates if fate.outcome == "dead letter"]


def try_records(
    settings: HistogramSettings, source: InputSettings, records: Sequence[ReadRecord], types: Int64s, *, now: int
) -> Trial:
    """What would become of records of one raw topic.

    source: `[input]` as it is for this topic. types: int64[n], of the records' time stamps, as `Clock.accepts` has them. now: ms.
    Raises ConfigurationError where a package or class is missing, or a property is refused.
    """
    schema = settings.raw_schema()
    found, read, waiting = _decoded(source, schema, settings.input.where, records)
    trial = Trial(records=read, rows=len(found), waits=len(records) - read, waiting=waiting)
    owner = np.arange(len(found)) if found.record is None else found.record
    reason, late = _placed(settings, found, _stamps(records)[owner], types[owner], now)
    blamed = _blamed(settings, source, schema, records, owner, found.item, reason)
    fates: dict[tuple[Outcome, Reason, str], Fate] = {}
    for row, why in enumerate(map(Reason, reason.tolist())):
        outcome = _outcome(why, late=bool(late[row]))
        setting = blamed.get(row, "") if outcome == "dead letter" else _left_out_by(source, why)
        fate = fates.setdefault((outcome, why, setting), Fate(outcome, why, setting))
        fate.number += 1
        if len(fate.examples) < EXAMPLES:
            record = records[int(owner[row])]
            item = None if found.item is None or found.item[row] < 0 else int(found.item[row])
            fate.examples.append(RecordPlace(record.topic, record.partition, record.offset, item))
    trial.fates = sorted(fates.values(), key=lambda fate: (_ORDER.index(fate.outcome), -fate.number))
    return trial


_ORDER: Final[tuple[Outcome, ...]] = ("kept", "late", "left out", "dead letter")


def merged(trials: Sequence[Trial]) -> Trial:
    """The trials of several topics as one."""
    fates: dict[tuple[Outcome, Reason, str], Fate] = {}
    for one in (fate for trial in trials for fate in trial.fates):
        into = fates.setdefault((one.outcome, one.reason, one.setting), Fate(one.outcome, one.reason, one.setting))
        into.number += one.number
        into.examples = [*into.examples, *one.examples][:EXAMPLES]
    return Trial(
        records=sum(trial.records for trial in trials),
        rows=sum(trial.rows for trial in trials),
        fates=sorted(fates.values(), key=lambda fate: (_ORDER.index(fate.outcome), -fate.number)),
        waits=sum(trial.waits for trial in trials),
        waiting=next((trial.waiting for trial in trials if trial.waiting is not None), None),
    )


def _outcome(why: Reason, *, late: bool) -> Outcome:
    if why in LEFT_OUT:
        return "left out"
    if why != Reason.OK:
        return "dead letter"
    return "late" if late else "kept"


def _left_out_by(source: InputSettings, why: Reason) -> str:
    if why == Reason.FILTERED:  # an envelope leaves out what is no row
        by = ["input.where"] * (source.where is not None) + ["input.envelope"] * (source.envelope != Bare.name)
        return " or ".join(by)
    return "input.each" if why == Reason.NO_ITEMS else ""


def _decoded(
    source: InputSettings, schema: RawSchema, where: str | None, records: Sequence[ReadRecord]
) -> tuple[RawColumns, int, Finding | None]:
    """The columns of records, how many of these were read, and what the next one waits for."""
    decoder = RawDecoder(schema)
    with closing(Computation(decoder.scalars, where)) as computation:
        reader = reader_of(source, computation.paths, topic=None, partition=None, asked=computation.asked)
        with closing(reader):
            chunks = list(reader.read(records, lambda row: True))
            read = sum(chunk.payloads for chunk in chunks)
            return decoder.decode(computation.applied(chunks)), read, reader.waits


def _stamps(records: Sequence[ReadRecord]) -> Int64s:
    return np.fromiter((record.timestamp for record in records), np.int64, len(records))


def _placed(settings: HistogramSettings, found: RawColumns, stamps: Int64s, types: Int64s, now: int) -> tuple[Any, Any]:
    """(uint8[n] reasons, bool[n] late): as route says it, as far as a record and its stamp say it."""
    clock, calendar, first = settings.clock, settings.calendar, settings.start.first_window
    if "max_ahead" in clock.chosen.follows:
        too_far = stamps > now + clock.max_ahead + clock.idle_grace
    else:
        too_far = np.zeros(len(stamps), np.bool_)
    reason = found.reason.copy()
    members = Membership(settings, None if first is None else calendar.window_at(first)).decide(
        reason,
        found.event_time,
        stamps=stamps,
        interval=calendar.interval(stamps),
        otherwise=clock.chosen.stamped_otherwise(types),
        too_far=too_far,
    )
    return reason, members.late


class _Part(NamedTuple):
    """One setting that names something of a record, and how to decode nothing else."""

    setting: str
    schema: RawSchema
    where: str | None = None


def _parts(settings: HistogramSettings, schema: RawSchema) -> Iterator[_Part]:
    """In the order in which a record is decided: the condition, user, key, columns, time."""
    source = settings.input
    nothing = replace(schema, user=(_NOBODY,), key=(_NOBODY,), values=(), time=None)
    if source.where is not None:
        yield _Part("input.where", nothing, source.where)
    for user in schema.user:
        yield _Part(_called("input.user", user), replace(nothing, user=(user,)))
    for key, name in zip(schema.key, source.key_names, strict=True):
        setting = _called("input.key", key if isinstance(key, str) else ComputedField(name))
        yield _Part(setting, replace(nothing, key=(key,)))
    for value in schema.values:
        yield _Part(_called("columns.field", value.path), replace(nothing, values=(value,)))
    if schema.time is not None:
        yield _Part(_called("input.time", schema.time), replace(nothing, time=schema.time))


def settings_and_scalars(
    settings: HistogramSettings,
) -> Iterator[tuple[str, list[Path | ComputedField], str | None]]:
    """(setting, what it reads of a record, its condition) for each setting that names something of a record."""
    nobody = parse_path(_NOBODY)
    for part in _parts(settings, settings.raw_schema()):
        yield part.setting, [scalar for scalar in part.schema.scalars if scalar != nobody], part.where


def _called(name: str, what: str | ComputedField) -> str:
    return f'{name} = "{what}"' if isinstance(what, str) else f"{name} = {{ {what.expression} }}"


def _blamed(
    settings: HistogramSettings,
    source: InputSettings,
    schema: RawSchema,
    records: Sequence[ReadRecord],
    owner: Any,
    item: Int64s | None,
    reason: Any,
) -> dict[int, str]:
    """Which setting is to blame, for rows that one is to blame for."""
    bad = [row for row, why in enumerate(map(Reason, reason.tolist())) if why != Reason.OK and why not in LEFT_OUT]
    if not bad:
        return {}
    numbers = sorted({int(owner[row]) for row in bad})
    some = [records[number] for number in numbers]
    place = {number: at for at, number in enumerate(numbers)}
    left = {(place[int(owner[row])], -1 if item is None else int(item[row])): row for row in bad}
    nothing = replace(schema, user=(_NOBODY,), key=(_NOBODY,), values=(), time=None)
    found: dict[int, str] = {}

    def look(part: _Part, section: InputSettings) -> None:
        columns, *_ = _decoded(section, part.schema, part.where, some)
        for row, why in enumerate(columns.reason.tolist()):
            of = row if columns.record is None else int(columns.record[row])
            at = (of, -1 if columns.item is None else int(columns.item[row]))
            if at in left and why == reason[left[at]]:
                found[left[at]] = part.setting
                del left[at]

    look(_Part("", nothing), source)  # the whole record, or an item
    if source.each:
        whole = {row for row in found if item is not None and item[row] < 0}
        unread, *_ = _decoded(source.model_copy(update={"each": ()}), nothing, None, some)
        for row in whole:
            if unread.reason[place[int(owner[row])]] != reason[row]:
                found[row] = f"input.each = {' > '.join(said(step.of) for step in source.each)}"
    for part in _parts(settings, schema):
        if left:
            look(part, source)
    for row in left.values():
        found[row] = OF_TIME.get(Reason(int(reason[row])), "")
    return {row: setting for row, setting in found.items() if setting}


OF_TIME: Final = {
    Reason.WRONG_STAMP: "clock.kind",
    Reason.IN_FUTURE: "clock.max_future",
    Reason.BEFORE_FIRST_WINDOW: "start.first_window",
}
"""What decides where the record can be read, and its time does not fit."""
