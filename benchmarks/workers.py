"""Our own workers under measurement: a pipeline over a given raw topic, started, timed and stopped."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from susurrus.agents.pipelines import load_settings
from susurrus.topics import progress

WORKER = Path(__file__).with_name("peers") / "susurrus" / "worker.py"
DAY_MS = 86_400_000
PARTITIONS = 4  # of every topic that is read in parallel
SECONDS = 1_800


@dataclass(frozen=True, slots=True)
class Feed:
    """The raw topic under test: JSON records {k, u, v}, keyed by user, time-stamped evenly over one whole UTC day."""

    bootstrap_servers: str
    topic: str
    records: int
    first_window_ms: int
    triggers: int = 24
    """Releases of the histogram over the day, by our workers."""


def seconds_to_publish(feed: Feed, workers: int, directory: Path, *, kind: str = "histogram", **environ: str) -> float:
    """From the first raw record any worker reads until everything is published.

    kind: "histogram", until a read_committed reader sees the last trigger complete; "stream", until the committed
    positions of the raw topic are at its end, which they reach in the transaction of the last released sum. environ: variables
    for the workers, such as settings.
    """
    config = directory / "pipeline.toml"
    pipeline = f"b{uuid.uuid4().hex[:8]}"
    config.write_text((pipeline_toml if kind == "histogram" else stream_toml)(feed, pipeline))
    environment = {
        **os.environ,
        "SUSURRUS_SECRET": "5a" * 32,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **environ,
    }
    settings = load_settings(config, environment)
    create = [sys.executable, "-m", "susurrus.agents.cli", "topics", "create", "--config", str(config)]
    subprocess.run(create, env=environment, check=True, stdout=subprocess.DEVNULL)
    processes, logs = [], []
    try:
        for number in range(workers):
            home = directory / f"worker-{number}"
            home.mkdir()
            logs.append(home / "log")
            environment["SUSURRUS__WORKER__DATA_DIRECTORY"] = str(home / "state")
            command = [sys.executable, str(WORKER), str(config), str(home / "first-read")]
            with open(logs[-1], "wb") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

        def check() -> None:
            for process, log in zip(processes, logs, strict=True):
                if process.poll() is not None:
                    raise RuntimeError(f"a worker ended with status {process.returncode}:\n{log.read_text()[-3000:]}")

        if kind == "histogram":
            ended = wait_for_last_trigger(feed, settings.topic("progress"), check)
        else:
            ended = wait_for_the_end(feed, f"benchmark.{pipeline}", check)
        return ended - min(float(read.read_text()) for read in directory.glob("worker-*/first-read"))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def pipeline_toml(feed: Feed, name: str) -> str:
    """Visits per key over the day that the records span, C = 32 records a user, released ``feed.triggers`` times."""

    def instant(ms: int) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))

    return f"""
[pipeline]
name = "{name}"
prefix = "benchmark"
[kafka]
bootstrap_servers = "{feed.bootstrap_servers}"
[input]
topic = "{feed.topic}"
user = "u"
key = ["k"]
[start]
from = "earliest"
first_window = "{instant(feed.first_window_ms)}"
[clock]
kind = "replay"
until = "{instant(feed.first_window_ms + DAY_MS)}"
[window]
length = "1d"
trigger_every = "{DAY_MS // feed.triggers}ms"
[bounds]
max_records_per_user = 32
[privacy]
epsilon = 6.0
delta = 1e-9
strategy = "toeplitz"
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


def wait_for_last_trigger(feed: Feed, topic: str, check: Callable[[], None]) -> float:
    """The time (Unix seconds) at which every partition's progress says that the last trigger is published."""
    consumer = Consumer(
        {
            "bootstrap.servers": feed.bootstrap_servers,
            "group.id": f"watch-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        done: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            check()
            message = consumer.poll(0.5)
            if message is None or message.error() is not None or message.value() is None:
                continue
            seen = progress.decode(message.value())
            if seen.trigger == seen.of_triggers:
                done.add(seen.partition)
            if len(done) == seen.of_partitions:
                return time.time()
        raise RuntimeError(f"only partitions {sorted(done)} were complete after {SECONDS} s")
    finally:
        consumer.close()
