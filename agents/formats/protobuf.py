"""Raw events in Protobuf, by a generated class."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator

from susurrus.agents.formats.confluent import MEANING, ConfluentFormat
from susurrus.agents.formats.format import Refused
from susurrus.agents.formats.message_types import class_of, indexes_of, is_scalar, read_indexes, unknown_fields
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.fields import Path
from susurrus.topics.reason import Reason


def _class(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", value):
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
            self._message: Any = class_of(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(
                f'input.message = "{setting}": cannot be imported; write package.module:Message (or Outer.Message), and put the '
                "module that protoc generated on PYTHONPATH"
            ) from error
        self._indexes = indexes_of(self._message.DESCRIPTOR)

    def record(self, schema_id: int, data: bytes) -> Any:
        """As `ConfluentFormat.record`; of every id, a message with the class's place in its file."""
        indexes, start = read_indexes(data)
        if indexes != self._indexes:
            raise Refused(Reason.OTHER_TYPE)
        return message_fields(self._message.FromString(data[start:]))

    def unknown_fields(self, paths: Sequence[Path]) -> Iterator[str]:
        """As `Format.unknown_fields`, by the class."""
        return unknown_fields(self._message.DESCRIPTOR, paths)


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
    if not is_scalar(message.DESCRIPTOR):
        return message_fields(message)
    return message.ToDatetime(UTC) if name == "google.protobuf.Timestamp" else message.value
