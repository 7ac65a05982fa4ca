"""Days, weeks and months of a country, against a walk over the minutes around every change of its clocks."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import TZPATH, ZoneInfo, reset_tzpath

import numpy as np
import pytest

from susurrus.agents.config.calendars import FITS_FROM, calendar_of, fits, starts_of
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.windows import CalendarLength, CalendarWindows
from susurrus.topics.records.zones import local_date, local_text

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",  # half an hour; for years, clocks changed at a minute past midnight
    "Asia/Kolkata",
    "Asia/Kathmandu",  # a quarter, since 1986
    "Australia/Lord_Howe",  # half an hour of summer time
    "Pacific/Apia",  # left out a day, has had summer time, and has it no more
    "Pacific/Kwajalein",  # left out a day
    "Africa/Monrovia",  # changed by seconds in 1972
    "Africa/Casablanca",  # another time in Ramadan
    "America/Sao_Paulo",  # changed at midnight
    "Asia/Beirut",  # the same
    "America/Havana",  # midnight twice
]
MINUTE, HOUR = 60_000, 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = (datetime(2041, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


@pytest.fixture(autouse=True, scope="module")
def _no_system_database() -> Iterator[None]:
    """The machine's own files may be older: then zones differ."""
    before = TZPATH
    reset_tzpath(to=())
    ZoneInfo.clear_cache()
    yield
    reset_tzpath(to=before)
    ZoneInfo.clear_cache()


def shown(zone: ZoneInfo, instant: int) -> datetime:
    return (EPOCH + timedelta(milliseconds=instant)).astimezone(zone)


def changes(zone: ZoneInfo) -> list[int]:
    """The instants of 1970 to 2040 at which the offset changes, in ms, by halving six hours. No zone changes it twice in them."""
    found, step = [], 6 * HOUR
    for start in range(0, END, step):
        low, high = start, start + step
        before = shown(zone, low).utcoffset()
        if shown(zone, high).utcoffset() == before:
            continue
        while high - low > 1000:
            middle = (low + high) // 2000 * 1000
            low, high = (middle, high) if shown(zone, middle).utcoffset() == before else (low, middle)
        found.append(high)
    return found


def number(length: CalendarLength, day: date) -> int:
    """The window of a date, by counting."""
    since = (day - date(1970, 1, 1)).days
    if length is CalendarLength.DAY:
        return since
    return (since + 3) // 7 if length is CalendarLength.WEEK else (day.year - 1970) * 12 + day.month - 1


@pytest.mark.parametrize("name", ZONES)
def test_every_minute_around_every_change_is_in_the_window_of_the_latest_date_shown(name: str) -> None:
    """The definition: a date begins when clocks first show it or a later one, and is over when they first show a later one."""
    zone = ZoneInfo(name)
    windows = {length: CalendarWindows(starts_of(length, name)) for length in CalendarLength}
    at = changes(zone)
    assert name in ("Asia/Kolkata", "Asia/Kathmandu", "Africa/Monrovia", "Pacific/Kwajalein") or len(at) > 20
    for change in at:
        instants = np.arange(change - 26 * HOUR, change + 27 * HOUR, MINUTE)
        # Clocks go back over midnight for an hour or so: what they showed before counts.
        latest = np.maximum.accumulate([shown(zone, instant).date().toordinal() for instant in instants.tolist()])
        days = [date.fromordinal(ordinal) for ordinal in latest.tolist()]
        for length, of in windows.items():
            assert of.of_times(instants).tolist() == [number(length, day) for day in days], shown(zone, change)


@pytest.mark.parametrize("name", ZONES)
def test_noons_between_changes_are_on_their_date(name: str) -> None:
    zone, windows = ZoneInfo(name), CalendarWindows(starts_of(CalendarLength.DAY, name))
    noons = np.arange(12 * HOUR, END, 24 * HOUR)
    expected = [number(CalendarLength.DAY, shown(zone, noon).date()) for noon in noons.tolist()]
    assert windows.of_times(noons).tolist() == expected


def lengths(name: str, *days: str) -> list[float]:
    """Hours of the windows of some dates."""
    windows = CalendarWindows(starts_of(CalendarLength.DAY, name))
    return [windows.length(number(CalendarLength.DAY, date.fromisoformat(day))) / HOUR for day in days]


def test_days_in_plain_numbers() -> None:
    assert lengths("Europe/Berlin", "2026-03-28", "2026-03-29", "2026-10-25") == [24, 23, 25]
    assert lengths("Australia/Lord_Howe", "2026-04-05", "2026-10-04") == [24.5, 23.5]
    assert lengths("Pacific/Apia", "2011-12-29", "2011-12-30", "2011-12-31") == [24, 0, 24]
    assert lengths("Pacific/Kwajalein", "1993-08-20", "1993-08-21", "1993-08-22") == [24, 0, 24]
    # Clocks went from midnight to one o'clock: the day begins with the change.
    assert lengths("America/Sao_Paulo", "2017-10-14", "2017-10-15") == [24, 23]
    # And from midnight back to eleven: the day before had 25 hours, and the new date showed for no time at all.
    assert lengths("America/Sao_Paulo", "2018-02-17", "2018-02-18") == [25, 24]
    # From one o'clock back to midnight, which came twice: the first counts.
    assert lengths("America/Havana", "2020-10-31", "2020-11-01") == [24, 25]
    # A minute past midnight back to 23:01: the first midnight counts, and what follows is of the new date.
    assert lengths("America/St_Johns", "2010-11-06", "2010-11-07") == [24, 25]


def calendar_in(name: str, length: CalendarLength = CalendarLength.DAY, every: int = 15 * MINUTE, late: int = 0):  # type: ignore[no-untyped-def]
    return calendar_of(length, name, 0, every, late)


def test_triggers_follow_the_window() -> None:
    assert calendar_in("Europe/Berlin").all_triggers == (92, 96, 100)
    assert calendar_in("Europe/Berlin", late=HOUR).all_triggers == (96, 100, 104)
    assert calendar_in("UTC").all_triggers == (96,)
    assert calendar_in("UTC", CalendarLength.MONTH, 24 * HOUR).all_triggers == (28, 29, 30, 31)
    assert calendar_in("UTC", CalendarLength.WEEK, 24 * HOUR).all_triggers == (7,)
    # A week without a day.
    assert calendar_in("Pacific/Apia", CalendarLength.WEEK, HOUR).all_triggers == (144, 167, 168, 169)


def test_every_window_begins_with_an_interval() -> None:
    for name, every in (("Asia/Kathmandu", HOUR), ("Australia/Lord_Howe", 30 * MINUTE), ("Africa/Monrovia", HOUR)):
        calendar = calendar_in(name, every=every)
        for window in range(calendar.window_at(FITS_FROM), calendar.window_at(FITS_FROM) + 900):
            start = calendar.window_start(window)
            assert calendar.boundary(calendar.first_interval(window)) == start + every
            assert calendar.trigger(window, calendar.last_interval(window)) == calendar.triggers_of(window)


def test_windows_that_could_not_begin_with_a_trigger_do_not_exist() -> None:
    """Kathmandu was half an hour beside UTC before 1986, Liberia 44 and a half minutes until 1972."""
    for name, year in (("Asia/Kathmandu", "1986"), ("Africa/Monrovia", "1972")):
        calendar = calendar_in(name, every=HOUR)
        first = calendar.window_at(0) + 1
        assert calendar.triggers_of(calendar.window_at(0)) == 0
        assert local_text(name, calendar.window_start(first)).startswith(f"{year}-01-0")
    assert calendar_in("Asia/Kathmandu", every=15 * MINUTE).triggers_of(0) == 96  # with these, they could


def test_what_can_never_begin_with_a_trigger_is_refused() -> None:
    assert fits(CalendarLength.DAY, "Australia/Lord_Howe", 30 * MINUTE)
    for name, every in (("Australia/Lord_Howe", HOUR), ("Europe/Berlin", 2 * HOUR), ("UTC", 7 * HOUR)):
        assert not fits(CalendarLength.DAY, name, every)
        with pytest.raises(ConfigurationError, match="do not begin every"):
            calendar_in(name, every=every)


def test_instants_as_clocks_show_them() -> None:
    assert local_text("Europe/Berlin", 1_792_879_200_000) == "2026-10-25T00:00:00+02:00"
    assert local_text("Europe/Berlin", 1_792_969_200_001) == "2026-10-26T00:00:00.001+01:00"
    assert local_text("Asia/Kathmandu", 0) == "1970-01-01T05:30:00+05:30"
    assert local_text("Europe/Berlin", 253_402_300_799_999).endswith("Z")
    assert local_text(None, 0) == "1970-01-01T00:00:00Z"
    assert local_date("Europe/Berlin", 1_792_879_200_000) == "2026-10-25"
