"""Square Wave: its parameters, its transition matrix against direct integration, and EM against a dense reference."""

import math

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.reconstruction import Transition, maximise, smooth
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

    def test_the_adjoint_is_the_transpose(self) -> None:
        transition = Transition(SquareWave(0.7, 1.0), np.linspace(0, 1, 65), 100)
        rng = np.random.default_rng(0)
        f, g = rng.random(64), rng.random(100)
        assert g @ transition.forward(f) == pytest.approx(transition.adjoint(g) @ f, rel=1e-12)

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


def dense_em(matrix: Floats, counts: Floats, smoothing: bool, tolerance: float) -> Floats:
    """Textbook EM with matrix products."""
    d = matrix.shape[1]
    f = np.full(d, 1 / d)
    before = counts @ np.log(matrix @ f)
    for _ in range(10_000):
        f = f * (matrix.T @ (counts / (matrix @ f)))
        f /= f.sum()
        if smoothing:
            kernel = sum(np.diag(np.full(d - abs(k), w), k) for k, w in ((-1, 1.0), (0, 2.0), (1, 1.0)))
            f = (kernel / kernel.sum(axis=1, keepdims=True)) @ f
            f /= f.sum()
        after = counts @ np.log(matrix @ f)
        if abs(after - before) < tolerance:
            break
        before = after
    return f


class TestMaximise:
    @pytest.mark.parametrize("smoothing", [False, True])
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_equals_the_dense_reference_step_by_step(self, epsilon: float, smoothing: bool) -> None:
        wave = SquareWave(epsilon, 100.0)
        values = np.random.default_rng(3).gamma(2.0, 10.0, 20_000)
        counts = wave.bucket_counts(wave.randomise(values, seeded(4)), 96)
        edges = np.linspace(0, 1, 65)
        found = maximise(Transition(wave, edges, 96), counts, smoothing=smoothing)
        reference = dense_em(direct(wave, edges, 96), counts.astype(float), smoothing, 1e-3)
        np.testing.assert_allclose(found, reference, atol=2e-4)

    @pytest.mark.statistical
    def test_the_distribution_comes_back(self) -> None:
        wave, rng = SquareWave(2.0, 100.0), np.random.default_rng(5)
        values = np.clip(rng.normal(40, 8, 65_536), 0, 100)
        truth = np.histogram(values, 64, (0, 100))[0] / values.size
        counts = wave.bucket_counts(wave.randomise(values, seeded(6)), 256)
        edges = np.linspace(0.0, 1.0, 65)
        for smoothing, tolerance in ((False, 1e-3 * math.exp(2.0)), (True, 1e-3)):
            found = maximise(Transition(wave, edges, 256), counts, smoothing=smoothing, tolerance=tolerance)
            assert np.abs(np.cumsum(found) - np.cumsum(truth)).max() < 0.04
        wrong = maximise(Transition(SquareWave(1.0, 100.0), edges, 256), counts, tolerance=1e-3 * math.exp(1.0))
        assert np.abs(np.cumsum(wrong) - np.cumsum(truth)).max() > 0.04

    def test_smoothing_keeps_the_total_and_spreads_a_spike(self) -> None:
        spike = np.zeros(9)
        spike[4] = 1.0
        np.testing.assert_allclose(smooth(spike)[3:6], [0.25, 0.5, 0.25])
        assert smooth(np.random.default_rng(0).random(30)).sum() == pytest.approx(1.0)

    def test_no_reports_no_distribution(self) -> None:
        with pytest.raises(ConfigurationError, match="counts=0"):
            maximise(Transition(SquareWave(1.0, 1.0), np.array([0.0, 1.0]), 4), np.zeros(4, dtype=np.int64))


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
