"""The public calendar against its definition, millisecond by millisecond, and its exact inverses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import ConfigurationError

DAY = 86_400_000


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    every = draw(st.integers(1, 5_000))
    return Calendar(
        origin=draw(st.integers(-(10**12), 10**12)),
        window=every * draw(st.integers(1, 50)),
        trigger_every=every,
        allowed_lateness=draw(st.integers(0, 100_000)),
    )


STAMPS = st.integers(-(2**62), 2**62)


@given(calendars(), STAMPS)
def test_an_interval_ends_at_its_boundary_and_begins_at_the_one_before(calendar: Calendar, stamp: int) -> None:
    interval = calendar.interval_at(stamp)
    assert calendar.boundary(interval - 1) <= stamp < calendar.boundary(interval)
    assert calendar.boundary(interval) - calendar.boundary(interval - 1) == calendar.trigger_every


@given(calendars(), STAMPS)
def test_a_window_holds_its_event_times(calendar: Calendar, stamp: int) -> None:
    window = calendar.window_at(stamp)
    assert calendar.window_start(window) <= stamp < calendar.window_start(window + 1)


@given(calendars(), st.lists(STAMPS, max_size=20))
def test_columns_are_the_scalars(calendar: Calendar, stamps: list[int]) -> None:
    column = np.array(stamps, np.int64)
    assert calendar.interval(column).tolist() == [calendar.interval_at(s) for s in stamps]
    assert calendar.window_of(column).tolist() == [calendar.window_at(s) for s in stamps]


@given(calendars(), st.integers(-1000, 1000))
def test_the_first_trigger_closes_with_the_windows_first_interval_and_the_last_covers_the_lateness(
    calendar: Calendar, window: int
) -> None:
    first, last = calendar.first_interval(window), calendar.last_interval(window)
    assert calendar.boundary(first) == calendar.window_start(window) + calendar.trigger_every
    assert calendar.trigger(window, first) == 1
    assert calendar.trigger(window, last) == calendar.triggers
    end = calendar.window_start(window + 1) + calendar.allowed_lateness
    assert calendar.boundary(last) >= end > calendar.boundary(last - 1)


@given(calendars(), st.integers(-1000, 1000), st.integers(-300, 300))
def test_open_windows_are_exactly_those_with_a_trigger_at_the_interval(
    calendar: Calendar, window: int, shift: int
) -> None:
    interval = calendar.first_interval(window) + shift
    is_open = calendar.first_interval(window) <= interval <= calendar.last_interval(window)
    assert (window in calendar.open_windows(interval)) == is_open


@given(calendars(), st.integers(-1000, 1000), st.integers(-300, 300))
def test_triggers_before_the_window_count_as_the_first(calendar: Calendar, window: int, shift: int) -> None:
    """A record whose stamp is before its window (its event time is in the future, within max_future)."""
    interval = calendar.first_interval(window) + shift
    assert calendar.trigger(window, interval) == max(1, shift + 1)


def test_a_day_of_quarter_hours_in_plain_numbers() -> None:
    calendar = Calendar(origin=0, window=DAY, trigger_every=900_000, allowed_lateness=1)
    assert calendar.intervals_per_window == 96
    assert calendar.triggers == 97
    midnight = 20_000 * DAY
    assert calendar.window_at(midnight) == 20_000
    assert calendar.window_at(midnight - 1) == 19_999
    assert calendar.interval_at(midnight) == 20_000 * 96
    assert calendar.boundary(20_000 * 96) == midnight + 900_000
    assert list(calendar.open_windows(20_000 * 96)) == [19_999, 20_000]
    assert list(calendar.open_windows(20_000 * 96 + 1)) == [20_000]


@pytest.mark.parametrize(
    "fields",
    [
        {"window": 10, "trigger_every": 3},
        {"window": 10, "trigger_every": 0},
        {"window": 0, "trigger_every": 1},
        {"window": 10, "trigger_every": 20},
        {"window": 10, "trigger_every": -5},
        {"window": 10, "trigger_every": 5, "allowed_lateness": -1},
    ],
)
def test_a_calendar_that_cannot_be_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"trigger_every|lateness"):
        Calendar(origin=0, **fields)
