"""A task, a group that has only this task, and a clock of the test's own, for the parts that look after tasks."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.runtime import task as task_module
from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.group import Group
from susurrus.agents.runtime.task import PartitionTask

RAW = InputPartition("raw", 0)


class World:
    """Time, and an event to wait for. Each wait takes as long as the test says; after the last one the event is set."""

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


def world(monkeypatch: pytest.MonkeyPatch, module: Any, naps: list[float]) -> Any:
    """The clock of a module and of the tasks."""
    found = World(naps)
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(task_module, "time", found)
    return found


def task_in(state: str, *, alive: bool = True, alive_at: float = 1000.0) -> Any:
    """As much of a task as the watchdog, the housekeeping and the health look at."""
    found: Any = SimpleNamespace(
        name="raw-0", alive_at=alive_at, state=state, recovery=SimpleNamespace(phase=state, disk_finding=None),
        is_alive=lambda: alive, ident=1, started=0,
    )  # fmt: skip
    found.silent_for = lambda limit: PartitionTask.silent_for(found, limit)
    found.died = PartitionTask.died.fget(found)  # type: ignore[attr-defined]
    found.recovery.take_after = lambda before: None
    found.assigned = lambda generation: None
    found.stop = lambda: None
    found.join = lambda seconds: None

    def start() -> None:
        found.started += 1

    found.start = start
    return found


class Handed:
    """A group with one partition, whose task is ``first``; every further one is ``later`` and counts its starts."""

    def __init__(self, first: Any) -> None:
        self.app = SimpleNamespace(consumer_generation_id=3, consumer=None)
        self.later = task_in("starting")
        self._made = iter([first])
        stages: Any = {"raw": SimpleNamespace(name="raw")}
        self.group = Group(self.app, stages, lambda place, rewind: next(self._made, self.later), threading.Event())

    async def assign(self) -> Group:
        """The group gives the partition to this worker."""
        self.group.assign([RAW])
        return self.group
