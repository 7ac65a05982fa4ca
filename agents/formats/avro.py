"""Raw events in Avro, by the schemas with which they were written; these come through confluent-kafka's registry client.

A schema that was found is kept: an id never means another schema. That an id was unknown is forgotten with the batch. Otherwise
one user's record would decide about all later ones of that id.
"""

import json
import time
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

from susurrus.agents.formats.confluent import MEANING, ConfluentFormat
from susurrus.agents.formats.format import Overdue, Unanswered, UnknownSchema
from susurrus.agents.formats.registry import NOT_FOUND, Registry
from susurrus.agents.types.durations import Duration
from susurrus.topics.fields import Path
from susurrus.topics.payloads import Chunk

_IDS = 1 << 31
"""Registries number schemas with Java's int. Their answer to a larger number is not about schemas."""
_ASKING_SECONDS = 5.0  # for one batch: otherwise thousands of unknown ids would look like a task that hangs


class RegistrySettings(Registry):
    """The schema registry that knows the schemas of Avro records. Where it is may change; what it knows may not."""

    patience: Duration = 10_000
    """How long after a record was written its schema may be registered: a record whose schema is unknown holds up its
    partition until then, and is bad input after that. More than the clocks of workers, brokers and registry differ."""


class Avro(ConfluentFormat):
    """Avro by the writer's registered schema. setting: where that is found.

    Raises ConfigurationError where an optional package is missing, or the registry's client refuses a property.
    """

    name = "avro"
    meaning = MEANING.format("registered schemas")
    setting = "registry"
    example = '[input.registry] url = "https://registry:8081"'
    packages = ("confluent_kafka.schema_registry", "fastavro")

    def __init__(self, paths: Sequence[Path], setting: RegistrySettings) -> None:
        super().__init__(paths, setting)
        self.patience = setting.patience
        registry, self._avro = self.modules
        self._refused = registry.SchemaRegistryError
        self._client = setting.client("input.registry")
        self._schemas: dict[int, Any] = {}
        """Schemas as fastavro parses them, by id; None for one that is not Avro's."""
        self._unknown: set[int] = set()
        """Ids that this batch has asked for in vain."""
        self._ask_until = 0.0

    def read(self, payloads: Sequence[bytes | None], overdue: Overdue) -> Iterator[Chunk]:
        """As `Format.read`; asks at most once for an id, and only for some seconds."""
        self._unknown.clear()
        self._ask_until = time.monotonic() + _ASKING_SECONDS
        return super().read(payloads, overdue)

    def record(self, schema_id: int, data: bytes) -> Any:
        """As `ConfluentFormat.record`; asks the registry until it knows the id."""
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._ask(schema_id)
        schema, stream = self._schemas[schema_id], BytesIO(data)
        if schema is None:
            raise ValueError("not a schema of Avro")
        found = self._avro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError("bytes follow the record")
        return found

    def _ask(self, schema_id: int) -> Any:
        """The schema, None for one that is not Avro's. Raises UnknownSchema, Unanswered."""
        if schema_id >= _IDS:
            raise ValueError("no schema id")
        if schema_id in self._unknown:
            raise _unknown(schema_id)
        if time.monotonic() > self._ask_until:
            raise Unanswered
        try:
            return self._parsed(self._client.get_schema(schema_id), {})
        except self._refused as error:
            if error.http_status_code == 404 and error.error_code in NOT_FOUND:
                self._unknown.add(schema_id)
                raise _unknown(schema_id) from error
            raise Unanswered(
                f"the schema registry answers HTTP {error.http_status_code} (code {error.error_code}) instead of schema "
                f"{schema_id}: check it, input.registry.url and the credentials; records wait meanwhile"
            ) from error
        except Exception as error:  # the HTTP client, TLS and proxies raise many types; no payload is involved
            raise Unanswered(
                f"the schema registry does not answer ({type(error).__name__}): start it, or correct input.registry.url; "
                "records wait meanwhile"
            ) from error

    def close(self) -> None:
        """Close the connections to the registry."""
        self._client.__exit__(None, None, None)

    def _parsed(self, schema: Any, names: dict[str, Any]) -> Any:
        """The schema with those it refers to; None when it is no Avro schema."""
        for reference in schema.references or ():
            version = self._client.get_version(reference.subject, reference.version, deleted=True)
            if self._parsed(version.schema, names) is None:
                return None
        try:
            return self._avro.parse_schema(json.loads(schema.schema_str), named_schemas=names)
        except (ValueError, KeyError, TypeError, self._avro.schema.SchemaParseException):
            return None


def _unknown(schema_id: int) -> UnknownSchema:
    return UnknownSchema(
        f"the schema registry does not know schema id={schema_id}: register that schema, or stop the producer of such "
        "records; this one becomes bad input if it stays so for input.registry.patience"
    )
