"""The throughput benchmark's own logic: ratios, the peers' protocol, and the configuration it measures us with."""

import sys
from pathlib import Path

import pytest

from benchmarks.throughput import Measured, measure, rows, run_peer
from benchmarks.workers import DAY_MS, Feed, pipeline_toml, stream_toml
from susurrus.agents.pipelines import load_settings

FEED = Feed("localhost:1", "raw", 1000, 20_000 * DAY_MS)


def test_ratios_are_relative_to_the_faster_run_of_kafka_streams() -> None:
    results = [
        Measured("kafka-streams (1)", 1000, 2.0),
        Measured("kafka-streams (2)", 1000, 1.0),
        Measured("susurrus (1)", 500, 0.4),
    ]
    assert [(row["what"], row["events_per_second"], row["ratio_to_kafka_streams"]) for row in rows(results)] == [
        ("kafka-streams (1)", 500, 0.5),
        ("kafka-streams (2)", 1000, 1.0),
        ("susurrus (1)", 1250, 1.25),
    ]


def test_without_kafka_streams_there_is_no_ratio() -> None:
    assert rows([Measured("bare consumer", 10, 1.0)])[0]["ratio_to_kafka_streams"] is None


def test_a_peer_reports_on_its_last_line() -> None:
    code = "print('loading'); print('{\"records\": 7, \"seconds\": 2.0}')"
    assert run_peer("peer", [sys.executable, "-c", code], 10) == Measured("peer", 7, 2.0)


def test_a_peer_that_fails_tells_why() -> None:
    with pytest.raises(RuntimeError, match=r"status 3(.|\n)*no broker"):
        run_peer("peer", [sys.executable, "-c", "import sys; print('no broker'); sys.exit(3)"], 10)


def test_a_failed_peer_does_not_take_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(feed: Feed) -> object:
        raise RuntimeError("broken")

    monkeypatch.setattr(
        "benchmarks.throughput.RUNS", {"broken": broken, "works": lambda feed: iter([Measured("works", 1, 1.0)])}
    )
    assert [result.what for result in measure(FEED, ["broken", "works"])] == ["works"]


def test_our_workers_are_measured_over_exactly_the_day_that_is_produced(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(pipeline_toml(FEED, "measured"))
    settings = load_settings(config, {})
    assert settings.start.first_window == FEED.first_window_ms
    assert settings.clock.until == FEED.first_window_ms + DAY_MS
    assert settings.triggers == FEED.triggers


def test_streams_are_measured_over_the_same_records(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(stream_toml(FEED, "measured"))
    settings = load_settings(config, {})
    assert settings.stream is not None
    assert (settings.input.topic, settings.stream.method, settings.stream.stream) == ("raw", "tops", "k")
