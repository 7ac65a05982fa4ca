"""Take one user away from two topics of different formats, and everything that is said about the others stays what it was.

As in test_neighbours.py, from raw records to release's input. Here records are lists of events (`input.each`), some of several
users as a gateway writes them. The user is computed, and so is the time. What the user that goes has written is odd in many ways.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.agents.histogram.test_neighbours import GONE, LISTS, SOURCES, Event, increments, raw_logs, services

CAP = 4
JSON_SOURCES = 2
"""Of the sources, those of the first topic; the others' records are in MessagePack."""
SOURCE: dict[str, Any] = {
    "topics": ["raw", "more"],
    "formats": {"more": {"format": "msgpack"}},
    "user": {"expression": "lower(event.name)"},
    "key": ["event.key"],
    "time": {"expression": "CAST(event.at AS BIGINT)"},
    "each": {"of": "events", "as": "event"},
    "where": "event.kind IS NULL OR event.kind <> 'ping'",
    "null_key": "value",
}
Log = list[tuple[int, int, Any, Any]]
"""Records: (moment of arrival, stamp, nothing, value). A value is a list of (user, event), or (user, bytes) that are no list."""

ODD: list[Any] = [
    None, 5, "text", [], [[]], {"name": None}, {"name": 7, "key": "k"}, {"name": GONE}, {"name": GONE, "at": "then", "key": "k"},
    {"name": GONE, "at": 2**64 - 1, "key": "k"}, {"name": GONE, "kind": "ping", "at": []}, {"name": GONE, "kind": 5},
    {"kind": {"a": 1}}, {"name": GONE, "key": {"a": "b"}, "at": 1},
    {"name": "x" * 70_000, "at": 1, "key": "k"}, {"name": "\0", "amount": "much"},
]  # fmt: skip
NO_LISTS = [
    b"",
    b"{",
    b"\xff",
    b"[]",
    b"{}",
    b'{"events": 5}',
    b'{"events": {"a": 1e999}}',
    b"\x90",
    b"\xdd\xff\xff\xff\xff",
    b"[" * 900,
]


def write(source: int, events: Any) -> bytes:
    if isinstance(events, bytes):
        return events
    value = {"events": [event for _, event in events]}
    return json.dumps(value).encode() if source < JSON_SOURCES else msgpack.packb(value)


def gateways(logs: Sequence[Sequence[Event]], dice: random.Random) -> list[Log]:
    """Records that hold events of several users, and odd ones of GONE among them; of what a single record has, GONE is the writer
    of some that cannot be read at all."""
    found: list[Log] = []
    for log in logs:
        records: Log = []
        rest = list(log)
        while rest:
            some, rest = rest[: (number := dice.choice([1, 1, 2, 5]))], rest[number:]
            arrived, stamp = some[-1][:2]
            events = []
            for _, _, who, payload in some:
                name = dice.choice([str.upper, str.lower])(who)
                kind = {"kind": dice.choice(["ping", "buy"])} if dice.random() < 0.2 else {}
                events.append(
                    (who, {"name": name, "at": str(payload["at"]), "key": payload["key"], "amount": 1, **kind})
                )
            for _ in range(dice.choice([0, 1, 3])):
                events.insert(dice.randrange(len(events) + 1), (GONE, dice.choice(ODD)))
            records.append((arrived, stamp, None, events))
            if dice.random() < 0.1:
                records.append((arrived, stamp, GONE, dice.choice(NO_LISTS)))
        found.append(records)
    return found


def without(logs: Sequence[Log]) -> list[Log]:
    """The logs without the events of GONE, and without the records of which it is the writer."""
    return [
        [
            (arrived, stamp, who, events if isinstance(events, bytes) else [one for one in events if one[0] != GONE])
            for arrived, stamp, who, events in log
            if who != GONE
        ]
        for log in logs
    ]


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_known_of_the_others_does_not_change_when_one_user_leaves_two_topics(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = ["toeplitz", "closing"][seed]
    logs = gateways(raw_logs(seed + 10, kind), random.Random(seed))
    rest = without(logs)
    assert sum(map(len, rest)) < sum(map(len, logs))
    ours, theirs = (services(kind, strategy, SOURCE, "event.amount", max_records_per_user=CAP) for _ in range(2))
    assert [ours.ledger.place(source)[0] for source in range(SOURCES)] == ["raw", "raw", "more"]
    found = increments(ours, logs, kind, seed, tmp_path / "a", monkeypatch, write=write)
    left = increments(theirs, rest, kind, seed + 100, tmp_path / "b", monkeypatch, write=write)
    others = {name: row for name, row in found.items() if not name[2].startswith(b'"' + GONE.encode())}
    assert len(others) > 10
    assert left == others
    counted: Counter[tuple[int, bytes]] = Counter()
    for (interval, window, key), (_, _, visits, *_) in found.items():
        if interval < LISTS:
            counted[window, key.partition(b"/")[0]] += visits
    # One set of caps for both topics and for all items. A ledger may keep more records, each of which costs less.
    assert max(counted.values()) == CAP or strategy == "closing"
