"""The watchdog ends a worker in which a task hangs, and no other."""

import asyncio
from typing import Any

import pytest

from susurrus.agents.runtime import watchdog as module
from susurrus.agents.runtime.task import PartitionTask
from susurrus.agents.runtime.watchdog import Watchdog
from tests.agents.runtime.guarded import Handed, task_in, world


class Exited(BaseException):
    """Instead of the end of the process."""


def watch(monkeypatch: pytest.MonkeyPatch, naps: list[float], task: Any) -> Any:
    """Let the watchdog look after each nap. Raises Exited where it ends the process."""
    clock = world(monkeypatch, module, naps)

    def leave(code: int) -> None:
        raise Exited(code)

    monkeypatch.setattr(module.os, "_exit", leave)
    group = asyncio.run(Handed(task).assign())
    Watchdog(group, 120.0).watch(clock)
    return clock


def test_a_task_that_hangs_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exited) as caught:
        watch(monkeypatch, [0.5] * 242, task_in("running"))
    assert caught.value.args == (70,)


def test_a_worker_that_stood_still_does_not_take_that_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch, [0.5, 3600.0, 0.5], task_in("running"))


def test_a_worker_that_stood_still_while_it_looked_does_not_take_that_for_a_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = task_in("running")
    looks = iter([3600.0] + [0.0] * 99)

    def look(limit: float) -> float | None:
        module.time.now += next(looks)  # type: ignore[attr-defined]
        return PartitionTask.silent_for(task, limit)

    task.silent_for = look
    watch(monkeypatch, [0.5] * 100, task)


def test_a_task_that_hangs_on_after_a_pause_still_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exited):
        watch(monkeypatch, [3600.0] + [0.5] * 242, task_in("running"))


def test_a_task_that_starts_has_longer_for_kafka_may_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch, [0.5] * 2_390, task_in("starting"))
    with pytest.raises(Exited):
        watch(monkeypatch, [0.5] * 2_410, task_in("starting"))
