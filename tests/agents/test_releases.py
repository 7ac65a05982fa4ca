"""Reading in three lines: every kind of pipeline, from the file that runs it, on a real broker."""

import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus import releases as module
from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.releases import LocalRelease, StreamRelease, releases
from susurrus.topics import estimate, histogram, private_stream
from susurrus.topics.histogram import Measured
from susurrus.topics.wire.timestamps import format_time
from tests.agents.released import settings
from tests.broker import Broker
from tests.chaos.conftest import archive
from tests.pipeline import CRASHING, Pipeline, merged
from tests.stream_rows import unsaid

DAY = "1995-08-01"
CONFIGURATION: dict[str, Any] = {
    "window": {"trigger_every": "6h"},
    "privacy": {"strategy": "closing"},
    "columns": [
        {"name": "visits", "kind": "count"},
        {"name": "kb", "kind": "mean", "field": "bytes", "bound": 9e4},
    ],
}


@pytest.fixture(scope="module")
def raw(kafka: Broker, once: Callable[[str, Callable[[], str]], str]) -> str:
    return once("output-formats", lambda: archive(kafka, 1))


@pytest.fixture(scope="module", params=["json", pytest.param("avro", marks=pytest.mark.thorough)])
def ran(request: pytest.FixtureRequest, kafka: Broker, raw: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A day of four releases. A worker was killed within the second one, so rows that were aborted stay in the log."""
    overrides = CONFIGURATION
    if request.param != "json":
        pytest.importorskip("fastavro")
        url = request.getfixturevalue("schema_registry")
        overrides = merged(CONFIGURATION, {"output": {"format": request.param, "registry": {"url": url}}})
    with Pipeline(kafka, tmp_path_factory.mktemp("ran"), raw, merged(overrides, CRASHING)) as pipeline:
        pipeline.crash("release:after-outputs:2")
        pipeline.start()
        pipeline.wait()
        return pipeline


def rows_of(pipeline: Pipeline) -> dict[int, dict[str, histogram.Row]]:
    """The topic's rows by trigger and key, one by one."""
    settings, topic = pipeline.settings, pipeline.settings.topic("histogram")
    json = reader_of(settings.output, settings.schemas[topic], settings.namespace)
    found: dict[int, dict[str, histogram.Row]] = defaultdict(dict)
    for message in pipeline.broker.read_all(topic):
        row = histogram.decode_row(json(message.value()))
        assert row.key not in found[row.trigger]
        found[row.trigger][row.key] = row
    return found


class TestHistogram:
    def test_every_release_is_what_the_topic_holds(self, ran: Pipeline) -> None:
        found, expected = list(releases(ran.config, follow=False)), rows_of(ran)
        assert [(release.trigger, release.final) for release in found] == [
            (1, False),
            (2, False),
            (3, False),
            (4, True),
        ]
        assert len(found[-1]) > 20
        for release in found:
            wanted = expected[release.trigger]
            assert release.keys == sorted(wanted)
            for name, of in release.columns.items():
                measured = [wanted[key].values[name] for key in release.keys]
                assert of.estimate.tolist() == [one.estimate for one in measured]
                assert of.std_error.tolist() == [one.std_error for one in measured]
                assert (of.direct is None) == (not release.final)
                if of.direct is not None:
                    direct = [one.direct for one in measured if one.direct]
                    assert of.direct[0].tolist() == [one.estimate for one in direct]
                    assert of.direct[1].tolist() == [one.std_error for one in direct]
            assert {row.epoch for row in wanted.values()} <= {release.epoch}
            assert (
                format_time(release.trigger_time)
                == f"1995-08-0{1 + release.final}T{6 * release.trigger % 24:02}:00:00Z"
            )

    def test_a_window_ends_with_its_last_release(self, ran: Pipeline) -> None:
        assert [release.trigger for release in releases(ran.config, window=DAY)] == [1, 2, 3, 4]
        [last] = releases(ran.settings, window=datetime(1995, 8, 1, tzinfo=UTC), final=True)
        assert last.final
        assert list(releases(ran.config, window=date(1995, 8, 2), follow=False)) == []

    def test_it_waits_as_long_as_it_may(self, ran: Pipeline) -> None:
        assert list(releases(ran.config, start="now", timeout=0.5)) == []
        assert len(list(releases(ran.config, timeout=5.0))) == 4

    def test_a_loop_may_be_left(self, ran: Pipeline) -> None:
        for release in releases(ran.config):
            assert release.trigger == 1
            break

    def test_sums_and_means_are_those_of_the_rows(self, ran: Pipeline) -> None:
        *_, last = releases(ran.config, window=DAY)
        rows = list(rows_of(ran)[4].values())
        direct = [row.values["visits"].direct for row in rows]
        whole = last.total()
        assert whole.estimate == sum(one.estimate for one in direct if one)
        assert whole.std_error == pytest.approx(math.sqrt(sum(one.std_error**2 for one in direct if one)))
        counted = [max(one.estimate, 1) * mean.estimate for row, one in zip(rows, direct, strict=True)
                   if one and (mean := row.values["kb"].direct)]  # fmt: skip
        assert last.mean("kb").estimate == pytest.approx(sum(counted) / whole.estimate)
        with pytest.raises(ConfigurationError, match=r'do not add up; use mean\("kb"\), which weighs by visits'):
            last.total("kb")

    def test_it_prints_as_a_table(self, ran: Pipeline) -> None:
        *_, last = releases(ran.config, window=DAY)
        lines = str(last.table(width=90, limit=5)).splitlines()
        assert lines[0].startswith(f"window 1995-08-01T00:00:00Z · final · {len(last)} keys published, 5 shown")
        assert lines[1].split() == ["url", "visits", "±", "95", "%", "kb", "±", "95", "%"]
        assert lines[2].startswith("/images/NASA-logosmall.gif")
        assert len(lines) == 7


def test_reading_what_was_there_ends_with_it_though_every_look_brings_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a pipeline that still catches up."""

    class Endless:
        looks = 0

        @property
        def caught_up(self) -> bool:
            return self.looks >= 2

        def poll(self, timeout: float) -> list[int]:
            self.looks += 1
            return [self.looks]

        def close(self) -> None:
            pass

    monkeypatch.setattr(module, "reach", lambda settings: None)
    monkeypatch.setattr(module, "pipeline_of", lambda settings: SimpleNamespace(releases=lambda **_: Endless()))
    assert list(releases(settings(), follow=False)) == [1, 2]


def written(kafka: Broker, kind: str, topic: str, records: list[tuple[bytes, bytes]], **sections: Any) -> Settings:
    """A pipeline of another kind, and its topic with these rows."""
    data = {
        "pipeline": {"name": "meters", "prefix": kafka.new_prefix(), "kind": kind},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        **sections,
    }
    made = settings_from(data, environ={})
    kafka.create_topic(made.topic(topic), 1, {"retention.ms": "-1"})
    producer = kafka.producer(transactional_id=kafka.new_prefix())
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in records[:1]:
        producer.produce(made.topic(topic), value, key, partition=0)
    producer.abort_transaction(30)
    producer.begin_transaction()
    for key, value in records:
        producer.produce(made.topic(topic), value, key, partition=0)
    producer.commit_transaction(30)
    return made


class TestStreams:
    @pytest.fixture(scope="class")
    def streams(self, kafka: Broker) -> Settings:
        n, numbers = 3, np.array([10.0, 20.0, 30.0])
        release = private_stream.StreamHeader(method="tops", epsilon=1.0, epoch="ab")
        rows = private_stream.encode_rows(
            release,
            private_stream.StreamColumns(
                streams=[b'"m-1"'] * n,
                first=np.array([300, 304, 308]),
                last=np.array([303, 307, 311]),
                value=numbers,
                value_error=np.full(n, 2.0),
                sum=numbers.cumsum(),
                sum_error=np.full(n, 3.0),
                filtered_sum=np.array([np.nan, 29.0, np.nan]),
                filtered_sum_error=np.array([np.nan, 1.0, np.nan]),
                theta=np.full(n, 50.0),
                layout=np.zeros(n, np.int64),
                **unsaid(n),
            ),
        )
        stream = {"stream": "meter", "value": "watts", "bound": 100.0, "holdout": 300, "epsilon": 1.0}
        return written(
            kafka, "stream", "private-stream", list(zip(*rows, strict=True)), input={"topic": "raw"}, stream=stream
        )

    def test_rows_come_as_they_are(self, streams: Settings) -> None:
        found = [row for release in releases(streams, follow=False) for row in release.rows]
        assert [(row.stream, row.first, row.value.estimate) for row in found] == [
            ("m-1", 300, 10.0),
            ("m-1", 304, 20.0),
            ("m-1", 308, 30.0),
        ]

    def test_they_are_tables(self, streams: Settings) -> None:
        [release] = releases(streams, follow=False)
        assert isinstance(release, StreamRelease)
        frame = release.to_pandas()
        assert frame["sum"].tolist() == [10.0, 30.0, 60.0]
        assert frame["filtered_sum_lower"].isna().tolist() == [True, False, True]
        assert frame["filtered_sum_lower"][1] == pytest.approx(29 - 1.959964)
        assert [row["filtered_sum"] for row in release.to_dict()["rows"]] == [None, 29.0, None]
        assert release.to_arrow()["filtered_sum"].null_count == 2
        assert "300–303" in release.table(width=100)

    def test_they_have_no_windows(self, streams: Settings) -> None:
        for wanted in ({"window": DAY}, {"final": True}):
            with pytest.raises(ConfigurationError, match="has no windows"):
                releases(streams, **wanted)


class TestLocalReports:
    @pytest.fixture(scope="class")
    def local(self, kafka: Broker) -> Settings:
        rows = [
            estimate.EstimateRow(
                interval_start=format_time(60_000 * at),
                interval_end=format_time(60_000 * (at + 1)),
                count=count,
                sum=Measured(5.0 * count, 2.0),
                mean=Measured(5.0, 0.5) if count else None,
                running_sum=Measured(1.0, 1.0),
                filtered_sum=None,
                threshold_version=1,
                theta=9.0,
                epsilon=1.0,
                epoch="ab",
            )
            for at, count in enumerate([4, 0])
        ]
        return written(
            kafka, "local", "estimate", [estimate.encode(row) for row in rows], local={"bound": 9.0, "epsilon": 1}
        )

    def test_they_are_tables(self, local: Settings) -> None:
        [release] = releases(local, follow=False)
        assert isinstance(release, LocalRelease)
        frame = release.to_pandas()
        assert str(frame["interval_end"][0]) == "1970-01-01 00:01:00+00:00"
        assert frame["count"].tolist() == [4, 0]
        assert frame["mean"].isna().tolist() == [False, True]
        assert release.to_dict(confidence=0.5)["rows"][0]["sum_upper"] == pytest.approx(20 + 2 * 0.6744898)
        assert "1970-01-01T00:01:00Z" in release.table(width=100)
        assert list(releases(local, start="now", follow=False)) == []


class TestTrouble:
    def test_no_broker_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "p.toml").write_text(
            '[pipeline]\nname = "web"\n[kafka]\nbootstrap_servers = "localhost:1"\n[input]\ntopic = "raw"\nuser = "u"\n'
            'key = ["k"]\n[privacy]\nepsilon = 1.0\ndelta = 1e-9\n'
        )
        with pytest.raises(ConfigurationError, match="nothing listens at localhost:1"):
            releases(tmp_path / "p.toml")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"window": "1995-08-01T01:00:00Z"}, 'no window starts then; use "1995-08-01T00:00:00Z"'),
            ({"window": "yesterday"}, "ISO 8601"),
            ({"window": datetime(1995, 8, 1)}, "offset"),
            ({"start": "then"}, 'use "start" or "now"'),
            ({"sql": "statement.sql"}, "settings are complete"),
        ],
    )
    def test_wrong_wishes_are_refused(self, options: Any, message: str) -> None:
        data = {
            "pipeline": {"name": "web"},
            "input": {"topic": "raw", "user": "u", "key": ["k"]},
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
        }
        with pytest.raises(ConfigurationError, match=message):
            releases(settings_from(data, environ={}), **options)

    def test_topics_that_are_missing_are_named(self, kafka: Broker) -> None:
        data = {
            "pipeline": {"name": "nobody"},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
            "input": {"topic": "raw", "user": "u", "key": ["k"]},
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
        }
        with pytest.raises(SusurrusError, match=r"susurrus\.nobody\.histogram"):
            releases(settings_from(data, environ={}))


def test_the_reader_is_imported_by_a_short_name_and_loads_no_stage() -> None:
    code = "import sys, susurrus.releases; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "susurrus.agents.histogram.releases" in loaded
    assert not {"faust", "aiokafka", "rocksdict", "duckdb", "typer"} & loaded
    stages = {
        "histogram.route",
        "histogram.bound",
        "histogram.release",
        "stream.stage",
        "local.collect",
        "local.server",
    }
    assert (
        not {f"susurrus.agents.{name}" for name in (*stages, "runtime.stage", "runtime.store", "runtime.task")} & loaded
    )
