#!/usr/bin/env python3
"""Forecast against outcome: `susurrus plan` on a sample, then a real worker on a real broker with a secret of its own.

    python benchmarks/forecast.py --retail retail.dat.gz --out docs/results/forecast.jsonl
    python benchmarks/forecast.py --only nasa

Flow: records → sample file → the plan; the same records → raw topic → worker (clock = "replay") → what a reader has at the end,
against the exact counts. Then plans from random halves of the users, scaled up, against the same outcome: keys and ℓ1. results.py
renders the table of docs/plan.md. The outcome's noise comes from a random secret and epoch, which the forecast cannot know.
Without --bootstrap-servers a broker is started and thrown away afterwards.
"""

import argparse
import contextlib
import gzip
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.histogram.releases import Release, ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import load_settings, tables_of
from susurrus.agents.planning.plan import PipelinePlan, make_plan
from susurrus.agents.planning.sample import read_file
from susurrus.agents.planning.sources import OfSample, in_grid_units
from susurrus.agents.planning.variants import Configuration
from susurrus.topics.wire.timestamps import format_time, parse_time

PARTITIONS = 4
HALVES = 5
PATIENCE_SECONDS = 300.0

Record = tuple[int, dict[str, Any]]
"""(time in ms, the raw event)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """records: sorted by time. begin: of the window, ms. columns: TOML, of which the first is compared. dealt: a user's records are
    in all partitions of the raw topic, in place of one."""

    name: str
    records: list[Record]
    begin: int
    user: str
    key: str
    columns: str
    value: str | None = None
    dealt: bool = False
    delta: float = 1e-6

    @property
    def true(self) -> Counter[Any]:
        """Without caps and clamps."""
        found: Counter[Any] = Counter()
        for _, event in self.records:
            found[event[self.key]] += 1 if self.value is None else event[self.value]
        return found

    def configuration(self, bootstrap: str, topic: str, prefix: str) -> str:
        return f"""
[pipeline]
name = "{self.name}"
prefix = "{prefix}"
[kafka]
bootstrap_servers = "{bootstrap}"
[input]
topic = "{topic}"
user = "{self.user}"
key = ["{self.key}"]
time = "at"
[start]
from = "earliest"
first_window = "{format_time(self.begin)}"
[clock]
kind = "replay"
until = "{format_time(self.begin + 86_400_000)}"
[window]
length = "1d"
trigger_every = "1h"
origin = "{format_time(self.begin)}"
[bounds]
max_records_per_user = 32
{self.columns}
[privacy]
epsilon = 6.0
delta = {self.delta}
[topics]
by_user_partitions = {PARTITIONS}
bounded_partitions = {PARTITIONS}
replication_factor = 1
min_insync_replicas = 1
"""


COUNT = '[[columns]]\nname = "visits"\nkind = "count"\n'
SUM = '[[columns]]\nname = "bytes"\nkind = "sum"\nfield = "bytes"\nbound = 20000.0\nlower = 0.0\ngrid = 20.0\n'


def nasa() -> Iterator[Case]:
    """The web log of the demonstration: visits alone, and with the bytes sent, which are compared then."""
    visits = sorted(WebLog().visits, key=lambda visit: visit.time)
    records = [
        (visit.time * 1000, {"host": visit.host, "url": visit.url, "bytes": visit.size, "at": visit.time * 1000})
        for visit in visits
    ]
    begin = parse_time("1995-08-01T04:00:00Z")
    for name, dealt in (("nasa", False), ("nasa-dealt", True)):
        yield Case(name=name, records=records, begin=begin, user="host", key="url", columns=COUNT, dealt=dealt)
    yield Case(
        name="nasa-bytes", records=records, begin=begin, user="host", key="url", columns=SUM + COUNT, value="bytes"
    )


def retail(path: Path) -> Iterator[Case]:
    """A line is a basket, which is a user; its items come at random times of one day."""
    begin = parse_time("2026-01-01T00:00:00Z")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        pairs = [(number, int(item)) for number, line in enumerate(lines) for item in line.split()]
    times = np.random.default_rng(0).integers(0, 86_400_000, len(pairs))
    order = np.argsort(times, kind="stable").tolist()
    records = [
        (begin + int(times[i]), {"basket": pairs[i][0], "item": pairs[i][1], "at": begin + int(times[i])})
        for i in order
    ]
    yield Case(name="retail", records=records, begin=begin, user="basket", key="item", columns=COUNT, delta=1e-9)


def planned(case: Case, config: Path, sample: Path, *, share: float = 1.0) -> PipelinePlan:
    """The plan of the strategy that runs, from a sample file."""
    configuration = Configuration(tables_of(config), config.parent)
    settings = configuration.histogram()
    source = OfSample(in_grid_units(read_file(sample, settings, wide=True), settings), str(sample.name), share=share)
    return make_plan(configuration, source, strategies=[settings.choice.name], seeds=5)


def write(path: Path, records: list[Record]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for _, event in records))
    return path


def produce(bootstrap: str, topic: str, case: Case) -> None:
    """In order of time, so that every partition is sorted by time."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 3})
    for number, (at, event) in enumerate(case.records):
        place = number if case.dealt else zlib.crc32(str(event[case.user]).encode())
        while True:
            try:
                producer.produce(topic, json.dumps(event).encode(), partition=place % PARTITIONS, timestamp=at)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records could not be produced")


def outcome(case: Case, config: Path, directory: Path) -> dict[Any, float]:
    """What a reader has of the first column, by key, after the window's last trigger."""
    environ = {**os.environ, "SUSURRUS_SECRET": secrets.token_hex(32)}
    environ["SUSURRUS__WORKER__DATA_DIRECTORY"] = str(directory / "data")
    command = [sys.executable, "-m", "susurrus.agents.cli"]
    subprocess.run([*command, "topics", "create", "-c", config], env=environ, check=True, stdout=subprocess.DEVNULL)
    settings = load_settings(config, environ)
    with open(directory / "worker.log", "wb") as log:
        worker = subprocess.Popen([*command, "worker", "-c", config], env=environ, stdout=log, stderr=log)
    ends_with_us(worker.pid)
    try:
        ends = time.monotonic() + PATIENCE_SECONDS
        with ReleaseReader(HistogramSettings.of(settings)) as reader:
            found = list[Release]()
            while not found or not found[-1].final:
                found += reader.poll(0.5)
                if worker.poll() is not None or time.monotonic() > ends:
                    raise RuntimeError((directory / "worker.log").read_text()[-3000:])
    finally:
        worker.terminate()
        worker.wait(60)
    name = "visits" if case.value is None else case.value
    return dict(zip(found[-1].keys, found[-1].columns[name].estimate.tolist(), strict=True))


def errors(found: dict[Any, float], true: Counter[Any]) -> tuple[int, float]:
    """(keys, ℓ1)."""
    return len(found), float(sum(abs(found.get(key, 0) - true[key]) for key in set(true) | set(found)))


def compared(case: Case, bootstrap: str, directory: Path) -> Iterator[dict[str, Any]]:
    name = uuid.uuid4().hex[:8]
    topic, config = f"raw-{name}", directory / "pipeline.toml"
    config.write_text(case.configuration(bootstrap, topic, f"f{name}"))
    rng = np.random.default_rng(1)
    plans = [("whole", 1.0, planned(case, config, write(directory / "whole.jsonl", case.records)))]
    users = sorted({event[case.user] for _, event in case.records}, key=str)
    for number in range(HALVES):
        half = {users[i] for i in rng.permutation(len(users))[: len(users) // 2].tolist()}
        some = [record for record in case.records if record[1][case.user] in half]
        share = len(half) / len(users)
        sample = write(directory / f"half-{number}.jsonl", some)
        plans.append((f"half {number + 1}", share, planned(case, config, sample, share=share)))
    # The outcome comes last, so that nothing of it can have entered a plan.
    produce(bootstrap, topic, case)
    keys, l1 = errors(outcome(case, config, directory), case.true)
    for sample_name, share, plan in plans:
        end = plan.forecasts[0].outcome
        assert end is not None
        at = end.triggers[-1]
        first = at.columns[plan.settings.columns[0].name].l1
        yield {
            "case": case.name,
            "sample": sample_name,
            "share": round(share, 4),
            "strategy": plan.runs,
            "forecast_keys": round(at.keys.mean, 1),
            "forecast_keys_deviation": round(at.keys.deviation, 1),
            "forecast_l1": round(first.mean),
            "forecast_l1_deviation": round(first.deviation),
            "keys": keys,
            "l1": round(l1),
            "total": round(case.true.total()),
        }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retail", type=Path, help="retail.dat of the FIMI repository; it is not shipped")
    parser.add_argument("--only", help="names of cases, separated by commas")
    parser.add_argument("--out", type=Path, help="JSON lines; by default standard output")
    parser.add_argument("--bootstrap-servers")
    options = parser.parse_args(argv)
    cases = [*nasa(), *([] if options.retail is None else retail(options.retail))]
    if options.only:
        cases = [case for case in cases if case.name in options.only.split(",")]
    rows = []
    with contextlib.ExitStack() as stack:
        bootstrap = options.bootstrap_servers or stack.enter_context(KafkaCluster()).bootstrap_servers
        for case in cases:
            with tempfile.TemporaryDirectory(prefix="susurrus-forecast-") as directory:
                rows += compared(case, bootstrap, Path(directory))
            print(json.dumps(rows[-HALVES - 1]), file=sys.stderr, flush=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
