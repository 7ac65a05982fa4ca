"""Stages without Kafka: logs are lists, the ledger is an object, and a task may be thrown away between any two commits."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from susurrus.agents.config.settings import Settings
from susurrus.agents.expressions.shared import SharedComputation
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.new_beginning import NEW_EPOCH
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.clients import TopicRecord
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.raw_topics import asked_for
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.ledger import Ledger
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import FIRST_STATE_KEY, Store
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import tick as tick_codec
from susurrus.topics.sources import Run, SourceMap
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents import released

WINDOW = released.WINDOW
SECRET = b"\x5a" * 32
EPOCH = "0123456789abcdef0123456789abcdef"


def _sources_of(settings: Settings, number: int) -> tuple[Run, ...]:
    """So many sources, in equal parts of every topic that the settings name; of the first one first."""
    topics = settings.input.listed
    sizes = [number // len(topics) + (place < number % len(topics)) for place in range(len(topics))]
    return tuple(Run(topic, 0, size) for topic, size in zip(topics, sizes, strict=True))


class MemoryLedger:
    """What stages ask of the ledger. ``records``: what commits wrote to it, by key."""

    def __init__(self, settings: Settings, *, sources: int = 2, charged: bool = True) -> None:
        self.epoch, self.epoch_number = EPOCH, 1
        self.way_out = NEW_EPOCH
        self.first_window = settings.calendar.window_at(settings.start.first_window or WINDOW)
        self.start = SimpleNamespace(
            offsets=dict.fromkeys(range(sources), 0),
            topic_ids=dict.fromkeys(settings.input.listed, "raw-1"),
            sources=_sources_of(settings, sources),
            first_window=settings.start.first_window,
        )
        self.records: dict[bytes, bytes | None] = {}
        self.charged = charged
        self.topic = "ledger"
        self.began: dict[tuple[str, int], int] = {}

    def refresh(self, *, complete: bool = False) -> None: ...

    def _decoded(self) -> list[Any]:
        return [ledger_codec.decode(key, value) for key, value in self.records.items() if value]

    def place(self, source: int) -> tuple[str, int]:
        place = self.sources.place(source)
        if place is None:
            raise Refusal(f"source={source}: there is none", "")
        return place

    @property
    def sources(self) -> SourceMap:
        announced = [record for record in self._decoded() if isinstance(record, ledger_codec.SourcesRecord)]
        newest = max(announced, key=lambda record: record.number, default=self.start)
        return SourceMap(newest.sources)

    @property
    def asked_for(self) -> tuple[str, ...]:
        return asked_for(self._decoded())

    def topic_id(self, topic: str) -> str:
        ids = {**self.start.topic_ids}
        for record in self._decoded():
            if isinstance(record, ledger_codec.SourcesRecord):
                ids |= record.topic_ids
        return ids.get(topic, "")

    def charge_for(self, topics: Any, windows: Any, guarantee: Any) -> list[Output]:
        return [
            Output("charges", 0, [{"key": f"{topic} {window}".encode(), "value": b"{}"}])
            for topic in topics
            for window in windows
        ]

    def published(self, partition: int) -> ledger_codec.PublishedPosition | None:
        key = f"published/{partition}".encode()
        record = ledger_codec.decode(key, self.records.get(key))
        return record if isinstance(record, ledger_codec.PublishedPosition) else None

    def begins(self, topic: str, partition: int) -> int:
        return self.began.get((topic, partition), 0)

    def digests(self, partition: int) -> dict[tuple[int, int], str]:
        found = [ledger_codec.decode(key, value) for key, value in self.records.items() if value]
        return {
            (record.window, record.trigger): record.digest
            for record in found
            if isinstance(record, ledger_codec.Digest) and record.partition == partition
        }

    def is_charged(self, window: int) -> bool:
        return self.charged

    def decision(self, window: int) -> bool | None:
        return None

    def skipped(self) -> frozenset[int]:
        return frozenset()

    def charge_output(self, window: int, guarantee: Any) -> Output:
        self.charged = True
        return Output("charges", 0, [{"key": b"charge", "value": b"{}"}])

    def joined(self, partition: int) -> ledger_codec.SourcesRecord | None:
        found = [ledger_codec.decode(key, value) for key, value in self.records.items() if value]
        announced = [record for record in found if isinstance(record, ledger_codec.SourcesRecord)]
        return min((a for a in announced if a.number > partition), key=lambda a: a.number, default=None)

    output = Ledger.output
    withdrawn = Ledger.withdrawn


def tick_behind(
    log: Sequence[bytes], source: int, interval: int, digest: bytes, *, source_of: Callable[[bytes], int]
) -> bytes:
    """A tick as the stage before writes it behind what ``log`` holds."""
    records = sum(kind_of(value) is not Kind.TICK and source_of(value) == source for value in log)
    return tick_codec.encode(tick_codec.Tick(source, interval, records, digest))


class WallClock:
    """What a stage takes for the module ``time``, in ms."""

    def __init__(self) -> None:
        self.now = WINDOW

    def time(self) -> float:
        return self.now / 1000

    def monotonic(self) -> float:
        return self.now / 1000


class MemoryClients:
    """Where the raw logs end, and the last record of every other topic's partitions."""

    embedded = False

    def __init__(self, ends: dict[int, int] | None = None) -> None:
        self.ends = ends or {}
        self.topic_id_ = "raw-1"
        self.last: dict[tuple[str, int], TopicRecord] = {}

    def newest(self, topic: str, partition: int) -> TopicRecord | None:
        return self.last.get((topic, partition))

    def topic_id(self, topic: str) -> str:
        return self.topic_id_

    def partitions(self, topic: str) -> int:
        return len(self.ends)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, self.ends.get(partition, 0)


def services_of(settings: HistogramSettings, *, sources: int = 2, charged: bool = True) -> HistogramServices:
    plan = settings.plan()
    digest = hashlib.blake2b(settings.config_digest() + plan.digest(), digest_size=32).digest()
    index = None
    strategy = build_strategy(plan)
    if strategy.lag is not None:
        index = MemoryPublishedKeys(
            settings.topic("published-keys"),
            partitions=settings.topics.bounded_partitions,
            calendar=settings.calendar,
            config_digest=digest,
        )
        index.epoch = bytes.fromhex(EPOCH)
        if settings.remember:
            index.first_window = settings.calendar.window_at(settings.start.first_window or WINDOW)
    return HistogramServices(
        settings=settings,
        clients=MemoryClients(),  # type: ignore[arg-type]
        ledger=MemoryLedger(settings, sources=sources, charged=charged),  # type: ignore[arg-type]
        calendar=settings.calendar,
        config_digest=digest,
        secret=SECRET,
        strategy=strategy,
        computation=SharedComputation(settings.raw_schema().scalars, settings.input.where, settings.lookup_tables),
        published_keys=index,
    )


class MemoryPublishedKeys(PublishedKeys):
    """Reads each record as it is written, unless ``reading`` is off. ``log``: the topic."""

    def __init__(self, topic: str, **of: Any) -> None:
        super().__init__(topic, **of)
        self.log: list[bytes] = []
        self.reading = True

    def append(self, value: bytes) -> None:
        """One more record."""
        self.log.append(value)
        if self.reading:
            self.take(value, len(self.log) - 1)

    def read_again(self) -> None:
        """Everything from the start."""
        self.clear()
        for offset, value in enumerate(self.log):
            self.take(value, offset)


S = TypeVar("S", bound=Stage)

Written = list[tuple[str, int, bytes | None, bytes | None, int | None]]
"""(topic, partition, key, value, time stamp) in order."""


def born(
    kind: type[S],
    services: Any,
    store: Any,
    meta: dict[str, Any] | None = None,
    position: int = 0,
    *,
    partition: int = 0,
) -> tuple[S, int]:
    """A stage as a task makes it, and the position to read from. meta None: it has never committed; position: start of the log."""
    if meta is None:
        meta, position = kind.begin(services, partition, Offset(position))
    return kind(services, partition, store, meta, Offset(position)), position


class Runner:
    """One stage of one partition with a store, fed from a list of values (or of whole records)."""

    def __init__(self, kind: type[Stage], services: Services, directory: Path, partition: int = 0):
        self.services = services
        self.written: Written = []
        self.commits: list[Commit] = []
        self._kind = kind
        self._partition = partition
        self._directory = directory
        self.store = Store(directory)
        self.meta: dict[str, Any] | None = None
        self.position = 0
        self.restart()

    def restart(self, *, empty: bool = False) -> None:
        """A new owner: memory is gone. ``empty``: every trace of the partition's state is gone too."""
        if empty:
            self.store.wipe()
            self.meta, self.position = None, 0
        self.stage, self.next = born(
            self._kind, self.services, self.store, self.meta, self.position, partition=self._partition
        )

    def feed(self, log: list[Any], end: int) -> None:
        """One fetch, from where the stage stands up to ``end``."""
        end = min(end, len(log))
        if end <= self.next:
            return
        records = [
            value if not isinstance(value, bytes) else SimpleNamespace(offset=offset, value=value)
            for offset, value in enumerate(log[self.next : end], self.next)
        ]
        self.stage.take(Batch(self.next, end, records, 0))
        self.next = end

    def commit(self, limit: int = 10**9, *, now: int = 2 * WINDOW) -> int:
        """Make durable what the stage has ready, at most so many commits; how many there were."""
        number = 0
        if not limit:
            return 0
        for commit in self.stage.commits(now):
            self._apply(commit)
            number += 1
            if number == limit:
                break
        return number

    def _apply(self, commit: Commit) -> None:
        commit.meta["counters"] = dict(self.stage.counters)
        for output in commit.outputs:
            for message in output.messages:
                self.written.append(
                    (output.topic, output.partition, message.get("key"), message["value"], message.get("timestamp"))
                )
                self.services.clients.last[output.topic, output.partition] = TopicRecord(  # type: ignore[attr-defined]
                    message.get("key") or b"", message["value"], len(self.written)
                )
                if output.topic == self.services.ledger.topic:
                    self.services.ledger.records[message["key"]] = message["value"]  # type: ignore[attr-defined]
                if output.topic == self.services.topic("published-keys"):
                    self.services.published_keys.append(message["value"])  # type: ignore[attr-defined]
        self.store.write(commit.puts, commit.deletes, commit.drops, meta=b"m")
        self.meta, self.position = commit.meta, commit.position
        self.commits.append(commit)
        self.stage.committed(commit)

    def state(self) -> dict[bytes, bytes]:
        """What is stored."""
        return dict(self.store.scan(FIRST_STATE_KEY, b"\xff"))

    def to(self, *topics: str) -> Written:
        """What was written to some topics."""
        names = {self.services.topic(topic) for topic in topics}
        return [row for row in self.written if row[0] in names]

    def close(self) -> None:
        self.store.close()


def number_of(name: bytes) -> int:
    """The number that `ordered` wrote at the start of a state key."""
    return int.from_bytes(name[:8], "big") - (1 << 63)
