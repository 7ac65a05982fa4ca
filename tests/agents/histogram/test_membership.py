"""Where a raw record belongs: each rule at its limit, which of two comes first, and every record alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram.membership import Membership
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.topics.records.reason import Reason
from tests.agents.released import settings

HOUR = 3_600_000
LENGTH = 4 * HOUR
FIRST = 10 * LENGTH
UNTIL = 13 * LENGTH


def membership(*, first: int | None = 10, until: int | None = None) -> Membership:
    archive: dict[str, Any] = {"kind": "replay", "until": UNTIL} if until else {"kind": "broker"}
    configured = settings(
        input={"topic": "raw", "user": "u", "key": ["k"], "time": "t"},
        window={"length": LENGTH, "trigger_every": HOUR, "allowed_lateness": HOUR},
        start={"from": "earliest", "first_window": FIRST},
        clock={**archive, "max_future": 1_000},
    )
    return Membership(HistogramSettings.of(configured), None if first is None else WindowIndex(first))


def decide(rules: Membership, rows: list[dict[str, Any]]) -> list[tuple[str, int, int, bool]]:
    """(reason, window, interval, late) of each row; an interval counts from the origin."""

    def column(name: str, default: Any, dtype: Any) -> Any:
        return np.array([row.get(name, default(row) if callable(default) else default) for row in rows], dtype)

    reason = column("reason", Reason.OK, np.uint8)
    stamps = column("stamp", 0, np.int64)
    found = rules.decide(
        reason,
        column("time", lambda row: row["stamp"], np.int64),
        stamps=stamps,
        interval=column("interval", lambda row: row["stamp"] // HOUR, np.int64),
        otherwise=column("otherwise", False, np.bool_),
        too_far=column("too_far", False, np.bool_),
    )
    names = [Reason(one).name for one in reason.tolist()]
    return list(zip(names, found.window.tolist(), found.interval.tolist(), found.late.tolist(), strict=True))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"stamp": FIRST}, ("OK", 10, 40, False)),
        ({"stamp": FIRST + 2 * HOUR, "time": FIRST}, ("OK", 10, 42, False)),
        ({"stamp": FIRST - 1, "time": FIRST}, ("OK", 10, 40, False)),  # not before the window's first interval
        ({"stamp": FIRST + LENGTH + HOUR - 1, "time": FIRST}, ("OK", 10, 44, False)),
        ({"stamp": FIRST + LENGTH + HOUR, "time": FIRST}, ("OK", 10, 45, True)),
        ({"stamp": FIRST, "interval": 45}, ("OK", 10, 45, True)),  # what it was placed in by the clock counts
        ({"stamp": FIRST + 1, "time": FIRST - 1}, ("BEFORE_FIRST_WINDOW", 9, 40, False)),
        ({"stamp": FIRST, "time": FIRST + 1_000}, ("OK", 10, 40, False)),
        ({"stamp": FIRST, "time": FIRST + 1_001}, ("IN_FUTURE", 10, 40, False)),
        ({"stamp": FIRST, "too_far": True}, ("IN_FUTURE", 10, 40, False)),
        ({"stamp": FIRST, "otherwise": True}, ("WRONG_STAMP", 10, 40, False)),
        ({"stamp": FIRST, "otherwise": True, "too_far": True}, ("WRONG_STAMP", 10, 40, False)),
        ({"stamp": FIRST - 9_000, "time": FIRST - 7_000}, ("IN_FUTURE", 9, 39, False)),  # before: it is in the future
        ({"stamp": FIRST, "reason": Reason.MISSING_USER, "otherwise": True}, ("MISSING_USER", 10, 40, False)),
        ({"stamp": FIRST, "reason": Reason.FILTERED, "interval": 45}, ("FILTERED", 10, 45, False)),
    ],
)
def test_the_rules_at_their_limits(row: dict[str, Any], expected: tuple[str, int, int, bool]) -> None:
    assert decide(membership(), [row]) == [expected]


@pytest.mark.parametrize(
    ("stamp", "time", "reason"),
    [
        (UNTIL - 1, UNTIL - 1, "OK"),
        (UNTIL, UNTIL - 1, "IN_FUTURE"),
        (UNTIL - 1, UNTIL, "IN_FUTURE"),
    ],
)
def test_an_archive_ends_for_stamps_and_for_event_times(stamp: int, time: int, reason: str) -> None:
    assert decide(membership(until=UNTIL), [{"stamp": stamp, "time": time}])[0][0] == reason


def test_before_a_pipeline_begins_no_window_is_too_old() -> None:
    assert decide(membership(first=None), [{"stamp": 0}]) == [("OK", 0, 0, False)]


_times = st.integers(FIRST - 2 * LENGTH, UNTIL + LENGTH)
_rows = st.fixed_dictionaries(
    {
        "stamp": _times,
        "time": _times,
        "interval": st.integers(30, 60),
        "otherwise": st.booleans(),
        "too_far": st.booleans(),
        "reason": st.sampled_from([Reason.OK, Reason.OK, Reason.MISSING_KEY, Reason.FILTERED]),
    }
)


@given(st.lists(_rows, min_size=2, max_size=12), st.booleans())
def test_each_record_is_decided_as_it_is_decided_alone(rows: list[dict[str, Any]], archive: bool) -> None:
    rules = membership(until=UNTIL if archive else None)
    assert decide(rules, rows) == [decide(rules, [row])[0] for row in rows]
