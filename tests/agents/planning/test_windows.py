"""Samples become the windows of the calendar; a part of the users stands for all of them."""

import numpy as np
import pytest

from susurrus.agents.planning.windows import scaled, sizes, thinned, windows_of
from susurrus.agents.planning.workload import DAY_MS
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.planning.settings import BEGIN, HOUR, sample, settings


def days(number: int, *, users: int = 50, begin: int = BEGIN, hours: int = 24):
    """Evenly over so many hours of every day: each user has a record an hour, on the key of its own number."""
    at = [(user, day, hour) for user in range(users) for day in range(number) for hour in range(hours)]
    time = [begin + day * 24 * HOUR + hour * HOUR + user * 60_000 for user, day, hour in at]
    return sample([user for user, *_ in at], [user % 7 for user, *_ in at], time)


def test_a_sample_of_one_window_is_that_window():
    (window,) = windows_of(days(1), settings())
    assert (window.name, window.covered) == ("2026-01-01T00:00:00Z", pytest.approx(1, abs=0.01))
    assert list(sizes([window])) == [("2026-01-01T00:00:00Z", 50 * 24, 50, 7)]
    assert np.bincount(window.workload.records.trigger(12))[1:].tolist() == [100] * 12


def test_a_record_at_a_boundary_is_behind_it_whatever_the_calendar_is():
    for every, length in (("7m", "49m"), ("1h", "3d"), ("13ms", "13s")):
        calendar = settings(window={"length": length, "trigger_every": every, "origin": "2026-01-01T00:00:00Z"})
        T, step = calendar.triggers, calendar.window.trigger_every
        times = [BEGIN + number * step + late for number in range(T) for late in (0, step - 1)]
        (window,) = windows_of(sample(range(2 * T), [0] * (2 * T), times), calendar)
        assert window.workload.records.trigger(T).tolist() == [number for number in range(1, T + 1) for _ in (0, 1)]


def test_late_triggers_stay_empty():
    calendar = settings(window={"allowed_lateness": "4h"})
    assert calendar.triggers == 14
    (window,) = windows_of(days(1), calendar)
    assert np.bincount(window.workload.records.trigger(14), minlength=15)[13:].tolist() == [0, 0]
    assert window.workload.records.trigger(14).min() == 1


def test_of_several_windows_the_whole_ones_are_taken_and_the_newest():
    found = windows_of(days(3, begin=BEGIN + 6 * HOUR), settings())
    assert [window.name[:10] for window in found] == ["2026-01-02", "2026-01-03"]  # the first and last are parts
    assert [window.name[:10] for window in windows_of(days(4), settings(), most=2)] == ["2026-01-03", "2026-01-04"]
    # Where none is whole, all count.
    assert [window.covered < 0.9 for window in windows_of(days(2, hours=8), settings())] == [True, True]


def test_users_of_each_window_are_its_own():
    early, late = windows_of(days(2), settings())
    for window in (early, late):
        assert np.unique(window.workload.records.user).tolist() == list(range(50))


def test_stretching_spreads_an_hour_over_the_window():
    (window,) = windows_of(days(1, hours=1), settings(), stretch=True)
    assert window.covered == pytest.approx(1, abs=0.05)
    triggers = window.workload.records.trigger(12)
    assert (triggers.min(), triggers.max()) == (1, 12)


@pytest.mark.parametrize("factor", [1.0, 2.0, 2.5, 10.0])
def test_scaling_up_copies_users_with_all_their_records(factor):
    records = windows_of(days(1), settings())[0].workload.records
    more = scaled(records, factor, np.random.default_rng(0))
    assert more.users == round(50 * factor)
    assert len(more.key) == 24 * more.users
    # Every copy has the key of one user, 24 times, in order of time.
    assert np.bincount(more.user).tolist() == [24] * more.users
    assert (np.diff(more.user.astype(np.int64) * DAY_MS + more.time) >= 0).all()
    assert np.bincount(more.key) / len(more.key) == pytest.approx(np.bincount(records.key) / len(records.key), abs=0.04)
    assert more.time.max() < DAY_MS
    if factor == 2.0:  # the users themselves are among the copies, and the others do not come at the same instants
        assert set(records.time.tolist()) < set(more.time.tolist())


def test_values_go_with_their_records():
    given = sample([0, 0, 1], [0, 1, 2], [BEGIN, BEGIN + 1000, BEGIN], [[10], [11], [12]])
    (window,) = windows_of(given, settings(), share=0.5)
    records = window.workload.records
    assert records.users == 4
    assert sorted(zip(records.key.tolist(), records.values[:, 0].tolist(), strict=True)) == [
        *[(0, 10)] * 2,
        *[(1, 11)] * 2,
        *[(2, 12)] * 2,
    ]


def test_a_part_of_a_window_is_scaled_up_to_as_many_users():
    (window,) = windows_of(days(1), settings())
    part = thinned(window, 0.3, np.random.default_rng(0)).workload.records
    assert part.users == 50
    assert len(part.key) == 50 * 24


def test_what_cannot_be_scaled_is_refused():
    for share in (0, -1, 1.5, float("nan")):
        with pytest.raises(ConfigurationError, match="sample_share"):
            windows_of(days(1), settings(), share=share)
    with pytest.raises(ConfigurationError, match="use a larger share, or a synthetic law"):
        windows_of(days(1), settings(), share=1e-9)
