"""A pipeline under test: its topics on a real broker, worker processes that a test may kill, and its public bytes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
import tomli_w
from confluent_kafka import Message

from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.config import secrets
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.releases import Release, ReleaseReader
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.agents.runtime.crash_points import POINTS
from susurrus.topics import ledger, progress
from tests.broker import Broker, wait_for
from tests.forked import Child, fork_server
from tests.waiting import PATIENCE

SECRET = "5a" * 32
EPOCH = "0123456789abcdef0123456789abcdef"
CRASHING: dict[str, Any] = {"worker": {"session_timeout": "2s", "fetch_bytes": 65_536}}
"""For workers that die one after the other: the next one waits for the session of the last."""
THREE_POINTS = ("after-offsets", "after-commit", "after-store")
"""Kafka and the disk both know nothing of a commit of which all is sent; Kafka alone knows of it; both do. At the four other points
less of the same transaction is sent.
"""
CRASH_POINTS = pytest.mark.parametrize(
    "points", [THREE_POINTS, pytest.param(POINTS, marks=pytest.mark.campaign)], ids=["three points", "every point"]
)
"""Of a case among many. One case is killed at every point in each run (tests/chaos/test_kill.py)."""
SEEDS = range(10)
"""Of tests in the campaign that roll dice."""

Public = dict[str, dict[int, list[tuple[bytes, bytes | None, int]]]]
"""topic -> partition -> (key, value, time stamp) in log order; no value is a tombstone, which `latest` has."""


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second laid over the first; None takes a name out."""
    result = dict(base)
    for name, value in overrides.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return {name: value for name, value in result.items() if value is not None}


DEFAULTS: dict[str, Any] = tomllib.loads(
    """
    [pipeline]
    name = "web"
    [input]
    user = "host"
    key = ["url"]
    [start]
    from = "earliest"
    first_window = "1995-08-01T00:00:00Z"
    [clock]
    kind = "replay"
    until = "1995-08-02T00:00:00Z"
    [window]
    length = "1d"
    trigger_every = "1h"
    [bounds]
    max_records_per_user = 16
    [privacy]
    epsilon = 6.0
    delta = 1e-9
    strategy = "toeplitz"
    [topics]
    by_user_partitions = 4
    bounded_partitions = 4
    replication_factor = 1
    min_insync_replicas = 1
    [worker]
    fetch_bytes = 262144
    session_timeout = "6s"
    """
)


def small(directory: Path, servers: str, properties: Mapping[str, Any], **sections: Mapping[str, Any]) -> Path:
    """The file of a histogram of few records of {"u", "k"}, on a broker that wants to know who comes."""
    data = {
        "pipeline": {"name": "p"},
        "kafka": {"bootstrap_servers": servers, "properties": properties},
        "input": {"topic": "raw", "user": "u", "key": ["k"]},
        "bounds": {"max_records_per_user": 1},
        "privacy": {"epsilon": 6.0, "delta": 1e-9, "secret_file": "noise"},
        "topics": {"by_user_partitions": 2, "bounded_partitions": 2, "replication_factor": 1, "min_insync_replicas": 1},
        "worker": {"data_directory": str(directory / "state")},
    }
    secrets.create(directory / "noise")
    config = directory / "pipeline.toml"
    config.write_text(tomli_w.dumps(merged(data, sections)), encoding="utf-8")
    return config


# faulthandler's words.
_CRASHED = "Fatal Python error"
_CURRENT = "Current thread"


class Worker:
    """One worker process; its log is kept for the error message of a failed test.

    It is forked from a server that has imported everything. With SUSURRUS_TEST_FORK=0, or another SUSURRUS_COMPILED than here, it
    is started from the command line.
    """

    def __init__(self, config: Path, directory: Path, environ: Mapping[str, str], options: Sequence[str] = ()) -> None:
        self.log = directory / f"worker-{time.monotonic_ns()}.log"
        self.log.touch()
        arguments = ["worker", "--config", str(config), *options]
        environment = {**os.environ, "SUSURRUS_SECRET": SECRET, **environ}
        self.process: Child | subprocess.Popen[bytes]
        # Which loops a process runs is decided when it imports them, and the server has done so.
        loops = {each.get("SUSURRUS_COMPILED", "1") for each in (environment, os.environ)}
        if environment.get("SUSURRUS_TEST_FORK") != "0" and len(loops) == 1:
            self.process = fork_server().spawn(arguments, environment, self.log)
            return
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "susurrus.agents.cli", *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            ends_with_us(self.process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait_until_frozen(self, seconds: float = PATIENCE) -> None:
        """Wait until it has stopped itself (SIGSTOP) at the point of SUSURRUS_CRASH_AT. Raises TimeoutError with the end of its
        log, at once if the process has ended.
        """
        deadline = time.monotonic() + seconds
        # Others soon take a frozen worker's partitions over, so ask often.
        while not self._frozen():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise TimeoutError(f"the worker did not freeze itself\n{self.tail()}")
            time.sleep(0.02)

    def _frozen(self) -> bool:
        with contextlib.suppress(OSError):  # of a process that is gone
            # The state follows the name, which is in parentheses.
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        """SIGTERM, and wait for the orderly end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return -int(signal.SIGKILL)

    def tail(self, characters: int = 4_000) -> str:
        """The end of its log; of a crash inside a library, what the library said before, and the thread that crashed."""
        text = self.log.read_text(errors="replace")
        said, crashed, rest = text.partition(_CRASHED)
        if crashed:
            before, mark, current = rest.partition(_CURRENT)
            return (said[-1_000:] + crashed + before[:200] + mark + current)[:characters]
        return text[-characters:]

    def crashed_outside_python(self) -> bool:
        """Whether it has ended by SIGABRT in a thread that a library started. The trace of a crash marks the thread of Python's in
        which it happened, and here there is none.
        """
        text = self.log.read_text(errors="replace")
        return self.process.poll() == -signal.SIGABRT and _CRASHED in text and _CURRENT not in text


def until_final(reader: ReleaseReader, worker: Worker) -> list[Release]:
    """Releases up to the last one of a window, while the worker runs."""
    deadline, found = time.monotonic() + PATIENCE, list[Release]()
    while not found or not found[-1].final:
        found += reader.poll(0.2)
        assert worker.process.poll() is None, worker.tail()
        assert time.monotonic() < deadline, worker.tail()
    return found


class Pipeline:
    """One pipeline; ``overrides`` are laid over DEFAULTS. elsewhere: the broker of the raw topics, if it is another one."""

    def __init__(
        self,
        broker: Broker,
        directory: Path,
        raw: str,
        overrides: Mapping[str, Any] | None = None,
        *,
        elsewhere: Broker | None = None,
    ) -> None:
        self.broker = broker
        self.directory = directory / broker.new_prefix()
        self.directory.mkdir()
        own = {
            "pipeline": {"prefix": broker.new_prefix()},
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            "input": {"topic": raw}
            if elsewhere is None
            else {"topic": raw, "kafka": {"bootstrap_servers": elsewhere.bootstrap_servers}},
            "start": {"epoch": EPOCH},
            "worker": {"data_directory": str(self.directory / "state")},
        }
        self.data = merged(merged(DEFAULTS, own), overrides or {})
        # Tests share a broker, and their raw topics. What others charge is none of theirs.
        charges = {"charges": f"{self.data['pipeline']['prefix']}.charges"}
        self.data = merged(self.data, {"topics": {**charges, **self.data["topics"]}})
        self.config = self.directory / "pipeline.toml"
        self.write_config()
        self.workers: list[Worker] = []
        create_topics(self.settings, broker.admin(), raw_admin=None if elsewhere is None else elsewhere.admin())

    @property
    def settings(self) -> Settings:
        """As the workers read them."""
        return settings_from(self.data, directory=self.directory, environ={})

    def write_config(self) -> None:
        """TOML from the dictionary."""
        self.config.write_text(tomli_w.dumps(self.data), encoding="utf-8")

    def start(self, *options: str, **environ: str) -> Worker:
        """Start one more worker, with more options of the command."""
        worker = Worker(self.config, self.directory, environ, options)
        self.workers.append(worker)
        return worker

    @contextlib.contextmanager
    def held(self) -> Iterator[Worker]:
        """One more worker, frozen for the block: it has found everything in Kafka and has not joined the group."""
        worker = self.start(SUSURRUS_CRASH_AT="worker:before-group:1:SIGSTOP")
        worker.wait_until_frozen()
        try:
            yield worker
        finally:
            worker.signal(signal.SIGCONT)

    def crash(self, where: str, seconds: float = PATIENCE) -> None:
        """One more worker, which kills itself (SIGKILL) at that visit of a point (``stage:point:visit``)."""
        worker = self.start(SUSURRUS_CRASH_AT=where)
        try:
            code = worker.process.wait(seconds)
            assert code == -9, f"{where} was not reached: the worker ended with {code}\n{worker.tail()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{where} was not reached\n{self.trouble()}\n{worker.tail()}") from None

    def crash_everywhere(self, stage: str, visit: int, points: Sequence[str] = POINTS) -> None:
        """One worker after the other, each killed at another point of a commit of the stage."""
        for point in points:
            self.crash(f"{stage}:{point}:{visit}")

    def replace_at_random(self, dice: Random, longest: float) -> None:
        """Two workers; five times one of them is killed within ``longest`` seconds and replaced by one with an empty disk."""
        workers = [self.start(), self.start()]
        for number in range(5):
            time.sleep(dice.uniform(2.0, longest))
            victim = dice.randrange(2)
            workers[victim].kill()
            # A directory of its own each time: the state comes back from the changelog.
            fresh = str(self.directory / f"empty-{number}")
            workers[victim] = self.start(SUSURRUS__WORKER__DATA_DIRECTORY=fresh)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.signal(signal.SIGCONT)
                worker.kill()

    # ---- what readers see --------------------------------------------------------------------------------------------

    def progress(self) -> dict[tuple[str, int], int]:
        """(window start, partition) -> last complete trigger."""
        return _progress(self.broker.read_all(self.settings.topic("progress")))

    def wait(self, trigger: int | None = None, *, windows: int = 1, seconds: float = PATIENCE) -> None:
        """Until every partition has completed a trigger (the last one by default) of that many windows."""
        settings = self.settings
        wanted = trigger or settings.triggers
        partitions = settings.topics.bounded_partitions
        self.wait_for_progress(
            lambda reached: sum(trigger >= wanted for trigger in reached.values()) >= partitions * windows,
            f"trigger={wanted}",
            seconds,
        )

    def wait_for_progress(
        self, enough: Callable[[Mapping[tuple[str, int], int]], bool], wanted: str, seconds: float = PATIENCE
    ) -> None:
        """Until what `progress` gives is enough. The topic is followed: who reads all of it each time costs the broker more than
        the workers do.
        """
        deadline = time.monotonic() + seconds
        reached: dict[tuple[str, int], int] = {}
        with self.broker.following(self.settings.topic("progress")) as more:
            while not enough(reached):
                reached |= _progress(more())
                if time.monotonic() > deadline:
                    break
            else:
                return
        for worker in self.workers[-3:]:
            worker.signal(signal.SIGUSR1)  # what each thread is doing goes to the log
        time.sleep(1.0)
        logs = "\n".join(worker.tail() for worker in self.workers[-3:])
        raise TimeoutError(f"{wanted} not reached in {seconds:.0f} s: {reached}\n{self.trouble()}\n{logs}")

    def trouble(self) -> str:
        """Every task that is not simply running, as ``susurrus status`` tells it."""
        rows = collect(pipeline_of(self.settings)).partitions
        return "\n".join(
            f"{row.stage}-{row.partition}: {row.state}, {row.finding!s}"
            for row in rows
            if row.state != "running" or row.finding
        )

    def public(self, topics: Sequence[str] = ("histogram", "latest", "progress")) -> Public:
        """Every byte a read_committed reader can see. Progress has one partition fed by several: distinguished by key."""
        found: Public = {}
        for name in topics:
            partitions: dict[int, list[tuple[bytes, bytes | None, int]]] = {}
            for message in self.broker.read_all(self.settings.topic(name)):
                part = progress.decode(message.value()).partition if name == "progress" else message.partition()
                stamp = 0 if name == "progress" else message.timestamp()[1]
                partitions.setdefault(part, []).append((message.key(), message.value(), stamp))
            found[name] = partitions
        return found

    def counters(self) -> dict[str, int]:
        """The operator's totals over all partitions of every stage, as ``susurrus status`` reads them."""
        totals = Counter[str]()
        for counters in _counters(self.broker.read_all(self.settings.topic("ledger"))).values():
            totals.update(counters)  # which keeps a zero
        return totals

    def wait_for_total(self, total: int, *names: str) -> None:
        """Wait until these counters add up to the total. They follow the commits every few seconds."""
        latest: dict[tuple[str, int], Counter[str]] = {}
        with self.broker.following(self.settings.topic("ledger")) as more:

            def reached() -> bool:
                latest.update(_counters(more()))
                return sum(counters[name] for counters in latest.values() for name in names) == total

            wait_for(reached, f"{names} are {total} in all")


def _progress(messages: Iterable[Message]) -> dict[tuple[str, int], int]:
    records = [progress.decode(message.value()) for message in messages]
    return {(str(record.window), record.partition): record.trigger for record in records}


def _counters(messages: Iterable[Message]) -> dict[tuple[str, int], Counter[str]]:
    """Return the newest counters of each stage and partition."""
    records = [ledger.decode(message.key(), message.value()) for message in messages]
    return {(each.stage, each.partition): Counter(each.counters) for each in records if isinstance(each, ledger.Status)}


def archive_topic(broker: Broker, partitions: int) -> str:
    """A raw topic for records of 1995, which the default retention would delete at once."""
    return broker.create_topic(f"raw-{broker.new_prefix()}", partitions, {"retention.ms": "-1"})


def produce(broker: Broker, topic: str, records: Iterable[tuple[int, bytes | None, int | None]]) -> int:
    """(partition, value, time stamp in ms or None) each; returns how many."""
    # Idempotent for the order: a retry to a topic this young may otherwise overtake, and an archive must be sorted.
    # Small batches: a fetch has at least one, and a worker that dies at its second commit must leave work to the next one.
    producer = broker.producer(
        linger_ms=5, compression_type="lz4", queue_buffering_max_messages=1_000_000, batch_num_messages=1_000
    )
    count = 0
    for partition, value, stamp in records:
        fields = {} if stamp is None else {"timestamp": stamp}
        while True:
            try:
                producer.produce(topic, value, partition=partition, **fields)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    producer.flush(60)
    return count


def web_log(partitions: int, copies: int = 1) -> Iterable[tuple[int, bytes, int]]:
    """The shipped log, NOT keyed by user: dealt out over the partitions in turn, each sorted by time.

    Copies are other users at the same times, so that counts grow and keys stay.
    """
    from susurrus.agents.demo.weblog import WebLog

    turn = 0
    for visit in WebLog().visits:
        for copy in range(copies):
            host = visit.host if copy == 0 else f"{visit.host}#{copy}"
            event = {"host": host, "url": visit.url, "time": visit.time, "bytes": visit.size}
            yield turn % partitions, json.dumps(event).encode(), visit.time * 1000
            turn += 1
