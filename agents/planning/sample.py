"""A sample of raw records as columns, for forecasts and recommendations: read in the trust zone, from a file or the raw topic.

    file or raw topic ──format──▶ fields ──expressions──▶ scalars ──decoder──▶ columns ──▶ Sample

It is decoded as the stage route decodes (agents/histogram/route.py): the same formats, expressions, decoder and reasons. A
sample is raw data: what is computed from it is as secret, unless a mechanism of its own protects it (tune.py).
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.expressions.computation import Computation
from susurrus.agents.formats.beside import Beside
from susurrus.agents.formats.format import Format, Overdue
from susurrus.agents.formats.reader import VALUE, RecordReader, value_paths
from susurrus.agents.formats.reading import reader_of, steps_of
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.messages import record_of
from susurrus.agents.kafka.raw_topics import raw_topics
from susurrus.agents.planning import files
from susurrus.agents.planning.raw_topic import Slice, newest, oldest, records_of, stamp_type
from susurrus.mechanisms.arrays import Int32s, Int64s
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.topics.records.fields import BESIDE, Path, written
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.raw import BucketField, Measurable, RawColumns, RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.time_numbers import TimeUnit
from susurrus.topics.wire.batch_reader import Headers

Progress = Callable[[int, int | None], None]
"""Takes the number of records read so far, and of all that will be read where that is known."""

WIDE_STEPS: Final = 1 << 10
"""The steps of a wide sample's grid in one unit of the column's."""
WIDEST: Final = 1 << 40
"""Units of a wide sample's grid at which its values are clamped."""
_BATCH: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Good records, sorted by user and then time; records of equal times keep their order.

    user: int64[n], codes from 0. key: int32[n], codes into ``key_names``. time: int64[n], event times in ms. values: int64[n,
    fields] in grid units, a column for each of ``settings.layout.values``. users: distinct ones. key_names: canonical JSON. read:
    records, the dropped ones included. dropped: records by why they were dropped, a name of `Reason`; those that ``input.where``
    leaves out are "FILTERED". timed: whether the records say their times; otherwise they are spread evenly over one window, in
    their order.
    """

    user: Int64s
    key: Int32s
    time: Int64s
    values: Int64s
    users: int
    key_names: list[bytes]
    read: int
    dropped: Mapping[str, int]
    timed: bool = True

    def __len__(self) -> int:
        return len(self.user)

    def between(self, start: int, end: int) -> "Sample":
        """The records with event times in [start, end), in ms. ``read`` and ``dropped`` stay as they are."""
        inside = (self.time >= start) & (self.time < end)
        users, codes = np.unique(self.user[inside], return_inverse=True)
        return replace(
            self,
            user=codes.astype(np.int64),
            key=self.key[inside],
            time=self.time[inside],
            values=self.values[inside],
            users=len(users),
        )


def read_file(
    path: FilePath,
    settings: HistogramSettings,
    *,
    time: str | None = None,
    time_unit: TimeUnit | None = None,
    wide: bool = False,
    progress: Progress = lambda done, total: None,
) -> Sample:
    """The sample that a file holds: one of files.FORMS.

    time: the field with the time, where ``input.time`` is Kafka's stamp, which a file does not have. wide: values on a grid of
    1 / WIDE_STEPS of the columns', clamped at WIDEST of its units instead of at the columns' bounds. Raises ConfigurationError
    where the file cannot be read or lacks a field, SusurrusError where no record is good.
    """
    schema = _schema(settings, wide)
    if schema.time is None and time is not None:
        schema = replace(schema, time=time, time_unit=time_unit or schema.time_unit, time_format=None)
    decoder = RawDecoder(schema)
    computation = Computation(decoder.scalars, settings.input.where, settings.lookup_tables)
    names = set(decoder.scalars[: len(schema.user) + len(schema.key)])
    found = _Gathering(settings)
    steps, wanted = steps_of(settings.input.lists, computation.paths, computation.asked or ())
    if beside := [written(one) for one in wanted if one[:1] == (BESIDE,) and one != VALUE]:
        raise ConfigurationError(
            f"{path}: a file has the values of records only, and the settings read {', '.join(beside)}; "
            "read the topic itself instead of a file"
        )
    reader = RecordReader(
        _FileOfRecords(path, value_paths(wanted), {name for name in computation.paths if name in names}),
        Beside((), "none", topic=None, partition=None),
        paths=computation.paths,
        wanted=wanted,
        steps=steps,
        asked=computation.asked,
    )
    with contextlib.closing(reader), contextlib.closing(computation):
        for batch in _batches(computation.applied(reader.read((), lambda row: True))):
            found.add(decoder.decode(batch), None)
            progress(found.read, None)
    return found.sample(str(path))


def read_topic(
    settings: HistogramSettings,
    records: int,
    *,
    from_start: bool = False,
    wide: bool = False,
    clients: Clients | None = None,
    progress: Progress = lambda done, total: None,
) -> Sample:
    """The last ``records`` records of the raw topic, over all its partitions and by Kafka's stamps; the first, ``from_start``.

    Raises ConfigurationError where the topic does not exist, SusurrusError where no record is good or the schema registry does
    not answer, KafkaException.
    """
    if records < 1:
        raise ConfigurationError(f"records={records}: read at least one")
    choose = oldest if from_start else newest
    return read_slice(settings, lambda clients, topics: choose(clients, topics, records), wide, clients, progress)


def read_slice(
    settings: HistogramSettings,
    choose: Callable[[Clients, Sequence[str]], Slice],
    wide: bool = False,
    clients: Clients | None = None,
    progress: Progress = lambda done, total: None,
    *,
    topics: Sequence[str] | None = None,
    stamped: tuple[int, int] | None = None,
    called: str | None = None,
) -> Sample:
    """The records of the raw topics between two offsets of each partition, which ``choose`` says. Raises as `read_topic`.

    topics: the raw topics; by default those that the pipeline has now. stamped: only records with a stamp of Kafka in [start, end),
    in ms. called: what errors call it.
    """
    own = clients is None
    clients = clients_of(settings, quiet=True) if clients is None else clients
    try:
        topics = raw_topics(settings, clients) if topics is None else topics
        chosen = choose(clients, topics)
        decoder = RawDecoder(_schema(settings, wide))
        computation = Computation(decoder.scalars, settings.input.where, settings.lookup_tables)
        found = _Gathering(settings)
        with contextlib.ExitStack() as opened:
            readers = {
                topic: reader_of(
                    settings.input.of(topic), computation.paths, topic=topic, partition=None, asked=computation.asked
                )
                for topic in topics
            }
            for reader in readers.values():
                opened.callback(reader.close)
            for topic, records in _by_topic(records_of(clients, chosen, _BATCH)):
                reader = readers[topic]
                if stamped is not None:
                    records = [record for record in records if stamped[0] <= record.timestamp()[1] < stamped[1]]
                chunks = list(reader.read([record_of(record) for record in records], lambda row: True))
                if sum(chunk.payloads for chunk in chunks) < len(records):
                    raise SusurrusError(str(reader.waits or "a schema is not known yet; try again"))
                columns = decoder.decode(computation.applied(chunks))
                stamps, otherwise = _stamps(records), settings.clock.chosen.stamped_otherwise(_types(records))
                if columns.record is not None:
                    stamps, otherwise = stamps[columns.record], otherwise[columns.record]
                found.add(columns, stamps, otherwise)
                progress(min(found.read, chosen.records), chosen.records)
    finally:
        if own:
            clients.close()
    return found.sample(called or f"topic={settings.input.called}")


def _by_topic(batches: Iterable[list[Any]]) -> Iterator[tuple[str, list[Any]]]:
    """The records of each batch, by their topic."""
    for batch in batches:
        found: dict[str, list[Any]] = {}
        for record in batch:
            found.setdefault(record.topic(), []).append(record)
        yield from found.items()


def _schema(settings: HistogramSettings, wide: bool) -> RawSchema:
    schema = settings.raw_schema()
    if not wide:
        return schema
    return replace(schema, values=tuple(map(_widened, schema.values)))


def _widened(value: Measurable) -> Measurable:
    """The field on a finer grid, with nearly no bounds; buckets stay as they are."""
    if isinstance(value, BucketField):
        return value
    grid = value.grid / WIDE_STEPS
    return replace(value, grid=grid, bound=grid * WIDEST, lower=None, upper=None)


def _stamps(records: list[Any]) -> Int64s:
    return np.fromiter((record.timestamp()[1] for record in records), np.int64, len(records))


def _types(records: list[Any]) -> Int64s:
    """The types of the time stamps, as batches have them: a record of another type than the clock's is bad input, as in route."""
    return np.fromiter((stamp_type(record) for record in records), np.int64, len(records))


def _batches(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    batch: list[Chunk] = []
    for chunk in chunks:
        batch.append(chunk)
        if sum(one.rows for one in batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


class _FileOfRecords(Format):
    """What `files.chunks` reads of a file, as a format reads it of records; there are none to give it."""

    def __init__(self, file: FilePath, paths: Sequence[Path], names: Collection[Path]) -> None:
        super().__init__(paths, None)
        self._file, self._names = file, names

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """The whole file."""
        return files.chunks(self._file, self.paths, names=self._names)


class _Gathering:
    """Joins decoded batches: codes of one batch mean nothing in another."""

    def __init__(self, settings: HistogramSettings) -> None:
        self._settings = settings
        self._users: dict[bytes, int] = {}
        self._keys: dict[bytes, int] = {}
        self._pieces: list[tuple[Int64s, Int32s, Int64s | None, Int64s]] = []
        self._dropped: Counter[str] = Counter()
        self.read = 0

    def add(self, columns: RawColumns, stamps: Int64s | None, otherwise: npt.NDArray[np.bool_] | None = None) -> None:
        """stamps: int64[n], of Kafka; None where there are none. otherwise: bool[n], stamped otherwise than the clock expects."""
        time = columns.event_time
        if otherwise is not None:
            columns.reason[otherwise & (columns.reason == Reason.OK)] = Reason.WRONG_STAMP
        if time is None:
            time = stamps
        elif stamps is not None:  # as route does
            ahead = time > stamps + self._settings.max_future
            columns.reason[ahead & (columns.reason == Reason.OK)] = Reason.IN_FUTURE
        self.read += len(columns)
        good = np.flatnonzero(columns.reason == Reason.OK)
        for reason, count in enumerate(np.bincount(columns.reason).tolist()):
            if reason and count:
                self._dropped[Reason(reason).name] += count
        users = _joined(self._users, columns.users, columns.user[good])
        keys = _joined(self._keys, columns.keys, columns.key[good]).astype(np.int32)
        self._pieces.append((users, keys, None if time is None else time[good], columns.values[good]))

    def sample(self, place: str) -> Sample:
        """Everything added, sorted. Raises SusurrusError where no record is good. place: for the message."""
        pieces = [piece for piece in self._pieces if len(piece[0])]
        if not pieces:
            raise SusurrusError(self._nothing(place))
        user, key, values = (np.concatenate([piece[i] for piece in pieces]) for i in (0, 1, 3))
        times = [piece[2] for piece in pieces if piece[2] is not None]
        time = np.concatenate(times) if times else self._spread(len(user))
        order = np.lexsort((time, user))
        return Sample(
            user=user[order],
            key=key[order],
            time=time[order],
            values=values[order],
            users=len(self._users),
            key_names=list(self._keys),
            read=self.read,
            dropped=dict(self._dropped),
            timed=bool(times),
        )

    def _spread(self, records: int) -> Int64s:
        start = self._settings.some_window
        length = self._settings.calendar.end_of(start) - start
        return start + np.arange(records, dtype=np.int64) * length // records

    def _nothing(self, place: str) -> str:
        if not self.read:
            return f"{place}: has no records; give another sample, or wait for records"
        why = ", ".join(f"{count:,} {name} ({Reason[name].message})" for name, count in self._dropped.most_common())
        clock = Reason.WRONG_STAMP.name in self._dropped
        correct = "clock.kind, [input] and [[columns]]" if clock else "[input] and [[columns]]"
        return f"{place}: none of {self.read:,} records is good: {why}; correct {correct}"


def _joined(known: dict[bytes, int], names: list[bytes], codes: Int32s) -> Int64s:
    """Codes of a batch as codes of all batches; names that no record has any more get none."""
    used, places = np.unique(codes, return_inverse=True)
    everywhere = np.fromiter((known.setdefault(names[code], len(known)) for code in used.tolist()), np.int64, len(used))
    return everywhere[places]
