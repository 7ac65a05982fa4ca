"""The whole pipeline on a real broker against the slow reference: every published number, for every strategy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.topics import histogram
from tests.broker import Broker
from tests.chaos.conftest import RAW_PARTITIONS, archive
from tests.pipeline import EPOCH, SECRET, Pipeline, produce
from tests.reference import NO_LAST_LOOK, Event, canonical, expected


@pytest.fixture(scope="module")
def raw(kafka: Broker, once: Callable[[str, Callable[[], str]], str]) -> str:
    return once("end-to-end", lambda: archive(kafka, 1))


def events_of(kafka: Broker, raw: str) -> list[Event]:
    """The raw log as a reader finds it."""
    return [
        (message.partition(), message.offset(), message.timestamp()[1], json.loads(message.value()))
        for message in kafka.read_all(raw)
    ]


DAY = 86_400_000
CASES: dict[str, dict[str, Any]] = {
    "count": {},
    "columns": {
        "bounds": {"max_records_per_user": 20, "max_records_per_key": 3},
        "columns": [
            {"name": "visits", "kind": "count"},
            {"name": "hosts", "kind": "users"},
            {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 20000},
            {"name": "kept", "kind": "sum", "field": "bytes", "lower": 0, "upper": 20000},
            {"name": "size", "kind": "mean", "field": "bytes", "lower": 0, "upper": 20000},
            {"name": "spread", "kind": "stddev", "field": "bytes", "lower": 0, "upper": 20000},
        ],
    },
    "no last look": {
        "privacy": {"strategy": "closing", "closing": NO_LAST_LOOK},
        "bounds": {"max_records_per_user": 20},
    },
    "no last look, lag, declared": {
        "privacy": {"strategy": "closing", "closing": {"lag": 3, "ranked_keys": 4, **NO_LAST_LOOK}},
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
            {"name": "bytes", "kind": "sum", "field": "bytes", "lower": 1000, "upper": 20000, "weight": 0.4},
        ],
    },
    "closing, remembers": {
        "privacy": {"strategy": "closing"},
        "keys": {"remember": 6},
        "bounds": {"max_records_per_user": 20},
        "window": {"length": "6h"},
    },
    "closing, one record per key": {
        "privacy": {"strategy": "closing"},
        "bounds": {"max_records_per_user": 20},
        "columns": [
            {"name": "hosts", "kind": "users"},
            {"name": "bytes", "kind": "sum", "field": "bytes", "lower": 1000, "upper": 20000},
        ],
    },
    "dp-sqlp": {"privacy": {"strategy": "dp-sqlp"}},
    "declared": {"keys": {"declared": ["/ksc.html", "/no-such-page"], "discover": False}},
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.thorough] * (case in ("no last look", "declared"))) for case in CASES],
)
def test_every_published_number_is_the_references(kafka: Broker, raw: str, tmp_path: Path, case: str) -> None:
    with Pipeline(kafka, tmp_path, raw, CASES[case]) as pipeline:
        settings = pipeline.settings
        pipeline.start()
        pipeline.wait(windows=DAY // settings.window.length)
        columns = settings.layout.published
        published = {}
        for message in kafka.read_all(settings.topic("histogram")):
            row = histogram.decode_row(message.value())
            numbers = [row.values[column.column.name].estimate for column in columns]
            published[(row.window, row.trigger, canonical(row.key))] = numbers
        wanted = expected(settings, events_of(kafka, raw), secret=bytes.fromhex(SECRET), epoch=EPOCH)
        measured = np.array(list(wanted.values()), np.int64)
        rows = [column.rows(measured, np.ones(measured.shape)).estimate.tolist() for column in columns]
        assert len(wanted) > 20
        assert published == dict(zip(wanted, map(list, zip(*rows, strict=True)), strict=True))


FILTERED: dict[str, Any] = {
    "input": {
        "where": "bytes > 0 AND url NOT LIKE '%.gif'",
        "key": [{"name": "folder", "expression": "split_part(url, '/', 2)"}],
    },
    "bounds": {"max_records_per_user": 12, "max_records_per_key": 2},
    "columns": [
        {"name": "hosts", "kind": "users"},
        {"name": "kilobytes", "kind": "sum", "expression": "bytes / 1000", "bound": 20.0, "lower": 0.5, "grid": 0.125},
    ],
    "privacy": {"strategy": "closing"},
}


def test_filtered_and_computed_is_as_prepared_by_hand(kafka: Broker, tmp_path: Path) -> None:
    """Against the reference, which gets records that plain Python has filtered and computed; and byte for byte against the same
    pipeline over a raw topic from which the records to filter were left out before they came to Kafka.
    """
    raw = archive(kafka, 1)
    events = events_of(kafka, raw)
    kept = [event for event in events if event[3]["bytes"] > 0 and not event[3]["url"].endswith(".gif")]
    assert 1000 < len(kept) < len(events) - 1000
    with Pipeline(kafka, tmp_path, raw, FILTERED) as pipeline:
        pipeline.start()
        pipeline.wait()
        published, settings = pipeline.public(), pipeline.settings
        pipeline.wait_for_total(len(events) - len(kept), "filtered")
    prepared = [
        (
            partition,
            offset,
            stamp,
            {"host": e["host"], "folder": e["url"].split("/")[1], "(bytes / 1000)": e["bytes"] / 1000},
        )
        for partition, offset, stamp, e in kept
    ]
    wanted = expected(settings, prepared, secret=bytes.fromhex(SECRET), epoch=EPOCH)
    rows = [histogram.decode_row(value) for part in published["histogram"].values() for _, value, _ in part]
    assert len(rows) > 20
    assert {(row.window, row.trigger, canonical(row.key)): row.values["hosts"].estimate for row in rows} == {
        key: numbers[0] for key, numbers in wanted.items()
    }
    assert {(row.window, row.trigger, canonical(row.key)): row.values["kilobytes"].estimate * 8 for row in rows} == {
        key: numbers[1] for key, numbers in wanted.items()
    }
    # The name of the raw topic is part of the noise's address, so the other topic takes it.
    kafka.delete_topic(raw)
    kafka.create_topic(raw, RAW_PARTITIONS, {"retention.ms": "-1"})
    produce(kafka, raw, [(partition, json.dumps(record).encode(), stamp) for partition, _, stamp, record in kept])
    with Pipeline(kafka, tmp_path, raw, FILTERED) as pipeline:
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == published
