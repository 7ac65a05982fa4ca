"""stream: values -> private-stream.  Key: stream id.  State: per stream its phase, theta, open leaf and filter.

One state machine per (raw partition, stream id): collect m values, release theta, then sums.  Events count in the
order of the raw log.  Event-level privacy: positions and times are public, the value of any one event is protected.

State keys: ``h`` stream -> the part that changes with every event, ``c`` stream -> the rest, written when it has changed.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from susurrus.agents.finding import Finding
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.formats.waiting import Intake
from susurrus.agents.formats.whole import source_of
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output, ReleasedRows
from susurrus.agents.runtime.dead_letters import DeadLetters
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import Stage, pinned_start
from susurrus.agents.runtime.store import Store
from susurrus.agents.stream.mechanism import grid_of, mechanism_of, promise_of, table_of
from susurrus.agents.stream.replay import StreamReplay
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.table import StreamStep, stream_address
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import private_stream as codec
from susurrus.topics.records.reason import LEFT_OUT, Reason
from susurrus.topics.records.scanning import Scanned
from susurrus.topics.records.table import RecordTable, keys_of
from susurrus.topics.records.values import ValuesDecoder, ValuesSchema
from susurrus.topics.values_batches import ValuesBatchDecoder

_HOT, _COLD = b"h", b"c"
_MEASURED = (
    *("value", "value_error", "sum", "sum_error", "filtered_sum", "filtered_sum_error"),
    *("theta", "lower", "truncated", "truncated_error"),
)
"""Columns that the mechanism counts in steps of the grid."""
_STREAMS_IN_MEMORY = 25_000
_QUIET_RECORDS = 20_000
_QUIET_SECONDS = 1.0


def whole_decoder(
    settings: StreamSettings, schema: ValuesSchema, form: Format | None = None
) -> ValuesBatchDecoder | None:
    """The compiled decoder, where it is there and knows the format. form: as of `source_of`."""
    values = source_of(settings.input, form, ValuesDecoder(schema).paths)
    return None if values is None else ValuesBatchDecoder(schema, values)


class StreamStage(Stage):
    """One raw partition, under ToPS or PAK."""

    name = "stream"
    counted = ("in", "filtered", "dead_letter", "streams", "rows")

    services: Services[StreamSettings]

    def __init__(
        self, services: Services[StreamSettings], partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        """A stream is loaded from the store when one of its events comes. Raises as `StreamReplay` does."""
        super().__init__(services, partition, store, meta, position)
        self._replay = StreamReplay(services, partition, meta, position)
        settings = services.settings.stream
        self._settings = settings
        self._topic = services.settings.input.topic
        self._grid = grid_of(settings)
        schema = ValuesSchema(value=settings.value, bound=settings.bound, grid=self._grid, stream=settings.stream)
        decoder, by_key = ValuesDecoder(schema), settings.stream is None
        reader = reader_of(services.settings.input, decoder.paths, topic=self._topic, partition=partition)
        self._intake = Intake(
            reader,
            lambda chunks, records: decoder.decode(chunks, keys_of(records) if by_key else ()),
            position=position,
            stage=self.name,
            topic=self._topic,
            partition=partition,
            watermarks=services.clients.watermarks,
            whole=whole_decoder(services.settings, schema, reader.form),
        )
        self._mechanism = mechanism_of(settings)
        # Streams have no windows: the address of every draw names its tree.
        self._noise = services.noise_source().window(WindowIndex(0))
        self._committed, self._committed_at = position, time.monotonic()
        self._announced = bool(meta["announced"])
        self._letters = DeadLetters(
            services, partition, stage=self.name, topic=self._topic, keep=services.settings.worker.dead_letter_values
        )
        self._table = table_of(self._mechanism)
        self._names: list[bytes] = []
        self._rows: dict[bytes, int] = {}
        self._touched: set[int] = set()
        self._changed: set[int] = set()
        self._messages: list[dict[str, Any]] = []

    # ---- input -------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, services: Services[StreamSettings], partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """Reading starts where the ledger says, and at the first record of a partition that the raw topic gained later."""
        return {"announced": False, "chain": {}}, pinned_start(services, partition, services.settings.input.topic)

    def close(self) -> None:
        """Close the connections of the input's format."""
        self._intake.close()

    def take(self, batch: Batch) -> None:
        """Step the streams of a batch."""
        waited = self._intake.pending
        self._intake.take(batch.fetched, batch.end)
        if not waited:
            self._step_held(int(time.time() * 1000))

    def _step_held(self, now: int) -> None:
        """Step the streams of the held records, up to the first record that waits for its schema."""
        records, columns, _ = self._intake.decode(now)
        self._taken, self.full = Offset(self._intake.position), self._intake.pending
        self.counters["in"] += len(records)
        good = np.flatnonzero(columns.reason == Reason.OK)
        left_out = np.isin(columns.reason, list(LEFT_OUT))  # by an envelope, such as a tombstone behind a delete
        why = np.where(left_out, Reason.OK, columns.reason)
        self.counters["filtered"] += int(left_out.sum())
        self.counters["dead_letter"] += int(np.count_nonzero(why))
        known = self._replay.take(records, good, columns.streams, columns.stream, columns.value, self._taken)
        self._letters.refuse(records[known:] if known else records, why[known:])
        if not len(good):
            return
        row_of = np.array(self._load(columns.streams), dtype=np.int64)
        rows = row_of[columns.stream[good]]
        step = self._table.step(rows, columns.value[good], self._noise)
        self._touched.update(step.touched.tolist())
        self._changed.update(step.changed.tolist())
        if len(step.rows):
            self._publish(step, good, records, known)

    def _load(self, streams: list[bytes]) -> list[int]:
        """Return the streams' rows in the table; streams that are not there are added from the store, or as new."""
        missing = [stream for stream in streams if stream not in self._rows]
        hot = self._store.get([_HOT + stream for stream in missing])
        cold = self._store.get([_COLD + stream for stream in missing])
        for stream, fast, rest in zip(missing, hot, cold, strict=True):
            self._rows[stream] = self._table.add(stream_address(self.partition, stream), fast, rest)
            self._names.append(stream)
            self.counters["streams"] += fast is None
        return [self._rows[stream] for stream in streams]

    # ---- output ------------------------------------------------------------------------------------------------------

    def _publish(self, step: StreamStep, good: Int64s, records: Sequence[Any], known: int) -> None:
        """Add rows of the private stream, in the order and with the Kafka time of the events that completed them.

        The order of the rows of different streams is that of the raw log, so it does not depend on the batches. Rows of the first
        ``known`` records are public already.
        """
        self.counters["rows"] += len(step.rows)
        in_log_order = np.argsort(step.events, kind="stable")
        in_log_order = in_log_order[good[step.events[in_log_order]] >= known]
        if not len(in_log_order):
            return
        columns = {name: getattr(step.releases, name)[in_log_order] for name in Releases.__dataclass_fields__}
        columns |= {name: columns[name] * self._grid for name in _MEASURED}
        names = [self._names[row] for row in step.rows[in_log_order].tolist()]
        at = good[step.events[in_log_order]]
        if isinstance(records, Scanned | RecordTable):
            stamps = records.timestamp[at].tolist()
        else:
            stamps = [records[row].timestamp for row in at.tolist()]
        release = codec.StreamHeader(
            method=self._settings.method, epsilon=self._settings.epsilon, epoch=self.services.ledger.epoch
        )
        keys, rows = codec.public_rows(release, codec.StreamColumns(streams=names, **columns))
        [messages] = self.services.publisher.messages([self.services.topic("private-stream")], keys, rows, stamps)
        self._messages += messages

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit for everything taken. Input without output is committed now and then, so that a crash re-reads little."""
        if self._intake.due:
            self._step_held(now)
        quiet = not self._messages and not self._letters
        waited = time.monotonic() - self._committed_at
        if self._taken == self._committed or (
            quiet and waited < _QUIET_SECONDS and self._taken < self._committed + _QUIET_RECORDS
        ):
            return
        outputs = []
        if self._messages:
            outputs.append(Output(self.services.topic("private-stream"), self.partition, self._messages))
            if not self._announced:
                # The transaction that first releases anything also writes to the ledger what an event costs.
                promise, method = promise_of(self._settings), self._settings.method
                record = ledger_codec.EventLevel(
                    partition=self.partition, method=method, epsilon=promise.epsilon, delta=promise.delta
                )
                outputs.append(self.services.ledger.output(record))
                self._announced = True
        outputs += self._letters.outputs()
        if outputs:
            outputs.append(self._replay.published(self._taken, self._messages))
        touched, changed = sorted(self._touched), sorted(self._changed)
        hot = self._table.pack_hot(np.array(touched, dtype=np.int64))
        puts = [(_HOT + self._names[row], data) for row, data in zip(touched, hot, strict=True)]
        puts += [(_COLD + self._names[row], self._table.pack_cold(row)) for row in changed]
        meta = {"announced": self._announced, "chain": self._replay.state()}
        publishes = bool(self._messages)
        commit = Commit(position=self._taken, meta=meta, outputs=outputs, puts=puts, publishes=publishes)
        if publishes:
            commit.released.append(ReleasedRows(what="sums", rows=len(self._messages)))
        self._touched, self._changed, self._messages = set(), set(), []
        yield commit

    def committed(self, commit: Commit) -> None:
        """Forget a table that has grown large: everything is in the store now."""
        self._committed, self._committed_at = commit.position, time.monotonic()
        if len(self._names) > _STREAMS_IN_MEMORY:
            self._table = table_of(self._mechanism)
            self._names, self._rows = [], {}

    def stall(self, now: int) -> Finding | None:
        """The only thing that streams wait for is a record's schema."""
        return self._intake.waits
