"""Hundreds of windows: what a worker takes of memory after the first hundred is what it takes in the end.

SUSURRUS_SOAK_WINDOWS=10000 makes them thousands; two cores publish 5 to 15 windows a second.
"""

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.broker import Broker
from tests.pipeline import Pipeline, Worker, archive_topic, produce

START = 807_235_200_000  # 1995-08-01T00:00:00Z
MINUTE = 60_000
WINDOWS, FIRST = int(os.environ.get("SUSURRUS_SOAK_WINDOWS", "500")), 100
RECORDS, KEYS = 40, 1_000
"""Records of a window, and keys of all."""
MORE = 1.10
SECONDS = 900.0 + 0.5 * WINDOWS
UNTIL = datetime.fromtimestamp(START / 1000, UTC) + timedelta(minutes=WINDOWS)
SOAK: dict[str, Any] = {
    "input": {"where": "bytes >= 0"},
    "keys": {"declared": [f"/{number}" for number in range(KEYS)]},
    "clock": {"until": UNTIL.strftime("%Y-%m-%dT%H:%M:%SZ")},
    "window": {"length": "1m", "trigger_every": "30s"},
    "topics": {"by_user_partitions": 1, "bounded_partitions": 1},
}


def events() -> Iterator[tuple[int, bytes, int]]:
    """Of as many minutes as windows, in order."""
    for number in range(WINDOWS * RECORDS):
        event = {"host": f"h{number * 7919 % 5000}", "url": f"/{number % KEYS}", "bytes": number % 3 - 1}
        yield 0, json.dumps(event).encode(), START + number * MINUTE // RECORDS


def resident_kb(worker: Worker) -> int:
    """Resident memory of a worker in kB. Raises OSError if it is gone."""
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def resident_by_trigger(kafka: Broker, pipeline: Pipeline, worker: Worker) -> list[int]:
    """Resident memory in kB when each trigger of all windows has just been published. Raises TimeoutError."""
    found: list[int] = []
    triggers = WINDOWS * pipeline.settings.triggers
    deadline = time.monotonic() + SECONDS
    with kafka.consumer() as consumer:
        consumer.assign([TopicPartition(pipeline.settings.topic("progress"), 0, OFFSET_BEGINNING)])
        while len(found) < triggers:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(resident_kb(worker))
            elif worker.process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {triggers} triggers\n{pipeline.trouble()}\n{worker.tail()}")
    return found


@pytest.mark.campaign
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_the_memory_of_a_worker_does_not_grow_with_the_windows_that_it_has_published(
    kafka: Broker, tmp_path: Path
) -> None:
    raw = archive_topic(kafka, 1)
    produce(kafka, raw, events())
    with Pipeline(kafka, tmp_path, raw, SOAK) as pipeline:
        # A process of its own: a forked one shares pages with its server.
        worker = pipeline.start(SUSURRUS_TEST_FORK="0")
        resident = resident_by_trigger(kafka, pipeline, worker)
        assert worker.stop() == 0, worker.tail()
    first = FIRST * len(resident) // WINDOWS
    before, after = max(resident[:first]), max(resident[first:])
    print(f"resident memory, kB, at each tenth of the windows: {resident[:: len(resident) // 10]}")
    assert after <= MORE * before, f"{before} kB at most in the first {FIRST} windows, {after} kB after them"
