"""Records that confluent-kafka has read, as formats take records (agents/formats/beside.py)."""

from typing import Any, NamedTuple

from confluent_kafka import Message


class ReadRecord(NamedTuple):
    """One record. timestamp: in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def record_of(message: Message) -> ReadRecord:
    """A record that was read without an error."""
    # The client's types allow what only messages to be sent and errors have.
    topic, partition, offset, key, value, headers = (
        message.topic(), message.partition(), message.offset(), message.key(), message.value(), message.headers()
    )  # fmt: skip
    found: Any = (topic, partition, offset, message.timestamp()[1], key, value, headers or [])
    return ReadRecord(*found)
