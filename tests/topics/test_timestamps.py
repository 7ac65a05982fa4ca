"""Times in JSON: RFC 3339 in UTC, years 1 to 9999, milliseconds."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from susurrus.topics.timestamps import EARLIEST, LATEST, format_time, parse_time


@given(st.integers(EARLIEST, LATEST))
def test_every_millisecond_survives(milliseconds):
    text = format_time(milliseconds)
    assert parse_time(text) == milliseconds
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    assert datetime.fromisoformat(text) == instant


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1500, "1970-01-01T00:00:01.500Z"),
        (EARLIEST, "0001-01-01T00:00:00Z"),
        (LATEST, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_the_text_is_fixed(milliseconds, text):
    assert format_time(milliseconds) == text


@pytest.mark.parametrize("milliseconds", [EARLIEST - 1, LATEST + 1])
def test_other_years_are_refused(milliseconds):
    with pytest.raises(ValueError, match="years"):
        format_time(milliseconds)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+00:01"])
def test_an_offset_may_not_lead_out_of_the_range(text):
    with pytest.raises(ValueError, match=r"years|range"):
        parse_time(text)


@given(st.text())
def test_no_text_raises_anything_else(text):
    try:
        assert EARLIEST <= parse_time(text) <= LATEST
    except ValueError:
        return
