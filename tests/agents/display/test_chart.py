"""The chart: every mark is in its row, none hides another, and no line is wider than the terminal."""

import re

import numpy as np
import pytest

from susurrus.agents.display.chart import HEIGHT, Chart, room


def body(chart: Chart) -> list[str]:
    """The rows of points from the lowest up, without the axis."""
    return [line.plain[9:] for line in chart.lines()[2:-2]][::-1]


def chart(values: list[float], margins: list[float] | None = None, true: list[float] | None = None) -> Chart:
    return Chart(
        title="t",
        unit="W",
        values=np.array(values),
        margins=np.zeros(len(values)) if margins is None else np.array(margins),
        true=None if true is None else np.array(true),
        labels=[(point, f"day {point}") for point in range(len(values))],
    )


def test_every_value_is_in_its_row_and_the_truth_beside_it() -> None:
    values = [10.0 * row for row in range(HEIGHT)]  # labels at multiples of 50: rows of 50 / 3
    rows = body(chart(values, true=values[::-1]))
    assert len(rows) == HEIGHT
    for point, (value, true) in enumerate(zip(values, values[::-1], strict=True)):
        assert [row[3 * point] for row in rows].index("●") == round(value / (50 / 3))
        assert [row[3 * point + 1] for row in rows].index("━") == round(true / (50 / 3))
        assert all(row[3 * point + 2] == " " for row in rows)


def test_a_value_never_hides_the_truth() -> None:
    [row] = [row for row in body(chart([7.0, 100.0], true=[7.0, 100.0])) if row.startswith("●")]
    assert row.startswith("●━ ")


def test_the_error_bar_reaches_as_far_as_it_says() -> None:
    column = [row[0] for row in body(chart([60.0, 120.0], [40.0, 0.0]))]
    step = 50 / 3
    marked = [row for row, mark in enumerate(column) if mark == "│"]
    assert (min(marked), max(marked)) == (round(20 / step), round(100 / step))
    assert column[round(60 / step)] == "●"


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [5.0, 5.0], [-3.0, 4.0], [-8.0, -2.0], [1e-6, 2e-6], [3e9, 1e12], [-1e4, 1e4]]
)
def test_labels_are_round_and_hold_all_values(values: list[float]) -> None:
    lines = chart(values, [0.0, 0.0]).lines()
    labels = [line.plain[:7].strip() for line in lines[2:-2]]
    assert "●" in "".join(body(chart(values)))
    assert all(re.fullmatch(r"-?[\d,]+(\.\d+)?(e-\d+|[MGT])?", label) for label in labels if label), labels
    assert sum(bool(label) for label in labels) == 5
    assert {line.plain[8] for line in lines[2:-2]} == {"┤", "│"}


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_as_many_points_as_there_is_room_for_fit(width: int) -> None:
    n = room(width)
    lines = chart([float(i) for i in range(n)]).lines()
    assert max(len(line.plain) for line in lines[2:]) <= width
    assert len(lines[-2].plain) > width - 6


def test_labels_below_the_axis_do_not_touch() -> None:
    below = chart([1.0] * 20).lines()[-1].plain
    assert below.split("  ")[-1].strip().startswith("day")
    assert "day 0  day" not in below.replace("   ", "  ") or "day 0" in below
    assert all(part.strip().startswith("day ") for part in below.strip().split("  ") if part.strip())


def test_without_a_point_there_is_no_chart() -> None:
    with pytest.raises(ValueError, match="point"):
        chart([]).lines()
