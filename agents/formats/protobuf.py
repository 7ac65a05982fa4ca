"""Raw events in Protobuf, by a generated class."""

import re
from collections.abc import Sequence
from datetime import UTC
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator

from susurrus.agents.formats.confluent import MEANING, ConfluentFormat
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.fields import Path

_NESTED_MESSAGES = 100  # protobuf's own limit of nesting


def _class(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("write package.module:Message")
    return value


MessageClass = Annotated[str, AfterValidator(_class)]
"""The type of `input.message`."""


class Protobuf(ConfluentFormat):
    """Protobuf by the reader's own generated class, which resolves the fields; the registry is not asked.

    setting: ``package.module:Message``. Raises ConfigurationError where it cannot be imported.
    """

    name = "protobuf"
    meaning = MEANING.format("a generated class")
    setting = "message"
    example = '"package.module:Message"'
    packages = ("google.protobuf",)

    def __init__(self, paths: Sequence[Path], setting: str) -> None:
        super().__init__(paths, setting)
        module, _, name = setting.partition(":")
        try:
            self._message: Any = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(
                f'input.message = "{setting}": cannot be imported; write package.module:Message, and put the module that '
                "protoc generated on PYTHONPATH"
            ) from error

    def record(self, schema_id: int, data: bytes) -> Any:
        """As `ConfluentFormat.record`; the same for every id."""
        return message_fields(self._message.FromString(data[end_of_indexes(data) :]))


def end_of_indexes(data: bytes) -> int:
    """Where the message starts: behind the zigzag varints that say which message of its file it is. Raises IndexError."""
    count, at = _varint(data, 0)
    if count > _NESTED_MESSAGES:
        raise ValueError("message indexes nest too deep")
    for _ in range(count):
        _, at = _varint(data, at)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        if shift > 63:
            raise ValueError("a varint is too long")


def message_fields(message: Any) -> dict[str, Any]:
    """A Protobuf message as nested dicts by field name, without repeated fields and maps, which are no scalars.

    A field with presence that is not set is absent; a scalar without presence has Protobuf's default. Timestamps become datetime,
    wrappers (StringValue, …) their value or absent, enum values their names.
    """
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated or (field.has_presence and not message.HasField(field.name)):
            continue
        value = getattr(message, field.name)
        if field.message_type is not None:
            value = _known_message(field.message_type.full_name, value)
        elif field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            value = value if known is None else known.name
        fields[field.name] = value
    return fields


def _known_message(name: str, message: Any) -> Any:
    if name == "google.protobuf.Timestamp":
        return message.ToDatetime(UTC)
    if name.startswith("google.protobuf.") and name.endswith("Value") and "value" in message.DESCRIPTOR.fields_by_name:
        return message.value
    return message_fields(message)
