"""rolling: "the last window's length" at every trigger, public. One row per key of the current window and of the one before it.

    key    {"window":"2026-01-02T00:00:00Z","key":"/index.html"}
    value  {"period_start":"2026-01-01T06:00:00Z","period_end":"2026-01-02T06:00:00Z","window_start":"2026-01-02T00:00:00Z",
            "window_end":"2026-01-03T00:00:00Z","trigger":24,"of_triggers":96,"key":"/index.html","counted_from":"2026-01-01T06:00:00Z",
            "counted_until":"2026-01-02T06:00:00Z","values":{"visits":{"estimate":512,"std_error":14.2}},
            "strategy":"closing","epoch":"…","schema":1}

A row counts from `counted_from` to `counted_until`, which is the whole period where the key has rows of all of it. A key that the
window before found late is counted from its first row there, or from the start of the current window. A key that the current
window has not published yet is counted until its start. Nothing is guessed of the time that is missing.

As in histogram, a column whose estimate uses more than the row's own measurements has `direct` beside it.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics import histogram
from susurrus.topics.histogram import ColumnRows, MeasuredColumn, TriggerHeader
from susurrus.topics.wire import json_rows
from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import Field, Leaf, Members, RowSchema
from susurrus.topics.wire.timestamps import format_time, parse_time

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingHeader:
    """What all rows of one trigger share. Times in ms. window_start, window_end: of the window that the trigger is of."""

    period_start: int
    period_end: int
    window_start: int
    window_end: int
    trigger: int
    of_triggers: int
    strategy: str
    epoch: str


class RollingColumns(NamedTuple):
    """Rows of one trigger as columns. keys: canonical JSON. counted_from, counted_until: int64[n], ms.

    release: the trigger as `histogram.RowColumns` has it, by its window.
    """

    release: TriggerHeader
    keys: list[bytes]
    columns: list[ColumnRows]
    counted_from: npt.NDArray[np.int64]
    counted_until: npt.NDArray[np.int64]


class _PackedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose key stays as it is written."""

    period_start: str
    period_end: str
    window_start: str
    window_end: str
    trigger: int
    of_triggers: int
    key: msgspec.Raw
    counted_from: str
    counted_until: str
    values: dict[str, MeasuredColumn]
    strategy: str
    epoch: str
    schema: int


_packed_row = msgspec.json.Decoder(_PackedRow)
_of_release = attrgetter(
    "period_start", "period_end", "window_start", "window_end", "trigger", "of_triggers", "strategy", "epoch"
)


def encode_rows(
    header: RollingHeader,
    keys: Sequence[bytes],
    columns: Sequence[ColumnRows],
    counted_from: npt.NDArray[np.int64],
    counted_until: npt.NDArray[np.int64],
) -> tuple[list[bytes], list[bytes]]:
    """Kafka keys and values in JSON of all rows of a trigger, in the order of `keys` (canonical JSON).

    Raises ValueError when a column's length differs, or a number is not finite.
    """
    encoded, rows = public_rows(header, keys, columns, counted_from, counted_until)
    return encoded, list(rows.json)


def public_rows(
    header: RollingHeader,
    keys: Sequence[bytes],
    columns: Sequence[ColumnRows],
    counted_from: npt.NDArray[np.int64],
    counted_until: npt.NDArray[np.int64],
) -> tuple[list[bytes], PublicRows]:
    """The same with values for any output format."""
    start = format_time(header.window_start)
    members: json_rows.Members = {
        "period_start": format_time(header.period_start),
        "period_end": format_time(header.period_end),
        "window_start": start,
        "window_end": format_time(header.window_end),
        "trigger": header.trigger,
        "of_triggers": header.of_triggers,
        "key": keys,
        "counted_from": _texts(counted_from),
        "counted_until": _texts(counted_until),
        "values": histogram.members_of(columns),
        "strategy": header.strategy,
        "epoch": header.epoch,
        "schema": VERSION,
    }
    return json_rows.rows(len(keys), {"window": start, "key": keys}), PublicRows(len(keys), members)


def _texts(times: npt.NDArray[np.int64]) -> list[bytes]:
    """The JSON of each instant; there are few different ones."""
    different, place = np.unique(times, return_inverse=True)
    texts = [msgspec.json.encode(format_time(time)) for time in different.tolist()]
    return [texts[at] for at in place.tolist()]


def decode_rows(values: Sequence[bytes]) -> Iterator[RollingColumns]:
    """Values of one partition in the order of its log, as columns: rows of one trigger that stand together come together.

    Raises MalformedRecord where a row is none, or the rows of a trigger differ in their columns.
    """
    try:
        decoded = [_packed_row.decode(value) for value in values]
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"rolling row: {error}") from None
    for found in {row.schema for row in decoded} - {VERSION}:
        raise MalformedRecord(f"rolling row schema={found} is not {VERSION}: upgrade the reader")
    for (_, _, start, window_end, trigger, of_triggers, strategy, epoch), group in groupby(decoded, _of_release):
        together = list(group)
        try:
            release = TriggerHeader(
                window_start=parse_time(start),
                window_end=parse_time(window_end),
                trigger=trigger,
                of_triggers=of_triggers,
                strategy=strategy,
                epoch=epoch,
            )
            counted_from, counted_until = (
                _times([row.counted_from for row in together]),
                _times([row.counted_until for row in together]),
            )
        except ValueError as error:
            raise MalformedRecord(f"rolling row: {error}") from None
        columns = histogram.columns_of([row.values for row in together], f"trigger={trigger} window_start={start}")
        yield RollingColumns(release, [bytes(row.key) for row in together], columns, counted_from, counted_until)


def _times(texts: list[str]) -> npt.NDArray[np.int64]:
    of = {text: parse_time(text) for text in set(texts)}
    return np.array([of[text] for text in texts], np.int64)


def schema(key: Sequence[str], columns: Sequence[str], intervals: Container[str] = ()) -> RowSchema:
    """The schema of the rows. Arguments as in `histogram.key_and_values`."""
    members = (
        Field("period_start", Leaf.INSTANT, "the period's first instant: one window's length before its end"),
        Field("period_end", Leaf.INSTANT, "the first instant after the period: the time of the release"),
        Field("window_start", Leaf.INSTANT, "the first instant of the window that the release is of"),
        Field("window_end", Leaf.INSTANT, "the first instant after that window"),
        Field("trigger", Leaf.INTEGER, "number of the release in its window, from 1 on"),
        Field("of_triggers", Leaf.INTEGER, "releases of the window"),
        *histogram.key_and_values(key, columns, intervals)[:1],
        Field(
            "counted_from",
            Leaf.INSTANT,
            "the row counts from here; later than period_start where the key has no earlier row",
        ),
        Field(
            "counted_until",
            Leaf.INSTANT,
            "the row counts until here; before period_end where the key has no row of this window",
        ),
        *histogram.key_and_values(key, columns, intervals)[1:],
        Field("strategy", Leaf.TEXT, "the mechanism that released the rows that this one is computed from"),
        Field("epoch", Leaf.TEXT, "rows of two epochs have other noise: never combine them"),
        Field("schema", Leaf.INTEGER, "increases when a known member changes its meaning"),
    )
    return RowSchema(
        Members("RollingRow", members),
        "What a key had in the last window's length, computed from released rows.",
        VERSION,
    )
