"""A producer that hangs inside librdkafka is left behind; whoever calls it does not hang with it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.kafka import transactional
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.transactional import TransactionalProducer

CALLS: dict[str, tuple[Any, ...]] = {
    "init_transactions": (0.1,),
    "begin_transaction": (),
    "send_offsets_to_transaction": ([], None, 0.1),
    "commit_transaction": (0.1,),
    "abort_transaction": (0.1,),
}


class Stub:
    """A producer of confluent-kafka whose calls do what the test says. ``destroyed`` is set when nothing refers to it any more."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self.answer = answer
        self.calls: list[str] = []
        self.destroyed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> None:
            self.calls.append(name)
            if name not in ("purge", "flush"):
                self.answer()

        return call

    def __del__(self) -> None:
        self.destroyed.set()


def well() -> None:
    pass


def fenced() -> None:
    raise KafkaException(KafkaError(KafkaError._FENCED))


def fenced_in_a_callback() -> None:
    raise KafkaError(KafkaError._FENCED)  # type: ignore[misc]


def later() -> None:
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "later", retriable=True))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOCAL_SECONDS", "_LATE_SECONDS", "_ABORT_SECONDS", "_FLUSH_SECONDS", "_DESTROY_SECONDS"):
        monkeypatch.setattr(transactional, name, 0.1)


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """What a hanging call waits for."""
    event = threading.Event()
    yield event
    event.set()


def made(answer: Callable[[], object]) -> tuple[TransactionalProducer, list[str], threading.Event]:
    """The producer, the calls of what it holds, and whether that was destroyed. The test holds it no more."""
    stub = Stub(answer)
    return TransactionalProducer(stub), stub.calls, stub.destroyed


def raised_by(producer: TransactionalProducer, name: str) -> Any:
    try:
        getattr(producer, name)(*CALLS[name])
    except (KafkaException, KafkaError) as error:  # pytest.raises refuses KafkaError, which is no exception to it
        return error
    return None


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_hangs_is_left_behind_with_its_producer(name: str, go_on: threading.Event) -> None:
    producer, calls, destroyed = made(lambda: go_on.wait(30))
    error = raised_by(producer, name)
    assert error.args[0].code() == KafkaError._TIMED_OUT
    assert error.args[0].retriable()  # nothing is known of the call's outcome, so nothing is aborted
    assert not producer.discard()
    assert calls == [name, "purge", "flush"]
    assert not destroyed.is_set()  # the call still uses it
    go_on.set()
    assert destroyed.wait(10)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("answer", "kind"), [(fenced, KafkaException), (fenced_in_a_callback, KafkaError)])
def test_what_a_call_raises_is_the_callers(name: str, answer: Callable[[], None], kind: Any) -> None:
    error = raised_by(made(answer)[0], name)
    assert type(error) is kind
    assert (error.args[0] if kind is KafkaException else error).code() == KafkaError._FENCED


@pytest.mark.parametrize(("answer", "tried"), [(well, True), (fenced, True), (later, False)])
def test_a_discarded_producer_is_destroyed_and_aborts_only_where_that_may_help(
    answer: Callable[[], None], tried: bool
) -> None:
    producer, calls, destroyed = made(answer)
    kept = raised_by(producer, "commit_transaction")  # an error that somebody keeps must not keep the producer
    assert producer.discard()
    assert destroyed.wait(10)
    assert calls == ["commit_transaction", *(["abort_transaction"] if tried else []), "purge", "flush"]
    assert (kept is None) == (answer is well)


def test_a_producer_whose_end_hangs_does_not_hold_its_owner(go_on: threading.Event) -> None:
    producer, _, destroyed = made(lambda: go_on.wait(30))
    assert not producer.discard()
    go_on.set()
    assert destroyed.wait(10)


def test_a_real_producer_ends_without_a_broker() -> None:
    clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, application="a", quiet=True)
    producer = clients.transactional_producer("t")
    error = raised_by(producer, "init_transactions")
    assert error.args[0].code() == KafkaError._TIMED_OUT
    assert producer.discard()
