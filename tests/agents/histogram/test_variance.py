"""Variances and standard deviations: what a record moves, exact numbers without noise, and whether intervals hold."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from susurrus.agents.histogram.about_columns import about_columns
from susurrus.agents.histogram.columns import Kept
from susurrus.agents.histogram.columns.square import CentredSquare
from susurrus.agents.histogram.columns.variance import Variance
from susurrus.agents.histogram.estimates import Estimates
from susurrus.agents.pipelines import HistogramPipeline
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics.records.raw import ValueField
from tests.agents.histogram.test_centred import COUNT, MARKS, MEAN, STRATEGY, histogram, names, noisy, scores_of
from tests.agents.histogram.test_estimates import release
from tests.mechanisms.test_propagation import check, half_width
from tests.samples import samples

VARIANCE = {"name": "spread", "kind": "variance", **MARKS}
DEVIATION = {"name": "deviation", "kind": "stddev", **MARKS}
ERRORS = np.array([3.0, 5.0, 2.0])


def cell_of(values: list[int]) -> Kept:
    return Kept(
        rows=np.arange(len(values)),
        starts=np.zeros(1, np.int64),
        first=np.ones(len(values), np.bool_),
        values=np.array(values)[:, None],
    )


# ---- sensitivity -------------------------------------------------------------------------------------------------------


@given(st.integers(-2000, 2000), st.integers(1, 4000))
def test_no_value_adds_more_to_the_squares_than_the_mechanism_is_told(low: int, width: int) -> None:
    """By enumeration of all values that the decoder can give; wide ranges are rounded."""
    high = low + width
    assume(max(abs(low), abs(high)) > 0)
    value = ValueField(path="v", bound=float(max(abs(low), abs(high))), grid=1.0, lower=float(low), upper=float(high))
    column = CentredSquare(name="q", field=value)
    values = np.arange(low, high + 1)
    alone = Kept(
        rows=np.arange(len(values)),
        starts=np.arange(len(values)),
        first=np.ones(len(values), np.bool_),
        values=values[:, None],
    )
    adds = column.aggregate(alone, values)
    assert max(1, int(np.abs(adds).max())) == column.bound
    centre = (low + high) // 2
    exact = [Fraction((v - centre) ** 2, 2**column.shift) - column.middle for v in values.tolist()]
    assert all(abs(Fraction(int(added)) - of) <= Fraction(1, 2) for added, of in zip(adds, exact, strict=True))
    # A quarter of the square of the range is the largest square; the middle of the squares takes half of it off.
    assert column.bound * column.grid <= (width / 2 + 1) ** 2 / 2 + column.grid
    assert column.bound <= 2**17 + 1


def test_squares_of_a_fine_grid_are_rounded_so_that_their_sums_fit() -> None:
    value = ValueField(path="v", bound=100.0, grid=2.0**-10, lower=0.0, upper=100.0)
    column = CentredSquare(name="q", field=value)
    assert column.shift > 0
    assert column.bound == 2**17 or column.bound < 2**17
    assert column.grid * 2 * column.bound == pytest.approx(2500, rel=1e-4)


def test_too_many_records_for_the_squares_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r'column 1 \("spread"\): sums could leave 64 bits'):
        histogram({**VARIANCE, "grid": 2.0**-6}, records=1, bounds_of=30_000)


def test_values_that_are_not_clamped_do_not_overflow() -> None:
    """The truth of a plan is about such."""
    column = CentredSquare(name="q", field=ValueField(path="v", bound=1.0, grid=0.5, lower=0.0, upper=1.0))
    far = np.array([2**52, -(2**52), 1])
    kept = Kept(rows=np.arange(3), starts=np.zeros(1, np.int64), first=np.ones(3, np.bool_), values=far[:, None])
    assert 0 < column.aggregate(kept, far)[0] < 2**20


# ---- what is measured and published ------------------------------------------------------------------------------------


def test_it_measures_what_a_mean_does_and_the_squares() -> None:
    found = histogram(COUNT, MEAN, VARIANCE, DEVIATION)
    assert names(found) == ["n", "average/centred", "spread/square"]
    assert [column.sources for column in found.layout.published] == [(0,), (1, 0), (2, 1, 0), (2, 1, 0)]
    assert names(histogram(DEVIATION)) == ["deviation/square", "deviation/centred", "deviation/count"]
    around = histogram({**VARIANCE, "lower": -100.0})
    assert names(around) == ["spread/square", "spread/sum", "spread/count"]


@given(st.lists(st.integers(400, 800), min_size=1, max_size=50))
def test_without_noise_it_is_the_variance(values: list[int]) -> None:
    found = histogram(VARIANCE, DEVIATION).layout
    sums = found.aggregate(cell_of(values))
    variance, deviation = (column.rows(sums, np.zeros(sums.shape)) for column in found.published)
    mean = Fraction(sum(values), len(values))
    exact = sum((Fraction(value) - mean) ** 2 for value in values) / len(values) / 64
    assert variance.estimate[0] == pytest.approx(float(exact), abs=1e-9)
    assert deviation.estimate[0] == pytest.approx(math.sqrt(exact), abs=1e-4)
    assert np.asarray(variance.std_error)[0] == np.asarray(deviation.std_error)[0] == 0


@given(st.integers(200, 10_000), st.floats(-0.9, 0.9), st.floats(0.1, 0.9))
def test_the_error_is_that_of_the_gradient(n: int, mean: float, part: float) -> None:
    """By differences, for any mean and variance that a range allows."""
    found = histogram(VARIANCE).layout
    [published] = found.published
    square = found.measured[0]
    u = mean * 200  # of the half range, in eighths
    q = (u * u + part * (200**2 - u * u)) / 2**square.shift - square.middle  # type: ignore[attr-defined]
    at = np.array([q * n, u * n, n]).round()

    def variance(sums: npt.NDArray[np.float64]) -> float:
        grids = np.array([square.grid, 0.125])
        return sums[0] * grids[0] / sums[2] + square.middle * grids[0] - (sums[1] * grids[1] / sums[2]) ** 2  # type: ignore[attr-defined]

    gradient = []
    for place in range(3):
        step = np.zeros(3)
        step[place] = max(1e-4 * abs(at[place]), 1e-4)
        gradient.append((variance(at + step) - variance(at - step)) / (2 * step[place]))
    expected = math.sqrt(sum((of * error) ** 2 for of, error in zip(gradient, ERRORS, strict=True)))
    row = published.rows(at[None].astype(np.int64), ERRORS[None])
    assert np.asarray(row.std_error)[0] == pytest.approx(expected, rel=1e-3, abs=1e-9)
    assert row.estimate[0] == pytest.approx(variance(at), abs=1e-9)


@pytest.mark.parametrize("count", [-5, 0, 1, 3])
def test_no_noise_leads_out_of_what_the_bounds_allow(count: int) -> None:
    found = histogram(VARIANCE, DEVIATION).layout
    for square in (-(10**9), 0, 10**9):
        for total in (-(10**6), 0, 10**6):
            sums = np.array([[square, total, count]])
            variance, deviation = (column.rows(sums, np.full(sums.shape, 4.0)) for column in found.published)
            assert 0 <= variance.estimate[0] <= 625
            assert 0 <= deviation.estimate[0] <= 25
            errors = np.asarray(variance.std_error)[0], np.asarray(deviation.std_error)[0]
            assert np.isfinite(errors).all()
            assert min(errors) > 0


def test_it_does_not_add_up_over_keys() -> None:
    columns = {"spread": Estimates(np.ones(2), np.ones(2), additive=False)}
    found = release(keys=["a", "b"], columns=columns)
    with pytest.raises(ConfigurationError, match="does not add up over keys"):
        found.total("spread")
    with pytest.raises(ConfigurationError, match="is no mean"):
        found.mean("spread")


# ---- how many records it needs -----------------------------------------------------------------------------------------


def test_the_number_of_records_is_where_the_interval_is_as_wide_as_the_variance() -> None:
    given = histogram(COUNT, VARIANCE, privacy={"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"})
    strategy = build_strategy(given.plan())
    published = given.layout.published[1]
    errors = strategy.standard_errors()[-1][list(published.sources)]
    n = published.column.least_records(errors)
    assert n is not None
    variance = 25.0  # 50 / 10 squared
    square = given.measured_columns[published.sources[0]]
    sums = np.array([[(variance / square.grid - square.middle) * n, 0, n]]).round().astype(np.int64)  # type: ignore[attr-defined]
    row = published.column.publish(sums, errors[None])
    assert row[0][0] == pytest.approx(variance, rel=0.02)
    assert 1.96 * row[1][0] == pytest.approx(variance, rel=0.02)
    # (R / 2)^2 / sqrt(2) of the count's noise: 17.7 at one standard error for R = 10.
    assert n == pytest.approx(1.96 * 25 * math.hypot(0.5, 0.5 - 1 / 25) * errors[2], rel=0.02)


def test_config_check_explain_and_plan_say_it() -> None:
    given = histogram(COUNT, MEAN, VARIANCE)
    said = list(about_columns(given.layout, HistogramPipeline(given).strategy))
    assert [subject for subject, _ in said] == ["computed", "computed", "shares", "needs"]
    assert said[0][1] == "average = 75 + average/centred ÷ n"
    assert said[1][1] == "spread = spread/square ÷ n + 312.5 - (average/centred ÷ n)²"
    assert (
        said[2][1]
        == "n 0.167, average/centred 0.167, spread/square 0.167 of the squared noise budget; selection has the rest"
    )
    assert said[3][1].startswith("spread: about ")


# ---- intervals ---------------------------------------------------------------------------------------------------------

N, DISTANCE, SQUARE = 60_000, 10.0, 200.0
"""Records, their mean distance from 75 and the mean of its square: the variance is 100."""


def sums_of(given: Any) -> npt.NDArray[np.int64]:
    square = given.measured_columns[1]
    assert isinstance(square, CentredSquare)
    exact = (SQUARE / square.grid - square.middle) * N, DISTANCE * 8 * N
    order = [N, exact[0], exact[1]]
    return np.array(order).round().astype(np.int64)


@pytest.mark.statistical
@pytest.mark.parametrize("name", STRATEGY)
def test_intervals_cover_the_truth(name: str) -> None:
    given = histogram(COUNT, VARIANCE, DEVIATION, privacy={"epsilon": 2.0, "delta": 1e-6, **STRATEGY[name]})
    assert names(given) == ["n", "spread/square", "spread/centred"]
    found = noisy(given, sums_of(given), samples(4000))
    check(scores_of(found["spread"], SQUARE - DISTANCE**2))
    check(scores_of(found["deviation"], 10.0))


def _squares_alone(variance: Variance) -> Callable[..., Any]:
    """The planted defect: the error is that of the squares."""
    return lambda squares, distance, errors: errors[:, 0] * variance.measured()[0].grid + 0 * distance


@pytest.mark.statistical
def test_an_error_of_the_squares_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Variance, "_noise", lambda self, squares, distance, errors: _squares_alone(self)(squares, distance, errors)
    )
    given = histogram(COUNT, VARIANCE, privacy={"epsilon": 2.0, "delta": 1e-6, "strategy": "toeplitz"})
    z = scores_of(noisy(given, sums_of(given), samples(4000))["spread"], SQUARE - DISTANCE**2)
    with pytest.raises(AssertionError):
        check(z)
    assert (np.abs(z) < half_width(0.95)).mean() < 0.93
