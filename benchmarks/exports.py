#!/usr/bin/env python3
"""Seconds until a reader has a published histogram: the newest release on a terminal and as a file, and every release of the day.

A day is published to a real broker as release stages publish it: each trigger's rows by partition and what announces them, in one
transaction. Every row of the day is read here, because the broker stamps the markers of all transactions with the present time. A
live pipeline's reader begins at the newest release's rows.

    benchmarks/exports.py [--keys 1000] [--triggers 144] [--partitions 8] [--json]
"""

import argparse
import functools
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks.inputs import DAY_MS, FIRST_WINDOW_MS, create_raw_topic, say
from benchmarks.workers import new_name
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import load_settings
from susurrus.releases import releases
from susurrus.topics import histogram, progress

EPOCH = "ab" * 16
FORMATS = ("parquet", "csv", "jsonl")


def publish(bootstrap_servers: str, directory: Path, keys: int, triggers: int, partitions: int) -> Path:
    """Publish a day of releases in which every key has a row. Returns the pipeline's file."""
    config = directory / "pipeline.toml"
    config.write_text(
        f"""\
pipeline = {{ name = "{new_name()}" }}
kafka = {{ bootstrap_servers = "{bootstrap_servers}" }}
input = {{ topic = "raw", user = "user", key = ["url"] }}
window = {{ trigger_every = "{DAY_MS // triggers}ms" }}
privacy = {{ epsilon = 6.0, delta = 1e-9, strategy = "toeplitz" }}
columns = [{{ name = "visits", kind = "count" }}]
"""
    )
    settings = HistogramSettings.of(load_settings(config, {}))
    rows, announcements = settings.topic("histogram"), settings.topic("progress")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    create_raw_topic(admin, rows, partitions, retention_ms="-1")
    create_raw_topic(admin, announcements, 1, retention_ms="-1")
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": new_name(), "linger.ms": 20, "log_level": 3}
    )
    producer.init_transactions(30)
    parts = [[b'"/page/%d"' % key for key in range(part, keys, partitions)] for part in range(partitions)]
    for trigger in range(1, triggers + 1):
        producer.begin_transaction()
        stamp = FIRST_WINDOW_MS + trigger * (DAY_MS // triggers)
        release = histogram.TriggerHeader(
            window_start=FIRST_WINDOW_MS,
            window_end=FIRST_WINDOW_MS + DAY_MS,
            trigger=trigger,
            of_triggers=triggers,
            strategy="toeplitz",
            epoch=EPOCH,
        )
        for partition, names in enumerate(parts):
            visits = histogram.ColumnRows(name="visits", estimate=np.arange(len(names)) + trigger, std_error=2.5)
            for key, value in zip(*histogram.encode_rows(release, names, [visits]), strict=True):
                producer.produce(rows, value, key, partition=partition, timestamp=stamp)
            said = progress.Progress(
                window=FIRST_WINDOW_MS,
                trigger=trigger,
                of_triggers=triggers,
                partition=partition,
                of_partitions=partitions,
                rows=len(names),
                epoch=EPOCH,
            )
            key, value = progress.encode(said)
            producer.produce(announcements, value, key, partition=0, timestamp=stamp)
        producer.commit_transaction(60)
    return config


def measure(bootstrap_servers: str, keys: int, triggers: int, partitions: int) -> Iterator[dict[str, Any]]:
    """One row for each way to read."""
    with tempfile.TemporaryDirectory(prefix="susurrus-exports-") as place:
        directory = Path(place)
        config = publish(bootstrap_servers, directory, keys, triggers, partitions)
        say(f"{keys:,} keys at {triggers} triggers are published")
        watch = [sys.executable, "-m", "susurrus.agents.cli", "watch", "-c", str(config)]

        def run(*options: str) -> int:
            done = subprocess.run([*watch, *options], check=True, capture_output=True, text=True)
            [said] = re.findall(r"([\d,]+) (?:rows written|keys published)", done.stdout + done.stderr)
            return int(said.replace(",", ""))

        def everything() -> int:
            return sum(map(len, releases(config, follow=False)))

        ways: dict[str, Callable[[], int]] = {"watch --once": functools.partial(run, "--once")}
        for form in FORMATS:
            file = str(directory / f"day.{form}")
            ways[f"watch --export {form}"] = functools.partial(run, "--export", form, "--output", file)
        ways["releases(follow=False)"] = everything
        for what, read in ways.items():
            before, begun = _processor_seconds(), time.monotonic()
            rows = read()
            yield {
                "what": what,
                "keys": keys,
                "triggers": triggers,
                "partitions": partitions,
                "rows": rows,
                "seconds": round(time.monotonic() - begun, 2),
                "cpu_seconds": round(_processor_seconds() - before, 2),
            }


def _processor_seconds() -> float:
    """The processor time of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--triggers", type=int, default=144, help="of the day")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args(argv)
    if options.triggers < 1 or DAY_MS % options.triggers:
        parser.error(f"--triggers: {options.triggers} does not divide a day of {DAY_MS} ms")
    with KafkaCluster(heap="1g") as cluster:
        for row in measure(cluster.bootstrap_servers, options.keys, options.triggers, options.partitions):
            print(json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
