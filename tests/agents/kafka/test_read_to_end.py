"""Reading a partition to its end, where the end that a broker shows is not always the one it has told."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.kafka import clients
from susurrus.agents.kafka.clients import read_to_end


def record(offset: int) -> Any:
    return SimpleNamespace(error=lambda: None, offset=lambda: offset)


def end(offset: int) -> Any:
    return SimpleNamespace(error=lambda: KafkaError(KafkaError._PARTITION_EOF), offset=lambda: offset)


class Consumer:
    """Answers in order; then nothing more comes."""

    def __init__(self, answers: Sequence[Sequence[Any]]) -> None:
        self.answers = list(answers)
        self.assigned: list[Any] | None = None

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = partitions

    def unassign(self) -> None:
        self.assigned = None

    def consume(self, number: int, timeout: float) -> Sequence[Any]:
        return self.answers.pop(0) if self.answers else []


def offsets(consumer: Any, **options: int) -> list[int]:
    return [message.offset() for batch in read_to_end(consumer, "log", 0, 3, **options) for message in batch]


def test_reading_stops_at_the_end_as_met() -> None:
    consumer = Consumer([[record(3)], [], [record(4), end(5)], [record(5)]])
    assert offsets(consumer) == [3, 4]
    assert consumer.assigned is None


def test_an_end_before_the_one_that_was_told_is_a_replica_that_lags() -> None:
    consumer = Consumer([[record(3), end(4)], [], [record(4), record(5)], [end(7)], [record(7)]])
    assert offsets(consumer, until=7) == [3, 4, 5]


def test_waiting_gives_signs_of_life() -> None:
    consumer = Consumer([[], [], [record(3), end(4)]])
    assert [len(batch) for batch in read_to_end(consumer, "log", 0, 3)] == [0, 0, 1]  # type: ignore[arg-type]


def test_a_broker_that_stays_silent_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_SILENCE_SECONDS", -1.0)
    consumer = Consumer([[record(3), end(4)]])
    with pytest.raises(KafkaException):
        offsets(consumer, until=9)
    assert consumer.assigned is None
