"""values: the measurements existing producers write, one JSON object a record; read by tops and pak. Class: raw.

The stream id is a field, or the Kafka key of the record. Values are clamped to the public [0, bound] and put on the
public grid; what is no number at all is bad input. Decoding and reasons are those of raw events (payloads.py,
refusal.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from susurrus.topics.assembly import Reasons, collect, resolve, spread
from susurrus.topics.categories import Categories
from susurrus.topics.fields import parse_path
from susurrus.topics.numbers import TimeUnit, event_times, measure, steps_of_field
from susurrus.topics.packing import Int32s, Int64s
from susurrus.topics.payloads import CHUNK, PayloadDecoder
from susurrus.topics.reason import Reason

VERSION = 1


@dataclass(frozen=True, slots=True)
class ValuesSchema:
    """Where stream id, value and time are.

    value: path of the number; it becomes clamp(rint(v / grid), 0, steps) with steps = floor(bound / grid). However large a
    number is, it is clamped: were it refused, all later events of the stream would move up by a position. stream: path of
    the stream id, None for the record's Kafka key (UTF-8; no key is the stream null). time: path, None for the Kafka
    timestamp.
    """

    value: str
    bound: float
    grid: float
    stream: str | None = None
    time: str | None = None
    time_unit: TimeUnit = "ms"
    max_key_bytes: int = 4096

    @property
    def steps(self) -> int:
        """The bound in grid units. Raises ValueError unless 1 <= steps < 2^53."""
        return steps_of_field(self.bound, self.grid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValuesColumns:
    """A batch as columns.

    reason: uint8[n], 0 = good. stream: int32[n], codes into streams in order of first occurrence, -1 for bad records.
    streams: canonical JSON scalars. value: int64[n] in 0..steps, 0 for bad records. event_time: int64[n] in ms, 0 for
    bad records; None when time is the Kafka timestamp.
    """

    reason: Reasons
    stream: Int32s
    streams: list[bytes]
    value: Int64s
    event_time: Int64s | None

    def __len__(self) -> int:
        return int(self.reason.size)


class ValuesDecoder:
    """Decodes batches of one schema. Raises ValueError for a schema that cannot be right."""

    def __init__(self, schema: ValuesSchema) -> None:
        self.schema = schema
        self._steps = schema.steps
        fields = [schema.value, *([] if schema.stream is None else [schema.stream])]
        paths = [parse_path(path) for path in (*fields, *([] if schema.time is None else [schema.time]))]
        self._payloads = PayloadDecoder(paths)

    def decode(self, payloads: Sequence[bytes | None], keys: Sequence[bytes | None] = ()) -> ValuesColumns:
        """Columns of a batch. keys: the records' Kafka keys, needed when they are the stream ids.

        Never raises for what a payload or key holds; raises ValueError when keys are missing.
        """
        schema = self.schema
        n = len(payloads)
        if schema.stream is None and len(keys) != n:
            raise ValueError(f"{len(keys)} Kafka keys for {n} payloads: the stream id is the Kafka key")
        nullable = schema.stream is None
        streams = Categories(Reason.MISSING_KEY, nullable=nullable, limit=schema.max_key_bytes)
        whole = np.zeros(n, np.uint8)
        codes: list[Int32s] = []
        values: list[tuple[Int64s, Reasons]] = []
        times: list[tuple[Int64s, Reasons]] = []
        for start in range(0, n, CHUNK):
            columns, refused = self._payloads.columns(payloads[start : start + CHUNK])
            whole[[start + row for row in refused]] = list(refused.values())
            if schema.stream is None:
                taken = (key for row, key in enumerate(keys[start : start + CHUNK]) if row not in refused)
                codes.append(_add_kafka_keys(streams, list(taken)))
            else:
                codes.append(streams.add(columns[1]))
            values.append(measure(columns[0], grid=schema.grid, low=0, high=self._steps, any_integer=True))
            if schema.time is not None:
                times.append(event_times(columns[-1], schema.time_unit))
        rows = np.flatnonzero(whole == 0)
        reason = np.zeros(rows.size, np.uint8)
        stream, names = resolve([streams], [codes], reason, schema.max_key_bytes)
        value, time = np.zeros(n, np.int64), np.zeros(n, np.int64)
        value[rows] = collect(values, reason)
        if schema.time is not None:
            time[rows] = collect(times, reason)
        whole[rows] = reason
        good = whole == 0
        value[~good] = time[~good] = 0
        if not good.all():
            stream, names = spread(stream[reason == 0], names, good)
        return ValuesColumns(
            reason=whole,
            stream=stream,
            streams=names,
            value=value,
            event_time=None if schema.time is None else time,
        )


def _add_kafka_keys(streams: Categories, keys: list[bytes | None]) -> Int32s:
    """Codes of the keys as JSON strings; minus the Reason for what is not UTF-8."""
    try:
        return streams.add([None if key is None else key.decode() for key in keys])
    except UnicodeDecodeError:
        codes = [_add_kafka_key(streams, key) for key in keys]
        return np.array(codes, np.int32)


def _add_kafka_key(streams: Categories, key: bytes | None) -> int:
    try:
        return int(streams.add([None if key is None else key.decode()])[0])
    except UnicodeDecodeError:
        return -Reason.INVALID_UTF8
