"""Raw events in Protobuf. Payloads go to protobuf itself: see avro.py. Needs the optional dependencies ``susurrus[registry]``."""

import re
from collections.abc import Sequence
from datetime import UTC
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator

from susurrus.agents.formats.confluent import ConfluentFormat, Parse
from susurrus.agents.formats.format import missing
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
    """Protobuf by the reader's own generated class, which is what resolves fields; the registry is not asked.

    setting: ``package.module:Message``. Raises ConfigurationError where it cannot be imported.
    """

    name = "protobuf"
    meaning = (
        "in Confluent's wire format, by a generated class; needs the extra `registry` (`pip install '.[registry]'`)"
    )
    setting = "message"
    example = '"package.module:Message"'

    def __init__(self, paths: Sequence[Path], setting: str) -> None:
        super().__init__(paths, setting)
        message = setting
        module, _, name = message.partition(":")
        if not module or not name:
            raise ConfigurationError(
                f"message={message!r}: name the generated Protobuf class as package.module:Message"
            )
        try:
            import_module("google.protobuf")
        except ImportError as error:
            raise missing(self.name, error) from error
        try:
            self._message: Any = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"message={message!r} cannot be imported: put the module that protoc generated on PYTHONPATH"
            ) from error

    def parser(self, schema_id: int) -> Parse:
        """The same for every id."""
        return self._parse

    def _parse(self, data: bytes) -> Any:
        return message_fields(self._message.FromString(data[_end_of_indexes(data) :]))


def _end_of_indexes(data: bytes) -> int:
    """Where the message starts: behind the zigzag varints that say which one of its file it is. Raises IndexError."""
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
    """A Protobuf message as nested dicts by field name; repeated fields and maps are left out, they are no scalars.

    Absent is what has presence and is not set; a scalar without presence has its default, as Protobuf has it.
    Timestamps become datetime, wrappers (StringValue, …) their value or absent, enum values their names.
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
