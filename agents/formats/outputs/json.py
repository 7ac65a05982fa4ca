"""Rows as JSON, as they come from the codecs, and their JSON Schema."""

import json
from typing import Any

from susurrus.agents.formats.outputs.format import OutputFormat, Reader, Writer
from susurrus.topics.wire.row_schema import Leaf, Parts, RowSchema, Several, Type

_LEAVES: dict[Leaf, dict[str, Any]] = {
    Leaf.TEXT: {"type": "string"},
    Leaf.INTEGER: {"type": "integer"},
    Leaf.NUMBER: {"type": "number"},
    Leaf.INSTANT: {"type": "string", "format": "date-time"},
    Leaf.SCALAR: {"type": ["string", "number", "boolean", "null"]},
}


class JsonRows(OutputFormat):
    """One JSON object per row."""

    name = "json"
    meaning = "one object; needs no registry"
    registered = False

    @classmethod
    def text(cls, schema: RowSchema, namespace: str) -> str:
        """JSON Schema, draft 2020-12. Members of later versions are allowed, as readers must ignore them."""
        found = _schema(schema.members)
        found["properties"]["schema"]["const"] = schema.version
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": schema.members.name}
        return json.dumps({**head, "description": schema.meaning, **found}, indent=2)

    def writer(self, topic: str, schema: RowSchema, namespace: str) -> Writer:
        """The rows as they are."""
        return Writer(None, lambda rows: rows.json)

    def reader(self, schema: RowSchema, namespace: str) -> Reader:
        """The values as they are."""
        return lambda value: value


def _schema(kind: Type) -> dict[str, Any]:
    if isinstance(kind, Leaf):
        return dict(_LEAVES[kind])
    if isinstance(kind, Parts):
        parts = [_schema(field.type) | {"description": field.meaning} for field in kind.fields]
        if len(parts) == 1:
            return parts[0]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    if isinstance(kind, Several):
        return {"type": "array", "items": _schema(kind.member)}
    properties = {}
    for field in kind.fields:
        member = _schema(field.type)
        if field.presence == "nullable":
            member = {"anyOf": [member, {"type": "null"}]}
        properties[field.name] = member | {"description": field.meaning}
    required = [field.name for field in kind.fields if field.presence != "optional"]
    return {"type": "object", "properties": properties, "required": required}
