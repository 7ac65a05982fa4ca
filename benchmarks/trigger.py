#!/usr/bin/env python3
"""What a trigger costs when ten times more keys are stored, and how long it takes to restore a lost disk.

One release partition, run by its own task against a real broker: transaction, changelog and RocksDB included. Keys are
stored by a few triggers; then triggers that touch the same number of keys are timed, from the moment the interval's tick is
handed over until the commit is in the store. Memory is the process's, at rest and at its highest during those triggers.
Then the local disk is thrown away and the task starts again: recovery is the time until it runs.

    benchmarks/trigger.py [--keys 100000,1000000] [--touched 10000] [--json]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from confluent_kafka.admin import NewTopic

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, from anywhere

from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.histogram.pipeline import Histogram
from susurrus.agents.histogram.release import Release
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.metrics import Metrics
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.task import PartitionTask
from susurrus.mechanisms.calendar import Interval
from susurrus.topics import bounded, tick

LOADING_TRIGGERS = 10
TIMED_TRIGGERS = 10
SECONDS = 600.0
DAY_MS = 86_400_000


class OnePartition:
    """A release task on the only partition of a pipeline, fed without Faust: the log is written, then handed over."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        configuration: dict[str, Any] = {
            "pipeline": {"name": f"t{uuid.uuid4().hex[:8]}", "prefix": "benchmark"},
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "input": {"topic": f"raw-{uuid.uuid4().hex[:8]}", "user": "u", "key": ["k"]},
            "start": {"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
            "clock": {"kind": "replay", "until": "2026-01-02T00:00:00Z"},
            "window": {"length": "1d", "trigger_every": "15m"},
            "privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"},
            "topics": {
                "by_user_partitions": 1,
                "bounded_partitions": 1,
                "replication_factor": 1,
                "min_insync_replicas": 1,
            },
        }
        self.settings = HistogramSettings.of(settings_from(configuration))
        self.services = Histogram(self.settings).services()
        self.directory = directory
        self.end = Offset(0)
        self.interval = self.services.calendar.interval_at(self.settings.start.first_window or 0)
        self.blocks = 0
        admin = self.services.clients.admin()
        raw = self.settings.input.topic
        admin.create_topics([NewTopic(raw, 1, 1)])[raw].result(30)
        create_topics(self.settings, admin)
        self.task = self._start()

    def _start(self) -> PartitionTask:
        task = PartitionTask(
            input_topic=self.settings.topic("bounded"),
            partition=0,
            make_stage=Release,
            stage_name="release",
            changelog_topic=self.settings.topic("release-changelog"),
            services=self.services,
            metrics=Metrics("p"),
            open_store=lambda stage, partition: Store(self.directory / f"{stage}-{partition}"),
            rewind=lambda offset: None,
            give_up=lambda reason: None,  # the task refuses then
        )
        task.assigned(1)
        task.start()
        self._wait(lambda: task.state == "running", task)
        return task

    def _wait(self, condition: Callable[[], bool], task: PartitionTask) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            if task.state in ("refused", "fenced", "stopped") or time.monotonic() > deadline:
                raise RuntimeError(f"the task is {task.state}: {task.stall()}")
            time.sleep(0.001)

    def trigger(self, keys: np.ndarray[Any, np.dtype[np.int64]]) -> float:
        """One interval that brings one more user to each of ``keys``; seconds from its tick to the commit in the store."""
        services, n = self.services, len(keys)
        ones = np.ones(n, np.int64)
        block = bounded.BoundedBlock(
            partition=0,
            interval=self.interval,
            window=np.full(n, self.settings.start.first_window, np.int64),
            keys=[b'"key-%d"' % key for key in keys.tolist()],
            users=ones,
            weight=ones << 20,
            sums=np.ones((n, len(services.strategy.plan.columns)), np.int64),
        )
        records = [bounded.encode(piece) for piece in bounded.split(block, services.max_record_bytes)]
        self.blocks += len(records)
        records.append(tick.encode(tick.Tick(0, self.interval, self.blocks, services.config_digest)))
        producer = services.clients.producer()
        for record in records:
            producer.produce(self.settings.topic("bounded"), record, partition=0)
        producer.flush(60)
        start, self.end = self.end, Offset(self.end + len(records))
        rows = [SimpleNamespace(offset=start + i, value=record) for i, record in enumerate(records)]
        began = time.perf_counter()
        self.task.offer(Batch(start, self.end, rows, generation=1))
        self._wait(lambda: self.task.position == self.end, self.task)
        self.interval = Interval(self.interval + 1)
        return time.perf_counter() - began

    def recover(self) -> float:
        """Seconds from an empty disk until the partition runs again."""
        self.close()
        shutil.rmtree(self.directory / "release-0")
        began = time.perf_counter()
        self.task = self._start()
        return time.perf_counter() - began

    def close(self) -> None:
        """Stop the task."""
        self.task.stop()
        self.task.join(60)


def memory_mb(field: str) -> float:
    """VmRSS (now) or VmHWM (highest) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(bootstrap_servers: str, stored: int, touched: int) -> list[dict[str, object]]:
    """In this process: store, time, recover."""
    generator = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="susurrus-trigger-") as directory:
        partition = OnePartition(bootstrap_servers, Path(directory))
        try:
            for keys in np.array_split(np.arange(stored), LOADING_TRIGGERS):
                partition.trigger(keys)
            Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
            resident = memory_mb("VmRSS")
            seconds = [
                partition.trigger(np.sort(generator.choice(stored, min(touched, stored), replace=False)))
                for _ in range(TIMED_TRIGGERS)
            ]
            highest = memory_mb("VmHWM")
            recovery = partition.recover()
        finally:
            partition.close()
    return [
        {
            "what": "trigger",
            "stored_keys": stored,
            "touched_keys": min(touched, stored),
            "seconds": round(statistics.median(seconds), 4),
            "resident_mb": round(resident),
            "highest_mb": round(highest),
        },
        {"what": "recovery", "stored_keys": stored, "seconds": round(recovery, 3)},
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="100000,1000000", help="stored keys, one run each")
    parser.add_argument("--touched", type=int, default=10_000, help="keys with news at each timed trigger")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--bootstrap-servers", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.keys.split(",")]
    if options.bootstrap_servers:  # a process per size, so that one's memory is not the next one's
        for row in measure(options.bootstrap_servers, sizes[0], options.touched):
            print(json.dumps(row), flush=True)
        os._exit(0)  # the clients' threads have nothing left to say
    rows = []
    environment = {**os.environ, "SUSURRUS_SECRET": "5a" * 32, "OMP_NUM_THREADS": "1"}
    with KafkaCluster(heap="1g") as cluster:
        for size in sizes:
            print(f"{size:,} keys", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--keys", str(size), "--touched", str(options.touched)]
            command += ["--bootstrap-servers", cluster.bootstrap_servers]
            printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            rows += [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    first = next(row for row in rows if row["what"] == "trigger")
    for row in rows:
        if row["what"] == "trigger":
            row["ratio_to_first"] = round(row["seconds"] / first["seconds"], 3)
        print(json.dumps(row) if options.json else "   ".join(f"{name}={value}" for name, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
