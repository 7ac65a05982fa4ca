"""A look at a topic's records: what a schema or an object says of fields, and that no value is needed for it."""

import contextlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.formats.registry import Registry
from susurrus.agents.operations import sample
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.kafka.test_profiles import settings

SCHEMA = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "user", "type": ["null", "string"]},
        {"name": "bytes", "type": "long"},
        {"name": "geo", "type": {"type": "record", "name": "Geo", "fields": [{"name": "country", "type": "string"}]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
    ],
}


def with_registry(monkeypatch: pytest.MonkeyPatch, schema: Any, kind: str = "AVRO") -> Any:
    @contextlib.contextmanager
    def client(self: Registry, place: str) -> Iterator[Any]:
        def get_schema(number: int) -> Any:
            if isinstance(schema, Exception):
                raise schema
            return SimpleNamespace(schema_type=kind, schema_str=json.dumps(schema))

        yield SimpleNamespace(get_schema=get_schema)

    monkeypatch.setattr(Registry, "client", client)
    source = {"topic": "raw", "user": "u", "key": ["k"], "format": "avro", "registry": {"url": "http://r:1"}}
    return settings({}, input=source)


def looked(ours: Any, records: list[bytes], monkeypatch: pytest.MonkeyPatch) -> sample.Found:
    monkeypatch.setattr(sample, "reach", lambda settings: None)
    monkeypatch.setattr(sample, "_newest", lambda clients, topic: ((record, 0) for record in records))
    return sample.look(ours)


def test_an_avro_schema_names_the_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    found = looked(with_registry(monkeypatch, SCHEMA), [b"\0\0\0\0\7payload"] * 2, monkeypatch)
    assert found.fields == {"user": "text", "bytes": "number", "geo.country": "text", "at": "number", "kind": "other"}
    assert (found.coded, found.seen["bytes"], found.values) == (2, 2, {})


def test_without_a_registry_the_records_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = looked(settings({}), [b"\0\0\0\0\7payload"], monkeypatch)
    assert (found.coded, found.fields) == (1, {})


@pytest.mark.parametrize(
    ("schema", "kind", "says"),
    [
        (SCHEMA, "PROTOBUF", "the schema of the topic's records is PROTOBUF; name the fields yourself"),
        (
            RuntimeError("http://me:hunter2@r"),
            "AVRO",
            r"has no Avro schema .*\(RuntimeError\); correct input.registry.url",
        ),
    ],
)
def test_what_cannot_be_named_is_said_without_an_address(
    schema: Any, kind: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        looked(with_registry(monkeypatch, schema, kind), [b"\0\0\0\0\7payload"], monkeypatch)
    assert "hunter2" not in str(refused.value)


def test_objects_of_json_and_what_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [b'{"a": null, "b": {"c.d": 1}}', b'{"a": "x", "b": {"e": [1]}}', b"not json", b"[1]"]
    found = looked(settings({}), records, monkeypatch)
    assert found.fields == {"a": "text", "b.c\\.d": "number", "b.e": "list"}
    assert (found.records, found.seen["a"], found.seen["b.e"]) == (4, 2, 1)
