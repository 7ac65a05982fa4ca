"""Raw events in Avro or Protobuf: schemas turn payloads into plain objects, topics/raw.py turns those into columns.

A stage that reads raw events calls ``decode`` on one of these exactly as on a ``RawDecoder``. What a payload holds
never raises: one that is not in Confluent's wire format or does not follow its schema is refused as UNDECODABLE. One whose
schema cannot be had ends the batch before it, and the caller offers it again: while the registry does not answer, for an
outage must not send good records to the dead-letter topic; and while it does not know the id, until the caller says that
this has lasted long enough. A schema that was found is kept for ever, for an id never means another one; that an id was
unknown is forgotten with the batch, or one user's record would decide about all later ones of that id.

Schemas come through confluent-kafka's registry client; payloads go to fastavro and protobuf directly, because that
client's own deserializers look up associations and rules for every record (measured: 11 to 17 us against 5 us). Rules and
encryption of data contracts are therefore not applied. Needs the optional dependencies ``susurrus[registry]``.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from importlib import import_module
from io import BytesIO
from typing import Any, Final, Protocol

from susurrus.agents.config.sections import InputSettings
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.raw import RawColumns, RawDecoder, RawSchema, Reason

_MAGIC = b"\0"
_PREFIX = 5  # magic byte and schema id, big-endian
_IDS = (
    1 << 31
)  # registries number schemas with Java's int; a larger number is no id, and they answer it in ways of their own
_ASKING_SECONDS = 5.0  # for one batch, or thousands of unknown ids would look like a task that hangs
_NESTED_MESSAGES = 100  # protobuf's own limit of nesting
_NOT_FOUND: Final = (40401, 40402, 40403)
"""The registry's own codes for an unknown subject, version or schema. Any other 404 comes from something that is no
registry, or from a wrong path, and says nothing about the schema."""
_REGISTRY_DEFAULTS: Final = {"timeout": 10, "max.retries": 0}
"""The client waits for ever otherwise, and would repeat; the stage repeats, and says so in between."""
_NUMBERS: Final = (
    "timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec"
)  # fmt: skip

Read = Callable[[bytes], Any]
Overdue = Callable[[int], bool]
"""Whether the payload of a row may wait for its schema no longer: an unknown one is then bad input."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns of the first ``len(columns)`` payloads. ``waits``: what the one behind them waits for; None while nothing keeps
    the caller from offering it again at once."""

    columns: RawColumns
    waits: str | None = None


class Decoder(Protocol):
    """Raw events of any format."""

    def decode(self, payloads: Sequence[bytes | None], overdue: Overdue) -> Decoded:
        """Columns of a batch of payloads, up to the first whose schema cannot be had."""

    def close(self) -> None:
        """Give back connections."""


def decoder_of(source: InputSettings, schema: RawSchema) -> Decoder:
    """The decoder of ``input.format``. Raises ConfigurationError where it lacks a package, a class or a property."""
    raw = RawDecoder(schema)
    if source.format == "avro" and source.registry is not None:
        return AvroDecoder(raw, {"url": source.registry.url, **source.registry.properties})
    if source.format == "protobuf" and source.message is not None:
        return ProtobufDecoder(raw, source.message)
    return JsonDecoder(raw)


class JsonDecoder:
    """JSON needs nothing but the payload."""

    def __init__(self, decoder: RawDecoder) -> None:
        self._decoder = decoder

    def decode(self, payloads: Sequence[bytes | None], overdue: Overdue) -> Decoded:
        """Columns of the whole batch."""
        return Decoded(self._decoder.decode(payloads))

    def close(self) -> None:
        """Nothing to give back."""


class _UnknownError(Exception):
    """The registry does not know this id."""

    def __init__(self, schema_id: int) -> None:
        super().__init__(
            f"the schema registry does not know schema id={schema_id}: register that schema, or stop whoever writes such "
            "records; this one becomes bad input if it stays so for input.registry.patience"
        )


class _UnansweredError(Exception):
    """The registry was not asked any more (no text), or did not answer. Says nothing about the schema."""


class ObjectDecoder:
    """What the formats share: payloads to objects or reasons, and those to columns."""

    def __init__(self, decoder: RawDecoder) -> None:
        self._decoder = decoder

    def decode(self, payloads: Sequence[bytes | None], overdue: Overdue) -> Decoded:
        """Columns of a batch as RawDecoder.decode's, up to the first payload whose schema cannot be had."""
        objects: list[Mapping[str, Any] | Reason | None] = []
        waits = None
        for row, payload in enumerate(payloads):
            try:
                objects.append(self._object(payload))
            except _UnknownError as unknown:
                if not overdue(row):
                    waits = str(unknown)
                    break
                objects.append(Reason.UNDECODABLE)
            except _UnansweredError as unanswered:
                waits = str(unanswered) or None
                break
        return Decoded(self._decoder.decode_objects(objects), waits)

    def close(self) -> None:
        """Nothing to give back."""

    def reader(self, schema_id: int) -> Read | None:
        """Reads the bytes behind the prefix; None for what is no schema. Raises _UnknownError, _UnansweredError."""
        raise NotImplementedError

    def _object(self, payload: bytes | None) -> Mapping[str, Any] | Reason | None:
        if payload is None:
            return None
        if not payload:
            return Reason.EMPTY
        if payload[:1] != _MAGIC or len(payload) < _PREFIX:
            return Reason.UNDECODABLE
        read = self.reader(int.from_bytes(payload[1:_PREFIX], "big"))
        if read is None:
            return Reason.UNDECODABLE
        try:
            found = read(payload[_PREFIX:])
        except Exception:  # a parser of hostile bytes may raise anything, and nothing but the bytes is involved here
            return Reason.UNDECODABLE
        return found if isinstance(found, Mapping) else Reason.WRONG_TYPE


class AvroDecoder(ObjectDecoder):
    """Avro by the writer's registered schema.

    registry: properties of confluent_kafka's SchemaRegistryClient (``url``, ``basic.auth.user.info``, …). Raises
    ConfigurationError when the optional dependencies are missing.
    """

    def __init__(self, decoder: RawDecoder, registry: Mapping[str, Any]) -> None:
        super().__init__(decoder)
        try:
            schema_registry = import_module("confluent_kafka.schema_registry")
            self._avro = import_module("fastavro")
        except ImportError as error:
            raise _missing("avro", error) from error
        self._registry_error = schema_registry.SchemaRegistryError
        try:
            properties = {name: _number(value) if name in _NUMBERS else value for name, value in registry.items()}
            self._client = schema_registry.SchemaRegistryClient({**_REGISTRY_DEFAULTS, **properties})
        except (ValueError, TypeError, OSError) as error:
            # The client's own text may hold what was given, a password among it.
            names = ", ".join(sorted(name for name in registry if name != "url")) or "none"
            raise ConfigurationError(
                f"input.registry: refused by the registry's client ({type(error).__name__}; properties: {names}); correct "
                "url, names and files"
            ) from None
        self._readers: dict[int, Read | None] = {}
        self._unknown: set[int] = set()
        """Of this batch."""
        self._ask_until = 0.0

    def decode(self, payloads: Sequence[bytes | None], overdue: Overdue) -> Decoded:
        """As ObjectDecoder's; asks at most once for an id, and not for longer than some seconds."""
        self._unknown.clear()
        self._ask_until = time.monotonic() + _ASKING_SECONDS
        return super().decode(payloads, overdue)

    def reader(self, schema_id: int) -> Read | None:
        """Asks the registry until it knows the id."""
        if schema_id in self._readers:
            return self._readers[schema_id]
        if schema_id >= _IDS:
            return None
        if schema_id in self._unknown:
            raise _UnknownError(schema_id)
        if time.monotonic() > self._ask_until:
            raise _UnansweredError
        parsed = self._ask(schema_id)
        return self._readers.setdefault(schema_id, None if parsed is None else lambda data: self._read(parsed, data))

    def _ask(self, schema_id: int) -> Any:
        """The schema, None for one that is not Avro's. Raises _UnknownError, _UnansweredError."""
        try:
            return self._parse(self._client.get_schema(schema_id), {})
        except self._registry_error as error:
            if error.http_status_code == 404 and error.error_code in _NOT_FOUND:
                self._unknown.add(schema_id)
                raise _UnknownError(schema_id) from error
            raise _UnansweredError(
                f"the schema registry answers HTTP {error.http_status_code} (code {error.error_code}) instead of schema "
                f"{schema_id}: check it, input.registry.url and the credentials; records wait meanwhile"
            ) from error
        except Exception as error:  # whatever the HTTP client, TLS or a proxy come up with: no payload is involved
            raise _UnansweredError(
                f"the schema registry does not answer ({type(error).__name__}): start it, or correct input.registry.url; "
                "records wait meanwhile"
            ) from error

    def close(self) -> None:
        """Close the connections to the registry."""
        self._client.__exit__(None, None, None)

    def _parse(self, schema: Any, names: dict[str, Any]) -> Any:
        """The schema with those it refers to; None when it is no Avro schema."""
        for reference in schema.references or ():
            version = self._client.get_version(reference.subject, reference.version, deleted=True)
            if self._parse(version.schema, names) is None:
                return None
        try:
            return self._avro.parse_schema(json.loads(schema.schema_str), named_schemas=names)
        except (ValueError, KeyError, TypeError, self._avro.schema.SchemaParseException):
            return None

    def _read(self, schema: Any, data: bytes) -> Any:
        stream = BytesIO(data)
        found = self._avro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError("bytes follow the record")
        return found


class ProtobufDecoder(ObjectDecoder):
    """Protobuf by the reader's own generated class, which is what resolves fields; the registry is not asked.

    message: ``package.module:Message``. Raises ConfigurationError.
    """

    def __init__(self, decoder: RawDecoder, message: str) -> None:
        super().__init__(decoder)
        module, _, name = message.partition(":")
        if not module or not name:
            raise ConfigurationError(
                f"message={message!r}: name the generated Protobuf class as package.module:Message"
            )
        try:
            import_module("google.protobuf")
        except ImportError as error:
            raise _missing("protobuf", error) from error
        try:
            self._message: Any = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"message={message!r} cannot be imported: put the module that protoc generated on PYTHONPATH"
            ) from error

    def reader(self, schema_id: int) -> Read | None:
        """The same for every id."""
        return self._read

    def _read(self, data: bytes) -> Any:
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


def _missing(name: str, error: ImportError) -> ConfigurationError:
    return ConfigurationError(f'input.format = "{name}": needs the package {error.name}; install susurrus[registry]')


def _number(value: Any) -> Any:
    """Variables and files hold texts; the client insists on numbers."""
    try:
        return float(value)
    except ValueError:
        return value
