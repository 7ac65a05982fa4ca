"""Route takes records apart: one row for each item, in the order of the list, with the user and the time of its record."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.histogram.route import RouteStage
from susurrus.topics import by_user
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.raw import MAX_ITEMS
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import WINDOW, Runner, services_of

EACH = {"of": "items", "as": "item"}


def record(offset: int, value: Any, *, key: bytes | None = None) -> Any:
    packed = value if isinstance(value, bytes) else json.dumps(value).encode()
    return SimpleNamespace(
        offset=offset,
        timestamp=WINDOW + offset,
        timestamp_type=1,
        key=key,
        value=packed,
        headers=[],
        topic="raw",
        partition=0,
    )


def routed(
    directory: Path, records: list[Any], ends: list[int], source: dict[str, Any]
) -> tuple[list[tuple[int, bytes, bytes, int]], list[tuple[int, int | None, Reason]], dict[str, int], list[bytes]]:
    """(place, user, key, value) of every row for bound; the dead letters; the counters; the blocks.

    source: of `[input]`, and where the value is.
    """
    source = dict(source)
    value = source.pop("value", "n")
    services = services_of(
        settings(
            input={"topic": "raw", "user": "u", "key": ["k"], **source},
            start={"from": "earliest", "first_window": WINDOW},
            clock={"kind": "broker"},
            columns=[{"name": "paid", "kind": "sum", "field": value, "bound": 100, "grid": 1}],
            bounds={"max_records_per_user": 100, "max_records_per_key": 100},
        )
    )
    runner = Runner(RouteStage, services, directory, 0)
    for end in [*ends, len(records)]:
        runner.feed(records, end)
    runner.commit(now=WINDOW)
    blocks = [v for _, _, _, v, _ in runner.to("by-user") if v is not None and kind_of(v) is not Kind.TICK]
    rows = []
    for block in map(by_user.decode, blocks):
        for at, user, key, value in zip(block.offset, block.user, block.key, block.values[:, 0], strict=True):
            rows.append((int(at), block.users[user], block.keys[key], int(value)))
    outputs = [output for commit in runner.commits for output in commit.outputs]
    found = [decode_headers(headers) for output in outputs for headers in output.headers or ()]
    counters = dict(runner.stage.counters)
    runner.close()
    return rows, [(letter.offset, letter.item, letter.reason) for letter in found], counters, blocks


ORDERS = [
    {"u": "ann", "items": [{"k": "A", "n": 1}, {"k": "B", "n": 2}, {"k": "A", "n": 3}]},
    {"u": "bob", "items": []},
    {"u": "bob", "items": [{"k": "A", "n": 4}, {"k": "B"}, {"n": 5}, 7]},
    {"u": None, "items": [{"k": "A", "n": 1}]},
    {"items": "none"},
    {"u": "cat", "items": [{"k": "C", "n": 6}]},
]


@pytest.mark.parametrize("ends", [[], [1, 2, 3, 4, 5], [3]])
def test_items_are_routed_as_records_of_their_user(ends: list[int], tmp_path: Path) -> None:
    records = [record(offset, order) for offset, order in enumerate(ORDERS)]
    source = {"key": ["item.k"], "value": "item.n", "each": EACH, "null_key": "value"}
    rows, letters, counters, _ = routed(tmp_path / "each", records, ends, source)
    flat = [
        {"u": order["u"], "k": item.get("k"), "n": item["n"]}
        for order in ORDERS
        if isinstance(order["items"], list) and order.get("u")
        for item in order["items"]
        if isinstance(item, dict) and "n" in item
    ]
    expected, *_ = routed(tmp_path / "flat", [record(n, one) for n, one in enumerate(flat)], [], {"null_key": "value"})
    assert sorted(row[1:] for row in rows) == sorted(row[1:] for row in expected)
    for user in (b'"ann"', b'"bob"', b'"cat"'):  # a user's rows keep their order
        assert [row[2:] for row in rows if row[1] == user] == [row[2:] for row in expected if row[1] == user]
    assert sorted(row[0] for row in rows) == [0, 1, 2, 2 * MAX_ITEMS, 2 * MAX_ITEMS + 2, 5 * MAX_ITEMS]
    assert letters == [
        (2, 1, Reason.MISSING_VALUE),
        (2, 3, Reason.WRONG_TYPE),
        (3, 0, Reason.MISSING_USER),
        (4, None, Reason.NOT_ITEMS),
    ]
    assert (counters["in"], counters["routed"], counters["filtered"], counters["dead_letter"]) == (11, 6, 1, 4)


def test_a_record_whose_items_fill_several_blocks_is_no_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bound takes each place of a source once; the items of one record have places of their own."""
    monkeypatch.setattr("susurrus.agents.runtime.services.Services.max_record_bytes", 8_192)
    many = record(0, {"u": "ann", "items": [{"k": f"{n:05d}" + "x" * 400, "n": 1} for n in range(60)]})
    source = {"key": ["item.k"], "value": "item.n", "each": EACH}
    rows, letters, _, blocks = routed(tmp_path, [many], [], source)
    assert len(blocks) > 1
    assert [row[0] for row in rows] == list(range(60))
    assert letters == []


def test_items_of_one_record_may_be_of_different_users(tmp_path: Path) -> None:
    """One user's items, readable or not, change nothing for another's."""
    others = [{"u": f"p{n}", "k": "x", "n": n} for n in range(3)]
    source = {"each": {"of": "$value"}}

    def rows_with(*odd: bytes) -> list[Any]:
        items = [json.dumps(other).encode() for other in others]
        value = b"[" + b",".join([items[0], *odd, *items[1:]]) + b"]"
        name = str(abs(hash(odd)))
        services_rows, *_ = routed(tmp_path / name, [record(0, value)], [], source)
        return [row[1:] for row in services_rows if row[1] != b'"eve"']

    alone = rows_with()
    assert len(alone) == 3
    assert rows_with(b'{"u":"eve","k":"x","n":1e999}') == alone
    assert rows_with(b'{"u":"eve","k":"\xff","n":1}', b"[]", b"null", b'{"u":"eve","k":{},"n":1}') == alone
    assert rows_with(*[b'{"u":"eve","k":"x","n":1}'] * 300) == alone
