"""The changelog: from whatever is left of the log and of the disk, the state of the last commit and nothing else."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.runtime import changelog as module
from susurrus.agents.runtime.changelog import Changelog, State
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import FIRST_STATE_KEY, Store
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import changelog as codec

EPOCH = "ab" * 16
INPUT_ID = "input-topic-1"


class Log:
    """One changelog partition, and as much of a cluster and of a producer as the changelog asks for."""

    def __init__(self) -> None:
        self.topic_id_ = "changelog-1"
        self.records: list[tuple[int, bytes]] = []
        self.start = 0
        self.end = 0
        self._undelivered: list[tuple[Any, Any]] = []

    def topic_id(self, topic: str) -> str:
        return self.topic_id_

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return self.start, self.end

    def reader(self, group: str) -> Any:
        return SimpleNamespace(close=lambda: None)

    def produce(self, topic: str, value: bytes, *, partition: int, on_delivery: Any) -> None:
        self.records.append((self.end, value))
        self._undelivered.append((on_delivery, self.end))
        self.end += 1

    def __len__(self) -> int:
        return len(self._undelivered)

    def poll(self, timeout: float) -> None:
        for call, offset in self._undelivered:
            call(None, SimpleNamespace(offset=lambda offset=offset: offset))
        self._undelivered = []
        self.end += 1  # the commit marker

    def hole(self) -> None:
        """An aborted transaction: offsets without records."""
        self.end += 3

    def purge(self, before: int) -> None:
        """DeleteRecords."""
        if before > self.start:
            self.start = before
            self.records = [(offset, value) for offset, value in self.records if offset >= before]

    def read(
        self, consumer: Any, place: tuple[str, int], start: int, *, until: int, mark_alive: Callable[[], None]
    ) -> Iterator[Any]:
        assert until == self.end  # an earlier end would be taken for the last commit, and its input be read twice
        yield from [
            SimpleNamespace(value=lambda value=value: value, offset=lambda offset=offset: offset)
            for offset, value in self.records
            if offset >= start
        ]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(module, "read_to_end", log.read)
    return log


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refresh from the first bytes on, a few items at a time."""
    monkeypatch.setattr(module, "_LONG_LOG_BYTES", 2_000)
    monkeypatch.setattr(module, "_REFRESH_BYTES", 200)


class Life:
    """One owner of the partition."""

    def __init__(
        self, log: Log, directory: Path, *, max_bytes: int = 900_000, epoch: str = EPOCH, begins: int = 0
    ) -> None:
        self.log = log
        self.epoch = epoch
        self.store = Store(directory)
        self.changelog = Changelog(log, "changelog", 0, max_bytes=max_bytes)  # type: ignore[arg-type]
        try:
            self.state = self.changelog.recover(self.store, epoch=epoch, mark_alive=lambda: None, begins=begins)
        except BaseException:
            self.store.close()
            raise

    def commit(
        self, position: int, puts: Any = (), deletes: Any = (), drops: Any = (), *, applied: bool = True
    ) -> None:
        commit = Commit(
            position=position, meta={"n": position}, puts=list(puts), deletes=list(deletes), drops=list(drops)
        )
        step = self.changelog.prepare(self.store, commit, INPUT_ID, self.epoch)
        self.changelog.produce(self.log, step)  # type: ignore[arg-type]
        if applied:
            self.changelog.apply(self.store, step)

    def items(self) -> dict[bytes, bytes]:
        return dict(self.store.scan(FIRST_STATE_KEY, b"\xff"))

    def end(self) -> None:
        self.store.close()


def recovered(log: Log, directory: Path) -> tuple[dict[bytes, bytes], State | None]:
    life = Life(log, directory)
    items, state = life.items(), life.state
    life.end()
    return items, state


def test_a_partition_that_never_committed_has_no_state(log: Log, tmp_path: Path) -> None:
    assert recovered(log, tmp_path / "a") == ({}, None)


def test_an_empty_disk_gets_the_state_position_and_meta_of_the_last_commit(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(10, [(b"k1", b"1"), (b"k2", b"2"), (b"z9", b"9")])
    log.hole()
    life.commit(20, [(b"k1", b"one")], [b"k2"])
    life.commit(30, [(b"k5", b"5")], drops=[(b"z", b"zz")])
    kept = life.items()
    life.end()
    items, state = recovered(log, tmp_path / "b")
    assert items == kept == {b"k1": b"one", b"k5": b"5"}
    assert state is not None
    assert (state.position, state.meta, state.topic_id) == (30, {"n": 30}, INPUT_ID)


def test_drops_come_before_deletes_and_deletes_before_puts_also_in_a_replay(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(1, [(b"k1", b"old"), (b"k2", b"old")])
    life.commit(2, [(b"k1", b"new")], [b"k1", b"k2"], [(b"k", b"l")])
    assert life.items() == {b"k1": b"new"}
    life.end()
    assert recovered(log, tmp_path / "b")[0] == {b"k1": b"new"}


def test_a_disk_that_missed_the_last_commits_is_brought_up_to_date_from_where_it_stands(
    log: Log, tmp_path: Path
) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(10, [(b"k1", b"1")])
    life.commit(20, [(b"k2", b"2")], applied=False)  # killed between the commit and the store
    life.end()
    log.records = [(offset, value) for offset, value in log.records if offset > 0]  # what it has seen is not read again
    items, state = recovered(log, tmp_path / "a")
    assert items == {b"k1": b"1", b"k2": b"2"}
    assert state is not None
    assert state.position == 20


def test_a_disk_ahead_of_the_log_is_refused(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(10, [(b"k1", b"1")])
    life.commit(20, [(b"k1", b"2")])
    life.end()
    log.end = 2
    log.records = log.records[:1]
    with pytest.raises(
        Refusal, match="ends at offset=2, but the local state has seen offset=3, so the changelog was truncated"
    ):
        Life(log, tmp_path / "a")


def test_a_disk_of_another_epoch_or_another_changelog_is_forgotten(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(10, [(b"k1", b"1")])
    life.end()
    other = Log()
    other.topic_id_ = "changelog-2"
    stranger = Life(log, tmp_path / "b")
    stranger.end()
    log.topic_id_, kept = "changelog-3", list(log.records)
    log.records, log.end = [], 0
    assert recovered(log, tmp_path / "a") == ({}, None)
    log.records, log.end = kept, 2
    assert recovered(log, tmp_path / "a")[0] == {b"k1": b"1"}
    log.records, log.end = [], 0
    life = Life(log, tmp_path / "a", epoch="cd" * 16)
    assert life.items() == {}
    assert life.state is None
    life.end()


def test_a_changelog_of_another_epoch_is_refused(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(10, [(b"k1", b"1")])
    life.end()
    with pytest.raises(
        Refusal, match=rf"holds state of epoch={EPOCH}, the ledger says epoch={'cd' * 16}: restore the changelog"
    ):
        Life(log, tmp_path / "b", epoch="cd" * 16)


NEW = "cd" * 16


@pytest.mark.parametrize("disk", ["old", "empty"])
@pytest.mark.parametrize("purged", [False, True])
def test_what_an_earlier_epoch_has_left_is_passed_over_and_may_be_deleted(
    log: Log, tmp_path: Path, disk: str, purged: bool
) -> None:
    life = Life(log, tmp_path / "old")
    for n in range(5):
        life.commit(10 + n, [(b"k%d" % n, b"old")])
    life.end()
    log.hole()
    begins = log.end
    life = Life(log, tmp_path / disk, epoch=NEW, begins=begins)
    assert (life.state, life.items()) == (None, {})
    assert life.changelog.purge_before == begins
    life.commit(3, [(b"k7", b"new")])
    assert life.changelog.purge_before == begins  # not forgotten with the first commit
    life.end()
    if purged:
        log.purge(begins)
    for directory in (disk, "another"):
        life = Life(log, tmp_path / directory, epoch=NEW, begins=begins)
        assert life.items() == {b"k7": b"new"}
        assert life.state is not None
        assert (life.state.position, life.state.epoch) == (3, NEW)
        life.end()


def test_a_changelog_that_ends_before_its_epoch_begins_was_truncated(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(10, [(b"k", b"old")])
    life.end()
    with pytest.raises(Refusal, match=rf"ends at offset={log.end}, but the epoch begins at offset={log.end + 1}"):
        Life(log, tmp_path / "b", epoch=NEW, begins=log.end + 1)


def test_a_new_epochs_log_that_has_lost_its_beginning_is_refused(log: Log, tmp_path: Path) -> None:
    log.end = 7
    life = Life(log, tmp_path / "a", begins=7)
    life.commit(10, [(b"k", b"1")])
    life.commit(11, [(b"l", b"1")])
    life.end()
    log.purge(8)
    with pytest.raises(Refusal, match="starts at offset=8, but the state begins at offset=7"):
        Life(log, tmp_path / "b", begins=7)


def test_a_commit_larger_than_a_record_is_cut_into_chunks_and_put_together_again(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a", max_bytes=1_000)
    rows = [(b"k%03d" % i, bytes([i % 256]) * 100) for i in range(200)]
    life.commit(10, rows)
    assert len(log.records) > 20
    assert max(len(value) for _, value in log.records) <= 1_000
    life.commit(11, [(b"k000", b"changed")])
    life.end()
    assert recovered(log, tmp_path / "b")[0] == dict(rows) | {b"k000": b"changed"}


def test_a_commit_whose_last_chunks_are_missing_is_refused(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a", max_bytes=1_000)
    life.commit(10, [(b"k%03d" % i, bytes(100)) for i in range(50)])
    life.end()
    log.records = log.records[:-1]
    with pytest.raises(Refusal, match="a commit that lacks chunks: restore the changelog"):
        Life(log, tmp_path / "b")


def test_a_log_cut_within_a_commit_and_foreign_records_are_refused_with_their_place(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a", max_bytes=1_000)
    life.commit(10, [(b"k%03d" % i, bytes(100)) for i in range(50)])
    life.end()
    kept = list(log.records)
    log.purge(2)
    with pytest.raises(Refusal, match=r"partition=0 offset=2 is no commit .*: restore the changelog"):
        Life(log, tmp_path / "b")
    log.records = [*kept, (log.end, b"not ours")]
    log.start, log.end = 0, log.end + 1
    with pytest.raises(Refusal, match=rf"partition=0 offset={log.end - 1} is no commit .*: restore the changelog"):
        Life(log, tmp_path / "c")


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("seed", range(6))
def test_whatever_was_superseded_may_be_deleted_at_any_time_and_any_owner_may_die(
    log: Log, tmp_path: Path, seed: int
) -> None:
    """Random commits; purges whenever they are allowed; owners replaced, with their disk or without."""
    dice = random.Random(seed)
    model: dict[bytes, bytes] = {}
    life = Life(log, tmp_path / "0")
    purges = 0
    for number in range(1, 120):
        puts = [
            (b"%02d" % dice.randrange(100), b"%d" % number * dice.randrange(1, 9)) for _ in range(dice.randrange(6))
        ]
        deletes = [b"%02d" % dice.randrange(100) for _ in range(dice.randrange(3))]
        drops = []
        if dice.random() < 0.1:
            start = dice.randrange(100)
            drops = [(b"%02d" % start, b"%02d" % min(99, start + dice.randrange(1, 20)))]
        life.commit(number, puts, deletes, drops)
        for start, end in drops:
            model = {key: value for key, value in model.items() if not start <= key < end}
        for key in deletes:
            model.pop(key, None)
        model.update(puts)
        if dice.random() < 0.2:
            log.hole()
        if dice.random() < 0.5 and life.changelog.purge_before > log.start:
            log.purge(life.changelog.purge_before)
            purges += 1
        if dice.random() < 0.15:
            life.end()
            disk = "0" if dice.random() < 0.5 else f"{number}"
            life = Life(log, tmp_path / disk)
        assert life.items() == model
    life.end()
    assert purges > 2
    assert len(log.records) < 100
    items, state = recovered(log, tmp_path / "last")
    assert items == model
    assert state is not None
    assert state.position == 119


@pytest.mark.usefixtures("short")
def test_a_task_without_state_lets_go_of_its_old_records_too(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    for number in range(30):
        life.commit(number)
        log.purge(life.changelog.purge_before)
    life.end()
    assert len(log.records) < 10
    _, state = recovered(log, tmp_path / "b")
    assert state is not None
    assert state.position == 29


@pytest.mark.usefixtures("short")
def test_a_successor_on_an_empty_disk_goes_on_with_the_round_of_refresh(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "0")
    rows = [(b"%03d" % i, bytes(30)) for i in range(100)]
    life.commit(1, rows)
    for number in range(2, 40):
        life.commit(number, [(b"zz", b"%d" % number)])
        log.purge(life.changelog.purge_before)
        life.end()
        life = Life(log, tmp_path / f"{number}")
    assert life.items() == {**dict(rows), b"zz": b"39"}
    assert log.start > 0
    life.end()


@pytest.mark.usefixtures("short")
def test_a_log_whose_needed_beginning_was_deleted_is_refused(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    for number in range(60):
        life.commit(number, [(b"%02d" % number, bytes(50))])
    needed = life.changelog.purge_before
    assert needed > 0
    life.end()
    log.purge(needed)
    recovered(log, tmp_path / "b")
    starts = [offset for offset, value in log.records if offset > needed]
    log.purge(starts[0])
    with pytest.raises(
        Refusal, match=rf"starts at offset={starts[0]}, but the state begins at offset={needed}, so part of"
    ):
        Life(log, tmp_path / "c")
    # Whoever has it on disk does not need it.
    assert len(recovered(log, tmp_path / "a")[0]) == 60


def test_every_record_is_one_commit_of_the_codec(log: Log, tmp_path: Path) -> None:
    life = Life(log, tmp_path / "a")
    life.commit(7, [(b"k", b"v")], [b"gone"])
    life.end()
    record = codec.decode([value for _, value in log.records])
    assert (record.next_position, record.topic_id, record.puts, record.deletes) == (
        7,
        INPUT_ID,
        [(b"k", b"v")],
        [b"gone"],
    )


def test_so_many_tasks_read_their_changelogs_at_a_time_and_a_refusal_gives_its_turn_back(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them has a client, whose threads count."""
    life = Life(log, tmp_path / "before")
    life.commit(1, [(b"\x01a", b"1")])
    life.end()
    monkeypatch.setattr(module, "_recovering", threading.BoundedSemaphore(2))
    monkeypatch.setattr(module, "_TURN_SECONDS", 0.01)
    for number in range(3):
        with pytest.raises(Refusal) as refused:
            Life(log, tmp_path / f"refused-{number}", epoch="2" * 32)
        del refused
    reading, most, lock, both = 0, 0, threading.Lock(), threading.Barrier(2)
    read = log.read

    def read_slowly(*given: Any, **named: Any) -> Iterator[Any]:
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
        both.wait(30.0)  # two at a time, and then the next two
        yield from read(*given, **named)
        with lock:
            reading -= 1

    monkeypatch.setattr(module, "read_to_end", read_slowly)
    alive: list[int] = []

    def recover(number: int) -> None:
        store = Store(tmp_path / f"s{number}")
        changelog = Changelog(log, "changelog", 0)  # type: ignore[arg-type]
        state = changelog.recover(store, epoch=EPOCH, mark_alive=lambda: alive.append(number))
        assert state is not None
        assert state.position == 1
        store.close()

    with ThreadPoolExecutor(4) as tasks:
        for done in [tasks.submit(recover, number) for number in range(4)]:
            done.result(60.0)
    assert most == 2
