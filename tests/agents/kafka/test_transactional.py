"""A producer that hangs inside librdkafka is left behind; whoever calls it does not hang with it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.kafka import transactional
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.transactional import TransactionalProducer


@pytest.fixture
def producer() -> Iterator[TransactionalProducer]:
    """Of a cluster that does not answer."""
    clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, application="a", quiet=True)
    yield clients.transactional_producer("t")
    transactional._LEFT_BEHIND.clear()


def fail(error: Any) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_a_call_that_hangs_is_left_behind_and_so_is_its_producer(producer: TransactionalProducer) -> None:
    go_on = threading.Event()
    try:
        with pytest.raises(KafkaException, match="_TIMED_OUT") as overdue:
            producer._in_time(lambda: go_on.wait(30), -1.9)
        assert overdue.value.args[0].retriable()  # nothing is known of the call's outcome, so nothing is aborted
        assert producer.hangs
        assert producer in transactional._LEFT_BEHIND
        assert not producer.discard()  # which would wait for the call
        assert producer in transactional._LEFT_BEHIND
    finally:
        go_on.set()


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._FENCED)), KafkaError(KafkaError._FENCED)])
def test_what_a_call_raises_is_the_callers(producer: TransactionalProducer, error: Any) -> None:
    raised: Any = None
    try:
        producer._in_time(fail(error), 30.0)
    except (KafkaException, KafkaError) as found:  # pytest.raises refuses KafkaError, which is no exception to it
        raised = found
    assert raised is error
    assert not producer.hangs


def test_every_transactional_call_may_be_left_behind(
    producer: TransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, float] = {}
    monkeypatch.setattr(TransactionalProducer, "_in_time", lambda self, call, timeout: limits.update({name: timeout}))
    calls: dict[str, tuple[Any, ...]] = {
        "init_transactions": (1.0,),
        "begin_transaction": (),
        "send_offsets_to_transaction": ([], None, 2.0),
        "commit_transaction": (3.0,),
        "abort_transaction": (4.0,),
        "discard": (),
    }
    for name, arguments in calls.items():
        getattr(producer, name)(*arguments)
    assert limits == {
        "init_transactions": 1.0,
        "begin_transaction": 5.0,
        "send_offsets_to_transaction": 2.0,
        "commit_transaction": 3.0,
        "abort_transaction": 4.0,
        "discard": 10.0,
    }
    assert {name for name in dir(TransactionalProducer) if name.endswith(("_transaction", "_transactions"))} < set(
        calls
    )


def test_a_time_out_of_librdkafka_is_no_hang(producer: TransactionalProducer) -> None:
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        producer.init_transactions(0.1)
    assert producer.discard()
    assert not transactional._LEFT_BEHIND


def test_what_closing_raises_stays_there(producer: TransactionalProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[None] = []
    monkeypatch.setattr(producer, "purge", fail(KafkaError(KafkaError._FENCED)), raising=False)
    monkeypatch.setattr(producer, "close", lambda: closed.append(None), raising=False)
    assert producer.discard()
    assert closed == [None]
