"""What a fenced producer raises while its records are on their way, on a real broker: nothing but KafkaException."""

import contextlib
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.requests import deliver
from tests.broker import Broker


def test_a_fenced_producer_is_told_so_by_its_delivery(kafka: Broker) -> None:
    clients = Clients({"bootstrap.servers": kafka.bootstrap_servers}, application="fenced")
    topic = f"fenced-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    reports: list[KafkaError | None] = []

    def report(error: KafkaError | None, message: object) -> None:
        reports.append(error)

    def owner() -> Producer:
        producer = clients.transactional_producer(topic)
        producer.init_transactions(30.0)
        return producer

    first = owner()
    first.begin_transaction()
    first.produce(topic, b"delivered", partition=0, on_delivery=report)
    assert deliver(first, 30.0) == 0
    assert reports == [None]
    owner()
    with contextlib.suppress(KafkaException):  # the broker may have refused the first ones while others are added
        for _ in range(100):
            first.produce(topic, b"too late", partition=0, on_delivery=report)
    with pytest.raises(KafkaException) as fenced:
        deliver(first, 30.0)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    assert reports == [None]  # no callback ran into the exception
