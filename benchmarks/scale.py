#!/usr/bin/env python3
"""Scaling: what each stage costs, what a trigger costs, and how fast one, two and four worker processes are.

    stages    the agents' own route, bound and release over topics in memory, state in RocksDB: microseconds of one core
              per event, bytes per event on every topic, rows and bytes of state. No Kafka: what a broker and its clients
              cost comes on top and shows in `workers`
    release   one trigger of one release partition, state in RocksDB: for numbers of keys touched, stored and published
    workers   raw topic to published histogram through a real broker, all runs over the same raw topic

    benchmarks/scale.py [--only stages,release,workers] [--quick] [--json]

A trigger is timed from the decoding of its input to the state's write: release stage, changelog encoding, RocksDB. Stored
keys are not made one by one: 50,000 keys go through the strategy, and copies of their rows are written under other
names. docs/scale.md says what follows for a billion keys. Progress goes to stderr.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, from anywhere
sys.path.insert(0, str(Path(__file__).parent))

from audit_memory import Clients

from susurrus.agents.expressions.shared import SharedComputation
from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics import bounded, changelog, tick

DAY_MS = 86_400_000
FIRST_WINDOW = 1_767_225_600_000
TRIGGERS = 96
SAMPLE = 50_000
TIMED = 5
FETCH = 5_000


def say(text: str) -> None:
    """Print progress to stderr."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


class OneWindowLedger:
    """The part of the ledger that stages use, for a pipeline with one charged window and one partition of each topic."""

    epoch = "00" * 8
    epoch_number = 1
    first_window = 0
    way_out = "there is none"
    start = SimpleNamespace(offsets={0: 0}, sources=(("raw", 0, 1),), first_window=FIRST_WINDOW)

    def topic_id(self, topic: str) -> str:
        """As its clients have it."""
        return "raw"

    def place(self, source: int) -> tuple[str, int]:
        """Each source is the partition of its number."""
        return "raw", source

    def begins(self, topic: str, partition: int) -> int:
        """The log's beginning, because this is the first epoch."""
        return 0

    def digests(self, partition: int) -> dict[tuple[int, int], str]:
        """Empty, because nothing has been published."""
        return {}

    def decision(self, window: int) -> bool:
        """Whether a window begins: every one does."""
        return True

    def output(self, *records: Any) -> Output:
        """An output that goes nowhere."""
        return Output("ledger", 0, [])

    def withdrawn(self, keys: list[bytes]) -> Output:
        """An output that goes nowhere."""
        return Output("ledger", 0, [])


def services_of(triggers: int, records: int = 0, partitions: int = 1) -> HistogramServices:
    """A pipeline with one raw and bounded partition, as agents/runtime/faust/worker.py would make it, without Kafka."""
    settings = settings_from(
        {
            "pipeline": {"name": "scale"},
            "kafka": {"bootstrap_servers": "none:1"},
            "input": {"topic": "raw", "user": "u", "key": ["k"]},
            "start": {"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
            "clock": {"kind": "replay", "until": "2026-01-02T00:00:00Z"},
            "window": {"length": "1d", "trigger_every": f"{DAY_MS // triggers}ms"},
            "bounds": {"max_records_per_user": 32},
            "privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"},
            "topics": {"by_user_partitions": partitions, "bounded_partitions": 1},
        },
        environ={"SUSURRUS_SECRET": "5a" * 32},
    )
    calendar = settings.calendar
    ledger = OneWindowLedger()
    ledger.first_window = calendar.window_at(FIRST_WINDOW)
    strategy = build_strategy(settings.plan())
    return HistogramServices(
        settings=settings,
        clients=Clients([range(records)]),  # type: ignore[arg-type]
        ledger=ledger,  # type: ignore[arg-type]
        calendar=calendar,
        config_digest=settings.config_digest(),
        secret=bytes(32),
        strategy=strategy,
        computation=SharedComputation(settings.raw_schema().scalars, settings.input.where, settings.lookup_tables),
    )


class Task:
    """One partition of one stage: what agents/runtime/task.py does with it, without the transaction."""

    def __init__(self, kind: type[Stage], services: HistogramServices, directory: Path) -> None:
        self.store = Store(directory / kind.name)
        meta, start = kind.begin(services, 0, Offset(0))
        self.stage = kind(services, 0, self.store, meta, start)
        self.next = 0
        self.seconds = 0.0
        """Of processor time, RocksDB's own threads included: other work on the machine does not count."""
        self.commits = 0
        self.changelog_bytes = 0
        self.puts = 0

    def take(self, log: list[Any], upto: int) -> list[Output]:
        """The outputs of the commits that records up to `upto` make possible."""
        began = time.process_time()
        if upto > self.next:
            self.stage.take(Batch(self.next, upto, log[self.next : upto], 0))
            self.next = upto
        outputs = []
        for commit in self.stage.commits(FIRST_WINDOW):
            outputs += commit.outputs
            self._write(commit)
            self.stage.committed(commit)
        self.seconds += time.process_time() - began
        return outputs

    def _write(self, commit: Commit) -> None:
        meta = msgspec.msgpack.encode(commit.meta)
        record = changelog.ChangelogRecord(commit.position, "topic", meta, list(commit.puts), list(commit.deletes))
        self.changelog_bytes += sum(map(len, changelog.encode(record)))
        self.store.write(commit.puts, commit.deletes, commit.drops, meta=meta)
        self.commits += 1
        self.puts += len(commit.puts)


def bytes_of(outputs: list[Output], topic: str) -> tuple[int, int]:
    """(records, bytes of keys and values, uncompressed) that went to a topic."""
    messages = [message for output in outputs if output.topic == topic for message in output.messages]
    return len(messages), sum(len(m["value"] or b"") + len(m.get("key") or b"") for m in messages)


def raw_log(records: int) -> tuple[list[Any], int]:
    """The records of throughput.py (Zipf keys, 10 a user) in one raw partition, and the number of distinct keys."""
    generator = np.random.default_rng(1)
    keys = np.minimum(generator.zipf(1.4, records), 1_000_000).tolist()
    users = generator.integers(0, max(1, records // 10), records).tolist()
    stamps = (FIRST_WINDOW + np.arange(records) * (DAY_MS / records)).astype(np.int64).tolist()
    log: list[Any] = [
        SimpleNamespace(
            offset=at,
            timestamp=stamps[at],
            timestamp_type=0,
            key=None,
            value=b'{"k":"key%d","u":"u%d","v":%d}' % (keys[at], users[at], at % 1000),
        )
        for at in range(records)
    ]
    return log, len(set(keys))


def fan_out(records: int, triggers: int = 24) -> Iterator[dict[str, Any]]:
    """What more by-user partitions cost in route: one raw fetch is cut into one block for each."""
    log, _ = raw_log(records)
    for partitions, fetch in ((1, FETCH), (64, FETCH), (1024, FETCH), (1024, 20 * FETCH)):
        services = services_of(triggers, records, partitions)
        with tempfile.TemporaryDirectory(prefix="susurrus-scale-") as directory:
            task = Task(RouteStage, services, Path(directory))
            made = [out for upto in [*range(fetch, records, fetch), records] for out in task.take(log, upto)]
            task.store.close()
        count, size = bytes_of(made, services.topic("by-user"))
        yield {
            "what": "fan-out",
            "by_user_partitions": partitions,
            "events_per_fetch": fetch,
            "us_per_event": round(task.seconds / records * 1e6, 3),
            "out_records": count,
            "out_bytes_per_event": round(size / records, 1),
        }


def stages(records: int, triggers: int = 24) -> Iterator[dict[str, Any]]:
    """One partition of each topic through all three stages."""
    log, distinct = raw_log(records)
    raw_bytes = sum(len(record.value) for record in log)
    services = services_of(triggers, records)
    with tempfile.TemporaryDirectory(prefix="susurrus-scale-") as directory:
        rows = records
        for kind, following in ((RouteStage, "by-user"), (BoundStage, "bounded"), (ReleaseStage, "histogram")):
            task = Task(kind, services, Path(directory))
            made: list[Output] = []
            for upto in [*range(FETCH, len(log), FETCH), len(log)]:
                made += task.take(log, upto)
            made += task.take(log, len(log))
            task.store.close()
            count, size = bytes_of(made, services.topic(following))
            say(f"{kind.name}: {task.seconds:.1f} s, {task.commits} commits")
            row: dict[str, Any] = {
                "what": "stage",
                "stage": kind.name,
                "events": records,
                "raw_bytes_per_event": round(raw_bytes / records, 1),
                "users": max(1, records // 10),
                "keys": distinct,
                "triggers": triggers,
                "seconds": round(task.seconds, 3),
                "us_per_event": round(task.seconds / records * 1e6, 3),
                "rows_in": rows,
                "us_per_row_in": round(task.seconds / max(1, rows) * 1e6, 3),
                "commits": task.commits,
                "state_puts": task.puts,
                "changelog_bytes_per_event": round(task.changelog_bytes / records, 1),
                "out_topic": following,
                "out_records": count,
                "out_bytes_per_event": round(size / records, 1),
            }
            yield row
            log = [
                SimpleNamespace(offset=at, value=message["value"])
                for at, message in enumerate(
                    message
                    for output in made
                    if output.topic == services.topic(following)
                    for message in output.messages
                )
            ]
            if kind is BoundStage:
                blocks = [record.value for record in log if record.value[0] == 1]
                rows = sum(len(bounded.decode(value)) for value in blocks)


def names_of(codes: Any) -> list[bytes]:
    return [b'"key-%012d"' % code for code in codes]


class Loaded:
    """A release partition with `stored` unpublished and `published` published keys after its first trigger."""

    def __init__(self, stored: int, published: int, directory: Path) -> None:
        self.services = services_of(TRIGGERS)
        self.interval = self.services.calendar.first_interval(self.services.ledger.first_window)
        self.blocks = 0
        self.task = Task(ReleaseStage, self.services, directory)
        self.offset = 0
        self.trigger(np.zeros(0, np.int64))  # the first, empty: declared keys, noise of the window
        began = time.perf_counter()
        self.state_bytes = self._store(stored, published)
        say(f"{stored:,} stored, {published:,} published keys written in {time.perf_counter() - began:.0f} s")

    def _store(self, stored: int, published: int) -> int:
        """Rows as a real first trigger leaves them; returns bytes of keys and values."""
        strategy, store = self.services.strategy, self.task.store
        window = ordered(self.services.ledger.first_window)
        noise = NoiseSource(bytes(32), epoch=b"scale", config=b"scale", pipeline="scale").window(0)
        ones = np.ones(SAMPLE, np.int64)
        increments = Increments(users=ones, weight=ones << 20, sums=np.ones((SAMPLE, 1), np.int64))
        hidden = np.zeros(SAMPLE, np.bool_)
        step = strategy.step(1, names_of(range(SAMPLE)), strategy.empty(SAMPLE), increments, noise, hidden)
        keep = np.flatnonzero(step.due != 0)
        packed, dues = strategy.pack(step.states.take(keep)), step.due[keep].tolist()
        total = 0
        for at in range(0, stored, SAMPLE):
            puts = []
            for i, name in enumerate(names_of(range(at, min(at + SAMPLE, stored)))):
                due = dues[i % len(dues)]
                puts.append((b"s" + window + name, due.to_bytes(4, "big") + packed[i % len(dues)]))
                if due <= TRIGGERS:
                    puts.append((b"d" + window + due.to_bytes(4, "big") + name, b""))
            total += sum(len(key) + len(value) for key, value in puts)
            store.write(puts, meta=b"loaded")
        public = strategy.empty(SAMPLE)
        declared = np.ones(SAMPLE, np.bool_)
        shown = strategy.pack(strategy.step(1, names_of(range(SAMPLE)), public, increments, noise, declared).states)
        for at in range(0, published, SAMPLE):
            codes = range(10**11 + at, 10**11 + min(at + SAMPLE, published))
            puts = [(b"p" + window + name, shown[i]) for i, name in enumerate(names_of(codes))]
            store.write(puts, meta=b"loaded")
        store.flush()
        return total

    def trigger(self, codes: Any) -> float:
        """Seconds of one trigger that brings one more user to each of these keys."""
        n = len(codes)
        ones = np.ones(n, np.int64)
        block = bounded.BoundedBlock(
            partition=0,
            interval=self.interval,
            window=np.full(n, FIRST_WINDOW, np.int64),
            keys=names_of(codes),
            users=ones,
            weight=ones << 20,
            sums=np.ones((n, 1), np.int64),
        )
        values = [bounded.encode(piece) for piece in bounded.split(block, 900_000)] if n else []
        self.blocks += len(values)
        values.append(tick.encode(tick.Tick(0, self.interval, self.blocks, self.services.config_digest)))
        log: list[Any] = [None] * self.offset
        log += [SimpleNamespace(offset=self.offset + i, value=value) for i, value in enumerate(values)]
        self.offset = len(log)
        began = time.perf_counter()
        self.outputs = self.task.take(log, len(log))
        self.interval += 1
        return time.perf_counter() - began


def release(stored: int, published: int, touched: list[int], *, fresh: bool = False) -> Iterator[dict[str, Any]]:
    """Time triggers of one partition with these numbers of keys. fresh: the keys are new, and are tested for the first time."""
    generator = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="susurrus-scale-") as directory:
        loaded = Loaded(stored, published, Path(directory))
        try:
            for count in touched:
                seconds = []
                for number in range(TIMED):
                    codes = np.sort(generator.choice(stored, min(count, stored), replace=False)).tolist()
                    if fresh:
                        codes = [(number + 1) * 10**9 + code for code in codes]
                    before = loaded.task.puts
                    seconds.append(loaded.trigger(codes))
                rows, size = bytes_of(loaded.outputs, loaded.services.topic("histogram"))
                say(f"{count:,} touched: {statistics.median(seconds):.3f} s")
                yield {
                    "what": "release",
                    "stored_keys": stored,
                    "published_keys": published,
                    "touched_keys": min(count, stored),
                    "fresh": fresh,
                    "seconds": round(statistics.median(seconds), 4),
                    "first_seconds": round(seconds[0], 4),
                    "published_rows": rows,
                    "bytes_per_row": round(size / rows, 1) if rows else None,
                    "state_puts": loaded.task.puts - before,
                    "state_bytes_per_key": round(loaded.state_bytes / max(1, stored), 1),
                }
        finally:
            loaded.task.store.close()


def workers(records: int, counts: list[int]) -> Iterator[dict[str, Any]]:
    """Time worker processes on one broker and one raw topic, with a new pipeline each time."""
    from benchmarks.inputs import PARTITIONS, fill
    from benchmarks.workers import published
    from susurrus.agents.broker.cluster import KafkaCluster

    with KafkaCluster(heap="1g", properties={"group.initial.rebalance.delay.ms": "3000"}) as cluster:
        feed = fill(cluster.bootstrap_servers, records, 24, 200_000)
        for count in counts:
            with tempfile.TemporaryDirectory(prefix="susurrus-scale-") as directory:
                seconds = published(feed, count, Path(directory)).seconds
            say(f"{count} workers: {records / seconds:,.0f} events a second")
            yield {
                "what": "workers",
                "workers": count,
                "cores": os.cpu_count(),
                "load": round(os.getloadavg()[0], 1),
                "partitions": PARTITIONS,
                "records": records,
                "seconds": round(seconds, 2),
                "events_per_second": round(records / seconds),
            }


def measure(names: list[str], quick: bool, sizes: list[int], records: int | None = None) -> Iterator[dict[str, Any]]:
    if "stages" in names:
        yield from stages(20_000 if quick else 500_000)
        yield from fan_out(20_000 if quick else 200_000)
    if "release" in names:
        touched = [100, 1_000] if quick else [1_000, 10_000, 100_000]
        for stored in sizes or ([2_000, 20_000] if quick else [100_000, 1_000_000, 10_000_000]):
            yield from release(stored, 0, touched)
        if sizes:
            return
        for published in (1_000,) if quick else (10_000, 100_000):
            yield from release(2_000 if quick else 100_000, published, touched[:1])
        yield from release(2_000 if quick else 100_000, 0, touched[1:2], fresh=True)
    if "workers" in names:
        yield from workers(records or (20_000 if quick else 1_000_000), [1, 2] if quick else [1, 2, 4])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="stages,release,workers", help="comma-separated: stages, release, workers")
    parser.add_argument("--stored", help="release: stored keys instead of 100000,1000000,10000000; no other cases")
    parser.add_argument("--records", type=int, help="workers: records instead of 1,000,000")
    parser.add_argument("--quick", action="store_true", help="small sizes: seconds instead of minutes")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args(argv)
    names = options.only.split(",")
    if unknown := set(names) - {"stages", "release", "workers"}:
        parser.error(f"--only: unknown {sorted(unknown)}; known: stages, release, workers")
    sizes = [int(size) for size in (options.stored or "").split(",") if size]
    for row in measure(names, options.quick, sizes, options.records):
        print(json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
