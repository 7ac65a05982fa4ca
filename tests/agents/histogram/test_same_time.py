"""What a rolling view counts from, on the clocks of countries: against the standard library's zones."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from susurrus.agents.config.calendars import calendar_of
from susurrus.agents.histogram.same_time import period_start, same_time_before, triggers_to_end
from susurrus.mechanisms.calendar import Calendar, Trigger, WindowIndex
from susurrus.mechanisms.windows import CalendarLength

HOUR = 3_600_000
ZONES = {
    "Europe/Berlin": HOUR,
    "America/New_York": HOUR // 4,
    "Asia/Kolkata": HOUR // 2,
    "Australia/Lord_Howe": HOUR // 2,
    "America/Santiago": HOUR,  # clocks change at midnight
    "Pacific/Auckland": HOUR,
}


def clock(zone: str, instant: int) -> datetime:
    return datetime.fromtimestamp(instant / 1000, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def windows_of(calendar: Calendar, year: int) -> list[WindowIndex]:
    first, last = (
        calendar.window_at(round(datetime(y, 1, 2, tzinfo=UTC).timestamp() * 1000)) for y in (year, year + 1)
    )
    return [WindowIndex(window) for window in range(first, last) if triggers_to_end(calendar, WindowIndex(window))]


def every_trigger(length: CalendarLength, zone: str, year: int = 2026) -> list[tuple[Calendar, WindowIndex, Trigger]]:
    calendar = calendar_of(length, zone, 0, ZONES[zone], 0)
    return [
        (calendar, window, Trigger(trigger))
        for window in windows_of(calendar, year)
        for trigger in range(1, triggers_to_end(calendar, window) + 1)
    ]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("length", [CalendarLength.DAY, CalendarLength.WEEK])
def test_a_view_begins_at_the_same_time_of_the_clocks_a_day_or_a_week_before(length: CalendarLength, zone: str) -> None:
    back = timedelta(days=1 if length is CalendarLength.DAY else 7)
    same = odd = 0
    for calendar, window, trigger in every_trigger(length, zone):
        begin = period_start(calendar, zone, window, trigger)
        end = calendar.boundary(calendar.interval_of(window, trigger))
        before = calendar.window_start(calendar.preceding(window))
        assert before < begin <= calendar.window_start(window)
        assert (begin - before) % ZONES[zone] == 0
        if clock(zone, begin) == clock(zone, end) - back:
            same += 1
            # The first of two instants that clocks show alike.
            assert clock(zone, begin - HOUR) != clock(zone, begin)
        else:
            odd += 1  # clocks skipped it, or the day began later
            assert abs(clock(zone, begin) - (clock(zone, end) - back)) <= timedelta(hours=1)
    assert same > 4000
    assert odd <= 6 * HOUR // ZONES[zone]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Santiago"])
def test_a_month_before_has_the_same_date_or_is_over(zone: str) -> None:
    over = 0
    for calendar, window, trigger in every_trigger(CalendarLength.MONTH, zone):
        begin = clock(zone, period_start(calendar, zone, window, trigger))
        end = clock(zone, calendar.boundary(calendar.interval_of(window, trigger)))
        first = clock(zone, calendar.window_start(window))
        days = (end.date() - first.date()).days
        before = clock(zone, calendar.window_start(calendar.preceding(window)))
        if begin.month == before.month:
            assert (begin.date() - before.date()).days == days
            assert begin.time() == end.time() or abs((begin - before) - (end - first)) <= timedelta(hours=1)
        else:
            over += 1
            assert begin == first
    assert 0 < over < 12 * 4 * 24


@pytest.mark.parametrize(("zone", "length"), [("Europe/Berlin", CalendarLength.DAY), (None, None)])
def test_it_never_goes_back_and_ends_where_the_window_begins(zone: str | None, length: CalendarLength | None) -> None:
    calendar = calendar_of(length or 24 * HOUR, zone, 0, HOUR, 0)
    for window in windows_of(calendar, 2026):
        ends = triggers_to_end(calendar, window)
        found = [same_time_before(calendar, zone, window, Trigger(trigger)) for trigger in range(1, ends + 1)]
        assert found == sorted(found)
        assert found[-1] == triggers_to_end(calendar, calendar.preceding(window))
        if zone is None:
            assert found == list(range(1, ends + 1))
