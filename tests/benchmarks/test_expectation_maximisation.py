"""EM and EMS against the textbook, on matrices that were integrated directly, and on distributions that must come back."""

import math

import numpy as np
import pytest
from expectation_maximisation import maximise, smooth

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.reconstruction import Transition
from susurrus.mechanisms.local.wave import SquareWave
from tests.mechanisms.local.test_wave import Floats, direct, seeded


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
        found = maximise(Transition(wave, edges, 96).dense(), counts, smoothing=smoothing)
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
            found = maximise(Transition(wave, edges, 256).dense(), counts, smoothing=smoothing, tolerance=tolerance)
            assert np.abs(np.cumsum(found) - np.cumsum(truth)).max() < 0.04
        wrong = maximise(Transition(SquareWave(1.0, 100.0), edges, 256).dense(), counts, tolerance=1e-3 * math.exp(1.0))
        assert np.abs(np.cumsum(wrong) - np.cumsum(truth)).max() > 0.04

    def test_smoothing_keeps_the_total_and_spreads_a_spike(self) -> None:
        spike = np.zeros(9)
        spike[4] = 1.0
        np.testing.assert_allclose(smooth(spike)[3:6], [0.25, 0.5, 0.25])
        assert smooth(np.random.default_rng(0).random(30)).sum() == pytest.approx(1.0)

    def test_no_reports_no_distribution(self) -> None:
        with pytest.raises(ConfigurationError, match="counts=0"):
            maximise(Transition(SquareWave(1.0, 1.0), np.array([0.0, 1.0]), 4).dense(), np.zeros(4, dtype=np.int64))
