"""What ends a worker without a signal: it ends once, with one exit code and one sentence."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.runtime import supervisor as module
from susurrus.agents.runtime.supervisor import Supervisor
from tests.agents.config.test_settings import changed


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes with which the process was asked to end."""
    found: list[int] = []
    monkeypatch.setattr(module.ENDING, "give_up", lambda code, *, seconds: found.append(code))
    return found


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """The supervisor of a worker that has no task yet."""
    services: Any = SimpleNamespace(
        settings=changed(worker={"data_directory": str(tmp_path), "instance": "web-0"}),
    )
    found = Supervisor(SimpleNamespace(consumer_generation_id=3), services, (), heartbeat_seconds=1.0)
    yield found
    found._directory_lock.close()


def test_a_worker_whose_disk_cannot_be_used_ends_once_and_is_unhealthy(supervisor: Supervisor, ends: list[int]) -> None:
    assert supervisor.health.unhealthy() is None
    supervisor.give_up("raw-0: no room")
    supervisor.give_up("raw-1: no room")
    assert (ends, supervisor.health.unhealthy()) == ([74], "raw-0: no room")


def test_a_worker_whose_instance_another_has_taken_ends_once_with_code_2_and_says_what_to_do(
    supervisor: Supervisor, ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.on_fenced()
    supervisor.on_fenced()
    assert ends == [2]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "the worker ends, exit code 2, worker.instance=web-0 group=susurrus.page-views: another worker"
    )
    assert "an instance of its own (SUSURRUS__WORKER__INSTANCE)" in said


@pytest.mark.parametrize(("exit_code", "leaves"), [(0, False), (2, False), (74, True)])
def test_only_a_worker_whose_disk_cannot_be_used_gives_up_its_place_in_the_group(
    supervisor: Supervisor, exit_code: int, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.ENDING, "exit_code", exit_code)
    assert supervisor.gives_up_its_place() is leaves


def test_a_worker_that_is_stopping_does_not_give_up_as_well(supervisor: Supervisor, ends: list[int]) -> None:
    supervisor.group.close()
    supervisor.give_up("raw-0: no room")
    assert ends == []
