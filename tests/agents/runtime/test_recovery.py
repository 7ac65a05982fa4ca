"""A task after a failure: what an operator can fix is tried again and stays visible, a disk that stays unusable ends the worker."""

import errno
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.finding import Finding
from susurrus.agents.runtime import recovery, stall
from susurrus.agents.runtime import task as task_module
from susurrus.agents.runtime.disk import disk_finding
from susurrus.agents.runtime.stage import MorePublic, NotYet
from susurrus.agents.runtime.task import PartitionTask
from susurrus.mechanisms.errors import (
    BudgetExhausted,
    PrivacyError,
    Refusal,
    ReplayMismatch,
    RetryableRefusal,
    StoreUnusable,
)
from tests.agents.runtime.tasks import task_of
from tests.broker import wait_for

Work = Callable[[PartitionTask], None]
FULL = StoreUnusable(errno.ENOSPC, Path("/disk/route-0"), "No space left on device")
FULL_DISK = disk_finding(FULL)
MISSING = Finding("route-0", "failure", "topic=x does not exist", "create it", waits=True)


class Ledger:
    """Keeps the refusals that a task records."""

    def __init__(self) -> None:
        self.recorded: list[Finding | None] = []

    def refuse(self, stage: str, partition: int, refusal: Finding) -> None:
        self.recorded.append(refusal)

    def clear_refusal(self, stage: str, partition: int) -> None:
        self.recorded.append(None)


class World:
    """A task without Kafka. start, work: what its start and its work do; pauses: how long each was asked to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, start: Work | None = None, work: Work | None = None) -> None:
        self.ledger, self.given_up = Ledger(), list[str]()
        self.pauses: list[float] = []
        self.now = 1000.0
        self.disk: Any = SimpleNamespace(finding=None, look=lambda: self.disk.finding)
        services = {
            "clients": SimpleNamespace(application="s.p", embedded=False),
            "ledger": self.ledger,
            "settings": SimpleNamespace(pipeline=SimpleNamespace(prefix="s")),
        }
        self.task: PartitionTask = task_of(
            "route", "raw", services=services, give_up=self.given_up.append, disk=self.disk
        )

        def pause(seconds: float | None = None) -> None:
            seconds = recovery._RETRY_SECONDS if seconds is None else seconds
            self.pauses.append(seconds)
            self.now += seconds

        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        for module in (recovery, task_module, stall):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(self.task.recovery, "pause", pause)
        monkeypatch.setattr(self.task, "_start_up", lambda: start(self.task) if start else None)
        monkeypatch.setattr(self.task, "_work", lambda: work(self.task) if work else self.task.stop())


@pytest.mark.parametrize("kind", [RetryableRefusal, BudgetExhausted])
def test_what_an_operator_can_fix_is_tried_again_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, kind: type[Refusal | PrivacyError]
) -> None:
    seen: list[tuple[str, Finding | None, bool]] = []

    def start(task: PartitionTask) -> None:
        seen.append((task.state, task.stall(), task.at_work))
        task.recovery.starts("recovering state from the changelog")
        if len(seen) < 10:
            raise kind("topic=x does not exist", "create it")

    world = World(monkeypatch, start=start)
    world.task.run()
    assert world.pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert seen[1:] == [("refused", MISSING, False)] * 9


@pytest.mark.parametrize("kind", [Refusal, ReplayMismatch, PrivacyError])
def test_what_no_operator_can_fix_from_outside_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, kind: type[Refusal | PrivacyError]
) -> None:
    attempts: list[None] = []

    def start(task: PartitionTask) -> None:
        attempts.append(None)
        raise kind("topic=x was recreated", "restore it")

    world = World(monkeypatch, start=start)
    world.task.run()
    assert (len(attempts), world.pauses) == (1, [])
    assert (world.task.state, world.task.stall()) == (
        "refused",
        Finding("route-0", "failure", "topic=x was recreated", "restore it"),
    )
    assert world.ledger.recorded == [world.task.stall()]
    assert not world.task.died


def test_a_refusal_is_withdrawn_when_the_task_really_runs_and_not_when_it_only_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A spent budget is met at the first release, not at the start: the state would flap, and the pauses would never grow."""
    states: list[str] = []
    turns = iter(["refuse", "refuse", "commit"])

    def work(task: PartitionTask) -> None:
        states.append(task.state)
        assert task.at_work
        if next(turns) == "refuse":
            raise BudgetExhausted("budget: spent", "raise it")
        task.recovery.committed()
        states.append(task.state)
        task.stop()

    world = World(monkeypatch, work=work)
    world.task.run()
    spent = Finding("route-0", "failure", "budget: spent", "raise it", waits=True)
    assert states == ["running", "refused", "refused", "running"]
    assert world.pauses == [5, 10]
    assert world.ledger.recorded == [None, spent, spent, None]
    assert world.task.state == "stopped"


def test_its_successor_on_this_worker_is_refused_until_it_really_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = World(monkeypatch).task, World(monkeypatch).task
    before.recovery.refusal, before.recovery._refused_times = (
        Finding("route-0", "failure", "topic=x does not exist", "create it"),
        3,
    )
    after.recovery.take_after(before.recovery)
    assert (after.state, after.stall(), after.recovery._refused_times) == ("refused", before.recovery.refusal, 3)


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ([1, 1], True),
        ([1, 2, 2], True),
        ([1, KeyError("x"), 1], True),  # no start in between has found that all is well
        ([1, 2, 3], False),
        ([1, None, 1], False),
    ],
)
def test_what_is_public_and_not_known_is_a_refusal_when_two_starts_in_a_row_find_it(
    monkeypatch: pytest.MonkeyPatch, found: list[Any], refused: bool
) -> None:
    """The first time another owner may have published it, which the second start has fenced. None: a start finds nothing."""
    left = list(found)

    def start(task: PartitionTask) -> None:
        evidence = left.pop(0) if left else None
        if isinstance(evidence, Exception):
            raise evidence
        if evidence is not None:
            raise MorePublic(
                "more is public", evidence=evidence, refusal=Refusal(f"trigger={evidence} is public", "restore it")
            )

    def work(task: PartitionTask) -> None:
        if left:
            raise KeyError("x")
        task.stop()

    world = World(monkeypatch, start=start, work=work)
    world.task.run()
    assert (world.task.state, left) == ("refused" if refused else "stopped", [])
    assert [str(said) for said in world.ledger.recorded if said] == (
        [f"trigger={found[-1]} is public; restore it"] if refused else []
    )


def test_a_pause_ends_at_once_when_the_partition_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(task: PartitionTask) -> None:
        raise RetryableRefusal("topic=x does not exist", "create it")

    monkeypatch.setattr(recovery, "_FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(recovery, "_LONGEST_PAUSE_SECONDS", 3600.0)
    world = World(monkeypatch, start=start)
    monkeypatch.undo()
    monkeypatch.setattr(world.task, "_start_up", lambda: start(world.task))
    monkeypatch.setattr(recovery, "_FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(recovery, "_LONGEST_PAUSE_SECONDS", 3600.0)
    world.task.start()
    wait_for(lambda: world.task.state == "refused", "it refuses")
    world.task.stop()
    world.task.join(60)
    assert not world.task.is_alive()
    assert not world.task.died
    assert world.task.state == "refused"  # what its worker's last report says


def test_a_task_that_waits_or_recovers_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recovering = threading.Event()

    def endless(task: PartitionTask) -> None:
        recovering.set()
        while True:
            task._life.go_on()

    for start in (endless, lambda _: (_ for _ in ()).throw(NotYet("waiting for x"))):
        world = World(monkeypatch, start=start)
        monkeypatch.undo()
        monkeypatch.setattr(world.task, "_start_up", lambda start=start, task=world.task: start(task))
        monkeypatch.setattr(recovery, "_RETRY_SECONDS", 3600.0)
        world.task.start()
        if start is endless:
            assert recovering.wait(30)
        else:
            wait_for(lambda task=world.task: str(task.stall()) == "waiting for x", "it waits")
        world.task.stop()
        world.task.join(60)
        assert (world.task.is_alive(), world.task.state) == (False, "stopped")


def test_a_disk_that_stays_unusable_makes_the_worker_give_up_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Finding | None] = []

    def start(task: PartitionTask) -> None:
        seen.append(task.recovery.disk_finding)
        raise FULL

    world = World(monkeypatch, start=start)
    world.task.run()
    assert sum(world.pauses) == recovery.PATIENCE_SECONDS
    assert seen[1:] == [FULL_DISK] * (len(seen) - 1)
    assert world.given_up == [f"route-0: {FULL}"]
    assert world.ledger.recorded == [FULL_DISK]
    assert (world.task.state, world.task.stall()) == ("refused", FULL_DISK)


def test_a_disk_that_has_room_again_in_time_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[None] = []

    def start(task: PartitionTask) -> None:
        attempts.append(None)
        if len(attempts) < 5:
            raise FULL

    world = World(monkeypatch, start=start, work=lambda task: task.stop())
    world.task.run()
    assert (world.given_up, world.ledger.recorded, world.task.recovery.disk_finding) == ([], [None], None)


def test_a_disk_that_fails_again_and_again_while_the_task_works_is_the_same_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store of a small partition can be opened on a disk that has no room for what it holds."""

    def work(task: PartitionTask) -> None:
        world.now += 8.0
        raise FULL

    world = World(monkeypatch, work=work)
    world.task.run()
    assert len(world.given_up) == 1


def test_a_disk_that_fails_once_in_a_while_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[None] = []

    def work(task: PartitionTask) -> None:
        world.now += 300.0
        failures.append(None)
        if len(failures) == 10:
            task.stop()
        else:
            raise FULL

    world = World(monkeypatch, work=work)
    world.task.run()
    assert world.given_up == []


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional.id=s.p-route-0: .* lacks Write"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "group=s.p: .* lacks Read"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "cluster: .* lacks IdempotentWrite"),
    ],
)
def test_a_missing_right_is_a_refusal_that_names_it(monkeypatch: pytest.MonkeyPatch, code: int, named: str) -> None:
    attempts: list[None] = []

    def start(task: PartitionTask) -> None:
        attempts.append(None)
        if len(attempts) == 1:
            raise KafkaException(KafkaError(code))

    world = World(monkeypatch, start=start)
    world.task.run()
    refusal = world.ledger.recorded[0]
    assert refusal is not None
    assert re.match(named, refusal.text)
    assert refusal.action.startswith("grant")
    assert world.pauses == [5]


def test_an_error_of_another_kind_starts_again_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[None] = []

    def start(task: PartitionTask) -> None:
        attempts.append(None)
        if len(attempts) == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    world = World(monkeypatch, start=start)
    world.task.run()
    assert world.ledger.recorded == [None]
    assert world.pauses == [2.0]


def test_tasks_wait_for_the_disk_of_all_stores_and_give_up_nothing_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[Finding | None] = []

    def start(task: PartitionTask) -> None:
        attempts.append(task.recovery.disk_finding)
        if len(attempts) < 3:
            world.disk.finding = FULL_DISK
            raise FULL

    def wait(stopping: object, mark_alive: object) -> None:
        assert (world.task.state, world.task.stall()) == ("starting", FULL_DISK)
        world.now += 1_000.0
        world.disk.finding = None

    world = World(monkeypatch, start=start, work=lambda task: task.stop())
    world.disk.wait = wait
    world.task.run()
    assert attempts == [None, FULL_DISK, FULL_DISK]
    assert (world.given_up, world.pauses, world.task.recovery.disk_finding) == ([], [], None)


def test_a_task_that_ends_on_a_disk_that_is_unusable_leaves_its_store_and_stays_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[str] = []

    def work(task: PartitionTask) -> None:
        store: Any = SimpleNamespace(abandon=lambda: left.append("abandoned"), close=lambda: left.append("closed"))
        task.committing._store = store
        world.disk.finding = FULL_DISK
        task.recovery.disk_stays_unusable(FULL_DISK)  # as the look at the disk does
        task.stop()

    world = World(monkeypatch, work=work)
    world.task.run()
    assert (left, world.ledger.recorded[-1]) == (["abandoned"], FULL_DISK)
    assert (world.task.state, world.task.stall()) == ("refused", FULL_DISK)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        MemoryError(),
        KafkaException(
            KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Failed to create thread: Resource temporarily unavailable")
        ),
    ],
    ids=["thread", "memory", "client"],
)
def test_a_machine_without_threads_or_memory_is_named_with_what_to_raise(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    attempts: list[None] = []

    def start(task: PartitionTask) -> None:
        attempts.append(None)
        if len(attempts) < 3:
            raise error

    world = World(monkeypatch, start=start, work=lambda task: task.stop())
    world.task.run()
    assert world.pauses == [5, 10]  # others may have ended by then
    assert "raise ulimit -u, pids.max of its control group or its memory" in str(world.ledger.recorded[0])
    assert "susurrus preflight" in str(world.ledger.recorded[0])
