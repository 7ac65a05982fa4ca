"""Refused records become dead letters once, with their contents only where the operator wants that and a record can hold them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.runtime.dead_letters import DeadLetters
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason

SERVICES: Any = SimpleNamespace(topic=lambda name: f"s.web.{name}", max_record_bytes=10)
RECORDS = [
    SimpleNamespace(offset=7, value=b"good", key=None),
    SimpleNamespace(offset=8, value=b"bad", key=b"key"),
    SimpleNamespace(offset=9, value=b"too", key=b"long to be kept"),
    SimpleNamespace(offset=10, value=None, key=b"key"),
]
REASON = np.array([Reason.OK, Reason.NOT_JSON, Reason.TOO_LARGE, Reason.TOMBSTONE])


@pytest.mark.parametrize(
    ("keep", "contents"),
    [(True, [(b"bad", b"key"), (None, None), (None, b"key")]), (False, [(None, None)] * 3)],
)
def test_contents_are_kept_on_demand_and_where_they_fit(keep: bool, contents: list[Any]) -> None:
    letters = DeadLetters(SERVICES, 3, stage="route", topic="raw", keep=keep)
    assert letters.refuse(RECORDS, REASON) == 3
    assert len(letters) == 3
    [output] = letters.outputs()
    assert (output.topic, output.partition) == ("s.web.dead-letter", 3)
    assert [(message["value"], message["key"]) for message in output.messages] == contents
    found = [decode_headers(headers) for headers in output.headers or []]
    assert [(letter.offset, letter.reason, letter.partition, letter.stage) for letter in found] == [
        (8, Reason.NOT_JSON, 3, "route"),
        (9, Reason.TOO_LARGE, 3, "route"),
        (10, Reason.TOMBSTONE, 3, "route"),
    ]


def test_of_a_record_that_was_taken_apart_the_first_letter_has_the_contents() -> None:
    """A record can have half a million bad items."""
    letters = DeadLetters(SERVICES, 3, stage="route", topic="raw", keep=True)
    record, item = np.array([0, 0, 1, 1, 1, 3, 3]), np.array([0, 1, 0, 1, 2, 0, 1])
    reason = np.array([0, 0, 0, Reason.WRONG_TYPE, Reason.NO_ITEMS, Reason.WRONG_TYPE, Reason.MISSING_USER])
    assert letters.refuse(RECORDS, reason, record, item) == 4
    [output] = letters.outputs()
    assert [(message["value"], message["key"]) for message in output.messages] == [
        (b"bad", b"key"), (None, None), (None, b"key"), (None, None)
    ]  # fmt: skip
    found = [decode_headers(headers) for headers in output.headers or []]
    assert [(letter.offset, letter.item) for letter in found] == [(8, 1), (8, 2), (10, 0), (10, 1)]


def test_letters_are_written_once() -> None:
    letters = DeadLetters(SERVICES, 0, stage="route", topic="raw", keep=False)
    assert letters.outputs() == []
    letters.refuse(RECORDS, REASON)
    [output] = letters.outputs()
    assert letters.outputs() == []
    assert len(output.messages) == 3
    assert output.reasons == {"NOT_JSON": 1, "TOO_LARGE": 1, "TOMBSTONE": 1}
    letters.refuse(RECORDS[:2], REASON[:2])
    [output] = letters.outputs()
    assert output.reasons == {"NOT_JSON": 1}
