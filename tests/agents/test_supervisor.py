"""The supervisor's watch over its tasks, with a clock of the test's own."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from susurrus.agents import supervisor as module
from susurrus.agents.supervisor import Supervisor


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


def watch(monkeypatch: pytest.MonkeyPatch, naps: list[float], *, moved: bool = False) -> tuple[Supervisor, list[TP]]:
    world, started = World(naps), list[TP]()
    monkeypatch.setattr(module, "time", world)

    def leave(code: int) -> None:
        raise Exited(code)

    monkeypatch.setattr(module.os, "_exit", leave)
    task: Any = SimpleNamespace(alive_at=world.now, state="moved" if moved else "running", is_alive=lambda: not moved)
    found: Any = Supervisor.__new__(Supervisor)
    found._stopping, found._lock, found._closing = world, threading.RLock(), False
    found._tasks = {TP("raw", 0): task}
    found._assigned, found._generation, found._heartbeat_seconds = {TP("raw", 0)}, 3, 1.0
    found._app = SimpleNamespace(consumer_generation_id=3)
    found._services = SimpleNamespace(
        settings=SimpleNamespace(worker=SimpleNamespace(watchdog=120_000)),
        clients=SimpleNamespace(serve=lambda: None),
    )
    found._start = started.append
    found.report = lambda reported: None
    return found, started


def test_a_task_that_hangs_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, [0.5] * 242)
    with pytest.raises(Exited):
        found._keep_house()


def test_a_worker_that_stood_still_does_not_take_that_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, [0.5, 3600.0, 0.5])
    found._keep_house()


def test_a_task_that_hangs_on_after_a_pause_still_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, [3600.0] + [0.5] * 242)
    with pytest.raises(Exited):
        found._keep_house()


@pytest.mark.parametrize(("closing", "expected"), [(False, [TP("raw", 0)]), (True, [])])
def test_a_moved_task_starts_again_unless_the_worker_is_stopping(
    closing: bool, expected: list[TP], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, started = watch(monkeypatch, [0.5] * 8, moved=True)
    found._closing = closing
    found._keep_house()
    assert started == expected
