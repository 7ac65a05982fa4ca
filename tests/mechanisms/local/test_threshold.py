"""The threshold's objective against brute-force simulation, its choice, and the fitted distribution behind it."""

import math

import numpy as np
import pytest

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local import shape
from susurrus.mechanisms.local.hybrid import Hybrid, hybrid_alpha
from susurrus.mechanisms.local.reconstruction import Transition
from susurrus.mechanisms.local.shape import fit_distribution
from susurrus.mechanisms.local.threshold import (
    Distribution,
    choose_threshold,
    expected_squared_error,
    round_up,
)
from susurrus.mechanisms.local.wave import SquareWave, place
from tests.samples import samples, seeded


def histogram(values: np.ndarray, bound: float, buckets: int = 400) -> Distribution:
    counts, edges = np.histogram(values, buckets, (0, bound))
    return Distribution(edges, counts / counts.sum())


class TestDistribution:
    def test_excess_and_moments_are_those_of_a_sample(self) -> None:
        values = np.random.default_rng(0).gamma(2.0, 10.0, 200_000).clip(0, 200)
        thetas = np.array([1.0, 20.0, 77.7, 200.0])
        distribution = histogram(values, 200.0, 2000)
        first, second = distribution.clipped_moments(thetas)
        for k, theta in enumerate(thetas):
            clipped = np.minimum(values, theta)
            assert distribution.excess(thetas)[k] == pytest.approx((values - clipped).mean(), rel=1e-3, abs=1e-6)
            assert first[k] == pytest.approx(clipped.mean(), rel=1e-3)
            assert second[k] == pytest.approx((clipped**2).mean(), rel=1e-3)


@pytest.mark.statistical
class TestObjective:
    @pytest.mark.parametrize(("theta", "alpha"), [(25.0, 0.0), (25.0, 1.0), (80.0, hybrid_alpha(1.0))])
    def test_it_is_the_mean_squared_error_of_random_range_sums(self, theta: float, alpha: float) -> None:
        """Simulated from raw values to decoded reports; the authors' weights miss it by far."""
        rng = np.random.default_rng(1)
        n, hybrid, errors = 4000, Hybrid(1.0, alpha), []
        for k in range(samples(150)):
            values = rng.exponential(20.0, n).clip(0, 200)
            decoded = theta * hybrid.decode(hybrid.randomise(values / theta, seeded(k)))
            gap = np.concatenate(([0.0], np.cumsum(decoded - values)))
            ends = np.sort(rng.integers(0, n, (200, 2)), axis=1)
            errors.append(np.mean((gap[ends[:, 1]] - gap[ends[:, 0]]) ** 2))
        expected = expected_squared_error(
            histogram(rng.exponential(20.0, 400_000).clip(0, 200), 200.0), np.array([theta]), hybrid, n
        )[0]
        spread = np.std(errors) / math.sqrt(len(errors))
        assert np.mean(errors) == pytest.approx(expected, abs=5 * spread + 0.02 * expected)

    def test_the_authors_weights_are_sixteen_to_one(self) -> None:
        """(2 theta)^2 for theta^2 and n^2/24 for n^2/6, at a value whose noise is the worst case."""
        n, theta, epsilon = 1000, 30.0, 0.5
        worst = ((math.exp(epsilon) + 1) / math.expm1(epsilon)) ** 2
        ours_noise = n / 3 * theta**2 * float(Hybrid(epsilon, 0.0).variance(np.array([0.5]))[0])
        authors_noise = n / 3 * worst * theta**2
        assert (authors_noise / (n**2 / 24)) / (ours_noise / (n**2 / 6)) == pytest.approx(16.0)


class TestChoice:
    def test_it_is_the_minimum_over_thetas_and_alphas(self) -> None:
        distribution = histogram(np.random.default_rng(2).exponential(20.0, 100_000).clip(0, 1000), 1000.0)
        thetas = np.linspace(10, 1000, 100)
        chosen = choose_threshold(distribution, 1.0, 2**20, thetas=thetas)
        for alpha in (0.0, hybrid_alpha(1.0), 1.0):
            errors = expected_squared_error(distribution, thetas, Hybrid(1.0, alpha), 2**20)
            assert chosen.expected_squared_error <= errors.min()
        assert 80 < chosen.theta < 180

    def test_more_values_and_more_budget_raise_theta(self) -> None:
        distribution = histogram(np.random.default_rng(2).exponential(20.0, 100_000).clip(0, 1000), 1000.0)
        theta = [choose_threshold(distribution, e, n).theta for e, n in ((0.2, 2**16), (0.2, 2**22), (2.0, 2**22))]
        assert theta[0] < theta[1] < theta[2]

    def test_no_horizon_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="values=0"):
            choose_threshold(Distribution(np.array([0.0, 1.0]), np.array([1.0])), 1.0, 0)

    @pytest.mark.parametrize(
        ("theta", "rounded"), [(38.98123, 38.99), (1.0, 1.0), (0.00123456, 0.001235), (99999.0, 100000.0)]
    )
    def test_rounding_up_to_four_digits(self, theta: float, rounded: float) -> None:
        assert round_up(theta) == rounded


@pytest.mark.statistical
class TestFit:
    CASES = ("exponential", "lognormal", "normal", "zeros", "uniform")

    @staticmethod
    def sample(case: str, n: int) -> tuple[np.ndarray, float]:
        rng = np.random.default_rng(11)
        return {
            "exponential": (rng.exponential(20.0, n).clip(0, 1000), 1000.0),
            "lognormal": (rng.lognormal(1.7, 0.8, n).clip(0, 1638), 1638.0),
            "normal": (rng.normal(200, 20, n).clip(0, 2000), 2000.0),
            "zeros": (np.where(rng.random(n) < 0.8, 0.0, rng.exponential(30.0, n)).clip(0, 1000), 1000.0),
            "uniform": (rng.uniform(0, 100, n), 100.0),
        }[case]

    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize(("epsilon", "factor"), [(0.6, 4.0), (2.0, 2.5)])
    def test_the_threshold_costs_little_over_the_best_one(self, case: str, epsilon: float, factor: float) -> None:
        """Expected error under the TRUE distribution of the chosen (theta, alpha), against the true optimum."""
        values, bound = self.sample(case, 65_536)
        wave = SquareWave(epsilon, bound, "log")
        counts = wave.bucket_counts(wave.randomise(values, seeded(13)), 256)
        chosen = choose_threshold(fit_distribution(wave, counts), epsilon, 2**20)
        truth = histogram(values, bound, 5000)
        best = choose_threshold(truth, epsilon, 2**20).expected_squared_error
        got = expected_squared_error(truth, np.array([chosen.theta]), Hybrid(epsilon, chosen.alpha), 2**20)[0]
        assert got < factor * best

    @pytest.mark.parametrize(("case", "epsilon", "matters"), [("zeros", 0.2, True), ("normal", 2.0, False)])
    def test_narrow_shapes_are_rare_where_reports_do_not_tell(
        self, case: str, epsilon: float, matters: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Most values are 0: reports fit a spike at the others' mean as well, and a theta for it cuts their tail off."""
        values, bound = self.sample(case, 10**6)
        wave = SquareWave(epsilon, bound, "log")
        edges = np.linspace(0.0, 1.0, 513)
        shares = np.histogram(place(values, bound, wave.scale), edges)[0] / len(values)
        expected = np.rint(Transition(wave, edges, 256).dense() @ shares * 65_536).astype(np.int64)
        best = choose_threshold(histogram(values, bound, 5000), epsilon, 2**20).theta
        theta = choose_threshold(fit_distribution(wave, expected), epsilon, 2**20).theta
        monkeypatch.setattr(shape, "LOG_DEVIATIONS", dict.fromkeys(shape.LOG_DEVIATIONS, 1.0))
        as_likely = choose_threshold(fit_distribution(wave, expected), epsilon, 2**20).theta
        if matters:
            assert as_likely < 0.75 * best < 0.9 * best < theta < 1.2 * best
        else:
            assert theta == pytest.approx(as_likely, rel=0.02)

    def test_the_fit_is_a_distribution(self) -> None:
        wave = SquareWave(1.0, 10.0, "log")
        counts = np.bincount(np.random.default_rng(0).integers(0, 256, 100), minlength=256)
        fitted = fit_distribution(wave, counts)
        assert fitted.frequencies.sum() == pytest.approx(1.0)
        assert (fitted.frequencies >= 0).all()
        assert (fitted.edges[0], fitted.edges[-1]) == (0.0, pytest.approx(10.0))

    def test_no_reports_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="counts=0"):
            fit_distribution(SquareWave(1.0, 1.0, "log"), np.zeros(256, dtype=np.int64))
