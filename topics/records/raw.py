"""raw: the events existing producers write, in any format; and how they become columns, the pipeline's hot path.

A format reads the fields of a batch in chunks (payloads.py), each payload on its own, so no record can reach into another. Bad
input is never an error of the batch but a Reason in its row.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from susurrus.topics.records.assembly import Measure, RecordColumns
from susurrus.topics.records.categories import Categories
from susurrus.topics.records.fields import Path, check_paths, parse_path
from susurrus.topics.records.numbers import Reasons, bucket_of, first_step, numbers_of, on_grid, steps_of_field
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.time_numbers import TimeUnit
from susurrus.topics.records.times import TimeReader
from susurrus.topics.wire.packing import Int32s, Int64s

WHOLE_KEY: Final = b'"all"'
"""The key of every record where no field is grouped by, as canonical JSON."""
WHOLE_NAME: Final = "everything"
"""What the only part of this key is called."""
MAX_ITEMS: Final = 1 << 20
"""The most items of one record. A row's place in its raw partition is offset * MAX_ITEMS + item."""
Place = Callable[[npt.NDArray[np.float64]], Int64s]
"""Makes integers of finite numbers: what is measured of a field."""
_MOST_OFFSETS: Final = (1 << 63) // MAX_ITEMS

__all__ = [
    "BucketField",
    "ComputedField",
    "Measurable",
    "RawColumns",
    "RawDecoder",
    "RawSchema",
    "Reason",
    "ValueField",
]


@dataclass(frozen=True, slots=True)
class ComputedField:
    """A scalar that is computed from a record's fields before the decoder sees it. expression: its canonical text."""

    expression: str


@dataclass(frozen=True, slots=True)
class ValueField:
    """A measured field. bound: L > 0, the largest |v| after clamping, in the field's unit. grid: g > 0; values become rint(v / g)
    within ``lowest`` and ``highest``. lower, upper: where values are clamped, in the field's unit; -L and L by default."""

    path: str | ComputedField
    bound: float
    grid: float
    lower: float | None = None
    upper: float | None = None

    @property
    def steps(self) -> int:
        """floor(L / g): the bound in grid units. Raises ValueError unless 1 <= steps < 2^53."""
        return steps_of_field(self.bound, self.grid)

    @property
    def lowest(self) -> int:
        """The lower clamp in grid units: -steps, or the first multiple of the grid that is not below ``lower``."""
        return -self.steps if self.lower is None else max(-self.steps, first_step(self.lower, self.grid))

    @property
    def highest(self) -> int:
        """The upper clamp in grid units: steps, or the last multiple of the grid that is not above ``upper``."""
        return self.steps if self.upper is None else min(self.steps, -first_step(-self.upper, self.grid))

    def placer(self) -> Place:
        """What makes grid units of finite numbers of the field. Raises ValueError as ``steps``."""
        return partial(on_grid, grid=self.grid, low=self.lowest, high=self.highest)


@dataclass(frozen=True, slots=True)
class BucketField:
    """A measured field of which only the bucket is kept. borders: B + 1 numbers, ascending, in the field's unit.

    A value v becomes the number 0..B-1 of its bucket: borders[j] < v <= borders[j + 1]. Values below the first border are in the
    first bucket, as the border is, and those above the last one in the last.
    """

    path: str | ComputedField
    borders: tuple[float, ...]

    @property
    def lowest(self) -> int:
        """The number of the first bucket."""
        return 0

    @property
    def highest(self) -> int:
        """The number of the last bucket."""
        return len(self.borders) - 2

    def placer(self) -> Place:
        """What makes buckets of finite numbers of the field."""
        return partial(bucket_of, inner=np.array(self.borders[1:-1], np.float64))


Measurable = ValueField | BucketField
"""A field that columns measure."""


@dataclass(frozen=True, slots=True)
class RawSchema:
    r"""Where user, key, values and time are in a raw event.

    Paths: as `parse_path` reads them. user, key: one path or computed scalar, or several for a composite one; without any for the
    key, all records have the key ``WHOLE_KEY``. time: the event time, None for the Kafka timestamp; time_unit, time_format,
    time_zone: see `TimeReader`. null_user, null_key: what a JSON null is, "value" = a user or key of its own; empty_user: the same
    of the empty text; both of any part. An absent field is null. max_key_bytes: of a canonical user or key.
    """

    user: tuple[str | ComputedField, ...]
    key: tuple[str | ComputedField, ...]
    values: tuple[Measurable, ...] = ()
    time: str | ComputedField | None = None
    time_unit: TimeUnit = "ms"
    time_format: str | None = None
    time_zone: str | None = None
    null_user: Literal["dead-letter", "value"] = "dead-letter"
    null_key: Literal["dead-letter", "value"] = "dead-letter"
    empty_user: Literal["dead-letter", "value"] = "dead-letter"
    max_key_bytes: int = 4096

    def time_reader(self) -> TimeReader:
        """What reads the event time. Raises ValueError."""
        return TimeReader(self.time_unit, self.time_format, self.time_zone)

    @property
    def scalars(self) -> tuple[Path | ComputedField, ...]:
        """What is decoded of a record: its own fields by their paths, and what is computed from fields. Raises ValueError."""
        scalars = [*self.user, *self.key, *(value.path for value in self.values)]
        if self.time is not None:
            scalars.append(self.time)
        return tuple(parse_path(scalar) if isinstance(scalar, str) else scalar for scalar in scalars)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawColumns:
    """A batch as columns; codes count up in order of first occurrence among the good records, every item is in use.

    reason: uint8[n], a Reason, 0 = good. user, key: int32[n], codes into users and keys, -1 for bad records. users:
    canonical JSON scalars, or arrays for composite users; keys: the same. values: int64[n, V], clamped
    grid units or buckets, 0 for bad records. event_time: int64[n] in ms, 0 for bad records; None when time is the Kafka
    timestamp. placements: uint32 of each user, where the decoder knows them (partitioner.py). record: int64[n], the record of each
    row, where records were taken apart, and item: int64[n], the row's place in it; None where every record is one row.
    """

    reason: npt.NDArray[np.uint8]
    user: Int32s
    users: list[bytes]
    key: Int32s
    keys: list[bytes]
    values: Int64s
    event_time: Int64s | None
    placements: npt.NDArray[np.uint32] | None = None
    record: Int64s | None = None
    item: Int64s | None = None

    def __len__(self) -> int:
        return int(self.reason.size)


def places(offset: Int64s, item: Int64s) -> Int64s:
    """int64[n]: the place of each row in its raw partition, by its record's offset and its place in the record. They are distinct,
    and in the order of the records and of their items. Raises ValueError for offsets of 2^43 and more."""
    if len(offset) and int(offset.max()) >= _MOST_OFFSETS:
        raise ValueError("an offset of 2^43 or more leaves no room for a record's items")
    return offset * MAX_ITEMS + item


def whole_key(reason: npt.NDArray[np.uint8]) -> tuple[Int32s, list[bytes]]:
    """Codes and items of a batch that has one key for all records. reason: uint8[n], 0 = good."""
    return np.where(reason == 0, 0, -1).astype(np.int32), [WHOLE_KEY] if (reason == 0).any() else []


class RawDecoder:
    """Turns the fields of raw events into columns, for one schema. Raises ValueError for a schema that cannot be right."""

    def __init__(self, schema: RawSchema) -> None:
        if not schema.user:
            raise ValueError("user=() has no field: name at least one")
        self._schema = schema
        self._measures: list[Measure] = [partial(_placed, place=value.placer()) for value in schema.values]
        if schema.time is not None:
            self._measures.append(schema.time_reader())
        self.scalars = schema.scalars
        self.paths = [scalar for scalar in self.scalars if not isinstance(scalar, ComputedField)]
        """The scalars that are fields of the record. A format reads them where nothing is computed."""
        check_paths(self.paths)

    def decode(self, chunks: Iterable[Chunk]) -> RawColumns:
        """Columns of a batch, from chunks with a column for each of ``scalars``. Never raises for what a record holds."""
        schema, limit, values = self._schema, self._schema.max_key_bytes, len(self._schema.values)
        empty = Reason.OK if schema.empty_user == "value" else Reason.EMPTY_USER
        nobody = schema.null_user == "value"
        user = [Categories(Reason.MISSING_USER, nullable=nobody, limit=limit, empty=empty) for _ in schema.user]
        nullable = schema.null_key == "value"
        key = [Categories(Reason.MISSING_KEY, nullable=nullable, limit=limit) for _ in schema.key]
        batch = RecordColumns([user, key] if key else [user], self._measures)
        for chunk in chunks:
            batch.add(chunk)
        found = batch.finish()
        (users, user_names), *grouped = found.categories
        keys, key_names = grouped[0] if grouped else whole_key(found.reason)
        return RawColumns(
            reason=found.reason,
            user=users,
            users=user_names,
            key=keys,
            keys=key_names,
            values=np.stack(found.numbers[:values], axis=1) if values else np.zeros((found.reason.size, 0), np.int64),
            event_time=None if schema.time is None else found.numbers[-1],
            record=found.record,
            item=found.item,
        )


def _placed(column: Sequence[Any], *, place: Place) -> tuple[Int64s, Reasons]:
    numbers, reasons = numbers_of(column)
    placed = place(numbers)
    placed[reasons != 0] = 0
    return placed, reasons
