"""Time zones: local times to UTC, for event times that have no zone and for windows that are days of a country.

The rules are those of the package tzdata. The system's own database is not asked: every worker shall find the same instants. The
rules of a zone decide results, so `Zone.rules` enters the digest of a pipeline that names one.
"""

import functools
import hashlib
import io
from datetime import UTC, datetime, timedelta
from importlib import resources
from zoneinfo import ZoneInfo

import numpy as np

from susurrus.topics.wire.packing import Int64s
from susurrus.topics.wire.timestamps import format_time

_HOUR = 3_600_000
_SECOND = 1000
_START = datetime(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@functools.cache
def zone_names() -> frozenset[str]:
    """Every name that the database knows, such as Europe/Berlin."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


class Zone:
    """One time zone. name: an IANA name; raises ValueError for a name that the database does not know.

    A local time that occurs twice, when clocks are set back, is the earlier of its two instants. One that does not occur, when
    they are set forward, is taken with the offset before the change (RFC 5545, 3.3.5; java.time does the same): 02:30 is the
    instant that clocks show as 03:30.
    """

    def __init__(self, name: str) -> None:
        if name not in zone_names():
            raise ValueError("is no time zone of the tz database")
        data = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
        self.rules = hashlib.blake2b(data, digest_size=16, person=b"susurrus-zone").hexdigest()
        """What the database says of the zone, as 32 hexadecimal digits."""
        self._zone = ZoneInfo.from_file(io.BytesIO(data), key=name)
        self._of_hour = functools.lru_cache(maxsize=4096)(self._offset_of_hour)

    def to_utc(self, local: Int64s) -> Int64s:
        """int64[n], ms since 1970 in UTC, of local ms in the years 1 to 9999. The results may lie outside these years."""
        hours, place = np.unique(local // _HOUR, return_inverse=True)
        offsets = [self._of_hour(hour) for hour in hours.tolist()]
        found = np.array([0 if offset is None else offset for offset in offsets], np.int64)[place]
        split = np.array([offset is None for offset in offsets], np.bool_)[place]
        if split.any():
            seconds, place = np.unique(local[split] // _SECOND, return_inverse=True)
            found[split] = np.array([self._offset(second) for second in seconds.tolist()], np.int64)[place]
        return local - found

    def first_instants(self, days: Int64s) -> Int64s:
        """int64[n] ms: the first instant at which clocks show a date or a later one, of dates int64[n] in days since 1970-01-01.

        That is local midnight. Where midnight occurs twice, it is the first. Where it does not occur, because clocks are set
        forward over it, it is the instant of the change. A date that a country has skipped begins when the next one does.
        """
        return np.array([self._first_instant(_START + timedelta(days=day)) for day in days.tolist()], np.int64)

    def _first_instant(self, midnight: datetime) -> int:
        """The first instant, in ms, at which clocks show a local time or a later one."""
        before, after = (self._after_epoch(midnight.replace(tzinfo=self._zone, fold=fold)) for fold in (0, 1))
        if before <= after:
            return before
        # A gap: read with the offset before the change, midnight is an instant after it, and with the offset after, one before it.
        low, high = after // _SECOND, before // _SECOND
        while high - low > 1:
            middle = (low + high) // 2
            if self.local(middle * _SECOND).replace(tzinfo=None) >= midnight:
                high = middle
            else:
                low = middle
        return high * _SECOND

    @staticmethod
    def _after_epoch(instant: datetime) -> int:
        return (instant.astimezone(UTC) - _EPOCH) // _MILLISECOND

    def local(self, instant: int) -> datetime:
        """What clocks show at an instant in ms, with the offset."""
        return (_EPOCH + instant * _MILLISECOND).astimezone(self._zone)

    def _offset_of_hour(self, hour: int) -> int | None:
        """ms east of Greenwich in a whole hour of local time; None where it changes within. No zone changes twice in an hour."""
        first, last = (self._offset(second) for second in (hour * 3600, hour * 3600 + 3599))
        return first if first == last else None

    def _offset(self, second: int) -> int:
        # fold is 0: of two instants the first, and before a gap the offset before it.
        offset = (_START + timedelta(seconds=second)).replace(tzinfo=self._zone).utcoffset()
        assert offset is not None  # a zone of the database always has one
        return offset // timedelta(milliseconds=1)


@functools.cache
def zone_of(name: str) -> Zone:
    """`Zone`, made once. Raises ValueError as it does."""
    return Zone(name)


def local_text(time_zone: str | None, instant: int) -> str:
    """An instant in ms as the clocks of a zone show it, RFC 3339 with the offset; in UTC without a zone, and outside of the years 2
    to 9998."""
    if time_zone is None:
        return format_time(instant)
    try:
        return zone_of(time_zone).local(instant).isoformat(timespec="milliseconds" if instant % 1000 else "seconds")
    except OverflowError:
        return format_time(instant)


def local_date(time_zone: str, instant: int) -> str:
    """The date that the clocks of a zone show at an instant in ms, such as 2026-10-25."""
    return local_text(time_zone, instant)[:10]
