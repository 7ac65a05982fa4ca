"""Event times against independent readers: exact fractions, email.utils, datetime and the system's own zoneinfo."""

import email.utils
import math
import random
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from susurrus.topics.records.reason import Reason
from susurrus.topics.records.times import TimeReader, event_times
from susurrus.topics.wire.timestamps import EARLIEST, LATEST, parse_time

PER_MILLISECOND = {
    "s": Fraction(1, 1000),
    "ms": Fraction(1),
    "us": Fraction(1000),
    "ns": Fraction(10**6),
    "d": Fraction(1, 86_400_000),
}
UNITS = sorted(PER_MILLISECOND)
SIX = 1_790_834_400_000
"""2026-10-01T06:00:00Z."""
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEARLY_RFC3339 = (
    r"[0-9]{4}-[0-1][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,19})?"
    r"([Zz]|[+-][0-2][0-9]:?[0-6][0-9])"
)
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))


def one(value: Any, unit: str = "iso", time_format: str | None = None, time_zone: str | None = None) -> Any:
    """The time of one value, or why there is none."""
    times, reasons = event_times([value], unit, time_format, time_zone)  # type: ignore[arg-type]
    assert times.dtype == np.int64
    assert reasons.dtype == np.uint8
    assert reasons[0] == 0 or times[0] == 0
    return Reason(reasons[0]) if reasons[0] else int(times[0])


def ms(instant: datetime) -> int:
    return (instant - EPOCH) // MILLISECOND


class TestNumbers:
    @given(st.integers(-(2**70), 2**70), st.sampled_from(UNITS))
    def test_an_integer_is_floored_in_every_unit(self, stamp: int, unit: str) -> None:
        wanted = math.floor(stamp / PER_MILLISECOND[unit])
        inside = EARLIEST <= wanted <= LATEST and -(2**63) <= stamp < 2**63
        assert one(stamp, unit) == (wanted if inside else Reason.BAD_TIME)

    @given(st.floats(-3e6, 3e6))
    def test_days_with_a_fraction_are_floored_to_the_millisecond(self, days: float) -> None:
        wanted = math.floor(Fraction(days) * 86_400_000)
        if float(Fraction(wanted + 1, 86_400_000)) == days:  # the nearest float of the next one
            wanted += 1
        assert one(days, "d") == (wanted if EARLIEST <= wanted <= LATEST else Reason.BAD_TIME)

    def test_days_are_midnights(self) -> None:
        assert one(20_727, "d") == ms(datetime(2026, 10, 1, tzinfo=UTC))
        assert one(-1, "d") == ms(datetime(1969, 12, 31, tzinfo=UTC))
        assert one((date.max - date(1970, 1, 1)).days + 1, "d") is Reason.BAD_TIME

    @given(
        st.from_regex(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?", fullmatch=True), st.sampled_from(UNITS)
    )
    @example("1790834400.123", "s")
    @example("1790834400.1239999999999999999999999999", "s")
    @example("-0.0001", "s")
    @example("1.790834400123E9", "s")
    @example("9" * 19, "ns")
    def test_digits_in_a_text_are_that_number_exactly(self, text: str, unit: str) -> None:
        if not text.isascii():
            return
        wanted = math.floor(Fraction(text) / PER_MILLISECOND[unit])
        want = wanted if EARLIEST <= wanted <= LATEST else Reason.BAD_TIME
        assert one(text, unit) == want
        assert [one_of(event_times([text] * 9, unit), row) for row in range(9)] == [want] * 9

    @given(st.lists(st.from_regex(r"[0-9]{1,12}(\.[0-9]{1,9})?", fullmatch=True), min_size=1), st.sampled_from(UNITS))
    def test_texts_of_numbers_are_decided_alone(self, texts: list[str], unit: str) -> None:
        assert_alone(TimeReader(unit), [*texts, *texts, *(text[::-1] for text in texts)])

    @pytest.mark.parametrize(
        "text",
        ["", " 1", "1 ", ".5", "5.", "1_000", "٣", "0x1", "1e100", "inf", "nan", "--1", "1" * 41, "2026-10-01", "1,5"],
    )
    def test_what_is_no_number(self, text: str) -> None:
        assert one(text, "s") is Reason.TIME_NOT_A_NUMBER

    @pytest.mark.parametrize("text", ["1" * 40, "9e99", "-9e99"])
    def test_a_number_beyond_the_years(self, text: str) -> None:
        assert one(text, "ns") is Reason.BAD_TIME

    def test_decimals_are_exact(self) -> None:
        assert one(Decimal("1790834400.1239999"), "s") == SIX + 123
        assert one(Decimal("-0.0001"), "s") == -1
        for odd in ("NaN", "Infinity", "1E+999999", "1E-999999"):
            assert one(Decimal(odd), "s") is Reason.BAD_TIME

    def test_numbers_where_texts_are_wanted(self) -> None:
        for number in (5, 5.0, Decimal(5), math.nan, 2**80):
            assert one(number) is Reason.TIME_NOT_A_TEXT
            assert one(number, "ms", "clf") is Reason.TIME_NOT_A_TEXT


SIX_O_CLOCK = [
    ("rfc3339", "2026-10-01T06:00:00Z"),
    ("rfc3339", "2026-10-01 08:00:00.000999999+02:00"),
    ("rfc3339", "2026-10-01t06:00:00z"),
    ("rfc3339", "2026-10-01T11:30:00+0530"),
    ("iso8601", "2026-10-01 06:00:00 UTC"),
    ("iso8601", "2026-10-01T11:00:00+05"),
    ("iso8601", "2026-10-01T06:00Z"),
    ("iso8601", "2026-10-01T06:00:00,000Z"),
    ("iso8601", "2026-10-01T06:00:00Z[UTC]"),
    ("iso8601", "2026-10-01T08:00+02:00[Europe/Berlin]"),
    ("iso8601", "2026-10-01 08:00:00.000123 +0200 CEST"),
    ("iso8601", "20261001T060000Z"),
    ("iso8601", "20261001T0600+00"),
    ("rfc1123", "Thu, 01 Oct 2026 06:00:00 GMT"),
    ("rfc1123", "thu, 1 oct 2026 08:00:00 +0200 (CEST)"),
    ("rfc1123", "1 Oct 2026 06:00 UT"),
    ("clf", "01/Oct/2026:06:00:00 +0000"),
    ("clf", "01/Oct/2026:00:30:00 -0530"),
    ("%d.%m.%Y %H:%M:%S %z", "01.10.2026 06:00:00 Z"),
    ("%-m/%-d/%Y %I:%M:%S %p %Z", "10/1/2026 06:00:00 am GMT"),
    ("%Y%m%d%H%M%S%z", "20261001060000+00"),
    ("%a %b %e %H:%M:%S %Z %Y", "Thu Oct  1 06:00:00 UTC 2026"),
    ("%A, %d-%b-%y %H:%M:%S %Z", "Thursday, 01-Oct-26 06:00:00 GMT"),
    ("%B %-d, %Y %-H:%M %z", "October 1, 2026 6:00 +00:00"),
    ("%G-W%V-%uT%H%z", "2026-W40-4T06Z"),
    ("%Y-%jT%H:%M%z", "2026-274T06:00Z"),
    ("100%% %Y-%m-%d %H:%M:%S.%f%z", "100% 2026-10-01 06:00:00.0009Z"),
]


class TestTexts:
    @pytest.mark.parametrize(("time_format", "text"), SIX_O_CLOCK)
    def test_six_o_clock_in_every_spelling(self, time_format: str, text: str) -> None:
        assert one(text, "iso", time_format) == SIX
        assert one(text, "ms", time_format) == SIX
        times, reasons = event_times([text] * 20, "iso", time_format)
        assert times.tolist() == [SIX] * 20
        assert not reasons.any()

    @pytest.mark.parametrize(
        ("time_format", "text"),
        [
            ("rfc3339", "2026-10-01T06:00:00"),
            ("rfc3339", "2026-10-01 06:00:00.000999"),
            ("iso8601", "2026-10-01T06:00"),
            ("iso8601", "20261001T060000"),
            ("log4j", "2026-10-01 06:00:00,000"),
            ("%d.%m.%Y %H:%M:%S", "01.10.2026 06:00:00"),
        ],
    )
    def test_a_text_without_a_zone_needs_the_setting(self, time_format: str, text: str) -> None:
        assert one(text, "iso", time_format) is Reason.TIME_WITHOUT_ZONE
        assert one(text, "iso", time_format, "UTC") == SIX
        assert one(text, "iso", time_format, "Asia/Kolkata") == SIX - 19_800_000

    def test_a_date_alone_is_midnight(self) -> None:
        assert one("2026-10-01") is Reason.BAD_TIME
        assert one("2026-10-01", "iso", "iso8601") is Reason.TIME_WITHOUT_ZONE
        assert one("2026-10-01", "iso", "iso8601", "Europe/Berlin") == ms(datetime(2026, 9, 30, 22, tzinfo=UTC))
        assert one(date(2026, 10, 1), "ms", None, "Europe/Berlin") == ms(datetime(2026, 9, 30, 22, tzinfo=UTC))
        assert one(date(2026, 10, 1)) is Reason.TIME_WITHOUT_ZONE

    def test_a_local_datetime_is_in_the_zone_and_an_aware_one_is_not(self) -> None:
        assert one(datetime(2026, 10, 1, 8), "us", None, "Europe/Berlin") == SIX
        assert one(datetime(2026, 10, 1, 8)) is Reason.TIME_WITHOUT_ZONE
        assert one(datetime(2026, 10, 1, 6, tzinfo=UTC), "iso", "clf", "Europe/Berlin") == SIX

    @pytest.mark.parametrize(
        ("time_format", "text", "wanted"),
        [
            ("iso8601", "2026-10-01T24:00:00Z", SIX + 18 * 3_600_000),
            ("iso8601", "2026-10-01T23:59:60Z", SIX + 18 * 3_600_000 - 1),
            ("iso8601", "2026-10-01T23:59:60.5Z", SIX + 18 * 3_600_000 - 1),
            ("iso8601", "2026-10-01T24:00:01Z", Reason.BAD_TIME),
            ("iso8601", "2026-10-01T06:00:61Z", Reason.BAD_TIME),
            ("iso8601", "9999-12-31T24:00:00Z", Reason.BAD_TIME),
            ("iso8601", "9999-12-31T23:59:59.9999Z", LATEST),
            ("iso8601", "0001-01-01T00:00Z", EARLIEST),
            ("iso8601", "0001-01-01T00:00+01", Reason.BAD_TIME),
            ("iso8601", "9999-12-31T23:59:59-00:01", Reason.BAD_TIME),
            ("iso8601", "0000-01-01", Reason.BAD_TIME),
            ("iso8601", "2026-10-01T06:00:00+24", Reason.BAD_TIME),
            ("iso8601", "2026-10-01T06:00:00+02:60", Reason.BAD_TIME),
            ("iso8601", "2026-W40-4", Reason.BAD_TIME),
            ("iso8601", "1790834400", Reason.BAD_TIME),
            ("rfc3339", "2026-10-01T24:00:00Z", Reason.BAD_TIME),
            ("rfc3339", "2026-10-01T23:59:60Z", Reason.BAD_TIME),
            ("rfc3339", "2026-10-01T06:00Z", Reason.BAD_TIME),
            ("rfc1123", "Thu, 31 Feb 2026 06:00:00 GMT", Reason.BAD_TIME),
            ("rfc1123", "Thu, 01 Oct 2026 06:00:00 CEST", Reason.BAD_TIME),
            ("clf", "2026-10-01T06:00:00Z", Reason.BAD_TIME),
            ("%Y-%j%z", "2026-366Z", Reason.BAD_TIME),
            ("%Y-%j%z", "2024-366Z", ms(datetime(2024, 12, 31, tzinfo=UTC))),
            ("%G-W%V-%u%z", "2026-W54-1Z", Reason.BAD_TIME),
            ("%y%m%d%z", "690101Z", ms(datetime(1969, 1, 1, tzinfo=UTC))),
            ("%y%m%d%z", "680101Z", ms(datetime(2068, 1, 1, tzinfo=UTC))),
            ("%Y-%m-%d %I%p%z", "2026-10-01 12amZ", SIX - 6 * 3_600_000),
            ("%Y-%m-%d %I%p%z", "2026-10-01 12PMZ", SIX + 6 * 3_600_000),
            ("%Y-%m-%d %I%p%z", "2026-10-01 13PMZ", Reason.BAD_TIME),
        ],
    )
    def test_edges(self, time_format: str, text: str, wanted: Any) -> None:
        assert one(text, "iso", time_format) == wanted
        assert_alone(TimeReader("iso", time_format), [SIX_O_CLOCK[0][1], *[text] * 9])

    @given(INSTANTS)
    def test_rfc1123_is_what_the_mail_library_reads(self, instant: datetime) -> None:
        if instant.year < 1900:  # an older year of two digits means another thing there
            instant = instant.replace(year=1900 + instant.year % 100, day=min(instant.day, 28))
        instant = instant.replace(tzinfo=UTC, microsecond=0)
        for text in (email.utils.format_datetime(instant, usegmt=True), email.utils.format_datetime(instant)):
            assert one(text, "iso", "rfc1123") == ms(email.utils.parsedate_to_datetime(text)) == ms(instant)

    @given(INSTANTS, st.integers(-23 * 60 - 59, 23 * 60 + 59))
    def test_formats_are_what_datetime_reads(self, instant: datetime, minutes: int) -> None:
        local = instant.replace(tzinfo=timezone(timedelta(minutes=minutes)))
        wanted = ms(local)
        spelt = {
            "iso8601": local.isoformat(),
            "rfc3339": local.isoformat(),
            "%m/%d/%Y %H:%M:%S.%f %z": f"{instant:%m/%d}/{instant.year:04} {instant:%H:%M:%S.%f} {local:%z}",
            "%d-%B-%Y, %I.%M.%S.%f %p%z": f"{instant:%d-%B}-{instant.year:04}, {instant:%I.%M.%S.%f %p}{local:%z}",
        }
        for time_format, text in spelt.items():
            assert one(text, "iso", time_format) == wanted
        clf = f"{instant:%d/%b}/{instant.year:04}:{instant:%H:%M:%S} {local:%z}"
        assert one(clf, "iso", "clf") == ms(local.replace(microsecond=0))
        log = f"{instant.year:04}-{instant:%m-%d %H:%M:%S},{instant.microsecond // 1000:03}"
        assert one(log, "iso", "log4j", "UTC") == ms(instant.replace(tzinfo=UTC))

    @given(st.from_regex(NEARLY_RFC3339, fullmatch=True))
    def test_rfc3339_is_the_instant_of_the_topics(self, text: str) -> None:
        try:
            wanted: Any = parse_time(text)
        except ValueError:
            wanted = Reason.BAD_TIME
        assert one(text) == wanted
        if wanted is not Reason.BAD_TIME:
            assert one(text, "iso", "iso8601") == wanted

    def test_a_long_text_is_refused_at_once(self) -> None:
        for time_format in ("rfc3339", "iso8601", "rfc1123", "clf", "log4j", "%Y-%m-%d%z"):
            for text in ("2026-10-01" + "0" * 10**6, " " * 10**6, "2026-10-01T06:00:00Z[" + "a" * 10**6 + "]"):
                assert one(text, "iso", time_format) is Reason.BAD_TIME


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            ("iso", "is no format"),
            ("", "is no format"),
            ("%Q", "has the directive %Q"),
            ("%Y-%m-%d %", "has the directive %;"),
            ("%s", "has the directive %s"),
            ("%H:%M", "does not say the date once"),
            ("%Y-%m", "does not say the date once"),
            ("%Y %y-%m-%d", "does not say the date once"),
            ("%Y-%m-%d %j", "does not say the date once"),
            ("%Y-%m-%d %V", "does not say the date once"),
            ("%G-%V", "does not say the date once"),
            ("%Y-%m-%d %d", "says the same twice"),
            ("%Y-%b-%B-%d", "says the same twice"),
            ("%Y-%m-%d %I:%M", "does not say the hour once"),
            ("%Y-%m-%d %H %p", "does not say the hour once"),
            ("%Y-%m-%d %M", "has %M, but"),
            ("%Y-%m-%d %H:%S", "has %S, but"),
            ("%Y-%m-%d %H:%M.%f", "has %f, but"),
            ("%-d%m%Y", "right behind a number of no fixed width"),
            ("%-d1%m%Y", "right behind a number of no fixed width"),
            ("%z%Y-%m-%d", "right behind a number of no fixed width"),
            ("%Y-%m-%d" + "x" * 100, "has more than 100 characters"),
        ],
    )
    def test_what_is_refused_says_why(self, pattern: str, said: str) -> None:
        with pytest.raises(ValueError, match=said.replace(".", r"\.")):
            TimeReader("iso", pattern)

    def test_other_characters_stand_for_themselves(self) -> None:
        assert one("[2026-10-01](06.00)+|$^Z", "iso", r"[%Y-%m-%d](%H.%M)+|$^%z") == SIX
        assert one("[2026-10-01](06x00)+|$^Z", "iso", r"[%Y-%m-%d](%H.%M)+|$^%z") is Reason.BAD_TIME


MIXED: list[Any] = [
    None, UNSET, True, 5, -5, 2**70, 5.5, math.nan, math.inf, "5", "5.5", "x", "", b"5", [], {}, Decimal("1.5"), Decimal("NaN"),
    datetime(2026, 10, 1), datetime(2026, 10, 1, tzinfo=UTC), datetime.min, datetime.max, datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=23))), date.min, date.max, "2026-10-01", "2026-10-01T06:00:00",
    "2026-10-01T06:00:00Z", "2026-03-29 02:30:00", "٢026-10-01T06:00:00Z", "\ud800", "0001-01-01T00:00:00", "9999-12-31T23:59:59",
    *(text for _, text in SIX_O_CLOCK),
]  # fmt: skip
READERS = [
    *((unit, None, zone) for unit in ("s", "ms", "us", "ns", "d", "iso") for zone in (None, "America/St_Johns")),
    *(("iso", form, zone) for form in ("iso8601", "rfc1123", "clf", "log4j") for zone in (None, "Pacific/Apia")),
    *(("iso", form, "Europe/Berlin") for form in dict(SIX_O_CLOCK) if "%" in form),
]


@pytest.mark.parametrize("settings", READERS, ids=str)
def test_neighbours_do_not_matter(settings: tuple[Any, ...]) -> None:
    reader, draw = TimeReader(*settings), random.Random(33)
    for size in (1, 2, 5, 40, 300):
        assert_alone(reader, [odd(draw) for _ in range(size)])
        assert_alone(reader, [draw.choice([text for _, text in SIX_O_CLOCK]) for _ in range(size)])


@pytest.mark.parametrize("settings", READERS, ids=str)
def test_texts_that_are_nearly_alike_are_decided_alone(settings: tuple[Any, ...]) -> None:
    """One character of each is another one: the tables must not take what the expressions refuse, nor read it otherwise."""
    reader, draw = TimeReader(*settings), random.Random(34)
    for _, text in [*SIX_O_CLOCK, ("", "2026-03-29 02:30:00"), ("", "1790834400.123"), ("", "2026-10-01 06:00:00,5")]:
        texts = [text] * 5
        for _ in range(60):
            place = draw.randrange(len(text))
            texts.append(text[:place] + draw.choice("0123456789 :-TZ+,.é/") + text[place + 1 :])
            digits = "".join(draw.choice("0123456789") if c.isdigit() and draw.random() < 0.2 else c for c in text)
            texts.append(digits)
        assert_alone(reader, texts)


@pytest.mark.parametrize("settings", READERS, ids=str)
def test_ten_thousand_odd_values_make_as_many_rows(settings: tuple[Any, ...]) -> None:
    draw = random.Random(35)
    times, reasons = TimeReader(*settings)([odd(draw) for _ in range(10_000)])
    assert len(times) == len(reasons) == 10_000
    assert not times[reasons != 0].any()
    assert ((times >= EARLIEST) & (times <= LATEST)).all()
    assert set(reasons.tolist()) <= {0, 10, 13, 45, 46, 47, 48}


def odd(draw: random.Random) -> Any:
    value = draw.choice(MIXED)
    if isinstance(value, str) and value and draw.random() < 0.5:
        place = draw.randrange(len(value))
        value = (
            value[:place]
            + chr(draw.choice((48, 57, 32, 90, 0, 0x660, 0xFFFF, 0x1F600)))
            + value[place + draw.randrange(2) :]
        )
    return value


def one_of(found: Any, row: int) -> Any:
    return Reason(found[1][row]) if found[1][row] else int(found[0][row])


def assert_alone(reader: TimeReader, column: list[Any]) -> None:
    """Every row of a batch is what it is alone."""
    together = reader(column)
    alone = [reader([value]) for value in column]
    assert [one_of(together, row) for row in range(len(column))] == [one_of(found, 0) for found in alone]
