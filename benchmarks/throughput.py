#!/usr/bin/env python3
"""Events per second, raw topic to counts, beside other stream processors: the same records, one broker, one run.

    bare consumer        confluent-kafka, msgspec, a dict: no state, no output; the ceiling for Python
    faust                a plain Faust agent with a RocksDB table; at least once, no re-keying
    quix                 Quix Streams, stateful count in RocksDB; at least once, no re-keying
    kafka-streams (n)    Java, n threads: exactly once, re-keyed through a repartition topic, count in RocksDB
    susurrus (n)         n worker processes: exactly once, raw to released private histogram, three re-keyings
    susurrus filtered (1)    one worker with input.where, which all records meet
    susurrus tops (1)    one worker: exactly once, values to private streams, no re-keying

Each peer runs in an environment of its own under the cache directory (built on first use, versions pinned beside its
code in benchmarks/peers), reads the topic from the beginning, and is timed from the first record it reads; susurrus
until the last release is committed, the others until the last record is counted. Faust and Quix are slow, so they get
the first part of the records only, as ``records`` says. ``ratio_to_kafka_streams`` is relative to its faster run.

    benchmarks/throughput.py [--records 2000000] [--json] [--only bare,susurrus] [--bootstrap-servers HOST:PORT]
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, from anywhere

from benchmarks.workers import DAY_MS, PARTITIONS, Feed, seconds_to_publish
from susurrus.agents.broker.artefacts import cache_directory, find_java
from susurrus.agents.broker.cluster import KafkaCluster

PEERS = Path(__file__).with_name("peers")
USERS = 200_000
KEY_EXPONENT = 1.4  # of the Zipf distribution of the keys
MAX_KEYS = 1_000_000
PEER_SECONDS = 1_800


@dataclass(frozen=True, slots=True)
class Measured:
    """One peer's run: ``seconds`` from the first record read."""

    what: str
    records: int
    seconds: float

    @property
    def events_per_second(self) -> float:
        return self.records / self.seconds


def say(text: str) -> None:
    """Print progress to stderr."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def fill(bootstrap_servers: str, records: int, triggers: int) -> Feed:
    """Create a topic and produce the records; the same ones at every run."""
    topic = f"benchmark-{uuid.uuid4().hex[:8]}"
    config = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    generator = np.random.default_rng(1)
    keys = np.minimum(generator.zipf(KEY_EXPONENT, records), MAX_KEYS).tolist()
    users = generator.integers(0, USERS, records).tolist()
    first_window_ms = (time.time_ns() // 1_000_000 // DAY_MS - 1) * DAY_MS
    stamps = (first_window_ms + np.arange(records) * (DAY_MS / records)).astype(np.int64).tolist()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,  # keeps each partition in time order, also after retries
            "linger.ms": 20,
            "log_level": 3,  # errors; a new broker's coordinators still loading is no news
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    started = time.perf_counter()
    for number, (key, user, stamp) in enumerate(zip(keys, users, stamps, strict=True)):
        value = b'{"k":"key%d","u":"u%d","v":%d}' % (key, user, number % 1000)
        while True:
            try:
                producer.produce(topic, value, key=b"u%d" % user, timestamp=stamp)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 20_000 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} of {records} records could not be produced")
    say(f"produced {records:,} records at {records / (time.perf_counter() - started):,.0f} a second")
    return Feed(bootstrap_servers, topic, records, first_window_ms, triggers)


# ---- environments of the peers, built on first use ----


def build(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """A directory under the cache that ``make`` fills, again whenever one of ``sources`` changes."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    home = cache_directory() / "benchmarks" / f"{name}-{digest}"
    if not (home / "complete").exists():
        say(f"building the environment of {name} in {home}")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        make(home)
        (home / "complete").touch()
    return home


def python_of(peer: str) -> str:
    """The interpreter of a Python peer's own virtual environment."""
    requirements = PEERS / peer / "requirements.txt"

    def make(home: Path) -> None:
        quietly([sys.executable, "-m", "venv", str(home)])
        quietly([str(home / "bin" / "pip"), "install", "--quiet", "-r", str(requirements)])

    return str(build(peer, [requirements], make) / "bin" / "python")


def kafka_streams_classpath() -> str:
    """Kafka Streams and our count, compiled with Maven."""
    pom = PEERS / "kafka_streams" / "pom.xml"
    source = pom.parent / "src" / "main" / "java" / "susurrus" / "Count.java"

    def make(home: Path) -> None:
        quietly(["mvn", "-B", "-q", "-f", str(pom), f"-Dbuild.to={home}", "compile"])

    home = build("kafka-streams", [pom, source], make)
    return f"{home / 'classes'}:{home / 'libs'}/*"


def quietly(command: Sequence[str]) -> None:
    """Run a build step; its output is shown when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


# ---- the runs ----


def run_peer(what: str, command: Sequence[str], records: int) -> Measured:
    """Run one peer, which prints {"records", "seconds"} on its last line."""
    say(f"{what}: {records:,} records")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PEER_SECONDS, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"{what} ended with status {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    reported = json.loads(lines[-1])
    return Measured(what, reported["records"], reported["seconds"])


def run_bare(feed: Feed) -> Iterator[Measured]:
    command = [sys.executable, str(PEERS / "bare" / "count.py"), feed.bootstrap_servers, feed.topic, str(feed.records)]
    yield run_peer("bare consumer", command, feed.records)


def run_faust(feed: Feed) -> Iterator[Measured]:
    share = max(1, min(feed.records, max(2_000, feed.records // 50)))
    arguments = [feed.bootstrap_servers, feed.topic, str(share), str(PARTITIONS)]
    yield run_peer("faust", [python_of("faust"), str(PEERS / "faust" / "count.py"), *arguments], share)


def run_quix(feed: Feed) -> Iterator[Measured]:
    share = max(1, min(feed.records, max(20_000, feed.records // 10)))
    arguments = [feed.bootstrap_servers, feed.topic, str(share)]
    yield run_peer("quix", [python_of("quix"), str(PEERS / "quix" / "count.py"), *arguments], share)


def run_kafka_streams(feed: Feed) -> Iterator[Measured]:
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = [find_java(), logging, "-cp", kafka_streams_classpath(), "susurrus.Count"]
    for threads in (1, 2):
        command = [*java, feed.bootstrap_servers, feed.topic, str(feed.records), str(threads)]
        yield run_peer(f"kafka-streams ({threads})", command, feed.records)


def run_susurrus(feed: Feed) -> Iterator[Measured]:
    """Our workers, as one process and as two, each time a new pipeline over the same raw topic."""
    for workers in (1, 2):
        what = f"susurrus ({workers})"
        say(f"{what}: {feed.records:,} records, {feed.triggers} triggers")
        with tempfile.TemporaryDirectory(prefix="susurrus-benchmark-") as directory:
            yield Measured(what, feed.records, seconds_to_publish(feed, workers, Path(directory)))


def run_filtered(feed: Feed) -> Iterator[Measured]:
    """One worker, with a condition that all records meet: what the condition itself costs."""
    what = "susurrus filtered (1)"
    say(f"{what}: {feed.records:,} records, {feed.triggers} triggers")
    with tempfile.TemporaryDirectory(prefix="susurrus-benchmark-") as directory:
        seconds = seconds_to_publish(feed, 1, Path(directory), SUSURRUS__INPUT__WHERE="v >= 0")
        yield Measured(what, feed.records, seconds)


def run_streams(feed: Feed) -> Iterator[Measured]:
    """Our workers on a stream pipeline (ToPS): the same records as values of one stream per key."""
    say(f"susurrus tops (1): {feed.records:,} records")
    with tempfile.TemporaryDirectory(prefix="susurrus-benchmark-") as directory:
        yield Measured("susurrus tops (1)", feed.records, seconds_to_publish(feed, 1, Path(directory), kind="stream"))


RUNS: dict[str, Callable[[Feed], Iterator[Measured]]] = {
    "bare": run_bare,
    "faust": run_faust,
    "quix": run_quix,
    "kafka-streams": run_kafka_streams,
    "susurrus": run_susurrus,
    "filtered": run_filtered,
    "tops": run_streams,
}


def measure(feed: Feed, names: Sequence[str]) -> list[Measured]:
    """Every run asked for, one after the other; a peer that fails is reported and left out."""
    results: list[Measured] = []
    for name in names:
        try:
            for result in RUNS[name](feed):
                say(f"{result.what}: {result.events_per_second:,.0f} events a second")
                results.append(result)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            say(f"{name} FAILED, left out: {error}")
    return results


def rows(results: Sequence[Measured]) -> list[dict[str, object]]:
    """One object a run, as ``--json`` prints it."""
    streams = max((r.events_per_second for r in results if r.what.startswith("kafka-streams")), default=None)
    return [
        {
            "what": result.what,
            "records": result.records,
            "seconds": round(result.seconds, 3),
            "events_per_second": round(result.events_per_second),
            "ratio_to_kafka_streams": round(result.events_per_second / streams, 3) if streams else None,
        }
        for result in results
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--triggers", type=int, default=24, help="releases by susurrus over the records (default 24)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--only", default=",".join(RUNS), help=f"comma-separated, of: {', '.join(RUNS)}")
    parser.add_argument("--bootstrap-servers", help="a broker to use instead of one of our own")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(RUNS):
        parser.error(f"--only: unknown {sorted(unknown)}; known: {', '.join(RUNS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as on Ctrl-C, stop what was started
    with contextlib.ExitStack() as stack:
        bootstrap_servers = options.bootstrap_servers
        if bootstrap_servers is None:
            say(f"starting Kafka on {os.cpu_count()} cores")
            # Several processes of one group join within these 3 s, before any of them reads: no rebalance is measured.
            cluster = KafkaCluster(heap="1g", properties={"group.initial.rebalance.delay.ms": "3000"})
            bootstrap_servers = stack.enter_context(cluster).bootstrap_servers
        results = rows(measure(fill(bootstrap_servers, options.records, options.triggers), names))
    for row in results:
        if options.json:
            print(json.dumps(row))
        else:
            ratio = (
                "" if row["ratio_to_kafka_streams"] is None else f"{row['ratio_to_kafka_streams']:.3f}x Kafka Streams"
            )
            speed = f"{row['events_per_second']:>10,} events/s   {ratio}"
            print(f"{row['what']:<20} {speed}   ({row['records']:,} records in {row['seconds']} s)")
    return 0 if len(results) >= len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
