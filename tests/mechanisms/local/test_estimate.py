"""Interval totals, the plain estimator's errors, and the filter beside it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.kalman import IntervalBank, filter_ranges
from susurrus.mechanisms.local.estimate import Estimate, Totals, combine, estimate
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.window import GRID
from tests.samples import samples, seeded


@given(st.lists(st.integers(0, GRID + 1), max_size=40), st.integers(0, 40))
def test_totals_add_up_however_the_reports_are_batched(codes: list[int], cut: int) -> None:
    whole = np.array(codes, dtype=np.int64)
    totals = Totals.of(whole)
    assert totals == Totals.of(whole[:cut]) + Totals.of(whole[cut:])
    assert totals.count == len(codes)
    assert totals.codes == sum(c for c in codes if c < GRID)
    assert totals.ones == sum(c - GRID for c in codes if c >= GRID)
    assert totals.squares == sum((c >> 16) ** 2 for c in codes if c < GRID)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_the_sum_is_the_sum_of_the_decoded_reports(alpha: float) -> None:
    hybrid, theta = Hybrid(1.0, alpha), 40.0
    codes = hybrid.randomise(np.random.default_rng(0).uniform(0, 1, 5000), seeded(1))
    found = estimate(Totals.of(codes), theta, hybrid)
    assert found.sum == pytest.approx(theta * hybrid.decode(codes).sum(), rel=1e-9)
    assert found.mean == pytest.approx(found.sum / 5000)


def test_an_empty_interval_has_no_mean() -> None:
    nothing = estimate(Totals(), 40.0, Hybrid(1.0, 0.4))
    assert (nothing.count, nothing.sum, nothing.standard_error) == (0, 0.0, 0.0)
    assert math.isnan(nothing.mean)


@pytest.mark.statistical
@pytest.mark.parametrize(("alpha", "slack"), [(0.0, 1.10), (0.4, 1.05), (1.0, 1.05)])
def test_standard_errors_cover(alpha: float, slack: float) -> None:
    """z-scores of the noise alone have deviation 1 (bits alone: at most 1, their error is an upper bound)."""
    hybrid, theta = Hybrid(1.0, alpha), 10.0
    values = np.random.default_rng(2).beta(1, 4, 2000) * theta
    scores = []
    for k in range(samples(400)):
        found = estimate(Totals.of(hybrid.randomise(values / theta, seeded(k))), theta, hybrid)
        scores.append((found.sum - values.sum()) / found.standard_error)
    deviation = float(np.std(scores))
    assert 0.9 / slack < deviation < slack
    assert abs(float(np.mean(scores))) < 0.25
    assert deviation * 1.3 > slack  # an error too large by 1.3 would be caught


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("reports", [1, 3, 10])
@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_the_error_of_few_reports_is_no_smaller_than_it_is(epsilon: float, reports: int, alpha: float) -> None:
    """The mean of a single bit is 0 or 1, where the next bit would seem to be sure."""
    hybrid = Hybrid(epsilon, alpha)
    codes = hybrid.randomise(np.full(reports * samples(1_000), 0.3), seeded(1)).reshape(-1, reports)
    found = [estimate(Totals.of(interval), 1.0, hybrid) for interval in codes]
    true = float(np.mean([(e.sum - 0.3 * reports) ** 2 for e in found]))
    assert true < 1.1 * float(np.mean([e.variance for e in found]))


def test_ranges_add_sums_and_variances() -> None:
    total = combine([Estimate(3, 10.0, 4.0), Estimate(2, -1.0, 5.0)])
    assert (total.count, total.sum, total.standard_error) == (5, 9.0, 3.0)


class TestFilter:
    @staticmethod
    def errors(levels: np.ndarray, noise: float, seeds: int) -> tuple[float, float]:
        """(plain, filtered) mean squared error of range sums over intervals with these true means."""
        intervals, plain, filtered = levels.size, [], []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            means = levels + rng.normal(0, noise, intervals)
            ranges = np.unique(np.sort(rng.integers(0, intervals + 1, (40, 2)), axis=1), axis=0)
            ranges = ranges[ranges[:, 1] > ranges[:, 0]]
            counts, variances = np.ones(intervals), np.full(intervals, noise**2)
            answers = filter_ranges(counts, means, variances, ranges)
            for (first, last), answer in zip(ranges, answers, strict=True):
                truth = levels[first:last].sum()
                plain.append((means[first:last].sum() - truth) ** 2)
                filtered.append((answer.sum - truth) ** 2)
        return float(np.mean(plain)), float(np.mean(filtered))

    def test_a_level_that_stays_is_averaged(self) -> None:
        plain, filtered = self.errors(np.full(200, 7.0), 5.0, 12)
        assert filtered < 0.8 * plain

    @pytest.mark.parametrize("kind", ["trend", "shift", "burst", "alternation"])
    def test_levels_that_move_cost_next_to_nothing(self, kind: str) -> None:
        interval = np.arange(200)
        levels = {
            "trend": interval * 1.0,
            "shift": np.where(interval < 90, 0.0, 60.0),
            "burst": np.where(interval % 40 == 13, 100.0, 0.0),
            "alternation": np.where(interval % 2 == 0, 0.0, 50.0),
        }[kind]
        plain, filtered = self.errors(levels, 5.0, 12)
        assert filtered < 1.15 * plain

    def test_its_error_bar_covers(self) -> None:
        rng, scores = np.random.default_rng(0), []
        for _ in range(150):
            means = 3.0 + rng.normal(0, 2.0, 60)
            answer = filter_ranges(np.ones(60), means, np.full(60, 4.0), np.array([[10, 50]]))[0]
            scores.append((answer.sum - 40 * 3.0) / answer.standard_error)
        assert 0.5 < np.std(scores) < 1.2

    def test_a_single_interval_is_the_plain_estimate(self) -> None:
        bank = IntervalBank()
        own = bank.step(4.0, 2.5, 1.0, open_range=True)
        assert own.sum == pytest.approx(10.0, rel=1e-3)
        assert bank.read(0) == own
