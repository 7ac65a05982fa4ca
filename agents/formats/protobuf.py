"""Raw events in Protobuf, by a generated class."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator

from susurrus.agents.finding import Finding
from susurrus.agents.formats.confluent import MEANING, ConfluentFormat
from susurrus.agents.formats.format import Headers, Overdue, RefusedPayload
from susurrus.agents.formats.message_types import class_of, is_scalar, own_file, read_indexes, unknown_fields
from susurrus.agents.formats.proto_files import ProtoFile, file_of_schema
from susurrus.agents.formats.schemas import RegistrySettings, Schemas
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.reason import Reason


def _class(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", value):
        raise ValueError("write package.module:Message")
    return value


MessageClass = Annotated[str, AfterValidator(_class)]
"""The type of `input.message`."""


class Protobuf(ConfluentFormat):
    """Protobuf by the reader's own generated class, which resolves the fields. Other types are refused.

    A record's message indexes lead to a message of the file that its schema id names in the registry. Without a registry they are
    taken to be about the class's own file, and the first messages of two files are one type.

    setting: ``package.module:Message``. registry: where schemas are found, if anywhere. Raises ConfigurationError where the class
    cannot be imported, a package is missing, or the registry's client refuses a property.
    """

    name = "protobuf"
    meaning = MEANING.format("a generated class")
    setting = "message"
    example = '"package.module:Message"'
    packages = ("google.protobuf",)
    options = ("registry",)

    def __init__(self, paths: Sequence[Path], setting: str, registry: RegistrySettings | None = None) -> None:
        super().__init__(paths, setting)
        module, _, name = setting.partition(":")
        try:
            self._message: Any = class_of(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(
                f'input.message = "{setting}": cannot be imported',
                "write package.module:Message (or Outer.Message), and put the module that protoc generated on PYTHONPATH",
            ) from error
        self._name: str = self._message.DESCRIPTOR.full_name
        self._own = own_file(self._message.DESCRIPTOR)
        self._schemas: Schemas[ProtoFile] | None = None
        if registry is not None:
            self.patience = registry.patience
            self._schemas = Schemas(registry, _parsed, follow=False)

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """Reads as `Format.read` does. It asks a registry at most once for an id, and only for some seconds."""
        if self._schemas is not None:
            self._schemas.begin()
        return super().read(payloads, overdue, headers)

    def record(self, schema_id: int, data: bytes) -> Any:
        """Reads as `ConfluentFormat.record` does. It asks the registry, if there is one, until it knows the id."""
        indexes, start = read_indexes(data)
        file = self._own if self._schemas is None else self._schemas.get(schema_id)
        if file is None:
            raise ValueError("not a schema that can be read")
        if file.name_at(indexes) != self._name:
            raise RefusedPayload(Reason.OTHER_TYPE)
        return message_fields(self._message.FromString(data[start:]))

    def close(self) -> None:
        """Close the connections to the registry."""
        if self._schemas is not None:
            self._schemas.close()

    def unknown_fields(self, paths: Sequence[Path]) -> Iterator[Finding]:
        """Answers `Format.unknown_fields` by the class."""
        return unknown_fields(self._message.DESCRIPTOR, paths)


def _parsed(schema: Any, others: list[Any]) -> ProtoFile:
    """The messages of a registered schema; of another kind of schema, no messages. Raises ValueError."""
    return file_of_schema(schema.schema_str) if schema.schema_type == "PROTOBUF" else ProtoFile("", [])


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
