"""Which tasks a worker starts again by itself, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.runtime import housekeeping as module
from susurrus.agents.runtime.housekeeping import Housekeeping
from tests.agents.runtime.guarded import RAW, Handed, task_in, world

PATIENCE = 3.0


def keep(monkeypatch: pytest.MonkeyPatch, handed: Handed, naps: list[float]) -> int:
    """Do the chores after each nap. Returns how often a task was started in place of the first."""
    clock = world(monkeypatch, module, naps)
    services: Any = SimpleNamespace(clients=SimpleNamespace(serve=lambda: None))
    house = Housekeeping(handed.group, services, worker="w", purged=frozenset(), patience=PATIENCE)
    house.report = lambda **_: None  # type: ignore[method-assign]
    house.keep(clock)
    return int(handed.later.started)


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("state", ["fenced", "running", "starting"])
def test_a_task_that_was_fenced_or_died_starts_again_unless_the_worker_is_stopping(
    closing: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = Handed(task_in(state, alive=False))
    group = asyncio.run(handed.assign())
    if closing:
        group.close()
    assert keep(monkeypatch, handed, [0.5] * 8) == (0 if closing else 1)


@pytest.mark.parametrize("state", ["refused", "stopped"])
def test_a_refused_or_stopped_task_stays_as_it_is(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handed = Handed(task_in(state, alive=False))
    asyncio.run(handed.assign())
    assert keep(monkeypatch, handed, [0.5] * 8) == 0


def test_a_fenced_task_is_given_two_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    handed = Handed(task_in("fenced"))
    asyncio.run(handed.assign())
    assert keep(monkeypatch, handed, [0.5] * 6) == 0


def test_a_fenced_task_of_another_generation_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    handed = Handed(task_in("fenced"))
    asyncio.run(handed.assign())
    handed.app.consumer_generation_id = 4
    assert keep(monkeypatch, handed, [0.5] * 8) == 0


def test_a_fenced_task_of_a_partition_that_was_revoked_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    handed = Handed(task_in("fenced"))
    asyncio.run(handed.assign()).revoke()
    assert keep(monkeypatch, handed, [0.5] * 8) == 0


def test_a_task_that_a_rebalance_has_replaced_meanwhile_is_not_replaced_again() -> None:
    fenced = task_in("fenced")
    handed = Handed(fenced)
    group = asyncio.run(handed.assign())
    asyncio.run(handed.assign())  # the group gives the partition again: a new task
    group.start_again(RAW, fenced)
    assert handed.later.started == 1


def test_memory_is_given_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while no broker answers: what fails here is the purge."""
    handed = Handed(task_in("running"))
    asyncio.run(handed.assign())
    given: list[None] = []
    monkeypatch.setattr(module, "give_back", lambda: given.append(None))
    keep(monkeypatch, handed, [0.5] * 200)
    assert len(given) == 3
