"""What bound's state says of its users: gathered or not, taken up by a new owner or from the version before, it is the same."""

import random
import struct
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import user_state
from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.user_caps import CapsLayout
from susurrus.agents.histogram.user_state import UserState
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.user_table import Lists, UserTable
from tests.agents.histogram.test_bound_stage import (
    BY_USER_PARTITION,
    CASES,
    INTERVALS,
    WINDOW,
    Event,
    Followed,
    block_bytes,
    block_of,
    closed,
    measured,
    random_log,
    released,
    run,
    services,
    slow,
    slow_lists,
)
from tests.agents.stages import Runner, born, number_of

CLOSING: dict[str, dict[str, Any]] = {
    "closing, two per key": {"strategy": "closing", "max_records_per_user": 9},
    "closing, one per key": {"strategy": "closing", "max_records_per_key": 1},
}


def gatherings(runner: Runner) -> int:
    return sum(any(name[:1] == b"g" for name, _ in commit.puts) for commit in runner.commits)


@pytest.mark.parametrize("case", {**CASES, **CLOSING})
@pytest.mark.parametrize("often", [1.0, 0.3])
def test_with_hardly_any_memory_the_same_bytes_are_published(
    case: str, often: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gathered after every interval, or after some: then rows of users and changes to them stand beside each other."""
    ours = services(**{**CASES, **CLOSING}[case])
    log, events = random_log(4, ours.config_digest, sizes=30)
    wanted = run(ours, log, tmp_path / "a")
    dice = random.Random(7)
    monkeypatch.setattr(UserState, "outgrown", property(lambda state: bool(state._tables) and dice.random() < often))
    runner = run(ours, log, tmp_path / "b", seed=3, spill_above=40)
    assert block_bytes(runner) == block_bytes(wanted)
    assert released(runner) == slow(ours, events)
    assert gatherings(runner) > 3
    assert any(name[:1] == b"v" for commit in runner.commits for name, _ in commit.puts)


def test_memory_is_measured_and_shared_by_the_partitions_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = services()
    events: list[Event] = [(0, n, n // 2000, WINDOW, b'"user-%d"' % n, b'"k"', 1) for n in range(6000)]
    log = closed(ours, [block_of(events[start : start + 2000]) for start in range(0, 6000, 2000)], 3)

    def gathered(name: str) -> int:
        runner = run(ours, log, tmp_path / name)
        return gatherings(runner)

    assert gathered("a") == 0
    monkeypatch.setattr(user_state, "_MEMORY_BYTES", 500_000)
    assert gathered("b") >= 1
    monkeypatch.setattr(user_state, "_MEMORY_BYTES", 1 << 30)
    monkeypatch.setattr(user_state, "_WORKER_MEMORY_BYTES", 500_000 * (1 + len(user_state._in_use)))
    assert gathered("c") >= 1


def test_a_gathering_takes_all_changes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = services()
    events: list[Event] = [(0, n, n, WINDOW, b'"u%d"' % (n % 2), b'"k%d"' % n, 1) for n in range(4)]
    log = closed(ours, [block_of([event]) for event in events], 3)
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    tables = []
    for at in range(4):
        with monkeypatch.context() as patched:
            if at == 2:
                patched.setattr(user_state, "_MEMORY_BYTES", 0)
            assert runner.commit(2 if at == 2 else 1) > 0
        tables.append({name[:1] for name in runner.state()})
    assert tables == [{b"v"}, {b"v"}, {b"g"}, {b"v", b"g"}]
    assert runner.commits[-1].meta["gathered"] == [0]
    # Who came last has its list from both.
    window = WindowIndex(0)
    before = [lists.code.tolist() for lists in users_of(runner).lists(window)]
    runner.restart()
    assert [lists.code.tolist() for lists in users_of(runner).lists(window)] == before
    assert sum(map(len, before)) == 4
    runner.close()


def users_of(runner: Runner) -> UserState:
    stage: Any = runner.stage
    users: UserState = stage._levels[0]._users
    return users


# ---- the rows of single users --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2], ids=["one record per key", "two records per key"])
@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
def test_a_row_is_read_as_it_was_written(strategy: str, most: int) -> None:
    ledger = strategy == "closing"
    layout = CapsLayout(services(strategy, max_records_per_key=most).strategy.bounding)
    lists = Lists(
        indptr=np.array([0, 0, 3, 4]),
        code=np.array([7, 1 << 31, 5, 3], np.uint32),
        count=np.array([most, 0, 1, 0], np.int32),
        unranked=np.array([False, True, False, False]),
        spent=np.array([70_000 * most, 0, 65_000, 0]),
        charged=np.array([0, 1 << 41, 0]) * ledger,
    )
    rows = layout.pack(lists)
    entries = struct.pack("<IIIIII", 7, most, 1 << 31, 1 << 31, 5, 1)
    header, spent = struct.pack("<QI", 1 << 41, 3), struct.pack("<II", 140_000, 65_000)
    assert rows[1] == (b"".join([header, entries, spent if most > 1 else b""]) if ledger else entries)
    back = layout.unpack(rows)
    for field in ("indptr", "code", "count", "unranked", "charged"):
        assert getattr(back, field).tolist() == getattr(lists, field).tolist(), field
    assert back.spent.tolist() == (lists.spent if ledger and most > 1 else lists.count).tolist()


# ---- state of the version before -----------------------------------------------------------------------------------------


def rows_before(lists: Lists, wide: Callable[[int], int], *, ledger: bool, spends: bool) -> list[bytes]:
    """The rows of versions 3 and 4 as they wrote them: 64 bits and a count per key. wide: the hash or number of a code."""
    rows = []
    for user in range(len(lists.indptr) - 1):
        entries = range(lists.indptr[user], lists.indptr[user + 1])
        row = struct.pack("<QI", lists.charged[user], len(entries)) if ledger else b""
        for at in entries:
            row += struct.pack("<QI", wide(int(lists.code[at])), int(lists.count[at]) | int(lists.unranked[at]) << 31)
        if spends:
            row += b"".join(struct.pack("<I", lists.spent[at]) for at in entries if lists.count[at])
        rows.append(row)
    return rows


def as_before(runner: Runner, events: list[Event], directory: Path) -> tuple[Store, dict[str, Any]]:
    """(store, meta record) as the version before would have left them at the same commit."""
    bounding = runner.services.strategy.bounding
    ledger = bounding.ledger is not None
    assert runner.meta is not None
    hash_key = blake2b(runner.services.secret, person=b"susurrus-bound", digest_size=32).digest()
    digests = [blake2b(event[5], digest_size=8, key=hash_key).digest() for event in events]
    hashes = {int.from_bytes(digest[:4], "little"): int.from_bytes(digest, "little") for digest in digests}
    store = Store(directory)
    state = runner.state()
    puts = [(name, value) for name, value in state.items() if name[:1] not in (b"v", b"g")]
    for window in {number_of(name[1:]) for name in state if name[:1] in (b"v", b"g")}:
        table = UserTable(bounding)
        for lists in users_of(runner).lists(WindowIndex(window)):
            names = users_of(runner)._table(WindowIndex(window)).names(0)
            assert len(names) == len(lists.indptr) - 1
            wide: Any = (lambda number: number) if ledger else hashes.__getitem__
            rows = rows_before(lists, wide, ledger=ledger, spends=ledger and bounding.max_records_per_key > 1)
            puts += zip([b"u" + ordered(window) + name for name in names], rows, strict=True)
        assert not len(table)
    store.write(puts, meta=b"m")
    meta = {name: value for name, value in runner.meta.items() if name not in ("gathered", "before")}
    return store, {**meta, "format": 4 if ledger else 3}


@pytest.mark.parametrize(("case", "often"), [("toeplitz", 0.0), *((case, 0.4) for case in {**CASES, **CLOSING})])
def test_state_of_the_version_before_is_taken_over_in_mid_window(
    case: str, often: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the rows that it wrote, with windows that overlap; gathered in between, and taken up by further owners."""
    ours = services(**{**CASES, **CLOSING}[case])
    log, events = random_log(4, ours.config_digest, sizes=40)
    runner = Followed(BoundStage, ours, tmp_path / "a", BY_USER_PARTITION)
    while runner.meta is None or runner.meta["closed"] < INTERVALS:
        runner.feed(log, runner.next + 1)
        runner.commit()
    store, runner.meta = as_before(runner, events, tmp_path / "b")
    assert len({name[:9] for name, _ in store.scan(b"u", b"v")}) == 2
    runner.store.close()
    runner.store = store
    runner.restart()
    dice = random.Random(5)
    monkeypatch.setattr(UserState, "outgrown", property(lambda state: bool(state._tables) and dice.random() < often))
    before = []
    while runner.next < len(log):
        runner.feed(log, runner.next + dice.randrange(1, 12))
        if runner.commit(dice.choice([1, 2, 100])):
            before.append(runner.commits[-1].meta.get("before"))
        if dice.random() < 0.1:
            runner.restart()
    runner.feed(log, len(log))
    runner.commit()
    assert released(runner) == slow(ours, events)
    if ours.strategy.lists is not None:
        assert measured(runner) == slow_lists(ours, events)
    assert 1 in before[0]
    assert before[-1] is None
    assert gatherings(runner) > 1 or not often
    assert not any(name[:1] == b"u" for name in runner.state())
    runner.close()


def test_the_version_before_refuses_what_is_written_now(tmp_path: Path) -> None:
    """As it refuses every other format: that rule has not changed, so this version's stands for its own."""
    for strategy, formats in [("toeplitz", (5, 3)), ("closing", (6, 4))]:
        ours = services(strategy)
        runner = Runner(BoundStage, ours, tmp_path / strategy, BY_USER_PARTITION)
        runner.feed(closed(ours, [block_of([(0, 0, 0, WINDOW, b'"u"', b'"k"', 1)])], 0), 3)
        runner.commit()
        assert runner.meta is not None
        layout = CapsLayout(ours.strategy.bounding)
        assert (runner.meta["format"], layout.before) == formats
        assert runner.meta["format"] != layout.before
        with pytest.raises(Refusal, match="has state of format"):
            born(
                BoundStage,
                ours,
                runner.store,
                {**runner.meta, "format": formats[0] + 2},
                3,
                partition=BY_USER_PARTITION,
            )
        runner.close()


COLLIDING = (1 << 32) + 9, (2 << 32) + 9, (3 << 32) + 9
"""Three hashes of 64 bits that are one of 32."""


def test_keys_that_have_one_hash_since_hashes_are_shorter_still_count_against_every_cap() -> None:
    """The one that is found by the hash has the larger count: neither key gets beyond its cap."""
    layout = CapsLayout(services(max_records_per_user=9, max_records_per_key=3).strategy.bounding)
    row = struct.pack("<" + "QI" * 5, COLLIDING[0], 1, 10, 1, COLLIDING[1], 2, COLLIDING[2], 3 | 1 << 31, 11, 1)
    lists = layout.unpack([struct.pack("<QI", 9, 1), row], before=True)
    assert lists.indptr.tolist() == [0, 1, 6]
    assert lists.count.tolist() == [1, 3, 1, 1, 2, 1]
    codes = lists.code[1:].tolist()
    assert codes[:2] == [9, 10]
    assert codes[4] == 11
    assert len(set(codes)) == 5
    assert lists.unranked.tolist() == [False, False, False, False, True, False]


@pytest.mark.parametrize("max_keys", [None, 3])
def test_after_such_a_collision_no_key_and_no_user_gets_beyond_its_caps(
    max_keys: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User u kept two records of k1 and one of k2 before, whose hashes fall together now. Each may have two in all, u four."""
    bounds = {} if max_keys is None else {"max_keys_per_user": max_keys}
    ours = services(max_records_per_user=4, max_records_per_key=2, declared=[], **bounds)

    def digest(data: bytes, *, digest_size: int, **fields: Any) -> Any:
        class Fixed:
            def digest(self) -> bytes:
                low = {b'"k1"': 9, b'"k2"': 9}.get(data, sum(data))
                return low.to_bytes(4, "little") + data[-3:-1].rjust(4, b"\0")

        return blake2b(data, digest_size=digest_size, **fields) if digest_size == 32 else Fixed()

    monkeypatch.setattr("susurrus.agents.histogram.key_hashes.blake2b", digest)

    def wide(key: bytes) -> int:
        return int.from_bytes(digest(key, digest_size=8).digest(), "little")

    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    new: list[Event] = [
        (0, n, 1, WINDOW, b'"u"', key, 1)
        for n, key in enumerate([b'"k2"', b'"k2"', b'"k1"', b'"k3"', b'"k4"', b'"k3"'])
    ]
    log = closed(ours, [block_of(new)], 1)
    runner.feed(log, len(log))
    runner.stage.commits(0)
    meta = {**runner.stage._meta(0), "closed": 0, "format": 3}  # type: ignore[attr-defined]
    row = struct.pack("<QIQI", wide(b'"k1"'), 2, wide(b'"k2"'), 1)
    runner.store.write([(b"u" + ordered(0) + b'"u"', row)], meta=b"m")
    runner.meta, runner.position = {**meta, "counters": runner.stage.counters}, 0
    runner.restart()
    runner.feed(log, len(log))
    runner.commit()
    kept = {key: row[2] for (_, _, key), row in released(runner).items()}
    # One record is left to the user, and one place to another key; k2 shares the count of k1, which is full.
    assert kept == {b'"k3"': 1}
    runner.close()
