"""The page of pipelines that publish more than a count: many columns, intervals, levels, a rolling view, a zone."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from susurrus.agents.config.settings import Settings
from susurrus.topics import histogram, progress, rolling
from susurrus.topics.histogram import ColumnRows, TriggerHeader
from susurrus.topics.progress import Progress
from susurrus.topics.rolling import RollingHeader
from tests.agents.dashboard.published import charge, create, dashboard, write
from tests.agents.released import DAY, EPOCHS, WINDOW, settings
from tests.broker import Broker

Opened = Callable[..., Page]
HOUR = 3_600_000
BERLIN = ZoneInfo("Europe/Berlin")
FIRST, SECOND, THIRD = (int(datetime(2026, 10, day, tzinfo=BERLIN).timestamp() * 1000) for day in (24, 25, 26))
PATHS = ("/archive/reports/of-the-year", "/archive/reports/of-the-month", "/archive/reports/of-the-week")
QUANTILES = {"kind": "quantiles", "field": "ms", "lower": 1, "upper": 60000, "scale": "log"}
LEVELS = {"total": [[None, None]], "country": [["DE", None]], "country, city": [["DE", "Berlin"], ["LU", None]]}


def announced(window: int, trigger: int, of_triggers: int, rows: int, **fields: Any) -> tuple[bytes, bytes]:
    said = Progress(
        window=window,
        trigger=trigger,
        of_triggers=of_triggers,
        partition=0,
        of_partitions=1,
        rows=rows,
        epoch=EPOCHS[1],
        **fields,
    )
    return progress.encode(said)


def columns_of(rows: int) -> list[ColumnRows]:
    """A count, means and deviations, and two quantiles with intervals that are not symmetric."""
    estimate = 90.0 - np.arange(rows)
    errors = {"seconds": 0.3, "spread": 1.2, "waited": 0.4, "waited_spread": 2.1}
    return [
        ColumnRows(name="visits", estimate=np.arange(rows, 0, -1) * 1000, std_error=8.4),
        *(ColumnRows(name=name, estimate=estimate, std_error=error) for name, error in errors.items()),
        *(
            ColumnRows(name=name, estimate=estimate, std_error=9.0, interval=(estimate - 10, estimate + 30))
            for name in ("latency_p50", "latency_p95")
        ),
    ]


@pytest.fixture
def wide(embedded: Broker) -> Settings:
    """Days of Berlin: one window was skipped, the next is the day of 25 hours, with a rolling view."""
    clamped = {"lower": 50, "upper": 100}
    of = settings(
        embedded.bootstrap_servers,
        pipeline={"name": "wide", "prefix": embedded.new_prefix()},
        columns=[
            {"name": "visits"},
            {"name": "seconds", "kind": "mean", "field": "seconds", **clamped},
            {"name": "spread", "kind": "stddev", "field": "seconds", **clamped},
            {"name": "waited", "kind": "mean", "field": "waited", **clamped},
            {"name": "waited_spread", "kind": "stddev", "field": "waited", **clamped},
            {"name": "latency", **QUANTILES, "at": [0.5, 0.95]},
        ],
        window={"length": "1 day", "trigger_every": "1h", "time_zone": "Europe/Berlin", "rolling": True},
        budget={"epsilon": 30.0, "delta": 1e-6, "per": "7d"},
        clock={"kind": "producer"},
    )
    create(embedded, of)
    keys, of_release = [json.dumps(path).encode() for path in PATHS], {"strategy": "toeplitz", "epoch": EPOCHS[1]}
    header = TriggerHeader(window_start=SECOND, window_end=THIRD, trigger=5, of_triggers=25, **of_release)
    now = SECOND + 5 * HOUR  # four o'clock, for an hour came twice
    begin = now - 25 * HOUR  # four o'clock on the day before
    period = RollingHeader(
        period_start=begin,
        period_end=now,
        window_start=SECOND,
        window_end=THIRD,
        trigger=5,
        of_triggers=25,
        **of_release,
    )
    since, until = np.array([begin, SECOND, begin]), np.array([now, now, SECOND])
    write(
        of,
        {
            "histogram": list(zip(*histogram.encode_rows(header, keys, columns_of(3)), strict=True)),
            "rolling": list(zip(*rolling.encode_rows(period, keys, columns_of(3), since, until), strict=True)),
            "progress": [announced(FIRST, 0, 24, 0), announced(SECOND, 5, 25, 3, rolling_rows=3)],
            "charges": [charge(of, SECOND)],
        },
    )
    return of


@pytest.mark.parametrize("width", [390, 1280])
def test_keys_can_be_read_beside_many_columns(wide: Settings, opened: Opened, width: int) -> None:
    with dashboard(wide) as served:
        page = opened(served.url, viewport={"width": width, "height": 900})
        cells = page.locator("#histogram-table td.key")
        expect(cells).to_have_count(len(PATHS))
        whole = cells.locator("button").evaluate_all(
            "(all) => all.every((e) => e.clientWidth > 100 && e.scrollHeight <= e.clientHeight)"
        )
        assert whole
        region = page.get_by_role("region", name="The histogram as a table")
        before = cells.first.bounding_box()
        region.evaluate("(e) => { e.scrollLeft = e.scrollWidth; }")
        assert region.evaluate("(e) => e.scrollLeft") > 0
        assert cells.first.bounding_box() == before  # the key stays while columns pass
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_intervals_are_called_so(wide: Settings, opened: Opened) -> None:
    with dashboard(wide) as served:
        page = opened(served.url + "#hidden=seconds,spread,waited,waited_spread,latency_p95")
        expect(page.locator("#histogram-table thead th")).to_have_text(
            ["url", "visits", "± 95 %", "latency_p50", "95 % interval", "First in release"]
        )
        expect(page.locator("#histogram-table tbody tr").first.locator("td")).to_have_text(
            [PATHS[0], "3,000", "17", "90", "80 to 120", "5"]
        )
        page.locator("#column").select_option("latency_p50")
        expect(page.locator("#histogram-table th[aria-sort=descending]")).to_have_text("latency_p50")
        arms = dict(page.evaluate("Object.entries(document.getElementById('histogram-chart').data[0].error_x)"))
        assert arms["array"] == [30, 30, 30]
        assert arms["arrayminus"] == [10, 10, 10]


def test_what_a_rolling_view_counts_and_which_window_was_skipped(wide: Settings, opened: Opened) -> None:
    with dashboard(wide) as served:
        page = opened(served.url)
        rows = page.locator("section:has(#rolling-title) .entry")
        expect(rows).to_have_count(3)
        expect(rows.locator(".value")).to_have_text(["3,000 ± 17", "2,000 ± 17", "1,000 ± 17"])
        expect(rows.nth(0).locator(".note")).to_have_count(0)
        expect(rows.nth(1).locator(".note")).to_have_text("counted from 25 Oct 2026, 00:00:00 +02:00")
        expect(rows.nth(2).locator(".note")).to_have_text("counted until 25 Oct 2026, 00:00:00 +02:00")
        expect(page.locator("#budget")).to_contain_text(
            "The budget had no room for 1 window, which begins 24 Oct 2026: nothing of it is published."
        )
        expect(page.locator("#foot")).to_contain_text("Times are those of Europe/Berlin.")
        windows = page.evaluate("document.getElementById('budget-chart').data[0].x")
        assert windows == ["2026-10-25 00:00:00"]  # axes know no zones


def test_one_level_of_several_groupings(embedded: Broker, opened: Opened) -> None:
    of = settings(
        embedded.bootstrap_servers,
        pipeline={"name": "levels", "prefix": embedded.new_prefix()},
        columns=[{"name": "visits"}],
        input={
            "topic": "raw",
            "user": "host",
            "key": ["country", "city"],
            "grouping_sets": [["country"], ["country", "city"], []],
        },
        clock={"kind": "producer"},
    )
    create(embedded, of)
    rows = [(level, key) for level, keys in LEVELS.items() for key in keys]
    header = TriggerHeader(
        window_start=WINDOW, window_end=WINDOW + DAY, trigger=1, of_triggers=4, strategy="toeplitz", epoch=EPOCHS[1]
    )
    encoded = histogram.encode_rows(
        header,
        [json.dumps(key, separators=(",", ":")).encode() for _, key in rows],
        [ColumnRows(name="visits", estimate=np.array([900, 500, 300, 200]), std_error=5.0)],
        [json.dumps(level).encode() for level, _ in rows],
    )
    write(of, {"histogram": list(zip(*encoded, strict=True)), "progress": [announced(WINDOW, 1, 4, len(rows))]})
    with dashboard(of) as served:
        page = opened(served.url)
        keys, head = page.locator("#histogram-table td.key bdi"), page.locator("#histogram-table th").first
        expect(keys).to_have_text(["total", "country · DE", "country, city · DE · Berlin", "country, city · LU · null"])
        expect(head).to_have_text("level · country · city")
        page.locator("#level").select_option("country, city")
        expect(keys).to_have_text(["DE · Berlin", "LU · null"])
        expect(head).to_have_text("country · city")
        expect(page.locator("#range")).to_have_text("1–2 of 2 of 4 keys")
        expect(page.locator("#curve-title")).to_have_text("country, city · DE · Berlin")
        page.get_by_label("Search keys").fill("null")
        expect(keys).to_have_text(["LU · null"])
        other = opened(page.url)  # the level is in the address
        expect(other.locator("#histogram-table td.key bdi")).to_have_text(["LU · null"])
        page.get_by_label("Search keys").fill("")
        page.locator("#level").select_option("total")
        expect(keys).to_have_text(["total"])


def test_a_level_that_the_pipeline_does_not_have_is_not_asked_for(wide: Settings, opened: Opened) -> None:
    with dashboard(wide) as served:
        page = opened(served.url + "#level=country")
        expect(page.locator("#histogram-table td.key")).to_have_count(len(PATHS))
        expect(page.locator("#level")).to_be_hidden()
