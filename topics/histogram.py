"""histogram and latest: the released rows, public. One row per published key and trigger; latest keeps the last by key.

    key    {"window":"2026-01-01T00:00:00Z","key":"/index.html"}
    value  {"window_start":…,"window_end":…,"trigger":3,"of_triggers":96,"key":"/index.html",
            "values":{"visits":{"estimate":118,"std_error":9.25}},"strategy":"toeplitz","epoch":"…","schema":1}

Rows are built for a whole release at once, from one template; 0.5 us a row. Numbers have the shortest form that reads
back the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from susurrus.topics.json_rows import Numbers, fill, literal, number, numbers, text
from susurrus.topics.packing import MalformedRecord
from susurrus.topics.timestamps import format_time, parse_time

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What all rows of one trigger share. Times in ms."""

    window_start: int
    window_end: int
    trigger: int
    of_triggers: int
    strategy: str
    epoch: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnRows:
    """One column of a release.

    estimate: int64[n] or float64[n]. std_error: float64[n], or one number for all rows.
    """

    name: str
    estimate: Numbers
    std_error: Numbers | float


class Measured(msgspec.Struct, frozen=True):
    """An estimate and its standard error."""

    estimate: int | float
    std_error: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A released row as a reader gets it. key: the decoded JSON."""

    window_start: str
    window_end: str
    trigger: int
    of_triggers: int
    key: Any
    values: dict[str, Measured]
    strategy: str
    epoch: str
    schema: int

    @property
    def window(self) -> int:
        """Window start in ms."""
        return parse_time(self.window_start)


_ROW = msgspec.json.Decoder(Row)


def encode_rows(
    release: Release, keys: Sequence[bytes], columns: Sequence[ColumnRows]
) -> tuple[list[bytes], list[bytes]]:
    """Kafka keys and values of all rows of a release, in the order of `keys` (canonical JSON).

    Raises ValueError when a column's length differs, or a number is not finite.
    """
    n = len(keys)
    start, end = text(format_time(release.window_start)), text(format_time(release.window_end))
    head = b'{"window_start":%b,"window_end":%b,"trigger":%d,"of_triggers":%d,"key":'
    template = [head % (start, end, release.trigger, release.of_triggers), b"%b", b',"values":{']
    varying: list[Sequence[bytes]] = [keys]
    for index, column in enumerate(columns):
        name = literal(text(column.name))
        template.append(b"," * (index > 0) + name + b':{"estimate":%b,"std_error":')
        varying.append(numbers(column.estimate, n, f"estimate of {column.name}"))
        if isinstance(column.std_error, np.ndarray):
            template.append(b"%b}")
            varying.append(numbers(column.std_error, n, f"std_error of {column.name}"))
        else:
            template.append(number(float(column.std_error), f"std_error of {column.name}") + b"}")
    tail = b'},"strategy":%b,"epoch":%b,"schema":%d}' % (text(release.strategy), text(release.epoch), VERSION)
    key_template = b'{"window":' + start + b',"key":%b}'
    return fill(key_template, [keys]), fill(b"".join([*template, literal(tail)]), varying)


def decode_row(value: bytes) -> Row:
    """Raises MalformedRecord."""
    try:
        row = _ROW.decode(value)
        parse_time(row.window_start), parse_time(row.window_end)
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"histogram row: {error}") from None
    if row.schema != VERSION:
        raise MalformedRecord(f"histogram schema={row.schema} is not {VERSION}: upgrade the reader")
    return row
