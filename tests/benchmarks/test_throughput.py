"""The throughput benchmark's own logic: cases, the peers' protocol, and the configuration it measures us with."""

import sys
from pathlib import Path

import pytest

from benchmarks import performance_tables, throughput
from benchmarks.inputs import DAY_MS, Feed, chunks
from benchmarks.others import run_peer
from benchmarks.rates import Part, Run
from benchmarks.throughput import OURS, SIDES, TUNED, Inputs, check, chosen, measure, schedule
from benchmarks.throughput_rows import PLAIN, ROWS, Row
from benchmarks.workers import Fleet, pipeline_toml, stream_toml
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import load_settings

FEED = Feed("localhost:1", "raw", 1000, 20_000 * DAY_MS, registry="http://localhost:2")
INPUTS = {"json": Inputs(FEED, FEED)}


def test_a_peer_reports_when_it_is_warm_and_at_the_end() -> None:
    code = 'print(\'loading\'); print(\'{"mark": 2, "seconds": 1.5}\'); print(\'{"records": 7, "seconds": 2.0}\')'
    run = run_peer("peer", [sys.executable, "-c", code])
    assert (run.what, run.whole, run.first, run.counted) == ("peer", Part(7, 2.0), Part(2, 1.5), {})


def test_a_peer_may_say_what_it_counted() -> None:
    code = 'print(\'{"records": 7, "seconds": 2.0, "in": 7, "filtered": 3, "counted": 4}\')'
    assert run_peer("peer", [sys.executable, "-c", code]).counted == {"in": 7, "filtered": 3, "counted": 4}


def test_a_peer_that_fails_tells_why() -> None:
    with pytest.raises(RuntimeError, match=r"status 3(.|\n)*no broker"):
        run_peer("peer", [sys.executable, "-c", "import sys; print('no broker'); sys.exit(3)"])


def test_a_failed_peer_does_not_take_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def broken(inputs: Inputs, meter: object, row: Row) -> Run:
        tries.append("broken")
        raise RuntimeError("broken")

    works = Run("works", Part(1, 1.0))
    monkeypatch.setattr(throughput, "SIDES", {"broken": broken, "works": lambda inputs, meter, row: works})
    assert measure(INPUTS, [("plain", "broken"), ("plain", "works")], runs=2) == [works, works]
    assert tries == ["broken"]


def test_the_order_is_reversed_from_run_to_run() -> None:
    first, second = ("plain", "a"), ("avro", "a")
    assert list(schedule([first, second], 2)) == [(0, first), (0, second), (1, second), (1, first)]


def test_cases_are_chosen_by_row_and_by_name_or_by_what_names_have_in_common() -> None:
    assert chosen("plain", "susurrus,tuned-2") == [
        ("plain", "susurrus-1"),
        ("plain", "susurrus-2"),
        ("plain", "tuned-2"),
    ]
    assert chosen("filter,avro", "pure-1,bare") == [("filter", "pure-1"), ("avro", "pure-1")]
    everything = chosen(",".join(ROWS), ",".join(SIDES))
    assert len(everything) == len(set(everything)) == len(SIDES) + (len(ROWS) - 1) * len({**TUNED, **OURS})


@pytest.mark.parametrize(
    ("rows", "only", "said"),
    [("plain", "bare,flink", "unknown flink"), ("parquet", "bare", "unknown parquet"), ("avro", "bare", "plain alone")],
)
def test_what_there_is_not_is_refused(rows: str, only: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        chosen(rows, only)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.filters])
@pytest.mark.parametrize("records", [7, 999, 1_000, 12_345])
def test_records_that_are_left_out_are_known(name: str, records: int) -> None:
    left_out = sum(number % 1_000 < 10 for number in range(records))
    assert ROWS[name].expected(records) == {"in": records, "filtered": left_out, "counted": records - left_out}


def test_a_run_that_counted_other_records_has_failed() -> None:
    row = ROWS["filter"]
    check(Run("ours", Part(1_000, 1.0), counted=row.expected(1_000)), row, FEED)
    for counted in ({}, PLAIN.expected(1_000), {"in": 1_000, "filtered": 10, "counted": 989}):
        with pytest.raises(RuntimeError, match="ours, row filter"):
            check(Run("ours", Part(1_000, 1.0), counted=counted), row, FEED)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_row_asks_for_the_same_windows_and_guarantee(row: Row, tmp_path: Path) -> None:
    with Fleet(pipeline_toml(FEED, "measured", row=row), tmp_path, sql=row.statement(FEED)) as fleet:
        settings = fleet.settings
    assert isinstance(settings, HistogramSettings)
    assert (settings.triggers, settings.window.length) == (FEED.triggers, DAY_MS)
    assert settings.input.topic == FEED.topic
    assert (settings.privacy.epsilon, settings.plan().strategy) == (6.0, "toeplitz")
    assert (settings.bounds.max_records_per_user, settings.bounds.max_records_per_key) == (row.cap, 1)
    assert (settings.input.where is not None) == row.filters
    assert settings.input.format == (row.encoding if row.encoding in ("avro", "protobuf") else "json")
    assert bool(settings.input.each) == (row.name == "arrays")


def test_the_table_knows_all_rows() -> None:
    assert list(performance_tables.ROWS) == list(ROWS)
    assert len(performance_tables.SIDES) == len({**TUNED, **OURS})


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
