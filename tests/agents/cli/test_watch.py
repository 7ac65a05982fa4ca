"""`susurrus watch`: what it shows and exports of each kind, what it says is due, and how it is ended."""

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from susurrus.agents.cli import main as cli
from susurrus.agents.config.settings import Settings
from susurrus.agents.display.view import View
from susurrus.agents.histogram.estimates import Release
from susurrus.agents.kafka.embedded import EmbeddedBroker
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import estimate, private_stream, threshold
from susurrus.topics.histogram import Measured
from susurrus.topics.wire.timestamps import format_time, parse_time
from tests.agents.cli.shown import view_of
from tests.agents.released import DAY, WINDOW, publish, rows, said, settings
from tests.stream_rows import unsaid
from tests.waiting import PATIENCE

EPOCH = "ab" * 16
MINUTE = 60_000
HOUR = 3_600_000
runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as found:
        yield found


def of_kind(broker: EmbeddedBroker, kind: str, name: str, **sections: Any) -> Settings:
    data = {
        "pipeline": {"name": name, "prefix": "t", "kind": kind},
        "kafka": {"bootstrap_servers": broker.bootstrap_servers, "embedded": True},
        **sections,
    }
    return settings_from(data, environ={})


def stream_of(broker: EmbeddedBroker, name: str) -> Settings:
    section = {"bound": 100.0, "epsilon": 1.0, "holdout": 1000, "range_limit": 65536}
    found = of_kind(broker, "stream", name, input={"topic": "raw"}, stream=section)
    broker.create(found.topic("private-stream"))
    return found


def local_of(broker: EmbeddedBroker, name: str) -> Settings:
    section = {"bound": 100.0, "epsilon": 2.0, "interval": "1m", "lateness": "30s", "holdout": 5000}
    found = of_kind(broker, "local", name, local=section)
    broker.create(found.topic("estimate"))
    broker.create(found.topic("threshold"))
    return found


def produce(settings: Settings, topic: str, records: list[tuple[bytes, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": settings.kafka.bootstrap_servers, "log_level": 2})
    for key, value in records:
        producer.produce(settings.topic(topic), value, key, partition=0)
    assert producer.flush(20) == 0


def stream_rows(
    n: int, *, stream: bytes = b'"meter-7"', epoch: str = EPOCH, error: float = 8.0
) -> list[tuple[bytes, bytes]]:
    """n pieces of 16 values with the means 1, 2, 3, ..."""
    first = 1000 + 16 * np.arange(n)
    value = 16.0 * np.arange(1, n + 1)
    filtered = np.where(np.arange(n) % 2 == 1, np.cumsum(value), np.nan)
    released = private_stream.StreamColumns(
        streams=[stream] * n,
        first=first,
        last=first + 15,
        value=value,
        value_error=np.full(n, error),
        sum=np.cumsum(value),
        sum_error=np.full(n, 20.0),
        filtered_sum=filtered,
        filtered_sum_error=np.where(np.isnan(filtered), np.nan, 15.0),
        theta=50.0,
        layout=np.zeros(n, np.int64),
        **unsaid(n),
    )
    release = private_stream.StreamHeader(method="tops", epsilon=1.0, epoch=epoch)
    return list(zip(*private_stream.encode_rows(release, released), strict=True))


def interval(start: int, *, count: int = 400, mean: float = 40.0, epoch: str = EPOCH) -> tuple[bytes, bytes]:
    return estimate.encode(
        estimate.EstimateRow(
            interval_start=format_time(start),
            interval_end=format_time(start + MINUTE),
            count=count,
            sum=Measured(count * mean, 100.0),
            mean=Measured(mean, 0.25),
            running_sum=Measured(7 * count * mean, 300.0),
            filtered_sum=Measured(count * 41.0, 80.0),
            threshold_version=1,
            theta=90.0,
            epsilon=2.0,
            epoch=epoch,
        )
    )


def current_threshold() -> list[tuple[bytes, bytes]]:
    found = threshold.ThresholdRecord(
        version=1, theta=90.0, epsilon=2.0, alpha=0.5, reports=5000, phase1_epsilon=2.0, bound=100.0, epoch=EPOCH
    )
    return threshold.encode(found)


def read(view: View) -> View:
    while not view.caught_up:
        view.poll(0.1)
    view.poll(0.2)
    return view


def drawn(picture: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def shown(view: View) -> tuple[int, int, dict[Any, int]]:
    """Window, trigger and counts of what a histogram's view shows."""
    release = view.newest
    assert isinstance(release, Release)
    counts = dict(zip(release.keys, release.columns["visits"].estimate.tolist(), strict=True))
    return release.window_start, release.trigger, counts


def exported(settings: Settings, tmp_path: Path, form: str) -> str:
    """What `--export` writes to standard output."""
    return runner.invoke(cli.app, ["watch", "-c", str(written(settings, tmp_path)), "--export", form, "-o", "-"]).stdout


def written(settings: Settings, tmp_path: Path) -> Path:
    """The settings as a file."""
    path = tmp_path / "p.toml"
    lines = [f'[pipeline]\nname = "{settings.pipeline.name}"\nprefix = "t"\nkind = "{settings.kind}"']
    lines += [f'[kafka]\nbootstrap_servers = "{settings.kafka.bootstrap_servers}"\nembedded = true']
    if settings.kind == "stream":
        lines += ['[input]\ntopic = "raw"\n[stream]\nbound = 100.0\nepsilon = 1.0\nholdout = 1000\nrange_limit = 65536']
    elif settings.kind == "histogram":
        lines += ['[input]\ntopic = "raw"\nuser = "host"\nkey = ["url"]\n[window]\ntrigger_every = "6h"']
        lines += ['[privacy]\nepsilon = 6\ndelta = 1e-9\nstrategy = "toeplitz"']
    else:
        lines += ['[local]\nbound = 100.0\nepsilon = 2.0\ninterval = "1m"\nlateness = "30s"\nholdout = 5000']
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


class TestStream:
    def test_it_shows_means_and_the_running_sum_with_their_errors(self, broker: EmbeddedBroker) -> None:
        settings = stream_of(broker, "s1")
        produce(settings, "private-stream", stream_rows(40))
        produce(settings, "private-stream", stream_rows(3, stream=b'"meter-8"'))
        with read(view_of(settings)) as view:
            text = drawn(view.picture(100, None))
            assert "Means of the newest pieces" in text
            assert "private   │ its error bar (95 %)" in text
            # Mean 40, its sum 640 ± 1.96 · 8, running sum 16 · 820 ± 1.96 · 20, filtered ± 1.96 · 15.
            [row] = [line.split() for line in text.splitlines() if line.startswith("1,624-1,639")]
            assert row[1:] == ["40", "0.98", "640", "15.7", "13,120", "39.2", "13,120", "29.4"]
            assert "stream meter-7 · 1 more (--stream) · tops · threshold 50 · epsilon 1 per value" in text
            assert "behind position 1,639" in view.due(0)
            for width in (40, 69, 80, 140):
                assert max(map(len, drawn(view.picture(width, 20), width).splitlines())) <= width

    def test_a_stream_can_be_named_and_one_that_is_not_there_is_said(self, broker: EmbeddedBroker) -> None:
        settings = stream_of(broker, "s2")
        produce(settings, "private-stream", stream_rows(2) + stream_rows(3, stream=b'"meter-8"'))
        with read(view_of(settings, stream="meter-8")) as view:
            assert "1,032-1,047" in drawn(view.picture(100, None))
        with read(view_of(settings, stream="nobody")) as view:
            assert view.newest is None
            assert view.due(0) == '--stream="nobody": nothing is released of it; released are: meter-7, meter-8'

    def test_rows_of_two_epochs_are_never_mixed(self, broker: EmbeddedBroker) -> None:
        settings = stream_of(broker, "s3")
        produce(settings, "private-stream", stream_rows(9) + stream_rows(2, epoch="cd" * 16))
        with read(view_of(settings, all_rows=True)) as view:
            assert {(row["epoch"], row["first"]) for row in view.records()} == {("cd" * 16, 1000), ("cd" * 16, 1016)}
            assert drawn(view.picture(100, None)).count("1,000-1,015") == 1

    def test_before_the_first_row_it_says_what_that_takes(self, broker: EmbeddedBroker, tmp_path: Path) -> None:
        settings = stream_of(broker, "s4")
        result = runner.invoke(cli.app, ["watch", "-c", str(written(settings, tmp_path)), "--once"])
        assert result.exit_code == 2
        said = " ".join(result.stderr.replace("│", " ").split())
        assert "nothing is released yet; the first row of a stream comes with its value 1,0" in said
        assert "the first 1,000 choose its threshold (stream.holdout)" in said

    def test_an_export_has_all_rows_of_all_streams(self, broker: EmbeddedBroker, tmp_path: Path) -> None:
        settings = stream_of(broker, "s5")
        produce(settings, "private-stream", stream_rows(1100) + stream_rows(3, stream=b"17"))
        found = list(csv.DictReader(io.StringIO(exported(settings, tmp_path, "csv"))))
        assert len(found) == 1103
        assert [row["stream"] for row in found[:4]] == ["17", "17", "17", "meter-7"]
        assert found[-1]["value"] == "17600.0"
        assert found[-1]["value_std_error"] == "8.0"
        assert (found[0]["filtered_sum"], found[1]["filtered_sum"]) == ("", "48.0")
        lines = [json.loads(line) for line in exported(settings, tmp_path, "jsonl").splitlines()]
        assert lines[0]["stream"] == 17
        assert lines[0]["filtered_sum"] is None
        assert list(lines[0]) == list(found[0])


class TestLocal:
    def test_it_shows_intervals_plain_and_filtered(self, broker: EmbeddedBroker) -> None:
        settings = local_of(broker, "l1")
        produce(settings, "estimate", [interval(WINDOW + n * MINUTE, mean=40.0 + n) for n in range(7)])
        with read(view_of(settings)) as view:
            text = drawn(view.picture(100, None))
            [row] = [line.split() for line in text.splitlines() if line.startswith("1995-08-01T00:06:00Z")]
            # 400 reports, mean 46 ± 1.96 · 0.25, filtered 41 ± 1.96 · 80 / 400, running sum ± 1.96 · 300.
            assert row[1:] == ["400", "46", "0.49", "41", "0.392", "128,800", "588"]
            assert "7 intervals · threshold 90 (version 1) · epsilon 2 per report" in text
            assert "Mean of an interval's reports" in text
            now = WINDOW + 7 * MINUTE + 10_000
            assert view.due(now) == (
                "the interval that ends 00:08:00Z is due by 00:08:30Z (in 1m 20s), if it has reports"
            )
            assert "the interval that ends 02:00:00Z is due by 02:00:30Z" in view.due(WINDOW + 2 * HOUR + 1)

    def test_what_it_waits_for_in_each_phase(self, broker: EmbeddedBroker) -> None:
        settings = local_of(broker, "l2")
        with read(view_of(settings)) as view:
            assert "the threshold comes with 5,000 reports (local.holdout)" in view.due(WINDOW)
        produce(settings, "threshold", current_threshold())
        with read(view_of(settings)) as view:
            assert view.due(WINDOW).startswith(
                "phase 2 has begun, and no interval is released yet; the interval that ends"
            )

    def test_an_export_has_every_interval(self, broker: EmbeddedBroker, tmp_path: Path) -> None:
        settings = local_of(broker, "l3")
        produce(settings, "estimate", [interval(WINDOW + MINUTE, epoch="cd" * 16), interval(WINDOW)])
        [row] = csv.DictReader(io.StringIO(exported(settings, tmp_path, "csv")))  # of the newer epoch alone
        assert row["slot_start"] == "1995-08-01T00:00:00Z"
        assert (row["count"], row["sum"], row["mean_std_error"]) == ("400", "16000.0", "0.25")

    def test_parquet_has_real_timestamps(self, broker: EmbeddedBroker, tmp_path: Path) -> None:
        parquet = pytest.importorskip("pyarrow.parquet")
        settings = local_of(broker, "l4")
        produce(settings, "estimate", [interval(WINDOW)])
        file = tmp_path / "l.parquet"
        result = runner.invoke(
            cli.app, ["watch", "-c", str(written(settings, tmp_path)), "--export", "parquet", "-o", str(file)]
        )
        assert result.exit_code == 0, result.output
        assert parquet.read_table(file)["slot_start"][0].as_py().isoformat() == "1995-08-01T00:00:00+00:00"


class TestHistogram:
    def view(self, broker: EmbeddedBroker, window: int | None = None, calendar: Any = None, **sections: Any) -> View:
        clock = {"kind": "producer", "idle_grace": "1m"}
        calendar = {} if calendar is None else {"window": calendar}
        found = settings(broker.bootstrap_servers, **{"clock": clock, **calendar, **sections})
        for topic in ("histogram", "progress"):
            broker.create(found.topic(topic))
        return read(view_of(found, window=None if window is None else WindowStart(window)))

    def test_the_next_trigger_is_named_with_the_instant_by_which_it_is_due(self) -> None:
        with EmbeddedBroker() as broker:
            found = settings(broker.bootstrap_servers)
            publish(found, {0: rows(2, {b'"/a"': 120})}, [said(2, 1)])
            with self.view(broker) as view:
                assert view.due(WINDOW + 13 * HOUR) == (
                    "trigger 3 of 4 of the window 1995-08-01T00:00:00Z ends 18:00:00Z, and is due by 18:01:00Z (in 5h 1m)"
                )
                late = view.due(WINDOW + 18 * HOUR + 5 * MINUTE)
                assert late.endswith("was due 4m ago; `susurrus status` says what holds it up")
            with self.view(broker, window=WINDOW + 24 * HOUR) as view:
                assert view.newest is None
                assert "trigger 1 of 4 of the window 1995-08-02T00:00:00Z" in view.due(WINDOW)

    def test_before_anything_is_released_it_waits_for_the_first_that_can_come(self) -> None:
        with EmbeddedBroker() as broker, self.view(broker) as view:
            now = WINDOW + 7 * HOUR
            assert view.due(now) == (
                "nothing is released yet; trigger 2 of 4 of the window 1995-08-01T00:00:00Z ends 12:00:00Z, and is due by "
                "12:01:00Z (in 5h 1m)"
            )
            assert "was due" in view.due(now + 6 * HOUR)  # the same trigger, not always the next one

    def test_a_day_of_a_zone_is_shown_by_its_clocks(self) -> None:
        window = {"length": "1 day", "time_zone": "Europe/Berlin", "trigger_every": "1h"}
        start = 1_792_879_200_000  # 2026-10-25 there, of 25 hours
        with EmbeddedBroker() as broker:
            found = settings(broker.bootstrap_servers, window=window)
            publish(found, {0: rows(24, {b'"/a"': 120}, window=start, of=25)}, [said(24, 1, window=start, of=25)])
            with self.view(broker, calendar=window) as view:
                assert view.due(start + 24 * HOUR) == (
                    "trigger 25 of 25 of the window 2026-10-25T00:00:00+02:00 ends 2026-10-26T00:00:00+01:00, and is due by "
                    "2026-10-26T00:01:00+01:00 (in 1h 1m)"
                )
                assert "window 2026-10-25T00:00:00+02:00 · trigger 24 of 25" in drawn(view.picture(100, None))
                [record] = view.records()
                assert (record["window_start"], record["window_date"]) == ("2026-10-25T00:00:00+02:00", "2026-10-25")
                assert record["trigger_time"] == "2026-10-25T23:00:00+01:00"

    def test_an_archive_has_no_hour(self) -> None:
        day = format_time(WINDOW)
        with EmbeddedBroker() as broker:
            archive = {
                "clock": {"kind": "replay", "until": format_time(WINDOW + 24 * HOUR)},
                "start": {"from": "earliest", "first_window": day},
            }
            with self.view(broker, **archive) as view:
                assert "as fast as the archive is read" in view.due(parse_time("2026-01-01T00:00:00Z"))
            found = settings(broker.bootstrap_servers, **archive)
            publish(found, {0: rows(4, {b'"/a"': 120})}, [said(4, 1)])
            with self.view(broker, **archive) as view:
                assert view.due(0) == "this was the archive's last trigger; nothing more comes"

    def test_a_window_that_is_skipped_is_named_and_nothing_is_waited_for(self, tmp_path: Path) -> None:
        with EmbeddedBroker() as broker:
            found = settings(broker.bootstrap_servers)
            skipped = [said(0, 0, window=WINDOW + n * DAY) for n in (1, 2)]
            publish(found, {0: rows(4, {b'"/a"': 120})}, [said(4, 1), *skipped])
            with self.view(broker) as view:
                assert view.due(WINDOW + 3 * DAY) == (
                    "2 windows up to 1995-08-03T00:00:00Z are skipped, for [budget] had no room; trigger 1 of 4 of the window "
                    "1995-08-04T00:00:00Z ends 06:00:00Z, and is due by 06:01:00Z (in 6h 1m)"
                )
                assert not view.over
            with self.view(broker, window=WINDOW + DAY) as view:
                assert view.over
                assert view.due(0) == (
                    "the window 1995-08-02T00:00:00Z is skipped: [budget] had no room for it, and nothing of it is published"
                )
            command = ["watch", "-c", str(written(found, tmp_path)), "--once", "--window", "1995-08-02T00:00:00Z"]
            result = runner.invoke(cli.app, command)
            assert result.exit_code == 2
            told = " ".join(result.stderr.replace("│", " ").split())
            assert "nothing of it is published" in told
            assert "susurrus status" not in told  # which has nothing to say of it

    def test_the_newest_window_is_shown_unless_one_is_named(self) -> None:
        old, new = WINDOW, WINDOW + 9 * DAY
        with EmbeddedBroker() as broker:
            publish(
                settings(broker.bootstrap_servers),
                {0: rows(4, {b'"/a"': 5}, window=old) + rows(1, {b'"/a"': 8}, window=new)},
                [said(4, 1, window=old), said(1, 1, window=new)],
            )
            with self.view(broker) as view:
                assert shown(view) == (new, 1, {"/a": 8})
                assert not view.over
            with self.view(broker, window=old) as view:
                assert shown(view) == (old, 4, {"/a": 5})
                assert view.over
                assert view.due(0) == "this was the window's last trigger; nothing more comes"

    def test_the_ranking_alone(self) -> None:
        own = {"columns": [{"name": "visits", "kind": "count"}], "top": {"order_by": "visits", "limit": 2}}
        with EmbeddedBroker() as broker:
            made = settings(broker.bootstrap_servers, **own)
            publish(made, {0: rows(2, {b'"/a"': 5, b'"/b"': 30, b'"/c"': 9})}, [said(2, 3)])
            with read(view_of(made, top=True)) as view:
                assert shown(view) == (WINDOW, 2, {"/a": 5, "/b": 30, "/c": 9})
                text = drawn(view.picture(100, None))
                assert "t.page-views.top" in text
                assert "ORDER BY visits DESC LIMIT 2 · 2 of 3 published keys" in " ".join(text.split())
                assert text.index("/b") < text.index("/c")
                assert "/a" not in text
                assert [(row["rank"], row["key"]) for row in view.records()] == [(1, '"/b"'), (2, '"/c"')]
            with read(view_of(made)) as view:
                assert "rank" not in view.records()[0]
            with pytest.raises(ConfigurationError, match=r"--top: .* give a histogram a section \[top\]"):
                view_of(settings(broker.bootstrap_servers), top=True)

    def test_smoothed_rows_are_shown_by_default_and_the_other_numbers_by_an_option(self) -> None:
        """Some rows have a smoothed number; a key that was shown at the trigger before, and is not in this one, is gone."""
        counts = {b'"/a"': 5, b'"/b"': 30, b'"/c"': 9}
        own = {"columns": [{"name": "visits", "kind": "count"}], "top": {"order_by": "visits", "limit": 1}}
        with EmbeddedBroker() as broker:
            made = settings(broker.bootstrap_servers, **own)
            last = rows(4, counts, smoothed={b'"/a"': 40}, direct={key: count + 1 for key, count in counts.items()})
            publish(made, {0: rows(3, {**counts, b'"/hidden"': 4}) + last}, [said(3, 4), said(4, 3)])
            pictures = {}
            for number in (None, "estimate", "direct"):
                with read(view_of(made, number=number)) as view:
                    pictures[number] = [line.split() for line in drawn(view.picture(80, None)).splitlines()]
                    assert "/hidden" not in drawn(view.picture(80, None))
                    records = {row["key"]: row for row in view.records()}
                    assert [records[key]["visits_smoothed"] for key in ('"/a"', '"/b"')] == [40, None]
                    assert [records['"/a"'][name] for name in ("visits_estimate", "visits_direct")] == [5, 6]
            assert [line[:3] for line in pictures[None][2:5]] == [
                ["/a", "40", "2"],
                ["/b", "30", "5"],
                ["/c", "9", "5"],
            ]
            assert pictures[None][0] == ["page-views", "t.page-views.histogram", "·", "1", "smoothed"]
            assert pictures[None][-1][-2:] == ["keys", "published"]
            assert [line[:2] for line in pictures["estimate"][2:5]] == [["/b", "30"], ["/c", "9"], ["/a", "5"]]
            assert pictures["estimate"][0][-2:] == ["not", "smoothed"]
            assert [line[:3] for line in pictures["direct"][2:4]] == [["/b", "31", "16"], ["/c", "10", "16"]]
            assert pictures["direct"][0][-2:] == ["·", "direct"]
            with read(view_of(made, top=True)) as view:
                assert [row["key"] for row in view.records()] == ['"/a"']

    def test_a_release_whose_rows_are_missing_leaves_the_one_before_it(self) -> None:
        """A later window's first release is announced, and one of its rows cannot be read."""
        day = WINDOW + DAY
        with EmbeddedBroker() as broker:
            publish(
                settings(broker.bootstrap_servers),
                {0: rows(4, {b'"/a"': 5}) + rows(1, {b'"/a"': 8}, window=day)},
                [said(4, 1), said(1, 2, window=day)],
            )
            with self.view(broker) as view:
                assert shown(view) == (WINDOW, 4, {"/a": 5})
            with self.view(broker, window=day) as view:
                assert view.newest is None
                assert view.due(0).startswith(
                    "trigger 1 of the window 1995-08-02T00:00:00Z is announced, but not all of its rows can be read"
                )

    def test_a_new_epoch_replaces_its_window_and_no_newer_one(self) -> None:
        day = WINDOW + DAY
        with EmbeddedBroker() as broker:
            made = settings(broker.bootstrap_servers)
            publish(
                made,
                {0: rows(4, {b'"/a"': 5, b'"/gone"': 2}) + rows(1, {b'"/a"': 8}, window=day)},
                [said(4, 2), said(1, 1, window=day)],
            )
            with self.view(broker) as live:
                publish(made, {0: rows(1, {b'"/a"': 6}, epoch=2)}, [said(1, 1, epoch=2)])
                with self.view(broker) as view:
                    assert shown(view) == (day, 1, {"/a": 8})
                with self.view(broker, window=WINDOW) as view:
                    assert shown(view) == (WINDOW, 1, {"/a": 6})
                publish(made, {0: rows(1, {b'"/a"': 7}, epoch=2, window=day)}, [said(1, 1, epoch=2, window=day)])
                while shown(live) == (day, 1, {"/a": 8}):
                    live.poll(0.1)
                assert shown(live) == (day, 1, {"/a": 7})

    def test_keys_that_a_strategy_does_not_publish_again_stay(self) -> None:
        with EmbeddedBroker() as broker:
            own = {"privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "dp-sqlp"}}
            made = settings(broker.bootstrap_servers, **own)
            publish(made, {0: rows(1, {b'"/a"': 5, b'"/b"': 3}) + rows(2, {b'"/b"': 4})}, [said(1, 2), said(2, 1)])
            with self.view(broker, **own) as view:
                assert shown(view) == (WINDOW, 2, {"/a": 5, "/b": 4})
                publish(made, {0: rows(3, {b'"/a"': 6})}, [said(3, 1)])
                while shown(view)[1] == 2:
                    view.poll(0.1)
                assert shown(view) == (WINDOW, 3, {"/a": 6, "/b": 4})

    @pytest.mark.parametrize(
        ("kind", "options", "says"),
        [
            (
                "local",
                ["--column", "x"],
                "there is no such column; use 'mean', 'filtered_mean', 'sum' or 'running_sum'",
            ),
            ("stream", ["--column", "x"], "there is no such column; use 'value', 'sum' or 'filtered_sum'"),
            ("local", ["--window", "2026-01-01"], 'pipeline.kind="local" has no windows; leave it out'),
            ("local", ["--number", "direct"], 'rows of pipeline.kind="local" have one number each; leave it out'),
            ("local", ["--stream", "x"], 'pipeline.kind="local" has no streams; leave it out'),
        ],
    )
    def test_options_that_do_not_fit_are_refused(
        self, broker: EmbeddedBroker, tmp_path: Path, kind: str, options: list[str], says: str
    ) -> None:
        found = stream_of(broker, "o1") if kind == "stream" else local_of(broker, "o2")
        result = runner.invoke(cli.app, ["watch", "-c", str(written(found, tmp_path)), *options])
        assert result.exit_code == 2
        assert says in " ".join(result.stderr.replace("│", " ").split())


def test_ctrl_c_ends_it_with_one_line(broker: EmbeddedBroker, tmp_path: Path) -> None:
    found = local_of(broker, "c1")
    with subprocess.Popen(
        [sys.executable, "-m", "susurrus.agents.cli", "watch", "--config", str(written(found, tmp_path))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"COLUMNS": "100", "PATH": ""},
    ) as process:
        try:
            assert process.stderr is not None
            assert "the threshold comes with 5,000 reports" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "Stopped.\n")
