"""Noisy Max and the smooth quantile: sensitivities by brute force, exact divergences, and defects that are caught."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream.addresses import GRID
from susurrus.mechanisms.stream.quantile import (
    SmoothQuantile,
    dilation_delta,
    exact_smoothness,
    quantile_rank,
    smooth_sensitivity,
    textbook_smoothness,
    unit_laplace,
)
from susurrus.mechanisms.stream.threshold import NoisyMax, squared_error_slope
from tests.samples import samples


def noise(name: str = "p") -> WindowNoise:
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def streams(n: int) -> list[bytes]:
    return [b"stream-%d" % i for i in range(n)]


# --- Noisy Max ---------------------------------------------------------------------------------------------------


def brute_scores(values: list[int], mechanism: NoisyMax) -> list[int]:
    return [-sum(v > t for v in values) * GRID - round(t * mechanism.slope * GRID) for t in mechanism.candidates]


values_list = st.lists(st.integers(0, 12), min_size=1, max_size=8)


@given(values_list, st.sampled_from([0.0, 0.4, 1.7]))
def test_scores_are_the_corrected_query(values, slope):
    mechanism = NoisyMax(bound=10, epsilon=1.0, slope=slope, candidates=(1, 2, 4, 7, 10))
    clipped = [min(v, 10) for v in values]
    assert mechanism.scores(mechanism.count(np.array(values))).tolist() == brute_scores(clipped, mechanism)


@given(values_list, st.data())
def test_replacing_one_value_moves_all_scores_one_way_by_at_most_one(values, data):
    mechanism = NoisyMax(bound=10, epsilon=1.0, slope=0.4, candidates=tuple(range(1, 11)))
    other = list(values)
    other[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.integers(0, 12))
    change = (
        mechanism.scores(mechanism.count(np.array(other))) - mechanism.scores(mechanism.count(np.array(values)))
    ) / GRID
    assert set(change.tolist()) <= {0.0, 1.0} or set(change.tolist()) <= {0.0, -1.0}


def winning_probabilities(scores: list[float], epsilon: float, one_sided: bool) -> np.ndarray:
    """Exact mechanism of the argmax, by quadrature over the winner's noise."""

    def density(x: float) -> float:
        if one_sided:
            return epsilon * math.exp(-epsilon * x) if x >= 0 else 0.0
        return epsilon / 2 * math.exp(-epsilon * abs(x))

    def cumulative(x: float) -> float:
        if one_sided:
            return -math.expm1(-epsilon * x) if x >= 0 else 0.0
        return 1 - math.exp(-epsilon * x) / 2 if x >= 0 else math.exp(epsilon * x) / 2

    def chance(i: int) -> float:
        kinks = sorted({s - scores[i] for s in scores})
        points = [-60.0, *kinks, 60.0] if not one_sided else [0.0, *[k for k in kinks if k > 0], 60.0]
        parts = itertools.pairwise(points)

        def integrand(x: float) -> float:
            return density(x) * math.prod(cumulative(scores[i] + x - s) for j, s in enumerate(scores) if j != i)

        return sum(quad(integrand, a, b, epsabs=1e-13, limit=200)[0] for a, b in parts)

    return np.array([chance(i) for i in range(len(scores))])


@pytest.mark.parametrize("one_sided", [False, True], ids=["laplace", "exponential"])
class TestNoisyMaxPrivacy:
    EPSILON = 0.8

    @staticmethod
    def mechanism(one_sided: bool) -> NoisyMax:
        return NoisyMax(bound=6, epsilon=0.8, slope=0.3, candidates=(1, 2, 3, 4, 6), one_sided=one_sided)

    def loss(self, scores: list[float], neighbour: list[float], one_sided: bool) -> float:
        p = winning_probabilities(scores, self.EPSILON, one_sided)
        q = winning_probabilities(neighbour, self.EPSILON, one_sided)
        assert p.sum() == pytest.approx(1, abs=1e-6)
        return float(np.abs(np.log(p / q)).max())

    def test_no_pair_of_neighbours_loses_more_than_epsilon(self, one_sided):
        mechanism = self.mechanism(one_sided)
        worst = 0.0
        for low in range(0, 6, 2):
            for high in range(low + 1, 7, 2):
                one = mechanism.scores(mechanism.count(np.array([low, 2, 3, 5]))) / GRID
                two = mechanism.scores(mechanism.count(np.array([high, 2, 3, 5]))) / GRID
                worst = max(worst, self.loss(list(one), list(two), one_sided))
        assert 0.1 < worst <= self.EPSILON + 1e-6

    def test_half_the_noise_would_be_caught(self, one_sided):
        """The same mechanism with scores doubled is noise of scale 1 / (2 epsilon): some pair loses more than epsilon."""
        assert self.loss([0.0, 0, 0, 0, -20], [0.0, 0, -2, -2, -20], one_sided) > self.EPSILON


@pytest.mark.statistical
def test_release_follows_the_exact_law():
    mechanism = NoisyMax(bound=6, epsilon=0.8, slope=0.3, candidates=(1, 2, 3, 4, 6), one_sided=True)
    counts = mechanism.count(np.array([0, 2, 3, 5]))
    n = samples(20_000)
    thetas = mechanism.release(np.tile(counts, (n, 1)), noise(), streams(n))
    seen = np.array([(thetas == t).mean() for t in mechanism.candidates])
    expected = winning_probabilities(list(mechanism.scores(counts) / GRID), 0.8, True)
    assert np.abs(seen - expected).max() < 5 * math.sqrt(0.25 / n)


@pytest.mark.statistical
def test_theta_from_the_unclipped_maximum_is_caught():
    """A planted threshold that follows one value: some output tells the neighbours apart by far more than epsilon."""

    def planted(values: np.ndarray, n: int) -> np.ndarray:
        draws = np.random.default_rng(0).laplace(0, 1.0, n)
        return np.rint(values.max() + draws)

    def distinguished(one: np.ndarray, two: np.ndarray, epsilon: float) -> bool:
        cut = (one.mean() + two.mean()) / 2
        p, q = (one > cut).mean(), (two > cut).mean()
        n = len(one)
        return bool(p - 4 / math.sqrt(n) > math.exp(epsilon) * (q + 4 / math.sqrt(n)))

    n = 4000
    quiet = np.full(500, 3)
    loud = quiet.copy()
    loud[0] = 1000
    mechanism = NoisyMax.of(bound=1000, epsilon=1.0, holdout=500, range_limit=4096, fanout=16)
    ours = [
        mechanism.release(np.tile(mechanism.count(v), (n, 1)), noise(), streams(n)).astype(float) for v in (loud, quiet)
    ]
    assert not distinguished(*ours, 1.0)
    assert distinguished(planted(loud, n), planted(quiet, n), 1.0)


def test_the_slope_is_the_papers():
    expected = 65536 / (20 * 2**20 * 0.1) * math.sqrt(2 * 15 * 5**3)
    assert squared_error_slope(holdout=65536, range_limit=2**20, epsilon=0.1, fanout=16) == pytest.approx(expected)


def test_a_stream_keeps_its_theta_whoever_it_is_batched_with():
    mechanism = NoisyMax.of(bound=100, epsilon=0.5, holdout=50, range_limit=4096, fanout=16)
    rng = np.random.default_rng(0)
    counts = np.stack([mechanism.count(rng.integers(0, 100, 50)) for _ in range(4)])
    together = mechanism.release(counts, noise(), streams(4))
    alone = [int(mechanism.release(counts[i : i + 1], noise(), [s])[0]) for i, s in enumerate(streams(4))]
    assert together.tolist() == alone


# --- Smooth sensitivity -------------------------------------------------------------------------------------------


def smooth_sensitivity_by_definition(values: np.ndarray, rank: int, smoothness: float, bound: int) -> float:
    """Return max_k e^{-bk} max_t (x_(P+t) - x_(P+t-k-1)), by brute force."""
    m = len(values)
    x = np.sort(np.clip(values, 0, bound))

    def at(position: int) -> int:
        return 0 if position < 1 else bound if position > m else int(x[position - 1])

    return max(
        math.exp(-smoothness * k) * max(at(rank + t) - at(rank + t - k - 1) for t in range(k + 2)) for k in range(m + 1)
    )


@settings(max_examples=300)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=24), st.data(), st.sampled_from([0.01, 0.05, 0.3, 1.0, 4.0]))
def test_smooth_sensitivity_equals_its_definition(values, data, smoothness):
    rank = data.draw(st.integers(1, len(values)))
    fast = smooth_sensitivity(np.array(values), rank, smoothness, 30)
    assert fast == pytest.approx(smooth_sensitivity_by_definition(np.array(values), rank, smoothness, 30), rel=1e-12)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=5), st.data())
def test_smooth_sensitivity_is_smooth_and_bounds_the_local_one(values, data):
    """The two properties the proof needs, over all neighbours."""
    b, bound = 0.3, 5
    rank = data.draw(st.integers(1, len(values)))
    here = smooth_sensitivity(np.array(values), rank, b, bound)
    for i in range(len(values)):
        for v in range(bound + 1):
            other = np.array([*values[:i], v, *values[i + 1 :]])
            assert smooth_sensitivity(other, rank, b, bound) <= math.exp(b) * here + 1e-9
            assert abs(int(np.sort(other)[rank - 1]) - sorted(values)[rank - 1]) <= here + 1e-9


def test_an_off_by_one_in_the_smooth_sensitivity_is_caught():
    """e^{-b(j-i)} for e^{-b(j-i-1)} no longer bounds the local sensitivity."""
    values, rank, b, bound = np.array([0, 0, 5, 5, 5]), 2, 0.3, 5
    x = np.concatenate(([0], np.sort(values), [bound]))
    planted = max(
        (x[j] - x[i]) * math.exp(-b * (j - i)) for i in range(rank + 1) for j in range(max(rank, i + 1), len(x))
    )
    moved = int(np.sort([5, 0, 5, 5, 5])[rank - 1]) - int(np.sort(values)[rank - 1])
    assert moved > planted
    assert moved <= smooth_sensitivity(values, rank, b, bound)


def test_smooth_sensitivity_of_65536_values_equals_a_dense_block():
    rng = np.random.default_rng(0)
    values = np.minimum(np.rint(rng.lognormal(3, 1, 65_536)), 3000).astype(np.int64)
    b, rank = 0.002, quantile_rank(65_536, 0.005)
    x = np.concatenate((np.zeros(1), np.sort(values), [3000.0]))
    i, j = np.arange(rank - 5000, rank + 1), np.arange(rank, len(x))
    i = i[i >= 0]
    score = (x[j][None] - x[i][:, None]) * np.exp(-b * np.maximum(j[None] - i[:, None] - 1, 0))
    assert smooth_sensitivity(values, rank, b, 3000) == pytest.approx(score.max(), rel=1e-12)


class TestDilation:
    """delta' of Laplace noise with b-smooth scale, against numerical integration of the hockey stick."""

    @staticmethod
    def integrated(epsilon: float, b: float) -> float:
        """sup of int (p - e^eps q)+ over both directions: p = Lap(1), q = Lap(e^+-b) shifted by up to a = eps / 2."""
        a, worst = epsilon / 2, 0.0
        for stretch in (math.exp(b), math.exp(-b)):
            shift = a * min(1.0, stretch)  # the two quantiles differ by at most the smaller smooth sensitivity

            def difference(x: float, stretch: float = stretch, shift: float = shift) -> float:
                p = math.exp(-abs(x)) / 2
                return max(0.0, p - math.exp(epsilon) * math.exp(-abs(x - shift) / stretch) / (2 * stretch))

            cuts = np.linspace(-80, 80, 641)
            total = sum(quad(difference, u, v, epsabs=1e-14)[0] for u, v in itertools.pairwise(cuts))
            worst = max(worst, total)
        return worst

    @pytest.mark.parametrize(("epsilon", "b"), [(1.0, 0.1), (1.0, 0.3), (2.0, 0.2)])
    def test_exact_delta_covers_the_integrated_one(self, epsilon, b):
        assert self.integrated(epsilon, b) <= dilation_delta(epsilon, b) * (1 + 1e-6) + 1e-12

    def test_figures_at_the_textbook_and_the_largest_smoothness(self):
        delta = 2.0**-20
        assert textbook_smoothness(1, delta) == pytest.approx(1 / (2 * math.log(2 / delta)))
        assert dilation_delta(1, 1 / (2 * math.log(1 / delta))) == pytest.approx(1.6e-8, rel=0.05)
        assert dilation_delta(8, 8 / (2 * math.log(1 / delta))) == pytest.approx(6.8e-7, rel=0.05)
        assert exact_smoothness(1, delta) == pytest.approx(0.0495, abs=1e-4)
        assert dilation_delta(1, exact_smoothness(1, delta)) <= delta

    @pytest.mark.parametrize("delta", [1e-30, 1e-10, 2.0**-20, 0.1, 0.9])
    def test_no_smoothness_in_use_costs_more_than_delta(self, delta):
        """The textbook's alone does, for large epsilon."""
        for epsilon in np.geomspace(0.01, 1000, 60).tolist():
            for b in (textbook_smoothness(epsilon, delta), exact_smoothness(epsilon, delta)):
                assert 0 < b <= epsilon / 2
                assert dilation_delta(epsilon, b) <= delta
        assert dilation_delta(60, 60 / (2 * math.log(2 / delta))) > delta

    def test_the_textbooks_smoothness_is_broken_by_an_input_and_ours_is_not(self):
        """P zeros, a run of values falling as e^-bd, the rest at the bound; a zero becomes the bound. Both theta's mechanisms are
        known here, so the delta that an event needs is a difference of two numbers."""
        delta, holdout, bound, epsilon = 2.0**-20, 65_536, 1 << 20, 51.0  # a total of 60

        def needed(b: float) -> float:
            mechanism = SmoothQuantile(
                bound=bound, epsilon=epsilon, delta=delta, holdout=holdout, tail=0.005, beta_tail=0.3
            )
            run = np.floor(bound * np.exp(-b * np.arange(1, 200))).astype(np.int64)[::-1]
            before = np.concatenate([np.zeros(mechanism.rank, np.int64), run[run > 0]])
            before = np.concatenate([before, np.full(holdout - len(before), bound)])
            after = before.copy()
            after[0] = bound
            kappa = 1 / (1 - math.expm1(b) * mechanism.offset / mechanism.scale_divisor)
            mechanisms = []
            for values in (before, after):
                spread = kappa * smooth_sensitivity(values, mechanism.rank, b, bound) / mechanism.scale_divisor
                mechanisms.append((float(np.sort(values)[mechanism.rank - 1]) + spread * mechanism.offset, spread))

            def beyond(x: float, centre: float, scale: float) -> float:
                z = (x - centre) / scale
                return math.exp(-z) / 2 if z >= 0 else 1 - math.exp(z) / 2

            points = np.linspace(mechanisms[1][0], mechanisms[1][0] + 60 * mechanisms[1][1], 4000).tolist()
            return max(beyond(x, *mechanisms[1]) - math.exp(epsilon) * beyond(x, *mechanisms[0]) for x in points)

        assert needed(epsilon / (2 * math.log(2 / delta))) > 100 * delta
        assert needed(textbook_smoothness(epsilon, delta)) <= delta


class TestSmoothQuantile:
    def mechanism(self, **changes) -> SmoothQuantile:
        given = {"bound": 100, "epsilon": 1.0, "delta": 2.0**-20, "holdout": 400, "tail": 0.05, "beta_tail": 0.01}
        return SmoothQuantile(**(given | changes))

    def test_kappa_times_smooth_sensitivity_bounds_the_shifted_quantile(self):
        """Local sensitivity of x_(P) + kappa SS Q / a, over all replacements of one value, is at most kappa SS."""
        mechanism = self.mechanism(bound=6, holdout=8, tail=0.3, epsilon=4.0)
        rng = np.random.default_rng(0)
        for _ in range(20):
            values = rng.integers(0, 7, 8)

            def shifted(v: np.ndarray) -> tuple[float, float]:
                spread = smooth_sensitivity(v, mechanism.rank, mechanism.smoothness, 6)
                centre = float(np.sort(v)[mechanism.rank - 1])
                return centre + mechanism.kappa * spread * mechanism.offset / mechanism.scale_divisor, spread

            here, spread = shifted(values)
            for i in range(8):
                for v in range(7):
                    other = values.copy()
                    other[i] = v
                    assert abs(shifted(other)[0] - here) <= mechanism.kappa * spread * (1 + 1e-9)

    @pytest.mark.statistical
    def test_tau_stays_below_the_quantile_as_often_as_beta_says(self):
        mechanism = self.mechanism(beta_tail=0.1)
        values = np.random.default_rng(1).integers(0, 60, 400)
        centre = float(np.sort(values)[mechanism.rank - 1])
        n = samples(2000)
        below = np.mean([mechanism.tau(values, noise(), s) < centre for s in streams(n)])
        assert abs(below - 0.1) < 5 * math.sqrt(0.1 * 0.9 / n)

    def test_unit_laplace_has_the_law_of_its_bits(self):
        words = noise().bits(noise().labels("x", [b"k"]), 0, 49_999)[0]
        draws = np.array([unit_laplace(w) for w in words])
        assert abs(np.abs(draws).mean() - 1) < 0.03
        assert abs((draws > 0).mean() - 0.5) < 0.02
        assert abs((np.abs(draws) > 2).mean() - math.exp(-2)) < 0.01

    def test_impossible_constants_are_refused(self):
        with pytest.raises(ConfigurationError, match="kappa"):
            self.mechanism(epsilon=0.2, delta=0.5, beta_tail=1e-9)
        with pytest.raises(ConfigurationError, match="tail"):
            self.mechanism(tail=0.001)
        with pytest.raises(ConfigurationError, match="holdout"):
            self.mechanism().tau(np.zeros(3, dtype=np.int64), noise(), b"s")
