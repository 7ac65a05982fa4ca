"""The embedded broker: it comes up alone, holds what is produced, and is gone when closed."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.mechanisms.errors import SusurrusError


def test_what_is_produced_can_be_consumed() -> None:
    with EmbeddedBroker() as broker:
        assert broker.create("events") == PARTITIONS
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
        producer.produce("events", b"1", partition=3)
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 2})
        consumer.assign([TopicPartition("events", 3, 0)])
        [message] = consumer.consume(1, timeout=10)
        assert message.value() == b"1"
        consumer.close()


def test_a_closed_broker_says_so() -> None:
    broker = EmbeddedBroker()
    broker.close()
    with pytest.raises(SusurrusError, match="closed"):
        broker.create("events")


def test_it_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
        producer.produce("events", b"1")
        producer.flush(10)
    del producer
    assert capfd.readouterr() == ("", "")
