"""Times in JSON: RFC 3339 in UTC, years 1 to 9999, milliseconds."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.wire.timestamps import EARLIEST, LATEST, format_time, parse_time, parse_times


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


def slowly(text):
    try:
        return parse_time(text)
    except ValueError:
        return None


NEARLY = st.tuples(
    st.sampled_from(["1970", "2024", "2023", "1900", "2000", "0000", "0001", "9999", "20x4"]),
    st.sampled_from(
        ["-01-31", "-02-28", "-02-29", "-02-30", "-04-31", "-00-10", "-13-01", "-12-00", "-12-31", "/01-01"]
    ),
    st.sampled_from(["T", "t", " ", "-"]),
    st.sampled_from(["00:00:00", "23:59:59", "24:00:00", "12:60:00", "12:00:60", "1 :00:00", "12.00:00"]),
    st.sampled_from(["", ".", ".5", ".05", ".123", ".9999", ".123456789", ".1234567890123456789", ",5", ".5x"]),
    st.sampled_from(["Z", "z", "+", "+00:00", ""]),
).map("".join)


@given(st.lists(NEARLY | st.text(max_size=25), min_size=1, max_size=3))
def test_all_at_once_is_one_by_one(texts):
    texts = [text for text in texts if len(text) == len(texts[0])]
    times, done = parse_times(texts)
    for text, time, by_table in zip(texts, times.tolist(), done.tolist(), strict=True):
        assert time == (slowly(text) if by_table else 0)


@given(st.lists(st.integers(EARLIEST, LATEST), max_size=5), st.sampled_from([0, 1, 2, 3, 6, 9, 18]))
def test_the_usual_texts_are_all_done_at_once(times, places):
    texts = [
        format_time(t // 1000 * 1000)[:-1] + f".{t % 1000:03d}000000000000000"[: places + (places > 0)] + "Z"
        for t in times
    ]
    found, done = parse_times(texts)
    assert done.all()
    assert found.tolist() == [slowly(text) for text in texts]
    assert found.tolist() == [
        t // 1000 * 1000 + t % 1000 // 10 ** max(0, 3 - places) * 10 ** max(0, 3 - places) for t in times
    ]
