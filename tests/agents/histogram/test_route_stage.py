"""Where route begins, at the ledger's offsets and at the first record of partitions that joined later; what it drops."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.histogram import route
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.histogram import bounding
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.topics import by_user
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.ledger import SourcesRecord, encode
from susurrus.topics.records.reason import Reason
from susurrus.topics.sources import Run
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import SECRET, WINDOW, Runner, born, services_of
from tests.reference import priority

LOG_START = 1_000
"""What retention has left of the raw logs."""


def test_a_raw_partition_that_joined_later_begins_with_its_first_record(tmp_path: Path) -> None:
    """Not where its log happens to begin by now: the task compares, and refuses instead of skipping."""
    services = services_of(settings(start={"from": "earliest", "first_window": WINDOW}), sources=2)
    ledger: Any = services.ledger
    ledger.start.offsets = {0: 40, 1: 70}
    store = Store(tmp_path / "s")
    assert RouteStage.begin(services, 1, Offset(LOG_START))[1] == 70
    ledger.records = dict(
        map(
            encode,
            [
                SourcesRecord(number=number, from_interval=first, sources=(Run("raw", 0, number),))
                for number, first in ((3, 5), (4, 9))
            ],
        )
    )
    joined, position = born(RouteStage, services, store, None, LOG_START, partition=3)
    assert position == 0
    assert joined.report()["interval"] == 8
    store.close()


def letters(runner: Runner) -> list[tuple[int, Reason]]:
    """Offset and reason of every dead letter committed."""
    outputs = [output for commit in runner.commits for output in commit.outputs]
    found = [decode_headers(headers) for output in outputs for headers in output.headers or ()]
    return [(letter.offset, letter.reason) for letter in found]


def test_records_go_to_the_keys_that_a_lookup_table_says(tmp_path: Path) -> None:
    (tmp_path / "countries.csv").write_text("code,name\nDE,Deutschland\nFR,France\n", encoding="utf-8")
    country = {"name": "country", "expression": "lookup('countries.csv', code)"}
    services = services_of(
        settings(
            directory=tmp_path,
            input={"topic": "raw", "user": "user", "key": [country], "null_key": "dead-letter"},
            start={"from": "earliest", "first_window": WINDOW},
            clock={"kind": "broker"},
        )
    )
    records = [
        SimpleNamespace(
            offset=n, timestamp=WINDOW + n, timestamp_type=1, key=None, value=b'{"user":"u","code":"%b"}' % code
        )
        for n, code in enumerate([b"FR", b"DE", b"XX", b"FR"])
    ]
    runner = Runner(RouteStage, services, tmp_path / "state", 0)
    for end in (1, 4):
        runner.feed(records, end)
    runner.commit(now=WINDOW)
    blocks = [
        by_user.decode(v) for _, _, _, v, _ in runner.to("by-user") if v is not None and kind_of(v) is not Kind.TICK
    ]
    assert [block.keys[code] for block in blocks for code in block.key.tolist()] == [
        b'"France"',
        b'"Deutschland"',
        b'"France"',
    ]
    assert letters(runner) == [(2, Reason.MISSING_KEY)]
    runner.close()


def test_records_of_a_window_that_is_skipped_go_nowhere_once_the_ledger_says_so(tmp_path: Path) -> None:
    services = services_of(
        settings(
            input={"topic": "raw", "user": "user", "key": ["key"]},
            start={"from": "earliest", "first_window": WINDOW},
            clock={"kind": "broker", "grace": "1s"},
            budget={"epsilon": 6.0, "delta": 1e-9, "per": "2d"},
        )
    )
    ledger: Any = services.ledger
    hours = [1, 2, 7, 8, 13, 25]  # triggers are six hours apart; the last is of the next window
    records = [
        SimpleNamespace(
            offset=n,
            timestamp=WINDOW + hour * 3_600_000,
            timestamp_type=1,
            key=None,
            value=b'{"user":"u","key":"h%d"}' % hour,
        )
        for n, hour in enumerate(hours)
    ]
    runner = Runner(RouteStage, services, tmp_path, 0)
    runner.feed(records, 2)
    runner.commit(now=WINDOW + 2 * 3_600_000)
    ledger.skipped = lambda: frozenset({WINDOW})
    runner.feed(records, 3)  # it passes a boundary, and still belongs to what was not known to be skipped
    runner.commit(now=WINDOW + 7 * 3_600_000)
    runner.feed(records, 6)
    runner.commit(now=WINDOW + 25 * 3_600_000)
    blocks = [
        by_user.decode(v) for _, _, _, v, _ in runner.to("by-user") if v is not None and kind_of(v) is not Kind.TICK
    ]
    assert [block.keys[code] for block in blocks for code in block.key.tolist()] == [
        b'"h1"',
        b'"h2"',
        b'"h7"',
        b'"h25"',
    ]
    assert (runner.stage.counters["skipped"], runner.stage.counters["routed"]) == (2, 4)
    runner.close()


def routed(
    directory: Path, keys: list[str], fetches: list[int], strategy: str = "toeplitz", **bounds: Any
) -> list[str]:
    """The keys of one user's records of one trigger that are left, in order. fetches: where each ends but the last."""
    services = services_of(
        settings(
            input={"topic": "raw", "user": "user", "key": ["key"], "null_key": "value"},
            start={"from": "earliest", "first_window": WINDOW},
            clock={"kind": "broker"},
            columns=[{"name": "visits", "kind": "count"}, {"name": "people", "kind": "users"}],
            privacy={"epsilon": 6.0, "delta": 1e-9, "strategy": strategy},
            bounds={"max_records_per_user": 3, **bounds},
        )
    )
    records = [
        SimpleNamespace(
            offset=n,
            timestamp=WINDOW + n,
            timestamp_type=1,
            key=None,
            value=json.dumps({"user": "u", "key": key}).encode(),
        )
        for n, key in enumerate(keys)
    ]
    runner = Runner(RouteStage, services, directory, 0)
    for end in [*fetches, len(keys)]:
        runner.feed(records, end)
    runner.commit(now=WINDOW)
    blocks = [
        by_user.decode(v) for _, _, _, v, _ in runner.to("by-user") if v is not None and kind_of(v) is not Kind.TICK
    ]
    left = [block.keys[code].decode().strip('"') for block in blocks for code in block.key.tolist()]
    assert runner.stage.counters["capped"] == len(keys) - len(left)
    runner.close()
    return left


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
def test_an_event_may_be_minutes_ahead_of_its_stamp_and_a_float_is_cut_as_the_stamp_was(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default, with every clock: another host's clock is no reason to lose a record. What is further ahead is bad input."""
    limits = {"until": WINDOW + 86_400_000} if kind == "replay" else {}
    chosen = settings(
        input={"topic": "raw", "user": "user", "key": ["key"], "time": "at", "time_unit": "s", "null_key": "value"},
        start={"from": "earliest", "first_window": WINDOW},
        clock={"kind": kind, **limits},
    )
    stamp = WINDOW + 3_600_123
    monkeypatch.setattr(route, "time", SimpleNamespace(time=lambda: (stamp + 1) / 1000, monotonic=lambda: 500.0))
    ahead = [0.0007, -3_600.0, 0.005, 300.0, 300.0009, 300.001, 301.0]
    records = [
        SimpleNamespace(
            offset=n,
            timestamp=stamp,
            timestamp_type=int(kind == "broker"),
            key=None,
            value=json.dumps({"user": f"u{n}", "key": n, "at": stamp / 1000 + seconds}).encode(),
        )
        for n, seconds in enumerate(ahead)
    ]
    services = services_of(chosen)
    services.clients.ends = {0: len(records)}  # type: ignore[attr-defined]
    runner = Runner(RouteStage, services, tmp_path, 0)
    runner.feed(records, len(records))
    runner.commit(now=stamp)
    assert letters(runner) == [(5, Reason.IN_FUTURE), (6, Reason.IN_FUTURE)]
    assert runner.stage.counters["routed"] == 5
    runner.close()


def turn(key: str) -> int:
    """What orders the keys of the user of `routed`."""
    return priority(SECRET, settings().calendar.window_at(WindowStart(WINDOW)), b'"u"', b'"%s"' % key.encode())


def first(keys: list[str], records: int, per_key: int) -> list[str]:
    """What caps keep of the user of `routed`, in the order of the log."""
    kept: list[int] = []
    for row in sorted(range(len(keys)), key=lambda row: turn(keys[row])):
        if len(kept) < records and sum(keys[other] == keys[row] for other in kept) < per_key:
            kept.append(row)
    return [keys[row] for row in sorted(kept)]


@pytest.mark.parametrize("max_keys", [None, 1])
def test_what_a_cap_on_keys_may_yet_admit_is_not_dropped_where_it_is_read(max_keys: int | None, tmp_path: Path) -> None:
    """Three records of other keys do not use up C where the user's only key is taken: the fourth, of that key, still counts."""
    keys = ["b", "b", "b", "a"]
    left = routed(tmp_path, keys, [], max_records_per_key=3, max_keys_per_user=max_keys)
    assert left == (first(keys, 3, 3) if max_keys is None else keys)


@pytest.mark.parametrize("most", [1, 2])
def test_with_whole_lists_repeats_alone_are_dropped_where_they_are_read(most: int, tmp_path: Path) -> None:
    """Beyond m of one key, one trigger and one fetch; keys beyond C are on the list, whatever the ledger keeps of them."""
    keys = ["a", "a", "a", "b", "c", "d", "e", "a", "e"]
    left = ["a"] * most + ["b", "c", "d", "e"] + ["e"] * (most - 1)
    closing: dict[str, Any] = {"strategy": "closing", "max_records_per_key": most}
    assert routed(tmp_path / "one", keys, [], **closing) == left
    # Another fetch knows nothing of this one.
    assert routed(tmp_path / "two", keys * 2, [len(keys)], **closing) == left * 2
    # A fetch that brings at most C records is left alone.
    assert routed(tmp_path / "few", ["a"] * 3, [], **closing) == ["a"] * 3
    # Without whole lists, whatever is beyond C is dropped.
    assert routed(tmp_path / "three", keys, [], "toeplitz", max_records_per_key=most) == first(keys, 3, most)


def test_with_whole_lists_what_comes_behind_the_longest_list_is_dropped_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["a", "b", "a", "c", "d", "e", "a"]

    def shorter(*arguments: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(bounding, "MAX_LISTED_KEYS", 3)
            return arriving(*arguments)

    arriving = Bounding.arriving
    monkeypatch.setattr(Bounding, "arriving", shorter)
    left = routed(tmp_path, keys, [], "closing", max_records_per_key=2)
    come = sorted(set(keys), key=turn)[:3]
    # A second record of the third key comes behind three keys, too.
    assert sorted(left) == sorted(come + ["a"] * ("a" in come[:2]))


@pytest.mark.parametrize(
    ("kind", "source", "live_ms", "due_ms"),
    [
        ("broker", 0, -100, 350),  # the boundary and clock.grace: source 0 looks whether the topic has grown
        ("broker", 0, 250, 750),  # the boundary and clock.idle_grace: where does the log end?
        ("broker", 1, -100, 1_100),
        ("broker", 0, 1_000, 58_250),  # a second before it looks again: what have operators asked for?
        ("replay", 0, -100, None),
    ],
)
def test_a_source_is_asked_for_commits_when_it_is_to_look(
    kind: str, source: int, live_ms: int, due_ms: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """live_ms: the wall clock after the window's first boundary. due_ms: so much later."""
    end = {"until": WINDOW + 86_400_000} if kind == "replay" else {"grace": "250ms", "idle_grace": "1s"}
    chosen = settings(
        start={"from": "earliest", "first_window": WINDOW}, clock={"kind": kind, **end}, window={"trigger_every": "1m"}
    )
    services = services_of(chosen)
    now = services.calendar.boundary(services.calendar.interval_at(WINDOW)) + live_ms
    runner = Runner(RouteStage, services, tmp_path, partition=source)
    monkeypatch.setattr(route, "time", SimpleNamespace(time=lambda: now / 1000, monotonic=lambda: 500.0))
    list(runner.stage.commits(now))
    assert runner.stage.due_at == pytest.approx(math.inf if due_ms is None else 500.0 + due_ms / 1000)
    runner.close()


@pytest.mark.parametrize(
    ("kind", "live_ms", "at_end", "rest"),
    [
        ("broker", 10_000, True, 0.5),
        ("broker", 10_000, False, 0.0),
        ("broker", -100, True, 0.115),  # 100 ms before the boundary
        ("broker", 300, True, 0.0),  # behind a boundary that no record has passed
        ("replay", 10_000, True, 0.0),
    ],
)
def test_a_source_that_keeps_up_rests_but_not_over_a_boundary(
    kind: str, live_ms: int, at_end: bool, rest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """live_ms: the wall clock after the window's first boundary; the last record was stamped just before, but not beyond it."""
    end = {"until": WINDOW + 86_400_000} if kind == "replay" else {"grace": "0s"}
    chosen = settings(start={"from": "earliest", "first_window": WINDOW}, clock={"kind": kind, **end})
    services = services_of(chosen)
    boundary = services.calendar.boundary(services.calendar.interval_at(WINDOW))
    now = boundary + live_ms
    stamp = now if live_ms > 1_000 else boundary - 1_000
    value = json.dumps({"user": "u", "key": "k"}).encode()
    record = SimpleNamespace(offset=0, timestamp=stamp, timestamp_type=1, key=None, value=value)
    runner = Runner(RouteStage, services, tmp_path)
    monkeypatch.setattr(route, "time", SimpleNamespace(time=lambda: now / 1000, monotonic=lambda: 500.0))
    runner.stage.take(Batch(Offset(0), Offset(1), [record], 0, at_end))  # type: ignore[arg-type]
    assert max(runner.stage.rests_until, 500.0) == pytest.approx(500.0 + rest)
    runner.close()


def test_a_source_rests_longer_the_less_comes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch costs a transaction, however small it is."""
    chosen = settings(start={"from": "earliest", "first_window": WINDOW}, clock={"kind": "broker", "grace": "0s"})
    services = services_of(chosen)
    now = services.calendar.boundary(services.calendar.interval_at(WINDOW)) + 10_000
    value = json.dumps({"user": "u", "key": "k"}).encode()
    runner = Runner(RouteStage, services, tmp_path)
    monkeypatch.setattr(route, "time", SimpleNamespace(time=lambda: now / 1000, monotonic=lambda: 500.0))
    rests, end = [], 0
    for number, brought in enumerate((1_000, 1_000, 999, 1, 1, 1, 1_000, 1, 1_000, 1, 1)):
        if number == 8:  # a rest that the next boundary ends says nothing of how much comes
            now = services.calendar.boundary(services.calendar.interval_at(now)) - 100
        elif number == 9:
            now += 10_000
        records = [
            SimpleNamespace(offset=end + i, timestamp=now, timestamp_type=1, key=None, value=value)
            for i in range(brought)
        ]
        runner.stage.take(Batch(Offset(end), Offset(end + brought), records, 0, True))  # type: ignore[arg-type]
        end += brought
        rests.append(runner.stage.rests_until - 500.0)
    assert rests == pytest.approx([0.5, 0.5, 1.0, 2.0, 2.0, 2.0, 0.5, 1.0, 0.115, 0.5, 1.0])
    runner.close()
