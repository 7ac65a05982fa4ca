"""A look at a topic's records: each way of writing is recognised, the proposed settings read the records, and nothing raises."""

import base64
import gzip
import json
import random
import struct
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.look import Found, seen_in, times_in
from susurrus.agents.operations.whole_values import section_of
from tests.agents.formats.test_compression import zstd
from tests.agents.operations.raw_records import STAMP, record, records
from tests.formats_rows import rows

msgpack = pytest.importorskip("msgpack")
fastavro = pytest.importorskip("fastavro")
registry_module = pytest.importorskip("confluent_kafka.schema_registry")

EVENTS = [{"user": f"u{number}", "n": number, "geo": {"country": "CH"}} for number in range(5)]
TEXTS = [json.dumps(event).encode() for event in EVENTS]
AVRO = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "user", "type": "string"}, {"name": "n", "type": ["null", "long"], "default": None}],
}
PROTO = (
    'syntax = "proto3"; package shop; message Other { string a = 1; } message Visit { string user = 1; int64 n = 2; }'
)
REGISTRY = RegistrySettings(url="http://127.0.0.1:1")


def avro(number: int) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(AVRO), {"user": f"u{number}", "n": number})
    return b"\0" + struct.pack(">I", 1) + body.getvalue()


def change(**row: Any) -> bytes:
    return json.dumps({"before": None, "after": row, "op": "c", "source": {"table": "t"}, "ts_ms": STAMP}).encode()


FIELDS = {"user": "text", "n": "number", "geo.country": "text"}
COLUMNS = ("field_1", "field_2", "field_3")


@pytest.mark.parametrize(
    ("values", "layout", "fields"),
    [
        (TEXTS, {}, FIELDS),
        ([b"\xef\xbb\xbf" + text for text in TEXTS], {}, FIELDS),
        ([b"\n".join(TEXTS[:3]), TEXTS[3]], {"format": "json-lines", "each": {"of": "$value"}}, FIELDS),
        ([json.dumps(EVENTS).encode()] * 2, {"each": {"of": "$value"}}, FIELDS),
        ([gzip.compress(text) for text in TEXTS], {"compression": "auto"}, FIELDS),
        ([zstd(text) for text in TEXTS] + TEXTS[:1], {"compression": "auto"}, FIELDS),
        ([text.decode().encode("utf-16") for text in TEXTS], {"encoding": "utf-16"}, FIELDS),
        ([text.decode().encode("utf-16-le") for text in TEXTS], {"encoding": "utf-16-le"}, FIELDS),
        ([text.decode().encode("utf-16-be") for text in TEXTS], {"encoding": "utf-16-be"}, FIELDS),
        ([msgpack.packb(event) for event in EVENTS], {"format": "msgpack"}, FIELDS),
        ([b"\0\0\0\0\1" + text for text in TEXTS], {"framing": "confluent"}, FIELDS),
        ([b"\0\0\0\0\0\0\0\0\1" + text for text in TEXTS], {"framing": "apicurio"}, FIELDS),
        ([b"ann,/a,3", b"bob,/b,4"], {"format": "csv", "columns": COLUMNS}, dict.fromkeys(COLUMNS, "text")),
        (
            [b"ann\t/a\t3", b"bob\t/b,c\t4"],
            {"format": "csv", "columns": COLUMNS, "delimiter": "\t"},
            dict.fromkeys(COLUMNS, "text"),
        ),
        ([b"a line of a log", b"and another one"], {"format": "text"}, {"$value": "text"}),
        ([b"17", b"18"], {}, {"$value": "number"}),
        (
            [change(user="ann", n=1), change(user="bob", n=2), None],
            {"envelope": "debezium"},
            {"user": "text", "n": "number", "$envelope.source.table": "text", "$envelope.op": "text", "$envelope.ts_ms": "number"},
        ),
        (
            [json.dumps({"schema": {"type": "struct", "name": "S"}, "payload": event}).encode() for event in EVENTS],
            {"envelope": "connect"},
            {**FIELDS, "$envelope.schema": "text"},
        ),
        (
            [json.dumps({"specversion": "1.0", "type": "t", "data": event}).encode() for event in EVENTS],
            {"envelope": "cloudevents"},
            {**FIELDS, "$envelope.specversion": "text", "$envelope.type": "text"},
        ),
    ],
)  # fmt: skip
def test_each_way_of_writing_is_recognised(values: list[Any], layout: dict[str, Any], fields: dict[str, str]) -> None:
    found = seen_in(records(values), None)
    assert found.layout == layout
    assert {name: seen.type for name, seen in found.named().items()} == fields
    assert not found.unread
    # The settings are taken, and all but lists read a whole value of each record.
    InputSettings.model_validate({"topic": "raw", **layout})
    assert section_of(layout, None).topic


class Client:
    """Takes the place of confluent-kafka's client."""

    def __init__(self, properties: Any) -> None:
        """As that is made."""

    def __exit__(self, *exception: object) -> None:
        """Nothing to close."""

    def get_schema(self, schema_id: int, **options: Any) -> Any:
        if schema_id == 9:
            raise RuntimeError("http://me:hunter2@registry")
        if schema_id == 1:
            return SimpleNamespace(schema_type="AVRO", schema_str=json.dumps(AVRO), references=[])
        text = PROTO
        if options.get("fmt") == "serialized":
            text = base64.b64encode(_described().SerializeToString()).decode()
        return SimpleNamespace(schema_type="PROTOBUF", schema_str=text, references=[])


def _described() -> Any:
    descriptor = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = descriptor.FileDescriptorProto(name="visit.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other").field.add(name="a", number=1, type=9, label=1)
    visit = file.message_type.add(name="Visit")
    visit.field.add(name="user", number=1, type=9, label=1)
    visit.field.add(name="n", number=2, type=3, label=1)
    return file


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "SchemaRegistryClient", Client)


@pytest.mark.usefixtures("client")
def test_the_registry_says_what_is_framed() -> None:
    found = seen_in(records([avro(number) for number in range(3)]), REGISTRY)
    assert (found.layout, found.notes) == ({"format": "avro"}, [])
    assert {name: seen.type for name, seen in found.named().items()} == {"user": "text", "n": "number"}
    visit = b"\0\0\0\0\2\2\2\x0a\3ann\x10\7"  # the second message of its file
    found = seen_in(records([visit] * 3), REGISTRY)
    assert (found.layout, found.notes) == ({"format": "protobuf", "message": "shop.Visit"}, [])
    assert {name: seen.type for name, seen in found.named().items()} == {"user": "text", "n": "number"}


@pytest.mark.usefixtures("client")
def test_a_key_that_names_a_schema() -> None:
    found = seen_in([record({"a": 1}, key=avro(1), offset=offset) for offset in range(3)], REGISTRY)
    assert found.key_format == "avro"
    assert list(found.named()) == ["a", "$key.user", "$key.n"]


@pytest.mark.usefixtures("client")
def test_a_registry_that_does_not_answer_is_said_without_its_address() -> None:
    found = seen_in(records([b"\0\0\0\0\x09payload\xff"] * 2), REGISTRY)
    assert "the schema registry does not answer" in found.notes[0]
    assert "hunter2" not in str(found)
    alone = seen_in(records([avro(1)] * 2), None)
    assert alone.needs_registry
    assert alone.layout == {"framing": "confluent"}
    glue = seen_in(records([b"\x03\0" + bytes(30)] * 2), None)
    assert "AWS Glue" in glue.notes[0]
    assert "input.format" in seen_in(records([b"\xff\x80\x00\x01"] * 2), None).notes[0]


@pytest.mark.parametrize(
    ("keys", "name", "fields"),
    [
        ([None, None], "text", {}),
        ([b"ann", b"bob", None], "text", {"$key": "text"}),
        ([b"12", b"13"], "text", {"$key": "text"}),
        ([b'{"id": 1}', b'{"id": 2}'], "json", {"$key.id": "number"}),
        ([struct.pack(">i", 7), struct.pack(">i", -1)], "int32", {"$key": "number"}),
        ([struct.pack(">q", 7), struct.pack(">q", -1)], "int64", {"$key": "number"}),
        ([bytes(range(16)), bytes(range(1, 17))], "uuid", {"$key": "text"}),
        ([b"\xff", b"\xff\0\1"], "none", {"$key": "bytes"}),
    ],
)
def test_a_key_has_a_format_of_its_own(keys: list[bytes | None], name: str, fields: dict[str, str]) -> None:
    found = seen_in([record({"a": 1}, key=key, offset=offset) for offset, key in enumerate(keys)], None)
    assert found.key_format == name
    assert {path: seen.type for path, seen in found.named().items() if path != "a"} == fields


def test_headers_lists_and_shares() -> None:
    some = [
        record({"a": None, "items": [{"sku": "x"}], "tags": ["t"], "b": {"c.d": 1}}, headers=[("user-id", b"7")]),
        record({"a": "x", "b": {"e": []}}, headers=[("raw", b"\xff")], offset=1),
        record(b"not json", offset=2),
        record(None, offset=3),
    ]
    found = seen_in(some, None)
    assert {name: (seen.type, seen.present, seen.nulls) for name, seen in found.named().items()} == {
        "a": ("text", 2, 1),
        "items": ("list of objects", 1, 0),
        "items[].sku": ("text", 1, 0),
        "tags": ("list", 1, 0),
        r"b.c\.d": ("number", 1, 0),
        "b.e": ("list", 1, 0),
        "$headers.user-id": ("text", 1, 0),
        "$headers.raw": ("bytes", 1, 0),
    }
    assert (found.records, found.rows, found.tombstones, found.unread.total()) == (4, 2, 1, 1)


def test_fields_that_may_be_the_time() -> None:
    def proposed(**fields: Any) -> dict[str, Any]:
        return times_in(seen_in(records([fields, fields]), None))

    assert proposed(ts=1_790_834_400, id=1_790_834_400, n=3) == {"ts": {"time_unit": "s"}}
    assert proposed(createdAt=STAMP) == {"createdAt": {"time_unit": "ms"}}
    assert proposed(event_time=STAMP * 1000) == {"event_time": {"time_unit": "us"}}
    assert proposed(x="2026-10-01T00:00:00Z") == {"x": {"time_unit": "iso"}}
    assert proposed(x="2026-10-01 00:00:00") == {"x": {"time_unit": "iso", "time_zone": "UTC"}}
    assert proposed(x="Thursday", at=None) == {}


def test_what_a_file_says_counts_where_it_reads_the_records() -> None:
    given = InputSettings.model_validate({"topic": "raw", "format": "csv", "columns": ["user", "page"]})
    found = seen_in(records([b"ann,/a", b"bob,/b", b"x"]), None, given)
    assert (found.layout, found.sniffed, list(found.named())) == ({}, False, ["user", "page"])
    other = seen_in(records(TEXTS), None, given)
    assert (other.layout, other.sniffed, other.rows) == ({}, True, 5)


SCHEMA = {"type": "struct"}


def hostile(chance: random.Random) -> ReadRecord:
    start = chance.choice(
        [b"", b"\0\0\0\0\1", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"{", b"[[[", b"\xc3\x01", b"\x82\xa1"]
    )
    value = chance.choice(
        [
            start + chance.randbytes(chance.randrange(30)),
            json.dumps({"schema": chance.choice([{}, [], SCHEMA]), "payload": chance.choice([{}, 1, {"op": "c"}])}).encode(),
            json.dumps({"op": "u", "after": chance.choice([None, [], {"a": 1}, "{"]), "before": 3}).encode(),
            b"[" * 3000,
            b'{"a":' * 300 + b"1" + b"}" * 300,
            json.dumps({str(number): number for number in range(3000)}).encode(),
            b"9" * 5000,
            None,
            b"",
        ]
    )  # fmt: skip
    headers = chance.choice(
        [[], [("h", None)], [("ce_specversion", b"\xff")], [("__value_schema_id", b"\1")], [("", b"x")]]
    )
    return record(value, key=chance.choice([None, b"", b"\0\0\0\0\1k", chance.randbytes(8)]), headers=headers)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("client")
def test_nothing_raises_on_hostile_records(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(30):
        some = [hostile(chance) for _ in range(chance.randrange(12))]
        found = seen_in(some, chance.choice([None, REGISTRY]))
        assert found.records == len(some)
        assert found.rows + found.tombstones <= found.records or "each" in found.layout
        InputSettings.model_validate({"topic": "raw", **found.layout})
        times_in(found)


def test_no_more_fields_than_a_person_can_read_are_kept() -> None:
    wide = [{f"{record}-{number}": number for number in range(900)} for record in range(5)]
    found: Found = seen_in(records(wide), None)
    assert len(found.fields) == 2_000


def test_the_proposed_layout_reads_what_was_seen() -> None:
    for layout, values in (({"format": "msgpack"}, [msgpack.packb(event) for event in EVENTS]), ({}, TEXTS)):
        found = seen_in(records(values), None)
        assert found.layout == layout
        assert rows(decoder_of(section_of(layout, None), [("user",)]), values) == [
            [f"u{number}"] for number in range(5)
        ]
