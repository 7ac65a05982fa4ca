"""Messages of rows: what the producer gets of each, and what they need before it takes them."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from susurrus.agents.formats.outputs.format import Writer
from susurrus.agents.runtime.publisher import Publisher, RowMessages
from susurrus.topics.wire.public_rows import PublicRows

KEYS, ROWS, STAMPS = [b"a", b"b", b"c"], [b"1", b"2", b"3"], [7, 8, 9]
HEADERS = {"headers": [("susurrus.receipt", b"{}")]}
DICTS = [
    {"key": key, "value": value, "timestamp": stamp, **HEADERS}
    for key, value, stamp in zip(KEYS, ROWS, STAMPS, strict=True)
]


def test_messages_are_a_sequence_of_dicts() -> None:
    found = RowMessages(KEYS, ROWS, STAMPS, HEADERS)
    assert list(found) == DICTS
    assert (len(found), found[1], found[-1], list(found[1:])) == (3, DICTS[1], DICTS[2], DICTS[1:])
    assert not RowMessages([], [], [], HEADERS)
    with pytest.raises(IndexError):
        found[3]


def test_a_message_is_its_own() -> None:
    """The producer may write into one."""
    found = RowMessages(KEYS, ROWS, STAMPS, HEADERS)
    for message in found:
        message["_error"] = "full"
    assert list(found) == DICTS


@pytest.mark.parametrize("short", ["keys", "values", "stamps"])
def test_columns_of_other_lengths_are_refused(short: str) -> None:
    columns: dict[str, Any] = {"keys": KEYS, "values": ROWS, "stamps": STAMPS}
    columns[short] = columns[short][1:]
    with pytest.raises(ValueError, match="are not of the same rows"):
        RowMessages(**columns, extra={})


def test_topics_of_one_schema_share_what_is_written() -> None:
    written: list[int] = []

    def encode(rows: PublicRows) -> Sequence[bytes]:
        written.append(len(rows))
        return [b"\0" + row for row in rows.json]

    writers = {"histogram": Writer(1, encode), "latest": Writer(1, encode), "other": Writer(2, encode)}
    publisher = Publisher(lambda: writers)
    publisher.open()
    found = publisher.messages(["histogram", "latest", "other", "json"], KEYS, PublicRows.of_json(ROWS), STAMPS)
    assert written == [3, 3]
    values = [[message["value"] for message in messages] for messages in found]
    assert values == [[b"\x001", b"\x002", b"\x003"]] * 3 + [ROWS]
    assert [message["timestamp"] for message in found[1]] == STAMPS


def test_keys_without_values_withdraw_rows() -> None:
    found = Publisher().withdrawals(KEYS, STAMPS)
    assert [(message["key"], message["value"], message["timestamp"]) for message in found] == [
        (b"a", None, 7), (b"b", None, 8), (b"c", None, 9)
    ]  # fmt: skip


def test_messages_of_many_rows_need_little_memory() -> None:
    n = 50_000
    keys, rows = [b"key"] * n, PublicRows.of_json([b"row"] * n)
    tracemalloc.start()
    try:
        found = Publisher().messages(["histogram", "latest"], keys, rows, [7] * n)
        assert tracemalloc.get_traced_memory()[1] < 40 * n  # a dict of them has 184 bytes
    finally:
        tracemalloc.stop()
    assert len(found) == 2
