"""Local times against the standard library's own way from UTC to local time and back, by the same database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import TZPATH, ZoneInfo, reset_tzpath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.records.reason import Reason
from susurrus.topics.records.times import event_times
from susurrus.topics.records.zones import Zone, zone_names

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",  # half an hour
    "Asia/Kolkata",
    "Asia/Kathmandu",  # a quarter
    "Australia/Lord_Howe",  # half an hour of summer time
    "Pacific/Apia",  # left out a day
    "Africa/Monrovia",  # changed by seconds in 1972
    "Africa/Casablanca",
    "America/Sao_Paulo",  # at midnight
    "UTC",
]
EPOCH = datetime(1970, 1, 1)
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture(autouse=True, scope="module")
def _no_system_database() -> Iterator[None]:
    """The machine's own files may be older: then zones differ."""
    before = TZPATH
    reset_tzpath(to=())
    ZoneInfo.clear_cache()
    yield
    reset_tzpath(to=before)
    ZoneInfo.clear_cache()


def milliseconds(local: datetime) -> int:
    return (local - EPOCH) // MILLISECOND


def reference(local: datetime, zone: ZoneInfo) -> int:
    """In UTC, with the offset that held before a change: by the way from UTC to local time and back."""
    return milliseconds(local.replace(tzinfo=zone, fold=0).astimezone(UTC).replace(tzinfo=None))


def changes(zone: ZoneInfo) -> list[datetime]:
    """The instants of 1970 to 2040, in UTC, at which the offset changes; by halving hours."""

    def at(second: int) -> timedelta | None:
        return (EPOCH + timedelta(seconds=second)).replace(tzinfo=UTC).astimezone(zone).utcoffset()

    found, step, last = [], 6 * 3600, 71 * 366 * 86_400
    for start in range(0, last, step):
        if at(start) != at(start + step):
            low, high = start, start + step
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if at(middle) == at(low) else (low, middle)
            found.append(EPOCH + timedelta(seconds=high))
    return found


@pytest.mark.parametrize("name", ZONES)
def test_every_change_of_seventy_years(name: str) -> None:
    zone = ZoneInfo(name)
    instants = changes(zone)
    assert len(instants) > 40 or name in ("Asia/Kolkata", "Asia/Kathmandu", "Africa/Monrovia", "UTC", "Pacific/Apia")
    around = [
        -86_400,
        -7200,
        -3601,
        -3600,
        -1801,
        -1800,
        -61,
        -1,
        0,
        1,
        59,
        1799,
        1800,
        1801,
        3599,
        3600,
        3601,
        7200,
        86_400,
    ]
    locals_ = []
    for instant in instants:
        for offset in {
            zone.utcoffset((instant + timedelta(seconds=s)).replace(tzinfo=UTC).astimezone(zone)) for s in (-1, 1)
        }:
            assert offset is not None
            locals_ += [instant + offset + timedelta(seconds=seconds, milliseconds=7) for seconds in around]
    locals_ += [datetime(year, month, 15, 12) for year in range(1971, 2041) for month in (1, 7)]
    wanted = [reference(local, zone) for local in locals_]
    assert Zone(name).to_utc(np.array([milliseconds(local) for local in locals_], np.int64)).tolist() == wanted
    texts = [local.isoformat(" ", "milliseconds") for local in locals_]
    times, reasons = event_times(texts, "iso", None, name)
    assert times.tolist() == wanted
    assert not reasons.any()
    assert event_times(locals_, "iso", None, name)[0].tolist() == wanted


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.sampled_from(ZONES))
def test_any_time_of_eight_thousand_years(local: datetime, name: str) -> None:
    assert event_times([local], "iso", None, name)[0].tolist() == [reference(local, ZoneInfo(name))]


def test_what_occurs_twice_is_the_earlier_and_what_does_not_occur_has_the_offset_before() -> None:
    texts = ["2026-10-25T02:30:00", "2026-03-29T02:30:00", "2026-03-29T03:30:00"]
    times, _ = event_times(texts, "iso", None, "Europe/Berlin")
    in_utc, _ = event_times(["2026-10-25T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T01:30:00Z"], "iso")
    assert times.tolist() == in_utc.tolist()


def test_the_first_and_the_last_year() -> None:
    texts = ["0001-01-01T00:00:00", "0001-01-01T14:00:00", "9999-12-31T10:00:00", "9999-12-31T23:59:59"]
    east, west = (
        event_times(texts, "iso", None, "Pacific/Auckland"),
        event_times(texts, "iso", None, "Pacific/Honolulu"),
    )
    assert east[1].tolist() == [Reason.BAD_TIME, 0, 0, 0]
    assert west[1].tolist() == [0, 0, 0, Reason.BAD_TIME]


def test_every_zone_of_the_database_can_be_read_and_has_rules_of_its_own_name() -> None:
    assert {"Europe/Berlin", "UTC", "America/Argentina/Buenos_Aires"} <= zone_names()
    noon = np.array([milliseconds(datetime(2026, 10, 1, 12))], np.int64)
    for name in zone_names():
        zone = Zone(name)
        assert len(zone.rules) == 32
        assert abs(int((zone.to_utc(noon) - noon)[0])) <= 14 * 3_600_000
    assert Zone("Europe/Berlin").rules != Zone("Europe/London").rules


@pytest.mark.parametrize(
    "name", ["", "CEST", "Europe/Nowhere", "../../etc/passwd", "europe/berlin", "__init__.py", "localtime"]
)
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        Zone(name)
