"""What a task takes of a batch: everything from its position on, once, whatever the batch says of itself; and how it goes on
when commits are aborted, batches never end, or the disk is full.
"""

import math
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust.record_batches import Fetched, batch_at
from susurrus.agents.runtime.transaction import Aborted
from susurrus.mechanisms.errors import RetryableRefusal
from tests.agents.runtime.tasks import task_of
from tests.record_batches import record_batch


class Taking:
    """A stage that only remembers offsets, and always wants more."""

    full = crowded = patient = False
    rests_until = 0.0
    due_at = math.inf

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.offsets: list[int] = []

    def take(self, batch: Batch) -> None:
        self.offsets += [record.offset for record in batch.records]


@pytest.fixture
def task() -> Any:
    """A task without Kafka, at position 2037 of its input."""
    ledger = SimpleNamespace(way_out="start anew")
    made = task_of("collect", "reports", services={"clients": None, "max_record_bytes": 1, "ledger": ledger})
    made._stage = Taking()
    made._reading.next = 2037
    made._reading.log.look = lambda position, after: None
    return made


def batch(start: int, end: int, first: int) -> Batch:
    return Batch(start, end, [SimpleNamespace(offset=offset) for offset in range(first, end)], 1)


@pytest.mark.parametrize("start", [687, 2037], ids=["overlapping", "a seek fell into the fetch"])
def test_records_below_the_position_are_not_taken_twice(task: Any, start: int) -> None:
    task._reading.accept(batch(start, 2087, first=687), 1, task._stage)
    assert task._stage.offsets == list(range(2037, 2087))
    assert task._reading.next == 2087


def test_a_record_batch_that_cannot_be_read_is_a_refusal_that_is_tried_again(task: Any) -> None:
    """Whatever its stage: the records are parsed where they are asked for."""
    whole = record_batch([b"v"] * 3, first=2_040)
    broken = whole[:61] + bytes(255 - byte for byte in whole[61:])
    found, _ = batch_at(broken, 0)
    assert found is not None
    unreadable = Batch(2037, 2043, Fetched([found], 2037), 1)  # type: ignore[arg-type]
    with pytest.raises(RetryableRefusal) as refused:
        task._reading.accept(unreadable, 1, task._stage)
    said = str(refused.value)
    assert said.startswith(
        "topic=reports partition=0 offset=2040: the record batch that begins here passes its checksum but"
    )
    assert "(MalformedBatch)" in said
    assert said.endswith("start anew")
    assert unreadable.finished
    assert task._reading.next == 2037


def test_a_batch_ahead_of_the_position_is_not_taken(task: Any) -> None:
    task._reading.accept(batch(2040, 2087, first=2040), 1, task._stage)
    assert task._stage.offsets == []
    assert task._reading.next == 2037


def assign(task: Any) -> None:
    """The group gives the task its partition, and the task has noticed."""
    task.assigned(1)
    task._reading.inbox.generation()
    assert task._reading.inbox.take(1.0) is None, "an assignment ends the wait"


def reading(task: Any, brings: dict[int, Batch]) -> list[int]:
    """Let the task read from a consumer that brings the batch of an offset when it is sent there; where it was sent."""
    sent: list[int] = []

    def rewind(offset: int) -> None:
        sent.append(offset)
        if offset in brings:
            task.offer(brings.pop(offset))

    task._reading._context = replace(task.context, rewind=rewind)
    task.recovery.phase = "running"
    assign(task)
    return sent


def test_records_behind_a_second_gap_are_asked_for_though_nothing_comes_behind_them(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch of a log comes right after the consumer was sent back, too early to send it back again."""
    sent = reading(task, {})
    task.offer(batch(2040, 2087, first=2040))
    working(task, 1, lambda: iter(()))
    assert sent == [2037]
    task._life.stopping.clear()
    task.offer(batch(2040, 2087, first=2040))
    working(task, 1, lambda: iter(()))
    assert sent == [2037]
    task._life.stopping.clear()
    monkeypatch.setattr("susurrus.agents.runtime.reading._REWIND_SECONDS", 0.0)
    working(task, 1, lambda: iter(()))
    assert sent == [2037, 2037]
    task._life.stopping.clear()
    working(task, 2, lambda: iter(()))
    assert sent == [2037, 2037]


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "at the end"])
def test_the_end_of_a_log_that_was_dropped_on_its_way_is_asked_for_again(
    task: Any, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """No gap shows it: there is nothing behind it."""
    monkeypatch.setattr("susurrus.agents.runtime.reading._UNFED_SECONDS", 0.0)
    sent = reading(task, {2037: batch(2037, 2087, first=2037)})
    task._reading.log.end = 2087 if lost else 2037
    working(task, 4, lambda: iter(()))
    assert sent == ([2037] if lost else [])
    assert task._reading.next == (2087 if lost else 2037)


@pytest.mark.parametrize("why", ["full", "rests"])
def test_a_task_that_wants_no_input_does_not_ask_for_it(task: Any, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr("susurrus.agents.runtime.reading._UNFED_SECONDS", 0.0)
    sent = reading(task, {})
    task._reading.log.end = 2087
    if why == "full":
        task._stage.full = True
    else:
        task._stage.rests_until = math.inf
    working(task, 4, lambda: iter(()))
    assert sent == []


@pytest.mark.parametrize(
    ("due_in", "patient", "waits"),
    [(math.inf, False, 0.05), (math.inf, True, 0.25), (0.02, False, 0.02), (0.02, True, 0.02), (-1.0, True, 0.0)],
)
def test_a_task_waits_for_input_until_its_stage_is_due(
    task: Any, monkeypatch: pytest.MonkeyPatch, due_in: float, patient: bool, waits: float
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("susurrus.agents.runtime.reading.time", SimpleNamespace(monotonic=lambda: 500.0))
    task._reading.inbox.take = lambda seconds=0.0: waited.append(seconds)
    task._stage.due_at, task._stage.patient = 500.0 + due_in, patient
    task._reading.feed(task._stage)
    assert waited == [pytest.approx(waits)]


def test_holes_move_the_position(task: Any) -> None:
    task._reading.accept(batch(2037, 2050, first=2050), 1, task._stage)
    assert task._stage.offsets == []
    assert task._reading.next == 2050


@pytest.mark.parametrize("answers", [True, False])
def test_the_end_of_each_wait_for_kafka_is_a_sign_of_life(task: Any, answers: bool) -> None:
    """Each wait has a limit of its own; together they may take longer than the watchdog allows."""

    def look(position: int, after: float) -> None:
        task.alive_at = 0.0
        if not answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def rewind(offset: int) -> None:
        seen.append(task.alive_at)
        task.alive_at = 0.0

    seen: list[float] = []
    task._reading.log.look = look
    task._reading._context = replace(task.context, rewind=rewind)
    if answers:
        task._reading.accept(batch(2040, 2087, first=2040), 1, task._stage)
        [alive_at] = seen
    else:
        with pytest.raises(KafkaException):
            task._reading.accept(batch(2040, 2087, first=2040), 1, task._stage)
        alive_at = task.alive_at
    assert alive_at > 0
    assert task.alive_at > 0


def working(task: Any, rounds: int, commits: Any) -> None:
    """The task's loop, for as many rounds as the stage is asked for commits."""
    left = [rounds]

    def asked(now: int) -> Any:
        left[0] -= 1
        if not left[0]:
            task._life.stopping.set()
        return commits()

    task._stage.commits = asked
    task._work()


def test_a_stage_is_asked_for_commits_however_much_waits_for_it(task: Any) -> None:
    """Otherwise a partition with a backlog would read all of it before it may spill."""
    refill = task._stage.take

    def take(taken: Batch) -> None:
        refill(taken)
        start = task._reading.next + 50
        task.offer(batch(start, start + 50, first=start))  # the next one is there already

    task._stage.take = take
    assign(task)
    task.offer(batch(2037, 2087, first=2037))
    working(task, 3, lambda: iter(()))
    assert len(task._stage.offsets) == 3 * 4 * 50


def test_a_stage_that_is_crowded_is_asked_for_commits_before_it_takes_more(task: Any) -> None:
    """What it holds of a backlog is what one batch brings, and not what four do."""
    task._stage.crowded = True
    assign(task)
    for start in range(2037, 2337, 100):
        task.offer(batch(start, start + 100, first=start))
    held: list[int] = []

    def commits() -> Any:
        held.append(len(task._stage.offsets))
        return iter(())

    working(task, 3, commits)
    assert held == [100, 200, 300]


def test_a_stage_that_is_woken_is_asked_for_commits_at_once(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for what does not come with its input."""
    monkeypatch.setattr("susurrus.agents.runtime.reading._LOOP_SECONDS", 3_600.0)
    asked = threading.Event()

    def commits() -> Any:
        asked.set()
        return iter(())

    task._reading.inbox.generation()
    thread = threading.Thread(target=working, args=(task, 3, commits), daemon=True)
    thread.start()
    for _ in range(3):
        for _ in range(5):
            task._reading.inbox.wake()
        assert asked.wait(30.0)
        asked.clear()
    thread.join(30.0)
    assert not thread.is_alive()


def test_transactions_that_are_aborted_again_and_again_are_told_and_slowed_down(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[int] = []
    monkeypatch.setattr(task.recovery, "pause", lambda: paused.append(task._stalls._aborts))
    monkeypatch.setattr(task.committing, "last", lambda: None)
    monkeypatch.setattr(task, "_throw_stage_away", lambda: None)
    monkeypatch.setattr(task, "_make_stage", lambda last, position: 2037)
    task._stage.stall = lambda now: None
    task._stage.counters = {}
    task.recovery.phase = "running"

    def refused(*_: object) -> None:
        raise Aborted from KafkaException(KafkaError(KafkaError.INVALID_TIMESTAMP))

    task.committing.commit = refused
    working(task, 4, lambda: iter([object()]))
    assert paused == []
    assert task.stall() is None
    task._life.stopping.clear()
    working(task, 3, lambda: iter([object()]))
    assert paused == [5, 6, 7]
    assert "the last 7 transactions were aborted (KafkaException INVALID_TIMESTAMP)" in str(task.stall())
    task._life.stopping.clear()
    task.committing.commit = lambda *_: None
    working(task, 1, lambda: iter([object()]))
    assert task.stall() is None


def test_a_store_that_cannot_be_written_does_not_end_the_task(task: Any) -> None:
    class Full:
        closed = False

        def close(self) -> None:
            self.closed = True
            raise OSError("No space left on device")

    task.committing._store = full = Full()
    task._close()
    assert full.closed
    assert task.committing._store is None
