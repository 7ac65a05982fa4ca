"""Rows by a registered schema, in Confluent's wire format: column by column, or through confluent-kafka's serialisers.

A release comes as columns, and is written as columns (column_writer.py), with the bytes that the serialiser would write. Rows that
are written one by one, or hold lists, go through the serialiser.

The subject is ``<topic>-value``. The schema is looked up when a worker starts, and registered where it is not there. From then on
the worker writes that one id and asks nothing: a row has the same bytes after a crash, and in every worker.
"""

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from susurrus.agents.formats.framing import MAGIC, PREFIX
from susurrus.agents.formats.outputs.format import OutputFormat, Reader, Writer
from susurrus.agents.formats.registry import NOT_FOUND, Registry, optional_modules
from susurrus.mechanisms.errors import ConfigurationError, RegistryAway
from susurrus.topics.wire.column_writer import ColumnWriter
from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import Leaves, RowSchema, converted, restored
from susurrus.topics.wire.timestamps import format_time, milliseconds_of

_LATER: Final = (408, 429, 500, 502, 503, 504)
"""HTTP codes of a registry that may answer otherwise in a moment: it starts, or is overloaded."""
END_OF_LONG = 1 << 63
"""The first integer that signed 64 bits do not hold."""


def instant_text(instant: datetime) -> str:
    """Turns what the parsers make of an instant into its text in JSON."""
    return format_time(milliseconds_of(instant))


def serializer_properties() -> dict[str, Any]:
    """The serialisers look up what is registered already, and have it in their client's memory."""
    from confluent_kafka.schema_registry import topic_subject_name_strategy  # optional

    return {"auto.register.schemas": False, "subject.name.strategy": topic_subject_name_strategy}


class RegisteredRows(OutputFormat):
    """A format whose values name their schema by an id. Raises ConfigurationError where an optional package is missing."""

    registered = True
    packages: ClassVar[tuple[str, ...]]
    """Modules of the optional dependencies ``susurrus[registry]``."""
    written: ClassVar[Leaves]
    """Turns a JSON value's leaves into those that the serialiser takes."""
    read: ClassVar[Leaves]
    """Back."""
    columns: ClassVar[type[ColumnWriter]]
    """Writes rows that come as columns, with the bytes that the serialiser would write."""
    place: ClassVar[bytes] = b""
    """What stands between the schema's id and a row."""

    def __init__(self, registry: Registry | None) -> None:
        super().__init__(registry)
        if registry is None:
            raise ConfigurationError(f'output.registry: is missing; output.format = "{self.name}" needs its url')
        self.require()
        self.connect: Callable[[], Any] = partial(registry.client, "output.registry")
        """Makes the registry's client, a context manager. It is asked rarely, so no connection is kept."""

    @classmethod
    def require(cls) -> None:
        """Raises ConfigurationError where a package is missing."""
        optional_modules(cls.packages, f'output.format = "{cls.name}"')

    @abstractmethod
    def registered_schema(self, schema: RowSchema, namespace: str) -> Any:
        """The schema as the registry's client takes it."""

    @abstractmethod
    def serializer(self, client: Any, schema: RowSchema, namespace: str) -> Callable[[Any, Any], bytes]:
        """confluent-kafka's serialiser: from what ``written`` makes of a row, and a context. client: knows the schema."""

    @abstractmethod
    def parser(self, schema: RowSchema, namespace: str) -> Callable[[int, bytes], Any]:
        """Returns what turns a schema id and what follows it into nested dicts. Raises ConfigurationError, else anything for bad
        bytes."""

    def writer(self, topic: str, schema: RowSchema, namespace: str) -> Writer:
        """The writer that `OutputFormat.writer` asks for."""
        from confluent_kafka.serialization import MessageField, SerializationContext

        with self.connect() as client:
            schema_id = self._schema_id(client, f"{topic}-value", self.registered_schema(schema, namespace))
            serialize = self.serializer(client, schema, namespace)
        convert = converted(schema.members, self.written)
        context = SerializationContext(topic, MessageField.VALUE)
        decode = msgspec.json.Decoder().decode
        prefix = MAGIC + schema_id.to_bytes(PREFIX - len(MAGIC), "big") + self.place
        columns = self.columns(schema, prefix) if ColumnWriter.writes(schema.members) else None

        def encode(rows: PublicRows) -> list[bytes]:
            if columns is not None and rows.members is not None:
                return columns.write(rows)
            return [serialize(convert(decode(row)), context) for row in rows.json]

        return Writer(schema_id, encode)

    def look(self, topic: str, schema: RowSchema, namespace: str) -> str | None:
        """Looks as `OutputFormat.look` says."""
        subject, wanted = f"{topic}-value", self.registered_schema(schema, namespace)
        with self.connect() as client:
            if found := self.ask(subject, lambda: client.lookup_schema(subject, wanted)):
                return f"subject={subject} has the schema (id {found.schema_id})"
            # None: the subject is new.
            if self.ask(subject, lambda: client.test_compatibility(subject, wanted)) is False:
                raise self._incompatible(subject)
        return f"subject={subject} gets the schema when the first worker starts"

    def reader(self, schema: RowSchema, namespace: str) -> Reader:
        """The reader that `OutputFormat.reader` asks for."""
        parse, restore = self.parser(schema, namespace), restored(schema.members, self.read)

        def read(value: bytes) -> bytes:
            if value[:1] != MAGIC or len(value) < PREFIX:
                return value
            try:
                row = restore(parse(int.from_bytes(value[1:PREFIX], "big"), value[PREFIX:]))
            except ConfigurationError:
                raise
            except Exception as error:  # the parsers raise many types
                raise MalformedRecord(f"{schema.members.name} in {self.name}: {type(error).__name__}") from None
            return msgspec.json.encode(row)

        return read

    def ask(self, subject: str, question: Callable[[], Any]) -> Any:
        """What the registry answers, None where it does not know. Raises ConfigurationError, RegistryAway for no answer."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return question()
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in NOT_FOUND:
                return None
            said = f"HTTP {error.http_status_code} (code {error.error_code})"
            if error.http_status_code == 409:
                raise self._incompatible(subject) from None
            if error.http_status_code in (401, 403):
                raise ConfigurationError(
                    f"output.registry: {said} for subject={subject}",
                    "correct output.registry.properties, or let someone who may "
                    f"register the schema that `susurrus topics schema --format {self.name}` prints",
                ) from None
            kind = RegistryAway if error.http_status_code in _LATER else ConfigurationError
            raise kind(
                f"output.registry: {said} for subject={subject}", "check the registry and output.registry.url"
            ) from None
        except Exception as error:  # the HTTP client, TLS and proxies raise many types
            raise RegistryAway(
                f"output.registry: no answer ({type(error).__name__})",
                "start the registry, or correct output.registry.url",
            ) from None

    def _incompatible(self, subject: str) -> ConfigurationError:
        return ConfigurationError(
            f'output.format = "{self.name}": subject={subject} has a schema that this one is not compatible with',
            "compare `susurrus topics schema`; give the pipeline a new name, or delete that subject once nobody reads its rows",
        )

    def _schema_id(self, client: Any, subject: str, schema: Any) -> int:
        """The id of the schema under the subject; it is registered where it is not. Any number of workers may do so."""
        found = self.ask(subject, lambda: client.lookup_schema(subject, schema))
        if found is None:
            self.ask(subject, lambda: client.register_schema(subject, schema))
            found = self.ask(subject, lambda: client.lookup_schema(subject, schema))
        if found is None:
            raise ConfigurationError(
                f"output.registry: subject={subject} does not show the schema that was just registered",
                "start the worker again",
            )
        return int(found.schema_id)
