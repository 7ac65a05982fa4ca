"""Kafka Connect's JsonConverter with schemas.enable: {"schema": …, "payload": …} in each record."""

from typing import Any, Final

from susurrus.agents.formats.envelopes.connect_types import converted
from susurrus.agents.formats.envelopes.envelope import Envelope
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers

_PARTS: Final = frozenset(("schema", "payload"))


class Connect(Envelope):
    """The schema in each record says what bytes, decimals, dates and times its texts and numbers stand for."""

    name = "connect"
    meaning = (
        'Kafka Connect\'s `{"schema": …, "payload": …}`; decimals, dates, times and bytes are read as the schema says, and '
        "`$envelope.schema` is its name"
    )

    def unwrap(self, value: Any, headers: Headers) -> Enveloped | Reason:
        """The payload, and the name of its schema."""
        if not is_wrapped(value):
            return Reason.NO_ENVELOPE
        payload, around = payload_of(value), {"schema": schema_name(value)}
        return Reason.TOMBSTONE if payload is None else Enveloped(payload, around)


def is_wrapped(value: Any) -> bool:
    """Whether a value is a schema and a payload."""
    return isinstance(value, dict) and value.keys() == _PARTS


def payload_of(wrapped: dict[str, Any]) -> Any:
    """The payload, with the types of its schema."""
    return converted(wrapped["payload"], wrapped["schema"])


def schema_name(wrapped: dict[str, Any]) -> str | None:
    """What the schema is called; None where it has no name."""
    schema = wrapped["schema"]
    name = schema.get("name") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else None
