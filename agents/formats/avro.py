"""Raw events in Avro, by the schemas with which they were written; these come through confluent-kafka's registry client."""

import json
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

from susurrus.agents.formats.avro_guard import costly, short, walk
from susurrus.agents.formats.confluent import MEANING, ConfluentFormat
from susurrus.agents.formats.format import Headers, Overdue
from susurrus.agents.formats.schemas import RegistrySettings, Schemas
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Chunk


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
        _, self._avro = self.modules
        for name in ("bytes-decimal", "fixed-decimal"):
            readers = self._avro.read.LOGICAL_READERS
            if readers[name].__module__ != short.__module__:
                readers[name] = short(readers[name])
        self._schemas: Schemas[Any] = Schemas(setting, self._parsed)
        """The schemas as fastavro parses them; None for one that is not Avro's."""
        self._costly: dict[int, dict[str, Any]] = {}
        """The definitions of names, for each schema whose payloads must be walked. The key is the schema's identity: `Schemas`
        keeps what it found."""

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """Reads as `Format.read` does. It asks at most once for an id, and only for some seconds."""
        self._schemas.begin()
        return super().read(payloads, overdue, headers)

    def record(self, schema_id: int, data: bytes) -> Any:
        """Reads as `ConfluentFormat.record` does. It asks the registry until it knows the id."""
        schema, stream = self._schemas.get(schema_id), BytesIO(data)
        if schema is None:
            raise ValueError("not a schema of Avro")
        if id(schema) in self._costly:
            walk(data, schema, self._costly[id(schema)])
        record = self._avro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError("bytes follow the record")
        return record

    def close(self) -> None:
        """Close the connections to the registry."""
        self._schemas.close()

    def _parsed(self, schema: Any, others: list[Any]) -> Any:
        """The schema with those it refers to. Raises whatever fastavro raises where one is no Avro schema."""
        names: dict[str, Any] = {}
        for one in (*others, schema):
            if getattr(one, "schema_type", None) not in (None, "AVRO"):
                return None
            parsed = self._avro.parse_schema(json.loads(one.schema_str), named_schemas=names)
        if costly(parsed, names):
            self._costly[id(parsed)] = names
        return parsed
