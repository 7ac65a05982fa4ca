"""Several windows open at once: late and early records, spills, and workers that find each other's old disks."""

import json
import random
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from susurrus.agents.runtime.changelog import CommitFacts
from susurrus.topics import changelog
from tests.broker import Broker
from tests.chaos.conftest import published_in_peace
from tests.pipeline import Pipeline, archive_topic, produce

pytestmark = [pytest.mark.chaos, pytest.mark.campaign]

START = 807_235_200_000  # 1995-08-01T00:00:00Z
HOUR = 3_600_000
PARTITIONS, RECORDS = 3, 150_000
CALENDAR = {
    "input": {"time": "at"},
    "clock": {"max_future": "9h", "until": "1995-08-02T06:00:00Z"},
    "window": {"length": "8h", "trigger_every": "1h", "allowed_lateness": "3h"},
    "bounds": {"max_records_per_user": 6, "max_records_per_key": 2},
    "columns": [
        {"name": "visits", "kind": "count"},
        {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 1000, "grid": 1},
    ],
    "privacy": {"strategy": "toeplitz"},
}
WINDOWS = 3
TRIGGERS = 11
LAST_TRIGGER = 9
"""Of the window that the clock's end cuts off: six hours, and the lateness."""


def events(records: int = RECORDS) -> Iterable[tuple[int, bytes, int]]:
    """Sorted by stamp; event times up to ten hours back and nine ahead."""
    dice = random.Random(3)
    for number in range(records):
        stamp = START + number * 29 * HOUR // records
        event = {
            "host": f"h{int(dice.expovariate(1 / 2000))}",
            "url": f"/{int(dice.expovariate(1 / 40))}",
            "at": stamp + dice.choice([0, 0, 0, 0, -HOUR, -4 * HOUR, -10 * HOUR, 9 * HOUR]),
            "bytes": dice.randrange(-2000, 2000),
        }
        yield dice.randrange(PARTITIONS), json.dumps(event).encode(), stamp


def archive_of(kafka: Broker, records: Iterable[tuple[int, bytes, int]]) -> str:
    """A raw topic of such records."""
    topic = archive_topic(kafka, PARTITIONS)
    produce(kafka, topic, records)
    return topic


def wait_for_all(pipeline: Pipeline) -> None:
    """Until everything is published, also of the window that is cut off."""
    pipeline.wait(TRIGGERS, windows=WINDOWS)
    pipeline.wait(LAST_TRIGGER, windows=WINDOWS + 1)


def spills(pipeline: Pipeline) -> int:
    """Blocks that bound has spilled, by its last commits."""
    numbers: dict[int, int] = {}
    for message in pipeline.broker.read_all(pipeline.settings.topic("bound-changelog")):
        record = changelog.decode([message.value() or b""])
        numbers[message.partition()] = msgspec.msgpack.decode(record.meta, type=CommitFacts).meta["spills"]
    return sum(numbers.values())


def test_spills_and_old_disks_change_no_byte_of_overlapping_windows(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_of(kafka, events())
    expected = published_in_peace(kafka, tmp_path, raw, CALENDAR, wait_for_all)
    assert sum(map(len, expected["histogram"].values())) > 200
    dice = random.Random(11)
    with Pipeline(kafka, tmp_path, raw, CALENDAR | {"worker": {"max_open_records": 1000}}) as pipeline:
        *disks, spare = [str(pipeline.directory / f"disk-{number}") for number in range(3)]
        workers = [pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=disk) for disk in disks]
        for turn in range(6):
            time.sleep(dice.uniform(2.0, 5.0))
            victim = turn % 2
            workers[victim].kill()
            # The disk of whoever died a while ago: behind the changelog, ahead of nobody.
            disks[victim], spare = spare, disks[victim]
            workers[victim] = pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=disks[victim])
        wait_for_all(pipeline)
        assert pipeline.public() == expected
        counters = pipeline.counters()
        assert spills(pipeline) > 10
    assert counters["in"] == RECORDS
    # Route caps too, what no history could keep: only over all stages do the counts add up.
    assert counters["in"] == counters["kept"] + counters["capped"] + counters["late"] + counters["dead_letter"]
    assert counters["routed"] == counters["taken"]
    assert counters["late"] > 0
