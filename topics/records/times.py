"""Event times of raw events: numbers, texts and dates to milliseconds since 1970 in UTC, column by column.

The settings say how times are written. time_numbers.py reads numbers, time_spellings.py texts, zones.py knows the zones. Each row
is decided by itself; what rows have in common only makes them faster.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
from msgspec import UNSET

from susurrus.topics.records.numbers import Reasons
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.time_numbers import (
    TimeUnit,
    decimal_time,
    digit_times,
    float_times,
    integer_times,
    text_time,
)
from susurrus.topics.records.time_spellings import milliseconds, spelling
from susurrus.topics.records.time_tables import alike
from susurrus.topics.records.zones import Zone
from susurrus.topics.wire.packing import Int64s
from susurrus.topics.wire.timestamps import EARLIEST, LATEST, milliseconds_of, parse_times

DEFAULT_FORMAT: Final = "rfc3339"
"""How texts are spelt where the unit is "iso" and no format is set."""
_FEW = 4
"""Texts that are not worth a table."""
_DAY = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_SCANNED = ("rfc3339", "iso8601")
_LOCAL = -1
"""In place of a Reason: the time is local."""


class TimeReader:
    """Reads columns of event times, in any mix of the types that formats and expressions yield.

    unit: of numbers, also of digits in texts; "iso" for texts. time_format: how texts are spelt, by name or as a pattern
    (time_spellings.py); where it is set, numbers are bad input whatever the unit. time_zone: IANA name of the zone of what has
    none: texts, dates and datetimes without tzinfo. Raises ValueError for a format or zone that there is not.
    """

    def __init__(self, unit: TimeUnit = "ms", time_format: str | None = None, time_zone: str | None = None) -> None:
        self._unit = None if unit == "iso" or time_format is not None else unit
        self._format = DEFAULT_FORMAT if time_format is None else time_format
        self._spelling = spelling(self._format)
        self._zone = None if time_zone is None else Zone(time_zone)
        # Functions, not methods of this object, which would then be in a circle.
        self._readers: dict[type, Callable[[TimeReader, Sequence[Any]], tuple[Int64s, Reasons]]] = {
            int: TimeReader._integers,
            float: TimeReader._floats,
            str: TimeReader._texts if self._unit is None else TimeReader._digits,
            Decimal: TimeReader._decimals,
            datetime: TimeReader._datetimes,
            date: TimeReader._dates,
            list: _refused(Reason.NOT_A_SCALAR),
            dict: _refused(Reason.NOT_A_SCALAR),
            type(None): _refused(Reason.MISSING_TIME),
            type(UNSET): _refused(Reason.MISSING_TIME),
        }

    @property
    def scanned(self) -> TimeUnit | None:
        """What the compiled scanner may take: integers of a unit, or texts in UTC as RFC 3339 has them ("iso"); None: nothing."""
        if self._unit is not None:
            return self._unit
        return "iso" if self._format in _SCANNED else None

    def __call__(self, column: Sequence[Any]) -> tuple[Int64s, Reasons]:
        """Milliseconds since the Unix epoch as int64[n], and a Reason per row (0: good; the time of a bad row is 0)."""
        kinds = list(map(type, column))
        of_kind = dict.fromkeys(kinds)
        if len(of_kind) == 1:
            return self._of(kinds[0], column)
        times, reasons = np.zeros(len(column), np.int64), np.zeros(len(column), np.uint8)
        for kind in of_kind:
            rows = [row for row, found in enumerate(kinds) if found is kind]
            times[rows], reasons[rows] = self._of(kind, [column[row] for row in rows])
        return times, reasons

    def _of(self, kind: type, column: Sequence[Any]) -> tuple[Int64s, Reasons]:
        return self._readers.get(kind, _refused(Reason.BAD_TIME))(self, column)

    def _integers(self, column: Sequence[int]) -> tuple[Int64s, Reasons]:
        if self._unit is None:
            return _refused(Reason.TIME_NOT_A_TEXT)(self, column)
        try:
            return integer_times(np.fromiter(column, np.int64, len(column)), self._unit)
        except OverflowError:
            far = np.array([not -(2**63) <= stamp < 2**63 for stamp in column])
        times, reasons = integer_times(
            np.array([0 if beyond else stamp for stamp, beyond in zip(column, far, strict=True)], np.int64), self._unit
        )
        reasons[far] = Reason.BAD_TIME
        return times, reasons

    def _floats(self, column: Sequence[float]) -> tuple[Int64s, Reasons]:
        if self._unit is None:
            return _refused(Reason.TIME_NOT_A_TEXT)(self, column)
        return float_times(np.fromiter(column, np.float64, len(column)), self._unit)

    def _decimals(self, column: Sequence[Decimal]) -> tuple[Int64s, Reasons]:
        if self._unit is None:
            return _refused(Reason.TIME_NOT_A_TEXT)(self, column)
        unit = self._unit
        return self._in_utc([decimal_time(stamp, unit) for stamp in column])

    def _digits(self, column: Sequence[str]) -> tuple[Int64s, Reasons]:
        assert self._unit is not None
        unit = self._unit
        times, reasons = np.zeros(len(column), np.int64), np.zeros(len(column), np.uint8)
        for rows in _of_one_length(column, range(len(column))):
            texts = [column[row] for row in rows]
            if len(rows) >= _FEW and texts[0]:
                times[rows], done = digit_times(texts, unit)
            else:
                done = np.zeros(len(rows), np.bool_)
            for at in np.flatnonzero(~done).tolist():
                times[rows[at]], reasons[rows[at]] = text_time(texts[at], unit)
        return times, reasons

    def _texts(self, column: Sequence[str]) -> tuple[Int64s, Reasons]:
        times, done = np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
        if self._format in _SCANNED:
            times, done = parse_times(column)
            if done.all():
                return times, np.zeros(len(column), np.uint8)
        found: list[tuple[int, int]] = [(time, Reason.OK) for time in times.tolist()]
        for rows in _of_one_length(column, np.flatnonzero(~done).tolist()):
            self._same_length(column, rows, found)
        return self._in_utc(found)

    def _same_length(self, column: Sequence[str], rows: list[int], found: list[tuple[int, int]]) -> None:
        """Texts of one length. found: gets what is in these rows."""
        _, state = self._text(column[rows[0]])
        match = self._spelling.match(column[rows[0]])
        if len(rows) >= _FEW and match is not None and state != Reason.BAD_TIME:
            times, done = alike(match, [column[row] for row in rows])
            for row, time, taken in zip(rows, times.tolist(), done.tolist(), strict=True):
                found[row] = (time, state) if taken else self._text(column[row])
        else:
            for row in rows:
                found[row] = self._text(column[row])

    def _text(self, text: str) -> tuple[int, int]:
        match = self._spelling.match(text)
        if match is None:
            return 0, Reason.BAD_TIME
        try:
            time, local = milliseconds(match)
        except ValueError:
            return 0, Reason.BAD_TIME
        return time, _LOCAL if local else Reason.OK

    def _datetimes(self, column: Sequence[datetime]) -> tuple[Int64s, Reasons]:
        return self._in_utc(map(_of_datetime, column))

    def _dates(self, column: Sequence[date]) -> tuple[Int64s, Reasons]:
        return self._in_utc(((day.toordinal() - _EPOCH) * _DAY, _LOCAL) for day in column)

    def _in_utc(self, found: Iterable[tuple[int, int]]) -> tuple[Int64s, Reasons]:
        """Places what is local. found: a time and its Reason for each row."""
        table = np.array(list(found), np.int64).reshape(-1, 2)
        times, state = table[:, 0].copy(), table[:, 1]
        local = state == _LOCAL
        reasons = np.where(local, Reason.OK, state).astype(np.uint8)
        if local.any():
            if self._zone is None:
                reasons[local] = Reason.TIME_WITHOUT_ZONE
            else:
                times[local] = self._zone.to_utc(times[local])
                reasons[local & ((times < EARLIEST) | (times > LATEST))] = Reason.BAD_TIME
            times[reasons != 0] = 0
        return times, reasons


def event_times(
    column: Sequence[Any], unit: TimeUnit, time_format: str | None = None, time_zone: str | None = None
) -> tuple[Int64s, Reasons]:
    """What a `TimeReader` of these settings finds in one column."""
    return TimeReader(unit, time_format, time_zone)(column)


def _refused(reason: Reason) -> Callable[[TimeReader, Sequence[Any]], tuple[Int64s, Reasons]]:
    def refuse(_: TimeReader, column: Sequence[Any]) -> tuple[Int64s, Reasons]:
        return np.zeros(len(column), np.int64), np.full(len(column), reason, np.uint8)

    return refuse


def _of_datetime(instant: datetime) -> tuple[int, int]:
    """From a schema's logical type."""
    aware = instant.tzinfo is not None
    try:
        return milliseconds_of(instant if aware else instant.replace(tzinfo=UTC)), Reason.OK if aware else _LOCAL
    except (ValueError, OverflowError):
        return 0, Reason.BAD_TIME


def _of_one_length(column: Sequence[str], rows: Iterable[int]) -> Iterable[list[int]]:
    lengths: dict[int, list[int]] = {}
    for row in rows:
        lengths.setdefault(len(column[row]), []).append(row)
    return lengths.values()
