"""dead-letter: raw records that were refused, by reference. Protection class: raw, contents and counts alike.

Headers follow KIP-1034 (the dead letter queue of Kafka Streams 4.2), so that tools written for it work here: the same
six names, numbers as decimal text. `__streams.errors.exception` holds the name of the Reason where Streams has a Java
class; there is no stack trace. Key and value are empty unless the operator opts in: the raw record is where the
reference says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import MalformedRecord

EXCEPTION = "__streams.errors.exception"
MESSAGE = "__streams.errors.message"
STACKTRACE = "__streams.errors.stacktrace"
TOPIC = "__streams.errors.topic"
PARTITION = "__streams.errors.partition"
OFFSET = "__streams.errors.offset"
STAGE = "susurrus.stage"
ITEM = "susurrus.item"
VERSION_HEADER = "susurrus.schema"
VERSION = 1

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where a refused record is, and why it was refused. stage: which part of the pipeline refused it. item: which of the record's
    items it was, from 0 on, where a record was taken apart (`input.each`)."""

    reason: Reason
    topic: str
    partition: int
    offset: int
    stage: str = "route"
    item: int | None = None


def encode_headers(letter: DeadLetter) -> Headers:
    """Headers of the dead letter. Nothing in them comes from the record's own bytes."""
    item = [] if letter.item is None else [(ITEM, b"%d" % letter.item)]
    return [
        (EXCEPTION, letter.reason.name.encode()),
        (MESSAGE, letter.reason.message.encode()),
        (STACKTRACE, b""),
        (TOPIC, letter.topic.encode()),
        (PARTITION, b"%d" % letter.partition),
        (OFFSET, b"%d" % letter.offset),
        (STAGE, letter.stage.encode()),
        (VERSION_HEADER, b"%d" % VERSION),
        *item,
    ]


def decode_headers(headers: Sequence[tuple[str, bytes | None]]) -> DeadLetter:
    """Raises MalformedRecord. Of repeated headers the last counts; unknown ones are ignored."""
    found = {name: value or b"" for name, value in headers}
    try:
        return DeadLetter(
            reason=Reason[found[EXCEPTION].decode()],
            topic=found[TOPIC].decode(),
            partition=int(found[PARTITION]),
            offset=int(found[OFFSET]),
            stage=found[STAGE].decode(),
            item=int(found[ITEM]) if ITEM in found else None,
        )
    except (KeyError, ValueError) as error:
        raise MalformedRecord(f"dead letter: {type(error).__name__} in its headers") from None
