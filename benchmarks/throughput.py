#!/usr/bin/env python3
"""Events per second, raw topic to counts, beside other stream processors: the same records and one broker for all.

    bare                confluent-kafka, msgspec, a dict: no state, no output; the ceiling for uncompiled Python
    faust               a plain Faust agent with a RocksDB table; at least once, no re-keying
    quix                Quix Streams, stateful count in RocksDB; at least once, no re-keying
    kafka-streams-N     Java, N threads: exactly once, re-keyed through a repartition topic, count in RocksDB
    tuned-N             the same with the settings of an expert (docs/performance.md has both side by side)
    susurrus-N          N worker processes: exactly once, raw to released private histogram, three re-keyings
    pure-N              the same without the compiled loops
    tops-1              one worker: exactly once, values to private streams, no re-keying

The tuned Kafka Streams and our workers do more than one thing: the rows plain, filter, sql, avro, protobuf, json-schema and arrays
(throughput_rows.py). All others have the row plain alone.

Each peer runs in an environment of its own under the cache directory (built on first use, versions pinned beside its
code in benchmarks/peers), reads the topic from the beginning, and is timed from the first record it reads: susurrus until the
last release is committed, Kafka Streams until the last count is, the others until the last record is counted. Faust and
Quix are slow, so they get the first records only, as ``records`` says. Where records are lists, ``records`` is of their items.

Our workers and Kafka Streams say how many records came in, were filtered and were counted. A run that did not count exactly
those that were produced has failed.

Every peer runs ``--runs`` times in every row, in an order that is reversed from run to run. A line is its fastest run, and ``runs``
has each.

- whole: all records, start-up and warm-up included.
- steady: without the first fifth. Other peers say when that is counted. Ours are run on the first fifth alone as well, in as
  many triggers fewer, and the difference counts: route runs ahead, so the second half of a run says nothing.

Processor time (``cpu_us``, microseconds per record) is of the steady part, by thread for our workers; the broker's is what it
spent meanwhile. ``bytes_per_record`` is what the whole run made the broker write, by topic. Ratios are to the fastest Kafka Streams
of the same row, warm, and to the same peer's row plain.

    benchmarks/throughput.py [--records 10000000] [--runs 3] [--json] [--rows plain,avro] [--only bare,susurrus,tuned-2]
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, from anywhere

from benchmarks import others
from benchmarks.encodings import ENCODINGS, ITEMS
from benchmarks.inputs import RECORDS_PER_USER, Feed, fill, say
from benchmarks.rates import Run, rows
from benchmarks.throughput_rows import PLAIN, ROWS, Row
from benchmarks.usage import Meter
from benchmarks.workers import new_name, run_workers, stream_toml
from susurrus.agents.broker.artefacts import KafkaUnavailableError
from susurrus.agents.broker.cluster import KafkaCluster
from tests.registry import apicurio_of, fetch_apicurio

FIFTH = 5
RECORDS_OF = FIFTH * ITEMS
"""The first fifth of an input is a whole number of records, also where a record has several items."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All records, and the first fifth of them as an input of its own."""

    whole: Feed
    fifth: Feed


Side = Callable[[Inputs, Callable[[], Meter], Row], Run]
"""What one peer does in one row."""


def susurrus(inputs: Inputs, meter: Callable[[], Meter], row: Row, *, what: str, workers: int, **options: Any) -> Run:
    """Our workers, each time a new pipeline: first on a fifth of the records and then on all."""
    parts = []
    for feed in (inputs.fifth, inputs.whole):
        toml = stream_toml(feed, new_name()) if options.get("kind") == "stream" else None
        environ = {name: value for name, value in options.items() if name != "kind"}
        with tempfile.TemporaryDirectory(prefix="susurrus-benchmark-") as directory, meter() as meant:
            name, home = f"susurrus {what}({workers})", Path(directory)
            parts.append(run_workers(name, feed, workers, home, meant, row=row, toml=toml, **environ))
        check(parts[-1], row, feed)
        say(f"{parts[-1].what}: {feed.records:,} records in {parts[-1].whole.seconds:.1f} s")
    return replace(parts[1], first=parts[0].whole)


def kafka_streams(inputs: Inputs, meter: Callable[[], Meter], row: Row, **options: Any) -> Run:
    """Kafka Streams."""
    with meter() as meant:
        run = others.kafka_streams(inputs.whole, meant, row=row, **options)
    check(run, row, inputs.whole)
    return run


def other(inputs: Inputs, meter: Callable[[], Meter], row: Row, *, peer: Callable[[Feed, Meter], Run]) -> Run:
    """Another system, which has the row plain alone."""
    with meter() as meant:
        return peer(inputs.whole, meant)


def check(run: Run, row: Row, feed: Feed) -> None:
    """Raises RuntimeError unless exactly the records that were produced came in, were filtered and were counted."""
    expected = row.expected(feed.records)
    if run.counted != expected:
        raise RuntimeError(f"{run.what}, row {row.name}: counted {dict(run.counted)}, and the topic has {expected}")


TUNED = {f"tuned-{n}": partial(kafka_streams, settings="tuned", threads=n) for n in (1, 2)}
OURS = {
    **{f"susurrus-{n}": partial(susurrus, what="", workers=n) for n in (1, 2)},
    **{f"pure-{n}": partial(susurrus, what="pure ", workers=n, SUSURRUS_COMPILED="0") for n in (1, 2)},
}
SIDES: dict[str, Side] = {
    "bare": partial(other, peer=others.bare),
    "faust": partial(other, peer=others.faust),
    "quix": partial(other, peer=others.quix),
    **{f"kafka-streams-{n}": partial(kafka_streams, settings="quick-start", threads=n) for n in (1, 2)},
    **TUNED,
    **OURS,
    "tops-1": partial(susurrus, what="tops ", workers=1, kind="stream"),
}
Case = tuple[str, str]
"""A row and a side, by their names."""


def chosen(rows_text: str, only: str) -> list[Case]:
    """The cases of two comma-separated lists. A side is meant exactly, or all that begin so ("susurrus"). Raises ValueError."""
    names = list(dict.fromkeys(rows_text.split(",")))
    if unknown := [name for name in names if name not in ROWS]:
        raise ValueError(f"--rows: unknown {', '.join(unknown)}; known: {', '.join(ROWS)}")
    sides: list[str] = []
    for name in only.split(","):
        found = [side for side in SIDES if name in (side, side.rpartition("-")[0])]
        if not found:
            raise ValueError(f"--only: unknown {name}; known: {', '.join(SIDES)}")
        sides += found
    wanted = dict.fromkeys(sides)
    cases = [(row, side) for row in names for side in wanted if row == PLAIN.name or side in {**TUNED, **OURS}]
    if not cases:
        raise ValueError(f"--rows {rows_text}: {only} has the row {PLAIN.name} alone; name it, or other sides")
    return cases


def schedule(cases: Sequence[Case], runs: int) -> Iterator[tuple[int, Case]]:
    """(run, case): every other run in reverse, so that no case always follows the same one."""
    for run in range(runs):
        for case in cases if run % 2 == 0 else reversed(cases):
            yield run, case


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


def measure(
    inputs: Mapping[str, Inputs], cases: Sequence[Case], runs: int, cluster: KafkaCluster | None = None
) -> list[Run]:
    """Every run asked for, one after the other; a case that fails is reported, and not tried again. inputs: by encoding."""
    admin = None if cluster is None else AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    results: list[Run] = []
    failed: set[Case] = set()
    for number, (run, case) in enumerate(schedule(cases, runs), 1):
        if case in failed:
            continue
        row, side = ROWS[case[0]], case[1]
        say(f"{number} of {runs * len(cases)}: run {run + 1}, {row.name}, {side}")
        try:
            with tidied(admin):
                result = SIDES[side](inputs[row.encoding], lambda: Meter(cluster), row)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            say(f"{row.name}, {side} FAILED, left out: {error}")
            failed.add(case)
            continue
        say(f"{result.what}: {result.whole.events_per_second:,.0f} events a second")
        results.append(result)
    return results


def prepare(
    bootstrap_servers: str, cases: Sequence[Case], records: int, triggers: int, users: int, registry: str
) -> dict[str, Inputs]:
    """The inputs of these cases, by encoding."""
    first = max(1, records // FIFTH)
    return {
        encoding: Inputs(
            fill(bootstrap_servers, records, triggers, users, encoding=encoding, registry=registry),
            fill(bootstrap_servers, first, max(1, triggers // FIFTH), users, encoding=encoding, registry=registry),
        )
        for encoding in dict.fromkeys(ROWS[row].encoding for row, _ in cases)
    }


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    steady, ratio = row["steady_events_per_second"], row["steady_ratio"]
    warm = "" if steady is None else f"{steady:>10,} warm"
    beside = "" if ratio is None else f"{ratio:6.3f}x Kafka Streams"
    if row["row"] != PLAIN.name and row["ratio_to_plain"] is not None:
        beside += f", {row['ratio_to_plain']:.3f}x plain"
    spent = f"worker {row['cpu_us'].get('worker', 0):.2f} + broker {row['cpu_us'].get('broker', 0):.2f} us"
    slowest = max(run["seconds"] for run in row["runs"])
    took = f"{row['records']:,} records in {row['seconds']} to {slowest} s"
    size = f"{sum(row['bytes_per_record'].values()):.1f} B written, {row['memory_mb']:,} MB"
    name, rate = f"{row['row']:<12} {row['what']:<24}", f"{row['events_per_second']:>10,} events/s"
    return f"{name} {rate} {warm} {beside}   ({took}; {spent}, {size})"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--runs", "--repeat", type=int, default=3, help="of each peer in each row (default 3)")
    parser.add_argument(
        "--triggers", type=int, default=25, help="releases by susurrus; a fifth of them on a fifth (default 25)"
    )
    parser.add_argument("--users", type=int, help="distinct users (default one for 20 records)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"comma-separated, of: {', '.join(ROWS)}")
    parser.add_argument("--only", default=",".join(SIDES), help=f"comma-separated, of: {', '.join(SIDES)}")
    parser.add_argument("--bootstrap-servers", help="a broker to use instead of one of our own; its topics are left")
    options = parser.parse_args(argv)
    try:
        cases = chosen(options.rows, options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.records < 1 or options.records % RECORDS_OF:
        parser.error(f"--records: {options.records} is no multiple of {RECORDS_OF}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as on Ctrl-C, stop what was started
    with contextlib.ExitStack() as stack:
        registry = ""
        if any(ENCODINGS[ROWS[row].encoding].schema for row, _ in cases):
            say("starting a schema registry")
            try:
                registry = stack.enter_context(apicurio_of(*fetch_apicurio()))
            except KafkaUnavailableError as missing:
                parser.error(f"--rows: avro, protobuf and json-schema need a schema registry: {missing}")
        bootstrap_servers, cluster = options.bootstrap_servers, None
        if bootstrap_servers is None:
            say(f"starting Kafka on {os.cpu_count()} cores")
            # Several processes of one group join within these 3 s, before any of them reads: no rebalance is measured.
            cluster = KafkaCluster(heap="1g", properties={"group.initial.rebalance.delay.ms": "3000"})
            bootstrap_servers = stack.enter_context(cluster).bootstrap_servers
        users = options.users or max(1, options.records // RECORDS_PER_USER)
        inputs = prepare(bootstrap_servers, cases, options.records, options.triggers, users, registry)
        results = rows(measure(inputs, cases, options.runs, cluster))
    for row in results:
        print(json.dumps(row) if options.json else line(row))
    return 0 if len(results) >= len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
