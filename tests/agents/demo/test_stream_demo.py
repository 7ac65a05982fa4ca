"""The stream demonstration as people run it, its chart."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from susurrus.agents.demo.meter import from_file, smart_meter
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.demo.running import run_demo


def total(text: str) -> tuple[float, float, float]:
    found = re.search(r"private ([\d,]+) ± ([\d,]+), true ([\d,]+)", text)
    assert found is not None, text
    private, margin, true = (float(part.replace(",", "")) for part in found.groups())
    return private, margin, true


@pytest.mark.thorough
def test_the_demo_runs_from_end_to_end_and_leaves_nothing(tmp_path: Path) -> None:
    text = run_demo(tmp_path, "--stream")
    private, margin, true = total(text)
    assert abs(private - true) < 3 * margin + 0.01 * true  # six standard errors, and what clipping leaves out
    assert margin < 0.05 * true
    assert "in W: ● private   │ its error bar (95 %)   ━ true" in text  # told apart without colour
    assert re.search(r"└[─┬]+\n +day \d+ ", text)
    held = re.search(r"of (\d+) means of 360 readings; (\d+) of their error bars", " ".join(text.split()))
    assert held is not None, text
    means, inside = map(int, held.groups())
    assert inside >= 0.8 * means  # 95 % bars: fewer than 80 % of some ninety about once in a million runs
    assert "any one event" in text


@pytest.mark.thorough
def test_a_file_of_ones_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", values=np.random.default_rng(0).integers(1, 40, 9000))
    private, margin, true = total(
        run_demo(tmp_path, "--stream", "--data", "mine.npz", "--bound", "1000", "--epsilon", "4")
    )
    assert abs(private - true) < 3 * margin + 0.02 * true


def test_files_that_cannot_be_a_series_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "short.npz", values=np.ones(10))
    np.savez(tmp_path / "other.npz", numbers=np.ones(10_000))
    for name in ("short.npz", "other.npz", "missing.npz"):
        with pytest.raises(ConfigurationError, match="--data"):
            from_file(tmp_path / name, 100.0)


def test_the_meter_is_the_same_every_time() -> None:
    assert np.array_equal(smart_meter(2000).values, smart_meter(2000).values)
    assert smart_meter(2000).values.max() <= smart_meter(2000).bound


def test_a_point_of_the_chart_is_a_quarter_of_a_day_or_a_round_number_of_readings() -> None:
    meter = smart_meter(10_000)
    assert (meter.piece(9_000, 20), meter.span(360)) == (360, "6 hours")
    assert meter.labels([1080, 1440, 1800]) == [(1, "day 2")]
    file = replace(meter, per_day=None)
    assert [file.piece(n, 20) for n in (20, 21, 400, 9_000, 20_000, 20_001)] == [1, 2, 20, 500, 1_000, 2_000]
    assert file.span(500) == "500 readings"
    assert file.labels([0, 1500]) == [(0, "0"), (1, "1,500")]
