"""A partition task whose producer hangs inside librdkafka leaves it behind instead of hanging with it."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.runtime import task as task_module
from susurrus.agents.runtime.task import Fenced, PartitionTask


class StubProducer:
    """send_offsets_to_transaction as told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.answer()


def task_with(answer: Any) -> Any:
    producer = StubProducer(answer)
    return SimpleNamespace(
        _require_producer=lambda: producer, _producer=producer, _group_metadata=None, name="route-0",
        input_topic="raw", partition=0,
    )  # fmt: skip


def fail(code: int) -> Any:
    def answer() -> None:
        raise KafkaException(KafkaError(code))

    return answer


def test_a_call_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "_OFFSETS_SECONDS", -1.9)
    go_on = threading.Event()
    task = task_with(lambda: go_on.wait(30))
    try:
        with pytest.raises(TimeoutError):
            PartitionTask._send_offsets(task, 7)
        assert task._producer is None  # it is not closed either, which would wait for the call
        assert task_module._LEFT_BEHIND.pop().answer
    finally:
        go_on.set()


def test_an_answer_is_the_callers() -> None:
    PartitionTask._send_offsets(task_with(lambda: None), 7)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        PartitionTask._send_offsets(task_with(fail(KafkaError._TIMED_OUT)), 7)
    with pytest.raises(Fenced):
        PartitionTask._send_offsets(task_with(fail(KafkaError._FENCED)), 7)
