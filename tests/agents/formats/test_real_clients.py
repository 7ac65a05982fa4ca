"""What confluent-kafka's own serializers write, with a real registry: prefixes and headers, types by the registry's schema."""

import contextlib
import json
import struct
import sys
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers

pytest.importorskip("fastavro")
pytest.importorskip("authlib")
pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

AVRO = {
    "type": "record",
    "name": "Visit",
    "namespace": "real",
    "fields": [{"name": "u", "type": "string"}, {"name": "k", "type": "Page"}],
}
PAGE = {"type": "record", "name": "Page", "namespace": "real", "fields": [{"name": "url", "type": "string"}]}
JSON = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Visit", "type": "object"}
VISIT = {"u": "ann", "k": {"url": "/"}}


@pytest.fixture
def client(schema_registry: str) -> Iterator[Any]:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with SchemaRegistryClient({"url": schema_registry}) as made:
        yield made


def context(part: str = "value") -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(f"real-{uuid4().hex}", MessageField.KEY if part == "key" else MessageField.VALUE, [])


def read(form: Format, payload: bytes, headers: Headers) -> Any:
    [chunk] = form.read([payload], lambda row: False, [headers])
    assert form.waits is None
    return chunk.refused.get(0) or chunk.pending.get(0) or [column[0] for column in chunk.columns]


def serialized(make: Any, value: Any, part: str = "value") -> tuple[bytes, Headers]:
    """A record by a serializer. make: is given its settings."""
    where = context(part)
    payload = make(value, where)
    return payload, list(where.headers or [])


def test_avro_by_prefix_and_by_header(client: Any, schema_registry: str) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroSerializer

    subject = f"page-{uuid4().hex}"
    client.register_schema(subject, Schema(json.dumps(PAGE), "AVRO"))
    schema = Schema(json.dumps(AVRO), "AVRO", [SchemaReference("real.Page", subject, 1)])
    payload, headers = serialized(AvroSerializer(client, schema), VISIT)
    assert (payload[:1], headers) == (b"\0", [])
    number = payload[1:5]
    paths = [("u",), ("k", "url"), parse_path("$envelope.schema")]
    wanted = ["ann", "/", "real.Visit"]
    setting = RegistrySettings(url=schema_registry)
    with contextlib.closing(Avro(paths, setting)) as form:
        assert read(form, payload, headers) == wanted
        assert read(form, payload[5:], [("__value_schema_id", b"\0" + number)]) is Reason.FRAMING_CONFLUENT_HEADER
    with contextlib.closing(Avro(paths, setting, "confluent-header")) as form:
        assert read(form, payload, headers) == wanted
        assert read(form, payload[5:], [("__value_schema_id", b"\0" + number)]) == wanted


def test_avro_by_apicurios_own_ids(client: Any, schema_registry: str) -> None:
    """Also a schema that refers to another one, which Apicurio puts in its place."""
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroSerializer

    subject, name = f"page-{uuid4().hex}", f"visit-{uuid4().hex}"
    client.register_schema(subject, Schema(json.dumps(PAGE), "AVRO"))
    schema = Schema(json.dumps({**AVRO, "doc": name}), "AVRO", [SchemaReference("real.Page", subject, 1)])
    client.register_schema(name, schema)
    data = serialized(AvroSerializer(client, schema), VISIT)[0][5:]
    own = schema_registry.replace("/apis/ccompat/v7", "/apis/registry/v2")
    with urllib.request.urlopen(f"{own}/groups/default/artifacts/{name}/meta", timeout=30) as answer:
        meta = json.load(answer)
    for framing, number in (("apicurio", meta["globalId"]), ("apicurio-content-id", meta["contentId"])):
        eight = struct.pack(">q", number)
        with contextlib.closing(Avro([("u",), ("k", "url")], RegistrySettings(url=own), framing)) as form:
            assert read(form, b"\0" + eight + data, []) == ["ann", "/"]
            [chunk] = form.read([b"\0" + struct.pack(">q", 2**30) + data], lambda row: False, [[]])
            assert (chunk.rows, "does not know schema" in str(form.waits)) == (0, True)
        header = f"apicurio.value.{'globalId' if framing == 'apicurio' else 'contentId'}"
        with contextlib.closing(Avro([("u",)], RegistrySettings(url=own), "apicurio-header")) as form:
            assert read(form, data, [(header, eight)]) == ["ann"]


def test_json_schema_by_prefix(client: Any) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    payload, headers = serialized(JSONSerializer(json.dumps(JSON), client), VISIT)
    paths = [("u",), ("k", "url")]
    assert read(Json(paths, None, "confluent"), payload, headers) == ["ann", "/"]
    assert read(Json(paths, None, "confluent-header"), payload, headers) == ["ann", "/"]
    assert read(Json(paths, None), payload, headers) is Reason.FRAMING_CONFLUENT
    assert read(Json(paths, None, "confluent"), payload[5:], headers) is Reason.UNDECODABLE


@pytest.mark.parametrize("part", ["value", "key"])
def test_headers_as_the_serializer_writes_them(client: Any, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With GUIDs, which the registry of the tests does not have: it is told one, as newer registries tell it."""
    from attrs import evolve
    from confluent_kafka.schema_registry import header_schema_id_serializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    known = client.register_schema_full_response
    guid = str(uuid4())
    told = lambda *given, **named: evolve(known(*given, **named), guid=guid)  # noqa: E731
    monkeypatch.setattr(client, "register_schema_full_response", told)
    make = JSONSerializer(json.dumps(JSON), client, conf={"schema.id.serializer": header_schema_id_serializer})
    payload, headers = serialized(make, VISIT, part)
    assert [name for name, _ in headers] == [f"__{part}_schema_id"]
    form = Json([("u",)], None, "confluent-header")
    form.part = part
    assert payload[:1] == b"{"
    assert read(form, payload, headers) == ["ann"]


def classes() -> dict[str, Any]:
    """Two messages of two files, which import another file; as protoc would make their classes."""
    from google.protobuf import descriptor_pool, duration_pb2, message_factory, struct_pb2, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, struct_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    item = pb2.FileDescriptorProto(name="real/item.proto", package="real", syntax="proto3")
    item.message_type.add(name="Item").field.add(name="sku", number=1, label=1, type=9)
    pool.Add(item)
    for name in ("View", "Buy"):
        file = pb2.FileDescriptorProto(name=f"real/{name.lower()}.proto", package="real", syntax="proto3")
        file.dependency.extend(
            ["real/item.proto", *(f"google/protobuf/{one}.proto" for one in ("timestamp", "struct", "duration"))]
        )
        message = file.message_type.add(name=name)
        message.field.add(name="u", number=1, label=1, type=9)
        message.field.add(name="items", number=2, label=3, type=11, type_name=".real.Item")
        for number, known in enumerate(("Timestamp", "Struct", "Duration"), 3):
            message.field.add(
                name=known.lower(), number=number, label=1, type=11, type_name=f".google.protobuf.{known}"
            )
        entry = message.nested_type.add(name="LabelsEntry")
        entry.options.map_entry = True
        for number, one in enumerate(("key", "value"), 1):
            entry.field.add(name=one, number=number, label=1, type=9)
        message.field.add(name="labels", number=6, label=3, type=11, type_name=f".real.{name}.LabelsEntry")
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"real.{name}")) for name in ("View", "Buy")
    }


def test_protobuf_by_the_registrys_descriptors_needs_no_class(client: Any, schema_registry: str) -> None:
    """Of two files with references, imports that all have, and messages in the same place."""
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    made = classes()
    records = []
    for name, message in made.items():
        value = message(
            u=name, items=[{"sku": "a"}], labels={"env": "prod"}, duration={"seconds": 1, "nanos": 5 * 10**8}
        )
        value.timestamp.seconds = 1_700_000_000
        value.struct.update({"a": {"b": [1, "x", None]}})
        conf = {"use.deprecated.format": False, "subject.name.strategy": lambda where, full: f"{full}-{where.topic}"}
        records.append(serialized(ProtobufSerializer(message, client, conf), value))
    paths = [("u",), ("items",), ("labels", "env"), ("struct", "a", "b"), ("duration",), ("labels", "none")]
    setting = RegistrySettings(url=schema_registry)
    with contextlib.closing(Protobuf(paths, "real.View", setting)) as form:
        fields = read(form, *records[0])
        assert fields[:5] == ["View", [{"sku": "a"}], "prod", [1.0, "x", None], 1.5]
        assert read(form, *records[1]) is Reason.OTHER_TYPE
    name = parse_path("$envelope.message")
    with contextlib.closing(Protobuf([("u",), name], "real.View", setting)) as form:
        form.prepare([name], [])
        [chunk] = form.read([payload for payload, _ in records], lambda row: False, [beside for _, beside in records])
        assert chunk.columns[1] == ["real.View", "real.Buy"]  # so a condition may leave the other one out
        assert (chunk.refused, chunk.pending) == ({}, {1: Reason.OTHER_TYPE})
    with contextlib.closing(Protobuf([("u",)], None, setting)) as form:
        assert [read(form, *record) for record in records] == [["View"], ["Buy"]]
    sys.modules["real_view_pb2"] = SimpleNamespace(View=made["View"])  # type: ignore[assignment]
    try:
        with contextlib.closing(Protobuf(paths, "real_view_pb2:View", setting)) as form:
            assert read(form, *records[0]) == fields  # as by the class
    finally:
        del sys.modules["real_view_pb2"]


def test_protobuf_by_a_text_with_a_reference_as_serializers_in_java_register_it(
    client: Any, schema_registry: str
) -> None:
    """The registry of the tests gives texts as they are, whichever form is asked for."""
    from confluent_kafka.schema_registry import Schema, SchemaReference

    made, subject = classes(), f"item-{uuid4().hex}"
    item = 'syntax = "proto3"; package real; message Item { string sku = 1; }'
    client.register_schema(subject, Schema(item, "PROTOBUF"))
    text = """syntax = "proto3"; package real; import "real/item.proto"; import "google/protobuf/struct.proto";
        import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto"; message First {}
        message View { string u = 1; repeated Item items = 2; google.protobuf.Timestamp timestamp = 3;
        google.protobuf.Struct struct = 4; google.protobuf.Duration duration = 5; map<string, string> labels = 6; }"""
    number = client.register_schema(
        f"view-{uuid4().hex}", Schema(text, "PROTOBUF", [SchemaReference("real/item.proto", subject, 1)])
    )
    value = made["View"](u="ann", items=[{"sku": "a"}], labels={"env": "prod"}, duration={"seconds": 2})
    value.struct.update({"a": True})
    data = value.SerializeToString()
    prefix = b"\0" + number.to_bytes(4, "big")
    paths = [("u",), ("items",), ("labels", "env"), ("struct", "a"), ("duration",)]
    with contextlib.closing(Protobuf(paths, "real.View", RegistrySettings(url=schema_registry))) as form:
        assert read(form, prefix + b"\x02\x02" + data, []) == ["ann", [{"sku": "a"}], "prod", True, 2]
        assert read(form, prefix + b"\0", []) is Reason.OTHER_TYPE
