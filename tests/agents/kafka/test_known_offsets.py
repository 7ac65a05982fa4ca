"""Offsets that no broker knew: librdkafka's placeholders must never pass for the ends of a log."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.requests import known_offset
from tests.agents.cycles import no_cycles


class StubAdmin:
    """Answers list_offsets with given offsets, without an error."""

    def __init__(self, earliest: int, latest: int) -> None:
        self.answers = {OffsetSpec.earliest: earliest, OffsetSpec.latest: latest}
        self.asked: list[str] = []

    def list_topics(self, topic: str, **options: Any) -> Any:
        self.asked.append("leaders")
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def list_offsets(self, specs: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, Any]:
        self.asked.append("offsets")
        futures = {}
        for tp, spec in specs.items():
            futures[tp] = Future[Any]()
            earliest = type(spec) is type(OffsetSpec.earliest())
            futures[tp].set_result(
                SimpleNamespace(offset=self.answers[OffsetSpec.earliest if earliest else OffsetSpec.latest])
            )
        return futures


def clients_with(monkeypatch: pytest.MonkeyPatch, *, earliest: int = 0, latest: int = 0, found: Any = None) -> Clients:
    clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, application="web")
    consumer = SimpleNamespace(offsets_for_times=lambda *_, **__: [found], close=lambda: None)
    monkeypatch.setattr(clients, "admin", lambda: StubAdmin(earliest, latest))
    monkeypatch.setattr(clients, "reader", lambda group: consumer)
    return clients


def test_ends_are_what_the_broker_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clients_with(monkeypatch, earliest=3, latest=9).watermarks("raw", 0) == (3, 9)
    assert clients_with(monkeypatch).watermarks("raw", 0) == (0, 0)


@pytest.mark.parametrize("ends", [{"latest": OFFSET_INVALID}, {"earliest": OFFSET_INVALID, "latest": 9}])
def test_a_broker_that_goes_away_in_the_midst_of_the_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, ends: dict[str, int]
) -> None:
    """Seen with a broker killed at that moment: a full topic that ended at -1001, and a task that refused it as truncated."""
    with pytest.raises(KafkaException) as raised:
        clients_with(monkeypatch, **ends).watermarks("raw", 0)
    assert raised.value.args[0].code() == KafkaError._TRANSPORT


def test_an_instant_behind_the_last_record_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(error=None, offset=OFFSET_END)
    assert clients_with(monkeypatch, latest=9, found=found).offset_at("raw", 0, 5) == 9
    assert clients_with(monkeypatch, latest=9, found=SimpleNamespace(error=None, offset=4)).offset_at("raw", 0, 5) == 4


@pytest.mark.parametrize(
    "found",
    [
        SimpleNamespace(error=KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), offset=OFFSET_END),
        SimpleNamespace(error=None, offset=OFFSET_INVALID),
    ],
)
def test_an_instant_that_no_look_up_found_is_not_the_end(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    with pytest.raises(KafkaException):
        clients_with(monkeypatch, latest=9, found=found).offset_at("raw", 0, 5)


def test_a_placeholder_is_no_offset() -> None:
    assert known_offset(0) == 0
    with pytest.raises(KafkaException):
        known_offset(OFFSET_INVALID)


def test_a_client_knows_who_leads_before_it_asks_for_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a loaded machine: a worker ended by SIGSEGV inside list_offsets while other tasks asked for other topics."""
    now, made = 1_000.0, []

    def admin(*_: Any, **__: Any) -> StubAdmin:
        made.append(StubAdmin(3, 9))
        return made[-1]

    monkeypatch.setattr("susurrus.agents.kafka.clients.AdminClient", admin)
    monkeypatch.setattr("susurrus.agents.kafka.clients.time.monotonic", lambda: now)
    clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, application="web")
    assert clients.watermarks("raw", 0) == clients.watermarks("raw", 1) == (3, 9)
    assert made[0].asked == ["leaders", *["offsets"] * 4]
    clients.ends([TopicPartition("other", 0)])
    assert made[0].asked[5:] == ["leaders", "offsets"]
    now += 601
    clients.ends([TopicPartition("other", 0)])
    assert made[0].asked[7:] == ["leaders", "offsets"]
    clients.close()
    clients.ends([TopicPartition("other", 0)])
    assert made[1].asked == ["leaders", "offsets"]


class StaleAdmin(StubAdmin):
    """Does not know the leader."""

    def list_offsets(self, specs: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, Any]:
        futures = super().list_offsets(specs)
        for place in futures:
            futures[place] = Future[Any]()
            futures[place].set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_LEADER_EPOCH)))
        return futures


def test_another_client_asks_again_while_brokers_disagree_about_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen just after a topic had grown: an operator's `susurrus status` must not fail with that."""
    clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, application="web")
    made = iter([StaleAdmin(0, 0), StaleAdmin(0, 0), StubAdmin(3, 9)])
    monkeypatch.setattr("susurrus.agents.kafka.clients.AdminClient", lambda *_, **__: next(made))
    assert clients.watermarks("raw", 0) == (3, 9)
    assert list(made) == []


def test_an_answer_that_is_an_error_keeps_nothing_of_those_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task asks every half a minute. The frames of one that has ended would keep its stage."""
    monkeypatch.setattr("susurrus.agents.kafka.clients._STALE_SECONDS", 0.0)
    monkeypatch.setattr("susurrus.agents.kafka.clients.AdminClient", lambda *_, **__: StaleAdmin(0, 0))
    clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, application="web")
    with no_cycles(), pytest.raises(KafkaException):
        clients.watermarks("raw", 0)


def test_brokers_that_do_not_agree_soon_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("susurrus.agents.kafka.clients._STALE_SECONDS", 0.5)
    monkeypatch.setattr("susurrus.agents.kafka.clients.AdminClient", lambda *_, **__: StaleAdmin(0, 0))
    with pytest.raises(KafkaException) as raised:
        Clients({"bootstrap.servers": "127.0.0.1:1"}, application="web").watermarks("raw", 0)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_LEADER_EPOCH
