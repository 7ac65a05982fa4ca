"""Raw events in Protobuf, by a generated class, a set of descriptors, or the descriptors that the registry has."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator

from susurrus.agents.finding import Finding
from susurrus.agents.formats.descriptors import class_named, file_of, files_of_set, pool_of
from susurrus.agents.formats.format import Programs, RefusedPayload
from susurrus.agents.formats.framed import MEANING, FramedFormat
from susurrus.agents.formats.framing import (
    Apicurio,
    ApicurioContentId,
    ApicurioHeader,
    Confluent,
    ConfluentHeader,
    Framed,
    SchemaName,
    Unframed,
)  # fmt: skip
from susurrus.agents.formats.message_fields import fields_reader, message_fields, tree_of
from susurrus.agents.formats.message_types import (
    class_of,
    own_file,
    read_indexes,
    read_reference,
    starts,
    unknown_fields,
)
from susurrus.agents.formats.proto_files import ProtoFile, file_of_descriptor, file_of_schema
from susurrus.agents.formats.protobuf_programs import ProtobufPrograms, Types
from susurrus.agents.formats.schemas import Other, RegistrySettings, Schemas
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason

_NAME = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"


def _message(value: str) -> str:
    if not re.fullmatch(rf"({_NAME}:)?{_NAME}", value):
        raise ValueError("write package.module:Message for a class, or package.Message for the name of a message")
    return value


MessageType = Annotated[str, AfterValidator(_message)]
"""The type of `input.message`."""


_UNTOLD = "is a name, and nothing tells its fields"
_TELL = (
    "set input.registry with a framing that has ids, or input.schema_file, or give a class as package.module:Message"
)
_ITSELF = "(the schema of the record)"
"""Its file's name among those that it imports."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """What is kept of a registered schema. file: its messages, in their order. pool: their descriptors, where they are needed."""

    file: ProtoFile
    pool: Any = None

    def message(self, name: str) -> Any:
        """The class of a message. Raises ValueError where there is no descriptor of it."""
        found = None if self.pool is None else class_named(self.pool, name)
        if found is None:
            raise ValueError("no descriptor")
        return found


class Protobuf(FramedFormat):
    """Protobuf by one type of messages. Other types are refused, or left out by a condition over `$envelope.message`.

    A record says which message of which file it is; the registry knows the file by its schema's id. Without a registry, places are
    taken to be in the file of our own type, and the first messages of two files are one type. A bare record says nothing.

    setting: ``package.module:Message``, a class that resolves the fields; or the full name of a message, whose fields the schema of
    each record resolves, or ``schema_file``, a set of descriptors. None is every type, each by its own schema. registry: where
    schemas are found, if anywhere. Raises ConfigurationError where the class cannot be imported, the message is not in the file, a
    package is missing, or the registry's client refuses a property.
    """

    name = "protobuf"
    meaning = MEANING.format("a generated class, the registry's descriptors or a file of descriptors")
    setting = "message"
    example = '"package.module:Message", or "package.Message" with input.registry or input.schema_file'
    packages = ("google.protobuf",)
    framings = tuple(
        one.name for one in (Confluent, ConfluentHeader, Apicurio, ApicurioContentId, ApicurioHeader, Unframed)
    )
    options = ("registry", "framing", "schema_file")
    around = ("message",)

    def __init__(
        self,
        paths: Sequence[Path],
        setting: str | None,
        registry: RegistrySettings | None = None,
        framing: str | None = None,
        schema_file: bytes | None = None,
    ) -> None:
        super().__init__(paths, setting, framing)
        self._wanted = tree_of(paths)
        self._message: Any = None
        """The class that resolves the fields of all records; None where each record's own schema does."""
        if setting is not None and ":" in setting:
            self._message = _imported(setting)
        elif setting is not None and schema_file is not None:
            self._message = _described(setting, schema_file)
        self._name = setting if self._message is None else self._message.DESCRIPTOR.full_name
        self._own = None if self._message is None else _Schema(own_file(self._message.DESCRIPTOR))
        if registry is not None and self.framing.asks:
            self.patience = registry.patience
            by_schema = self._message is None
            self.schemas = Schemas(
                registry,
                self._compiled if by_schema else self._parsed,
                follow=by_schema,
                written="serialized" if by_schema else None,
            )
        if self._message is None and self.schemas is None:
            raise ConfigurationError(f'input.message = "{setting}": {_UNTOLD}', _TELL)

    @classmethod
    def problems(cls, source: Any) -> Iterator[str]:
        """The name of a message needs something that says what it is."""
        yield from super().problems(source)
        if source.message is None:
            return
        is_class = ":" in source.message
        if is_class and source.schema_file is not None:
            yield f'input.schema_file: the class input.message = "{source.message}" has its own schema; leave one of them out'
        if not is_class and source.schema_file is None and (source.registry is None or not cls.asks(source)):
            yield f'input.message = "{source.message}": {_UNTOLD}; {_TELL}'

    def record(self, framed: Framed) -> Any:
        """Reads as `FramedFormat.record` does. It asks the registry, if there is one, until it knows the id."""
        name, schema, body = self._type(framed, None if self.schemas is None else self.schemas.get)
        if name is None or self._name not in (name, None):
            if self.tells:
                return Enveloped(None, {} if name is None else {"message": name}, Reason.OTHER_TYPE)
            raise RefusedPayload(Reason.OTHER_TYPE)
        return self._told(name, self._class(schema, name), body)

    def reader_of(self, framed: Framed) -> tuple[bytes, Callable[[bytes], Any]]:
        """Answers `FramedFormat.reader_of`."""
        name, schema, body = self._type(framed, None if self.schemas is None else self.schemas.known)
        if name is None or self._name not in (name, None):
            raise RefusedPayload(Reason.OTHER_TYPE)
        message = self._class(schema, name)
        parse, fields = message.FromString, fields_reader(message.DESCRIPTOR, self._wanted)
        return body, lambda payload: fields(parse(payload))

    def _type(
        self, framed: Framed, find: Callable[[SchemaName], _Schema | None] | None
    ) -> tuple[str | None, _Schema | None, bytes]:
        """The full name of a record's message in the file of its schema, None where there is none; that schema, None where nothing
        names one; and the message's bytes. find: finds a schema; None where our own type is in it."""
        if framed.schema is None:
            return self._message.DESCRIPTOR.full_name, None, framed.body
        place, body = self._place(framed)
        schema = self._own if find is None else find(framed.schema)
        if schema is None:
            raise ValueError("not a schema that can be read")
        return schema.file.named(place) if isinstance(place, str) else schema.file.name_at(place), schema, body

    def _class(self, schema: _Schema | None, name: str) -> Any:
        """The class of a message. Raises ValueError where there is none."""
        return self._message if self._message is not None or schema is None else schema.message(name)

    def programs(self, paths: Sequence[Path]) -> Programs | None:
        """Answers `Format.programs`."""
        prefix = self.framing.prefix
        if prefix is None or self.tells:
            return None
        own: Types | None = None
        if isinstance(self.framing, Unframed):
            own = [(b"", self._message.DESCRIPTOR)]
        elif self._own is not None and self.schemas is None:
            own = self._types(self._own)
        return ProtobufPrograms(prefix, paths, own, self._found)

    def _found(self, numbers: Sequence[int]) -> Iterator[tuple[int, Types]]:
        for number, schema in self.found(numbers):
            yield number, [] if schema is None else self._types(schema)

    def _types(self, schema: _Schema) -> Types:
        """The types of messages in a schema that are read."""
        found = []
        for start, name in starts(schema.file, refers=self.framing.refers):
            if self._name in (name, None):
                with suppress(ValueError):
                    found.append((start, (self._message or schema.message(name)).DESCRIPTOR))
        return found

    def _told(self, name: str, message: Any, body: bytes) -> Any:
        """A message's fields, and its name where that is asked for."""
        if not self.tells:
            return message_fields(message.FromString(body), self._wanted)
        around = {"message": name}
        try:
            return Enveloped(message_fields(message.FromString(body), self._wanted), around)
        except Exception:  # as of other payloads, but its type is known
            return Enveloped(None, around, Reason.UNDECODABLE)

    def unknown_fields(self, paths: Sequence[Path]) -> Iterator[Finding]:
        """Answers `Format.unknown_fields` by the class."""
        return iter(()) if self._message is None else unknown_fields(self._message.DESCRIPTOR, paths)

    def _place(self, framed: Framed) -> tuple[str | tuple[int, ...], bytes]:
        """Which message a record is, by its name or its place in the file, and the message's bytes. Raises RefusedPayload."""
        if framed.message is not None:
            return framed.message, framed.body
        if self.framing.refers:
            name, start = read_reference(framed.body)
            return name, framed.body[start:]
        if framed.place is not None:
            return read_indexes(framed.place)[0], framed.body
        place, start = read_indexes(framed.body)
        return place, framed.body[start:]

    @staticmethod
    def _parsed(schema: Any, others: list[Other]) -> _Schema:
        """The messages of a registered schema; of another kind of schema, no messages. Raises ValueError."""
        known = schema.schema_type in ("PROTOBUF", None)
        return _Schema(file_of_schema(schema.schema_str) if known else ProtoFile("", []))

    @staticmethod
    def _compiled(schema: Any, others: list[Other]) -> _Schema:
        """The same, with descriptors. Raises ValueError."""
        if schema.schema_type not in ("PROTOBUF", None):
            return _Schema(ProtoFile("", []))
        files = [file_of(one.schema_str) for _, one in (*others, ("", schema))]
        for file, (name, _) in zip(files, (*others, (_ITSELF, schema)), strict=True):
            file.name = name  # by which it is imported
        return _Schema(file_of_descriptor(files[-1]), pool_of(files))


def _imported(setting: str) -> Any:
    module, _, name = setting.partition(":")
    try:
        return class_of(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f'input.message = "{setting}": cannot be imported',
            "write package.module:Message (or Outer.Message), and put the module that protoc generated on PYTHONPATH",
        ) from error


def _described(name: str, schema_file: bytes) -> Any:
    try:
        found = class_named(pool_of(files_of_set(schema_file)), name)
    except ValueError as error:
        raise ConfigurationError(
            f"input.schema_file: {error}", "make it by protoc --include_imports --descriptor_set_out=FILE"
        ) from error
    if found is None:
        raise ConfigurationError(
            f'input.message = "{name}": is no message of input.schema_file', "write its full name, package.Message"
        )
    return found
