"""What a commit makes of the producer's errors: aborted, fenced, or unknown until a new producer has settled it."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.transaction import Aborted, Fenced, Transactions


class StubProducer:
    """Its calls raise what the test says, in order; None: they succeed."""

    def __init__(self, **errors: Any) -> None:
        self.errors = errors
        self.calls: list[str] = []
        self.discarded = 0

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> None:
            self.calls.append(name.removesuffix("_transaction"))
            if (error := self.errors.get(name)) is not None:
                raise KafkaException(error)

        return call

    def discard(self) -> bool:
        self.discarded += 1
        return "hangs" not in self.errors


def commit(producer: StubProducer, group_reads: bool = True) -> list[float]:
    """One commit without outputs; how often it gave a sign of life."""
    alive: list[float] = []
    changelog: Any = SimpleNamespace(prepare=lambda *_: None, produce=lambda *_: None, apply=lambda *_: None)
    services: Any = SimpleNamespace(ledger=SimpleNamespace(epoch="e"))
    made = Transactions(
        services,
        changelog,
        stage_name="route",
        partition=0,
        place=InputPartition("raw", 0),
        group_reads=group_reads,
        mark_alive=lambda: alive.append(0.0),
    )
    made._producer = producer  # type: ignore[assignment]
    made.commit(Commit(position=7, meta={}, outputs=[]), None, "id")  # type: ignore[arg-type]
    return alive


def test_the_group_has_no_position_of_an_input_that_is_on_another_cluster() -> None:
    producer = StubProducer()
    commit(producer, group_reads=False)
    assert producer.calls == ["begin", "commit"]


STEPS = ["begin", "send_offsets_to", "commit"]
OVERDUE = KafkaError(KafkaError._TIMED_OUT, "late", retriable=True)


def test_every_wait_of_a_commit_ends_with_a_sign_of_life() -> None:
    producer = StubProducer()
    assert len(commit(producer)) == 4  # the fourth is the delivery
    assert producer.calls == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_an_outcome_that_is_not_known_is_left_to_the_next_producer(step: str) -> None:
    producer = StubProducer(**{f"{step}_transaction": OVERDUE})
    with pytest.raises(KafkaException) as raised:
        commit(producer)
    assert raised.value.args[0] is OVERDUE
    assert "abort" not in producer.calls


@pytest.mark.parametrize("step", STEPS)
def test_a_fenced_producer_is_told_so(step: str) -> None:
    with pytest.raises(Fenced):
        commit(StubProducer(**{f"{step}_transaction": KafkaError(KafkaError._FENCED)}))


@pytest.mark.parametrize("step", STEPS)
def test_what_failed_is_aborted(step: str) -> None:
    producer = StubProducer(**{f"{step}_transaction": KafkaError(KafkaError._MSG_TIMED_OUT)})
    with pytest.raises(Aborted):
        commit(producer)
    assert producer.calls[-1] == "abort"


@pytest.mark.parametrize(
    ("first", "failed"),
    [
        (KafkaError(KafkaError._PURGE_QUEUE), OVERDUE),
        # Met in CI: no partition had been added when the right to write was missing, and the broker knew of nothing to end.
        (
            KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED),
            KafkaError(KafkaError.INVALID_TXN_STATE, "fatal", fatal=True),
        ),
    ],
    ids=["late", "never began"],
)
def test_what_went_wrong_first_is_told_where_the_transaction_cannot_even_be_aborted(first: Any, failed: Any) -> None:
    with pytest.raises(KafkaException) as raised:
        commit(StubProducer(commit_transaction=first, abort_transaction=failed))
    assert raised.value.args[0] is first
