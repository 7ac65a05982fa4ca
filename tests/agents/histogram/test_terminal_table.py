"""The terminal table: error bars are right, any width works, and no key can write to the terminal."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from susurrus.agents.display.drawing import bar, margin
from susurrus.agents.frames import key_text, number
from susurrus.agents.histogram.estimates import Estimates, Release
from susurrus.agents.histogram.terminal_table import histogram_table
from susurrus.topics.histogram import Measured
from tests.agents.released import release_of


def snapshot(counts: dict[bytes, int], std_error: float = 10.0, fields: tuple[str, ...] = ("url",)) -> Release:
    """The second of four releases, by canonical key."""
    estimate = np.array(list(counts.values()), np.int64)
    columns = {"visits": Estimates(estimate, np.full(len(counts), std_error))}
    return release_of(list(map(json.loads, counts)), columns, trigger=2, fields=fields)


def drawn(width: int, found: Release, limit: int = 10, column: str | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(histogram_table(found, width=width, limit=limit, column=column))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 69, 70, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    found = snapshot({b'"/a/very/long/path/to/some/page/that/does/not/fit.html"': 1317, b'"/"': 12})
    lines = drawn(width, found)
    assert max(map(len, lines)) <= width
    assert len(lines) == 3
    assert "1,317" in lines[1]
    assert "20" in lines[1]


def test_the_bar_is_solid_to_the_lower_end_and_shaded_to_the_upper() -> None:
    text = bar(Measured(estimate=50, std_error=10 / 1.96), 100.0, 100).plain
    assert text == "█" * 40 + "░" * 20


@pytest.mark.parametrize("estimate", [-500, 0, 5, 10_000])
def test_a_bar_never_leaves_its_cell(estimate: int) -> None:
    assert len(bar(Measured(estimate=estimate, std_error=3.0), 100.0, 20).plain) <= 20
    assert bar(Measured(estimate=estimate, std_error=3.0), 0.0, 20).plain == ""


def test_rows_are_ordered_by_the_estimate_and_cut() -> None:
    found = snapshot({b'"a"': 1, b'"b"': 3, b'"c"': 2})
    assert [found.keys[row] for row in found.largest()] == ["b", "c", "a"]
    lines = drawn(80, found, limit=2)
    assert [line.split()[0] for line in lines[1:]] == ["b", "c"]


def test_another_column_can_lead() -> None:
    ones = np.ones(2)
    columns = {"visits": Estimates(np.array([1, 2]), ones), "bytes": Estimates(np.array([9, 3]), ones)}
    found = release_of(["a", "b"], columns)
    assert [found.keys[row] for row in found.largest(column="bytes")] == ["a", "b"]
    assert drawn(60, found, column="bytes")[0].split()[:2] == ["key", "bytes"]


def test_an_empty_trigger_is_an_empty_table() -> None:
    assert len(drawn(80, snapshot({}))) == 1
    assert "0 keys" in snapshot({}).caption(0)


@pytest.mark.parametrize(
    ("key", "text"),
    [("/a", "/a"), (["x", 1, None, True], "x · 1 · null · true"), (1.5, "1.5"), ("a\x1b[2Jb\n", "a�[2Jb�")],
)
def test_keys_are_for_people_and_never_control_the_terminal(key: object, text: str) -> None:
    assert key_text(key) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1317, "1,317"), (0, "0"), (-3, "-3"), (0.123456, "0.123"), (12345.6, "12,346"), (2.0, "2")]
)
def test_numbers_have_no_more_digits_than_mean_something(value: float, text: str) -> None:
    assert number(value) == text


def test_the_margin_is_the_95_percent_half_width() -> None:
    assert margin(Measured(estimate=5, std_error=100.0)) == "196"


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_keys_stay_readable_beside_many_columns(width: int) -> None:
    names = [f"seconds_of_a_visit_{number}" for number in range(6)]
    columns = {name: Estimates(np.array([1234.5]), np.array([56.78])) for name in names}
    lines = drawn(width, release_of(["/archive/reports/page"], columns))
    assert max(map(len, lines)) <= width
    shown = [name for name in names if name in lines[0]]
    assert shown == names[: {40: 1, 80: 2, 120: 3, 200: 5}[width]]
    assert "…" not in lines[0]
    assert lines[1].startswith("/archive" if width == 40 else "/archive/reports")
    assert f"{6 - len(shown)} more column" in lines[2]
    assert "--column" in lines[2]


def test_published_intervals_are_not_headed_as_half_widths() -> None:
    ends = np.array([75.1]), np.array([109.0])
    columns = {"visits": Estimates(np.array([5]), np.ones(1)), "p50": Estimates(np.array([91.7]), np.ones(1))}
    columns["p50"] = replace(columns["p50"], interval=ends)
    lines = drawn(120, release_of(["a"], columns))
    assert lines[0].split() == ["key", "visits", "±", "95", "%", "p50", "95", "%"]
    assert lines[1].split()[:6] == ["a", "5", "2", "91.7", "75.1", "to"]
