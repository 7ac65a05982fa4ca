"""Range queries from published rows."""

import numpy as np
import pytest

from susurrus.agents.local.reader import filtered_sum, range_sum
from susurrus.topics.estimate import Estimate
from susurrus.topics.histogram import Measured
from susurrus.topics.timestamps import format_time

INTERVAL = 60_000
START = 1_767_225_600_000


def rows(means: np.ndarray, error: float, versions: list[int] | None = None, count: int = 100) -> list[Estimate]:
    found, total, variance = [], 0.0, 0.0
    for index, mean in enumerate(means.tolist()):
        total += mean * count
        variance += (error * count) ** 2
        found.append(
            Estimate(
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


def test_intervals_of_an_older_threshold_enter_by_their_plain_sums() -> None:
    published = rows(np.array([100.0, 100.0, 7.0, 7.0]), 0.001, [1, 1, 2, 2])
    found = filtered_sum(published, START, START + 4 * INTERVAL)
    assert found.sum == pytest.approx(21_400, rel=1e-3)


def test_an_empty_range_is_nothing() -> None:
    published = rows(np.array([1.0]), 0.5)
    assert range_sum(published, 0, START).count == 0
    assert filtered_sum(published, 0, START).sum == 0.0
