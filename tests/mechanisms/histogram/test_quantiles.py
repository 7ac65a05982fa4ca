"""Quantiles from cumulative counts: exact without noise, and intervals that hold the truth, for any records."""

from collections.abc import Callable
from fractions import Fraction
from math import erfc, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram import quantiles as module
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.histogram.quantiles import QuantileRows, borders_of, quantile, rank_errors, spread
from susurrus.mechanisms.noise import NoiseSource

BORDERS = borders_of(1, 60_000, 32, "log")
TRIALS = 4_000
SHARES = (0.05, 0.25, 0.5, 0.95)


def counts_of(values: npt.NDArray[np.float64], borders: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """int64[1, B]: the cumulative counts."""
    return (values[None, :, None] <= borders[1:]).sum(axis=1, dtype=np.int64)


def exact_quantile(values: npt.NDArray[np.float64], share: float) -> float:
    """The smallest value at or below which so large a part lies."""
    place = -(-Fraction(share) * len(values) // 1)
    return float(np.sort(values)[max(1, int(place)) - 1])


@given(
    st.lists(st.integers(-20, 120), min_size=1, max_size=60),
    st.integers(2, 40),
    st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.75, 0.95, 0.999]),
)
def test_without_noise_the_interval_is_the_bucket_of_the_quantile(
    values: list[int], buckets: int, share: float
) -> None:
    borders = borders_of(0, 100, buckets, "linear")
    clamped = np.clip(np.array(values, np.float64), 0, 100)
    counts = counts_of(clamped, borders)
    counts[:, -1] = len(values)
    found = quantile(counts * 10**9, np.zeros(1), borders, share)
    wanted = exact_quantile(clamped, share)
    assert found.lower[0] <= wanted <= found.upper[0]
    assert found.lower[0] <= found.estimate[0] <= found.upper[0]
    if abs((counts - share * len(values)) % 1).min() > 1e-6:
        assert found.upper[0] - found.lower[0] == pytest.approx(100 / buckets)


def lognormal(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return np.exp(rng.normal(4.5, 1, n))


def two_heaps(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return np.where(rng.random(n) < 0.5, 20.0, 5000.0)


def all_equal(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return np.full(n, 300.0)


def one_in_twenty_large(rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    return np.where(np.arange(n) % 20 == 0, 40_000.0, 30.0)


def measured(values: npt.NDArray[np.float64], cells: Cells, trials: int, name: str) -> npt.NDArray[np.int64]:
    """int64[trials, B]: the same records under so many draws of noise, at the window's last trigger."""
    noise = NoiseSource(b"q" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)
    noise.memory_bytes = 0
    drawn = cells.noise(cells.factorization.triggers, "x", [b"%d" % i for i in range(trials)], noise)
    return counts_of(np.clip(values, 1, 60_000), BORDERS) + drawn


def coverage(found: QuantileRows, truth: float) -> float:
    return float(((found.lower <= truth) & (truth <= found.upper)).mean())


@pytest.fixture(scope="module")
def cells() -> Cells:
    return Cells("x", triggers=4, buckets=32, cost=0.02)


LAWS: list[Callable[[np.random.Generator, int], npt.NDArray[np.float64]]] = [
    lognormal,
    two_heaps,
    all_equal,
    one_in_twenty_large,
]


@pytest.mark.statistical
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [3, 100, 1000, 20_000])
def test_intervals_hold_the_quantile_and_the_range(
    cells: Cells, law: Callable[[np.random.Generator, int], npt.NDArray[np.float64]], n: int
) -> None:
    values = law(np.random.default_rng(n), n)
    counts = measured(values, cells, TRIALS, f"{law.__name__} {n}")
    scale = np.full(TRIALS, cells.std[-1, -1])
    least = 0.95 - 3.3 * (0.95 * 0.05 / TRIALS) ** 0.5
    exact = {share: exact_quantile(np.clip(values, 1, 60_000), share) for share in (*SHARES, 0.75)}
    for share in SHARES:
        assert coverage(quantile(counts, scale, BORDERS, share), exact[share]) > least
    assert coverage(spread(counts, scale, BORDERS), exact[0.75] - exact[0.25]) > least


@pytest.mark.statistical
def test_intervals_for_less_noise_than_there_is_do_not_hold_the_quantile(cells: Cells) -> None:
    """The quantile lies at a border, so that the border's noise alone decides: with half of it, many rows miss."""
    values = np.repeat([0.99 * BORDERS[10], BORDERS[20]], 5000)
    counts = measured(values, cells, TRIALS, "border")
    scale = np.full(TRIALS, cells.std[-1, -1])
    truth = exact_quantile(values, 0.5)
    assert coverage(quantile(counts, scale, BORDERS, 0.5), truth) > 0.96
    tight = quantile(counts, scale / 2, BORDERS, 0.5)
    assert coverage(tight, truth) < 0.9


@pytest.mark.statistical
def test_the_noise_of_ranks_is_what_intervals_take_it_for(cells: Cells) -> None:
    """A variance without the covariance with the total would be wrong by far more."""
    noise = NoiseSource(b"q" * 32, epoch=b"e", config=b"c", pipeline="ranks").window(0)
    drawn = cells.noise(4, "x", [b"%d" % i for i in range(30_000)], noise)
    for share in (0.1, 0.9):
        ranks = drawn[:, :-1] - share * drawn[:, -1:]
        wanted = rank_errors(float(cells.std[-1, -1]), 32, share)
        assert ranks.std(axis=0) == pytest.approx(wanted, rel=0.03)
    apart = np.hypot(cells.std[-1, :-1], 0.9 * cells.std[-1, -1])
    assert apart[-1] > 1.3 * wanted[-1]


@pytest.mark.statistical
def test_estimates_come_close_with_many_records(cells: Cells) -> None:
    values = lognormal(np.random.default_rng(1), 20_000)
    counts = measured(values, cells, 500, "close")
    scale = np.full(500, cells.std[-1, -1])
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        found = quantile(counts, scale, BORDERS, share)
        assert np.median(found.estimate) == pytest.approx(exact_quantile(values, share), rel=0.05)
    found = spread(counts, scale, BORDERS)
    truth = exact_quantile(values, 0.75) - exact_quantile(values, 0.25)
    assert np.median(found.estimate) == pytest.approx(truth, rel=0.05)


def test_the_estimate_ignores_what_is_far_away_on_the_flat_side() -> None:
    """Noise on the flat part beyond the crossing: a plain crossing of the raw counts would be drawn there."""
    borders = borders_of(0, 10, 10, "linear")
    high = np.array([[0, 0, 0, 0, 90, 100, 97, 99, 94, 100]])
    assert quantile(high, np.full(1, 5.0), borders, 0.95).estimate[0] == pytest.approx(5.5)
    low = np.array([[0, 6, 1, 0, 2, 10, 100, 100, 100, 100]])
    assert quantile(low, np.full(1, 5.0), borders, 0.05).estimate[0] == pytest.approx(5.375)


def test_a_row_without_records_has_the_whole_range() -> None:
    borders = borders_of(0, 100, 8, "linear")
    counts = np.array([[3, -2, 1, 0, -4, 2, 5, -3], [0] * 8, [-1, 2, 0, 1, 3, -2, 0, 2]])
    found = quantile(counts, np.full(3, 9.0), borders, 0.5)
    assert found.lower.tolist() == [0] * 3
    assert found.upper.tolist() == [100] * 3
    assert found.estimate[:2].tolist() == [50, 50]
    assert found.std_error == pytest.approx(np.full(3, 100 / 3.92))
    assert spread(counts, np.full(3, 9.0), borders).upper.tolist() == [100] * 3


def test_rows_do_not_depend_on_each_other() -> None:
    rng = np.random.default_rng(2)
    counts = np.cumsum(rng.integers(0, 50, (200, 32)), axis=1) + rng.integers(-60, 60, (200, 32))
    scale = rng.choice([10.0, 20.0, 30.0], 200)
    for found in (
        lambda of: quantile(counts[of], scale[of], BORDERS, 0.75),
        lambda of: spread(counts[of], scale[of], BORDERS),
    ):
        whole = found(slice(None))
        for rows in (slice(0, 1), slice(3, 90), slice(None, None, -1)):
            part = found(rows)
            for name in ("estimate", "lower", "upper", "std_error"):
                assert getattr(part, name).tobytes() == getattr(whole, name)[rows].tobytes()
    assert len(quantile(counts[:0], scale[:0], BORDERS, 0.5).estimate) == 0


def test_borders_are_rounded_once() -> None:
    linear = borders_of(0.1, 0.7, 6, "linear")
    assert linear.tolist() == [
        float(Fraction(0.1) + (Fraction(0.7) - Fraction(0.1)) * Fraction(j, 6)) for j in range(7)
    ]
    log = borders_of(1, 1000, 3, "log")
    assert log.tolist() == [1, 10, 100, 1000]
    assert (borders_of(-5, 5, 2, "linear") == [-5, 0, 5]).all()
    for wrong in ((0, 10, 4, "log"), (5, 5, 4, "linear"), (1, 1 + 1e-15, 100, "linear"), (1, 2, 0, "linear")):
        with pytest.raises(ValueError, match="border"):
            borders_of(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile(np.ones((1, 3), np.int64), np.ones(1), borders_of(0, 3, 3, "linear"), 1.0)


def test_the_reach_is_that_of_95_and_of_97_and_a_half_percent() -> None:
    assert erfc(module.REACH / sqrt(2)) == pytest.approx(0.05, abs=1e-4)
    assert erfc(module.SPREAD_REACH / sqrt(2)) <= 0.025
