#!/usr/bin/env python3
"""The paper's workload, scaled down, through a real broker: the published histogram must equal the offline one bit for bit.

    python benchmarks/end_to_end.py [--users 20000] [--strategy toeplitz] [--workers 2] [--json]

Flow: workload → raw topic, several partitions, not keyed by user → workers (clock = "replay") → histogram topic, compared
with offline.run on the same records, secret and epoch: every row of every trigger, estimate and standard error. The exit
status is 0 if they are equal. Without --bootstrap-servers a broker is started and thrown away afterwards.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from progress import Lines
from workers import wait_for_trigger

from benchmarks.inputs import DAY_MS
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.pipelines import load_settings, pipeline_of
from susurrus.agents.planning.offline import run
from susurrus.agents.planning.spool import spool
from susurrus.agents.planning.workload import FileWorkload, UserRecords, ZipfMandelbrotDay
from susurrus.mechanisms.histogram.record_order import RecordOrder
from susurrus.mechanisms.histogram.registry import STRATEGIES
from susurrus.mechanisms.histogram.strategy import Step
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics import histogram
from susurrus.topics.wire.partitioner import placements

SECRET = "5a" * 32
EPOCH = "0123456789abcdef0123456789abcdef"
FIRST_WINDOW_MS = 1_767_225_600_000

Rows = dict[tuple[int, bytes], tuple[int, float]]
"""(trigger, key) -> (estimate, standard error)."""


def configuration(options: argparse.Namespace, bootstrap: str, topic: str, prefix: str) -> str:
    return f"""
[pipeline]
name = "day"
prefix = "{prefix}"
[kafka]
bootstrap_servers = "{bootstrap}"
[input]
topic = "{topic}"
user = "u"
key = ["k"]
[start]
from = "earliest"
first_window = "2026-01-01T00:00:00Z"
epoch = "{EPOCH}"
[clock]
kind = "replay"
until = "2026-01-02T00:00:00Z"
[window]
length = "1d"
trigger_every = "{DAY_MS // options.micro_batches}ms"
[bounds]
max_records_per_user = 32
[[columns]]
name = "visits"
kind = "count"
[privacy]
epsilon = 6.0
delta = 1e-9
strategy = "{options.strategy}"
[topics]
by_user_partitions = {options.partitions}
bounded_partitions = {options.partitions}
replication_factor = 1
min_insync_replicas = 1
"""


def place(records: UserRecords, partitions: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(partition, offset) of every record: dealt out in order of time, so each partition is sorted by time."""
    order = np.argsort(records.time, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank % partitions, rank // partitions


def produce(bootstrap: str, topic: str, records: UserRecords, partition: npt.NDArray[np.int64]) -> None:
    """The records as JSON, each with its event time as time stamp."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    admin.create_topics([NewTopic(topic, int(partition.max()) + 1, 1, config=config)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 3})
    for row in np.argsort(records.time, kind="stable").tolist():
        value = b'{"u":"user %d","k":%d}' % (records.user[row], records.key[row])
        stamp = FIRST_WINDOW_MS + int(records.time[row])
        while True:
            try:
                producer.produce(topic, value, partition=int(partition[row]), timestamp=stamp)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records could not be produced")


def published(bootstrap: str, topic: str) -> Rows:
    """What a read_committed reader finds in the histogram topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    with contextlib.closing(consumer):
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        rows: Rows = {}
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for message in consumer.consume(10_000, 1.0):
                if message.error() is not None:
                    ended.add(message.partition())
                    continue
                row = histogram.decode_row(message.value())
                cell = row.values["visits"]
                place = (row.trigger, json.dumps(row.key).encode())
                if place in rows:
                    raise RuntimeError(f"a row of trigger {row.trigger} was published twice")
                rows[place] = (int(cell.estimate), float(cell.std_error))
        return rows


def offline(config: Path, records: UserRecords, partition: Any, offset: Any, keys: int) -> Rows:
    """The same window by the offline harness, with the pipeline's order of each user's records."""
    services = pipeline_of(load_settings(config)).services()
    services.clients.close()
    strategy = services.strategy
    order = np.lexsort((offset, partition, records.trigger(strategy.plan.triggers), records.user))
    held = UserRecords(user=records.user[order], key=records.key[order], time=records.time[order], users=records.users)
    workload = FileWorkload(name="replayed", records=held, key_names=[b"%d" % code for code in range(keys)])
    source = NoiseSource(
        bytes.fromhex(SECRET),
        epoch=bytes.fromhex(EPOCH),
        config=services.config_digest,
        pipeline=services.settings.pipeline.name,
    )
    rows: Rows = {}
    window = services.calendar.window_at(FIRST_WINDOW_MS)
    users = placements([b'"user %d"' % user for user in range(records.users)])
    key_hashes = placements(workload.key_names)

    def priorities(chunk: UserRecords, before: int) -> npt.NDArray[np.uint32]:
        order = RecordOrder(bytes.fromhex(SECRET))
        return order.priorities(window, users[chunk.user + before], key_hashes[chunk.key])

    def collect(trigger: int, codes: npt.NDArray[np.int64], step: Step) -> None:
        for i in np.flatnonzero(step.published).tolist():
            rows[trigger, workload.key_names[codes[i]]] = (int(step.estimates[i, 0]), float(step.std_errors[i, 0]))

    noise = source.window(window)
    spooled = spool(workload, strategy.bounding, strategy.plan.triggers, priorities=priorities, progress=Lines())
    run(strategy, spooled, noise, every_trigger=True, released=collect, progress=Lines())
    return rows


def compare(options: argparse.Namespace, bootstrap: str, directory: Path) -> dict[str, Any]:
    """One run, as a JSON object."""
    name = uuid.uuid4().hex[:8]
    keys = options.keys
    (records,) = ZipfMandelbrotDay(users=options.users, keys=keys, seed=options.seed).chunks()
    partition, offset = place(records, options.partitions)
    topic = f"raw-{name}"
    produce(bootstrap, topic, records, partition)
    config = directory / "pipeline.toml"
    config.write_text(configuration(options, bootstrap, topic, f"e{name}"))
    os.environ["SUSURRUS_SECRET"] = SECRET  # public: nothing a benchmark publishes is private
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "susurrus.agents.cli"]
    subprocess.run(
        [*command, "topics", "create", "--config", config], env=environ, check=True, stdout=subprocess.DEVNULL
    )
    settings = load_settings(config, environ)
    begin = time.time()
    workers = []
    try:
        for number in range(options.workers):
            environ["SUSURRUS__WORKER__DATA_DIRECTORY"] = str(directory / f"worker-{number}")
            with open(directory / f"log-{number}", "wb") as log:
                workers.append(
                    subprocess.Popen([*command, "worker", "--config", config], env=environ, stdout=log, stderr=log)
                )
            ends_with_us(workers[-1].pid)

        def check() -> None:
            for number, worker in enumerate(workers):
                if worker.poll() is not None:
                    raise RuntimeError((directory / f"log-{number}").read_text()[-3000:])

        ended = wait_for_trigger(bootstrap, settings.topic("progress"), check)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(60)
    found = published(bootstrap, settings.topic("histogram"))
    expected = offline(config, records, partition, offset, keys)
    return {
        "strategy": options.strategy,
        "micro_batches": options.micro_batches,
        "users": options.users,
        "keys": keys,
        "records": len(records.user),
        "partitions": options.partitions,
        "workers": options.workers,
        "seed": options.seed,
        "rows": len(found),
        "rows_offline": len(expected),
        "differing": sum(found.get(at) != expected.get(at) for at in found.keys() | expected.keys()),
        "equal": found == expected,
        "seconds": round(ended - begin, 1),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=500, help="distinct keys; few, so that many are published")
    parser.add_argument("--micro-batches", type=int, default=24)
    parser.add_argument("--strategy", choices=list(STRATEGIES), default="toeplitz")
    parser.add_argument("--partitions", type=int, default=4, help="of every topic")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap-servers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="susurrus-end-to-end-")))
        bootstrap = options.bootstrap_servers or stack.enter_context(KafkaCluster()).bootstrap_servers
        row = compare(options, bootstrap, directory)
    if options.json:
        print(json.dumps(row))
    else:
        verdict = "equal, bit for bit" if row["equal"] else f"DIFFERENT in {row['differing']} rows"
        print(f"{row['rows']:,} rows published, {row['rows_offline']:,} offline: {verdict} ({row['seconds']} s)")
    return 0 if row["equal"] and row["rows"] else 1


if __name__ == "__main__":
    sys.exit(main())
