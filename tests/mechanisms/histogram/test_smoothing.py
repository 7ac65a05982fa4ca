"""Smoothed rows: the mixture's posterior by other means, fits without order and with pinned bits, and intervals that cover."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from susurrus.mechanisms.histogram import smoothing
from susurrus.mechanisms.histogram.smoothing import LEAST_ROWS, MOST_ROWS, Smoothing, shown
from tests.mechanisms.histogram.remembered_days import Given, Smooth, covered, days, published_l1, smoothed
from tests.samples import samples

Floats = npt.NDArray[np.float64]
EXAMPLE = Smoothing(weights=(0.7, 0.2, 0.06, 0.04), factor=0.4, spread=0.01, widths=(4.0, 900.0, 90_000.0))


def drawn(size: int, seed: int, fitted: Smoothing = EXAMPLE, noise: float = 20.0) -> tuple[Floats, Given]:
    """(truth, what a fit is given) of so many rows that follow the model."""
    rng = np.random.default_rng(seed)
    value = np.floor(6 + 20 * rng.pareto(1.1, size))
    value_variance = np.full(size, 64.0)
    component = rng.choice(4, size, p=fitted.weights)
    expected = fitted.factor * value
    variance = (
        fitted.factor**2 * value_variance + np.maximum(expected, 1) * (1 + fitted.factor) + fitted.spread * expected**2
    )
    widths = np.array([0.0, *fitted.widths])[component]
    truth = np.where(component == 0, expected, 0) + rng.normal(size=size) * np.sqrt(
        np.where(component == 0, variance, widths)
    )
    direct = np.rint(truth + rng.normal(0, noise, size))
    return truth, (direct, np.full(size, noise**2 + 1 / 12), value, value_variance)


def fit(columns: Given) -> Smoothing:
    fitted = Smoothing.fit(*columns)
    assert fitted is not None
    return fitted


class TestRows:
    def test_are_the_posterior_mean_and_deviation(self) -> None:
        """By numerical integration of density of the truth times density of the row."""
        _, columns = drawn(8, 1)
        estimates, errors = EXAMPLE.rows(*columns)
        for *row, estimate, error in zip(*columns, estimates, errors, strict=True):
            q, v, m, p = map(float, row)
            e = 0.4 * m
            stds = [math.sqrt(0.16 * p + max(e, 1) * 1.4 + 0.01 * e * e), 2.0, 30.0, 300.0]

            def density(n: float, q: float = q, v: float = v, e: float = e, stds: list[float] = stds) -> float:
                parts = zip(EXAMPLE.weights, (e, 0, 0, 0), stds, strict=True)
                prior = sum(w * stats.norm.pdf(n, mean, std) for w, mean, std in parts)
                return float(prior * stats.norm.pdf(q, n, math.sqrt(v)))

            points = sorted({q, e, 0.0})
            low, high = min(points) - 250, max(points) + 250
            moments = [
                integrate.quad(lambda n, k=k: n**k * density(n), low, high, points=points, limit=400)[0]
                for k in range(3)
            ]
            mean = moments[1] / moments[0]
            assert estimate == pytest.approx(mean, rel=1e-6, abs=1e-6)
            assert error == pytest.approx(math.sqrt(moments[2] / moments[0] - mean**2), rel=1e-5)

    @given(some=st.lists(st.integers(0, 399), max_size=30))
    def test_are_the_same_beside_any_others(self, some: list[int]) -> None:
        _, columns = drawn(400, 3)
        fitted = fit(columns)
        whole, part = fitted.rows(*columns), fitted.rows(*(each[some] for each in columns))
        assert [each.tobytes() for each in part] == [each[some].tobytes() for each in whole]

    def test_are_shown_from_three_users_and_one_error_on(self) -> None:
        estimates = np.array([2, 3, 3, 9, 10, -5, 100])
        errors = np.array([0.1, 3.0, 3.1, 9.5, 10.0, 0.1, 30.0])
        assert shown(estimates, errors).tolist() == [False, True, False, False, True, False, True]


class TestFit:
    def test_finds_a_mixture_again(self) -> None:
        fitted = fit(drawn(MOST_ROWS, 2)[1])
        assert fitted.factor == pytest.approx(0.4, rel=0.03)
        assert fitted.weights[0] == pytest.approx(0.7, abs=0.03)
        assert 0.01 <= fitted.spread < 0.015, "with caution"
        # Between empty keys and those of 30 users the noise of 20 hardly distinguishes; the large ones stand out.
        assert math.sqrt(max(fitted.widths)) == pytest.approx(300, rel=0.25)

    @pytest.mark.parametrize("size", [LEAST_ROWS, 400, MOST_ROWS + 1000])
    def test_does_not_depend_on_order(self, size: int) -> None:
        _, columns = drawn(size, 4)
        first = fit(columns)
        for seed in range(5):
            order = np.random.default_rng(seed).permutation(size)
            given_to = tuple(each[order] for each in columns)
            assert Smoothing.fit(*given_to) == first

    def test_few_rows_have_none(self) -> None:
        _, columns = drawn(LEAST_ROWS, 5)
        assert Smoothing.fit(*(each[1:] for each in columns)) is None
        assert Smoothing.fit(*(each[:0] for each in columns)) is None
        fit(columns)

    def test_bits_are_the_same_everywhere(self) -> None:
        """The inputs are whole numbers over a power of two, without a generator that may change."""
        numbers = np.arange(500)
        value = (numbers * 7919 % 1009 + 6).astype(np.float64)
        direct = np.where(numbers % 5 == 0, 0, value * 0.375) + (numbers * 104_729 % 97 - 48) * 0.5
        columns = (direct, np.full(500, 400.0), value, np.full(500, 100.0))
        fitted = fit(columns)
        numbers = np.array(
            [*fitted.weights, fitted.factor, fitted.spread, *fitted.widths, *np.concatenate(fitted.rows(*columns))]
        )
        assert hashlib.sha256(numbers.astype("<f8").tobytes()).hexdigest()[:16] == "db69e697a9ebe8f5"

    def test_of_many_rows_is_that_of_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fit of some that stand for the others: rows' total error moves by less than 1 %."""
        changing = replace(EXAMPLE, weights=(0.4, 0.5, 0.07, 0.03))
        for fitted in (EXAMPLE, changing):
            truth, columns = drawn(50_000, 6, fitted)
            some = fit(columns).rows(*columns)[0]
            with monkeypatch.context() as patched:
                patched.setattr(smoothing, "MOST_ROWS", 1 << 60)
                every = fit(columns).rows(*columns)[0]
            assert not (some == every).all()
            assert np.abs(some - truth).sum() == pytest.approx(np.abs(every - truth).sum(), rel=0.01)

    def test_the_largest_rows_are_all_in_it(self) -> None:
        for size in (MOST_ROWS, MOST_ROWS + 1, 3 * MOST_ROWS + 17):
            places, counts = smoothing._chosen(size)
            assert len(places) == len(set(places.tolist())) <= MOST_ROWS
            assert counts.sum() == size
            assert (places[: MOST_ROWS // 2] == np.arange(MOST_ROWS // 2)).all()
            assert places.max() < size


NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e-9, 5.0, 1e6, -1e6, 1e12, -1e12, 2.0**62, -(2.0**62)]),
    st.floats(-1e12, 1e12, allow_nan=False),
)


class TestAnyInput:
    """A fit fails on nothing, and what it says is finite and within its bounds."""

    @staticmethod
    def check(*columns: Floats) -> None:
        with np.errstate(all="raise", under="ignore"):
            fitted = Smoothing.fit(*columns)
            assert fitted is not None
            estimates, errors = fitted.rows(*columns)
        assert sum(fitted.weights) == pytest.approx(1)
        assert min(fitted.weights) > 0.0019
        assert 0 <= fitted.factor <= 2**20
        assert 1e-5 <= fitted.spread <= 1
        assert all(1 <= width <= 2.0**124 for width in fitted.widths)
        assert np.isfinite(estimates).all()
        assert np.isfinite(errors).all()
        assert (np.abs(estimates) <= 2.0**62).all()
        assert (errors >= 0).all()

    @given(
        kinds=st.lists(
            st.tuples(NUMBERS, st.floats(0, 1e24), NUMBERS.map(abs), st.floats(0, 1e24)), min_size=1, max_size=60
        )
    )
    def test_of_any_rows(self, kinds: list[tuple[float, float, float, float]]) -> None:
        rows = np.array((kinds * LEAST_ROWS)[: max(LEAST_ROWS, len(kinds))])
        self.check(*rows.T.copy())

    @pytest.mark.parametrize("direct", [0.0, 1e-12, -7.0, 1e12])
    @pytest.mark.parametrize("value", [0.0, 1e-12, 6.0, 1e12])
    @pytest.mark.parametrize("variance", [0.0, 1e-12, 600.0, 1e24])
    def test_of_one_row_repeated(self, direct: float, value: float, variance: float) -> None:
        same = [np.full(50, number) for number in (direct, variance, value, variance)]
        self.check(*same)


SETS = {(0.0, False): 0, (0.1, True): 1, (0.5, True): 2, (0.9, False): 3}
"""(share of keys that change each day, bursts) -> seed"""


@pytest.mark.statistical
@pytest.mark.parametrize("keys", [8_000, 100_000, 800_000])
@pytest.mark.parametrize(("changing", "bursts"), SETS)
def test_intervals_cover_and_rows_are_nearer(keys: int, changing: float, bursts: bool) -> None:
    """Over days, quarters and rows together: 60, 800 and 7,000 remembered rows a day."""
    number = {8_000: 10, 100_000: 3, 800_000: 1}[keys]
    inside, l1, direct_l1 = [], np.zeros(4), np.zeros(4)
    for seed in range(samples(number)):
        for quarter in days(keys, changing, 4, 100 * SETS[changing, bursts] + seed, bursts=bursts):
            inside.append(covered(quarter))
            both = published_l1(quarter)
            l1[quarter.quarter] += both[0]
            direct_l1[quarter.quarter] += both[1]
    # With few rows CAUTION makes errors larger.
    assert 0.935 <= np.mean(np.concatenate(inside)) <= (0.97 if keys > 8_000 else 0.975)
    assert (l1 < direct_l1).all()
    assert l1[0] < 0.6 * direct_l1[0]


def steady(size: int, seed: int, *, least: float, noise: float, error: float, spread: float) -> tuple[Floats, Given]:
    """(truth, what a fit is given) of keys that all stay, at half of yesterday."""
    rng = np.random.default_rng(seed)
    value, value_variance = least * (1 + rng.pareto(1.1, size)), np.full(size, error**2)
    variance = 0.25 * value_variance + 0.75 * value + spread * (0.5 * value) ** 2
    truth = 0.5 * value + rng.normal(size=size) * np.sqrt(variance)
    return truth, (np.rint(truth + rng.normal(0, noise, size)), np.full(size, noise**2 + 1 / 12), value, value_variance)


def coverage(sets: list[tuple[Floats, Given]], smooth: Smooth = smoothed) -> float:
    """The share of rows that ± 1.96 errors, and half a unit, hold."""
    found = [(truth, *smooth(*columns)) for truth, columns in sets]
    return float(
        np.mean(np.concatenate([np.abs(rows - truth) <= 1.96 * errors + 0.5 for truth, rows, errors in found]))
    )


@pytest.mark.statistical
class TestPlanted:
    """Variants that the tests above must not take for the real thing."""

    def test_errors_without_those_of_yesterdays_value(self) -> None:
        def without(direct: Floats, variance: Floats, value: Floats, value_variance: Floats) -> tuple[Floats, Floats]:
            return smoothed(direct, variance, value, np.zeros_like(value_variance))

        sets = [steady(2000, seed, least=10, noise=20, error=20, spread=1e-5) for seed in range(samples(5))]
        assert 0.935 <= coverage(sets) <= 0.97
        assert coverage(sets, without) < 0.9

    def test_a_spread_without_caution(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where keys do differ in their factors, and few rows say by how much."""
        sets = [steady(LEAST_ROWS, seed, least=200, noise=60, error=8, spread=0.04) for seed in range(samples(150))]
        assert 0.935 <= coverage(sets) <= 0.97
        monkeypatch.setattr(smoothing, "CAUTION", 0.0)
        assert coverage(sets) < 0.93

    def test_a_fit_from_exact_counts(self) -> None:
        """For one data set under fresh noise, what a fit says scatters at least as the noise of its rows does (the bound of
        Cramér and Rao for a factor that all rows have in common). Exact counts do not scatter."""
        truth, (_, variance, value, value_variance) = steady(400, 7, least=6, noise=20, error=8, spread=1e-5)
        rng = np.random.default_rng(8)
        noisy, exact = [], []
        for _ in range(samples(60)):
            direct = truth + rng.normal(0, np.sqrt(variance))
            noisy.append(fit((direct, variance, value, value_variance)).factor)
            exact.append(fit((truth, variance, value, value_variance)).factor)
        # The estimate weighs rows by their whole variance, of which the noise is a part: what the noise alone contributes.
        weight = value / (variance + 0.25 * value_variance + 0.75 * value)
        least = math.sqrt(float((weight * weight * variance).sum())) / float((weight * value).sum())
        degrees = len(noisy) - 1
        lower = least * math.sqrt(stats.chi2.ppf(1e-6, degrees) / degrees)
        assert float(np.std(noisy, ddof=1)) > lower
        assert float(np.std(exact, ddof=1)) < lower
