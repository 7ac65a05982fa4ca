"""private-stream: what tops and pak release of every stream, public. One row per released piece of a stream.

    key    {"stream":"meter-7"}
    value  {"stream":"meter-7","first":65536,"last":65551,"value":{"estimate":812.5,"std_error":40.1},
            "sum":{"estimate":9120.0,"std_error":88.0},"filtered_sum":{"estimate":9077.2,"std_error":31.4},
            "theta":120.0,"layout":0,"method":"tops","epsilon":0.1,"epoch":"…","schema":1}

`first` to `last` are positions in the stream, counted from 0; `value` is the sum of their values, clipped to [0,
theta]; `sum` runs from the first released position to `last`, so that any range sum is the difference of two rows, and
unbiased for the clipped values. `filtered_sum` is null where there is none; it is biased towards smooth streams (its
std_error covers that under the filter's model) and no more than `sum` says what clipping cut off. `layout` names the
public noise layout of the row, which a reader needs for the exact error of a range. Event-level privacy: positions and
their times are public.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.histogram import Measured
from susurrus.topics.json_rows import Numbers, fill, literal, number, numbers, text
from susurrus.topics.packing import Int64s, MalformedRecord

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRelease:
    """What all rows of a batch share. method: "tops", "tops-paper" or "pak"."""

    method: str
    epsilon: float
    epoch: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """Released pieces as columns, in the unit of the values.

    streams: n canonical JSON scalars. first, last: int64[n], positions. value, value_error, sum, sum_error: the plain
    estimates. filtered_sum, filtered_sum_error: float64[n], NaN where there is none. theta: public threshold. layout:
    int64[n].
    """

    streams: list[bytes]
    first: Int64s
    last: Int64s
    value: Numbers
    value_error: npt.NDArray[np.float64]
    sum: Numbers
    sum_error: npt.NDArray[np.float64]
    filtered_sum: npt.NDArray[np.float64]
    filtered_sum_error: npt.NDArray[np.float64]
    theta: Numbers
    layout: Int64s


class StreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """A released piece as a reader gets it. stream: the decoded JSON."""

    stream: Any
    first: int
    last: int
    value: Measured
    sum: Measured
    filtered_sum: Measured | None
    theta: int | float
    layout: int
    method: str
    epsilon: float
    epoch: str
    schema: int


_ROW = msgspec.json.Decoder(StreamRow)
_MEASURED = b'{"estimate":%b,"std_error":%b}'


def encode_rows(release: StreamRelease, rows: Released) -> tuple[list[bytes], list[bytes]]:
    """Kafka keys and values, in order. Raises ValueError for numbers that are not finite or columns that do not fit."""
    n = len(rows.streams)
    template = b'{"stream":%b,"first":%b,"last":%b,"value":' + _MEASURED + b',"sum":' + _MEASURED
    template += b',"filtered_sum":%b,"theta":%b,"layout":%b'
    shared = (text(release.method), number(release.epsilon, "epsilon"), text(release.epoch), VERSION)
    template += literal(b',"method":%b,"epsilon":%b,"epoch":%b,"schema":%d}' % shared)
    names = ("first", "last", "value", "value_error", "sum", "sum_error")
    plain = [numbers(getattr(rows, name), n, name) for name in names]
    filtered = [numbers(getattr(rows, name), n, name, missing=True) for name in ("filtered_sum", "filtered_sum_error")]
    if (np.isnan(rows.filtered_sum) != np.isnan(rows.filtered_sum_error)).any():
        raise ValueError("filtered_sum and filtered_sum_error are missing in different rows")
    estimates = [b"null" if e == b"null" else _MEASURED % (e, s) for e, s in zip(*filtered, strict=True)]
    rest = [numbers(rows.theta, n, "theta"), numbers(rows.layout, n, "layout")]
    return fill(b'{"stream":%b}', [rows.streams]), fill(template, [rows.streams, *plain, estimates, *rest])


def decode_row(value: bytes) -> StreamRow:
    """Raises MalformedRecord."""
    try:
        row = _ROW.decode(value)
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"private-stream row: {error}") from None
    if row.schema != VERSION:
        raise MalformedRecord(f"private-stream schema={row.schema} is not {VERSION}: upgrade the reader")
    return row
