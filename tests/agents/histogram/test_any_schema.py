"""Topics with a schema registry as companies write them, each with the configuration that reads it. The data are invented.

Avro and Protobuf in Confluent's framing, through route as a worker runs it (any_topic.py); the registry is a server on loopback.
"""

import base64
import io
import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.agents.histogram.any_topic import Case, check, values
from tests.agents.stages import WINDOW
from tests.web_server import Request, answering

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("authlib")
pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
message_factory = pytest.importorskip("google.protobuf.message_factory")
descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool")

TEXT, BYTES, MESSAGE = 9, 12, 11
DAY = 86_400_000


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "namespace": "shop",
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


CREATED, CANCELLED, BY_BYTES, BY_FIXED, KEY, DATED, LOCAL, EVENTS, VIEWS, PURCHASES = range(1, 11)
AVRO: dict[int, dict[str, Any]] = {
    CREATED: record("Created", u="string", k="string"),
    CANCELLED: record("Cancelled", u="string", k="string"),
    BY_BYTES: record("ByBytes", u="bytes", k="string"),
    BY_FIXED: record("ByFixed", u={"type": "fixed", "name": "Id", "size": 4}, k="string"),
    KEY: record("Key", customer="long"),
    DATED: record("Dated", u="string", k="string", day={"type": "int", "logicalType": "date"}),
    LOCAL: record("Local", u="string", k="string", at={"type": "long", "logicalType": "local-timestamp-micros"}),
}


def events() -> Any:
    """One file: Other, Event with Line inside. Event.country is optional, and Event.u is not."""
    file = pb2.FileDescriptorProto(name="events.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other").field.add(name="x", number=1, label=1, type=TEXT)
    event = file.message_type.add(name="Event")
    event.field.add(name="u", number=1, label=1, type=TEXT)
    event.field.add(name="id", number=2, label=1, type=BYTES)
    event.field.add(name="country", number=3, label=1, type=TEXT, proto3_optional=True, oneof_index=0)
    event.oneof_decl.add(name="_country")
    line = event.nested_type.add(name="Line")
    line.field.add(name="u", number=1, label=1, type=TEXT)
    line.field.add(name="k", number=2, label=1, type=TEXT)
    return file


def file_of_one(file: str, message: str, second: str) -> Any:
    found = pb2.FileDescriptorProto(name=file, package="shop", syntax="proto3")
    one = found.message_type.add(name=message)
    one.field.add(name="u", number=1, label=1, type=TEXT)
    one.field.add(name=second, number=2, label=1, type=TEXT)
    return found


FILES = {
    EVENTS: events(),
    VIEWS: file_of_one("view.proto", "View", "page"),
    PURCHASES: file_of_one("buy.proto", "Buy", "sku"),
}
_pool = descriptor_pool.DescriptorPool()
for _file in FILES.values():
    _pool.Add(_file)


def prefix(number: int) -> bytes:
    return b"\0" + struct.pack(">I", number)


def avro(number: int, **fields: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO[number]), fields)
    return prefix(number) + out.getvalue()


def protobuf(number: int, indexes: bytes, name: str, **fields: Any) -> bytes:
    """indexes: as Confluent's serializers write them behind the schema's id."""
    message = message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))(**fields)
    return prefix(number) + indexes + message.SerializeToString()


FIRST, SECOND, INSIDE = b"\0", b"\x02\x02", b"\x04\x02\x00"
"""Message indexes: [0], [1] and [1, 0]."""
IN_AVRO = {"format": "avro", "user": "u", "key": ["k"]}
EVENT = {"format": "protobuf", "message": "shop.Event", "user": "u", "key": ["country"]}
CASES: dict[str, Case] = {
    "two Avro types with the same fields": Case(
        source={**IN_AVRO, "where": "$envelope.schema = 'shop.Created'"},
        records=values(
            avro(CREATED, u="ann", k="eu"), avro(CANCELLED, u="bob", k="eu"), avro(CREATED, u="cat", k="us"), b"\0\0\0\0"
        ),
        users={"eu": {"ann"}, "us": {"cat"}},
        letters={"UNDECODABLE": 1},
        left_out=1,
    ),
    "users of bytes": Case(
        source=IN_AVRO,
        records=values(
            avro(BY_BYTES, u=b"\xff\0\x01", k="x"), avro(BY_FIXED, u=b"\0\0\0\x2a", k="x"), avro(BY_BYTES, u=b"", k="x")
        ),
        users={"x": {"ff0001", "0000002a"}},
        letters={"EMPTY_USER": 1},
    ),
    "the user is a field of a key in Avro": Case(
        source={**IN_AVRO, "user": "$key.customer", "key_format": "avro"},
        records=[
            (avro(CREATED, u="-", k="x"), avro(KEY, customer=2**40), ()),
            (avro(CREATED, u="-", k="x"), avro(KEY, customer=7), ()),
            (avro(CREATED, u="-", k="x"), None, ()),
            (avro(CREATED, u="-", k="x"), b"7", ()),
        ],
        users={"x": {2**40, 7}},
        letters={"MISSING_USER": 1, "UNREADABLE_KEY": 1},
    ),
    "a date is the event time": Case(
        source={**IN_AVRO, "time": "day", "time_zone": "UTC"},
        records=values(avro(DATED, u="ann", k="x", day=WINDOW // DAY), avro(DATED, u="bob", k="x", day=WINDOW // DAY - 1)),
        users={"x": {"ann"}},
        letters={"BEFORE_FIRST_WINDOW": 1},
    ),
    "a local time is the event time": Case(
        source={**IN_AVRO, "time": "at", "time_zone": "Asia/Tokyo"},
        records=values(
            avro(LOCAL, u="ann", k="x", at=(WINDOW + 9 * 3_600_000) * 1000),
            avro(LOCAL, u="bob", k="x", at=(WINDOW + 9 * 3_600_000) * 1000 - 1),
        ),
        users={"x": {"ann"}},
        letters={"BEFORE_FIRST_WINDOW": 1},
    ),
    "a local time without a zone": Case(
        source={**IN_AVRO, "time": "at"},
        records=values(avro(LOCAL, u="ann", k="x", at=datetime.fromtimestamp(WINDOW / 1000, UTC).replace(tzinfo=None))),
        users={},
        letters={"TIME_WITHOUT_ZONE": 1},
    ),
    "optional fields, and texts that proto3 leaves out": Case(
        source=EVENT,
        records=values(
            protobuf(EVENTS, SECOND, "shop.Event", u="ann", country="de"),
            protobuf(EVENTS, SECOND, "shop.Event", u="bob"),
            protobuf(EVENTS, SECOND, "shop.Event", u="cat", country=""),
            protobuf(EVENTS, SECOND, "shop.Event", country="de"),
        ),
        users={"de": {"ann"}, "null": {"bob"}, "": {"cat"}},
        letters={"EMPTY_USER": 1},
    ),
    "users of Protobuf's bytes": Case(
        source={**EVENT, "user": "id"},
        records=values(protobuf(EVENTS, SECOND, "shop.Event", id=b"\0\xff", country="de"), protobuf(EVENTS, SECOND, "shop.Event")),
        users={"de": {"00ff"}},
        letters={"EMPTY_USER": 1},
    ),
    "a message inside another one": Case(
        source={"format": "protobuf", "message": "shop.Event.Line", "user": "u", "key": ["k"]},
        records=values(
            protobuf(EVENTS, INSIDE, "shop.Event.Line", u="ann", k="x"),
            protobuf(EVENTS, SECOND, "shop.Event", u="bob", id=b"x"),  # its bytes would do
            protobuf(EVENTS, b"\x04\x00\x00", "shop.Event.Line", u="cat", k="x"),  # no message has this place
        ),
        users={"x": {"ann"}},
        letters={"OTHER_TYPE": 2},
    ),
    "two Protobuf types, each the first of its file": Case(
        source={"format": "protobuf", "message": "shop.View", "user": "u", "key": ["page"]},
        records=values(
            protobuf(VIEWS, FIRST, "shop.View", u="ann", page="/"), protobuf(PURCHASES, FIRST, "shop.Buy", u="bob", sku="/")
        ),
        users={"/": {"ann"}},
        letters={"OTHER_TYPE": 1},
    ),
    "two Protobuf types, and a filter": Case(
        source={
            "format": "protobuf", "message": "shop.View", "user": "u", "key": ["page"], "where": "$envelope.message = 'shop.View'",
        },
        records=values(
            protobuf(VIEWS, FIRST, "shop.View", u="ann", page="/"), protobuf(PURCHASES, FIRST, "shop.Buy", u="bob", sku="/")
        ),
        users={"/": {"ann"}},
        left_out=1,
    ),
    "Protobuf framed without message indexes": Case(
        source=EVENT,
        records=values(
            protobuf(EVENTS, b"", "shop.Event", u="ann", country="de"), protobuf(EVENTS, b"", "shop.Event", u="a", country="x" * 99)
        ),
        users={},
        letters={"OTHER_TYPE": 2},
    ),
}  # fmt: skip


def answer(request: Request) -> tuple[int, bytes]:
    """Schemas by their ids."""
    number = request.path.partition("?")[0].rpartition("/")[2]
    if not request.path.startswith("/schemas/ids/"):
        return (200, b'["some-value"]') if request.path.startswith("/subjects") else (404, b"{}")
    if int(number) in AVRO:
        found = {"schema": json.dumps(AVRO[int(number)])}
    elif int(number) in FILES:
        written = base64.b64encode(FILES[int(number)].SerializeToString()).decode()
        found = {"schema": written, "schemaType": "PROTOBUF"}
    else:
        return 404, b'{"error_code": 40403, "message": "not found"}'
    return 200, json.dumps(found).encode()


@pytest.mark.parametrize("name", CASES)
def test_a_topic_is_read_as_it_is(name: str, tmp_path: Path) -> None:
    with answering(answer) as url:
        check(CASES[name], tmp_path, registry={"url": url})
