"""histogram and latest: the released rows, public. One row per published key and trigger; latest keeps the last by key.

    key    {"window":"2026-01-01T00:00:00Z","key":"/index.html"}
    value  {"window_start":…,"window_end":…,"trigger":3,"of_triggers":96,"key":"/index.html",
            "values":{"visits":{"estimate":118,"std_error":9.25}},"strategy":"toeplitz","epoch":"…","schema":1}

Rows of a calendar window also say its first local date, behind window_end: "window_date":"2026-10-25".

At a window's last trigger, a column whose estimate uses more than the stream also has the estimate of the stream alone:

    {"estimate":118,"std_error":9.25,"direct":{"estimate":131,"std_error":21.5}}

With a memory of keys, some rows have a third pair: `smoothed` also uses the rows of earlier windows. It is the number to show where
it is there; docs/reading.md says which of the numbers is for what:

    {"estimate":118,"std_error":9.25,"smoothed":{"estimate":124,"std_error":6.5}}

A quantile has the ends of its 95 % interval, and the standard error of a normal distribution whose interval is as wide:

    {"estimate":118.4,"std_error":12.5,"lower":96.0,"upper":145.0}

With several groupings, key and value also have the level of the row, and its key is null where the level leaves a part out:

    "level":"country", "key":["DE",null]

Rows are built for a whole release at once, from one template; 0.5 us a row. Numbers have the shortest form that reads
back the same.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.wire import json_rows
from susurrus.topics.wire.json_rows import Numbers, decoder, rows
from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import MEASURED, Field, Leaf, Members, Parts, RowSchema
from susurrus.topics.wire.timestamps import format_time, parse_time

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerHeader:
    """What all rows of one trigger share. Times in ms. window_date: the first local date of a calendar window."""

    window_start: int
    window_end: int
    trigger: int
    of_triggers: int
    strategy: str
    epoch: str
    window_date: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnRows:
    """One column of a release.

    estimate: int64[n] or float64[n]. std_error: float64[n], or one number for all rows. direct: both from the stream alone, where
    the estimate uses more than that. interval: float64[n] each, lower and upper end of the 95 % interval, where it is not that of
    the normal distribution. smoothed: both with the rows of earlier windows, n each; smoothed_rows: bool[n], which rows have them,
    by default all. What `smoothed` holds for other rows means nothing.
    """

    name: str
    estimate: Numbers
    std_error: Numbers | float
    direct: tuple[Numbers, Numbers | float] | None = None
    interval: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    smoothed: tuple[Numbers, Numbers | float] | None = None
    smoothed_rows: npt.NDArray[np.bool_] | None = None

    @property
    def shown(self) -> Numbers:
        """The number to show of each row: the smoothed one where it has one, else the estimate."""
        if self.smoothed is None:
            return self.estimate
        if self.smoothed_rows is None:
            return self.smoothed[0]
        return np.where(self.smoothed_rows, self.smoothed[0], self.estimate)


class Measured(msgspec.Struct, frozen=True):
    """An estimate and its standard error. lower, upper: the ends of the 95 % interval, where it is not a normal one's."""

    estimate: int | float
    std_error: float
    lower: float | None = None
    upper: float | None = None


class MeasuredColumn(Measured, frozen=True):
    """What is published of one column. direct: the estimate of the row's own stream alone, where the other uses more. smoothed:
    the estimate with the rows of earlier windows, where the row has one."""

    direct: Measured | None = None
    smoothed: Measured | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A released row as a reader gets it. key: the decoded JSON. level: of several groupings, the row's."""

    window_start: str
    window_end: str
    trigger: int
    of_triggers: int
    key: Any
    values: dict[str, MeasuredColumn]
    strategy: str
    epoch: str
    schema: int
    window_date: str | None = None
    level: str | None = None

    @property
    def window(self) -> int:
        """Window start in ms."""
        return parse_time(self.window_start)


decode_row = decoder(Row, "histogram row", VERSION, times=("window_start", "window_end"))


class RowColumns(NamedTuple):
    """Rows of one release as columns: what `encode_rows` takes. keys: canonical JSON. levels: names, of several groupings."""

    release: TriggerHeader
    keys: list[bytes]
    columns: list[ColumnRows]
    levels: list[str] | None = None


class _PackedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose key stays as it is written."""

    window_start: str
    window_end: str
    trigger: int
    of_triggers: int
    key: msgspec.Raw
    values: dict[str, MeasuredColumn]
    strategy: str
    epoch: str
    schema: int
    level: str | None = None


_packed_row = msgspec.json.Decoder(_PackedRow)
_of_release = attrgetter("window_start", "window_end", "trigger", "of_triggers", "strategy", "epoch")


def decode_rows(values: Sequence[bytes]) -> Iterator[RowColumns]:
    """Values of one partition in the order of its log, as columns: rows of one release that stand together come together.

    Raises MalformedRecord where a row is none, or the rows of a release differ in their columns.
    """
    try:
        decoded = [_packed_row.decode(value) for value in values]
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"histogram row: {error}") from None
    for found in {row.schema for row in decoded} - {VERSION}:
        raise MalformedRecord(f"histogram row schema={found} is not {VERSION}: upgrade the reader")
    for (start, end, trigger, of_triggers, strategy, epoch), group in groupby(decoded, _of_release):
        together = list(group)
        try:
            release = TriggerHeader(
                window_start=parse_time(start),
                window_end=parse_time(end),
                trigger=trigger,
                of_triggers=of_triggers,
                strategy=strategy,
                epoch=epoch,
            )
        except ValueError as error:
            raise MalformedRecord(f"histogram row: {error}") from None
        columns = columns_of([row.values for row in together], f"trigger={trigger} window_start={start}")
        levels = None if together[0].level is None else [row.level or "" for row in together]
        yield RowColumns(release, [bytes(row.key) for row in together], columns, levels)


def columns_of(values: Sequence[dict[str, MeasuredColumn]], release: str) -> list[ColumnRows]:
    """The columns of rows that stand together, at least one. release: which one it is, for the message.

    Raises MalformedRecord where rows differ in their columns, or a number does not fit.
    """
    names = values[0].keys()
    if any(row.keys() != names for row in values):
        raise MalformedRecord(f"histogram row: the rows of {release} differ in their columns")
    return [_column(name, [row[name] for row in values]) for name in names]


def _column(name: str, measured: list[MeasuredColumn]) -> ColumnRows:
    """A row without an estimate of its own stream, where others have one, uses nothing else: its estimate is that one. A row
    without a smoothed one is to be shown by its estimate."""
    direct = None
    if any(of.direct is not None for of in measured):
        alone = [of.direct or of for of in measured]
        direct = _numbers([of.estimate for of in alone]), np.array([of.std_error for of in alone], np.float64)
    smoothed, some = None, np.array([of.smoothed is not None for of in measured], np.bool_)
    if some.any():
        shown = [of.smoothed or of for of in measured]
        smoothed = _numbers([of.estimate for of in shown]), np.array([of.std_error for of in shown], np.float64)
    estimate, std_error = _numbers([of.estimate for of in measured]), [of.std_error for of in measured]
    ends = [(of.lower, of.upper) for of in measured]
    interval = None
    if any(end is not None for pair in ends for end in pair):
        if None in (end for pair in ends for end in pair):
            raise MalformedRecord(f'histogram row: column "{name}" has half an interval, or only in some rows')
        lower, upper = np.array(ends, np.float64).T
        interval = lower, upper
    return ColumnRows(
        name=name,
        estimate=estimate,
        std_error=np.array(std_error, np.float64),
        direct=direct,
        interval=interval,
        smoothed=smoothed,
        smoothed_rows=None if smoothed is None else some,
    )


def _numbers(values: list[int | float]) -> Numbers:
    """int64[n] where all are integers, else float64[n]. Raises MalformedRecord beyond 64 bits."""
    found: npt.NDArray[Any] = np.array(values)
    if found.dtype not in (np.int64, np.float64):
        raise MalformedRecord("histogram row: an estimate does not fit 64 bits")
    return found


def encode_rows(
    release: TriggerHeader,
    keys: Sequence[bytes],
    columns: Sequence[ColumnRows],
    levels: Sequence[bytes] | None = None,
) -> tuple[list[bytes], list[bytes]]:
    """Kafka keys and values in JSON of all rows of a release, in the order of `keys` (canonical JSON). levels: JSON texts, by row.

    Raises ValueError when a column's length differs, or a number is not finite.
    """
    encoded, rows = public_rows(release, keys, columns, levels)
    return encoded, list(rows.json)


def public_rows(
    release: TriggerHeader,
    keys: Sequence[bytes],
    columns: Sequence[ColumnRows],
    levels: Sequence[bytes] | None = None,
) -> tuple[list[bytes], PublicRows]:
    """The same with values for any output format."""
    level: json_rows.Members = {} if levels is None else {"level": levels}
    members: json_rows.Members = {
        "window_start": format_time(release.window_start),
        "window_end": format_time(release.window_end),
        **({} if release.window_date is None else {"window_date": release.window_date}),
        "trigger": release.trigger,
        "of_triggers": release.of_triggers,
        **level,
        "key": keys,
        "values": members_of(columns),
        "strategy": release.strategy,
        "epoch": release.epoch,
        "schema": VERSION,
    }
    return encode_keys(release.window_start, keys, levels), PublicRows(len(keys), members)


def encode_keys(window_start: int, keys: Sequence[bytes], levels: Sequence[bytes] | None = None) -> list[bytes]:
    """Kafka keys of rows, by which `latest` keeps the newest of each: as for `encode_rows`."""
    level: json_rows.Members = {} if levels is None else {"level": levels}
    return rows(len(keys), {"window": format_time(window_start), **level, "key": keys})


def members_of(columns: Sequence[ColumnRows]) -> json_rows.Members:
    """What rows have as ``values``, for `json_rows.rows`."""
    return {column.name: _members(column) for column in columns}


def _members(column: ColumnRows) -> json_rows.Members:
    members: dict[str, Numbers | float | json_rows.Members | json_rows.OfSomeRows] = {
        "estimate": column.estimate,
        "std_error": column.std_error,
    }
    if column.interval is not None:
        members["lower"], members["upper"] = column.interval
    if column.direct is not None:
        members["direct"] = dict(zip(("estimate", "std_error"), column.direct, strict=True))
    if column.smoothed is not None:
        estimate, error = column.smoothed
        if column.smoothed_rows is None:
            members["smoothed"] = {"estimate": estimate, "std_error": error}
        else:
            some = column.smoothed_rows
            if some.shape != estimate.shape:
                raise ValueError(
                    f"{column.name}.smoothed has rows of shape {some.shape} and estimates of {estimate.shape}"
                )
            of_some = {"estimate": estimate[some], "std_error": error[some] if isinstance(error, np.ndarray) else error}
            members["smoothed"] = json_rows.OfSomeRows(some, of_some)
    return members


def schema(
    key: Sequence[str],
    columns: Sequence[str],
    intervals: Container[str] = (),
    *,
    dated: bool = False,
    levels: bool = False,
) -> RowSchema:
    """The schema of the rows. Arguments as in `key_and_values`. dated: windows are of a calendar. levels: whether there are several
    groupings."""
    members = (
        Field("window_start", Leaf.INSTANT, "the window's first instant"),
        Field("window_end", Leaf.INSTANT, "the first instant after the window"),
        *((_WINDOW_DATE,) if dated else ()),
        Field("trigger", Leaf.INTEGER, "number of the release in its window, from 1 on"),
        Field("of_triggers", Leaf.INTEGER, "releases of the window"),
        *key_and_values(key, columns, intervals),
        Field("strategy", Leaf.TEXT, "the mechanism that released the row"),
        Field("epoch", Leaf.TEXT, "rows of two epochs have other noise: never combine them"),
        Field("schema", Leaf.INTEGER, "increases when a known member changes its meaning"),
        *((_LEVEL,) if levels else ()),
    )
    return RowSchema(Members("HistogramRow", members), "A released row of a private histogram.", VERSION)


def key_and_values(key: Sequence[str], columns: Sequence[str], intervals: Container[str] = ()) -> tuple[Field, Field]:
    """What a row is about, and what it says. key: names of the key's parts. columns: names of the published columns. intervals:
    those of them whose interval is published, too."""
    parts = tuple(Field(name, Leaf.SCALAR, f"{name}, as the producers write it") for name in key)
    values = tuple(Field(name, _WITH_INTERVAL if name in intervals else _COLUMN, f"column {name}") for name in columns)
    return Field("key", Parts(parts), "what is counted"), Field("values", Members("Values", values), "by column")


_WINDOW_DATE = Field(
    "window_date", Leaf.TEXT, "the first local date of the window, in the time zone of the pipeline's windows"
)
_LEVEL = Field("level", Leaf.TEXT, "the row's grouping; the key is null where it leaves a part out", "optional")
"""At the end, so that a pipeline that gets levels changes no number of a field."""
_COLUMN = Members(
    "MeasuredColumn",
    (
        *MEASURED.fields,
        Field(
            "direct",
            MEASURED,
            "the estimate from the row's own measurements alone, where the other uses more; add these over keys",
            "optional",
        ),
        Field(
            "smoothed",
            MEASURED,
            "the estimate that also uses rows of earlier windows, where the row has one: show it; never add it over keys",
            "optional",
        ),
    ),
)
_WITH_INTERVAL = Members(
    "MeasuredQuantile",
    (
        Field("estimate", Leaf.NUMBER, "the published estimate"),
        Field("std_error", Leaf.NUMBER, "that of the normal distribution whose 95 % interval is as wide as this one"),
        Field("lower", Leaf.NUMBER, "the lower end of the 95 % interval"),
        Field("upper", Leaf.NUMBER, "its upper end"),
    ),
)
