"""Protobuf with a registry: the schema of a record's id says which type the record is, whatever place its message has."""

import base64
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.operations.preflight.run import preflight
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.raw import RawColumns, RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason
from tests.agents.formats.test_message_types import descriptors, indexes_of, settings, written

pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
schema_registry_module = pytest.importorskip("confluent_kafka.schema_registry")

CLASS = "google.protobuf.descriptor_pb2:FieldDescriptorProto"
RAW = RawDecoder(RawSchema(user=("name",), key=("name",)))
OWN, TEXT, MOVED, NESTED, OTHER, TWIN, AVRO, BROKEN, UNKNOWN = range(1, 10)
GOOGLE = 'syntax = "proto2"; package google.protobuf; '
TEXTS = {
    TEXT: GOOGLE + "message FieldDescriptorProto { optional string name = 1; }",
    MOVED: GOOGLE + "message New { map<string, string> m = 1; } /* message Old {} */ message FieldDescriptorProto {}",
    NESTED: GOOGLE + "message Outer { message FieldDescriptorProto { optional string name = 1; } }",
    OTHER: 'syntax = "proto3"; package shop; message Buy { string sku = 1; } message FieldDescriptorProto { string name = 1; }',
    TWIN: 'syntax = "proto3"; message FieldDescriptorProto { string name = 1; }',  # of no package
    BROKEN: "message {",
}


class Schemas:
    """Takes the place of confluent-kafka's client."""

    def __init__(self) -> None:
        own = pb2.FileDescriptorProto()
        pb2.DESCRIPTOR.CopyToProto(own)
        self.texts = {**TEXTS, OWN: base64.b64encode(own.SerializeToString()).decode()}
        self.asked: list[int] = []
        self.error: Exception | None = None

    def __call__(self, properties: Mapping[str, Any]) -> "Schemas":
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing to close."""

    def get_schema(self, schema_id: int) -> Any:
        self.asked.append(schema_id)
        if self.error is not None:
            raise self.error
        if schema_id == AVRO:
            return SimpleNamespace(schema_str='"string"', schema_type="AVRO", references=[])
        if schema_id not in self.texts:
            raise schema_registry_module.SchemaRegistryError(404, 40403, "Schema not found")
        references = [SimpleNamespace(subject="never asked for", version=1)]
        return SimpleNamespace(schema_str=self.texts[schema_id], schema_type="PROTOBUF", references=references)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Schemas:
    schemas = Schemas()
    monkeypatch.setattr(schema_registry_module, "SchemaRegistryClient", schemas)
    return schemas


@pytest.fixture
def form(registry: Schemas) -> Iterator[Protobuf]:
    with contextlib.closing(
        Protobuf(RAW.paths, CLASS, RegistrySettings(url="http://localhost:1", patience=7_000))
    ) as form:
        yield form


def record(schema_id: int, *indexes: int, name: str = "ann") -> bytes:
    return (
        b"\0"
        + schema_id.to_bytes(4, "big")
        + written(indexes)
        + pb2.FieldDescriptorProto(name=name).SerializeToString()
    )


def read(form: Protobuf, payloads: Sequence[bytes], *, overdue: bool = False) -> RawColumns:
    return RAW.decode(form.read(payloads, lambda row: overdue))


def reasons(columns: RawColumns) -> list[Reason]:
    return [Reason(reason) for reason in columns.reason]


def test_the_schema_of_the_id_decides_about_the_type(form: Protobuf, registry: Schemas) -> None:
    payloads = {
        record(OWN, 4): Reason.OK,
        record(OWN, 3): Reason.OTHER_TYPE,
        record(OWN, 0): Reason.OTHER_TYPE,
        record(OWN, 400): Reason.OTHER_TYPE,
        record(TEXT, 0): Reason.OK,
        record(TEXT, 4): Reason.OTHER_TYPE,  # the place in our own file
        record(MOVED, 1): Reason.OK,
        record(MOVED, 0): Reason.OTHER_TYPE,
        record(NESTED, 0, 0): Reason.OTHER_TYPE,  # another full name
        record(NESTED, 0): Reason.OTHER_TYPE,
        record(OTHER, 0): Reason.OTHER_TYPE,
        record(OTHER, 1): Reason.OTHER_TYPE,
        record(TWIN, 0): Reason.OTHER_TYPE,
        record(AVRO, 0): Reason.OTHER_TYPE,
        record(BROKEN, 0): Reason.UNDECODABLE,
        b"\0\0\0\0\x09\x01": Reason.OTHER_TYPE,  # no indexes: nothing is asked
    }
    for _ in range(2):
        assert reasons(read(form, list(payloads))) == list(payloads.values())
        assert form.waits is None
    assert sorted(registry.asked) == [OWN, TEXT, MOVED, NESTED, OTHER, TWIN, AVRO, BROKEN]
    assert [reasons(read(form, [payload])) for payload in payloads] == [[reason] for reason in payloads.values()]


def test_two_first_messages_of_two_files_are_told_apart(form: Protobuf) -> None:
    """Without a registry they cannot be: 'SKU' would be a user."""
    payloads = [record(TEXT, 0), record(OTHER, 0, name="SKU"), record(TEXT, 0, name="bob")]
    assert read(form, payloads).users == [b'"ann"', b'"bob"']
    nobody = RawDecoder(RawSchema(user=("file",), key=("file",)))
    alone = Protobuf(nobody.paths, "google.protobuf.descriptor_pb2:FileDescriptorSet")
    both = nobody.decode(alone.read([record(1, 0), record(2, 0)], lambda row: False)).reason.tolist()
    assert both == [Reason.UNDECODABLE] * 2  # taken to be of the class, and then not like it


def test_an_unknown_id_waits_for_its_schema_by_public_time(form: Protobuf, registry: Schemas) -> None:
    assert form.patience == 7_000
    payloads = [record(TEXT, 0), record(UNKNOWN, 0), record(TEXT, 0)]
    assert reasons(read(form, payloads)) == [Reason.OK]
    assert f"does not know schema id={UNKNOWN}" in str(form.waits)
    assert reasons(read(form, payloads, overdue=True)) == [Reason.OK, Reason.UNDECODABLE, Reason.OK]
    registry.texts[UNKNOWN] = TEXTS[TEXT]
    assert reasons(read(form, payloads)) == [Reason.OK] * 3
    assert registry.asked.count(UNKNOWN) == 3


def test_a_registry_that_is_away_holds_records(form: Protobuf, registry: Schemas) -> None:
    registry.error = ConnectionError("away")
    assert reasons(read(form, [record(TEXT, 0)], overdue=True)) == []
    assert "does not answer (ConnectionError)" in str(form.waits)
    registry.error = None
    assert reasons(read(form, [record(TEXT, 0)])) == [Reason.OK]


def test_a_missing_package_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    Protobuf(RAW.paths, CLASS)
    with pytest.raises(ConfigurationError, match=r"input\.registry: needs the package .*install susurrus\[registry\]"):
        Protobuf(RAW.paths, CLASS, RegistrySettings(url="http://localhost:1"))


def test_the_digest_says_whether_a_registry_decides_and_not_which_one(registry: Schemas) -> None:
    alone = settings_from(settings(), environ={})
    with_one = settings_from(settings(registry={"url": "http://a:1"}), environ={})
    moved = settings_from(settings(registry={"url": "http://b:1", "patience": "1m"}), environ={})
    assert alone.config_digest() != with_one.config_digest() == moved.config_digest()
    assert (alone.in_digest("input.registry"), with_one.in_digest("input.registry")) == (False, True)
    (said,) = alone.findings()
    assert said.text.startswith("input.registry: without one")
    shown = [found for found in preflight(pipeline_of(alone)) if found.subject == "settings"]
    assert shown == [said]
    assert not [found for found in with_one.findings() if found.text.startswith("input.registry")]
    assert list(pipeline_of(with_one).format_findings()) == []
    avro = {"format": "avro", "message": None, "registry": {"url": "http://a:1"}}
    assert not settings_from(settings(**avro), environ={}).in_digest("input.registry")


def test_confluents_own_serializer_and_a_real_registry(schema_registry: str) -> None:
    """Two files whose first messages are alike, and a message inside another one behind a map."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for name, second in (("View", "page"), ("Buy", "sku")):
        file = pb2.FileDescriptorProto(name=f"{name.lower()}.proto", package="shop", syntax="proto3")
        message = file.message_type.add(name=name)
        for number, one in enumerate(("user", second), 1):
            message.field.add(name=one, number=number, label=1, type=9)
        entry = message.nested_type.add(name="CountsEntry")
        entry.options.map_entry = True
        for number, one in enumerate(("key", "value"), 1):
            entry.field.add(name=one, number=number, label=1, type=9)
        message.field.add(name="counts", number=3, label=3, type=11, type_name=f".shop.{name}.CountsEntry")
        message.nested_type.add(name="Inner").field.add(name="user", number=1, label=1, type=9)
        pool.Add(file)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("View", "Buy", "View.Inner")
    }
    module = SimpleNamespace(View=classes["View"])
    classes["View"].Inner = classes["View.Inner"]
    sys.modules["shop_view_pb2"] = module  # type: ignore[assignment]
    context = SerializationContext("mixed", MessageField.VALUE)
    payloads = []
    try:
        with SchemaRegistryClient({"url": schema_registry}) as client:
            conf = {"subject.name.strategy": lambda context, name: name}
            for name, message_class in classes.items():
                serialize = ProtobufSerializer(message_class, client, conf)
                fields = {"user": "SKU-1" if name == "Buy" else "ann"}
                payloads.append(serialize(message_class(**fields), context))
            text = 'syntax = "proto3"; package shop; message First {} message View { string user = 1; }'
            by_hand = client.register_schema("by-hand", Schema(text, "PROTOBUF"))
            payloads.append(
                b"\0" + by_hand.to_bytes(4, "big") + b"\x02\x02" + classes["View"](user="bob").SerializeToString()
            )
            avro = client.register_schema("avro", Schema('"string"', "AVRO"))
            payloads.append(b"\0" + avro.to_bytes(4, "big") + b"\0" + classes["View"](user="x").SerializeToString())
        setting = RegistrySettings(url=schema_registry)
        decoder = RawDecoder(RawSchema(user=("user",), key=("user",)))
        ok, other = Reason.OK, Reason.OTHER_TYPE
        for name, wanted in (("View", [ok, other, other, ok, other]), ("View.Inner", [other, other, ok, other, other])):
            with contextlib.closing(Protobuf(decoder.paths, f"shop_view_pb2:{name}", setting)) as form:
                assert reasons(decoder.decode(form.read(payloads, lambda row: False))) == wanted
                assert form.waits is None
    finally:
        del sys.modules["shop_view_pb2"]


def test_every_message_of_a_file_is_the_type_of_its_own_records_only(registry: Schemas) -> None:
    setting = RegistrySettings(url="http://localhost:1")
    every = list(descriptors(pb2.DESCRIPTOR))
    payloads = [b"\0\0\0\0\x01" + written(indexes_of(one)) for one in every]
    for own in every[::5]:
        name = own.full_name.removeprefix("google.protobuf.")
        form = Protobuf([], f"google.protobuf.descriptor_pb2:{name}", setting)
        found = [reason for chunk in form.read(payloads, lambda row: False) for reason in [chunk.refused]]
        assert set(range(len(every))) - set(found[0]) == {every.index(own)}
