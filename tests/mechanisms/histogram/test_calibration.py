"""Calibrated rows: the fit against least squares by other means, exact and without order, and intervals that cover.

Simulated windows have keys of realistic spread: some named, by noisy statistics; of the others nothing may enter.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from susurrus.mechanisms.histogram.calibration import CAUTION, LEAST_ROWS, OUTLIER, Line, Ratio, quantile
from tests.mechanisms.histogram.closing_cases import ONE, PAID, USERS, VISITS, closing
from tests.samples import samples

DIRECT_STD, CLOSING_STD, FILTER_STD, LEVEL = 24.5, 2.9, 2.8, 25.0
"""As of a hundred triggers at epsilon 6."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def keys(size: int, seed: int) -> tuple[Floats, Ints, Floats]:
    """(true users, evidence as `Closing.calibrate` has it, both statistics without noise) of keys by Zipf's law, seen in part.

    How many of a user's keys compete with this one differs from key to key, so the line is not the truth.
    """
    rng = np.random.default_rng(seed)
    truth = np.floor(4 * rng.pareto(1.1, size) + 4)
    truth = np.minimum(truth, 3000)
    seen = truth * rng.beta(6, 5, size)
    filtered = truth * rng.beta(5, 5, size)
    evidence = np.stack(
        [
            truth + rng.normal(0, DIRECT_STD, size),
            (seen + rng.normal(0, CLOSING_STD, size)) * ONE,
            (filtered + rng.normal(0, FILTER_STD, size)) * ONE,
            np.zeros(size),  # the keys were not public
        ],
        axis=1,
    )
    return truth, np.rint(evidence).astype(np.int64), np.stack([seen, filtered], axis=1)


def named(evidence: Ints) -> npt.NDArray[np.bool_]:
    """The joint test."""
    passed: npt.NDArray[np.bool_] = evidence[:, 1] + 0.7 * evidence[:, 2] >= LEVEL * ONE
    return passed


def window(number: int, seed: int) -> tuple[Floats, Ints]:
    """(true users, evidence) of so many named keys."""
    truth, evidence, _ = keys(40 * number, seed)
    shown = np.flatnonzero(named(evidence))[:number]
    assert len(shown) == number
    return truth[shown], evidence[shown]


def regressors(evidence: Ints, pooled: Ints) -> list[Floats]:
    """From the definition: 1, closing statistic, the same up to its 90 % quantile, matched filter."""
    knot = np.sort(pooled[:, 1])[int(np.floor(0.9 * (len(pooled) - 1)))]
    statistics = (evidence[:, 1], np.minimum(evidence[:, 1], knot), evidence[:, 2])
    return [np.ones(len(evidence)), *(each / ONE for each in statistics)]


def fit(evidence: Ints, variance: float = DIRECT_STD**2) -> Line:
    fitted = Line.fit(evidence[:, 0].astype(np.float64), regressors(evidence, evidence), variance)
    assert fitted is not None
    return fitted


def rows(fitted: Line, evidence: Ints, pooled: Ints) -> tuple[Floats, Floats]:
    return fitted.rows(evidence[:, 0].astype(np.float64), regressors(evidence, pooled))


class TestLine:
    @pytest.mark.parametrize("number", [LEAST_ROWS, 300, 2000])
    def test_is_least_squares(self, number: int) -> None:
        _, evidence = window(number, 1)
        fitted, y = fit(evidence), evidence[:, 0].astype(np.float64)
        x = np.stack(regressors(evidence, evidence), axis=1)
        solution, squares, rank, _ = np.linalg.lstsq(x, y, rcond=None)
        assert rank == 4
        assert fitted.coefficients == pytest.approx(solution, rel=1e-7)
        assert fitted.residual == pytest.approx(squares[0] / (number - 4), rel=1e-9)
        assert fitted.inverse == pytest.approx(np.linalg.inv(x.T @ x), rel=1e-6)
        residual = squares[0] / (number - 4)
        spread = max(residual - DIRECT_STD**2, 0) + CAUTION * residual * np.sqrt(2 / (number - 4))
        assert fitted.spread == pytest.approx(spread, rel=1e-9)
        line = x @ solution
        far = np.maximum((y - line) ** 2 - 9 * (spread + DIRECT_STD**2), 0)
        assert 0 < (far > 0).sum() < number / 10
        share = (spread + far) / (spread + far + DIRECT_STD**2)
        estimates, errors = rows(fitted, evidence, evidence)
        assert estimates == pytest.approx(line + share * (y - line), rel=1e-9)
        leverage = np.einsum("ij,jk,ik->i", x, np.linalg.inv(x.T @ x), x)
        assert leverage.sum() == pytest.approx(4)
        expected = share * DIRECT_STD**2 + (1 - share) ** 2 * residual * leverage
        assert errors == pytest.approx(np.sqrt(expected), rel=1e-6)

    def test_is_exact_where_sums_in_floating_point_would_not_be(self) -> None:
        """Rows on a line of whole numbers, whose sums of products need more than 53 bits: the coefficients to the last bit."""
        rng = np.random.default_rng(2)
        x, m = (rng.integers(1 << 25, 1 << 26, 3000).astype(np.float64) for _ in range(2))
        direct = 12345 + 3 * x - 2 * m
        fitted = Line.fit(direct, [np.ones(3000), x, m], 1.0)
        assert fitted is not None
        assert fitted.coefficients == pytest.approx([12345.0, 3.0, -2.0], rel=1e-9)
        assert fitted.residual < 1e-6

    @given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 400), max_size=6))
    def test_does_not_depend_on_order_and_partitions(self, seed: int, cuts: list[int]) -> None:
        _, evidence = window(400, 3)
        parts = np.split(np.random.default_rng(seed).permutation(evidence), sorted(cuts))
        again, first = fit(np.concatenate(parts)), fit(evidence)
        assert again.coefficients.tobytes() == first.coefficients.tobytes()
        assert again.inverse.tobytes() == first.inverse.tobytes()
        assert (again.spread, again.residual) == (first.spread, first.residual)

    @given(some=st.lists(st.integers(0, 399), max_size=30))
    def test_a_row_is_the_same_beside_any_others(self, some: list[int]) -> None:
        """Each partition computes its own rows, in whatever chunks."""
        _, evidence = window(400, 3)
        fitted = fit(evidence)
        whole, part = rows(fitted, evidence, evidence), rows(fitted, evidence[some], evidence)
        assert part[0].tobytes() == whole[0][some].tobytes()
        assert part[1].tobytes() == whole[1][some].tobytes()

    def test_too_few_rows_have_no_line(self) -> None:
        _, evidence = window(LEAST_ROWS, 4)
        for number in (0, 1, LEAST_ROWS - 1):
            given_rows = evidence[:number]
            columns = [np.ones(number), given_rows[:, 1] / ONE]
            assert Line.fit(given_rows[:, 0].astype(np.float64), columns, 1.0) is None
        fit(evidence)

    @pytest.mark.parametrize("alike", ["closing", "filter", "proportional", "few closing"])
    def test_rows_that_determine_no_line_have_none(self, alike: str) -> None:
        _, evidence = window(500, 5)
        if alike == "closing":
            evidence[:, 1] = 30 * ONE
        elif alike == "filter":
            evidence[:, 2] = 0
        elif alike == "proportional":
            evidence[:, 2] = 2 * evidence[:, 1] + 7 * ONE
        else:  # nothing beyond the knot, so its column repeats another
            evidence[:, 1] = np.minimum(evidence[:, 1], np.sort(evidence[:, 1])[400])
        assert Line.fit(evidence[:, 0].astype(np.float64), regressors(evidence, evidence), 1.0) is None

    def test_the_bend_is_an_order_statistic(self) -> None:
        values = np.random.default_rng(1).integers(0, 50, 237)
        for share in (Fraction(0), Fraction(1, 2), Fraction(9, 10), Fraction(1)):
            bend = quantile(values, share)
            assert (values <= bend).mean() >= share * Fraction(236, 237)
            assert (values < bend).mean() <= share
        assert quantile(values[:0], Fraction(9, 10)) == 0


PARTS = {
    "all alike": ((0.9,), 0.05),
    "in full": ((1.0,), 0.0),
    "often half": ((0.5, 1.0), 0.0),
    "rarely half": ((0.5, *[1.0] * 19), 0.0),
    "rarely in full": ((1.0, *[0.7] * 19), 0.0),
    "more than kept": ((1.2,), 0.03),
    "hardly more than kept": ((1.01,), 0.0),
}
"""Which part of a row's users the second measurement counts: one of these at random, and how far from it. Above 1: lists are
whole, and the caps keep less of them."""


def public(size: int, seed: int, parts: str = "all alike") -> tuple[Floats, Floats, Floats, Floats]:
    """(true users, direct estimates, second measurements, the variance of their noise) of keys that were public."""
    rng = np.random.default_rng(seed)
    truth = np.minimum(np.floor(60 * (rng.pareto(1.1, size) + 1)), 50_000)
    typical, spread = PARTS[parts]
    seen = truth * np.clip(rng.choice(typical, size) + rng.normal(0, spread, size), 0, max(1.0, max(typical) + 0.1))
    noise = 8.0**2 * np.maximum(truth / 60, 1) ** (2 / 3)
    return truth, truth + rng.normal(0, DIRECT_STD, size), seen + rng.normal(size=size) * np.sqrt(noise), noise


class TestRatio:
    @pytest.mark.parametrize(
        ("parts", "factor"),
        [("in full", 1), ("all alike", 1 / 0.9), ("often half", 1 / 0.7), ("more than kept", 1 / 1.2)],
    )
    def test_is_what_the_second_measurement_lacks(self, parts: str, factor: float) -> None:
        """Where rows differ, more than the mean part says: a row that counts half counts half in the sum."""
        _, direct, again, noise = public(40_000, 1, parts)
        fitted = Ratio.fit(direct, again, noise, DIRECT_STD**2)
        assert fitted is not None
        assert fitted.factor == pytest.approx(factor, rel=0.04)

    def test_is_the_quotient_of_weighted_sums(self) -> None:
        """By hand, in fractions of the rows' numbers."""
        _, direct, again, noise = public(LEAST_ROWS, 2)
        fitted = Ratio.fit(direct, again, noise, DIRECT_STD**2)
        assert fitted is not None
        above, below = Fraction(0), Fraction(0)
        for q, r, n in zip(direct.tolist(), again.tolist(), noise.tolist(), strict=True):
            size = Fraction(max(r, 60))
            above += Fraction(q) / size
            below += Fraction(r) / size + (Fraction(n) / size**2 if r > 60 else 0)
        assert fitted.factor == pytest.approx(float(above / below), rel=1e-12)

    def test_a_small_loss_is_none(self) -> None:
        """Lists that hold up to 3 % more than the caps keep are taken as they are."""
        _, direct, again, noise = public(40_000, 1, "hardly more than kept")
        fitted = Ratio.fit(direct, again, noise, DIRECT_STD**2)
        assert fitted is not None
        assert fitted.factor == 1
        more = Ratio.fit(direct, again * 1.03, noise * 1.03**2, DIRECT_STD**2)
        assert more is not None
        assert more.factor == pytest.approx(1 / (1.01 * 1.03), rel=0.01)

    def test_rows_are_means_by_variance(self) -> None:
        _, direct, again, noise = public(2000, 3)
        fitted = Ratio.fit(direct, again, noise, DIRECT_STD**2)
        assert fitted is not None
        estimates, errors = fitted.rows(direct, again, noise)
        for q, r, n, estimate, error in zip(direct, again, noise, estimates, errors, strict=True):
            # Below what is expected, a row may be by about as much as the factor changes.
            expected, around, most = fitted.factor * r, fitted.factor**2 * n, abs(fitted.factor - 1) * max(r, 0)
            around += fitted.spread * r**2 if q > expected else min(fitted.spread * r**2, most**2)
            away = q - expected if q > expected else min(expected - q, most)
            around += max(away**2 - OUTLIER**2 * (around + DIRECT_STD**2), 0)
            share = around / (around + DIRECT_STD**2)
            assert estimate == pytest.approx(expected + share * (q - expected), rel=1e-9)
            assert error == pytest.approx(np.sqrt(share) * DIRECT_STD, rel=1e-9)

    @given(seed=st.integers(0, 2**32))
    def test_depends_neither_on_order_nor_on_the_rows_beside(self, seed: int) -> None:
        _, *columns = public(300, 4)
        order = np.random.default_rng(seed).permutation(300)
        first = Ratio.fit(*columns, DIRECT_STD**2)
        assert first is not None
        assert Ratio.fit(*(each[order] for each in columns), DIRECT_STD**2) == first
        whole, part = first.rows(*columns), first.rows(*(each[order[:17]] for each in columns))
        assert [each.tobytes() for each in part] == [each[order[:17]].tobytes() for each in whole]

    def test_few_rows_and_rows_of_nothing_have_none(self) -> None:
        _, direct, again, noise = public(LEAST_ROWS, 5)
        assert Ratio.fit(direct[1:], again[1:], noise[1:], DIRECT_STD**2) is None
        assert Ratio.fit(direct, -again, noise, DIRECT_STD**2) is None
        assert Ratio.fit(direct, again, noise, DIRECT_STD**2) is not None

    @pytest.mark.statistical
    @pytest.mark.parametrize(("number", "windows"), [(LEAST_ROWS, 60), (300, 60), (5000, 4)])
    @pytest.mark.parametrize("parts", PARTS)
    def test_intervals_cover_and_are_shorter(self, number: int, windows: int, parts: str) -> None:
        """Of large keys as of small ones, and whether the usual row is the short one or the one in full."""
        inside, squares, direct_squares, large = [], [], [], []
        for seed in range(samples(windows)):
            truth, direct, again, noise = public(number, 100 + seed, parts)
            fitted = Ratio.fit(direct, again, noise, DIRECT_STD**2)
            assert fitted is not None
            estimates, errors = fitted.rows(direct, again, noise)
            inside.append(np.abs(estimates - truth) <= 1.96 * errors)
            squares.append((estimates - truth) ** 2)
            direct_squares.append((direct - truth) ** 2)
            large.append(inside[-1][truth > 1000])
        assert 0.925 <= np.mean(inside) < 0.99
        # What lists hold and the caps do not keep stays in large rows, if it is little: nearer to the true count.
        least = 0.88 if parts == "hardly more than kept" else 0.92
        assert least <= np.mean(np.concatenate(large)) < 0.99
        assert np.mean(squares) < 0.85 * np.mean(direct_squares)


class TestColumns:
    """`Closing.calibrate`: which columns are drawn to the line, and when none."""

    @pytest.mark.parametrize("columns", [(USERS, PAID), (VISITS, USERS), (PAID, VISITS)])
    def test_those_that_count_users(self, columns: tuple[Any, ...]) -> None:
        strategy: Any = closing(columns, max_records_per_key=1, triggers=10)
        _, evidence = window(300, 6)
        direct = np.tile(evidence[:, :1], (1, len(columns))) + np.arange(len(columns))
        errors = np.full(direct.shape, 9.0)
        given_to = direct.copy(), errors.copy()
        estimates, std_errors = strategy.calibrate(*given_to, evidence, evidence)
        std = strategy.values[strategy.source[strategy.counting[0]]].std[-1]
        line = rows(fit(evidence, float(std) ** 2), evidence, evidence)
        expected = np.rint(line[0]), np.sqrt(line[1] ** 2 + 1 / 12)
        for index, column in enumerate(columns):
            if column is PAID:
                assert (estimates[:, index] == direct[:, index]).all()
                assert (std_errors[:, index] == 9.0).all()
            else:
                assert estimates[:, index].tolist() == expected[0].tolist()
                assert std_errors[:, index].tolist() == expected[1].tolist()
        assert (given_to[0] == direct).all(), "what is given stays as it is"
        assert (given_to[1] == errors).all()

    def test_few_rows_stay_as_they_are(self) -> None:
        strategy: Any = closing(triggers=10)
        _, evidence = window(LEAST_ROWS - 1, 6)
        direct, errors = evidence[:, :1], np.full((LEAST_ROWS - 1, 1), 9.0)
        estimates, std_errors = strategy.calibrate(direct, errors, evidence, evidence)
        assert (estimates == direct).all()
        assert (std_errors == errors).all()

    def test_rows_of_one_partition_follow_all_rows(self) -> None:
        strategy: Any = closing(triggers=10)
        _, evidence = window(900, 7)
        errors = np.full((900, 1), 9.0)
        whole = strategy.calibrate(evidence[:, :1], errors, evidence, evidence)
        for part in np.array_split(np.arange(900), 7):
            mine = strategy.calibrate(evidence[part, :1], errors[part], evidence[part], evidence[::-1])
            assert mine[0].tolist() == whole[0][part].tolist()
            assert mine[1].tolist() == whole[1][part].tolist()


def covered(number: int, windows: int, *, seed: int = 0) -> tuple[float, float, float]:
    """(share of rows within 1.96 standard errors, their mean square error, the direct estimates') over simulated windows."""
    inside, squares, direct = 0, 0.0, 0.0
    for each in range(windows):
        truth, evidence = window(number, seed + each)
        estimates, errors = rows(fit(evidence), evidence, evidence)
        inside += int((np.abs(estimates - truth) <= 1.96 * errors).sum())
        squares += float(((estimates - truth) ** 2).sum())
        direct += float(((evidence[:, 0] - truth) ** 2).sum())
    return inside / number / windows, squares / number / windows, direct / number / windows


@pytest.mark.statistical
@pytest.mark.parametrize(("number", "windows"), [(LEAST_ROWS, 60), (300, 60), (5000, 4)])
def test_intervals_cover_and_are_shorter(number: int, windows: int) -> None:
    """Nominal 95 %; marginally over rows and windows at least 93 %. The mean square error falls below the direct estimates'."""
    share, squares, direct = covered(number, samples(windows))
    assert 0.93 <= share < 0.99
    assert direct == pytest.approx(DIRECT_STD**2, rel=0.1)
    assert squares < 0.9 * direct


@pytest.mark.statistical
def test_standard_errors_include_the_line_that_is_not_known() -> None:
    """Keys whose spread around a line is nothing: what is left is the line's own error, largest for rows far out."""
    far, error, misses = [], [], []
    for seed in range(samples(150)):
        rng = np.random.default_rng(seed)
        x, m = rng.gamma(2, 20, 300), rng.gamma(2, 20, 300)
        truth = 5 + 1.5 * x + m
        columns, direct = [np.ones(300), x, m], truth + rng.normal(0, DIRECT_STD, 300)
        fitted = Line.fit(direct, columns, DIRECT_STD**2)
        assert fitted is not None
        # No spread, and no row so far that it counts as an outlier.
        estimates, errors = replace(fitted, spread=0.0).rows(np.clip(direct, truth - 60, truth + 60), columns)
        misses.append(estimates - truth)
        error.append(errors)
        far.append(x > np.quantile(x, 0.97))
    miss, std, outside = np.concatenate(misses), np.concatenate(error), np.concatenate(far)
    for which in (outside, ~outside):
        assert np.sqrt((miss[which] ** 2).mean()) == pytest.approx(np.sqrt((std[which] ** 2).mean()), rel=0.1)
    assert std[outside].mean() > 2 * std[~outside].mean()


# Defects: what must not enter, and how it would show.


def with_one_more_failed(fails: bool, seed: int, *, pooled_candidates: bool) -> Floats:
    """The published rows of a window in which one more user brought a key that no test named, or brought none.

    pooled_candidates: the broken rule, by which the statistics of candidates that failed enter the fit.
    """
    _, evidence, _ = keys(20_000, seed)
    shown = evidence[named(evidence)]
    candidates = evidence[~named(evidence)][:300]
    if fails:
        candidates = candidates.copy()
        candidates[0, 1] += ONE
        candidates[0, 0] += 1
    pooled = np.concatenate([shown, candidates]) if pooled_candidates else shown
    return np.stack(rows(fit(pooled), shown, pooled))


def test_a_candidate_that_failed_moves_no_row() -> None:
    """Its noise is in no published row, so a row that moves tells of a user without any noise."""
    for seed in range(5):
        real, broken = (
            [with_one_more_failed(fails, seed, pooled_candidates=pooled) for fails in (False, True)]
            for pooled in (False, True)
        )
        assert real[0].tobytes() == real[1].tobytes()
        assert broken[0].tobytes() != broken[1].tobytes()


@pytest.mark.statistical
@pytest.mark.parametrize("noiseless", [False, True])
def test_one_user_shows_no_more_than_the_noise_of_the_statistics_allows(noiseless: bool) -> None:
    """A row as the observer of neighbouring windows sees it, with one user more on its key and without.

    With noise in every regressor the two can hardly be told apart. With the noiseless statistic the line, which anybody can fit
    again from the rows, gives the number of users away.
    """
    pooled = window(2000, 8)[1]
    fitted = replace(fit(pooled), spread=DIRECT_STD**2 / 4)
    rng, trials = np.random.default_rng(9), samples(4000)
    sums, share = np.array([60.0, 33.0, 30.0, 0.0]), 0.2
    shares = []
    for present in (0, 1):
        std = np.array([DIRECT_STD, 0.0 if noiseless else CLOSING_STD, FILTER_STD, 0])
        moved = sums + present * np.array([1, 1, 0.7, 0])
        mine = np.rint((moved + rng.normal(size=(trials, 4)) * std) * [1, ONE, ONE, 1]).astype(np.int64)
        estimates = np.rint(rows(fitted, mine, pooled)[0])
        # What the row's own noise leaves: the observer knows the line, direct estimate and filter.
        known = fitted.coefficients[0] + fitted.coefficients[3] * mine[:, 2] / ONE
        shares.append(((estimates - share * mine[:, 0]) / (1 - share) - known)[np.abs(mine[:, 0] - 60) < 50])
    distance = (shares[1].mean() - shares[0].mean()) / shares[0].std()
    paid = 1 / CLOSING_STD
    assert (distance > 2 * paid) == noiseless
    if not noiseless:
        assert distance == pytest.approx(paid, rel=0.3)


def test_fractions_agree_with_a_system_solved_by_hand() -> None:
    """Four unknowns, by Cramer's rule in fractions."""
    _, evidence = window(LEAST_ROWS, 10)
    closing = evidence[:, 1].tolist()
    knot = sorted(closing)[int(Fraction(9, 10) * (LEAST_ROWS - 1))]
    x = [[ONE, c, min(c, knot), m] for _, c, m, _ in evidence.tolist()]
    gram = [[Fraction(sum(row[i] * row[j] for row in x)) for j in range(4)] for i in range(4)]
    moment = [Fraction(sum(row[i] * y for row, y in zip(x, evidence[:, 0].tolist(), strict=True))) for i in range(4)]
    whole = determinant(gram)
    for i, got in enumerate(fit(evidence).coefficients.tolist()):
        replaced = [[moment[r] if c == i else gram[r][c] for c in range(4)] for r in range(4)]
        assert got == pytest.approx(float(determinant(replaced) / whole * ONE), rel=1e-9)


def determinant(matrix: list[list[Fraction]]) -> Fraction:
    """By the first row."""
    if not matrix:
        return Fraction(1)
    return sum(
        (
            (-1) ** i * value * determinant([row[:i] + row[i + 1 :] for row in matrix[1:]])
            for i, value in enumerate(matrix[0])
        ),
        Fraction(0),
    )


def test_simulated_windows_are_what_they_are_said_to_be() -> None:
    """Selected by their statistics, which lie high for that; the direct estimate knows nothing of it."""
    truth, evidence, noiseless = keys(40_000, 11)
    shown = named(evidence)
    assert 500 < shown.sum() < 20_000
    bias = (evidence[shown, 1] / ONE - noiseless[shown, 0]).mean() / CLOSING_STD
    assert bias > 0.1
    direct = (evidence[shown, 0] - truth[shown]) / DIRECT_STD
    assert abs(direct.mean()) < 5 / np.sqrt(shown.sum())
    assert stats.kstest(direct, "norm").pvalue > 1e-4
