"""private-stream: what tops and pak release of every stream, public. One row per released piece of a stream.

    key    {"stream":"meter-7"}
    value  {"stream":"meter-7","first":65536,"last":65551,"value":{"estimate":812.5,"std_error":40.1},
            "sum":{"estimate":9120.0,"std_error":88.0},"filtered_sum":{"estimate":9077.2,"std_error":31.4},
            "theta":120.0,"layout":0,"method":"tops","epsilon":0.1,"epoch":"…","schema":1}

- `first` to `last` are positions in the stream, counted from 0.
- `value` is the sum of their values, clipped to [0, theta].
- `sum` runs from the first released position to `last`. Any range sum is the difference of two rows, and is unbiased for
  the clipped values.
- `filtered_sum` is null where there is none. It is biased towards smooth streams; its std_error covers that under the
  filter's model. Like `sum`, it does not say what clipping cut off.
- `layout` names the public noise layout of the row, which a reader needs for the exact error of a range.

Event-level privacy: positions and their times are public.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics import json_rows
from susurrus.topics.histogram import Measured
from susurrus.topics.json_rows import Numbers, decoder, rows
from susurrus.topics.packing import Int64s
from susurrus.topics.row_schema import MEASURED, Field, Leaf, Members, RowSchema

VERSION = 1
SCHEMA = RowSchema(
    Members(
        "StreamRow",
        (
            Field("stream", Leaf.SCALAR, "the stream, as the producers write it"),
            Field("first", Leaf.INTEGER, "position of the piece's first value, from 0 on"),
            Field("last", Leaf.INTEGER, "position of its last value"),
            Field("value", MEASURED, "sum of the piece's values, clipped to [0, theta]"),
            Field("sum", MEASURED, "sum from the first released position to this piece's last"),
            Field("filtered_sum", MEASURED, "the same, smoothed: biased towards smooth streams", "nullable"),
            Field("theta", Leaf.NUMBER, "the public threshold that clips the values"),
            Field("layout", Leaf.INTEGER, "the public noise layout of the row"),
            Field("method", Leaf.TEXT, "the mechanism that released the row"),
            Field("epsilon", Leaf.NUMBER, "what the value of one event costs"),
            Field("epoch", Leaf.TEXT, "rows of two epochs have other noise: never combine them"),
            Field("schema", Leaf.INTEGER, "increases when a known member changes its meaning"),
        ),
    ),
    "A released piece of a private stream.",
    VERSION,
)


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


decode_row = decoder(StreamRow, "private-stream row", VERSION)


def encode_rows(release: StreamRelease, released: Released) -> tuple[list[bytes], list[bytes]]:
    """Kafka keys and values, in order. Raises ValueError for numbers that are not finite or columns that do not fit."""
    n, some = len(released.streams), ~np.isnan(released.filtered_sum)
    if not np.array_equal(some, ~np.isnan(released.filtered_sum_error)):
        raise ValueError("filtered_sum and filtered_sum_error are missing in different rows")
    filtered = {"estimate": released.filtered_sum[some], "std_error": released.filtered_sum_error[some]}
    objects = iter(rows(int(some.sum()), filtered))
    members: json_rows.Members = {
        "stream": released.streams,
        "first": released.first,
        "last": released.last,
        "value": {"estimate": released.value, "std_error": released.value_error},
        "sum": {"estimate": released.sum, "std_error": released.sum_error},
        "filtered_sum": [next(objects) if there else b"null" for there in some.tolist()],
        "theta": released.theta,
        "layout": released.layout,
        "method": release.method,
        "epsilon": release.epsilon,
        "epoch": release.epoch,
        "schema": VERSION,
    }
    return rows(n, {"stream": released.streams}), rows(n, members)
