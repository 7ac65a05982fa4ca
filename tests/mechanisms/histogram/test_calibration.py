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

from susurrus.mechanisms.histogram.calibration import LEAST_ROWS, STATISTIC_BITS, Calibration
from tests.mechanisms.histogram.closing_cases import PAID, USERS, VISITS, closing
from tests.samples import samples

ONE = 1 << STATISTIC_BITS
DIRECT_STD, CLOSING_STD, FILTER_STD, LEVEL = 24.5, 2.9, 2.8, 25.0
"""As of a hundred triggers at epsilon 6."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def keys(size: int, seed: int) -> tuple[Floats, Ints, Floats]:
    """(true users, evidence with noise, both statistics without) of keys by Zipf's law, seen in part by the statistics.

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
    rows = np.flatnonzero(named(evidence))[:number]
    assert len(rows) == number
    return truth[rows], evidence[rows]


def fit(evidence: Ints, variance: float = DIRECT_STD**2) -> Calibration:
    fitted = Calibration.fit(evidence, variance)
    assert fitted is not None
    return fitted


def design(evidence: Ints) -> Floats:
    """float64[n, 4], from the definition."""
    closing = evidence[:, 1] / ONE
    knot = np.sort(closing)[int(np.floor(0.9 * (len(closing) - 1)))]
    return np.stack([np.ones(len(evidence)), closing, np.minimum(closing, knot), evidence[:, 2] / ONE], axis=1)


class TestFit:
    @pytest.mark.parametrize("number", [LEAST_ROWS, 300, 2000])
    def test_is_least_squares(self, number: int) -> None:
        _, evidence = window(number, 1)
        fitted, x, y = fit(evidence), design(evidence), evidence[:, 0].astype(np.float64)
        solution, squares, rank, _ = np.linalg.lstsq(x, y, rcond=None)
        assert rank == 4
        assert fitted.coefficients == pytest.approx(solution, rel=1e-7)
        assert fitted.residual == pytest.approx(squares[0] / (number - 4), rel=1e-9)
        assert fitted.inverse == pytest.approx(np.linalg.inv(x.T @ x), rel=1e-6)
        spread = max(fitted.residual * (1 + np.sqrt(2 / (number - 4))) - DIRECT_STD**2, 0)
        assert fitted.share == pytest.approx(spread / (spread + DIRECT_STD**2), rel=1e-12)
        assert 0 < fitted.share < 1
        line = x @ solution
        estimates, errors = fitted.rows(evidence)
        assert np.abs(estimates - (line + fitted.share * (y - line))).max() <= 0.5 + 1e-6
        leverage = np.einsum("ij,jk,ik->i", x, np.linalg.inv(x.T @ x), x)
        expected = fitted.share * DIRECT_STD**2 + (1 - fitted.share) ** 2 * fitted.residual * leverage + 1 / 12
        assert errors == pytest.approx(np.sqrt(expected), rel=1e-6)
        assert leverage.sum() == pytest.approx(4)

    def test_is_exact_where_floating_point_would_not_be(self) -> None:
        """Rows on a line, far from zero: the coefficients are its own, to the last bit, and nothing is left."""
        rng = np.random.default_rng(2)
        closing = rng.integers(1 << 44, 1 << 45, 500)
        matched = rng.integers(1 << 44, 1 << 45, 500)
        direct = 12345 + 3 * closing - 2 * matched
        fitted = fit(np.stack([direct, closing, matched], axis=1))
        assert fitted.coefficients.tolist() == [12345.0, 3.0 * ONE, 0.0, -2.0 * ONE]
        assert fitted.residual == 0
        assert fitted.share == 0

    @given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 400), max_size=6))
    def test_does_not_depend_on_order_and_partitions(self, seed: int, cuts: list[int]) -> None:
        _, evidence = window(400, 3)
        parts = np.split(np.random.default_rng(seed).permutation(evidence), sorted(cuts))
        again, first = fit(np.concatenate(parts)), fit(evidence)
        assert again.coefficients.tobytes() == first.coefficients.tobytes()
        assert again.inverse.tobytes() == first.inverse.tobytes()
        assert (again.share, again.residual, again.knot) == (first.share, first.residual, first.knot)

    @given(rows=st.lists(st.integers(0, 399), max_size=30))
    def test_a_row_is_the_same_beside_any_others(self, rows: list[int]) -> None:
        """Each partition computes its own rows, in whatever chunks."""
        _, evidence = window(400, 3)
        fitted = fit(evidence)
        whole, part = fitted.rows(evidence), fitted.rows(evidence[rows])
        assert part[0].tolist() == whole[0][rows].tolist()
        assert part[1].tobytes() == whole[1][rows].tobytes()

    def test_too_few_rows_have_no_line(self) -> None:
        _, evidence = window(LEAST_ROWS, 4)
        assert Calibration.fit(evidence[:-1], DIRECT_STD**2) is None
        assert Calibration.fit(evidence[:0], DIRECT_STD**2) is None
        assert Calibration.fit(evidence, DIRECT_STD**2) is not None

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
        assert Calibration.fit(evidence, DIRECT_STD**2) is None


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
        expected = fit(evidence, float(std) ** 2).rows(evidence)
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
    inside, squares, direct, rows = 0, 0.0, 0.0, 0
    for each in range(windows):
        truth, evidence = window(number, seed + each)
        estimates, errors = fit(evidence).rows(evidence)
        inside += int((np.abs(estimates - truth) <= 1.96 * errors).sum())
        squares += float(((estimates - truth) ** 2).sum())
        direct += float(((evidence[:, 0] - truth) ** 2).sum())
        rows += number
    return inside / rows, squares / rows, direct / rows


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
        evidence = np.stack([truth + rng.normal(0, DIRECT_STD, 300), x * ONE, m * ONE], axis=1)
        evidence = np.rint(evidence).astype(np.int64)
        estimates, errors = replace(fit(evidence), share=0.0).rows(evidence)
        misses.append(estimates - truth)
        error.append(errors)
        far.append(x > np.quantile(x, 0.97))
    miss, std, outside = np.concatenate(misses), np.concatenate(error), np.concatenate(far)
    for rows in (outside, ~outside):
        assert np.sqrt((miss[rows] ** 2).mean()) == pytest.approx(np.sqrt((std[rows] ** 2).mean()), rel=0.1)
    assert std[outside].mean() > 2 * std[~outside].mean()


# Defects: what must not enter, and how it would show.


def with_one_more_failed(fails: bool, seed: int, *, pooled_candidates: bool) -> Floats:
    """The published rows of a window in which one more user brought a key that no test named, or brought none.

    pooled_candidates: the broken rule, by which the statistics of candidates that failed enter the fit.
    """
    _, evidence, _ = keys(20_000, seed)
    rows = evidence[named(evidence)]
    candidates = evidence[~named(evidence)][:300]
    if fails:
        candidates = candidates.copy()
        candidates[0, 1] += ONE
        candidates[0, 0] += 1
    pooled = np.concatenate([rows, candidates]) if pooled_candidates else rows
    return np.stack(fit(pooled).rows(rows))


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
    fitted = replace(fit(window(2000, 8)[1]), share=0.2)
    rng, trials = np.random.default_rng(9), samples(4000)
    sums = np.array([60.0, 33.0, 30.0])
    shares = []
    for present in (0, 1):
        std = np.array([DIRECT_STD, 0.0 if noiseless else CLOSING_STD, FILTER_STD])
        mine = np.rint((sums + present * np.array([1, 1, 0.7]) + rng.normal(size=(trials, 3)) * std) * [1, ONE, ONE])
        estimates, _ = fitted.rows(mine.astype(np.int64))
        # What the row's own noise leaves: the observer knows the line, direct estimate and filter.
        public = mine[:, [0, 2]] / [1, ONE]
        known = fitted.coefficients[0] + fitted.coefficients[3] * public[:, 1] / ONE
        closing = (estimates - fitted.share * public[:, 0]) / (1 - fitted.share) - known
        shares.append(closing)
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
    x = [[ONE, c, min(c, knot), m] for _, c, m in evidence.tolist()]
    gram = [[Fraction(sum(row[i] * row[j] for row in x)) for j in range(4)] for i in range(4)]
    moment = [Fraction(sum(row[i] * y for row, y in zip(x, evidence[:, 0].tolist(), strict=True))) for i in range(4)]
    whole = determinant(gram)
    for i, got in enumerate(fit(evidence).coefficients.tolist()):
        replaced = [[moment[r] if c == i else gram[r][c] for c in range(4)] for r in range(4)]
        assert got == float(determinant(replaced) / whole * ONE)


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
    rows = named(evidence)
    assert 500 < rows.sum() < 20_000
    bias = (evidence[rows, 1] / ONE - noiseless[rows, 0]).mean() / CLOSING_STD
    assert bias > 0.1
    direct = (evidence[rows, 0] - truth[rows]) / DIRECT_STD
    assert abs(direct.mean()) < 5 / np.sqrt(rows.sum())
    assert stats.kstest(direct, "norm").pvalue > 1e-4
