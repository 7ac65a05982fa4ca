#!/usr/bin/env python3
"""What a trigger costs, apart from its rows and with them, however much is stored; and how long a lost disk takes to restore.

One partition of `release` or `bound`, run by its own task against a real broker: transaction, changelog and RocksDB included. Rows
are stored by a few triggers. Then triggers that touch many of them are timed, and triggers that touch one, from the moment the
interval's tick is handed over until the commit is in the store:

    fixed_ms     what a trigger with one row takes: what a trigger costs beside the rows
    row_us       what each further row adds
    seconds      the whole trigger with ``touched_rows`` of them

A row is a key for `release` and a user with one event for `bound`. Memory is the process's, at rest and at its highest during
those triggers. Then the local disk is thrown away and the task starts again: recovery is the time until it runs.

    benchmarks/trigger.py [--stages release,bound] [--keys 10000,1000000] [--triggers 24,288,1000] [--touched 10000] [--json]

All sizes run with the first number of triggers, and the first size with all numbers. 10,000,000 stored rows take some GB of memory
and, before anything is timed, minutes for each stage.
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
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, from anywhere

from benchmarks.inputs import create_raw_topic
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.batch import Batch, InputPartition
from susurrus.agents.runtime.disk import Disk
from susurrus.agents.runtime.metrics import Metrics
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.task import PartitionTask
from susurrus.agents.runtime.task_context import TaskContext
from susurrus.mechanisms.calendar import Interval
from susurrus.topics import bounded, by_user, tick

# Together fewer than the triggers of any window that is measured: the last one would drop what is stored.
LOADING_TRIGGERS = 6
TIMED_TRIGGERS = 8
SECONDS = 1_800.0
DAY_MS = 86_400_000
STAGES: dict[str, type[ReleaseStage] | type[BoundStage]] = {"release": ReleaseStage, "bound": BoundStage}

Int64s = npt.NDArray[np.int64]


class OnePartition:
    """A task on the only partition of a pipeline, fed without Faust: the log is written, then handed over."""

    def __init__(self, bootstrap_servers: str, directory: Path, stage: str, triggers: int) -> None:
        configuration: dict[str, Any] = {
            "pipeline": {"name": f"t{uuid.uuid4().hex[:8]}", "prefix": "benchmark"},
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "input": {"topic": f"raw-{uuid.uuid4().hex[:8]}", "user": "u", "key": ["k"]},
            "start": {"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
            "clock": {"kind": "replay", "until": "2026-01-02T00:00:00Z"},
            "window": {"length": "1d", "trigger_every": f"{DAY_MS // triggers}ms"},
            "privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"},
            "topics": {
                "by_user_partitions": 1,
                "bounded_partitions": 1,
                "replication_factor": 1,
                "min_insync_replicas": 1,
            },
        }
        self.stage = STAGES[stage]
        self.settings = HistogramSettings.of(settings_from(configuration))
        services = HistogramPipeline(self.settings).services()
        assert isinstance(services, HistogramServices)
        self.services = services
        self.directory = directory
        self.end = Offset(0)
        self.raw_end = 0
        self.interval = self.services.calendar.interval_at(self.settings.start.first_window or 0)
        self.blocks = 0
        admin = self.services.clients.admin()
        create_raw_topic(admin, self.settings.input.topic, 1)
        create_topics(self.settings, admin)
        if self.stage is not ReleaseStage:  # whose first task writes the ledger of a new pipeline
            self.task = self._start(ReleaseStage)
            self.close()
        self.task = self._start(self.stage)

    def _start(self, stage: type[ReleaseStage] | type[BoundStage]) -> PartitionTask:
        [spec] = [spec for spec in HistogramPipeline(self.settings).stages if spec.stage is stage]
        task = PartitionTask(
            TaskContext(
                spec=spec,
                place=InputPartition(str(spec.input_topic), 0),
                partition=0,
                services=self.services,
                metrics=Metrics("p"),
                open_store=lambda: Store(self.directory / f"{stage.name}-0"),
                disk=Disk(self.directory, gives_up=lambda reason: None, silence=SECONDS),  # nobody looks meanwhile
                rewind=lambda offset: None,
                give_up=lambda reason: None,  # the task refuses then
            )
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
            time.sleep(0.0005)

    def _bounded(self, codes: Int64s) -> list[bytes]:
        """One more user for each of these keys."""
        ones = np.ones(len(codes), np.int64)
        block = bounded.BoundedBlock(
            partition=0,
            interval=self.interval,
            window=np.full(len(codes), self.settings.start.first_window, np.int64),
            keys=[b'"key-%d"' % key for key in codes.tolist()],
            users=ones,
            weight=ones << 20,
            sums=np.ones((len(codes), len(self.services.strategy.plan.columns)), np.int64),
        )
        return [bounded.encode(piece) for piece in bounded.split(block, self.services.max_record_bytes)]

    def _by_user(self, codes: Int64s) -> list[bytes]:
        """One event of each of these users, with a thousand keys among them."""
        keys, key = np.unique(codes % 1_000, return_inverse=True)
        block = by_user.ByUserBlock(
            source=0,
            offset=self.raw_end + np.arange(len(codes), dtype=np.int64),
            interval=np.full(len(codes), self.interval, np.int64),
            window=np.full(len(codes), self.settings.start.first_window, np.int64),
            user=np.arange(len(codes), dtype=np.int32),
            key=key.astype(np.int32),
            values=np.zeros((len(codes), len(self.services.settings.layout.values)), np.int64),
            users=[b'"user-%d"' % user for user in codes.tolist()],
            keys=[b'"key-%d"' % key for key in keys.tolist()],
        )
        self.raw_end += len(codes)
        return [by_user.encode(piece) for piece in by_user.split(block, self.services.max_record_bytes)]

    def trigger(self, codes: Int64s) -> float:
        """One interval that touches these rows; seconds from its tick to the commit in the store."""
        records = self._bounded(codes) if self.stage is ReleaseStage else self._by_user(codes)
        self.blocks += len(records)
        records.append(tick.encode(tick.Tick(0, self.interval, self.blocks, self.services.config_digest)))
        producer = self.services.clients.producer()
        for record in records:
            producer.produce(self.settings.topic(self.stage.input), record, partition=0)
        producer.flush(60)
        start, self.end = self.end, Offset(self.end + len(records))
        rows = [SimpleNamespace(offset=start + i, value=record) for i, record in enumerate(records)]
        began = time.perf_counter()
        self.task.offer(Batch(start, self.end, rows, generation=1))
        self._wait(lambda: self.task.committing.position == self.end, self.task)
        self.interval = Interval(self.interval + 1)
        return time.perf_counter() - began

    def recover(self) -> float:
        """Seconds from an empty disk until the partition runs again."""
        self.close()
        shutil.rmtree(self.directory / f"{self.stage.name}-0")
        began = time.perf_counter()
        self.task = self._start(self.stage)
        return time.perf_counter() - began

    def close(self) -> None:
        """Stop the task."""
        self.task.stop()
        self.task.join(60)


def memory_mb(field: str) -> float:
    """VmRSS (now) or VmHWM (highest) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(bootstrap_servers: str, stage: str, stored: int, triggers: int, touched: int) -> dict[str, object]:
    """In this process: store, time, recover."""
    generator = np.random.default_rng(1)
    touched = min(touched, stored)
    with tempfile.TemporaryDirectory(prefix="susurrus-trigger-") as directory:
        partition = OnePartition(bootstrap_servers, Path(directory), stage, triggers)
        try:
            for number, codes in enumerate(np.array_split(np.arange(stored), LOADING_TRIGGERS)):
                print(f"loading, {number + 1} of {LOADING_TRIGGERS}", file=sys.stderr, flush=True)
                partition.trigger(codes)
            Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
            resident = memory_mb("VmRSS")
            many = [
                partition.trigger(np.sort(generator.choice(stored, touched, replace=False)))
                for _ in range(TIMED_TRIGGERS)
            ]
            one = [partition.trigger(generator.integers(0, stored, 1)) for _ in range(TIMED_TRIGGERS)]
            highest = memory_mb("VmHWM")
            recovery = partition.recover()
        finally:
            partition.close()
    seconds, fixed = statistics.median(many), statistics.median(one)
    return {
        "what": "trigger",
        "stage": stage,
        "triggers": triggers,
        "stored_rows": stored,
        "touched_rows": touched,
        "fixed_ms": round(fixed * 1e3, 2),
        "row_us": round((seconds - fixed) / max(1, touched - 1) * 1e6, 2),
        "seconds": round(seconds, 4),
        "resident_mb": round(resident),
        "highest_mb": round(highest),
        "recovery_seconds": round(recovery, 3),
    }


def cases(stages: list[str], sizes: list[int], triggers: list[int]) -> list[tuple[str, int, int]]:
    """(stage, stored, triggers): all sizes with the first number of triggers, the first size with all."""
    pairs = [(size, triggers[0]) for size in sizes] + [(sizes[0], count) for count in triggers[1:]]
    return [(stage, size, count) for stage in stages for size, count in pairs]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", default=",".join(STAGES), help="comma-separated: release, bound")
    parser.add_argument("--keys", default="10000,1000000", help="stored rows: keys of release, users of bound")
    parser.add_argument("--triggers", default="24,288,1000", help="of one window")
    parser.add_argument("--touched", type=int, default=10_000, help="rows with news at each timed trigger")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--bootstrap-servers", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    stages = options.stages.split(",")
    sizes, triggers = ([int(text) for text in listed.split(",")] for listed in (options.keys, options.triggers))
    least = LOADING_TRIGGERS + 2 * TIMED_TRIGGERS + 1
    if wrong := [count for count in triggers if count < least or DAY_MS % count]:
        parser.error(f"--triggers: {wrong} must be {least} or more, and divide a day of {DAY_MS} ms")
    if unknown := set(stages) - set(STAGES):
        parser.error(f"--stages: unknown {sorted(unknown)}; known: {', '.join(STAGES)}")
    if options.bootstrap_servers:  # a process per case, so that one's memory is not the next one's
        row = measure(options.bootstrap_servers, stages[0], sizes[0], triggers[0], options.touched)
        print(json.dumps(row), flush=True)
        os._exit(0)  # the clients' threads have nothing left to say
    environment = {**os.environ, "SUSURRUS_SECRET": "5a" * 32, "OMP_NUM_THREADS": "1"}
    with KafkaCluster(heap="1g") as cluster:
        for stage, size, count in cases(stages, sizes, triggers):
            print(f"{stage}: {size:,} stored rows, {count:,} triggers", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--stages", stage, "--keys", str(size), "--triggers", str(count)]
            command += ["--touched", str(options.touched), "--bootstrap-servers", cluster.bootstrap_servers]
            printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            row = next(json.loads(line) for line in printed.splitlines() if line.startswith("{"))
            print(json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
