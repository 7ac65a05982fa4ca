"""The whole pipeline on a real broker against the slow reference: every published number, for every strategy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from susurrus.topics import histogram
from tests.broker import Broker
from tests.chaos.conftest import archive
from tests.pipeline import EPOCH, SECRET, Pipeline
from tests.reference import Event, canonical, expected


@pytest.fixture(scope="module")
def raw(kafka: Broker, once: Callable[[str, Callable[[], str]], str]) -> str:
    return once("end-to-end", lambda: archive(kafka, 1))


def events_of(kafka: Broker, raw: str) -> list[Event]:
    """The raw log as a reader finds it."""
    return [
        (message.partition(), message.offset(), message.timestamp()[1], json.loads(message.value()))
        for message in kafka.read_all(raw)
    ]


CASES: dict[str, dict[str, Any]] = {
    "count": {},
    "columns": {
        "bounds": {"max_records_per_user": 20, "max_records_per_key": 3},
        "columns": [
            {"name": "visits", "kind": "count"},
            {"name": "hosts", "kind": "users"},
            {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 20000},
        ],
    },
    "weighted": {"privacy": {"strategy": "weighted"}, "bounds": {"max_records_per_user": 20}},
    "adaptive": {"privacy": {"strategy": "adaptive"}, "bounds": {"max_records_per_user": 20}},
    "adaptive, lag, declared": {
        "privacy": {"strategy": "adaptive", "adaptive": {"lag": 3, "ranked_keys": 4}},
        "keys": {"declared": ["/ksc.html", "/no-such-page"]},
        "bounds": {"max_records_per_user": 20, "max_records_per_key": 2},
    },
    "by default": {"privacy": {"strategy": None}, "bounds": {"max_records_per_user": 20}},
    "closing, lag, declared, columns": {
        "privacy": {"strategy": "closing", "closing": {"lag": 3, "ranked_keys": 3, "keys": 4}},
        "keys": {"declared": ["/ksc.html", "/no-such-page"]},
        "bounds": {"max_records_per_user": 20, "max_records_per_key": 2},
        "columns": [
            {"name": "visits", "kind": "count"},
            {"name": "hosts", "kind": "users"},
            {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 20000},
        ],
    },
    "dp-sqlp": {"privacy": {"strategy": "dp-sqlp"}},
    "declared": {"keys": {"declared": ["/ksc.html", "/no-such-page"], "discover": False}},
}


@pytest.mark.parametrize("case", CASES)
def test_every_published_number_is_the_references(kafka: Broker, raw: str, tmp_path: Path, case: str) -> None:
    with Pipeline(kafka, tmp_path, raw, CASES[case]) as pipeline:
        pipeline.start()
        pipeline.wait()
        settings = pipeline.settings
        grids = {
            column.column.name: settings.measured_columns[column.sources[0]].grid
            for column in settings.layout.published
        }
        published = {}
        for message in kafka.read_all(settings.topic("histogram")):
            row = histogram.decode_row(message.value())
            numbers = [round(row.values[name].estimate / grid) for name, grid in grids.items()]
            published[(row.window, row.trigger, canonical(row.key))] = numbers
        wanted = expected(settings, events_of(kafka, raw), secret=bytes.fromhex(SECRET), epoch=EPOCH)
        order = [column.sources[0] for column in settings.layout.published]
        assert len(wanted) > 20
        assert published == {key: [numbers[i] for i in order] for key, numbers in wanted.items()}
