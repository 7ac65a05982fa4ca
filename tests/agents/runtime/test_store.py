"""The store against a dictionary: whatever was written, in whatever order, also after a restart and after a crash."""

import errno
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.agents.runtime import store as store_module
from susurrus.agents.runtime.store import FIRST_STATE_KEY, META_KEY, Store, prefix_end
from susurrus.mechanisms.errors import StoreUnusable
from tests.broker import wait_for

KEYS = st.sampled_from(
    [b"a", b"a\x00", b"a\xff", b"b", b"b1", b"b2", b"b\xff\xff", b"c", b"p\x00\x01", b"p\x00\x02", b"z"]
)
RANGES = st.tuples(KEYS, KEYS).map(sorted).map(tuple)
COMMITS = st.tuples(
    st.lists(st.tuples(KEYS, st.binary(max_size=3)), max_size=4),
    st.lists(KEYS, max_size=3),
    st.lists(RANGES, max_size=2),
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), COMMITS),
        st.tuples(st.just("reopen"), st.none()),
        st.tuples(st.just("scan"), RANGES),
        st.tuples(st.just("get"), st.lists(KEYS, max_size=5)),
        st.tuples(st.just("crash"), st.none()),
    ),
    max_size=14,
)


class Model:
    """A dictionary after every commit."""

    def __init__(self) -> None:
        self.states: list[dict[bytes, bytes]] = [{}]

    def commit(self, puts: Any, deletes: Any, drops: Any) -> bytes:
        rows = dict(self.states[-1])
        for start, end in drops:
            rows = {key: value for key, value in rows.items() if not start <= key < end}
        for key in deletes:
            rows.pop(key, None)
        rows.update(puts)
        self.states.append(rows)
        return b"%d" % (len(self.states) - 1)


def everything(store: Store) -> dict[bytes, bytes]:
    return dict(store.scan(FIRST_STATE_KEY, b"\xff"))


@settings(max_examples=100)
@given(ACTIONS, st.sampled_from([0, 400, 1 << 20]), st.sampled_from([0, 2, 10_000]))
def test_the_store_is_a_sorted_dictionary_and_a_crash_leaves_it_after_some_commit(
    actions: Any, memory: int, many: int
) -> None:
    """many: rows on the disk above which RocksDB deletes a range as a whole."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "_MANY_ROWS", many)
        place = Path(name) / "0"
        store = Store(place, memory_bytes=memory)
        model = Model()
        for number, (action, argument) in enumerate(actions):
            rows = model.states[-1]
            if action == "commit":
                store.write(*argument, meta=model.commit(*argument))
            elif action == "reopen":
                store.close()
                store = Store(place, memory_bytes=memory)
            elif action == "scan":
                wanted = sorted((key, value) for key, value in rows.items() if argument[0] <= key < argument[1])
                assert list(store.scan(*argument)) == wanted
                assert [item for chunk in store.scan_chunks(*argument, 2) for item in chunk] == wanted
            elif action == "get":
                assert store.get(argument) == [rows.get(key) for key in argument]
            else:
                # kill -9: what is on disk now is what a successor finds.
                crashed = Path(name) / f"crashed-{number}"
                shutil.copytree(place, crashed, ignore=shutil.ignore_patterns("LOCK"))
                found = Store(crashed)
                state = model.states[int(found.meta() or b"0")]
                assert everything(found) == state
                found.close()
            assert store.meta() == (b"%d" % (len(model.states) - 1) if len(model.states) > 1 else None)
        assert everything(store) == model.states[-1]
        store.close()


def test_a_scan_shows_the_store_as_of_its_first_item_while_commits_go_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.write([(b"a%d" % i, b"old") for i in range(5)], meta=b"1")
    scan = store.scan(b"a", b"b")
    first = next(scan)
    store.write([(b"a3", b"new")], [b"a4"], meta=b"2")
    store.flush()
    assert [first, *scan] == [(b"a%d" % i, b"old") for i in range(5)]
    store.close()


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """What RocksDB is told to delete as a range."""
    found: list[tuple[bytes, bytes]] = []
    write_through = Store._write_through

    def counted(store: Store, puts: Any, deletes: Any, drops: Any, meta: bytes) -> None:
        found.extend(drops)
        write_through(store, puts, deletes, drops, meta)

    monkeypatch.setattr(Store, "_write_through", counted)
    return found


@pytest.mark.parametrize("scanned", [False, True], ids=["in memory", "on the disk"])
def test_the_ends_of_many_small_windows_leave_no_deleted_ranges_behind(
    scanned: bool, ranges: list[tuple[bytes, bytes]], tmp_path: Path
) -> None:
    """RocksDB's memory and time grow with the square of their number."""
    store = Store(tmp_path / "s")
    for window in range(500):
        prefix = b"w%04d" % window
        store.write([(prefix + b"%d" % row, b"x") for row in range(5)], meta=b"open")
        if scanned:
            assert len(list(store.scan(prefix, prefix_end(prefix)))) == 5
        store.write([(b"other", b"%d" % window)], drops=[(prefix, prefix_end(prefix))], meta=b"closed")
    assert ranges == []
    assert everything(store) == {b"other": b"499"}
    store.close()
    store = Store(tmp_path / "s")
    assert everything(store) == {b"other": b"499"}
    store.close()


def test_the_end_of_a_large_window_deletes_its_range(
    ranges: list[tuple[bytes, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MANY_ROWS", 100)
    store = Store(tmp_path / "s")
    for first, rows in ((b"a", 100), (b"b", 101)):
        store.write([(first + b"%d" % row, b"x") for row in range(rows)], meta=b"open")
        store.flush()
    store.write([], drops=[(b"a", b"b")], meta=b"m")
    assert ranges == []
    store.write([], drops=[(b"b", b"c")], meta=b"m")
    assert ranges == [(b"b", b"c")]
    assert everything(store) == {}
    store.close()


def test_rows_deleted_one_by_one_count_as_memory(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", memory_bytes=200_000)
    store.write([(b"a%d" % row, b"x") for row in range(5_000)], meta=b"1")
    store.flush()
    store.write([], drops=[(b"a", b"b")], meta=b"2")
    assert not store._deleted, "what is to be deleted on the disk was more than memory should hold"
    assert (everything(store), store.meta()) == ({}, b"2")
    store.close()


def test_the_meta_record_is_no_state(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.write([], drops=[(FIRST_STATE_KEY, b"\xff")], meta=b"m")
    assert META_KEY < FIRST_STATE_KEY
    assert everything(store) == {}
    assert store.meta() == b"m"
    store.close()


def test_a_wiped_store_has_forgotten_everything_and_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.write([(b"a", b"1")], meta=b"1")
    store.flush()
    store.write([(b"b", b"2")], meta=b"2")
    store.wipe()
    assert store.meta() is None
    assert everything(store) == {}
    assert store.get([b"a", b"b"]) == [None, None]
    store.write([(b"c", b"3")], meta=b"3")
    assert everything(store) == {b"c": b"3"}
    store.close()
    store = Store(tmp_path / "s")
    assert (everything(store), store.meta()) == ({b"c": b"3"}, b"3")
    store.close()


@pytest.mark.parametrize("damaged", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_damaged_store_starts_over_for_the_changelog_has_it_all(damaged: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.write([(b"k%d" % i, b"v" * 100) for i in range(1000)], meta=b"m")
    store.close()
    for file in (tmp_path / "s").glob(damaged):
        file.write_bytes(b"x" * file.stat().st_size)
    store = Store(tmp_path / "s", lock_seconds=0.0)
    assert store.meta() is None
    assert store.get_one(b"k1") is None
    store.write([(b"k1", b"new")], meta=b"n")
    store.close()
    assert Store(tmp_path / "s").get_one(b"k1") == b"new"


def test_two_tasks_cannot_have_one_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    with pytest.raises(Exception, match=r"[Ll]ock"):
        Store(tmp_path / "s", lock_seconds=0.0)
    store.close()
    Store(tmp_path / "s", lock_seconds=0.0).close()


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=4))
def test_a_prefix_ends_before_the_next_key_that_lacks_it(prefix: bytes, rest: bytes) -> None:
    if not prefix.strip(b"\xff"):
        with pytest.raises(ValueError, match="no end"):
            prefix_end(prefix)
        return
    end = prefix_end(prefix)
    assert prefix + rest < end
    assert not end.startswith(prefix)
    assert (prefix <= rest < end) == rest.startswith(prefix)


def test_rows_that_are_written_again_and_again_stay_in_memory_and_many_rows_do_not(tmp_path: Path) -> None:
    """The same users at every trigger are no reason to write; after a crash, what had been written comes back as some commit."""
    store = Store(tmp_path / "0", memory_bytes=20_000)
    for commit in range(100):
        store.write([(b"u%d" % user, b"%d" % commit) for user in range(20)], meta=b"%d" % commit)
    assert store._db.get(META_KEY) is not None, "what a crash replays is bounded"
    assert int(store._db.get(META_KEY)) < 99
    assert len(store._dirty) == 20
    flushed = store._db.get(META_KEY)
    for commit in range(100, 200):
        store.write([(b"w%d-%d" % (commit, row), b"x" * 50) for row in range(20)], meta=b"%d" % commit)
        assert len(store._dirty) * 200 < 3 * 20_000
    assert store._db.get(META_KEY) != flushed
    assert store.get([b"u3", b"w100-0", b"w199-19"]) == [b"99", b"x" * 50, b"x" * 50]
    store.close()


def test_the_stores_of_a_worker_share_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_open_stores", type(store_module._open_stores)())
    stores = [Store(tmp_path / str(number)) for number in range(32)]
    assert sum(store._memory_bytes for store in stores) <= 256 << 20
    assert sum(store._memtable_bytes for store in stores) <= 64 << 20
    for store in stores[1:]:
        store.close()
    assert stores[0]._memory_bytes == 24 << 20
    assert stores[0]._memtable_bytes == 4 << 20
    stores[0].close()


def test_what_rocksdb_gathers_before_it_writes_a_file_is_bounded_however_many_windows_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan writes the window's rows to RocksDB, and the window's end their deletions: 10 kB of 200 keys at each trigger."""
    monkeypatch.setattr(store_module, "_MEMTABLE_BYTES", 1 << 20)
    store = Store(tmp_path / "s")
    most = 0
    for window in range(300):
        prefix = b"w%04d" % window
        store.write([(prefix + b"%030d" % row, b"x" * 20) for row in range(200)], meta=b"open")
        assert len(list(store.scan(prefix, prefix_end(prefix)))) == 200
        store.write([], drops=[(prefix, prefix_end(prefix))], meta=b"closed")
        most = max(most, int(store._db.property_int_value("rocksdb.size-all-mem-tables") or 0))
    assert most < 4 << 20, "one that is filled, and two that are being written"
    assert everything(store) == {}
    store.close()


def test_rocksdb_does_not_keep_a_large_batch_until_the_next_one_comes(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.write([(b"k%d" % row, b"x" * 1_000) for row in range(8_000)], meta=b"m")
    store.flush()
    wait_for(lambda: store._db.property_int_value("rocksdb.size-all-mem-tables") < 1 << 20, "an empty memtable")
    assert len(everything(store)) == 8_000
    store.close()


def test_a_store_that_is_closed_keeps_nothing_in_memory(tmp_path: Path) -> None:
    """A task that pauses before it starts again still has its last store."""
    store = Store(tmp_path / "s")
    store.write([(b"a", b"1"), (b"b", b"2")], meta=b"m")
    store.flush()
    store.write([(b"a", b"3")], [b"b"], meta=b"n")
    store.close()
    assert (store._dirty, store._clean, store._deleted) == ({}, {}, set())
    store = Store(tmp_path / "s")
    assert (everything(store), store.meta()) == ({b"a": b"3"}, b"n")
    store.close()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (
            "IO error: No space left on device: While appending to file: /s/000008.sst: No space left on device",
            "ENOSPC",
        ),
        ("IO error: While open a file for appending: /s/000008.log: Read-only file system", "EROFS"),
        ("Read-only file system (os error 30)", "EROFS"),
        ("IO error: While pread offset 0 len 53: /s/000008.sst: Input/output error", "EIO"),
        ("IO error: While open a file for random read: /s/9.sst: Too many open files", "EMFILE"),
        ("IO error: something nobody has heard of", "EIO"),
    ],
)
def test_what_the_disk_does_is_an_error_with_number_place_and_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, number: str
) -> None:
    """RocksDB's texts as they were seen; the binding raises a plain Exception."""

    def fails(*_: Any) -> Any:
        raise Exception(text)

    monkeypatch.setattr(store_module, "Rdict", fails)
    with pytest.raises(StoreUnusable) as unusable:
        Store(tmp_path / "route-1", lock_seconds=60.0)  # it is not waited for as for a lock
    assert isinstance(unusable.value, OSError)
    assert unusable.value.errno == getattr(errno, number)
    assert f"errno={number} path={tmp_path / 'route-1'}: " in str(unusable.value)
    assert "worker.data_directory" in str(unusable.value).rpartition(": ")[2]


def test_a_disk_that_fails_while_the_store_is_open_is_told_from_every_call(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", memory_bytes=1 << 20)
    store.write([(b"k", b"v")], meta=b"m")
    healthy = store._db

    class Failing:
        def __getattr__(self, _: str) -> Any:
            def fails(*_: Any, **__: Any) -> Any:
                raise Exception("IO error: While fsync: /s/000008.sst: Input/output error")

            return fails

    store._db = Failing()  # type: ignore[assignment]
    for call in (
        store.flush,
        store.close,
        lambda: store.get([b"unknown"]),
        lambda: store.write([], drops=[(b"a", b"b")], meta=b"n"),
        lambda: list(store.scan(b"a", b"z")),
        store.wipe,
        store.meta,
    ):
        with pytest.raises(StoreUnusable, match="errno=EIO"):
            call()
    healthy.close()


def test_a_place_where_no_directory_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnusable, match=r"errno=ENOTDIR path=.*/file/worker-0/route-0"):
        Store(tmp_path / "file" / "worker-0" / "route-0")


def test_a_new_store_that_is_corrupt_at_once_is_not_wiped_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corrupt(name: str, _: Any) -> Any:
        Path(name).mkdir(parents=True)
        raise Exception("Corruption: CURRENT file does not end with newline")

    monkeypatch.setattr(store_module, "Rdict", corrupt)
    with pytest.raises(StoreUnusable, match="corrupt at once"):
        Store(tmp_path / "s")


def test_the_size_on_the_disk_is_that_of_the_files(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    before = store.disk_bytes
    store.write([(b"\x01" + n.to_bytes(4, "big"), os.urandom(1000)) for n in range(100)], meta=b"m")
    assert store.disk_bytes == before  # in memory
    store.close()
    assert store.disk_bytes > before + 50_000
    shutil.rmtree(tmp_path / "s")
    assert store.disk_bytes == 0
