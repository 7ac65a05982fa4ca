"""Three windows with a rolling view on a real broker: workers are killed, and every byte, reader and file is as without that."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.releases import RollingRelease, add_windows, releases
from susurrus.topics.wire.timestamps import parse_time
from tests.broker import Broker
from tests.chaos.conftest import archive
from tests.pipeline import CRASH_POINTS, CRASHING, Pipeline, merged

HOURS = 3_600_000
TOPICS = ("histogram", "rolling", "progress")
CONFIGURATION: dict[str, Any] = {
    "window": {"length": "8h", "trigger_every": "2h", "rolling": True},
    "bounds": {"max_records_per_user": 20},
    "privacy": {"strategy": "closing"},
    # The view is recomputed from `histogram`, which does not show all rows where keys are remembered.
    "keys": {"remember": 0},
    "columns": [
        {"name": "visits", "kind": "count"},
        {"name": "kb", "kind": "mean", "field": "bytes", "bound": 9e4},
        {"name": "median", "kind": "quantiles", "field": "bytes", "lower": 0, "upper": 9e4, "buckets": 8, "at": [0.5]},
    ],
}


@pytest.fixture(scope="module")
def raw(kafka: Broker, once: Callable[[str, Callable[[], str]], str]) -> str:
    return once("end-to-end", lambda: archive(kafka, 1))


@pytest.fixture(scope="module")
def ran(kafka: Broker, raw: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    with Pipeline(kafka, tmp_path_factory.mktemp("ran"), raw, CONFIGURATION) as pipeline:
        pipeline.start()
        pipeline.wait(windows=3)
        return pipeline


@CRASH_POINTS
def test_kills_change_no_byte(ran: Pipeline, kafka: Broker, raw: str, tmp_path: Path, points: Sequence[str]) -> None:
    """In the second window, whose view needs the rows of the first one."""
    with Pipeline(kafka, tmp_path, raw, merged(CONFIGURATION, CRASHING)) as pipeline:
        for visit, point in enumerate(points, start=6):
            pipeline.crash(f"release:{point}:{visit}")
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        pipeline.wait(windows=3)
        found = pipeline.public(TOPICS)
    assert sum(map(len, found["rolling"].values())) > 100
    assert found == ran.public(TOPICS)


class TestReading:
    def test_every_view_is_read_whole_and_in_order(self, ran: Pipeline) -> None:
        found: list[RollingRelease] = list(releases(ran.config, rolling=True, follow=False))
        assert len(found) == 12
        assert all(np.diff([view.period_end for view in found]) == 2 * HOURS)
        assert all(view.period_end - view.period_start == 8 * HOURS for view in found)
        rows = [json.loads(message.value()) for message in ran.broker.read_all(ran.settings.topic("rolling"))]
        assert sum(map(len, found)) == len(rows) > 100
        by_name = {(row["period_end"], json.dumps(row["key"])): row for row in rows}
        for view in found:
            for at, row in enumerate(view.to_dict()["rows"]):
                wanted = by_name[view.head()["period_end"], json.dumps(view.keys[at])]
                assert {name: row[name] for name in ("counted_from", "counted_until")} == {
                    name: wanted[name] for name in ("counted_from", "counted_until")
                }
                assert row["visits"] == wanted["values"]["visits"]["estimate"]
                assert row["kb_std_error"] == wanted["values"]["kb"]["std_error"]
        assert [view.final for view in found] == [False, False, False, True] * 3

    def test_the_last_view_of_a_window_is_its_release(self, ran: Pipeline) -> None:
        views = list(releases(ran.config, rolling=True, final=True, follow=False))
        ends = list(releases(ran.config, final=True, follow=False))
        assert len(views) == len(ends) == 3
        for view, end in zip(views, ends, strict=True):
            assert view.whole.all()
            assert view.keys == end.keys
            assert (view.columns["visits"].estimate == end.columns["visits"].estimate).all()
            assert (view.columns["visits"].independent[0] == end.columns["visits"].independent[0]).all()
            assert (view.columns["median"].estimate == end.columns["median"].estimate).all()

    def test_quantiles_are_those_of_the_periods_own_counts(self, ran: Pipeline) -> None:
        """Of two windows they are no sum. Between a quantile and its interval's ends nothing else is known here."""
        views = [view for view in releases(ran.config, rolling=True, follow=False) if len(view)]
        assert views
        for view in views:
            median = view.columns["median"]
            assert median.interval is not None
            lower, upper = median.interval
            assert ((lower <= median.estimate) & (median.estimate <= upper)).all()
            assert ((lower >= 0) & (upper <= 9e4)).all()

    def test_rows_that_count_the_whole_period_can_be_taken_alone(self, ran: Pipeline) -> None:
        views = list(releases(ran.config, rolling=True, window="1995-08-01T16:00:00Z", follow=False))
        assert [view.trigger for view in views] == [1, 2, 3, 4]
        view = next(view for view in views if 0 < view.whole.sum() < len(view))
        alone = view.only_whole()
        assert alone.whole.all()
        assert alone.keys == [key for key, whole in zip(view.keys, view.whole, strict=True) if whole]
        assert alone.total("visits").estimate == sum(alone.columns["visits"].independent[0].tolist())
        assert "count less" in view.caption(len(view))
        assert "count less" not in alone.caption(len(alone))
        assert "counted" in view.table(limit=len(view), width=200)
        with pytest.raises(SusurrusError, match="cannot be added"):
            add_windows(views, "visits")

    def test_watch_shows_and_exports_it(self, ran: Pipeline, tmp_path: Path) -> None:
        runner, config = CliRunner(), ["--config", str(ran.config)]
        shown = runner.invoke(app, ["watch", *config, "--rolling", "--once", "--window", "1995-08-01T08:00:00Z"])
        assert shown.exit_code == 0, shown.output
        assert "1995-08-01T08:00:00Z to 1995-08-01T16:00:00Z" in shown.output
        assert ".rolling" in shown.output
        target = tmp_path / "view.csv"
        arguments = ["watch", *config, "--rolling", "--export", "csv", "--output", str(target)]
        assert runner.invoke(app, arguments).exit_code == 0
        rows = list(csv.DictReader(io.StringIO(target.read_text(encoding="utf-8-sig"))))
        assert rows
        assert {"period_start", "period_end", "counted_from", "counted_until", "visits"} <= rows[0].keys()
        assert {parse_time(row["period_end"]) for row in rows} == {parse_time("1995-08-02T00:00:00Z")}

    def test_where_there_is_none_it_is_said(self, ran: Pipeline) -> None:
        settings = ran.settings.model_copy(update={"window": ran.settings.window.model_copy(update={"rolling": False})})
        with pytest.raises(ConfigurationError, match=r"set window\.rolling = true"):
            releases(settings, rolling=True)
