"""private-stream: what tops and pak release of every stream, public. One row per released piece of a stream.

    key    {"stream":"meter-7"}
    value  {"stream":"meter-7","first":65536,"last":65551,"value":{"estimate":812.5,"std_error":40.1},
            "sum":{"estimate":9120.0,"std_error":88.0},"filtered_sum":{"estimate":9077.2,"std_error":31.4},
            "theta":120.0,"layout":0,"method":"tops","epsilon":0.1,"epoch":"…","schema":2,
            "fit":0.9,"jump_first":null,"jump_last":null,"lower":null,"clipped":null,"truncated":null}

- `first` to `last` are positions in the stream, counted from 0.
- `value` is the sum of their values, clipped to [lower, theta]; both may differ from tree to tree. `lower` is null where it is 0.
- `sum` runs from the first released position to `last`. Any range sum is the difference of two rows, and is unbiased for
  the clipped values.
- `filtered_sum` is null where there is none. It is biased towards smooth streams; its std_error covers that under the
  filter's model. Like `sum`, it does not say what clipping cut off.
- `fit` stands beside `filtered_sum`: about 1 while the filter's models fit; above 2 its std_error is widened,
  and rests on a model that is wrong: prefer `sum`.
- `jump_first` and `jump_last` stand there, too, where the level is taken to have jumped: its first position lies between them.
- `layout` names the public noise layout of the row, which a reader needs for the exact error of a range.
- `clipped` is in the last row of a tree whose values above theta were counted: their number. `truncated` is the sum that theta
  has cut off from that tree, estimated from the number; how far the values are from log-normal is not in its std_error.

Event-level privacy: positions and their times are public.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.histogram import Measured
from susurrus.topics.wire import json_rows
from susurrus.topics.wire.json_rows import Numbers, OrNull, decoder, rows
from susurrus.topics.wire.packing import Int64s
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import MEASURED, Field, Leaf, Members, RowSchema

VERSION = 2
"""1 had one theta for a stream's life and no `lower`, `fit`, jumps and counts; its layouts had other shares."""
SCHEMA = RowSchema(
    Members(
        "StreamRow",
        (
            Field("stream", Leaf.SCALAR, "the stream, as the producers write it"),
            Field("first", Leaf.INTEGER, "position of the piece's first value, from 0 on"),
            Field("last", Leaf.INTEGER, "position of its last value"),
            Field("value", MEASURED, "sum of the piece's values, clipped to [lower, theta]"),
            Field("sum", MEASURED, "sum from the first released position to this piece's last"),
            Field("filtered_sum", MEASURED, "the same, smoothed: biased towards smooth streams", "nullable"),
            Field("theta", Leaf.NUMBER, "the public threshold that clips the values"),
            Field("layout", Leaf.INTEGER, "the public noise layout of the row"),
            Field("method", Leaf.TEXT, "the mechanism that released the row"),
            Field("epsilon", Leaf.NUMBER, "what the value of one event costs"),
            Field("epoch", Leaf.TEXT, "rows of two epochs have other noise: never combine them"),
            Field("schema", Leaf.INTEGER, "increases when a known member changes its meaning"),
            Field(
                "fit", Leaf.NUMBER, "of the filter's models: about 1; above 2 they do not fit, prefer `sum`", "nullable"
            ),
            Field("jump_first", Leaf.INTEGER, "the level jumped at this position at the earliest", "nullable"),
            Field("jump_last", Leaf.INTEGER, "and at this one at the latest", "nullable"),
            Field("lower", Leaf.NUMBER, "the public threshold that clips them from below, if there is one", "nullable"),
            Field("clipped", MEASURED, "in the last row of a tree that counted: its values above theta", "nullable"),
            Field("truncated", MEASURED, "there: the sum that theta has cut off, estimated", "nullable"),
        ),
    ),
    "A released piece of a private stream.",
    VERSION,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHeader:
    """What all rows of a batch share. method: "tops", "tops-paper" or "pak"."""

    method: str
    epsilon: float
    epoch: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamColumns:
    """Released pieces as columns, in the unit of the values.

    streams: n canonical JSON scalars. first, last: int64[n], positions. value, value_error, sum, sum_error: the plain
    estimates. filtered_sum, filtered_sum_error: float64[n], NaN where there is none, as is fit. jump_first, jump_last:
    int64[n], -1 where there is none. theta, lower: public thresholds. clipped, truncated and their errors: float64[n], NaN where
    nothing was counted. layout: int64[n].
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
    fit: npt.NDArray[np.float64]
    jump_first: Int64s
    jump_last: Int64s
    theta: Numbers
    lower: Numbers
    clipped: npt.NDArray[np.float64]
    clipped_error: npt.NDArray[np.float64]
    truncated: npt.NDArray[np.float64]
    truncated_error: npt.NDArray[np.float64]
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
    fit: float | None
    jump_first: int | None
    jump_last: int | None
    lower: int | float | None
    clipped: Measured | None
    truncated: Measured | None


decode_row = decoder(StreamRow, "private-stream row", VERSION)


def encode_rows(release: StreamHeader, released: StreamColumns) -> tuple[list[bytes], list[bytes]]:
    """Kafka keys and values in JSON, in order. Raises ValueError for numbers that are not finite or columns that do not fit."""
    keys, found = public_rows(release, released)
    return keys, list(found.json)


def public_rows(release: StreamHeader, released: StreamColumns) -> tuple[list[bytes], PublicRows]:
    """The same with values for any output format."""
    n = len(released.streams)
    members: json_rows.Members = {
        "stream": released.streams,
        "first": released.first,
        "last": released.last,
        "value": {"estimate": released.value, "std_error": released.value_error},
        "sum": {"estimate": released.sum, "std_error": released.sum_error},
        "filtered_sum": _measured(released.filtered_sum, released.filtered_sum_error, "filtered_sum"),
        "theta": released.theta,
        "layout": released.layout,
        "method": release.method,
        "epsilon": release.epsilon,
        "epoch": release.epoch,
        "schema": VERSION,
        "fit": _nullable(~np.isnan(released.fit), released.fit),
        "jump_first": _nullable(released.jump_first >= 0, released.jump_first),
        "jump_last": _nullable(released.jump_last >= 0, released.jump_last),
        "lower": _nullable(released.lower != 0, released.lower),
        "clipped": _measured(released.clipped, released.clipped_error, "clipped"),
        "truncated": _measured(released.truncated, released.truncated_error, "truncated"),
    }
    return rows(n, {"stream": released.streams}), PublicRows(n, members)


def _measured(estimate: npt.NDArray[np.float64], error: npt.NDArray[np.float64], name: str) -> OrNull:
    """An object or null in each row. Raises ValueError where only one of the two is missing."""
    some = ~np.isnan(estimate)
    if not np.array_equal(some, ~np.isnan(error)):
        raise ValueError(f"{name} and {name}_error are missing in different rows")
    return OrNull(some, {"estimate": estimate[some], "std_error": error[some]})


def _nullable(some: npt.NDArray[np.bool_], numbers: Numbers) -> OrNull:
    """A number or null in each row."""
    return OrNull(some, numbers[some])
