"""Stochastic rounding, piecewise and their hybrid: distribution, unbiasedness, variances, and a leaking variant that is
caught.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.hybrid import EPSILON_STAR, Hybrid, StochasticRounding, hybrid_alpha
from susurrus.mechanisms.local.randomness import WORD, Words
from susurrus.mechanisms.local.window import GRID
from tests.samples import samples, seeded

EPSILONS = (0.05, 0.2, 0.61, 1.0, 2.0, 6.0)


def probability(rounding: StochasticRounding, index: int) -> Fraction:
    """Pr[1 | value index / 2**32], exactly."""
    base, step = rounding._integers
    return Fraction(base + index * step, WORD)


class TestStochasticRounding:
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_every_probability_keeps_the_bound_exactly(self, epsilon: float) -> None:
        rounding = StochasticRounding(epsilon)
        least, most = probability(rounding, 0), probability(rounding, GRID)
        assert least + most == 1
        with mpmath.workdps(80):
            bound = mpmath.exp(mpmath.mpf(epsilon))
            ratio = most / least
            assert mpmath.mpf(ratio.numerator) / ratio.denominator <= bound
        assert float(ratio) == pytest.approx(math.exp(epsilon), rel=1e-6)

    @given(st.integers(0, GRID), st.sampled_from(EPSILONS))
    def test_the_decoded_mean_is_the_value(self, index: int, epsilon: float) -> None:
        rounding = StochasticRounding(epsilon)
        scale, offset = rounding.decoder
        decoded = scale * float(probability(rounding, index)) + offset
        assert decoded == pytest.approx(index / GRID, abs=1e-12 * scale)

    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_the_variance_is_the_papers(self, epsilon: float) -> None:
        x = np.linspace(0, 1, 9)
        c = (math.exp(epsilon) + 1) / math.expm1(epsilon)
        np.testing.assert_allclose(4 * StochasticRounding(epsilon).variance(x), c**2 - (2 * x - 1) ** 2, rtol=1e-7)


class TestHybrid:
    def test_the_switch_is_where_both_worst_cases_meet(self) -> None:
        """eps* = 0.61: below it mixing in piecewise makes the worst variance larger, above it smaller."""
        x = np.linspace(0, 1, 201)

        def worst(epsilon: float, alpha: float) -> float:
            return float(Hybrid(epsilon, alpha).variance(x).max())

        for epsilon, better in ((0.58, False), (0.64, True)):
            mixed = worst(epsilon, -math.expm1(-epsilon / 2))
            assert (mixed < worst(epsilon, 0.0)) is better
        assert hybrid_alpha(EPSILON_STAR) == 0
        assert hybrid_alpha(0.62) == pytest.approx(1 - math.exp(-0.31))

    @pytest.mark.parametrize("epsilon", [0.7, 1.0, 2.0, 6.0])
    def test_the_papers_alpha_makes_the_variance_constant(self, epsilon: float) -> None:
        """[WXY+19]: with alpha = 1 - e^(-eps/2) the t^2 terms cancel; the worst case is then every case."""
        _, _, square = Hybrid(epsilon, hybrid_alpha(epsilon)).variance_coefficients()
        assert square == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
    def test_coefficients_are_the_variance(self, alpha: float) -> None:
        hybrid = Hybrid(1.3, alpha)
        x = np.linspace(0, 1, 13)
        c0, c1, c2 = hybrid.variance_coefficients()
        np.testing.assert_allclose(hybrid.variance(x), c0 + c1 * x + c2 * x**2, rtol=1e-9)

    @pytest.mark.statistical
    @pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
    @pytest.mark.parametrize("fraction", [0.0, 0.2, 0.77, 1.0])
    def test_decoded_reports_are_unbiased_with_the_stated_variance(self, alpha: float, fraction: float) -> None:
        hybrid, n = Hybrid(1.0, alpha), samples(200_000)
        decoded = hybrid.decode(hybrid.randomise(np.full(n, fraction), seeded(3)))
        variance = float(hybrid.variance(np.array([fraction]))[0])
        assert decoded.mean() == pytest.approx(fraction, abs=5 * math.sqrt(variance / n))
        assert decoded.var() == pytest.approx(variance, rel=0.03)
        wrong = float(Hybrid(1.2, alpha).variance(np.array([fraction]))[0])
        assert decoded.var() != pytest.approx(wrong, rel=0.03)

    def test_values_outside_are_clipped(self) -> None:
        hybrid = Hybrid(1.0, 0.5)
        wild = hybrid.randomise(np.array([-5.0, 7.0, np.inf, -np.inf]), seeded(1))
        assert np.array_equal(wild, hybrid.randomise(np.array([0.0, 1.0, 1.0, 0.0]), seeded(1)))

    def test_only_codes_the_mechanism_makes_are_allowed(self) -> None:
        codes = np.array([-1, 0, GRID - 1, GRID, GRID + 1, GRID + 2])
        assert Hybrid(1.0, 0.5).allowed(codes).tolist() == [False, True, True, True, True, False]
        assert Hybrid(1.0, 0.0).allowed(codes).tolist() == [False, False, False, True, True, False]
        assert Hybrid(1.0, 1.0).allowed(codes).tolist() == [False, True, True, False, False, False]

    @given(st.floats(0, 1), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 2**31))
    def test_one_report_is_a_possible_report(self, fraction: float, alpha: float, seed: int) -> None:
        hybrid = Hybrid(1.0, alpha)
        words = seeded(seed)
        code = hybrid.randomise_one(fraction, lambda: int(words(1)[0]))
        assert hybrid.allowed(np.array([code]))[0]

    @pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
    def test_an_alpha_that_is_no_share_is_refused(self, alpha: float) -> None:
        with pytest.raises(ConfigurationError, match="alpha="):
            Hybrid(1.0, alpha)


def rescaling_piecewise(fractions: npt.NDArray[np.float64], epsilon: float, words: Words) -> npt.NDArray[np.float64]:
    """A broken variant: reports are right, but rescaled by the LAST user's window instead of the public bounds."""
    hybrid = Hybrid(epsilon, 1.0)
    reports = hybrid.decode(hybrid.randomise(fractions, words))
    c = (math.exp(epsilon / 2) + 1) / math.expm1(epsilon / 2)
    left = (c + 1) / 2 * (2 * fractions[-1] - 1) - (c - 1) / 2
    return (reports + 1) / 2 * (1 - left) + left


class TestLeak:
    """Another user's value must not move my report: the event 'my report lies outside the public range' shows it
    does.
    """

    @staticmethod
    def first_report(mechanism: str, last: float, seed: int) -> npt.NDArray[np.float64]:
        reports = []
        for k in range(300):
            words = seeded(seed * 1000 + k)
            pair = np.array([0.3, last])
            if mechanism == "ours":
                hybrid = Hybrid(1.0, 1.0)
                reports.append(hybrid.decode(hybrid.randomise(pair, words))[0])
            else:
                reports.append(rescaling_piecewise(pair, 1.0, words)[0])
        return np.array(reports)

    @pytest.mark.statistical
    @pytest.mark.parametrize(("mechanism", "leaks"), [("ours", False), ("rescaling", True)])
    def test_my_report_does_not_depend_on_the_last_user(self, mechanism: str, leaks: bool) -> None:
        """Same words, another last user: bit for bit the same first report, or there is a leak."""
        with_zero = self.first_report(mechanism, 0.0, 1)
        with_one = self.first_report(mechanism, 1.0, 1)
        assert (not np.array_equal(with_zero, with_one)) is leaks

    @pytest.mark.statistical
    @pytest.mark.parametrize(("mechanism", "leaks"), [("ours", False), ("rescaling", True)])
    def test_the_last_users_own_ratio(self, mechanism: str, leaks: bool) -> None:
        """Audit: the mean of all users' outputs identifies the last user's value beyond e^epsilon."""
        epsilon, n, rounds = 1.0, 2000, samples(400)

        def means(last: float, seed: int) -> npt.NDArray[np.float64]:
            out = np.empty(rounds)
            for k in range(rounds):
                values = np.full(n, 0.3)
                values[-1] = last
                words = seeded(seed + k)
                if mechanism == "ours":
                    hybrid = Hybrid(epsilon, 1.0)
                    out[k] = hybrid.decode(hybrid.randomise(values, words)).mean()
                else:
                    out[k] = rescaling_piecewise(values, epsilon, words).mean()
            return out

        low, high = means(0.0, 10_000), means(1.0, 20_000)
        cut = np.median(np.concatenate((low, high)))
        above = ((high > cut).mean() + 1 / rounds) / ((low > cut).mean() + 1 / rounds)
        below = ((low < cut).mean() + 1 / rounds) / ((high < cut).mean() + 1 / rounds)
        assert bool(max(above, below) > math.exp(epsilon)) is leaks

    @pytest.mark.statistical
    def test_an_unbiased_mean_tells_them_apart_too(self) -> None:
        values = np.full(samples(50_000), 0.3)
        hybrid = Hybrid(1.0, 1.0)
        assert hybrid.decode(hybrid.randomise(values, seeded(5))).mean() == pytest.approx(0.3, abs=0.03)
        assert abs(rescaling_piecewise(values, 1.0, seeded(5)).mean() - 0.3) > 0.3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_devices_rounding_decides_every_word_as_the_batch_does(epsilon: float) -> None:
    """At the last word that is a 1 and the first that is not: one word more, and the ratio is above e^epsilon."""
    rounding = StochasticRounding(epsilon)
    base, step = rounding._integers
    for fraction in (0.0, 0.25, 0.5, 1.0):
        bound = base + round(fraction * GRID) * step
        for word in (0, bound - 1, bound, bound + 1, 2**64 - 1):
            [many] = rounding.randomise(np.array([fraction]), lambda n, word=word: np.full(n, word, np.uint64))
            assert rounding.randomise_one(fraction, lambda word=word: word) == many == (word < bound)
