"""A task that ends frees its stage and its store by reference counts alone: a worker hardly ever runs Python's collector."""

import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime import recovery
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.stage import NotYet, Stage
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.task import PartitionTask
from susurrus.mechanisms.errors import Refusal, RetryableRefusal
from tests.agents.cycles import no_cycles
from tests.agents.runtime.tasks import task_of

FENCED = KafkaError(KafkaError._FENCED)
LATE = KafkaError(KafkaError._TIMED_OUT, "late", retriable=True)
FAILED = KafkaError(KafkaError._MSG_TIMED_OUT)
ROWS = 100


class Keeping(Stage):
    """Keeps its store, and has one commit ready whenever it is asked, until the task has made two.

    services: has all stages that were made, how many of them were closed, and how many commits were made.
    """

    services: Any

    def __init__(self, services: Any, partition: int, store: Store, meta: dict[str, Any], position: Offset) -> None:
        super().__init__(services, partition, store, meta, position)
        assert [left for kept in services.stages if (left := kept()) is not None] == []  # memory has room for one
        services.stages.append(weakref.ref(self))

    @classmethod
    def begin(cls, services: Any, partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        return {}, start

    def close(self) -> None:
        self.services.closed += 1

    def take(self, batch: Batch) -> None:
        raise AssertionError("nothing is fed")

    def commits(self, now: int) -> Iterator[Commit]:
        while self.services.made < 2:
            self.services.made += 1
            yield Commit(position=Offset(self.services.made), meta={}, puts=[(b"k%d" % n, b"v") for n in range(ROWS)])
        self.services.at_the_end()


class Producer:
    """Raises the errors of a call, each once."""

    def __init__(self, errors: dict[str, list[Any]]) -> None:
        self.errors = errors

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> None:
            if left := self.errors.get(name.removesuffix("_transaction")):
                raise KafkaException(left.pop(0))

        return call

    def discard(self) -> bool:
        return True


def start_up(task: PartitionTask, errors: dict[str, list[Any]], stores: list[weakref.ref[Store]]) -> None:
    """What a start does without Kafka."""
    store, committing = task.context.open_store(), task.committing
    stores.append(weakref.ref(store))
    committing._store, committing._transactions._producer = store, Producer(errors)  # type: ignore[assignment]
    task._make_stage(None, Offset(0))


class World:
    """One task with a real store. errors: of its producer, by call; end: what the stage does once it has committed twice."""

    def __init__(self, directory: Path, errors: dict[str, list[Any]], end: Callable[[PartitionTask], None]) -> None:
        ledger = SimpleNamespace(
            refuse=lambda *_: None, clear_refusal=lambda *_: None, started=lambda *_: Output("ledger", 0, [])
        )
        clients = SimpleNamespace(application="s.p", embedded=True)
        services = {"clients": clients, "ledger": ledger, "stages": [], "closed": 0, "made": 0}
        self.stores: list[weakref.ref[Store]] = []
        self.task: PartitionTask = task_of(
            "keeping", "raw", Keeping, services=services, open_store=lambda: Store(directory)
        )
        self.services: Any = self.task.context.services
        # A weak reference: the world must not keep what it looks for.
        task = weakref.proxy(self.task)
        self.services.at_the_end = lambda: end(task)
        committing: Any = self.task.committing
        transactions = committing._transactions
        transactions._check_sizes = transactions._produce = lambda _: None
        transactions.changelog = SimpleNamespace(
            prepare=lambda store, commit, *_: commit,
            produce=lambda *_: None,
            apply=lambda store, commit: store.write(commit.puts, meta=b"m"),
        )
        committing._changelog = SimpleNamespace(meta=lambda _: None)
        transactions.services = SimpleNamespace(ledger=SimpleNamespace(epoch="e"))
        self.task._reading.log.look = lambda *_: None  # type: ignore[method-assign]
        if "lacks" in errors:
            self.task.recovery.lack = lambda _: RetryableRefusal("topic=x does not exist", "create it")  # type: ignore[method-assign]
        stores = self.stores
        self.task._start_up = lambda: start_up(task, errors, stores)  # type: ignore[method-assign]

    def left(self) -> list[object]:
        """Stages and stores that are still there."""
        return [found for kept in (*self.services.stages, *self.stores) if (found := kept()) is not None]


def stop(task: PartitionTask) -> None:
    task.stop()


def refuse(task: PartitionTask) -> None:
    raise Refusal("raw=x: no", "stop")


def die(task: PartitionTask) -> None:
    raise SystemExit


def once(error: Exception) -> Callable[[PartitionTask], None]:
    """Raise an error the first time, stop the second time."""
    left = [error]

    def end(task: PartitionTask) -> None:
        if left:
            raise left.pop()
        task.stop()

    return end


@pytest.mark.parametrize(
    ("errors", "end", "starts", "stages", "state"),
    [
        pytest.param({}, stop, 1, 1, "stopped", id="stopped"),
        pytest.param({"commit": [FENCED]}, stop, 1, 1, "fenced", id="fenced"),
        pytest.param({"begin": [FENCED]}, stop, 1, 1, "fenced", id="fenced at the begin"),
        pytest.param({"commit": [LATE]}, stop, 2, 2, "stopped", id="an outcome that is not known"),
        pytest.param({"commit": [FAILED]}, stop, 1, 2, "stopped", id="aborted"),
        pytest.param({"commit": [FAILED], "abort": [FENCED]}, stop, 1, 1, "fenced", id="fenced at the abort"),
        pytest.param({"commit": [FAILED], "abort": [FAILED]}, stop, 2, 2, "stopped", id="an abort that fails"),
        pytest.param(
            {"commit": [FAILED], "lacks": [None]}, stop, 2, 2, "stopped", id="aborted for a topic that is missing"
        ),
        pytest.param({}, refuse, 1, 1, "refused", id="refused"),
        pytest.param(
            {}, once(RetryableRefusal("raw=x: not yet", "wait")), 2, 2, "refused", id="refused and tried again"
        ),
        pytest.param({}, once(NotYet("more is public")), 2, 2, "stopped", id="waited"),
        pytest.param({}, once(KeyError("x")), 2, 2, "stopped", id="an unforeseen error"),
        pytest.param({}, die, 1, 1, "running", id="died"),
    ],
)
def test_a_task_that_ended_has_freed_its_stage_and_its_store(
    errors: dict[str, list[Any]],
    end: Callable[[PartitionTask], None],
    starts: int,
    stages: int,
    state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of it is left for the collector, either, once the supervisor has let the task go."""
    monkeypatch.setattr(recovery, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(recovery, "_FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # pytest's would keep the frames of one that died
    with no_cycles():
        world = World(tmp_path / "keeping-0", {call: list(found) for call, found in errors.items()}, end)
        world.task.start()
        world.task.join(30)
        assert not world.task.is_alive()
        assert (len(world.stores), world.task.state) == (starts, state)
        assert world.left() == []
        assert len(world.services.stages) == world.services.closed == stages
        assert world.task.report()["position"] == world.task.committing.position
        ended = weakref.ref(world.task)
        del world
        assert ended() is None
