"""The factorization in exact fractions, the sensitivity by brute force, and the constants known from the literature."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.factorization import FIXED, Factorization, power, round_up

SMALL = [(1, 0.5, 20), (2, 0.5, 20), (7, 0.5, 20), (9, 0.65, 16), (12, 0.5, 8), (30, 0.35, 10)]


def coefficients(f: Factorization) -> list[Fraction]:
    return [Fraction(n, 1 << f.bits) for n in f.numerators]


def decoder(f: Factorization) -> list[Fraction]:
    """b = A C^-1 by long division of series."""
    c, inverse = coefficients(f), [Fraction(1)]
    for k in range(1, f.triggers):
        inverse.append(-sum((c[j] * inverse[k - j] for j in range(1, k + 1)), Fraction(0)))
    return list(itertools.accumulate(inverse))


@pytest.mark.parametrize(("triggers", "exponent", "bits"), SMALL)
def test_decoder_times_strategy_is_the_prefix_sum(triggers: int, exponent: float, bits: int) -> None:
    f = power(triggers, exponent, bits)
    b, c = decoder(f), coefficients(f)
    for t in range(triggers):
        assert sum(b[k] * c[t - k] for k in range(t + 1)) == 1
    for k in range(triggers):
        assert Fraction(f.decoder_exact[k], 1 << (bits * k)) == b[k]
        assert abs(Fraction(f.decoder_fixed[k], 1 << FIXED) - b[k]) <= Fraction(f.decoder_error, 1 << FIXED)
        assert abs(Fraction(f.decoder[k]) - b[k]) <= abs(b[k]) * Fraction(1, 1 << 52)


@pytest.mark.parametrize(("triggers", "exponent", "bits"), SMALL)
def test_norms_are_rounded_up_and_tight(triggers: int, exponent: float, bits: int) -> None:
    f = power(triggers, exponent, bits)
    c, b = coefficients(f), decoder(f)
    for t, got in enumerate(f.column_squares, start=1):
        assert got == sum(x * x for x in c[: triggers - t + 1])
    assert Fraction(f.col2) >= f.column_squares[0] > Fraction(f.col2) * Fraction(10**14 - 1, 10**14)
    for t in range(1, triggers + 1):
        row2, row1 = sum(x * x for x in b[:t]), sum(abs(x) for x in b[:t])
        assert row2 <= Fraction(f.row2[t - 1]) <= row2 * Fraction(10**9 + 1, 10**9)
        assert row1 <= Fraction(f.row1[t - 1]) <= row1 * Fraction(10**9 + 1, 10**9)


@pytest.mark.parametrize(("triggers", "value", "matched"), [(100, 2.531, 1.989), (1000, 3.265, 2.264)])
def test_known_error_constants(triggers: int, value: float, matched: float) -> None:
    """Column norm times row norm at the last trigger; and the matched filter's, which is what steady keys see."""
    f = power(triggers, 0.5, 20)
    column = math.sqrt(f.col2)
    assert column * math.sqrt(f.row2[-1]) == pytest.approx(value, abs=6e-4)
    g = np.cumsum(np.array(f.numerators) / 2.0**20)
    assert column * triggers / math.sqrt(float(g @ g)) == pytest.approx(matched, abs=6e-4)


@pytest.mark.parametrize("bits", [8, 10, 14])
def test_a_coarse_grid_costs_little(bits: int) -> None:
    fine, coarse = power(1000, 0.5, 20), power(1000, 0.5, bits)
    assert coarse.col2 * coarse.row2[-1] < 1.003 * fine.col2 * fine.row2[-1]


def sensitivity_squared(f: Factorization, changes: list[tuple[int, int]]) -> Fraction:
    """|C dx|^2 for records (trigger, value) of one key."""
    c, y = coefficients(f), [Fraction(0)] * f.triggers
    for trigger, value in changes:
        for t in range(trigger - 1, f.triggers):
            y[t] += c[t - trigger + 1] * value
    return sum((x * x for x in y), Fraction(0))


@pytest.mark.parametrize(("triggers", "records", "bound"), [(3, 3, 1), (4, 2, 2)])
def test_no_placement_of_records_beats_all_at_the_first_trigger(triggers: int, records: int, bound: int) -> None:
    f = power(triggers, 0.5, 20)
    options = list(itertools.product(range(1, triggers + 1), range(-bound, bound + 1)))
    worst = max(
        sensitivity_squared(f, list(changes)) for changes in itertools.combinations_with_replacement(options, records)
    )
    assert worst == sensitivity_squared(f, [(1, bound)] * records) == (records * bound) ** 2 * f.column_squares[0]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(-5, 5)), max_size=8),
)
def test_triangle_inequality_bounds_any_user(changes: list[tuple[int, int]]) -> None:
    f = power(9, 0.65, 16)
    most = sum(abs(value) for _, value in changes)
    assert sensitivity_squared(f, changes) <= most**2 * f.column_squares[0]


def test_round_up_never_rounds_down() -> None:
    for value in (Fraction(1, 3), Fraction(2, 3), Fraction(10**30 + 1, 10**30), Fraction(1, 2)):
        assert Fraction(round_up(value)) >= value
        assert Fraction(math.nextafter(round_up(value), 0)) < value
