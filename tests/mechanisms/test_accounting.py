"""The closed forms against mpmath, dp-accounting's privacy loss distributions and brute force."""

import itertools
import math

import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.accounting import (
    Caps,
    delta_gaussian,
    gaussian_mu,
    joint_cost,
    squares,
    tail_quantile,
)
from susurrus.mechanisms.errors import ConfigurationError


def delta_in_mpmath(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [0.01, 0.3, 0.958, 3.0, 12.0])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 6.0, 40.0])
def test_delta_agrees_with_eighty_digits(mu: float, epsilon: float) -> None:
    exact = delta_in_mpmath(mu, epsilon)
    if exact < mpmath.mpf("1e-300"):
        assert delta_gaussian(mu, epsilon) <= 1e-300
    else:
        assert abs(delta_gaussian(mu, epsilon) / exact - 1) < 1e-9


@pytest.mark.parametrize(("epsilon", "delta"), [(6.0, 5e-10), (1.0, 1e-6), (0.1, 1e-9), (0.001, 1e-12), (20.0, 1e-9)])
def test_mu_spends_the_budget_and_no_more(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert delta_in_mpmath(mu, epsilon) <= delta
    assert delta_in_mpmath(mu * (1 + 1e-7), epsilon) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(6.0, 5e-10), (1.0, 1e-6), (0.5, 1e-9)])
def test_privacy_loss_distributions_agree(epsilon: float, delta: float) -> None:
    """dp-accounting rounds pessimistically, so it may not promise less than the closed form, and hardly more."""
    mu = gaussian_mu(epsilon, delta)
    loss = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    assert delta * 0.999 <= loss.get_delta_for_epsilon(epsilon) <= delta * 1.02
    twice = loss.compose(loss).get_delta_for_epsilon(2 * epsilon)
    assert twice == pytest.approx(delta_gaussian(mu * math.sqrt(2), 2 * epsilon), rel=0.02)


def test_the_paper_setting() -> None:
    assert gaussian_mu(6.0, 5e-10) == pytest.approx(0.958, abs=5e-4)


@pytest.mark.parametrize("probability", [0.4, 1e-3, 1e-12, 1e-60, 1e-250])
def test_tail_quantile_is_never_below_the_exact_one(probability: float) -> None:
    with mpmath.workdps(50):
        got = mpmath.erfc(mpmath.mpf(tail_quantile(probability)) / mpmath.sqrt(2)) / 2
        assert probability * (1 - 1e-8) < got <= probability


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-9), (1.0, 0.0), (1.0, 1.0), (-1.0, 0.5)])
def test_impossible_budgets_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigurationError, match="epsilon"):
        gaussian_mu(epsilon, delta)


def allocations(caps: Caps) -> list[tuple[int, ...]]:
    """Every non-increasing allocation of records to keys that the caps allow."""
    most = caps.records if caps.keys is None else min(caps.keys, caps.records)
    rows = itertools.product(range(caps.records_per_key + 1), repeat=most)
    return [r for r in rows if sum(r) <= caps.records and all(a >= b for a, b in itertools.pairwise(r))]


CAPS = st.tuples(st.integers(1, 6), st.integers(1, 4), st.none() | st.integers(1, 6)).map(
    lambda c: Caps(records=c[0], records_per_key=min(c[0], c[1]), keys=c[2])
)


@given(caps=CAPS, per_key=st.integers(0, 9), per_square=st.integers(0, 9))
def test_joint_cost_is_the_maximum_over_all_allocations(caps: Caps, per_key: int, per_square: int) -> None:
    expected = max(sum(per_key + per_square * r * r for r in row if r) for row in allocations(caps))
    assert joint_cost(caps, per_key=per_key, per_square=per_square) == expected


@settings(max_examples=200)
@given(records=st.integers(1, 60), per_key=st.integers(1, 60), a=st.integers(0, 20), b=st.integers(0, 20))
def test_joint_cost_equals_the_knapsack(records: int, per_key: int, a: int, b: int) -> None:
    per_key = min(per_key, records)
    best = [0] * (records + 1)
    for c in range(1, records + 1):
        best[c] = max(best[c - r] + a + b * r * r for r in range(1, min(per_key, c) + 1))
    assert joint_cost(Caps(records=records, records_per_key=per_key), per_key=a, per_square=b) == max(best)


def test_one_maximum_is_less_than_the_sum_of_two() -> None:
    """32 records, 8 per key, equal targets: 36 against 64."""
    caps = Caps(records=32, records_per_key=8)
    assert joint_cost(caps, per_key=8, per_square=1) == 32 * 9
    assert joint_cost(caps, per_key=8) + joint_cost(caps, per_square=1) == 2 * 32 * 8


@pytest.mark.parametrize(("keys", "records", "per_key", "expected"), [(4, 4, 3, 4), (2, 6, 3, 18), (3, 7, 4, 21)])
def test_squares(keys: int, records: int, per_key: int, expected: int) -> None:
    assert squares(keys, records, per_key) == expected
