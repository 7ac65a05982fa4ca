#!/usr/bin/env python3
"""From a trigger's boundary to its committed release, while events arrive: half of the releases are faster than p50, 99 % than p99.

Two workers publish a histogram every 5 s from a live topic that a process of its own writes to at a steady rate. A release is
there when a read_committed reader has its progress from all partitions. What the configuration itself waits after a boundary
(``cut_ms``: clock.grace with clock `broker`, which is 0 here; clock.idle_grace with `producer`, a second) is not counted: the
latency is that of the pipeline from the moment at which it may begin. Window and state grow as they do in operation. The first
minute after the start is left out.

``by_stage`` says what the stages did for that: commits for each trigger, the bytes of one, and its mean time from its first record
until it is in the local store. With --floor each case is followed by latency_floor.py: four commits of these sizes in a row by a
program that does nothing else, while records arrive at the same rate.

With --faults each case runs a second time, and in its middle a worker is killed (kill -9) and started again a second later,
with its disk and under its name (worker.instance), so it gets its partitions back.

    benchmarks/latency.py [--rates 5000,20000,50000] [--clocks broker,producer] [--triggers 60] [--faults] [--floor] [--json]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END
from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks import latency_floor
from benchmarks.inputs import PARTITIONS, create_raw_topic, say
from benchmarks.rates import percentile
from benchmarks.usage import Meter, peak_memory_mb
from benchmarks.workers import Fleet, new_name, reader
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.topics import progress

EVERY_MS = 5_000
CUT_MS = {"broker": 0, "producer": 1_000}
STAMPED = {"broker": "LogAppendTime", "producer": "CreateTime"}
SKIPPED = 12
"""Releases that are left out by default, after those whose boundary the workers missed because they were starting: a minute, in
which the broker's virtual machine compiles the programs that it runs most."""
USERS = 100_000
WRITES = {
    "route": ("by-user", "route-changelog"),
    "bound": ("bounded", "bound-changelog"),
    "release": ("histogram", "latest", "progress", "release-changelog"),
}
"""The topics of each stage's commits."""
START_SECONDS = 120.0
DOWN_SECONDS = 1.0
FLOOR_ROUNDS = 200


def live_toml(bootstrap_servers: str, raw: str, clock: str, every_ms: int, partitions: int = PARTITIONS) -> str:
    """Visits per key in windows of 120 triggers; the first begins now, so that there are no triggers to catch up with.

    partitions: of by-user and bounded.
    """
    origin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(time.time() * 1e3) // every_ms * every_ms // 1000))
    return f"""
[pipeline]
name = "{new_name()}"
prefix = "benchmark"
[kafka]
bootstrap_servers = "{bootstrap_servers}"
[input]
topic = "{raw}"
user = "u"
key = ["k"]
[start]
from = "latest"
[clock]
kind = "{clock}"
{'grace = "0s"' if clock == "broker" else f'idle_grace = "{CUT_MS[clock]}ms"'}
[window]
length = "{120 * every_ms}ms"
trigger_every = "{every_ms}ms"
origin = "{origin}"
[bounds]
max_records_per_user = 32
[privacy]
epsilon = 6.0
delta = 1e-9
[topics]
by_user_partitions = {partitions}
bounded_partitions = {partitions}
replication_factor = 1
min_insync_replicas = 1
"""


class Latencies:
    """What each complete release took. Progress of the same trigger comes from every partition, and again after a failure."""

    def __init__(self, every_ms: int, cut_ms: int) -> None:
        self.complete: list[float] = []
        """Milliseconds from cut to the last partition's release, in the order of completion.

        Without those whose boundary lies before the first release was seen: the workers were still starting.
        """
        self._every_ms = every_ms
        self._cut_ms = cut_ms
        self._seen: dict[tuple[int, int], set[int]] = {}
        self._since = float("inf")

    @property
    def seen(self) -> int:
        """Triggers of which any partition has said something."""
        return len(self._seen)

    def add(self, record: progress.Progress, now_ms: float) -> None:
        """A record of progress, and the wall time at which it was read."""
        place = (record.window, record.trigger)
        seen = self._seen.setdefault(place, set())
        if record.partition in seen:
            return
        seen.add(record.partition)
        if len(seen) == record.of_partitions:
            boundary = record.window + record.trigger * self._every_ms
            self._since = min(self._since, now_ms)
            if boundary >= self._since:
                self.complete.append(now_ms - boundary - self._cut_ms)


def measure(
    cluster: KafkaCluster,
    clock: str,
    rate: int,
    triggers: int,
    *,
    faults: bool,
    every_ms: int = EVERY_MS,
    workers: int = 2,
    skipped: int = SKIPPED,
) -> dict[str, Any]:
    """One case."""
    servers = cluster.bootstrap_servers
    raw = f"live-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    create_raw_topic(admin, raw, PARTITIONS, message_timestamp_type=STAMPED[clock])
    name = f"{clock}, {rate:,} events a second" + (", a worker is killed" if faults else "")
    say(name)
    with tempfile.TemporaryDirectory(prefix="susurrus-latency-") as directory, Meter(cluster) as meter:
        toml = live_toml(servers, raw, clock, every_ms)
        with Fleet(toml, Path(directory), loglevel="info", named=True) as fleet:
            fleet.create_topics()
            for number in range(workers):
                fleet.start(number)
            command = [
                sys.executable,
                str(Path(__file__).parent / "peers" / "paced.py"),
                servers,
                raw,
                str(rate),
                str(USERS),
            ]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as paced:
                try:
                    latencies = Latencies(every_ms, CUT_MS[clock])
                    found = watch(fleet, latencies, skipped, triggers, faults=faults, paced=paced)
                    cpu, memory = meter.cpu(fleet.pids()), max(map(peak_memory_mb, fleet.pids()))
                    stages = {} if faults else by_stage(fleet, meter.written(raw), latencies.seen)
                    assert paced.stdin is not None
                    paced.stdin.close()
                    assert paced.stdout is not None
                    told = json.loads(paced.stdout.read())
                finally:
                    paced.kill()
    row = {
        "what": "latency",
        "clock": clock,
        "asked_per_second": rate,
        "killed": faults,
        "triggers": len(found),
        "p50_ms": round(percentile(found, 0.5)),
        "p99_ms": round(percentile(found, 0.99)),
        "worst_ms": round(max(found)),
        "cut_ms": CUT_MS[clock],
        "every_ms": every_ms,
        "workers": workers,
        "memory_mb": round(memory),
        "by_stage": stages,
        "cpu_us": {
            of: round(spent / told["records"] * 1e6, 2) for of, spent in cpu.items() if of in ("worker", "broker")
        },
        **told,
    }
    say(f"{name}: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms, worst {row['worst_ms']} ms")
    return row


def by_stage(fleet: Fleet, written: Mapping[str, int], triggers: int) -> dict[str, dict[str, float]]:
    """Of each stage: commits for a trigger, bytes and mean ms of one. written: bytes by kind of topic. triggers: until now."""
    commits = fleet.sums("susurrus_transactions_total", "stage", "outcome")
    seconds = fleet.sums("susurrus_transaction_duration_seconds_sum", "stage")
    counted = fleet.sums("susurrus_transaction_duration_seconds_count", "stage")
    return {
        stage: {
            "commits": round(number / max(1, triggers), 1),
            "bytes": round(sum(written.get(topic, 0) for topic in topics) / number),
            "ms": round(seconds[(stage,)] / max(1, counted[(stage,)]) * 1e3, 1),
        }
        for stage, topics in WRITES.items()
        if (number := commits[stage, "committed"])
    }


def watch(
    fleet: Fleet, latencies: Latencies, skipped: int, triggers: int, *, faults: bool, paced: subprocess.Popen[str]
) -> list[float]:
    """Milliseconds of so many releases, after the skipped ones; with faults a worker is killed in the middle of them."""
    deadline = time.monotonic() + START_SECONDS + 3 * (skipped + triggers) * EVERY_MS / 1e3
    killed_at: float | None = None
    restarted = not faults
    topic = fleet.settings.topic("progress")
    with reader(fleet.settings.kafka.bootstrap_servers, topic, start=OFFSET_END) as consumer:
        while len(latencies.complete) < skipped + triggers or not restarted:
            message = consumer.poll(0.1)
            now = time.time() * 1e3
            if message is not None and message.error() is None and message.value() is not None:
                latencies.add(progress.decode(message.value()), now)
            fleet.check()
            if paced.poll() is not None:
                raise RuntimeError(f"the producer of records ended with status {paced.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"only {len(latencies.complete)} releases in time; worker 0:\n{fleet.log(0)[-3000:]}"
                )
            if faults and killed_at is None and len(latencies.complete) >= skipped + triggers // 2:
                fleet.kill(0)
                killed_at = time.monotonic()
            if killed_at is not None and not restarted and time.monotonic() > killed_at + DOWN_SECONDS:
                fleet.start(0)
                restarted = True
    return latencies.complete[skipped : skipped + triggers]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="5000,20000,50000", help="events per second, one case each")
    parser.add_argument("--clocks", default="broker,producer")
    parser.add_argument("--triggers", type=int, default=60, help="releases that are timed in each case (default 60)")
    parser.add_argument("--every-ms", type=int, default=EVERY_MS, help="time between triggers (default 5000)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--faults", action="store_true", help="each case once more, while a worker is killed")
    parser.add_argument("--floor", action="store_true", help="after each case four commits of its sizes in a row")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args(argv)
    clocks = options.clocks.split(",")
    if unknown := set(clocks) - set(CUT_MS):
        parser.error(f"--clocks: unknown {sorted(unknown)}; known: {', '.join(CUT_MS)}")
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with KafkaCluster(heap="1g", properties=properties) as cluster:
        for clock in clocks:
            for rate in map(int, options.rates.split(",")):
                for faults in (False, True) if options.faults else (False,):
                    row = measure(
                        cluster,
                        clock,
                        rate,
                        options.triggers,
                        faults=faults,
                        every_ms=options.every_ms,
                        workers=options.workers,
                    )
                    if options.floor and not faults:
                        sizes = latency_floor.sizes_of(row["by_stage"])
                        row["floor"] = latency_floor.measure(cluster.bootstrap_servers, rate, FLOOR_ROUNDS, sizes=sizes)
                    print(
                        json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True
                    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
