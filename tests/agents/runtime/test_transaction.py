"""A producer that hangs inside librdkafka is left behind; its task does not hang with it."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.runtime import transaction
from susurrus.agents.runtime.transaction import Fenced, Transactions


class StubProducer:
    """Answers send_offsets_to_transaction as the test says."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.answer()


def transactions_with(answer: Any) -> Any:
    services: Any = SimpleNamespace()
    made = Transactions(services, services, stage_name="route", partition=0, input_topic="raw", mark_alive=lambda: None)
    made._producer = StubProducer(answer)  # type: ignore[assignment]
    return made


def fail(code: int) -> Any:
    def answer() -> None:
        raise KafkaException(KafkaError(code))

    return answer


def test_a_call_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "_OFFSETS_SECONDS", -1.9)
    go_on = threading.Event()
    transactions = transactions_with(lambda: go_on.wait(30))
    try:
        with pytest.raises(TimeoutError):
            transactions._send_offsets(7)
        assert transactions._producer is None  # it is not closed either, which would wait for the call
        assert transaction._LEFT_BEHIND.pop().answer
    finally:
        go_on.set()


def test_an_answer_is_the_callers() -> None:
    transactions_with(lambda: None)._send_offsets(7)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        transactions_with(fail(KafkaError._TIMED_OUT))._send_offsets(7)
    with pytest.raises(Fenced):
        transactions_with(fail(KafkaError._FENCED))._send_offsets(7)
