"""Our own workers under measurement: a pipeline over a given raw topic, started, timed, killed and stopped."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from benchmarks.inputs import DAY_MS, PARTITIONS, Feed
from benchmarks.rates import Part, Run
from benchmarks.throughput_rows import PLAIN, Row
from benchmarks.usage import Meter, peak_memory_mb
from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.broker.network import free_ports
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.raw_topics import raw_topics
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.pipelines import load_settings
from susurrus.topics import progress

WORKER = Path(__file__).with_name("peers") / "susurrus" / "worker.py"
SECONDS = 1_800
COUNTED_SECONDS = 10.0


class Fleet:
    """Workers of one pipeline, each a process with a data directory and a log of its own; stopped at the end of the block.

    environ: variables for the workers, such as settings. loglevel: of their logs. named: each has a ``worker.instance``, so that
    one that comes back gets its partitions back. sql: a statement beside the TOML, if there is one.
    """

    def __init__(
        self,
        toml: str,
        directory: Path,
        environ: Mapping[str, str] | None = None,
        *,
        loglevel: str = "warning",
        named: bool = False,
        sql: str = "",
    ) -> None:
        self.directory = directory
        self.config = directory / "pipeline.toml"
        self.config.write_text(toml)
        self._sql = directory / "pipeline.sql" if sql else None
        if self._sql is not None:
            self._sql.write_text(sql)
        self.environment = {
            **os.environ,
            "SUSURRUS_SECRET": "5a" * 32,  # public: nothing a benchmark publishes is private
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **(environ or {}),
        }
        self.settings: Settings = load_settings(self.config, self.environment, sql=self._sql)
        self._loglevel = loglevel
        self._named = named
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: dict[int, int] = {}

    def create_topics(self) -> None:
        """Create the pipeline's topics, as `susurrus topics create` does."""
        admin, raw_admin = reach_both(self.settings)
        with contextlib.closing(clients_of(self.settings, quiet=True)) as clients:
            create_topics(self.settings, admin, raw_topics(self.settings, clients), raw_admin)

    def home(self, number: int) -> Path:
        """Where a worker keeps what it has: ``state``, ``log``, ``first-read``."""
        return self.directory / f"worker-{number}"

    def start(self, number: int) -> None:
        """Start a worker, or start it again with the disk that it left; its log begins anew."""
        home = self.home(number)
        home.mkdir(exist_ok=True)
        (self._ports[number],) = free_ports(1)
        environment = {
            **self.environment,
            "SUSURRUS__WORKER__DATA_DIRECTORY": str(home / "state"),
            "SUSURRUS__WORKER__WEB_PORT": str(self._ports[number]),
        }
        if self._named:
            environment["SUSURRUS__WORKER__INSTANCE"] = f"worker-{number}"
        command = [sys.executable, str(WORKER), str(self.config), str(home / "first-read"), self._loglevel]
        if self._sql is not None:
            command.append(str(self._sql))
        with open(home / "log", "wb") as log:
            self._processes[number] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        ends_with_us(self._processes[number].pid)

    def kill(self, number: int) -> None:
        """kill -9, and wait until it is gone."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def stop(self, number: int) -> None:
        """SIGTERM, and wait for the orderly end."""
        process = self._processes.pop(number)
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log(self, number: int) -> str:
        """What the worker has written since its last start."""
        return (self.home(number) / "log").read_text(errors="replace")

    def samples(self, number: int, metric: str) -> list[Sample]:
        """A metric of a worker's page. Raises OSError while it has none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[number]}/metrics", timeout=30) as page:
            text: bytes = page.read()
        families = text_string_to_metric_families(text.decode())
        return [sample for family in families for sample in family.samples if sample.name == metric]

    def sums(self, metric: str, *labels: str) -> Counter[tuple[str, ...]]:
        """A metric of the workers' pages, added up over all workers that run and all labels but these, by their values."""
        found: Counter[tuple[str, ...]] = Counter()
        for number in self.numbers():
            for sample in self.samples(number, metric):
                found[tuple(sample.labels[label] for label in labels)] += sample.value  # type: ignore[assignment]
        return found

    def numbers(self) -> list[int]:
        """The workers that were started and not stopped."""
        return list(self._processes)

    def pids(self) -> list[int]:
        """Process ids of those that were started and not stopped."""
        return [process.pid for process in self._processes.values()]

    def check(self) -> None:
        """Raise RuntimeError, with the end of its log, if a worker has ended by itself."""
        for number, process in self._processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"a worker ended with status {process.returncode}:\n{self.log(number)[-3000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes.values():
            process.terminate()
        for number in list(self._processes):
            self.stop(number)


def published(
    feed: Feed, workers: int, directory: Path, meter: Meter | None = None, *, toml: str | None = None, **environ: str
) -> Part:
    """From the first raw record any worker reads until everything is published; with a meter also what that took of processors.

    toml: the pipeline, by default ``pipeline_toml``; a histogram's end is the last trigger, complete for a read_committed reader,
    and a stream's is when the committed positions are at the raw topic's end, which they reach in the transaction of the last
    released sum. environ: variables for the workers.
    """
    with Fleet(toml or pipeline_toml(feed, new_name()), directory, environ) as fleet:
        return _published(fleet, feed, workers, meter)


def run_workers(
    what: str,
    feed: Feed,
    workers: int,
    directory: Path,
    meter: Meter,
    *,
    row: Row = PLAIN,
    toml: str | None = None,
    **environ: str,
) -> Run:
    """The same as a `Run`, with bytes written, the highest memory of any worker, and what they counted. toml: if it is not the
    row's."""
    toml = toml or pipeline_toml(feed, new_name(), row=row)
    with Fleet(toml, directory, environ, sql=row.statement(feed)) as fleet:
        whole = _published(fleet, feed, workers, meter)
        memory = max(map(peak_memory_mb, fleet.pids()))
        return Run(what, whole, None, meter.written(feed.topic), memory, _counted(fleet, feed.records), row.name)


def _published(fleet: Fleet, feed: Feed, workers: int, meter: Meter | None) -> Part:
    fleet.create_topics()
    for number in range(workers):
        fleet.start(number)
    settings = fleet.settings
    if settings.pipeline.kind == "histogram":
        ended = wait_for_trigger(feed.bootstrap_servers, settings.topic("progress"), fleet.check)
    else:
        ended = wait_for_the_end(feed, settings.application, fleet.check)
    cpu = {} if meter is None else meter.cpu(fleet.pids())
    began = min(float(read.read_text()) for read in fleet.directory.glob("worker-*/first-read"))
    return Part(feed.records, ended - began, cpu)


def _counted(fleet: Fleet, records: int) -> dict[str, int]:
    """Records that came in, were left out, and were counted, those beyond a user's cap included.

    A commit is seen by readers a moment before its worker has counted it.
    """
    deadline = time.monotonic() + COUNTED_SECONDS
    while True:
        found = fleet.sums("susurrus_stage_total", "stage", "total")
        read, filtered = (found["route", name] + found["stream", name] for name in ("in", "filtered"))
        if ("stream", "in") in found:
            counted = read - filtered - found["stream", "dead_letter"]
        else:
            counted = found["route", "capped"] + found["bound", "kept"] + found["bound", "capped"]
        if read >= records or time.monotonic() > deadline:
            return {"in": int(read), "filtered": int(filtered), "counted": int(counted)}
        time.sleep(0.2)


def new_name() -> str:
    """A pipeline's name that no other run has."""
    return f"b{uuid.uuid4().hex[:8]}"


@contextlib.contextmanager
def reader(bootstrap_servers: str, topic: str, *, start: int = OFFSET_BEGINNING) -> Iterator[Consumer]:
    """A read_committed consumer of all partitions of a topic that answers at once."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"watch-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
        yield consumer
    finally:
        consumer.close()


def pipeline_toml(feed: Feed, name: str, *, strategy: str = "toeplitz", hours: int = 24, row: Row = PLAIN) -> str:
    """Visits per key over the day that the records span, C = 32 records a user, released ``feed.triggers`` times.

    hours: when the archive ends; before the day is over its window stays open, with the state of all users. row: what is asked; of
    one in SQL this is what the statement does not say.
    """

    def instant(ms: int) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))

    published = f"""
[input]
topic = "{feed.topic}"
{row.settings.format(registry=feed.registry)}
[bounds]
max_records_per_user = {row.cap}
[privacy]
epsilon = 6.0
delta = 1e-9
strategy = "{strategy}"
[window]
length = "1d"
trigger_every = "{DAY_MS // feed.triggers}ms"
"""
    return f"""
[pipeline]
name = "{name}"
prefix = "benchmark"
[kafka]
bootstrap_servers = "{feed.bootstrap_servers}"
{"" if row.sql else published}
[start]
from = "earliest"
first_window = "{instant(feed.first_window_ms)}"
[clock]
kind = "replay"
until = "{instant(feed.first_window_ms + hours * DAY_MS // 24)}"
[topics]
by_user_partitions = {PARTITIONS}
bounded_partitions = {PARTITIONS}
replication_factor = 1
min_insync_replicas = 1
"""


def stream_toml(feed: Feed, name: str) -> str:
    """ToPS over the values, one stream per key (and partition): some are long, most are short."""
    return f"""
[pipeline]
name = "{name}"
prefix = "benchmark"
kind = "stream"
[kafka]
bootstrap_servers = "{feed.bootstrap_servers}"
[input]
topic = "{feed.topic}"
[start]
from = "earliest"
[stream]
stream = "k"
value = "v"
bound = 1000.0
grid = 1.0
epsilon = 1.0
holdout = 1024
range_limit = 65536
[topics]
replication_factor = 1
min_insync_replicas = 1
"""


def wait_for_the_end(feed: Feed, group: str, check: Callable[[], None]) -> float:
    """The time (Unix seconds) at which the group's committed offsets are the raw topic's ends."""
    consumer = Consumer({"bootstrap.servers": feed.bootstrap_servers, "group.id": group})
    try:
        partitions = [TopicPartition(feed.topic, number) for number in range(PARTITIONS)]
        ends = {number: consumer.get_watermark_offsets(partitions[number])[1] for number in range(PARTITIONS)}
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            check()
            now = time.time()
            if all(found.offset >= ends[found.partition] for found in consumer.committed(partitions, timeout=30)):
                return now
            time.sleep(0.2)
        raise RuntimeError(f"the raw topic was not read to its end after {SECONDS} s")
    finally:
        consumer.close()


def wait_for_trigger(
    bootstrap_servers: str, topic: str, check: Callable[[], None], trigger: int | None = None
) -> float:
    """The time (Unix seconds) at which every partition's progress says that a trigger is published, by default the last one.

    check: called twice a second; raises what ends the wait. Raises RuntimeError after ``SECONDS``.
    """
    with reader(bootstrap_servers, topic) as consumer:
        done: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            check()
            message = consumer.poll(0.5)
            if message is None or message.error() is not None or message.value() is None:
                continue
            seen = progress.decode(message.value())
            if seen.trigger >= (trigger or seen.of_triggers):
                done.add(seen.partition)
            if len(done) == seen.of_partitions:
                return time.time()
        raise RuntimeError(f"only partitions {sorted(done)} were complete after {SECONDS} s")
