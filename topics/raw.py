"""raw: the events existing producers write, one JSON object a record; and their decoder, the pipeline's hot path.

A batch becomes columns. Payloads are decoded one by one (payloads.py), so no record can reach into another. Bad input
is never an error of the batch but a Reason in its row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from susurrus.topics.assembly import Reasons, collect, resolve, spread
from susurrus.topics.categories import Categories
from susurrus.topics.fields import Path, parse_path, plain, walk
from susurrus.topics.numbers import TimeUnit, event_times, measure, steps_of_field
from susurrus.topics.packing import Int32s, Int64s
from susurrus.topics.payloads import CHUNK, PayloadDecoder
from susurrus.topics.reason import Reason

__all__ = ["RawColumns", "RawDecoder", "RawSchema", "Reason", "ValueField"]


@dataclass(frozen=True, slots=True)
class ValueField:
    """A measured field. bound: L > 0, in the field's unit. grid: g > 0; values become rint(v / g) within +-floor(L /
    g)."""

    path: str
    bound: float
    grid: float

    @property
    def steps(self) -> int:
        """floor(L / g): the bound in grid units. Raises ValueError unless 1 <= steps < 2^53."""
        return steps_of_field(self.bound, self.grid)


@dataclass(frozen=True, slots=True)
class RawSchema:
    r"""Where user, key, values and time are in a raw event.

    Paths: names joined by dots, `\.` for a dot in a name. key: one path, or several for a composite key. time: path of
    the event time, None for the Kafka timestamp. null_user, null_key: what a JSON null is, "value" = a user or key of
    its own. An absent field is always bad input. max_key_bytes: of a canonical user or key.
    """

    user: str
    key: tuple[str, ...]
    values: tuple[ValueField, ...] = ()
    time: str | None = None
    time_unit: TimeUnit = "ms"
    null_user: Literal["dead-letter", "value"] = "dead-letter"
    null_key: Literal["dead-letter", "value"] = "dead-letter"
    max_key_bytes: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawColumns:
    """A batch as columns; codes count up in order of first occurrence among the good records, every item is in use.

    reason: uint8[n], a Reason, 0 = good. user, key: int32[n], codes into users and keys, -1 for bad records. users:
    canonical JSON scalars. keys: canonical JSON scalars, or arrays for composite keys. values: int64[n, V], clamped
    grid units, 0 for bad records. event_time: int64[n] in ms, 0 for bad records; None when time is the Kafka
    timestamp.
    """

    reason: npt.NDArray[np.uint8]
    user: Int32s
    users: list[bytes]
    key: Int32s
    keys: list[bytes]
    values: Int64s
    event_time: Int64s | None

    def __len__(self) -> int:
        return int(self.reason.size)


class RawDecoder:
    """Decodes batches of one schema. Raises ValueError for a schema that cannot be right."""

    def __init__(self, schema: RawSchema) -> None:
        if not schema.key:
            raise ValueError("key=() has no field: name at least one")
        self.schema = schema
        self._user = parse_path(schema.user)
        self._key = [parse_path(path) for path in schema.key]
        self._values = [(parse_path(v.path), v.grid, v.steps) for v in schema.values]
        self._time = None if schema.time is None else parse_path(schema.time)
        self._paths: list[Path] = [self._user, *self._key, *(path for path, _, _ in self._values)]
        if self._time is not None:
            self._paths.append(self._time)
        self._payloads = PayloadDecoder(self._paths)

    def decode(self, payloads: Sequence[bytes | None]) -> RawColumns:
        """Columns of a batch of payloads; None is a tombstone. Never raises for what a payload holds."""
        batch = _Batch(self, len(payloads))
        for start in range(0, len(payloads), CHUNK):
            columns, refused = self._payloads.columns(payloads[start : start + CHUNK])
            batch.refuse(start, refused)
            batch.add(columns)
        return batch.finish()

    def decode_objects(self, objects: Sequence[Mapping[str, Any] | Reason | None]) -> RawColumns:
        """Columns of records decoded elsewhere (Avro, Protobuf). None: a tombstone. A Reason: refused over there."""
        batch = _Batch(self, len(objects))
        columns: list[list[Any]] = [[] for _ in self._paths]
        refused: dict[int, Reason] = {}
        for row, record in enumerate(objects):
            try:
                fields = [plain(walk(record, path)) for path in self._paths]
            except TypeError:
                refused[row] = record if isinstance(record, Reason) else Reason.WRONG_TYPE
                continue
            if record is None:
                refused[row] = Reason.TOMBSTONE
                continue
            for column, field in zip(columns, fields, strict=True):
                column.append(field)
        batch.refuse(0, refused)
        batch.add(columns)
        return batch.finish()


class _Batch:
    """Columns of the accepted records, chunk by chunk; the rest of a record's checks; and their assembly at the end."""

    def __init__(self, decoder: RawDecoder, n: int) -> None:
        schema = decoder.schema
        self._decoder = decoder
        self._reason = np.zeros(n, np.uint8)
        limit = schema.max_key_bytes
        self._users = Categories(Reason.MISSING_USER, nullable=schema.null_user == "value", limit=limit)
        self._keys = [
            Categories(Reason.MISSING_KEY, nullable=schema.null_key == "value", limit=limit) for _ in schema.key
        ]
        self._codes: list[list[Int32s]] = [[] for _ in range(1 + len(schema.key))]
        self._measures: list[list[tuple[Int64s, Reasons]]] = [[] for _ in schema.values]
        self._times: list[tuple[Int64s, Reasons]] = []

    def refuse(self, start: int, refused: Mapping[int, Reason]) -> None:
        """Rows (relative to start) that have no record."""
        for row, reason in refused.items():
            self._reason[start + row] = reason

    def add(self, columns: Sequence[list[Any]]) -> None:
        """One list per path, of the accepted records."""
        rest = iter(columns)
        for categories, codes in zip((self._users, *self._keys), self._codes, strict=True):
            codes.append(categories.add(next(rest)))
        for (_, grid, steps), measures in zip(self._decoder._values, self._measures, strict=True):
            measures.append(measure(next(rest), grid=grid, low=-steps, high=steps))
        if self._decoder._time is not None:
            self._times.append(event_times(next(rest), self._decoder.schema.time_unit))

    def finish(self) -> RawColumns:
        """The reasons are found in the order user, key, values, time; the first one stands."""
        rows = np.flatnonzero(self._reason == 0)
        reason = np.zeros(rows.size, np.uint8)
        user, users = resolve([self._users], self._codes[:1], reason, self._decoder.schema.max_key_bytes)
        key, keys = resolve(self._keys, self._codes[1:], reason, self._decoder.schema.max_key_bytes)
        values = np.zeros((self._reason.size, len(self._measures)), np.int64)
        for index, chunks in enumerate(self._measures):
            values[rows, index] = collect(chunks, reason)
        time = None
        if self._decoder._time is not None:
            time = np.zeros(self._reason.size, np.int64)
            time[rows] = collect(self._times, reason)
        self._reason[rows] = reason
        if rows.size == self._reason.size and not reason.any():
            return RawColumns(
                reason=self._reason, user=user, users=users, key=key, keys=keys, values=values, event_time=time
            )
        good = reason == 0
        bad = self._reason != 0
        values[bad] = 0
        if time is not None:
            time[bad] = 0
        user, users = spread(user[good], users, ~bad)
        key, keys = spread(key[good], keys, ~bad)
        return RawColumns(
            reason=self._reason, user=user, users=users, key=key, keys=keys, values=values, event_time=time
        )
