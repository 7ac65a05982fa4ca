"""Rows as Avro records."""

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import Any

from susurrus.agents.formats.outputs.avro_columns import AvroColumns
from susurrus.agents.formats.outputs.registered import END_OF_LONG, RegisteredRows, instant_text, serializer_properties
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.wire.row_schema import Leaf, RowSchema, Several, Type
from susurrus.topics.wire.timestamps import parse_time

_UNSIGNED = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
_LEAVES: dict[Leaf, Any] = {
    Leaf.TEXT: "string",
    Leaf.INTEGER: "long",
    Leaf.NUMBER: "double",
    Leaf.INSTANT: {"type": "long", "logicalType": "timestamp-millis"},
    # The last is for integers from 2^63 on, which a long does not hold and a double would round.
    Leaf.SCALAR: ["null", "boolean", "long", "double", "string", _UNSIGNED],
}


def _branch(part: Any) -> Any:
    return Decimal(part) if type(part) is int and part >= END_OF_LONG else part


def _plain(part: Any) -> Any:
    return int(part) if isinstance(part, Decimal) else part


class AvroRows(RegisteredRows):
    """One Avro record per row; instants are of type timestamp-millis, a part of a key is a union of scalars."""

    name = "avro"
    meaning = "in Confluent's wire format; needs the extra `registry`"
    packages = ("confluent_kafka.schema_registry.avro", "fastavro")
    written = MappingProxyType({Leaf.INSTANT: parse_time, Leaf.SCALAR: _branch})
    read = MappingProxyType({Leaf.INSTANT: instant_text, Leaf.SCALAR: _plain})
    columns = AvroColumns

    @classmethod
    def text(cls, schema: RowSchema, namespace: str) -> str:
        """The Avro schema as JSON."""
        record = _schema(schema.members, set())
        return json.dumps({**record, "namespace": namespace, "doc": schema.meaning}, indent=2)

    def registered_schema(self, schema: RowSchema, namespace: str) -> Any:
        """The schema for `RegisteredRows.registered_schema`: the text as it is printed, so that others may have registered it."""
        from confluent_kafka.schema_registry import Schema

        return Schema(self.text(schema, namespace), "AVRO")

    def serializer(self, client: Any, schema: RowSchema, namespace: str) -> Callable[[Any, Any], bytes]:
        """The serialiser that `RegisteredRows.serializer` asks for."""
        from confluent_kafka.schema_registry.avro import AvroSerializer

        found: Callable[[Any, Any], bytes] = AvroSerializer(
            client, self.registered_schema(schema, namespace), conf=serializer_properties()
        )
        return found

    def parser(self, schema: RowSchema, namespace: str) -> Callable[[int, bytes], Any]:
        """Parses by the writer's schema, from the registry: an older worker may have written another one."""
        import fastavro

        known: dict[int, Any] = {}

        def parse(schema_id: int, data: bytes) -> Any:
            if schema_id not in known:
                with self.connect() as client:
                    asked = self.ask(f"id {schema_id}", partial(client.get_schema, schema_id))
                if asked is None:
                    raise ConfigurationError(
                        f"output.registry: does not know schema id={schema_id}, by which rows are written",
                        "correct output.registry.url, or restore the registry",
                    )
                known[schema_id] = fastavro.parse_schema(json.loads(asked.schema_str))
            return fastavro.schemaless_reader(BytesIO(data), known[schema_id], None)

        return parse


def _schema(kind: Type, named: set[str]) -> Any:
    """named: the types that have been written before; Avro names them from then on."""
    if isinstance(kind, Leaf):
        return _LEAVES[kind]
    if isinstance(kind, Several):
        return {"type": "array", "items": _schema(kind.member, named)}
    if kind.name in named:
        return kind.name
    named.add(kind.name)
    fields = []
    for field in kind.fields:
        member = _schema(field.type, named)
        of: dict[str, Any] = {"name": field.label, "type": member, "doc": field.meaning}
        if field.presence != "always":
            of |= {"type": ["null", member], "default": None}
        fields.append(of)
    return {"type": "record", "name": kind.name, "fields": fields}
