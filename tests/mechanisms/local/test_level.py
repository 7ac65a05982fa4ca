"""theta that follows the level: the level from clipped means, the objective under several levels, adaptively chosen theta."""

import copy
import functools
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from susurrus.mechanisms.local.hybrid import Hybrid, StochasticRounding
from susurrus.mechanisms.local.level import LEVELS, RISE, STEP, LevelFollower
from susurrus.mechanisms.local.randomness import exp_below
from susurrus.mechanisms.local.threshold import Distribution, choose_threshold, expected_squared_error
from susurrus.mechanisms.local.window import GRID
from tests.samples import samples

BOUND, VALUES = 2000.0, 2**20
PERTURBER = Hybrid(1.0, 0.0)


@functools.cache
def sample(n: int = 200_000) -> np.ndarray:
    return np.random.default_rng(5).lognormal(1.7, 0.8, n).clip(0, BOUND)


def distribution(values: np.ndarray | None = None) -> Distribution:
    edges = np.concatenate(([0.0], np.geomspace(0.01, BOUND, 400)))
    counts, _ = np.histogram(sample() if values is None else values, edges)
    return Distribution(edges, counts / counts.sum())


@functools.cache
def _made() -> LevelFollower:
    return LevelFollower(distribution(), PERTURBER, VALUES)


def follower() -> LevelFollower:
    """A new one. What takes a second to compute is never changed, so all of them share it."""
    return copy.copy(_made())


BASE = choose_threshold(distribution(), 1.0, VALUES, alphas=[0.0]).theta


class TestLevel:
    @pytest.mark.parametrize("level", [0.3, 0.8, 1.7, 5.0])
    @pytest.mark.parametrize("theta", [10.0, 60.0])
    def test_it_is_recovered_from_the_mean_of_clipped_values(self, level: float, theta: float) -> None:
        mean = float(np.minimum(sample() * level, theta).mean())
        assert follower().level(theta, mean, 0.0) == pytest.approx(level, rel=0.03)

    def test_a_distance_within_half_a_standard_error_is_none(self) -> None:
        expected = float(np.minimum(sample(), 60.0).mean())
        assert follower().level(60.0, expected * 1.2, 0.45 * expected) == 1.0
        assert 1.0 < follower().level(60.0, expected * 1.2, 0.3 * expected) < 1.15
        assert follower().level(60.0, expected * 1.2, 0.05 * expected) == pytest.approx(1.19, abs=0.02)

    def test_a_mean_that_no_level_has_is_the_greatest_or_the_least_level(self) -> None:
        assert follower().level(60.0, 1e6, 0.0) == pytest.approx(LEVELS[-1])
        assert follower().level(60.0, -5.0, 0.0) == pytest.approx(LEVELS[0])


class TestProposal:
    def test_none_where_the_level_is_that_of_phase_1(self) -> None:
        found = follower()
        for _ in range(50):
            found.take(BASE, float(np.minimum(sample(), BASE).mean()), 0.1)
            assert found.proposal(BASE) is None

    def test_theta_is_that_of_the_scaled_values(self) -> None:
        """The optimum under one level is theta of the values times that level: chosen here from the scaled histogram."""
        found, mean = follower(), float(np.minimum(sample() * 1.6, BASE).mean())
        found.take(BASE, mean, 0.0)
        proposal = found.proposal(BASE)
        scaled = Distribution(distribution().edges * 1.6, distribution().frequencies)
        best = choose_threshold(scaled, 1.0, VALUES, thetas=np.geomspace(BASE, 3 * BASE, 500), alphas=[0.0])
        assert proposal is not None
        assert proposal.theta == pytest.approx(best.theta, rel=0.06)
        assert proposal.alpha == 0.0

    def test_the_objective_under_many_levels_is_that_of_their_mixture(self) -> None:
        """By brute force: values at level 1 half of the time and at level 2 (a grid point) the other half."""
        weights = np.zeros(LEVELS.size)
        weights[[48, 56]] = 0.5
        found = LevelFollower(distribution(), PERTURBER, VALUES, weights=weights)
        proposal = found.proposal(BASE)
        both = distribution(np.concatenate([sample(), sample() * 2]).clip(0, BOUND))
        assert proposal is not None
        expected = expected_squared_error(both, np.array([proposal.theta]), PERTURBER, VALUES)[0]
        assert proposal.expected_squared_error == pytest.approx(expected, rel=0.05)
        assert proposal.expected_truncation == pytest.approx(both.excess(np.array([proposal.theta]))[0], rel=0.05)

    def test_it_rises_at_once_by_at_most_a_factor_and_falls_when_the_level_is_forgotten(self) -> None:
        found, high, low = follower(), 3.0, 1.0
        found.take(BASE, float(np.minimum(sample() * high, BASE).mean()), 0.0)
        first = found.proposal(BASE)
        assert first is not None
        assert RISE * BASE < first.theta <= STEP * BASE
        theta, waited = first.theta, 0
        for _ in range(30):
            found.take(theta, float(np.minimum(sample() * high, theta).mean()), 0.0)
            proposal = found.proposal(theta)
            theta = theta if proposal is None else proposal.theta
        top = theta
        while theta == top and waited < 1_000:
            waited += 1
            found.take(theta, float(np.minimum(sample() * low, theta).mean()), 0.0)
            proposal = found.proposal(theta)
            theta = theta if proposal is None else proposal.theta
        assert top > 2.2 * BASE
        assert 5 < waited < 200
        assert theta < top

    def test_it_never_exceeds_the_bound(self) -> None:
        found = follower()
        for _ in range(20):
            found.take(BOUND / 2, 1e9, 0.0)
        proposal = found.proposal(BOUND / 2)
        assert proposal is not None
        assert proposal.theta <= BOUND

    def test_a_successor_goes_on_bit_for_bit(self) -> None:
        found = follower()
        for mean in (9.0, 14.0, 20.0):
            found.take(BASE, mean, 0.5)
        again = LevelFollower.restored(json.loads(json.dumps(found.state())), PERTURBER, VALUES)
        assert again.state() == found.state()
        for one in (found, again):
            one.take(BASE, 23.0, 0.5)
        assert again.state() == found.state()
        assert again.proposal(BASE) == found.proposal(BASE)


class TestPrivacy:
    """theta of later reports may depend on earlier reports: each report stays private. On the values it may not."""

    @staticmethod
    def transcripts(values: tuple[float, float], *, from_value: bool) -> dict[tuple[int, int], Fraction]:
        """The probability of both bits, exactly; the second theta follows the first bit, or (broken) the first value."""
        rounding = StochasticRounding(1.0)
        base, step = rounding._integers

        def one(fraction: float) -> Fraction:
            return Fraction(base + round(min(fraction, 1.0) * GRID) * step, 2**64)

        found = {}
        for first, second in itertools.product((0, 1), repeat=2):
            theta = 10.0 * (2 if (values[0] > 5 if from_value else first) else 1)
            bits = ((first, one(values[0] / 10.0)), (second, one(values[1] / theta)))
            found[first, second] = math.prod((p if bit else 1 - p for bit, p in bits), start=Fraction(1))
        return found

    @classmethod
    def worst(cls, *, from_value: bool) -> Fraction:
        grid, worst = (0.0, 2.0, 5.0, 10.0, 20.0), Fraction(0)
        for first, changed, second in itertools.product(grid, repeat=3):
            one, other = (cls.transcripts((x, second), from_value=from_value) for x in (first, changed))
            worst = max(worst, *(one[bits] / other[bits] for bits in one))
        return worst

    def test_a_theta_chosen_from_reports_costs_nothing(self) -> None:
        assert 2 < self.worst(from_value=False) <= exp_below(1.0)

    def test_a_theta_chosen_from_values_would_be_caught(self) -> None:
        assert self.worst(from_value=True) > exp_below(1.0) * Fraction(101, 100)


@pytest.mark.statistical
def test_a_trend_is_followed_and_a_theta_that_stays_is_far_worse() -> None:
    """Truncation that is left, over values whose level quadruples; noisy means, as a filter of some intervals gives them."""
    rng, intervals, error = np.random.default_rng(1), samples(200), 0.6
    found, theta, followed, stayed = follower(), BASE, 0.0, 0.0
    for level in np.geomspace(1.0, 4.0, intervals):
        values = sample(2_000) * level
        followed += float((values - np.minimum(values, theta)).mean())
        stayed += float((values - np.minimum(values, BASE)).mean())
        found.take(theta, float(np.minimum(values, theta).mean() + rng.normal(0, error)), error)
        proposal = found.proposal(theta)
        theta = theta if proposal is None else proposal.theta
    assert followed < 0.2 * stayed
    assert 2 * BASE < theta < 7 * BASE
