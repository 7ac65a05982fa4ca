"""The look at a worker's disk: it notices a disk that cannot be written though nothing has to be, once for all stores."""

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.finding import Finding
from susurrus.agents.runtime import disk as module
from susurrus.agents.runtime.disk import Disk, take_directory
from susurrus.agents.runtime.store import Store, abandoned
from susurrus.mechanisms.errors import StoreUnusable
from tests.broker import wait_for
from tests.chaos.test_full_disk import fill, small_disk


def disk_of(directory: Path, given_up: list[Finding] | None = None, *, silence: float = 3_600.0) -> Disk:
    return Disk(directory, gives_up=[].append if given_up is None else given_up.append, silence=silence)


def test_a_disk_that_can_be_written_is_no_trouble_and_nothing_stays_on_it(tmp_path: Path) -> None:
    disk = disk_of(tmp_path)
    assert (disk.look(), disk.finding, disk.unhealthy()) == (None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_gone_is_a_trouble_until_it_is_back(tmp_path: Path) -> None:
    disk = disk_of(tmp_path / "state")
    assert "errno=ENOENT" in str(disk.look())
    assert disk.unhealthy() == disk.finding is not None
    (tmp_path / "state").mkdir()
    assert (disk.look(), disk.unhealthy()) == (None, None)


@pytest.mark.parametrize(
    ("blocks", "free", "trouble"), [(10_000, 200, True), (10_000, 300, False), (0, 0, False)], ids=str
)
def test_less_than_a_megabyte_is_a_full_disk_unless_it_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, trouble: bool
) -> None:
    said = SimpleNamespace(f_blocks=blocks, f_bfree=free, f_bavail=free, f_frsize=4096)
    monkeypatch.setattr(module.os, "statvfs", lambda _: said)
    assert ("errno=ENOSPC" in str(disk_of(tmp_path).look())) == trouble


def test_a_disk_that_stays_unusable_is_given_up_once_and_one_that_heals_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, broken = [1000.0], [True]

    def write(directory: Path) -> None:
        if broken[0]:
            raise StoreUnusable(errno.EROFS, directory, os.strerror(errno.EROFS))

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "_write", write)
    given_up: list[Finding] = []
    disk = disk_of(tmp_path, given_up)
    for broken[0] in (True, True, False, True, True):
        disk.look()
        now[0] += module.PATIENCE_SECONDS * 0.6
    assert given_up == []  # never for so long without a break
    for _ in range(5):
        disk.look()
        now[0] += 1.0
    assert given_up == [disk.finding]
    assert "errno=EROFS" in given_up[0].text


def test_a_disk_that_does_not_answer_is_unhealthy_and_keeps_nobody_waiting_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()

    def write(directory: Path) -> None:
        begun.set()
        assert go.wait(60)

    monkeypatch.setattr(module, "_write", write)
    disk = disk_of(tmp_path, silence=0.0)
    looks = threading.Thread(target=disk.look)
    looks.start()
    assert begun.wait(60)
    assert f"path={tmp_path}: the disk has not answered for 0 s" in str(disk.unhealthy())
    go.set()
    looks.join()
    assert disk.unhealthy() is None


def test_all_who_failed_go_on_when_one_look_has_succeeded(tmp_path: Path) -> None:
    disk, stopping, alive = disk_of(tmp_path / "state"), threading.Event(), list[Any]()
    disk.look()
    waiting = [threading.Thread(target=disk.wait, args=(stopping, lambda: alive.append(1))) for _ in range(8)]
    for one in waiting:
        one.start()
    wait_for(lambda: len(alive) >= 16, "they wait, and are alive")
    (tmp_path / "state").mkdir()
    disk.look()
    for one in waiting:
        one.join(60)
        assert not one.is_alive()


def test_stores_of_a_full_disk_are_left_at_once_and_closed_when_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk") as place:
        disk = disk_of(place)
        assert disk.look() is None
        stores = [Store(place / f"bound-{number}") for number in range(3)]
        for store in stores:
            store.write([(b"\x01a", b"1")], meta=b"first")
            store.flush()
            store.write([(b"\x01a", b"2")], meta=b"second")
        fill(place)
        assert "errno=ENOSPC" in str(disk.look())
        assert str(place) in str(disk.finding)
        monkeypatch.setattr(Store, "close", lambda _: pytest.fail("RocksDB would wait"))
        for store in stores:
            store.abandon()
        disk.look()
        assert abandoned()
        monkeypatch.undo()
        (place / "ballast").unlink()
        assert disk.look() is None
        assert not abandoned()
        for store in stores:
            again = Store(store.directory, lock_seconds=0.0)  # nobody has it any more
            assert (again.meta(), again.get_one(b"\x01a")) == (b"second", b"2")
            again.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOLCK])
def test_a_directory_that_cannot_be_locked_is_not_taken_for_another_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(module.fcntl, "flock", flock)
    with pytest.raises(StoreUnusable, match=rf"errno={errno.errorcode[number]} path=.*/worker-0: "):
        take_directory(tmp_path)


def test_workers_of_one_machine_take_a_directory_each(tmp_path: Path) -> None:
    taken = [take_directory(tmp_path) for _ in range(3)]
    assert [directory.name for directory, _ in taken] == ["worker-0", "worker-1", "worker-2"]
    for _, lock in taken:
        lock.close()
