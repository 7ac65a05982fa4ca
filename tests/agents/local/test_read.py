"""Range queries from published rows."""

import msgspec
import numpy as np
import pytest

from susurrus.agents.local.reader import _noise, filtered_sum, range_sum
from susurrus.topics.estimate import EstimateRow
from susurrus.topics.histogram import Measured
from susurrus.topics.wire.timestamps import format_time

INTERVAL = 60_000
START = 1_767_225_600_000


def rows(means: np.ndarray, error: float, versions: list[int] | None = None, count: int = 100) -> list[EstimateRow]:
    found, total, variance = [], 0.0, 0.0
    for index, mean in enumerate(means.tolist()):
        total += mean * count
        variance += (error * count) ** 2
        found.append(
            EstimateRow(
                interval_start=format_time(START + index * INTERVAL),
                interval_end=format_time(START + (index + 1) * INTERVAL),
                count=count,
                sum=Measured(mean * count, error * count),
                mean=Measured(mean, error),
                running_sum=Measured(total, variance**0.5),
                filtered_sum=None,
                threshold_version=versions[index] if versions else 1,
                theta=40.0,
                epsilon=1.0,
                epoch="e",
            )
        )
    return found


def test_a_range_is_the_difference_of_running_sums() -> None:
    published = rows(np.array([1.0, 2.0, 4.0, 8.0]), 0.5)
    found = range_sum(published, START + INTERVAL, START + 3 * INTERVAL)
    assert (found.count, found.sum) == (200, 600.0)
    assert found.sum == published[2].running_sum.estimate - published[0].running_sum.estimate
    difference = published[2].running_sum.std_error ** 2 - published[0].running_sum.std_error ** 2
    assert found.standard_error == pytest.approx(difference**0.5)


def test_a_steady_level_is_averaged_and_its_error_is_smaller() -> None:
    rng = np.random.default_rng(0)
    published = rows(5.0 + rng.normal(0, 1.0, 200), 1.0)
    start, end = START + 150 * INTERVAL, START + 200 * INTERVAL
    plain, filtered = range_sum(published, start, end), filtered_sum(published, start, end)
    assert filtered.standard_error < 0.8 * plain.standard_error
    assert abs(filtered.sum - 5.0 * 50 * 100) < 4 * filtered.standard_error


def test_the_filter_goes_on_across_thresholds() -> None:
    """The level stays, theta doubles: 150 intervals before the change count for the 50 after it."""
    rng = np.random.default_rng(0)
    published = rows(5.0 + rng.normal(0, 1.0, 200), 1.0, [1] * 150 + [2] * 50)
    start, end = START + 150 * INTERVAL, START + 200 * INTERVAL
    plain, filtered = range_sum(published, start, end), filtered_sum(published, start, end)
    assert filtered.standard_error < 0.8 * plain.standard_error
    assert filtered_sum(published[150:], start, end).standard_error > filtered.standard_error


def test_a_level_that_jumps_with_the_threshold_is_not_smoothed() -> None:
    published = rows(np.array([100.0, 100.0, 7.0, 7.0]), 0.001, [1, 1, 2, 2])
    found = filtered_sum(published, START, START + 4 * INTERVAL)
    assert found.sum == pytest.approx(21_400, rel=1e-3)


def test_the_noise_scales_with_theta() -> None:
    """Twice the theta has twice the error; errors of single intervals are pooled, except where theta changed."""
    spread = np.random.default_rng(0).uniform(0.9, 1.1, 80)
    errors = np.where(np.arange(80) < 40, 1.0, 2.0) * spread
    published = [
        msgspec.structs.replace(row, sum=Measured(500.0, 100 * error), theta=40.0 if index < 40 else 80.0)
        for index, (row, error) in enumerate(
            zip(rows(np.full(80, 5.0), 1.0, [1] * 40 + [2] * 40), errors.tolist(), strict=True)
        )
    ]
    found = _noise(published, np.full(80, 100.0)) / 1e4
    np.testing.assert_allclose(found[20:40], 1.0, rtol=0.05)
    np.testing.assert_allclose(found[41:], 4.0, rtol=0.05)
    assert found[40] == pytest.approx(errors[40] ** 2)


def test_where_the_filter_does_not_fit_the_answer_is_the_plain_sum() -> None:
    """One interval far off after a hundred steady ones."""
    rng = np.random.default_rng(0)
    means = np.append(5.0 + rng.normal(0, 1.0, 100), 12.0)
    published, last = rows(means, 1.0), START + 100 * INTERVAL
    plain, found = range_sum(published, last, last + INTERVAL), filtered_sum(published, last, last + INTERVAL)
    assert (found.sum, found.standard_error) == (plain.sum, plain.standard_error)


def test_an_empty_range_is_nothing() -> None:
    published = rows(np.array([1.0]), 0.5)
    assert range_sum(published, 0, START).count == 0
    assert filtered_sum(published, 0, START).sum == 0.0
