"""The public calendar against its definition, millisecond by millisecond, and its exact inverses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.windows import CalendarLength, CalendarWindows, FixedWindows, TumblingWindows, aligned_since

DAY = 86_400_000


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    every, origin = draw(st.integers(1, 5_000)), draw(st.integers(-(10**12), 10**12))
    windows: TumblingWindows
    if draw(st.booleans()):
        windows = FixedWindows(origin=origin, length_ms=every * draw(st.integers(1, 50)))
    else:
        # Of differing lengths, with skipped ones; enough of them for the tests' indexes.
        lengths = draw(st.lists(st.integers(0, 9), min_size=3, max_size=9).filter(any))
        starts = origin + every * np.cumsum([0, *lengths * (3_000 // len(lengths) + 1)])
        windows = CalendarWindows(starts, -1_500)
    return Calendar(windows=windows, origin=origin, trigger_every=every, allowed_lateness=draw(st.integers(0, 100_000)))


STAMPS = st.integers(-(2**62), 2**62)


def is_window(calendar: Calendar, window: int) -> bool:
    return calendar.windows.length(window) > 0


@given(calendars(), STAMPS)
def test_an_interval_ends_at_its_boundary_and_begins_at_the_one_before(calendar: Calendar, stamp: int) -> None:
    interval = calendar.interval_at(stamp)
    assert calendar.boundary(interval - 1) <= stamp < calendar.boundary(interval)
    assert calendar.boundary(interval) - calendar.boundary(interval - 1) == calendar.trigger_every


@given(calendars(), STAMPS)
def test_a_window_holds_its_event_times(calendar: Calendar, stamp: int) -> None:
    window = calendar.window_at(stamp)
    if not is_window(calendar, window):  # outside of the list
        assert window in (-1_501, calendar.window_at(1 << 62))
        return
    assert calendar.window_start(window) <= stamp < calendar.window_end(window)
    assert calendar.end_of(calendar.window_start(window)) == calendar.window_end(window)


@given(calendars(), st.lists(STAMPS, max_size=20))
def test_columns_are_the_scalars(calendar: Calendar, stamps: list[int]) -> None:
    column = np.array(stamps, np.int64)
    assert calendar.interval(column).tolist() == [calendar.interval_at(s) for s in stamps]
    windows = calendar.window_of(column)
    assert windows.tolist() == [calendar.window_at(s) for s in stamps]
    assert calendar.windows.starts(windows).tolist() == [calendar.window_start(w) for w in windows.tolist()]
    assert calendar.first_intervals(windows).tolist() == [calendar.first_interval(w) for w in windows.tolist()]
    assert calendar.last_intervals(windows).tolist() == [calendar.last_interval(w) for w in windows.tolist()]


@given(calendars(), st.integers(-1000, 1000))
def test_the_first_trigger_closes_with_the_windows_first_interval_and_the_last_covers_the_lateness(
    calendar: Calendar, window: int
) -> None:
    if not is_window(calendar, window):
        assert calendar.triggers_of(window) == 0
        return
    first, last = calendar.first_interval(window), calendar.last_interval(window)
    assert calendar.boundary(first) == calendar.window_start(window) + calendar.trigger_every
    assert calendar.trigger(window, first) == 1
    assert calendar.trigger(window, last) == calendar.triggers_of(window)
    assert calendar.triggers_of(window) in calendar.all_triggers
    end = calendar.window_start(window + 1) + calendar.allowed_lateness
    assert calendar.boundary(last) >= end > calendar.boundary(last - 1)


@given(calendars(), st.integers(-1000, 1000), st.integers(-300, 300))
def test_open_windows_are_exactly_those_with_a_trigger_at_the_interval(
    calendar: Calendar, window: int, shift: int
) -> None:
    interval = calendar.first_interval(window) + shift
    is_open = calendar.first_interval(window) <= interval <= calendar.last_interval(window)
    assert (window in calendar.open_windows(interval)) == (is_open and is_window(calendar, window))
    if is_window(calendar, window):
        # The oldest that has something to come, at this interval or later, and none before it.
        oldest = calendar.oldest_open(interval)
        assert (window >= oldest) == (calendar.last_interval(window) >= interval)


@given(calendars(), st.integers(-1000, 1000), st.integers(1, 9))
def test_windows_follow_each_other_without_the_skipped_ones(calendar: Calendar, window: int, number: int) -> None:
    windows = calendar.windows
    if not is_window(calendar, window):
        return
    assert windows.preceding(windows.following(window)) == window == windows.following(windows.preceding(window))
    assert windows.start(windows.following(window)) == calendar.window_end(window)
    later = window
    for _ in range(number):
        later = windows.following(later)
    start = windows.start(window)
    assert windows.later(start, number) == windows.start(later)
    assert windows.count(start, windows.start(later)) == number == windows.count(start, windows.start(later) - 1 + 1)
    assert windows.count(start, windows.start(later) + 1) == number + 1
    assert windows.count(start, start) == windows.count(start, start - 1) == 0


@given(calendars(), st.integers(-1000, 1000), st.integers(-300, 300))
def test_triggers_before_the_window_count_as_the_first(calendar: Calendar, window: int, shift: int) -> None:
    """A record whose stamp is before its window (its event time is in the future, within max_future)."""
    interval = calendar.first_interval(window) + shift
    assert calendar.trigger(window, interval) == max(1, shift + 1)


def test_a_day_of_quarter_hours_in_plain_numbers() -> None:
    days = FixedWindows(origin=0, length_ms=DAY)
    calendar = Calendar(windows=days, origin=0, trigger_every=900_000, allowed_lateness=1)
    assert calendar.all_triggers == (97,)
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
    window = fields.pop("window")
    with pytest.raises(ConfigurationError, match=r"trigger_every|lateness|window=0"):
        Calendar(windows=FixedWindows(origin=0, length_ms=window), origin=0, **fields)


def test_starts_that_go_back_are_no_windows() -> None:
    for starts in ([0], [5, 5], [0, 10, 9]):
        with pytest.raises(ConfigurationError, match="starts"):
            CalendarWindows(np.array(starts, np.int64))


@pytest.mark.parametrize(
    ("length", "first", "second"),
    [
        ("1 day", "1970-01-01", "1970-01-02"),
        ("1 week", "1969-12-29", "1970-01-05"),
        ("1 month", "1970-01-01", "1970-02-01"),
    ],
)
def test_calendar_lengths_begin_with_the_window_of_1970(length: str, first: str, second: str) -> None:
    days = CalendarLength(length).first_days().astype("M8[D]")
    assert [str(day) for day in days[:2]] == [first, second]
    assert str(days[-1]) >= "2100-01-01" > str(days[-2])


def test_starts_are_aligned_from_the_last_that_is_not() -> None:
    assert aligned_since(np.array([0, 10, 20]), 10) == 0
    assert aligned_since(np.array([1, 12, 20, 30]), 10) == 2
    assert aligned_since(np.array([0, 10, 25]), 10) == 2
