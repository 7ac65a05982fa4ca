"""A task that ends gives back what it was fed, and its store: its successor on the same worker needs both."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from susurrus.agents.runtime import recovery
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.transaction import Fenced
from susurrus.mechanisms.errors import Refusal
from tests.agents.runtime.tasks import task_of


def task_that(monkeypatch: pytest.MonkeyPatch, work: Any) -> Any:
    """A task whose start succeeds and whose work is ``work``."""
    ledger = SimpleNamespace(refuse=lambda *_: None, clear_refusal=lambda *_: None)
    task = task_of("route", "raw", services={"clients": None, "ledger": ledger})
    monkeypatch.setattr(task, "_start_up", lambda: None)
    monkeypatch.setattr(task, "_work", lambda: work(task))
    return task


def fenced(task: Any) -> None:
    raise Fenced


def refused(task: Any) -> None:
    raise Refusal("raw=x: no", "stop")


def stopped(task: Any) -> None:
    task.stop()


def died(task: Any) -> None:
    raise SystemExit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("work", [fenced, refused, stopped, died])
def test_what_a_task_was_fed_is_given_back_when_it_ends(monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
    task = task_that(monkeypatch, work)
    closed: list[None] = []
    task.committing._store = SimpleNamespace(close=lambda: closed.append(None))
    before, after = Batch(0, 10, [object()], 1), Batch(10, 20, [object()], 1)
    task.offer(before)
    task.start()
    task.join(10)
    assert not task.is_alive()
    assert before.finished
    assert closed
    task.offer(after)  # on its way while the task ended
    assert after.finished


def test_a_producer_that_does_not_close_does_not_keep_the_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[None] = []
    task = task_that(monkeypatch, stopped)
    task.committing._transactions._producer = SimpleNamespace(discard=lambda: False)
    task.committing._store = SimpleNamespace(close=lambda: closed.append(None))
    task.start()
    task.join(30)
    assert not task.is_alive()
    assert closed
    assert "route-0: its producer does not answer and is left behind; the next one fences it" in caplog.text


def test_an_error_that_is_no_exception_does_not_end_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """confluent-kafka raises a KafkaError where a callback meets a fatal error; ``except Exception`` lets it pass."""
    monkeypatch.setattr(recovery, "_RETRY_SECONDS", 0.0)
    attempts: list[None] = []

    def work(task: Any) -> None:
        attempts.append(None)
        if len(attempts) == 1:
            raise KafkaError(KafkaError._FENCED)  # type: ignore[misc]
        task.stop()

    task = task_that(monkeypatch, work)
    task.start()
    task.join(10)
    assert len(attempts) == 2
    assert task.state == "stopped"
