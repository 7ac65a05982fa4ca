"""values: the measurements existing producers write, in any format; read by tops and pak. Class: raw.

The stream id is a field, or the Kafka key of the record. Values are clamped to the public [0, bound] and put on the
public grid; what is no number at all is bad input. Formats and reasons are those of raw events (raw.py, payloads.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from susurrus.topics.records.assembly import Measure, RecordColumns
from susurrus.topics.records.categories import Categories
from susurrus.topics.records.fields import parse_paths
from susurrus.topics.records.numbers import Reasons, measure, steps_of_field
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.time_numbers import TimeUnit
from susurrus.topics.records.times import TimeReader
from susurrus.topics.wire.packing import Int32s, Int64s


@dataclass(frozen=True, slots=True)
class ValuesSchema:
    """Where stream id, value and time are.

    value: path of the number; it becomes clamp(rint(v / grid), 0, steps) with steps = floor(bound / grid). A finite number of
    any size is clamped, because a refusal would move all later events of the stream by a position. What is infinite as a float,
    as 1e309 is, is no number: that a record has none is public. stream: path of the stream
    id, None for the record's Kafka key (UTF-8; no key is the stream null). time: path, None for the Kafka
    timestamp; time_unit, time_format, time_zone: see `TimeReader`.
    """

    value: str
    bound: float
    grid: float
    stream: str | None = None
    time: str | None = None
    time_unit: TimeUnit = "ms"
    time_format: str | None = None
    time_zone: str | None = None
    max_key_bytes: int = 4096

    def time_reader(self) -> TimeReader:
        """What reads the event time. Raises ValueError."""
        return TimeReader(self.time_unit, self.time_format, self.time_zone)

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
    """Turns the fields of values into columns, for one schema. Raises ValueError for a schema that cannot be right."""

    def __init__(self, schema: ValuesSchema) -> None:
        self._schema = schema
        self._measures: list[Measure] = [partial(measure, grid=schema.grid, low=0, high=schema.steps, any_integer=True)]
        if schema.time is not None:
            self._measures.append(schema.time_reader())
        paths = (schema.stream, schema.value, schema.time)
        self.paths = parse_paths([path for path in paths if path is not None])
        """What a format reads of each record."""

    def decode(self, chunks: Iterable[Chunk], keys: Sequence[bytes | None] = ()) -> ValuesColumns:
        """Columns of a batch, from its chunks as a format reads them. keys: the records' Kafka keys, where they are the stream ids.

        There may be more keys than rows. Never raises for what a payload or key holds; raises ValueError when keys are missing.
        """
        schema, taken = self._schema, 0
        streams = Categories(Reason.MISSING_KEY, nullable=schema.stream is None, limit=schema.max_key_bytes)
        batch = RecordColumns([[streams]], self._measures)
        for chunk in chunks:
            codes = None
            if schema.stream is None:
                some = keys[taken : taken + chunk.rows]
                if len(some) < chunk.rows:
                    raise ValueError(f"{len(keys)} Kafka keys for more payloads: the stream id is the Kafka key")
                codes = _add_kafka_keys(streams, [key for row, key in enumerate(some) if row not in chunk.refused])
            batch.add(chunk, codes)
            taken += chunk.rows
        found = batch.finish()
        [(stream, names)] = found.categories
        return ValuesColumns(
            reason=found.reason,
            stream=stream,
            streams=names,
            value=found.numbers[0],
            event_time=None if schema.time is None else found.numbers[-1],
        )


def _add_kafka_keys(streams: Categories, keys: list[bytes | None]) -> Int32s:
    """Codes of the keys as JSON strings; minus the Reason for what is not UTF-8."""
    try:
        return streams.add([None if key is None else key.decode() for key in keys])
    except UnicodeDecodeError:
        if len(keys) == 1:
            return np.array([-Reason.INVALID_UTF8], np.int32)
        return np.concatenate([_add_kafka_keys(streams, [key]) for key in keys])
