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
import numpy.typing as npt
from susurrus.topics.packing import MalformedRecord
from susurrus.topics.timestamps import format_time, parse_time

VERSION = 1

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]


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
    start, end = _text(format_time(release.window_start)), _text(format_time(release.window_end))
    head = b'{"window_start":%b,"window_end":%b,"trigger":%d,"of_triggers":%d,"key":'
    template = [head % (start, end, release.trigger, release.of_triggers), b"%b", b',"values":{']
    varying: list[Sequence[bytes]] = [keys]
    for index, column in enumerate(columns):
        # A constant goes into the template, where a percent sign is written twice.
        template.append(b"," * (index > 0) + _text(column.name).replace(b"%", b"%%") + b':{"estimate":%b,"std_error":')
        varying.append(_numbers(column.estimate, n))
        if isinstance(column.std_error, np.ndarray):
            template.append(b"%b}")
            varying.append(_numbers(column.std_error, n))
        else:
            template.append(_number(column) + b"}")
    tail = b'},"strategy":%b,"epoch":%b,"schema":%d}' % (_text(release.strategy), _text(release.epoch), VERSION)
    row = b"".join([*template, tail.replace(b"%", b"%%")])
    key_row = b'{"window":' + start + b',"key":%b}'
    return [key_row % key for key in keys], [row % fields for fields in zip(*varying, strict=True)]


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


def _text(text: str) -> bytes:
    return msgspec.json.encode(text)


def _number(column: ColumnRows) -> bytes:
    if not np.isfinite(column.std_error):
        raise ValueError(f"column={column.name!r}: std_error={column.std_error} is not finite")
    return msgspec.json.encode(float(column.std_error))


def _numbers(numbers: Numbers, n: int) -> list[bytes]:
    if numbers.shape != (n,):
        raise ValueError(f"a column of shape {numbers.shape} does not fit {n} keys")
    if not np.isfinite(numbers).all():
        raise ValueError("a number is not finite")  # JSON has no form for it; msgspec would write null
    return msgspec.json.encode(numbers.tolist())[1:-1].split(b",") if n else []
