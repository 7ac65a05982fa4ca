"""The factorization in exact fractions, the sensitivity by brute force, and the constants known from the literature."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.factorization import (
    FIXED,
    MIN_BITS,
    Factorization,
    normalized_power,
    power,
    round_up,
)
from tests.mechanisms.histogram.dense_matrices import decoding_rows, strategy_matrix

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


ROOMS = [(2, 28), (7, 28), (12, 16), (24, 20), (30, 12)]


class TestNormalized:
    """Columns of one norm: the same promises as above, and that nobody loses by them."""

    @pytest.mark.parametrize(("triggers", "room"), ROOMS)
    def test_the_decoder_inverts_the_strategy(self, triggers: int, room: int) -> None:
        f = normalized_power(triggers, 0.5, room)
        c, b = strategy_matrix(f), decoding_rows(f)
        assert [[Fraction(int(each), 1 << f.grid_bits) for each in row] for row in f.columns] == c
        for t in [*range(triggers, 0, -1), *range(1, triggers + 1), 1, triggers]:  # rows are computed from earlier ones
            row = b[t - 1]
            for s in range(triggers):
                assert sum(row[k] * c[k][s] for k in range(t)) == (1 if s < t else 0)
            numerators, denominator = f.row_exact(t)
            assert [Fraction(n, denominator) for n in numerators] == row[:t]
            error = Fraction(f.row_error, 1 << FIXED)
            assert error < Fraction(1, 1 << 170)
            fixed = f.row_fixed(t)
            assert len(fixed) == t
            for s in range(t):
                assert abs(Fraction(fixed[s], 1 << FIXED) - row[s]) <= error
                assert abs(Fraction(float(f.decoding[s, t - 1])) - row[s]) <= abs(row[s]) * Fraction(
                    triggers + 4, 1 << 53
                )

    @pytest.mark.parametrize(("triggers", "room"), ROOMS)
    def test_norms_are_exact_and_as_large_as_the_grid_lets_them_be(self, triggers: int, room: int) -> None:
        f = normalized_power(triggers, 0.5, room)
        c, b = strategy_matrix(f), decoding_rows(f)
        first = f.column_squares[0]
        for t in range(triggers):
            assert f.column_squares[t] == sum(c[s][t] ** 2 for s in range(triggers))
            assert first * (1 - Fraction(1, 1 << f.scale_bits)) ** 2 < f.column_squares[t] <= first
            row2, row1 = sum(x * x for x in b[t]), sum(abs(x) for x in b[t])
            assert row2 <= Fraction(f.row2[t]) <= row2 * Fraction(10**9 + 1, 10**9)
            assert row1 <= Fraction(f.row1[t]) <= row1 * Fraction(10**9 + 1, 10**9)
            for last in range(t, triggers):
                wanted = sum(x * y for x, y in zip(b[t], b[last], strict=True))
                assert f.row_product(t + 1, last + 1) == pytest.approx(float(wanted), rel=1e-13)
        assert list(f.column_scales) == sorted(f.column_scales)
        assert f.column_scales[0] == 1 << f.scale_bits

    @pytest.mark.parametrize(("triggers", "records", "bound"), [(3, 3, 1), (4, 2, 2)])
    def test_no_placement_of_records_costs_more_than_any_at_one_trigger(
        self, triggers: int, records: int, bound: int
    ) -> None:
        """A record costs the same at every trigger, so one trigger is as good as another for the dearest user."""
        f = normalized_power(triggers, 0.5, 28)
        c = strategy_matrix(f)

        def moved(changes: tuple[tuple[int, int], ...]) -> Fraction:
            return sum((sum((c[s][t] * v for t, v in changes), Fraction(0)) ** 2 for s in range(triggers)), Fraction(0))

        options = list(itertools.product(range(triggers), range(-bound, bound + 1)))
        worst = max(map(moved, itertools.combinations_with_replacement(options, records)))
        assert worst == (records * bound) ** 2 * f.column_squares[0]
        for t in range(triggers):
            assert moved(((t, bound),) * records) >= worst * (1 - Fraction(1, 1 << f.scale_bits)) ** 2

    @pytest.mark.parametrize("triggers", [*range(1, 25), 31, 64, 96, 100, 168, 365, 744, 1000, 2048])
    def test_no_trigger_is_noisier_than_without(self, triggers: int) -> None:
        """Of one budget: column norm times row norm. Coefficients on a coarser grid may cost 1e-5."""
        plain, f = power(triggers, 0.5, 20), normalized_power(triggers, 0.5, 28)
        ratio = np.sqrt(f.col2 * f.row2 / (plain.col2 * plain.row2))
        assert ratio.max() <= 1 + 1e-9
        assert ratio[0] == pytest.approx(1)
        for room in range(8, 29):
            f = normalized_power(triggers, 0.5, room)
            ratio = np.sqrt(f.col2 * f.row2 / (power(triggers, 0.5, f.bits).col2 * power(triggers, 0.5, f.bits).row2))
            assert ratio.max() <= 1 + 1e-4

    @pytest.mark.parametrize("triggers", range(2, 13))
    def test_no_trigger_is_noisier_in_fractions(self, triggers: int) -> None:
        f = normalized_power(triggers, 0.5, 28)
        plain, mine = decoding_rows(power(triggers, 0.5, f.bits)), decoding_rows(f)
        assert f.column_squares[0] == power(triggers, 0.5, f.bits).column_squares[0]
        for before, now in zip(plain, mine, strict=True):
            assert sum(x * x for x in now) <= sum(x * x for x in before)

    @pytest.mark.parametrize(
        ("triggers", "quarters"),
        [(24, (0.988, 0.969, 0.937, 0.852)), (100, (0.988, 0.970, 0.940, 0.828)), (1000, (0.989, 0.974, 0.948, 0.803))],
    )
    def test_gains_are_those_of_the_documentation(self, triggers: int, quarters: tuple[float, ...]) -> None:
        plain, f = power(triggers, 0.5, 20), normalized_power(triggers, 0.5, 28)
        ratio = np.sqrt(f.col2 * f.row2 / (plain.col2 * plain.row2))
        assert ratio[[triggers * k // 4 - 1 for k in (1, 2, 3, 4)]] == pytest.approx(quarters, abs=0.003)

    def test_without_room_for_scales_columns_stay_as_they_are(self) -> None:
        for room in range(-20, MIN_BITS + 1):
            assert normalized_power(50, 0.5, room) == power(50, 0.5, MIN_BITS)
        assert normalized_power(1, 0.5, 28) == power(1, 0.5, 20)

    def test_scales_that_are_rounded_up_cost_more_than_is_paid(self) -> None:
        """The planted defect: what `normalized` floors."""
        f = normalized_power(24, 0.5, 28)
        larger = (f.column_scales[0], *(scale + 1 for scale in f.column_scales[1:]))
        above = Factorization(24, 0.5, f.bits, f.numerators, f.scale_bits, larger)
        assert max(above.column_squares[1:]) > f.column_squares[0]

    def test_threads_may_ask_for_rows_in_any_order(self) -> None:
        f = normalized_power(40, 0.5, 28)
        wanted = {t: f.row_fixed(t) for t in range(40, 0, -1)}
        with ThreadPoolExecutor(4) as pool:
            orders = [list(np.random.default_rng(i).permutation(np.arange(1, 41))) for i in range(8)]
            for order, rows in zip(
                orders, pool.map(lambda order: [f.row_fixed(int(t)) for t in order], orders), strict=True
            ):
                assert rows == [wanted[int(t)] for t in order]
