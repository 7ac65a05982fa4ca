"""What a worker smooths and hides in the second of two windows is what every reader shows, by the topics' own JSON; on a broker."""

import itertools
import json
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.broker.network import free_ports
from susurrus.agents.config.settings import Settings
from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.histogram.board import HistogramBoard
from susurrus.agents.histogram.estimates import Release
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import pipeline_of
from susurrus.releases import releases
from tests.agents.cli.shown import view_of
from tests.agents.cli.test_empty_results import command
from tests.broker import Broker, wait_for
from tests.pipeline import Pipeline, archive_topic, merged, produce

pytestmark = pytest.mark.timeout(300)
DAYS = 2
TRIGGERS = 24
SECOND_DAY = "1995-08-02T00:00:00Z"
OVERRIDES: dict[str, Any] = {
    "clock": {"until": "1995-08-03T00:00:00Z"},
    "privacy": {"strategy": "closing"},
    "topics": {"by_user_partitions": 2, "bounded_partitions": 1},
    "keys": {"remember": 6},
    "columns": [{"name": "hosts"}, {"name": "size", "kind": "sum", "field": "bytes", "bound": 50000, "grid": 100}],
    "top": {"order_by": "hosts", "limit": 3},
}


@dataclass(frozen=True)
class Published:
    """A pipeline that has published two days, and the values of its topics, as a plain consumer reads them."""

    settings: Settings
    rows: list[dict[str, Any]]
    latest: dict[bytes, dict[str, Any] | None]
    """By Kafka's key, the last record; None where it has no value."""
    top: list[dict[str, Any]]
    progress: list[dict[str, Any]]
    status: dict[str, Any]
    said: str
    """What `susurrus status` and `preflight` print, in one line."""
    pages: str
    """What the worker's page and its metrics say."""

    def release(self, trigger: int) -> dict[str, dict[str, Any]]:
        """The second day's rows of a trigger by key."""
        rows = [row for row in self.rows if (row["window_start"], row["trigger"]) == (SECOND_DAY, trigger)]
        return {row["key"]: row["values"] for row in rows}


@pytest.fixture(scope="module")
def published(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The same visits on both days, by other hosts on the second."""
    raw = archive_topic(kafka, 2)
    records = []
    for day in range(DAYS):
        for visit in WebLog().visits:
            moved = visit.__class__(
                **{**_fields(visit), "host": f"{day}-{visit.host}", "time": visit.time + 86_400 * day}
            )
            records.append((zlib.crc32(moved.host.encode()) % 2, moved.encode(), moved.time * 1000))
    produce(kafka, raw, records)
    (port,) = free_ports(1)
    overrides = merged(OVERRIDES, {"worker": {"web_port": port}})
    with Pipeline(kafka, tmp_path_factory.mktemp("which-number"), raw, overrides) as pipeline:
        pipeline.start()
        pipeline.wait(windows=DAYS)
        of = pipeline.settings
        # The stage of the ranking comes behind those of the rows.
        wait_for(lambda: len(kafka.read_all(of.topic("top"))) == DAYS * TRIGGERS, "the last ranking")
        status, said = command(pipeline, "status", "--json"), ""
        for name in ("status", "preflight"):
            said += command(pipeline, name, width=200).output
        pages = "".join(
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).read().decode()
            for path in ("/", "/metrics")
        )
    messages = {name: kafka.read_all(of.topic(name)) for name in ("histogram", "latest", "top", "progress")}
    decoded = {
        name: [(m.key(), m.value() and json.loads(m.value())) for m in found] for name, found in messages.items()
    }
    return Published(
        settings=of,
        rows=[row for _, row in decoded["histogram"]],
        latest=dict(decoded["latest"]),
        top=[record for _, record in decoded["top"]],
        progress=[record for _, record in decoded["progress"]],
        status=json.loads(status.stdout),
        said=" ".join(said.split()),
        pages=pages,
    )


def _fields(visit: Any) -> dict[str, Any]:
    return {name: getattr(visit, name) for name in visit.__dataclass_fields__}


def number_of(values: dict[str, Any], number: str = "smoothed") -> tuple[float, float]:
    """What decision 43 shows, written once more: (number, standard error) of the column `hosts`."""
    hosts = values["hosts"]
    found = hosts if number == "estimate" else hosts.get(number, hosts)
    return found["estimate"], found["std_error"]


def of_second_day(published: Published) -> list[Release]:
    return list(releases(published.settings, window=SECOND_DAY, follow=False))


def test_operators_see_what_progress_says_of_memory(published: Published) -> None:
    first = [each for each in published.progress if each["window"] != SECOND_DAY]
    assert {(each["remembered"], each["persistence"]) for each in first} == {(0, 0)}
    [(remembered, persistence)] = {
        (each["remembered"], each["persistence"]) for each in published.progress if each["window"] == SECOND_DAY
    }
    last = [row for row in published.rows if row["window_start"] != SECOND_DAY and row["trigger"] == TRIGGERS]
    assert remembered == sum(row["values"]["hosts"]["estimate"] >= 6 for row in last) > 40
    assert published.status["memory"] == {
        "window": SECOND_DAY,
        "remembered_keys": remembered,
        "persistence": persistence,
        "evidence_windows": 1,
    }
    read = list(releases(published.settings, follow=False))
    assert [(each.remembered, each.persistence) for each in read[:TRIGGERS]] == [(0, 0)] * TRIGGERS
    assert {(each.remembered, each.persistence) for each in read[TRIGGERS:]} == {(remembered, persistence)}
    text = (
        f"The window {SECOND_DAY} has {remembered} keys of the one before it; kappa is {persistence:g}, the part of an"
    )
    assert f"memory: {text}" in published.said  # status
    assert published.said.count(text) == 2  # and preflight
    assert f"remembered_keys {remembered}, persistence {persistence:g}, evidence_windows 1" in published.pages
    of = published.settings.application
    for name, value in (("remembered_keys", remembered), ("persistence", persistence), ("evidence_windows", 1)):
        sample = f'susurrus_release_{name}{{partition="0",pipeline="{of}",stage="release"}} {float(value)}'
        assert sample in published.pages.splitlines()


def test_some_rows_are_smoothed_and_some_keys_leave(published: Published) -> None:
    """Without this the other tests would say nothing."""
    last = published.release(TRIGGERS)
    smoothed = [key for key, values in last.items() if "smoothed" in values["hosts"]]
    assert len(smoothed) >= 40
    assert any(number_of(last[key]) != number_of(last[key], "estimate") for key in smoothed)
    assert all("direct" in values["hosts"] for values in last.values())
    assert not any("smoothed" in values["size"] for row in published.rows for values in [row["values"]])
    assert not any("smoothed" in row["values"]["hosts"] for row in published.rows if row["window_start"] != SECOND_DAY)
    keys = [set(published.release(trigger)) for trigger in range(1, TRIGGERS + 1)]
    assert any(before - after for before, after in itertools.pairwise(keys))


@pytest.mark.parametrize("number", ["smoothed", "estimate", "direct"])
def test_a_release_has_the_numbers_of_its_rows(published: Published, number: Any) -> None:
    found = of_second_day(published)
    assert [release.trigger for release in found] == list(range(1, TRIGGERS + 1))
    for release in (each.showing(number) for each in found):
        wanted = {key: number_of(values, number) for key, values in published.release(release.trigger).items()}
        column = release.columns["hosts"]
        assert {
            key: (column.at(row).estimate, column.at(row).std_error) for row, key in enumerate(release.keys)
        } == wanted
        order = [wanted[release.keys[row]][0] for row in release.largest()]
        assert order == sorted((estimate for estimate, _ in wanted.values()), reverse=True)
        values = published.release(release.trigger).values()
        direct = [number_of(each, "direct") for each in values]
        # Which rows are shown goes by the noise of direct numbers until the last trigger (decision 49).
        added = direct if release.trigger == TRIGGERS else [number_of(each, "smoothed") for each in values]
        assert release.total("hosts").estimate == pytest.approx(sum(estimate for estimate, _ in added))
        assert release.total("hosts").std_error == pytest.approx(np.sqrt(sum(error**2 for _, error in direct)))


def test_latest_holds_the_last_release_and_nothing_of_keys_that_left(published: Published) -> None:
    kept = [row for row in published.latest.values() if row is not None and row["window_start"] == SECOND_DAY]
    assert {row["key"]: row["values"] for row in kept} == published.release(TRIGGERS)
    assert {row["trigger"] for row in kept} == {TRIGGERS}
    gone = {json.loads(key)["key"] for key, row in published.latest.items() if row is None}
    once = {key for trigger in range(1, TRIGGERS) for key in published.release(trigger)}
    assert gone == once - published.release(TRIGGERS).keys()


def test_the_ranking_is_of_the_shown_numbers(published: Published) -> None:
    for record in published.top:
        if record["window_start"] == SECOND_DAY:
            rows = published.release(record["trigger"])
            first = sorted(rows, key=lambda key: (-number_of(rows[key])[0], json.dumps(key)))[:3]
            assert [row["key"] for row in record["rows"]] == first
            assert [row["values"] for row in record["rows"]] == [rows[key] for key in first]
    last = of_second_day(published)[-1]
    assert last.top().keys == [row["key"] for row in published.top[-1]["rows"]]


def test_watch_and_its_files_have_them(published: Published, tmp_path: Path) -> None:
    rows = published.release(TRIGGERS)
    with view_of(published.settings, window=of_second_day(published)[0].window_start) as view:
        while not view.caught_up:
            view.poll(0.2)
        records = {record["url"]: record for record in view.records()}
    assert records.keys() == rows.keys()
    for key, record in records.items():
        assert (record["hosts"], record["hosts_std_error"]) == number_of(rows[key])
        assert record["hosts_estimate"] == number_of(rows[key], "estimate")[0]
        assert record["hosts_direct"] == number_of(rows[key], "direct")[0]
        assert record["hosts_smoothed"] == rows[key]["hosts"].get("smoothed", {}).get("estimate")


def test_the_board_has_them(published: Published) -> None:
    settings = HistogramSettings.of(published.settings)
    board = pipeline_of(published.settings).board(windows=2, curve_bytes=1 << 24)
    assert isinstance(board, HistogramBoard)
    for release in releases(published.settings, follow=False):
        board.windows.add(release)
    assert board.state(0)["numbers"] == ["smoothed", "estimate", "direct"]
    rows = published.release(TRIGGERS)
    for number in ("smoothed", "estimate", "direct"):
        table = board.answer("table", {"number": number, "limit": "200", "column": settings.published_columns[0].name})
        found = {row["key"][0][0]: tuple(row["values"]["hosts"]) for row in table["rows"]}
        assert found == {key: number_of(values, number) for key, values in rows.items()}
        assert table["smoothed"] == sum("smoothed" in values["hosts"] for values in rows.values())
    name = next(row["name"] for row in table["rows"])
    curve = board.answer("curves", {"key": name, "windows": str(of_second_day(published)[0].window_start)})
    [points] = [each["points"] for each in curve["curves"]]
    key = curve["key"][0][0]
    there = [trigger for trigger in range(1, TRIGGERS + 1) if key in published.release(trigger)]
    assert [trigger for trigger, *_ in points] == there
    assert [tuple(of) for _, _, *of in points] == [number_of(published.release(trigger)[key]) for trigger in there]
