"""The pipelines of a campaign: what feeds each, when it has finished, and which output must not change. For benchmarks/campaign.py.

Histograms run live, with clock ``broker``: records arrive while the events happen. What is published is a function of the raw log
(docs/guarantees/exactly-once.md), so a second pipeline that reads the same log afterwards, without faults, must publish the same
bytes. The same holds for a stream. A local server publishes by the wall clock, so here every report must be counted once or be a
dead letter.
"""

import contextlib
import itertools
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np
from campaign_events import EVENTS, Event, World, registry_away
from confluent_kafka import KafkaException, Producer

from susurrus.agents.broker.network import free_ports
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import top
from susurrus.topics.wire.timestamps import format_time, parse_time
from tests.broker import Broker
from tests.local_pipeline import client_of, estimates, local_pipeline
from tests.pipeline import Pipeline, Public, archive_topic, merged
from tests.reference import NO_LAST_LOOK
from tests.stream_pipeline import TOPS, stream_pipeline

PARTITIONS = 3
WINDOW, EVERY, LATENESS = 60_000, 5_000, 20_000
TRIGGERS = (WINDOW + LATENESS) // EVERY
SETTLE_SECONDS = 1200.0
REPLICATED = {"topics": {"replication_factor": 3, "min_insync_replicas": 2}}


@dataclass(frozen=True, slots=True)
class Compared:
    """How much was compared, in bytes or reports, and how much of it differs."""

    unit: str
    compared: int
    different: int


def compare(wanted: Public, found: Public) -> Compared:
    """Compare records at the same place of the same partition. If two differ, all bytes of the longer one count."""
    compared = different = 0
    for topic in wanted.keys() | found.keys():
        ours, theirs = wanted.get(topic, {}), found.get(topic, {})
        for partition in ours.keys() | theirs.keys():
            for one, other in itertools.zip_longest(ours.get(partition, []), theirs.get(partition, [])):
                size = max(_size(one), _size(other))
                compared += size
                different += size if one != other else 0
    return Compared("bytes", compared, different)


def _size(record: tuple[bytes, bytes | None, int] | None) -> int:
    """Its key, its value (none: a tombstone of `latest`) and its stamp."""
    return 0 if record is None else len(record[0]) + len(record[1] or b"") + 8


def until_window(public: Public, last: int) -> Public:
    """Only the records of windows that begin at ``last`` or before."""
    return {
        topic: {
            partition: [row for row in rows if parse_time(json.loads(row[0])["window"]) <= last]
            for partition, rows in partitions.items()
        }
        for topic, partitions in public.items()
    }


class Feeder:
    """Calls ``feed`` ten times a second until it is closed. ``close`` raises the exception that ``feed`` raised."""

    def __init__(self, feed: Callable[[], object]) -> None:
        self._feed = feed
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.wait(0.1):
                self._feed()
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        """Stop; safe to call twice."""
        self._over.set()
        self._thread.join()

    def close(self) -> None:
        """Stop, and raise what went wrong."""
        self.stop()
        if self._error is not None:
            raise self._error


def feeding_producer(kafka: Broker) -> Producer:
    """Not idempotent: once a broker has died, an idempotent producer can keep a core busy, and brokers that come back starve.

    Without idempotence a record may stand twice in the raw log. Both runs read the same log, so the comparison holds.
    """
    return kafka.producer(enable_idempotence=False, linger_ms=20, queue_buffering_max_messages=1_000_000)


def flush(producer: Producer, topic: str) -> None:
    """Wait for what was produced. Raises TimeoutError."""
    if left := producer.flush(120):
        raise TimeoutError(f"{left} records could not be written to {topic}")


class Target(ABC):
    """One pipeline of the campaign; ``events`` by name."""

    name: str
    events: dict[str, Event] = EVENTS

    def __init__(self, world: World, directory: Path, seed: str, rate: int) -> None:
        self.world = world
        self.kafka = world.kafka
        self.directory = directory
        self.dice = Random(seed)
        self.rate = rate

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """What must run for the whole time, such as a schema registry."""
        yield

    @abstractmethod
    def pipeline(self) -> Pipeline:
        """A new pipeline on the same raw log."""

    def made(self) -> Pipeline:
        """``pipeline()``, as soon as every broker knows the raw topic."""
        for _ in range(30):
            with contextlib.suppress(ConfigurationError):
                return self.pipeline()
            self.world.rest(1.0)
        return self.pipeline()

    @abstractmethod
    def feed(self, pipeline: Pipeline) -> Feeder:
        """Begin to write to the raw log."""

    @abstractmethod
    def wind_up(self, feeder: Feeder) -> None:
        """The events are over: feed what is still needed, and stop."""

    @abstractmethod
    def finished(self, pipeline: Pipeline) -> bool:
        """Whether everything that will be compared is published."""

    def settle(self, pipeline: Pipeline) -> None:
        """Wait until it has finished. Raises TimeoutError with what it waits for."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            with contextlib.suppress(KafkaException, TimeoutError):  # brokers that have just come back
                if self.finished(pipeline):
                    return
            if time.monotonic() > deadline:
                logs = "\n".join(worker.tail() for worker in pipeline.workers[-2:])
                raise TimeoutError(f"{self.name} has not finished\n{pipeline.trouble()}\n{logs}")
            self.world.rest(1.0)

    @abstractmethod
    def judge(self, disturbed: Pipeline) -> Compared:
        """Run what is needed without faults, and compare."""

    def undisturbed(self, topics: Iterable[str]) -> Public:
        """What one worker publishes from the same raw log without faults."""
        with self.made() as pipeline:
            worker = pipeline.start()
            self.settle(pipeline)
            assert worker.process.poll() is None, worker.tail()
            return pipeline.public(list(topics))


class Histogram(Target):
    """Overlapping windows of a minute, late and early records, counts and sums."""

    overrides: Mapping[str, Any] = MappingProxyType({})
    topics = ("histogram", "latest", "progress")

    def __init__(self, world: World, directory: Path, seed: str, rate: int) -> None:
        super().__init__(world, directory, seed, rate)
        self.raw = self.kafka.create_topic(
            f"raw-{self.kafka.new_prefix()}",
            PARTITIONS,
            {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"},
        )
        self.first = (int(time.time() * 1000) // WINDOW + 1) * WINDOW
        self.last = self.first
        self._number = 0

    def configuration(self) -> dict[str, Any]:
        """The settings that differ from the tests' defaults."""
        live = {
            "input": {"time": "at"},
            "start": {"from": "earliest", "first_window": format_time(self.first)},
            # Silence closes nothing as long as it is fed: elections under load may take their time.
            "clock": {"kind": "broker", "until": None, "grace": "2s", "idle_grace": "60s", "max_future": "40s"},
            "window": {"length": "60s", "trigger_every": "5s", "allowed_lateness": "20s"},
            "bounds": {"max_records_per_user": 6, "max_records_per_key": 2},
            "columns": [
                {"name": "visits", "kind": "count"},
                {"name": "hosts", "kind": "users"},  # closing chooses by it
                {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 1000, "grid": 1},
            ],
            "privacy": {"epsilon": 50.0, "delta": 1e-3, "strategy": "toeplitz"},
            "worker": {"max_open_records": 2000},
        }
        return merged(merged(live, REPLICATED), self.overrides)

    def pipeline(self) -> Pipeline:
        return Pipeline(self.kafka, self.directory, self.raw, self.configuration())

    def encode(self, event: dict[str, Any]) -> bytes:
        return json.dumps(event).encode()

    def write(self, producer: Producer, number: int, event: dict[str, Any]) -> None:
        """Write one event."""
        producer.produce(self.raw, self.encode(event), partition=number % PARTITIONS)

    def feed(self, pipeline: Pipeline) -> Feeder:
        producer = feeding_producer(self.kafka)
        began, dice = time.monotonic(), self.dice

        def some() -> None:
            while self._number < (time.monotonic() - began) * self.rate:
                self._number += 1
                event = {
                    "host": f"h{int(dice.expovariate(1 / 500))}",
                    "url": f"/{int(dice.expovariate(1 / 20))}",
                    "at": int(time.time() * 1000) + dice.choice([0, 0, 0, 0, -10_000, -40_000, -150_000, 30_000]),
                    "bytes": dice.randrange(-2000, 2000),
                }
                self.write(producer, self._number, event)
            producer.poll(0)

        self._flush = partial(flush, producer, self.raw)
        return Feeder(some)

    def wind_up(self, feeder: Feeder) -> None:
        """Until every interval of the window that is open now has been closed by a record."""
        self.last = max(self.first, int(time.time() * 1000) // WINDOW * WINDOW)
        self.world.rest(max(0.0, (self.last + WINDOW + LATENESS + 2 * EVERY + 5_000) / 1000 - time.time()))
        feeder.close()
        self._flush()

    def finished(self, pipeline: Pipeline) -> bool:
        reached = pipeline.progress()
        partitions = range(pipeline.settings.topics.bounded_partitions)
        return all(reached.get((str(self.last), partition), 0) >= TRIGGERS for partition in partitions)

    def judge(self, disturbed: Pipeline) -> Compared:
        found = until_window(disturbed.public(self.topics), self.last)
        return compare(until_window(self.undisturbed(self.topics), self.last), found)


class Toeplitz(Histogram):
    name = "toeplitz"


class NoLastLook(Histogram):
    """Strategy ``closing`` with its stream alone."""

    name = "no-last-look"
    overrides = MappingProxyType({"privacy": {"strategy": "closing", "closing": {"lag": 2, **NO_LAST_LOOK}}})


class Closing(Histogram):
    """With a rolling view, which keeps the rows of two windows."""

    name = "closing"
    overrides = MappingProxyType(
        {"privacy": {"strategy": "closing", "closing": {"lag": 2}}, "window": {"rolling": True}}
    )
    topics = (*Histogram.topics, "rolling")


class DpSqlp(Histogram):
    name = "dp-sqlp"
    overrides = MappingProxyType({"privacy": {"strategy": "dp-sqlp"}})


class Ranked(Histogram):
    """With a ranking, whose stage has one task."""

    name = "ranking"
    overrides = MappingProxyType({"top": {"order_by": "visits", "limit": 5, "having": ["hosts > 2"]}})
    topics = (*Histogram.topics, "top")

    def finished(self, pipeline: Pipeline) -> bool:
        """The ranking of a trigger comes after its rows."""
        if not super().finished(pipeline):
            return False
        records = [top.decode(message.value()) for message in pipeline.broker.read_all(pipeline.settings.topic("top"))]
        return (self.last, TRIGGERS) in {(record.window, record.trigger) for record in records}


class TwoTopics(Histogram):
    """Two topics of different formats. A record is a list of visits of one user, who is computed; some items cannot be read."""

    name = "two-topics"

    def __init__(self, world: World, directory: Path, seed: str, rate: int) -> None:
        super().__init__(world, directory, seed, rate)
        stamped = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
        self.second = self.kafka.create_topic(f"raw-{self.kafka.new_prefix()}", PARTITIONS - 1, stamped)

    def configuration(self) -> dict[str, Any]:
        own = {
            "input": {
                "topics": [self.raw, self.second],
                "formats": {self.second: {"format": "msgpack"}},
                "user": {"expression": "lower(host)"},
                "key": ["visit.url"],
                "each": {"of": "visits", "as": "visit"},
                "where": "visit.url IS NULL OR visit.url <> '/0'",
            },
            "columns": [
                {"name": "visits", "kind": "count"},
                {"name": "hosts", "kind": "users"},
                {"name": "bytes", "kind": "sum", "field": "visit.bytes", "bound": 1000, "grid": 1},
            ],
        }
        found = merged(super().configuration(), own)
        found["input"]["topic"] = None  # for who lays this over settings with one topic
        return found

    def write(self, producer: Producer, number: int, event: dict[str, Any]) -> None:
        """By turns to the one and the other topic."""
        visits: list[Any] = [
            {"url": f"{event['url']}/{item}", "bytes": event["bytes"]}
            for item in range(self.dice.choice([0, 1, 2, 30]))
        ]
        if self.dice.random() < 0.1:
            visits.insert(self.dice.randrange(len(visits) + 1), self.dice.choice([None, [], "/", {"url": []}]))
        host = self.dice.choice([str.upper, str.lower])(event["host"])
        record = {"host": host, "at": event["at"], "visits": visits}
        if number % 2:
            producer.produce(self.raw, json.dumps(record).encode(), partition=number // 2 % PARTITIONS)
        else:
            producer.produce(self.second, msgpack.packb(record), partition=number // 2 % (PARTITIONS - 1))


class Avro(Histogram):
    """Strategy ``toeplitz`` over Avro, with a real registry behind a relay that can be shut."""

    name = "avro"

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        from tests.registry import apicurio, relay

        fields = {"host": "string", "url": "string", "at": "long", "bytes": "long"}
        schema = {
            "type": "record",
            "name": "Visit",
            "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
        }
        (port,) = free_ports(1)
        with apicurio() as url, SchemaRegistryClient({"url": url}) as client, contextlib.ExitStack() as stack:
            serialize = AvroSerializer(client, Schema(json.dumps(schema), "AVRO"))
            context = SerializationContext(self.raw, MessageField.VALUE)
            self._encode = lambda event: serialize(event, context)
            open_now = contextlib.ExitStack()
            stack.callback(lambda: open_now.close())

            def registry(answers: bool) -> None:
                open_now.close()
                if answers:
                    open_now.enter_context(relay(port, url))

            registry(True)
            self.overrides = {"input": {"format": "avro", "registry": {"url": f"http://127.0.0.1:{port}"}}}
            self.events = {**EVENTS, "registry away": registry_away(registry)}
            yield

    def encode(self, event: dict[str, Any]) -> bytes:
        encoded: bytes = self._encode(event)
        return encoded


class Stream(Target):
    """ToPS over the readings of many meters."""

    name = "stream"
    meters = 24

    def __init__(self, world: World, directory: Path, seed: str, rate: int) -> None:
        super().__init__(world, directory, seed, rate)
        from tests.chaos import test_stream_kill

        self.partitions = test_stream_kill.PARTITIONS
        self.raw = archive_topic(self.kafka, self.partitions)

    def pipeline(self) -> Pipeline:
        return stream_pipeline(self.kafka, self.directory, self.raw, TOPS, REPLICATED)

    def feed(self, pipeline: Pipeline) -> Feeder:
        producer = feeding_producer(self.kafka)
        dice = np.random.default_rng(self.dice.randrange(1 << 32))
        began, state = time.monotonic(), {"at": 0}

        def some() -> None:
            while state["at"] * self.meters < (time.monotonic() - began) * self.rate:
                state["at"] += 1
                for meter, watts in enumerate(np.round(dice.gamma(2.0, 8.0, self.meters), 2).tolist()):
                    event = json.dumps({"meter": f"m{meter}", "reading": {"watts": watts}}).encode()
                    producer.produce(
                        self.raw, event, partition=meter % self.partitions, timestamp=1_000_000 + state["at"]
                    )
            producer.poll(0)

        self._flush = partial(flush, producer, self.raw)
        return Feeder(some)

    def wind_up(self, feeder: Feeder) -> None:
        feeder.close()
        self._flush()

    def finished(self, pipeline: Pipeline) -> bool:
        from tests.chaos.test_stream_kill import committed

        return committed(self.kafka, pipeline, self.raw)

    def judge(self, disturbed: Pipeline) -> Compared:
        return compare(self.undisturbed(["private-stream"]), disturbed.public(["private-stream"]))


class Local(Target):
    """ToPL: two thousand devices report, before a threshold is published and after it."""

    name = "local"
    holdout = 2_000

    def pipeline(self) -> Pipeline:
        return local_pipeline(self.kafka, self.directory, REPLICATED, holdout=self.holdout, lateness="60s")

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        with contextlib.ExitStack() as self._stack:
            yield

    def feed(self, pipeline: Pipeline) -> Feeder:
        client = self._client = self._stack.enter_context(client_of(pipeline, max_queue=1_000_000))
        dice = np.random.default_rng(self.dice.randrange(1 << 32))

        def values(n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
            return dice.gamma(2.0, 10.0, n).clip(0, 1000)

        client.report_batch(values(self.holdout + 500))
        began, self.sent = time.monotonic(), 0

        def some() -> None:
            due = int((time.monotonic() - began) * self.rate) - self.sent
            if client.phase == 2 and due > 0:
                self.sent += client.report_batch(values(min(due, 1_000)))

        return Feeder(some)

    def wind_up(self, feeder: Feeder) -> None:
        feeder.close()
        if left := self._client.flush(120):
            raise TimeoutError(f"{left} reports could not be written")

    def _counted(self, pipeline: Pipeline) -> tuple[int, int, int]:
        rows = estimates(self.kafka, pipeline)
        letters = self.kafka.read_all(pipeline.settings.topic("dead-letter"))
        return sum(row.count for row in rows), len(letters), len(rows) - len({row.interval for row in rows})

    def finished(self, pipeline: Pipeline) -> bool:
        counted, letters, _ = self._counted(pipeline)
        return counted + letters >= self.sent > 0

    def judge(self, disturbed: Pipeline) -> Compared:
        self.world.rest(5.0)  # what was counted twice would come now
        counted, letters, twice = self._counted(disturbed)
        return Compared("reports", self.sent, abs(self.sent - counted - letters) + twice)


TARGETS: dict[str, type[Target]] = {
    each.name: each for each in (Toeplitz, NoLastLook, Closing, DpSqlp, Ranked, TwoTopics, Avro, Stream, Local)
}
