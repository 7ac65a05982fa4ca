#!/usr/bin/env python3
"""What no release can be faster than: its transactions in a row, by a program that does nothing else, on the same broker.

Behind a boundary stand four commits, and each waits for the one before: route's that is under way, with the last rows; route's
ticks; bound's; release's. Here a thread for each partition does these four steps. A step produces its bytes, split over all
partitions of its topic, with a record for the changelog, sends its position, and commits. Then it waits until a read_committed
consumer has the records that all partitions of that step have written to its own partition, as the next stage does. Clients are
set as in a worker: linger of 1 ms, fetches that wait for 30 ms at most.

    commits     the four commits of a partition, begin to end, added up
    hand_over   from the beginning until the slowest partition has read the last step's records: the floor of a release

``steps`` has the same of each step. Meanwhile records arrive at ``--rates`` a second, as in latency.py (0: none). With --floor
latency.py does this with the sizes that it has measured (``by_stage``: compressed, as the broker's disk has them; here they are
random).

    benchmarks/latency_floor.py [--rates 0,20000,50000] [--rounds 200] [--partitions 4] [--bytes 30000,400,74000,25000] [--json]
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks.inputs import PARTITIONS, create_raw_topic, say
from benchmarks.rates import percentile
from susurrus.agents.broker.cluster import KafkaCluster

STEPS = ("route, rows", "route, ticks", "bound", "release")
BYTES = (30_000, 400, 74_000, 25_000)
"""Of a partition's commit in each step, as latency.py found them at 20,000 events a second with triggers every 5 s."""
WARM = 30
"""Rounds that are not counted: clients connect, and the broker's virtual machine compiles."""
PAUSE_SECONDS = 0.1
SECONDS = 60.0
USERS = 100_000


@dataclass(slots=True)
class Round:
    """What one partition took in one round: seconds of each commit, and of each step with the hand-over."""

    commits: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


class Chain:
    """One partition of all steps: a producer and a consumer for each."""

    def __init__(self, servers: str, name: str, partition: int, partitions: int, sizes: Sequence[int]) -> None:
        self._partition, self._partitions = partition, partitions
        self._topics = [f"{name}-{number}" for number in range(len(sizes))]
        self._changelog = f"{name}-changelog"
        self._values = [os.urandom(max(1, size // (partitions + 1))) for size in sizes]
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": servers,
                    "transactional.id": f"{name}-{number}-{partition}",
                    "linger.ms": 1,
                    "log_level": 3,
                }
            )
            for number in range(len(sizes))
        ]
        self._consumers = [
            Consumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": f"{name}-{number}",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 30,
                    "log_level": 3,
                }
            )
            for number in range(len(sizes))
        ]
        for producer in self._producers:
            producer.init_transactions(SECONDS)
        for topic, consumer in zip(self._topics, self._consumers, strict=True):
            consumer.assign([TopicPartition(topic, partition, 0)])

    def close(self) -> None:
        """Leave."""
        for consumer in self._consumers:
            consumer.close()

    def run(self, number: int) -> Round:
        """One round: commit and wait for what all partitions have committed, step by step. Raises RuntimeError after a minute."""
        found = Round()
        for topic, value, producer, consumer in zip(
            self._topics, self._values, self._producers, self._consumers, strict=True
        ):
            began = time.perf_counter()
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(topic, value, partition=partition)
            producer.produce(self._changelog, value, partition=self._partition)
            position = [TopicPartition(topic, self._partition, number + 1)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), SECONDS)
            producer.commit_transaction(SECONDS)
            found.commits.append(time.perf_counter() - began)
            self._wait(consumer)
            found.steps.append(time.perf_counter() - began)
        return found

    def _wait(self, consumer: Consumer) -> None:
        """Until one record of each partition's commit has been read."""
        deadline = time.perf_counter() + SECONDS
        left = self._partitions
        while left:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                left -= 1
            elif time.perf_counter() > deadline:
                raise RuntimeError(f"{left} records of a committed step were not read within {SECONDS:.0f} s")


@contextlib.contextmanager
def arriving(servers: str, topic: str, rate: int) -> Iterator[None]:
    """Records that a process of its own writes at a steady rate meanwhile; none with a rate of 0."""
    if not rate:
        yield
        return
    script = Path(__file__).parent / "peers" / "paced.py"
    command = [sys.executable, str(script), servers, topic, str(rate), str(USERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as paced:
        try:
            yield
        finally:
            paced.kill()


def measure(
    servers: str,
    rate: int,
    rounds: int,
    *,
    sizes: Sequence[int] = BYTES,
    partitions: int = PARTITIONS,
    warm: int = WARM,
) -> dict[str, Any]:
    """One case. sizes: bytes of a partition's commit in each step, the changelog's included."""
    name = f"floor-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [*(f"{name}-{number}" for number in range(len(sizes))), f"{name}-changelog", f"{name}-raw"]
    for topic in topics:
        create_raw_topic(admin, topic, partitions)
    chains = [Chain(servers, name, partition, partitions, sizes) for partition in range(partitions)]
    timed: list[tuple[float, list[Round]]] = []
    try:
        with arriving(servers, topics[-1], rate), ThreadPoolExecutor(partitions) as threads:
            for number in range(warm + rounds):
                together = threading.Barrier(partitions)

                def run(chain: Chain, number: int = number, together: threading.Barrier = together) -> Round:
                    together.wait(SECONDS)
                    return chain.run(number)

                found = list(threads.map(run, chains))
                if number >= warm:
                    timed.append((max(sum(one.steps) for one in found), found))
                time.sleep(PAUSE_SECONDS)
    finally:
        for chain in chains:
            chain.close()
        for done in admin.delete_topics(topics).values():
            done.result(60)
    whole = _milliseconds([slowest for slowest, _ in timed])
    say(f"floor at {rate:,} a second: p50 {whole['p50_ms']} ms, p99 {whole['p99_ms']} ms")
    return {
        "what": "latency-floor",
        "asked_per_second": rate,
        "partitions": partitions,
        "rounds": rounds,
        "bytes": list(sizes),
        "hand_over": whole,
        "commits": _milliseconds([sum(one.commits) for _, found in timed for one in found]),
        "steps": [
            {
                "step": step,
                "commit": _milliseconds([one.commits[at] for _, found in timed for one in found]),
                "hand_over": _milliseconds([one.steps[at] for _, found in timed for one in found]),
            }
            for at, step in enumerate(STEPS)
        ],
    }


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "p50_ms": round(percentile(seconds, 0.5) * 1e3, 1),
        "p99_ms": round(percentile(seconds, 0.99) * 1e3, 1),
        "worst_ms": round(max(seconds) * 1e3, 1),
    }


def sizes_of(by_stage: Mapping[str, Mapping[str, float]]) -> list[int]:
    """The bytes of each step, from what latency.py found of the stages. Ticks are small, and no figure has them alone."""
    route, bound, release = (by_stage.get(name, {}).get("bytes", 0.0) for name in ("route", "bound", "release"))
    return [round(route), BYTES[1], round(bound), round(release)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rates", default="0,20000,50000", help="records that arrive per second meanwhile, one case each"
    )
    parser.add_argument("--rounds", type=int, default=200, help="that are timed in each case (default 200)")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="that commit side by side (default 4)")
    parser.add_argument("--bytes", default=",".join(map(str, BYTES)), help=f"of a commit, for: {'; '.join(STEPS)}")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args(argv)
    sizes = [int(size) for size in options.bytes.split(",")]
    if len(sizes) != len(STEPS):
        parser.error(f"--bytes: {len(sizes)} sizes, and there are {len(STEPS)} steps: {'; '.join(STEPS)}")
    with KafkaCluster(heap="1g", properties={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        for rate in map(int, options.rates.split(",")):
            row = measure(cluster.bootstrap_servers, rate, options.rounds, sizes=sizes, partitions=options.partitions)
            print(json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
