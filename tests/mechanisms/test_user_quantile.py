"""The quantile over users: brute force over neighbours, dp-accounting, and an attack that broken variants do not withstand."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from random import Random
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import beta as beta_law
from scipy.stats import chisquare, norm

from susurrus.mechanisms.accounting import delta_gaussian, mu_of_bounded_range, mu_of_pure
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.exact import bernoulli, bernoulli_exp, discrete_laplace
from susurrus.mechanisms.user_quantile import MASS, UserQuantile, round_numbers
from tests.samples import samples

Data = Sequence[Sequence[int]]
"""The values of each user."""

CANDIDATES = (1, 2, 4)
VALUES = (1, 2, 3, 9)


def columns(data: Data) -> tuple[Any, Any]:
    """The same as a sample has it; users without values are not in it."""
    users = [user for user in data if user]
    user = [code for code, values in enumerate(users) for _ in values]
    return np.array(user, np.int64), np.array([value for values in users for value in values], np.int64)


def law(mechanism: UserQuantile, data: Data) -> list[Any]:
    """The probability of each candidate, written from the formula of the page with 50 digits, without the code under test."""
    q, weights = mechanism.quantile, []
    users = [user for user in data if user]

    def balance(c: float) -> Fraction:
        up_to = sum((Fraction(sum(v <= c for v in user), len(user)) for user in users), Fraction(0))
        return up_to - q * len(users)

    for before, here in pairwise([-math.inf, *mechanism.candidates, math.inf]):
        score = max(Fraction(0), -balance(here), balance(before))
        weights.append(mpmath.exp(-mpmath.mpf(float(mechanism.epsilon)) * score.numerator / score.denominator / 2))
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


def one_user() -> Iterator[tuple[int, ...]]:
    """Everything that a user may bring, up to three values, and nothing."""
    for number in range(4):
        yield from combinations_with_replacement(VALUES, number)


def others() -> Iterator[Data]:
    for number in range(4):
        yield from combinations_with_replacement([(1,), (2,), (3,), (9, 9)], number)


@pytest.mark.parametrize("quantile", ["1/2", "19/20", "1/10"])
def test_no_user_moves_log_probabilities_by_a_range_of_more_than_epsilon(quantile: str) -> None:
    """Brute force over all neighbours of small samples: added, removed and replaced."""
    mechanism = UserQuantile(candidates=CANDIDATES, quantile=Fraction(quantile), epsilon=Fraction(3, 2))
    worst, widest = 0.0, 0.0
    with mpmath.workdps(50):
        for rest in others():
            laws = [law(mechanism, [*rest, mine]) for mine in one_user()]
            for one, two in product(laws, repeat=2):
                losses = [float(mpmath.log(p / q)) for p, q in zip(one, two, strict=True)]
                worst = max(worst, max(map(abs, losses)))
                widest = max(widest, max(losses) - min(losses))
    assert worst <= 1.5 + 1e-12
    assert widest <= 1.5 + 1e-12
    if quantile == "1/2":
        assert widest > 0.99 * 1.5  # the factor 1/2 in the exponent is needed


@pytest.mark.parametrize("quantile", ["1/2", "19/20"])
def test_scores_are_those_of_the_formula(quantile: str) -> None:
    mechanism = UserQuantile(candidates=CANDIDATES, quantile=Fraction(quantile), epsilon=Fraction(1))
    for rest in others():
        for mine in one_user():
            data = [*rest, mine]
            if not any(data):
                continue
            scores = mechanism.scores(*columns(data))
            with mpmath.workdps(50):
                expected = law(mechanism, data)
                weights = [mpmath.exp(-mpmath.mpf(s.numerator) / s.denominator / 2) for s in scores]
                total = mpmath.fsum(weights)
                # A user's mass is rounded down to 2^-32.
                assert all(abs(w / total - p) < 1e-8 for w, p in zip(weights, expected, strict=True))


def test_the_least_score_is_at_the_smallest_candidate_with_enough_users() -> None:
    mechanism = UserQuantile(candidates=(1, 2, 3, 5), quantile=Fraction(9, 10), epsilon=Fraction(1))
    # 80, 95 and 100 of 100 users
    user, value = np.arange(100), np.array([1] * 80 + [2] * 15 + [4] * 5)
    assert mechanism.scores(user, value) == [10, 0, 5, 5, 10]
    assert mechanism.without_noise(user, value) == 2
    # None holds enough.
    assert mechanism.scores(user, value + 100) == [90, 90, 90, 90, 0]
    assert mechanism.without_noise(user, value + 100) is None


def test_a_user_weighs_one_however_much_it_brings() -> None:
    mechanism = UserQuantile(candidates=(1, 2), quantile=Fraction(1, 2), epsilon=Fraction(1))
    user = np.array([0] * 300_000 + [1, 2])
    value = np.array([2] * 300_000 + [1, 1])
    up_to, total = mechanism.masses(user, value)
    assert up_to[0] == 2 * MASS
    assert 3 * MASS - 300_000 <= total <= 3 * MASS
    assert mechanism.without_noise(user, value) == 1


@pytest.mark.statistical
def test_choices_follow_the_law_exactly() -> None:
    mechanism = UserQuantile(candidates=CANDIDATES, quantile=Fraction(1, 2), epsilon=Fraction(1))
    data = [(1,), (3,), (9, 9), (9,), (1, 3)]
    below, number = Random(5).randrange, samples(20_000)
    drawn = [mechanism.choose(*columns(data), below) for _ in range(number)]
    counts = [drawn.count(candidate) for candidate in (*CANDIDATES, None)]
    expected = np.array([float(p) for p in law(mechanism, data)]) * number
    assert chisquare(counts, expected * number / expected.sum()).pvalue > 1e-6
    # The test can see a wrong scale.
    wrong = UserQuantile(candidates=CANDIDATES, quantile=Fraction(1, 2), epsilon=Fraction(6, 5))
    shifted = np.array([float(p) for p in law(wrong, data)]) * number
    assert chisquare(counts, shifted * number / shifted.sum()).pvalue < 1e-6


def unhalved(mechanism: UserQuantile, data: Data, below: Callable[[int], int]) -> int | None:
    """Broken: as if one user moved all scores into the same direction."""
    return UserQuantile(
        candidates=mechanism.candidates, quantile=mechanism.quantile, epsilon=2 * mechanism.epsilon
    ).choose(*columns(data), below)


def uncapped(mechanism: UserQuantile, data: Data, below: Callable[[int], int]) -> int | None:
    """Broken: every value weighs one, so a user weighs what it brings."""
    user, value = columns(data)
    return mechanism.choose(np.arange(len(user), dtype=np.int64), value, below)


def sound(mechanism: UserQuantile, data: Data, below: Callable[[int], int]) -> int | None:
    return mechanism.choose(*columns(data), below)


@pytest.mark.statistical
@pytest.mark.parametrize(("draw", "leaks"), [(sound, False), (unhalved, True), (uncapped, True)])
def test_an_attack_finds_the_broken_variants_and_not_the_mechanism(draw: Any, leaks: bool) -> None:
    """A lower bound of the range of log ratios, with confidence 1 - 4e-6, from draws on two neighbouring samples."""
    mechanism = UserQuantile(candidates=CANDIDATES, quantile=Fraction(1, 2), epsilon=Fraction(1))
    number, below = samples(20_000), Random(11).randrange
    rest: list[tuple[int, ...]] = [(2,)] * 4
    drawn = [[draw(mechanism, [*rest, mine], below) for _ in range(number)] for mine in ((1, 1, 1, 1), (9, 9, 9, 9))]

    def at_least(sample: int, outcome: int) -> float:
        hits = drawn[sample].count(outcome)
        return float(beta_law.ppf(1e-6, hits, number - hits + 1))

    def at_most(sample: int, outcome: int) -> float:
        hits = drawn[sample].count(outcome)
        return float(beta_law.ppf(1 - 1e-6, hits + 1, number - hits))

    lower = at_least(0, 1) / at_most(1, 1), at_most(0, 4) / at_least(1, 4)
    assert (math.log(lower[0]) - math.log(lower[1]) > 1.0) == leaks


def test_it_misses_by_no_more_users_than_it_says() -> None:
    mechanism = UserQuantile(candidates=tuple(range(1, 41)), quantile=Fraction(19, 20), epsilon=Fraction(1, 2))
    user = np.arange(2_000)
    value = np.random.default_rng(3).geometric(0.15, 2_000)
    scores = dict(zip((*mechanism.candidates, None), mechanism.scores(user, value), strict=True))
    below = Random(1).randrange
    missed = [float(scores[mechanism.choose(user, value, below)]) for _ in range(400)]
    assert np.mean(np.array(missed) > mechanism.misses(0.05)) <= 0.05
    assert max(missed) > 0


# ---- Gaussian differential privacy ---------------------------------------------------------------------------------


def kinks(log_range: float) -> Iterator[tuple[float, float]]:
    """Errors of the one test between two outcomes whose log ratios are t and t - r: the worst pairs of bounded range."""
    for t in np.linspace(0.001, 0.999, 999) * log_range:
        yield math.expm1(log_range - t) / math.expm1(log_range), math.expm1(t) / math.expm1(log_range)


@pytest.mark.parametrize("log_range", [0.01, 0.1, 0.5, 1.0, 3.0, 10.0])
def test_no_pair_of_bounded_range_is_easier_to_tell_apart_than_the_gaussians(log_range: float) -> None:
    mu = mu_of_bounded_range(log_range)
    gaps = [norm.isf(alpha) - norm.ppf(beta) for alpha, beta in kinks(log_range)]
    assert max(gaps) <= mu
    assert max(gaps) == pytest.approx(mu, rel=1e-4)  # attained, at t = r / 2


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("times", [1, 20])
def test_the_charge_covers_composition_by_privacy_loss_distributions(epsilon: float, times: int) -> None:
    """dp-accounting's delta of randomized response, of the range and of pure epsilon, is at most that of what is charged."""
    for mu, half in ((mu_of_bounded_range(epsilon), epsilon / 2), (mu_of_pure(epsilon), epsilon)):
        heads = 1 / (1 + math.exp(-half))
        loss = privacy_loss_distribution.from_two_probability_mass_functions(
            {0: math.log(heads), 1: math.log1p(-heads)},
            {0: math.log1p(-heads), 1: math.log(heads)},
            value_discretization_interval=1e-4,
            pessimistic_estimate=False,
        ).self_compose(times)
        for share in (0.0, 0.3, 0.7, 1.0):
            at = share * half * times
            assert loss.get_delta_for_epsilon(at) <= delta_gaussian(mu * math.sqrt(times), at) + 1e-9


def test_the_charge_of_a_range_is_what_the_page_says() -> None:
    with mpmath.workdps(40):
        for log_range in (1e-5, 0.5, 2.0, 50.0):
            upper = mpmath.exp(log_range / 2) / (1 + mpmath.exp(log_range / 2))
            exact = 2 * mpmath.sqrt(2) * mpmath.erfinv(2 * upper - 1)
            assert 0 <= mu_of_bounded_range(log_range) / exact - 1 < 1e-8
    assert mu_of_pure(0.25) == mu_of_bounded_range(0.5)
    for bad in (0.0, 1e-7, 2e3, math.nan):
        with pytest.raises(ConfigurationError, match="epsilon="):
            mu_of_bounded_range(bad)


# ---- exact choices ---------------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_exact_choices_have_their_probabilities() -> None:
    below, number = Random(7).randrange, samples(20_000)

    def check(draws: list[bool], probability: float) -> None:
        assert abs(np.mean(draws) - probability) <= 5 * math.sqrt(probability * (1 - probability) / number)

    check([bernoulli(Fraction(2, 7), below) for _ in range(number)], 2 / 7)
    for gamma in (Fraction(0), Fraction(1, 3), Fraction(1), Fraction(9, 4)):
        check([bernoulli_exp(gamma, below) for _ in range(number)], math.exp(-gamma))
    assert not bernoulli_exp(Fraction(10**12), below)
    epsilon = Fraction(1, 2)
    drawn = np.array([discrete_laplace(epsilon, below) for _ in range(number)])
    support = np.arange(-8, 9)
    probability = np.exp(-0.5 * np.abs(support)) * math.tanh(0.25)
    counts = [*(int((drawn == z).sum()) for z in support), int((np.abs(drawn) > 8).sum())]
    assert chisquare(counts, np.append(probability, 1 - probability.sum()) * number).pvalue > 1e-6


def test_wrong_arguments_are_refused() -> None:
    good: dict[str, Any] = {"candidates": (1, 2), "quantile": Fraction(1, 2), "epsilon": Fraction(1)}
    for field, bad in (
        ("candidates", (2, 1)),
        ("candidates", ()),
        ("quantile", Fraction(1)),
        ("epsilon", Fraction(0)),
    ):
        with pytest.raises(ConfigurationError, match=field):
            UserQuantile(**{**good, field: bad})
    with pytest.raises(ValueError, match="gamma"):
        bernoulli_exp(Fraction(-1), Random(1).randrange)
    with pytest.raises(ValueError, match="epsilon"):
        discrete_laplace(Fraction(0), Random(1).randrange)


def test_candidates_are_round_numbers() -> None:
    assert [float(number) for number in round_numbers(0.5, 30)] == [0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30]
    assert round_numbers(3, 4) == [3]
