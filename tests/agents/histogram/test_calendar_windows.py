"""Days in Berlin on a real broker, around both changes of its clocks: every published number against the slow reference, and the
same bytes after kills."""

import json
import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from susurrus.releases import releases
from susurrus.topics import histogram
from tests.broker import Broker
from tests.pipeline import CRASHING, EPOCH, SECRET, THREE_POINTS, Pipeline, archive_topic, merged, produce
from tests.reference import canonical, expected

BERLIN = ZoneInfo("Europe/Berlin")
PARTITIONS, RECORDS = 3, 9_000
SPRING, AUTUMN = "2026-03-28", "2026-10-24"
KILLED = AUTUMN
"""The days of which workers are killed, too."""
HOURS = {SPRING: [24, 23, 24], AUTUMN: [24, 25, 24]}


def midnight(day: str, later: int = 0) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=BERLIN) + timedelta(days=later)


def milliseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def days(first: str, **sections: Any) -> dict[str, Any]:
    """Three of them."""
    own = {
        "start": {"first_window": midnight(first).isoformat()},
        "clock": {"until": midnight(first, 3).isoformat()},
        "window": {"length": "1 day", "time_zone": "Europe/Berlin", "trigger_every": "1h"},
        "privacy": {"strategy": None},
        "columns": [
            {"name": "visits", "kind": "count"},
            {"name": "hosts", "kind": "users"},
            {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 2000},
        ],
        "bounds": {"max_records_per_user": 12, "max_records_per_key": 2},
    }
    return merged(own, sections)


def events(first: str) -> Iterable[tuple[int, bytes, int]]:
    """Sorted by stamp; the stamp is the event time."""
    dice = random.Random(first)
    begin, end = milliseconds(midnight(first)), milliseconds(midnight(first, 3))
    # The first and the last millisecond of every day are among them.
    edges = [milliseconds(midnight(first, day)) + at for day in range(4) for at in (-1, 0)][1:-1]
    for stamp in sorted([*edges, *(dice.randrange(begin, end) for _ in range(RECORDS))]):
        event = {
            "host": f"h{int(dice.expovariate(1 / 300))}",
            "url": f"/{int(dice.expovariate(1 / 6))}",
            "bytes": dice.randrange(2500),
        }
        yield dice.randrange(PARTITIONS), json.dumps(event).encode(), stamp


def archive_of(kafka: Broker, first: str) -> str:
    topic = archive_topic(kafka, PARTITIONS)
    produce(kafka, topic, events(first))
    return topic


def wait(pipeline: Pipeline, first: str) -> None:
    """Until all triggers of all days are public."""
    partitions = pipeline.settings.topics.bounded_partitions
    last = sorted(HOURS[first] * partitions)
    pipeline.wait_for_progress(lambda reached: sorted(reached.values()) == last, f"the last triggers {last}")


@pytest.mark.parametrize(
    ("first", "remember"), [(SPRING, 0), (AUTUMN, 0), (AUTUMN, 6)], ids=["spring", "autumn", "autumn, remembers"]
)
def test_days_of_23_and_25_hours_are_the_references_and_kills_change_no_byte(
    kafka: Broker, tmp_path: Path, first: str, remember: int
) -> None:
    raw = archive_of(kafka, first)
    with Pipeline(kafka, tmp_path, raw, days(first, keys={"remember": remember})) as pipeline:
        pipeline.start()
        wait(pipeline, first)
        settings, undisturbed = pipeline.settings, pipeline.public()
        grids = {
            column.column.name: settings.measured_columns[column.sources[0]].grid
            for column in settings.layout.published
        }
        published = {}
        starts = [milliseconds(midnight(first, day)) for day in range(4)]
        for message in kafka.read_all(settings.topic("histogram")):
            row = histogram.decode_row(message.value())
            day = starts.index(row.window)
            assert json.loads(message.value())["window_end"] == iso(starts[day + 1])
            assert row.of_triggers == HOURS[first][day]
            assert row.window_date == f"{midnight(first, day):%Y-%m-%d}"
            numbers = [round(row.values[name].estimate / grid) for name, grid in grids.items()]
            published[(row.window, row.trigger, canonical(row.key))] = numbers
        raw_events = [
            (message.partition(), message.offset(), message.timestamp()[1], json.loads(message.value()))
            for message in kafka.read_all(raw)
        ]
        wanted = expected(settings, raw_events, secret=bytes.fromhex(SECRET), epoch=EPOCH)
        order = [column.sources[0] for column in settings.layout.published]
        assert {start for start, *_ in wanted} == set(starts[:3])
        assert published == {key: [numbers[i] for i in order] for key, numbers in wanted.items()}
        whole = [each for each in releases(settings, follow=False) if each.final]
        assert [each.to_dict()["window_start"] for each in whole] == [
            midnight(first, day).isoformat() for day in range(3)
        ]
        assert [(each.window_start, each.window_end, each.trigger) for each in whole] == [
            (start, end, hours) for start, end, hours in zip(starts[:-1], starts[1:], HOURS[first], strict=True)
        ]
        second = f"{midnight(first, 1):%Y-%m-%d}"
        [*_, named] = releases(settings, window=second, final=True)
        assert (named.window_start, named.window_date, named.trigger) == (starts[1], second, HOURS[first][1])
        assert f"window {midnight(first, 1).isoformat()} · final" in named.table()
    if first != KILLED or remember:
        return
    with Pipeline(kafka, tmp_path, raw, merged(days(first, keys={"remember": remember}), CRASHING)) as pipeline:
        for stage in ("bound", "release"):
            pipeline.crash_everywhere(stage, 2, THREE_POINTS)
        pipeline.start()
        wait(pipeline, first)
        assert pipeline.public() == undisturbed


def iso(instant: int) -> str:
    return datetime.fromtimestamp(instant / 1000, ZoneInfo("UTC")).strftime("%Y-%m-%dT%H:%M:%SZ")
