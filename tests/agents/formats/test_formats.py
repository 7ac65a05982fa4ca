"""Avro and Protobuf input: schemas from a registry, hostile payloads, and a registry that does not answer."""

import contextlib
import io
import json
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import ClassVar
from uuid import UUID

import pytest

from susurrus.agents.broker.network import free_ports
from susurrus.agents.formats import schemas as schemas_module
from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.format import Format, Overdue
from susurrus.agents.formats.message_fields import message_fields
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.payloads import chunk_of_objects
from susurrus.topics.records.raw import RawColumns, RawDecoder, RawSchema, Reason, ValueField
from tests.proto import TEXT, message_class
from tests.web_server import Request, answering

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("authlib")
struct_pb2 = pytest.importorskip("google.protobuf.struct_pb2")

RAW = RawDecoder(RawSchema(user=("u",), key=("k.url",), values=(ValueField("v", 10, 0.25),), time="t"))
PAGE = {"type": "record", "name": "Page", "fields": [{"name": "url", "type": "string"}]}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "u", "type": ["null", "string", "long"]},
        {"name": "k", "type": "Page"},
        {"name": "v", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
REFERENCE = {"name": "Page", "subject": "page", "version": 1}
SCHEMAS = {
    1: {"schema": json.dumps(EVENT), "references": [REFERENCE]},
    2: {"schema": json.dumps(PAGE)},
    3: {"schema": "{}"},
    4: {"schema": "not json"},
    5: {"schema": '"string"'},
}


class Registry:
    """Just enough of a schema registry; `broken` makes it answer nothing but 500."""

    requests: ClassVar[list[str]] = []
    broken = False

    @staticmethod
    def answer(request: Request) -> tuple[int, bytes]:
        path = request.path.partition("?")[0]
        Registry.requests.append(path)
        found = SCHEMAS.get(int(path.rpartition("/")[2])) if path.startswith("/schemas/ids/") else None
        if path == "/subjects/page/versions/1":
            found = {"subject": "page", "version": 1, "id": 2, **SCHEMAS[2]}
        status = 500 if Registry.broken else 200 if found else 404
        code = 404 if path.startswith("/wrong") else 40403
        return status, json.dumps(found or {"error_code": code, "message": "Schema not found"}).encode()


@pytest.fixture
def registry() -> Iterator[dict[str, str]]:
    Registry.requests.clear()
    Registry.broken = False
    with answering(Registry.answer) as url:
        yield {"url": url, "max.retries": 0}


@pytest.fixture
def avro(registry: dict[str, str]) -> Iterator[Avro]:
    with contextlib.closing(avro_of(registry)) as form:
        yield form


def avro_of(properties: dict[str, str]) -> Avro:
    others = {name: value for name, value in properties.items() if name != "url"}
    return Avro(RAW.paths, RegistrySettings(url=properties["url"], properties=others))


def framed(record, schema=1):
    parsed = fastavro.parse_schema(EVENT, named_schemas={"Page": fastavro.parse_schema(PAGE)})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, record)
    return b"\0" + schema.to_bytes(4, "big") + out.getvalue()


def event(**changes):
    return {"u": "ann", "k": {"url": "/"}, "v": Decimal("3.25"), "t": 1_700_000_000_123} | changes


def overdue(row: int) -> bool:
    return True


def early(row: int) -> bool:
    return False


def read(form: Format, payloads: Sequence[bytes | None], is_overdue: Overdue, decoder: RawDecoder = RAW) -> RawColumns:
    """Columns of a batch up to the first payload that waits."""
    return decoder.decode(form.read(payloads, is_overdue))


def decoded(form: Format, payloads: Sequence[bytes | None], decoder: RawDecoder = RAW) -> RawColumns:
    """Columns of a batch in which nothing waits."""
    columns = read(form, payloads, overdue, decoder)
    assert form.waits is None
    assert len(columns) == len(payloads)
    return columns


def by_label(*key: str) -> tuple[Protobuf, RawDecoder]:
    """Reads the messages below as events of the user `name`."""
    decoder = RawDecoder(RawSchema(user=("name",), key=key))
    return Protobuf(decoder.paths, FIELD_OPTIONS), decoder


def reasons(columns: RawColumns) -> list[Reason]:
    return [Reason(reason) for reason in columns.reason]


def test_avro_records_are_read_by_their_registered_schema(avro):
    columns = decoded(avro, [framed(event()), framed(event(u=7, v=Decimal("-99.99")))])
    assert reasons(columns) == [Reason.OK] * 2
    assert (columns.users, columns.keys) == ([b'"ann"', b"7"], [b'"/"'])
    assert columns.values.tolist() == [[13], [-40]]
    assert columns.event_time.tolist() == [1_700_000_000_123] * 2


GOOD = framed(event())


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, Reason.TOMBSTONE),
        (b"", Reason.EMPTY),
        (b"\0", Reason.UNDECODABLE),
        (b"\x01" + GOOD[1:], Reason.UNDECODABLE),
        (b'{"u":1}', Reason.UNDECODABLE),
        (GOOD[:5], Reason.UNDECODABLE),
        (GOOD[:-3], Reason.UNDECODABLE),
        (GOOD + b"\0", Reason.UNDECODABLE),
        (GOOD[:5] + b"\xff" * 30, Reason.UNDECODABLE),
        (b"\0\0\0\x27\x0f" + GOOD[5:], Reason.UNDECODABLE),  # no such schema
        (b"\0\0\0\0\x03" + GOOD[5:], Reason.UNDECODABLE),  # schemas that are none
        (b"\0\0\0\0\x04" + GOOD[5:], Reason.UNDECODABLE),
        (b"\0\0\0\0\x05\x02x", Reason.WRONG_TYPE),  # a string
        (b"\0\0\0\0\x02\x02x", Reason.MISSING_USER),  # another record
        (framed(event(u=None)), Reason.MISSING_USER),
    ],
    ids=lambda x: x.name if isinstance(x, Reason) else "",
)
def test_bad_avro_leaves_its_neighbours_alone(avro, payload, reason):
    columns = decoded(avro, [GOOD, payload, GOOD])
    assert reasons(columns) == [Reason.OK, reason, Reason.OK]
    assert columns.users == [b'"ann"']


def test_the_registry_is_asked_once_for_a_schema_and_once_a_batch_for_an_id_it_does_not_know(avro):
    for _ in range(3):
        decoded(avro, [GOOD, UNKNOWN, GOOD, UNKNOWN])
    asked = ["/schemas/ids/1", "/subjects/page/versions/1", *["/schemas/ids/9999"] * 3]
    assert sorted(Registry.requests) == sorted(asked)


UNKNOWN = b"\0\0\0\x27\x0f" + GOOD[5:]


def test_that_an_id_was_unknown_says_nothing_about_the_next_batch(avro, monkeypatch):
    """A record with a number that is not registered yet must not spoil later records, written when it is."""
    assert reasons(decoded(avro, [UNKNOWN])) == [Reason.UNDECODABLE]
    monkeypatch.setitem(SCHEMAS, 9999, SCHEMAS[1])
    assert reasons(decoded(avro, [UNKNOWN])) == [Reason.OK]
    monkeypatch.delitem(SCHEMAS, 9999)  # an id never means another schema, so what was found stays
    assert reasons(decoded(avro, [UNKNOWN])) == [Reason.OK]


def test_a_batch_ends_before_a_record_that_may_wait_for_its_schema(avro):
    found = read(avro, [GOOD, b"?", UNKNOWN, GOOD], early)
    assert reasons(found) == [Reason.OK, Reason.UNDECODABLE]
    assert "schema id=9999, and the record becomes bad input" in str(avro.waits)
    second_only = read(avro, [UNKNOWN, GOOD, UNKNOWN], lambda row: row == 0)
    assert reasons(second_only) == [Reason.UNDECODABLE, Reason.OK]
    assert avro.waits


@pytest.mark.parametrize("schema", [2**31, 2**32 - 1])
def test_a_number_that_is_no_schema_id_is_bad_input_without_a_question(avro, schema):
    """Registries answer these with a 404 of their web server, which says nothing about schemas: one record would wait for ever."""
    found = read(avro, [GOOD, framed(event(), schema), GOOD], early)
    assert reasons(found) == [Reason.OK, Reason.UNDECODABLE, Reason.OK]
    assert avro.waits is None
    assert sorted(Registry.requests) == ["/schemas/ids/1", "/subjects/page/versions/1"]


def test_a_batch_does_not_ask_for_longer_than_a_task_may_be_silent(avro, monkeypatch):
    seconds = iter(range(0, 1000, 2))
    monkeypatch.setattr(schemas_module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    payloads = [b"\0" + number.to_bytes(4, "big") + GOOD[5:] for number in range(100, 120)]
    rest = payloads
    rounds = 0
    while rest:
        found = read(avro, rest, overdue)
        assert avro.waits is None
        assert len(found) > 0
        rest = rest[len(found) :]
        rounds += 1
    assert rounds > 3
    assert len(Registry.requests) == len(payloads)


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record(avro):
    Registry.broken = True
    found = read(avro, [b"?", GOOD], overdue)
    assert reasons(found) == [Reason.UNDECODABLE]
    assert "HTTP 500" in str(avro.waits)
    Registry.broken = False
    assert reasons(decoded(avro, [GOOD])) == [Reason.OK]
    (port,) = free_ports(1)
    nowhere = avro_of({"url": f"http://127.0.0.1:{port}", "max.retries": 0})
    with contextlib.closing(nowhere):
        assert len(read(nowhere, [GOOD], overdue)) == 0
        assert "does not answer (ConnectError)" in str(nowhere.waits)


def test_a_404_that_is_not_the_registrys_own_says_nothing_about_a_schema(registry):
    elsewhere = avro_of({**registry, "url": registry["url"] + "/wrong/path"})
    with contextlib.closing(elsewhere):
        found = read(elsewhere, [GOOD], overdue)
    assert len(found) == 0
    assert "HTTP 404 (code 404)" in str(elsewhere.waits)


@pytest.mark.parametrize(
    "properties", [{"basic.auth.user": "x:hunter2"}, {"max.retries": "hunter2"}, {"ssl.ca.location": "/hunter2"}]
)
def test_what_the_client_refuses_is_a_configuration_error_without_its_values(registry, properties):
    with pytest.raises(ConfigurationError, match=next(iter(properties))) as refused:
        avro_of(registry | properties)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_a_missing_package_is_a_configuration_error(monkeypatch, format):
    monkeypatch.setitem(sys.modules, "fastavro" if format == "avro" else "google.protobuf", None)
    source = {"registry": {"url": "http://localhost:1"}} if format == "avro" else {"message": "a:B"}
    data = {
        "pipeline": {"name": "p"},
        "input": {"topic": "t", "user": "u", "key": ["k"], "format": format, **source},
        "privacy": {"epsilon": 1.0, "delta": 1e-9, "strategy": "toeplitz"},
    }
    with pytest.raises(ConfigurationError, match=rf"{format}.*install susurrus\[registry\]"):
        pipeline_of(settings_from(data, environ={})).services()


def test_what_only_schemas_know_becomes_json():
    decoder = RawDecoder(RawSchema(user=("u",), key=("k",)))
    objects = [
        {"u": UUID(int=5), "k": Decimal("2.00")},
        {"u": Decimal("1.50"), "k": Decimal("1E+30")},
        {"u": Decimal("NaN"), "k": 1},
        {"u": Decimal("1E+999999"), "k": 1},
    ]
    found = decoder.decode([chunk_of_objects(objects, decoder.paths)])
    assert reasons(found) == [Reason.OK, Reason.INEXACT_NUMBER, Reason.NOT_FINITE, Reason.NOT_FINITE]
    assert (found.users, found.keys) == ([b'"00000000-0000-0000-0000-000000000005"'], [b"2"])


# Protobuf: descriptors that ship with the runtime stand in for generated code.
FIELD_OPTIONS = "google.protobuf.descriptor_pb2:FieldDescriptorProto"
INDEXES = b"\x02\x08"  # [4]: the fifth message of its file


def protobuf(**fields):
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return b"\0\0\0\0\x01" + INDEXES + FieldDescriptorProto(**fields).SerializeToString()


def test_protobuf_messages_are_read_by_field_name():
    form, decoder = by_label("label", "options.ctype")
    payload = protobuf(name="ann", number=3, label="LABEL_REPEATED", options={"ctype": "CORD"})
    other_id = b"\0\0\0\0\x09" + payload[5:]
    columns = decoded(form, [payload, other_id, protobuf(label="LABEL_OPTIONAL"), protobuf(name="bob")], decoder)
    assert reasons(columns) == [Reason.OK, Reason.OK, Reason.MISSING_USER, Reason.MISSING_KEY]
    assert (columns.users, columns.keys) == ([b'"ann"'], [b'["LABEL_REPEATED","CORD"]'])


def test_an_empty_user_is_bad_input_in_every_format(avro):
    form, decoder = by_label("label")
    unset, empty = protobuf(label="LABEL_OPTIONAL"), protobuf(name="", label="LABEL_OPTIONAL")
    good = protobuf(name="ann", label="LABEL_OPTIONAL")
    found = decoded(form, [unset, good, empty, good], decoder)  # of a field with presence, which unset is absent
    assert reasons(found) == [Reason.MISSING_USER, Reason.OK, Reason.EMPTY_USER, Reason.OK]
    found = decoded(avro, [framed(event(u="")), GOOD, framed(event(u=" ")), framed(event(u=0))])
    assert reasons(found) == [Reason.EMPTY_USER, Reason.OK, Reason.OK, Reason.OK]
    assert found.users == [b'"ann"', b'" "', b"0"]
    may = RawDecoder(RawSchema(user=("u",), key=("k.url",), empty_user="value"))
    form = Avro(may.paths, RegistrySettings(url="http://localhost:1"))
    form.schemas = avro.schemas
    with contextlib.closing(form):
        assert decoded(form, [framed(event(u="")), GOOD, framed(event(u=""))], may).user.tolist() == [0, 1, 0]


def test_a_user_that_proto3_leaves_out_is_empty():
    """A scalar without presence has its default where nothing was written."""
    event_class = message_class("susurrus_empty.Event", {"u": TEXT, "k": TEXT})
    decoder = RawDecoder(RawSchema(user=("u",), key=("k",)))
    objects = [message_fields(event_class(**fields)) for fields in ({"k": "a"}, {"u": "ann"}, {"u": "", "k": "a"})]
    found = decoder.decode([chunk_of_objects(objects, decoder.paths)])
    assert reasons(found) == [Reason.EMPTY_USER, Reason.OK, Reason.EMPTY_USER]
    assert found.keys == [b'""']


def test_protobuf_timestamps_and_wrappers_are_scalars():
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2  # noqa: F401  (they register the types used below)

    file = descriptor_pb2.FileDescriptorProto(name="susurrus_test.proto", package="susurrus_test", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    message = file.message_type.add(name="Event")
    kinds = {"t": ".google.protobuf.Timestamp", "w": ".google.protobuf.Int64Value"}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, label=1, type=11, type_name=kind)
    message.field.add(name="n", number=3, label=1, type=3)
    message.field.add(name="many", number=4, label=3, type=3)
    pool = descriptor_pool.Default()
    pool.Add(file)
    event = message_factory.GetMessageClass(pool.FindMessageTypeByName("susurrus_test.Event"))
    assert message_fields(event()) == {"n": 0, "many": []}
    found = message_fields(event(t={"seconds": 1}, w={"value": 0}, n=2**62, many=[1]))
    assert (found["t"].timestamp(), found["w"], found["n"], found["many"]) == (1.0, 0, 2**62, [1])


@pytest.mark.parametrize(
    "payload",
    [
        b"\0\0\0\0",
        b"\x01\0\0\0\x01" + INDEXES,
        b"\0\0\0\0\x01" + INDEXES + b"\xff\xff",
    ],
)
def test_bad_protobuf_is_undecodable(payload):
    form, decoder = by_label("label")
    assert reasons(decoded(form, [payload], decoder)) == [Reason.UNDECODABLE]


@pytest.mark.parametrize("message", ["", "module", "no.such.module:Message", "google.protobuf.descriptor_pb2:Nothing"])
def test_a_message_that_cannot_be_found_is_a_configuration_error(message):
    with pytest.raises(ConfigurationError, match=r"package\.module:Message|PYTHONPATH"):
        Protobuf(RAW.paths, message)


def test_with_a_real_registry_and_confluents_own_serializer(schema_registry):
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    with SchemaRegistryClient({"url": schema_registry}) as client:
        client.register_schema("page", Schema(json.dumps(PAGE), "AVRO"))
        schema = Schema(json.dumps(EVENT), "AVRO", [SchemaReference("Page", "page", 1)])
        serialize = AvroSerializer(client, schema)
        payload = serialize(event(), SerializationContext("web", MessageField.VALUE))
        assert payload[:1] == b"\0"
        with contextlib.closing(avro_of({"url": schema_registry})) as decoder:
            ids = (0, 2**31 - 1, 2**31, 2**32 - 1)
            columns = decoded(decoder, [payload, *(b"\0" + number.to_bytes(4, "big") + payload[5:] for number in ids)])
            # No id is 0: five zero bytes are the beginning of Apicurio's longer ids.
            assert reasons(columns) == [Reason.OK, Reason.FRAMING_APICURIO] + [Reason.UNDECODABLE] * (len(ids) - 1)
            assert (columns.users, columns.keys, columns.values[0].tolist()) == ([b'"ann"'], [b'"/"'], [13])
            # A number that is not registered, and then is.
            later = client.register_schema("some", Schema(json.dumps(PAGE | {"doc": "some"}), "AVRO")) + 1
            late = b"\0" + later.to_bytes(4, "big") + b"\x02x"
            assert len(read(decoder, [late], early)) == 0
            assert "does not know schema id" in str(decoder.waits)
            assert client.register_schema("more", Schema(json.dumps(PAGE | {"doc": "more"}), "AVRO")) == later
            assert reasons(decoded(decoder, [late])) == [Reason.MISSING_USER]
        with contextlib.closing(avro_of({"url": schema_registry + "/wrong"})) as elsewhere:
            assert len(read(elsewhere, [payload], overdue)) == 0
            assert "HTTP 404" in str(elsewhere.waits)
