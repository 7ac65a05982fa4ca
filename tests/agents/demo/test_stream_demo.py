"""The stream demonstration as people run it, its plot, and reading a stream back from its rows."""

import re
from pathlib import Path

import numpy as np
import pytest

from susurrus.agents.demo.meter import from_file, smart_meter
from susurrus.agents.demo.stream import HEIGHT, plot
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.demo.running import run_demo


def total(text: str) -> tuple[float, float, float]:
    found = re.search(r"private ([\d,]+) ± ([\d,]+), true ([\d,]+)", text)
    assert found is not None, text
    private, margin, true = (float(part.replace(",", "")) for part in found.groups())
    return private, margin, true


def test_the_demo_runs_from_end_to_end_and_leaves_nothing(tmp_path: Path) -> None:
    text = run_demo(tmp_path, "--stream")
    private, margin, true = total(text)
    assert abs(private - true) < 3 * margin + 0.01 * true  # six standard errors, and what clipping leaves out
    assert margin < 0.05 * true
    assert "●" in text
    assert "any one event" in text


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


def test_the_plot_puts_every_value_in_its_row() -> None:
    values = np.linspace(0.0, 130.0, HEIGHT)
    lines = plot(values, values, np.zeros(HEIGHT))
    assert len(lines) == HEIGHT
    for height, line in enumerate(reversed(lines)):
        body = line.plain[9:]
        assert body.index("●") == height
        assert body.count("●") == 1


def test_the_meter_is_the_same_every_time() -> None:
    assert np.array_equal(smart_meter(2000).values, smart_meter(2000).values)
    assert smart_meter(2000).values.max() <= smart_meter(2000).bound
