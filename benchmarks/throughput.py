#!/usr/bin/env python3
"""Events per second, raw topic to counts, beside other stream processors: the same records and one broker for all.

    bare                confluent-kafka, msgspec, a dict: no state, no output; the ceiling for uncompiled Python
    faust               a plain Faust agent with a RocksDB table; at least once, no re-keying
    quix                Quix Streams, stateful count in RocksDB; at least once, no re-keying
    kafka-streams-N     Java, N threads: exactly once, re-keyed through a repartition topic, count in RocksDB
    tuned-N             the same with the settings of an expert (docs/performance.md has both side by side)
    susurrus-N          N worker processes: exactly once, raw to released private histogram, three re-keyings
    filtered-1          one worker with input.where, which all records meet
    tops-1              one worker: exactly once, values to private streams, no re-keying

Each peer runs in an environment of its own under the cache directory (built on first use, versions pinned beside its
code in benchmarks/peers), reads the topic from the beginning, and is timed from the first record it reads: susurrus until the
last release is committed, Kafka Streams until the last count is, the others until the last record is counted. Faust and
Quix are slow, so they get the first records only, as ``records`` says.

Every peer runs ``--runs`` times, in an order that is reversed from run to run. A row is its fastest run, and ``runs`` has each.

- whole: all records, start-up and warm-up included.
- steady: without the first fifth. Other peers say when that is counted. Ours are run on the first fifth alone as well, in as
  many triggers fewer, and the difference counts: route runs ahead, so the second half of a run says nothing.

Processor time (``cpu_us``, microseconds per record) is of the steady part, by thread for our workers; the broker's is what it
spent meanwhile. ``bytes_per_record`` is what the whole run made the broker write, by topic. Ratios are to the fastest row of Kafka
Streams, warm.

    benchmarks/throughput.py [--records 10000000] [--runs 3] [--json] [--only bare,susurrus,tuned-2]
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, from anywhere

from benchmarks import others
from benchmarks.inputs import RECORDS_PER_USER, Feed, fill, say
from benchmarks.rates import Run, rows
from benchmarks.usage import Meter
from benchmarks.workers import new_name, run_workers, stream_toml
from susurrus.agents.broker.cluster import KafkaCluster

FIFTH = 5


@dataclass(frozen=True, slots=True)
class Inputs:
    """All records, and the first fifth of them as an input of its own."""

    whole: Feed
    fifth: Feed


def susurrus(inputs: Inputs, meter: Callable[[], Meter], what: str, workers: int, **options: Any) -> Run:
    """Our workers, each time a new pipeline: first on a fifth of the records and then on all."""
    parts = []
    for feed in (inputs.fifth, inputs.whole):
        toml = stream_toml(feed, new_name()) if options.get("kind") == "stream" else None
        environ = {name: value for name, value in options.items() if name != "kind"}
        with tempfile.TemporaryDirectory(prefix="susurrus-benchmark-") as directory, meter() as meant:
            parts.append(
                run_workers(f"susurrus {what}({workers})", feed, workers, Path(directory), meant, toml, **environ)
            )
        say(f"{parts[-1].what}: {feed.records:,} records in {parts[-1].whole.seconds:.1f} s")
    return replace(parts[1], first=parts[0].whole)


def other(inputs: Inputs, meter: Callable[[], Meter], peer: Callable[..., Run], **options: Any) -> Run:
    """Another system."""
    with meter() as meant:
        return peer(inputs.whole, meant, **options)


Case = Callable[[Inputs, Callable[[], Meter]], Run]
CASES: dict[str, Case] = {
    "bare": partial(other, peer=others.bare),
    "faust": partial(other, peer=others.faust),
    "quix": partial(other, peer=others.quix),
    "kafka-streams-1": partial(other, peer=others.kafka_streams, settings="quick-start", threads=1),
    "kafka-streams-2": partial(other, peer=others.kafka_streams, settings="quick-start", threads=2),
    "tuned-1": partial(other, peer=others.kafka_streams, settings="tuned", threads=1),
    "tuned-2": partial(other, peer=others.kafka_streams, settings="tuned", threads=2),
    "susurrus-1": partial(susurrus, what="", workers=1),
    "susurrus-2": partial(susurrus, what="", workers=2),
    "filtered-1": partial(susurrus, what="filtered ", workers=1, SUSURRUS__INPUT__WHERE="v >= 0"),
    "tops-1": partial(susurrus, what="tops ", workers=1, kind="stream"),
}


def chosen(only: str) -> list[str]:
    """The cases that a comma-separated list means: exactly, or all that begin so ("susurrus"). Raises ValueError."""
    names: list[str] = []
    for name in only.split(","):
        found = [case for case in CASES if name in (case, case.rpartition("-")[0])]
        if not found:
            raise ValueError(f"--only: unknown {name}; known: {', '.join(CASES)}")
        names += found
    return list(dict.fromkeys(names))


def schedule(names: Sequence[str], runs: int) -> Iterator[tuple[int, str]]:
    """(run, case): every other run in reverse, so that no case always follows the same one."""
    for run in range(runs):
        for name in names if run % 2 == 0 else reversed(names):
            yield run, name


@contextlib.contextmanager
def tidied(admin: AdminClient | None) -> Iterator[None]:
    """Delete the topics that the block made; nothing without an admin client."""
    before = set() if admin is None else set(admin.list_topics(timeout=30).topics)
    try:
        yield
    finally:
        if admin is not None:
            made = [name for name in admin.list_topics(timeout=30).topics if name not in before and name[:2] != "__"]
            for done in admin.delete_topics(made).values() if made else ():
                done.result(60)


def measure(inputs: Inputs, names: Sequence[str], runs: int, cluster: KafkaCluster | None = None) -> list[Run]:
    """Every run asked for, one after the other; a peer that fails is reported, and not tried again."""
    admin = None if cluster is None else AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    results: list[Run] = []
    failed: set[str] = set()
    for number, (run, name) in enumerate(schedule(names, runs), 1):
        if name in failed:
            continue
        say(f"{number} of {runs * len(names)}: run {run + 1}, {name}")
        try:
            with tidied(admin):
                result = CASES[name](inputs, lambda: Meter(cluster))
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            say(f"{name} FAILED, left out: {error}")
            failed.add(name)
            continue
        say(f"{result.what}: {result.whole.events_per_second:,.0f} events a second")
        results.append(result)
    return results


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    steady, ratio = row["steady_events_per_second"], row["steady_ratio"]
    warm = "" if steady is None else f"{steady:>10,} warm"
    beside = "" if ratio is None else f"{ratio:6.3f}x Kafka Streams"
    spent = f"worker {row['cpu_us'].get('worker', 0):.2f} + broker {row['cpu_us'].get('broker', 0):.2f} us"
    slowest = max(run["seconds"] for run in row["runs"])
    took = f"{row['records']:,} records in {row['seconds']} to {slowest} s"
    size = f"{sum(row['bytes_per_record'].values()):.1f} B written, {row['memory_mb']:,} MB"
    return f"{row['what']:<26} {row['events_per_second']:>10,} events/s {warm} {beside}   ({took}; {spent}, {size})"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3, help="of each peer (default 3)")
    parser.add_argument(
        "--triggers", type=int, default=25, help="releases by susurrus; a fifth of them on a fifth (default 25)"
    )
    parser.add_argument("--users", type=int, help="distinct users (default one for 20 records)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--only", default=",".join(CASES), help=f"comma-separated, of: {', '.join(CASES)}")
    parser.add_argument("--bootstrap-servers", help="a broker to use instead of one of our own; its topics are left")
    options = parser.parse_args(argv)
    try:
        names = chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as on Ctrl-C, stop what was started
    with contextlib.ExitStack() as stack:
        bootstrap_servers, cluster = options.bootstrap_servers, None
        if bootstrap_servers is None:
            say(f"starting Kafka on {os.cpu_count()} cores")
            # Several processes of one group join within these 3 s, before any of them reads: no rebalance is measured.
            cluster = KafkaCluster(heap="1g", properties={"group.initial.rebalance.delay.ms": "3000"})
            bootstrap_servers = stack.enter_context(cluster).bootstrap_servers
        users = options.users or max(1, options.records // RECORDS_PER_USER)
        first = max(1, options.records // FIFTH)
        inputs = Inputs(
            fill(bootstrap_servers, options.records, options.triggers, users),
            fill(bootstrap_servers, first, max(1, options.triggers // FIFTH), users),
        )
        results = rows(measure(inputs, names, options.runs, cluster))
    for row in results:
        print(json.dumps(row) if options.json else line(row))
    return 0 if len(results) >= len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
