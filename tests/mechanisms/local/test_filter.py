"""One filter across thresholds, its noise, and Hausman's test of its answer."""

import json

import numpy as np
import pytest

from susurrus.mechanisms.kalman import Filtered
from susurrus.mechanisms.local.estimate import Estimate, Totals, combine, estimate
from susurrus.mechanisms.local.filter import DEVIATIONS, MeanFilter, hausman
from susurrus.mechanisms.local.hybrid import Hybrid
from tests.samples import samples, seeded

PERTURBER = Hybrid(1.0, 0.4)


def reports(mean: float, theta: float, seed: int, n: int = 400, perturber: Hybrid = PERTURBER) -> Totals:
    values = np.random.default_rng(seed).exponential(mean, n)
    return Totals.of(perturber.randomise(values / theta, seeded(seed)))


class TestMeanFilter:
    def test_an_interval_under_two_thetas_adds_up(self) -> None:
        parts = [(reports(5.0, 20.0, 1), 20.0, PERTURBER), (reports(5.0, 40.0, 2, n=100), 40.0, PERTURBER)]
        plain, variance, answer = MeanFilter().take(parts)
        assert plain == combine(estimate(*part) for part in parts)
        assert answer is not None
        assert variance == pytest.approx(plain.variance, rel=0.1)

    def test_the_noise_is_the_closed_form_at_every_theta(self) -> None:
        """v of the fraction, times theta squared, for any perturber: pooled over the intervals before, not of this one."""
        means = MeanFilter()
        for seed in range(60):
            means.take([(reports(5.0, 20.0, seed), 20.0, PERTURBER)])
        narrow, wide = reports(10.0, 40.0, 99, n=300), reports(10.0, 40.0, 98, n=200)
        values = np.random.default_rng(0).exponential(10.0, 200_000)
        expected = 40.0**2 * float(PERTURBER.variance(np.minimum(values / 40.0, 1.0)).mean())
        _, variance, _ = means.take([(narrow, 40.0, PERTURBER), (wide, 40.0, PERTURBER)])
        assert variance == pytest.approx(500 * expected, rel=0.02)

    def test_a_level_that_stays_is_averaged_while_theta_moves(self) -> None:
        """Values far below every theta: the change of theta changes nothing but the noise."""
        plain, filtered = [], []
        for round_ in range(samples(12)):
            means = MeanFilter()
            for interval in range(120):
                theta = (20.0, 40.0, 30.0)[interval // 10 % 3]
                values = np.full(200, 4.0)
                totals = Totals.of(PERTURBER.randomise(values / theta, seeded(1_000 * round_ + interval)))
                found, _, answer = means.take([(totals, theta, PERTURBER)])
                assert answer is not None
                if interval > 60:
                    plain.append(found.sum - 800.0)
                    filtered.append(answer.sum - 800.0)
            level, error = means.level()
            assert abs(level - 4.0) < 5 * error
        assert np.mean(np.square(filtered)) < 0.3 * np.mean(np.square(plain))

    def test_no_reports_have_no_answer(self) -> None:
        assert MeanFilter().take([(Totals(), 20.0, PERTURBER)]) == (Estimate(0, 0.0, 0.0), 0.0, None)

    def test_a_successor_goes_on_bit_for_bit(self) -> None:
        means, other = MeanFilter(), Hybrid(1.0, 0.0)
        for seed in range(5):
            means.take([(reports(5.0, 20.0, seed), 20.0, PERTURBER)])
        again = MeanFilter.restored(json.loads(json.dumps(means.state())))
        bits = reports(5.0, 30.0, 9, perturber=other)
        step = [one.take([(bits, 30.0, other), (reports(5.0, 20.0, 8), 20.0, PERTURBER)]) for one in (means, again)]
        assert step[0] == step[1]
        assert means.state() == again.state()


class TestHausman:
    PLAIN = Estimate(100, 500.0, 90.0)

    def test_an_answer_near_the_plain_sum_stands(self) -> None:
        answer = Filtered(500.0 + 0.99 * DEVIATIONS * 8.0, 6.0)  # sqrt(100 - 36) = 8
        assert hausman(self.PLAIN, 100.0, answer) is answer

    def test_an_answer_farther_away_is_refused_for_the_plain_sum_and_its_error(self) -> None:
        for sign in (-1, 1):
            refused = hausman(self.PLAIN, 100.0, Filtered(500.0 + sign * 1.01 * DEVIATIONS * 8.0, 6.0))
            assert refused == Filtered(500.0, self.PLAIN.standard_error)

    def test_an_answer_that_claims_no_more_than_the_plain_sum_is_refused(self) -> None:
        assert hausman(self.PLAIN, 100.0, Filtered(510.0, 11.0)).sum == 500.0

    @pytest.mark.statistical
    def test_right_models_differ_by_the_difference_of_the_variances(self) -> None:
        """Hausman's identity, for the bank on steady levels: the sum of the variances, as for independent ones, is caught."""
        squares, expected, wrong, refused, answers = 0.0, 0.0, 0.0, 0, 0
        for seed in range(samples(30)):
            rng = np.random.default_rng(seed)
            means, bank = 5.0 + rng.normal(0, 1.0, 150), MeanFilter()
            for mean in means.tolist():
                filtered = bank._bank.step(1.0, mean, 1.0)
                squares += (mean - filtered.sum) ** 2
                expected += 1.0 - filtered.standard_error**2
                wrong += 1.0 + filtered.standard_error**2
                refused += hausman(Estimate(1, mean, 1.0), 1.0, filtered) is not filtered
                answers += 1
        assert squares == pytest.approx(expected, rel=0.15)
        assert squares != pytest.approx(wrong, rel=0.15)
        assert refused < 0.03 * answers

    @pytest.mark.statistical
    def test_a_burst_is_not_smoothed_away(self) -> None:
        """A level that jumps after a long rest: the filter's answer alone misses, the tested one does not."""
        alone, tested, plain = [], [], []
        for seed in range(samples(40)):
            rng, bank = np.random.default_rng(seed), MeanFilter()
            for interval in range(200):
                truth = 12.0 if interval == 199 else 5.0
                mean = truth + float(rng.normal(0, 1.0))
                answer = bank._bank.step(1.0, mean, 1.0)
            alone.append(answer.sum - truth)
            tested.append(hausman(Estimate(1, mean, 1.0), 1.0, answer).sum - truth)
            plain.append(mean - truth)
        assert np.mean(np.square(tested)) < 1.5 * np.mean(np.square(plain))
        assert np.mean(np.square(alone)) > 3 * np.mean(np.square(tested))
