"""The throughput benchmark's own logic: cases, the peers' protocol, and the configuration it measures us with."""

import sys
from pathlib import Path

import pytest

from benchmarks import throughput
from benchmarks.inputs import DAY_MS, Feed, chunks
from benchmarks.others import run_peer
from benchmarks.rates import Part, Run
from benchmarks.throughput import CASES, Inputs, chosen, measure, schedule
from benchmarks.workers import pipeline_toml, stream_toml
from susurrus.agents.pipelines import load_settings

FEED = Feed("localhost:1", "raw", 1000, 20_000 * DAY_MS)
INPUTS = Inputs(FEED, FEED)


def test_a_peer_reports_when_it_is_warm_and_at_the_end() -> None:
    code = 'print(\'loading\'); print(\'{"mark": 2, "seconds": 1.5}\'); print(\'{"records": 7, "seconds": 2.0}\')'
    run = run_peer("peer", [sys.executable, "-c", code])
    assert (run.what, run.whole, run.first) == ("peer", Part(7, 2.0), Part(2, 1.5))


def test_a_peer_that_fails_tells_why() -> None:
    with pytest.raises(RuntimeError, match=r"status 3(.|\n)*no broker"):
        run_peer("peer", [sys.executable, "-c", "import sys; print('no broker'); sys.exit(3)"])


def test_a_failed_peer_does_not_take_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def broken(inputs: Inputs, meter: object) -> Run:
        tries.append("broken")
        raise RuntimeError("broken")

    works = Run("works", Part(1, 1.0))
    monkeypatch.setattr(throughput, "CASES", {"broken": broken, "works": lambda inputs, meter: works})
    assert measure(INPUTS, ["broken", "works"], runs=2) == [works, works]
    assert tries == ["broken"]


def test_the_order_is_reversed_from_run_to_run() -> None:
    assert list(schedule(["a", "b"], 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]


def test_cases_are_chosen_by_name_or_by_what_they_have_in_common() -> None:
    assert chosen("susurrus,tuned-2") == ["susurrus-1", "susurrus-2", "tuned-2"]
    assert chosen(",".join(CASES)) == list(CASES)
    with pytest.raises(ValueError, match="unknown flink"):
        chosen("bare,flink")


def test_the_first_records_do_not_depend_on_how_many_follow() -> None:
    ((keys, users),) = chunks(100, 50)
    ((more_keys, more_users),) = chunks(1_000, 50)
    assert (keys, users) == (more_keys[:100], more_users[:100])
    assert max(users) < 50


def test_our_workers_are_measured_over_exactly_the_day_that_is_produced(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(pipeline_toml(FEED, "measured"))
    settings = load_settings(config, {})
    assert settings.start.first_window == FEED.first_window_ms
    assert settings.clock.until == FEED.first_window_ms + DAY_MS
    assert settings.triggers == FEED.triggers


def test_for_recovery_the_archive_ends_while_its_window_is_open(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(pipeline_toml(FEED, "measured", strategy="closing", hours=12))
    settings = load_settings(config, {})
    assert settings.clock.until == FEED.first_window_ms + DAY_MS // 2
    assert settings.window.length == DAY_MS
    assert 'strategy = "closing"' in config.read_text()


def test_streams_are_measured_over_the_same_records(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(stream_toml(FEED, "measured"))
    settings = load_settings(config, {})
    assert settings.stream is not None
    assert (settings.input.topic, settings.stream.method, settings.stream.stream) == ("raw", "tops", "k")
