"""The supervisor's watch over its tasks, with a clock of the test's own."""

import asyncio
import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from susurrus.agents.runtime import supervisor as module
from susurrus.agents.runtime import task as task_module
from susurrus.agents.runtime.supervisor import Supervisor
from susurrus.agents.runtime.task import PartitionTask
from susurrus.mechanisms.errors import StoreUnusable
from tests.agents.cycles import no_cycles


class Exited(BaseException):
    """Instead of the end of the process."""


class World:
    """Time, and a sleep that takes as long as the test says."""

    def __init__(self, naps: list[float]) -> None:
        self.now = 1000.0
        self.naps = naps

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def wait(self, _: float) -> bool:
        if not self.naps:
            return True
        self.now += self.naps.pop(0)
        return False


def watch(
    monkeypatch: pytest.MonkeyPatch, naps: list[float], *, state: str = "running", alive: bool = True
) -> tuple[Supervisor, list[TP]]:
    world, started = World(naps), list[TP]()
    monkeypatch.setattr(module, "time", world)
    monkeypatch.setattr(task_module, "time", world)

    def leave(code: int) -> None:
        raise Exited(code)

    monkeypatch.setattr(module.os, "_exit", leave)
    task: Any = SimpleNamespace(
        alive_at=world.now, state=state, recovery=SimpleNamespace(phase=state), is_alive=lambda: alive, ident=1
    )
    task.silent_for = lambda limit: PartitionTask.silent_for(task, limit)
    task.died = PartitionTask.died.fget(task)  # type: ignore[attr-defined]
    found: Any = Supervisor.__new__(Supervisor)
    found._stopping, found._lock, found._closing = world, threading.RLock(), False
    found._tasks = {TP("raw", 0): task}
    found._assigned, found.generation, found._heartbeat_seconds = {TP("raw", 0)}, 3, 1.0
    found._app = SimpleNamespace(consumer_generation_id=3)
    found._services = SimpleNamespace(
        settings=SimpleNamespace(worker=SimpleNamespace(watchdog=120_000)),
        clients=SimpleNamespace(serve=lambda: None),
    )
    found._start = started.append
    found._disk = SimpleNamespace(unhealthy=lambda: "")
    found.report = lambda reported: None
    return found, started


def test_a_task_that_hangs_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, [0.5] * 242)
    with pytest.raises(Exited):
        found._keep_watch()


def test_a_worker_that_stood_still_does_not_take_that_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, [0.5, 3600.0, 0.5])
    found._keep_watch()


def test_a_worker_that_stood_still_while_it_looked_does_not_take_that_for_a_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, _ = watch(monkeypatch, [0.5] * 100)
    [task] = found._tasks.values()
    looks = iter([3600.0] + [0.0] * 99)

    def look(limit: float) -> float | None:
        module.time.now += next(looks)  # type: ignore[attr-defined]
        return PartitionTask.silent_for(task, limit)

    task.silent_for = look  # type: ignore[method-assign]
    found._keep_watch()


def test_a_task_that_hangs_on_after_a_pause_still_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, [3600.0] + [0.5] * 242)
    with pytest.raises(Exited):
        found._keep_watch()


def test_a_task_that_starts_has_longer_for_kafka_may_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, [0.5] * 2_390, state="starting")
    found._keep_watch()
    found, _ = watch(monkeypatch, [0.5] * 2_410, state="starting")
    with pytest.raises(Exited):
        found._keep_watch()


@pytest.mark.parametrize(("closing", "expected"), [(False, [TP("raw", 0)]), (True, [])])
@pytest.mark.parametrize("state", ["fenced", "running", "starting"])
def test_a_task_that_was_fenced_or_died_starts_again_unless_the_worker_is_stopping(
    closing: bool, expected: list[TP], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, started = watch(monkeypatch, [0.5] * 8, state=state, alive=False)
    found._closing = closing
    found._keep_house()
    assert started == expected


def test_a_refused_or_stopped_task_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for state in ("refused", "stopped"):
        found, started = watch(monkeypatch, [0.5] * 8, state=state, alive=False)
        found._keep_house()
        assert started == []


def test_a_worker_whose_disk_cannot_be_used_is_unhealthy_at_once_and_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(module.ENDING, "give_up", lambda code, *, seconds: ends.append(code))
    found, _ = watch(monkeypatch, [])
    found._gave_up, found._loop = "", None
    [task] = found._tasks.values()
    task.name, task.disk_trouble = "raw-0", ""
    assert found.unhealthy() is None
    task.disk_trouble = "errno=ENOSPC path=/disk: full: make room"
    assert found.unhealthy() == "raw-0: errno=ENOSPC path=/disk: full: make room"
    found.give_up("raw-0: no room")
    found.give_up("raw-1: no room")
    task.disk_trouble = ""
    assert (ends, found.unhealthy()) == ([74], "raw-0: no room")


def test_a_worker_whose_instance_another_has_taken_ends_once_with_code_2_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(module.ENDING, "give_up", lambda code, *, seconds: ends.append(code))
    found, _ = watch(monkeypatch, [])
    found._gave_up = ""
    found._services.settings.application, found._services.settings.worker.instance = "susurrus.web", "web-0"
    found.on_fenced()
    found.on_fenced()
    assert ends == [2]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("the worker ends, exit code 2, worker.instance=web-0 group=susurrus.web: another worker")
    assert "an instance of its own (SUSURRUS__WORKER__INSTANCE)" in said


@pytest.mark.parametrize(("exit_code", "leaves"), [(0, False), (2, False), (74, True)])
def test_only_a_worker_whose_disk_cannot_be_used_gives_up_its_place_in_the_group(
    exit_code: int, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.ENDING, "exit_code", exit_code)
    found, _ = watch(monkeypatch, [])
    assert found.gives_up_its_place() is leaves


def test_a_worker_that_is_stopping_does_not_give_up_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(module.ENDING, "give_up", lambda code, *, seconds: ends.append(code))
    found, _ = watch(monkeypatch, [])
    found._gave_up, found._closing = "", True
    found.give_up("raw-0: no room")
    assert ends == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOLCK])
def test_an_interval_that_cannot_be_locked_is_not_taken_for_another_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(module.fcntl, "flock", flock)
    with pytest.raises(StoreUnusable, match=rf"errno={errno.errorcode[number]} path=.*/worker-0: "):
        module._take_directory(tmp_path)


def test_workers_of_one_machine_take_an_interval_each(tmp_path: Path) -> None:
    intervals = [module._take_directory(tmp_path) for _ in range(3)]
    assert [directory.name for directory, _ in intervals] == ["worker-0", "worker-1", "worker-2"]
    for _, lock in intervals:
        lock.close()


def test_a_seek_that_is_refused_keeps_nothing_of_the_task_that_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That happens in many a rebalance, and then the task may end."""

    async def rewind(tp: TP, offset: int) -> None:
        raise RuntimeError("no assignment")

    found, _ = watch(monkeypatch, [])
    monkeypatch.undo()
    caplog.set_level("INFO")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    found._loop, found._stopping = loop, threading.Event()
    found._app = SimpleNamespace(consumer=SimpleNamespace(rewind=rewind))
    try:
        with no_cycles():
            found._rewind(TP("raw", 0), 7)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert "raw-0: seek refused (RuntimeError)" in caplog.text
