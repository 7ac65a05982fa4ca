"""Square Wave: its parameters, its transition matrix against direct integration, and reports against the matrix."""

import math

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.reconstruction import Transition
from susurrus.mechanisms.local.wave import SquareWave, half_width, place, unplace
from susurrus.mechanisms.local.window import GRID
from tests.samples import samples, seeded

Floats = npt.NDArray[np.float64]


@pytest.mark.parametrize("epsilon", [0.001, 0.0099, 0.0101, 0.2, 1.0, 5.0])
def test_half_width_is_the_papers_equation(epsilon: float) -> None:
    with mpmath.workdps(50):
        e = mpmath.mpf(epsilon)
        b = (e * mpmath.exp(e) - mpmath.exp(e) + 1) / (2 * mpmath.exp(e) * (mpmath.exp(e) - 1 - e))
    assert half_width(epsilon) == pytest.approx(float(b), rel=1e-4)


@given(st.floats(0, 1638), st.sampled_from(["linear", "log"]))
def test_placing_is_monotone_and_invertible(value: float, scale: str) -> None:
    placed = place(np.array([value, min(value * 1.01 + 0.1, 1638.0)]), 1638.0, scale)
    assert 0 <= placed[0] <= placed[1] <= 1
    assert unplace(placed, 1638.0, scale)[0] == pytest.approx(value, rel=1e-9, abs=1e-9)


def direct(wave: SquareWave, edges: Floats, outputs: int, steps: int = 2000) -> Floats:
    """The matrix by midpoint integration of the report's density over each input bucket: slow and obvious."""
    share = wave.window.width / wave.window.cells
    inside = wave.window.inside / 2**64
    low, high = (1 - inside) / (1 - share), inside / share
    out = np.linspace(0, 1, outputs + 1)
    matrix = np.empty((outputs, edges.size - 1))
    for i in range(edges.size - 1):
        v = edges[i] + (np.arange(steps) + 0.5) / steps * (edges[i + 1] - edges[i])
        start = v * (1 - share)
        covered = np.clip(out[None, :], start[:, None], (start + share)[:, None])
        covered = np.diff(covered, axis=1)
        matrix[:, i] = (low * np.diff(out)[None, :] + (high - low) * covered).mean(axis=0)
    return matrix


class TestTransition:
    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
    @pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 13), (32, 32), (50, 9)])
    def test_equals_direct_integration(self, epsilon: float, inputs: int, outputs: int) -> None:
        wave, edges = SquareWave(epsilon, 10.0), np.linspace(0, 1, inputs + 1)
        np.testing.assert_allclose(
            Transition(wave, edges, outputs).dense(), direct(wave, edges, outputs), atol=2e-6, rtol=1e-4
        )

    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
    def test_columns_are_distributions_and_entries_keep_the_ratio(self, epsilon: float) -> None:
        matrix = Transition(SquareWave(epsilon, 1.0), np.linspace(0, 1, 201), 333).dense()
        np.testing.assert_allclose(matrix.sum(axis=0), 1.0, rtol=1e-10)
        ratio = matrix.max(axis=1) / matrix.min(axis=1)
        assert ratio.max() <= math.exp(epsilon) * (1 + 1e-6)

    def test_uneven_buckets(self) -> None:
        wave, edges = SquareWave(1.0, 1.0), np.array([0.0, 0.01, 0.3, 0.31, 1.0])
        np.testing.assert_allclose(Transition(wave, edges, 20).dense(), direct(wave, edges, 20), atol=2e-6)

    @pytest.mark.statistical
    def test_reports_fall_where_the_matrix_says(self) -> None:
        wave = SquareWave(1.0, 10.0)
        values = np.random.default_rng(1).uniform(2.0, 4.0, samples(200_000))
        counts = wave.bucket_counts(wave.randomise(values, seeded(2)), 25)
        expected = Transition(wave, np.linspace(0, 1, 6), 25).dense()[:, 1] * values.size
        assert ((counts - expected) ** 2 / expected).sum() < 70  # 24 degrees of freedom, p about 2e-6

    def test_bad_edges_are_refused(self) -> None:
        with pytest.raises(ConfigurationError):
            Transition(SquareWave(1.0, 1.0), np.array([0.0, 0.5, 0.5, 1.0]), 8)


def test_bucket_counts_count_every_code_once() -> None:
    wave = SquareWave(1.0, 1.0)
    codes = np.array([0, 1, GRID // 2, GRID - 1])
    assert wave.bucket_counts(codes, 3).tolist() == [2, 1, 1]


@given(st.floats(0, 50), st.sampled_from(["linear", "log"]), st.integers(0, 2**31))
def test_one_report_equals_the_batch(value: float, scale: str, seed: int) -> None:
    wave = SquareWave(1.0, 50.0, scale)
    drawn = seeded(seed)(2)
    words = iter(int(w) for w in drawn)
    one = wave.randomise_one(value, lambda: next(words))
    batch = wave.randomise(np.array([value]), lambda n: drawn[:n])[0]
    assert abs(one - batch) <= 1  # math.log1p and numpy's may differ in the last place


@pytest.mark.parametrize(("bound", "scale"), [(0.0, "linear"), (math.inf, "linear"), (math.nan, "log"), (1.0, "cubic")])
def test_unusable_domains_are_refused(bound: float, scale: str) -> None:
    with pytest.raises(ConfigurationError, match="="):
        SquareWave(1.0, bound, scale)
