"""Of each type the programs take what is usual, and no more than is certain: at every place the rest is left to the library.

Records that are left have the same results, only later. So a comparison of results does not show that a program has begun to leave
what it took.
"""

from typing import Any

import pytest

pytest.importorskip("google.protobuf")

from susurrus.topics.compiled import compiled
from susurrus.topics.records.raw import RawDecoder, RawSchema, ValueField
from tests.agents.formats import test_avro_programs, test_protobuf_programs
from tests.agents.formats.test_avro_programs import compare
from tests.agents.formats.test_protobuf_programs import IN_CONFLUENT

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

USER = {"name": "u", "type": "string"}
PLACES = {
    "key": RawSchema(user=("u",), key=("k",), null_key="value"),
    "value": RawSchema(user=("u",), key=(), values=(ValueField("k", 1e6, 0.125),)),
    "nowhere": RawSchema(user=("u",), key=()),
}
Left = dict[str, int]
"""How many are left at each place."""


def decimal(scale: int, size: int | None = None, precision: int = 18) -> Any:
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    return {"type": "bytes", **logical} if size is None else {"type": "fixed", "name": "F", "size": size, **logical}


def sized(data: bytes) -> bytes:
    return bytes([2 * len(data)]) + data


NO: Left = {"key": 0, "value": 0, "nowhere": 0}
AVRO: list[tuple[Any, list[bytes], Left]] = [
    ("boolean", [b"\0", b"\1"], {"key": 0, "value": 2, "nowhere": 0}),
    ("boolean", [b"\2", b"\xff"], {"key": 2, "value": 2, "nowhere": 2}),
    ("int", [b"\0", b"\1", b"\2", b"\x7f", b"\x80\x01", b"\xfe\xff\xff\xff\x0f"], NO),
    ("long", [b"\xff" * 8 + b"\x7f", b"\x80" * 8 + b"\x01", b"\x80\0"], NO),
    ("long", [b"\xff" * 9 + b"\1", b"\xfe" + b"\xff" * 8 + b"\1"], NO),
    ("long", [b"\xff" * 9 + b"\2", b"\xff" * 10 + b"\0", b"\x80"], {"key": 3, "value": 3, "nowhere": 3}),
    ("double", [b"\0" * 6 + b"\xf0\x3f", b"\0" * 6 + b"\0\xc0"], NO),
    ("float", [b"\0\0\x80\x3f", b"\0\0\0\xc0"], NO),
    ("double", [b"\0" * 6 + b"\xe0\x3f"], {"key": 1, "value": 0, "nowhere": 0}),
    ("double", [b"\0" * 6 + b"\xf8\x7f", b"\0" * 6 + b"\xf0\x7f"], {"key": 2, "value": 2, "nowhere": 0}),
    ("string", [sized(b"a"), sized("\u00fc".encode()), sized(b"")], {"key": 0, "value": 3, "nowhere": 0}),
    ("string", [sized(b'"'), sized(b"\n"), sized(b"\\")], {"key": 3, "value": 3, "nowhere": 0}),
    ("string", [sized(b"\xff")], {"key": 1, "value": 1, "nowhere": 1}),
    ("bytes", [sized(b""), sized(b"\xff\0"), sized(b"x" * 60)], {"key": 0, "value": 3, "nowhere": 0}),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, [b"\0", b"\2"], {"key": 0, "value": 2, "nowhere": 0}),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, [b"\4", b"\1"], {"key": 2, "value": 2, "nowhere": 2}),
    ({"type": "fixed", "name": "F", "size": 2}, [b"ab", b"\0\xff"], {"key": 0, "value": 2, "nowhere": 0}),
    ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, [bytes(range(16))], {"key": 0, "value": 1, "nowhere": 0}),
    (
        {"type": "string", "logicalType": "uuid"},
        [sized(b"6F1E0A3C-0000-4000-8000-00C0FFEE00FF"), sized(b"6f1e0a3c-0000-4000-8000-00c0ffee00ff")],
        {"key": 0, "value": 2, "nowhere": 0},
    ),
    (
        {"type": "string", "logicalType": "uuid"},
        [sized(b"6f1e0a3c-0000-4000-8000-00c0ffee00f-")],
        {"key": 1, "value": 1, "nowhere": 1},
    ),
    # The first byte has the sign; what has no fraction is an integer.
    (decimal(0), [sized(b"\x80"), sized(b"\x7f"), sized(b"\xff"), sized(b"\0"), sized(b"\x80\0")], NO),
    (decimal(2), [sized(b"\x9c"), sized(b"\x64"), sized(b"\0")], NO),
    (decimal(2), [sized(b"\x80"), sized(b"\x01"), sized(b"\x30\x39")], {"key": 3, "value": 0, "nowhere": 0}),
    (decimal(0, 16), [b"\0" * 15 + b"\x07", b"\xff" * 16], NO),
    (decimal(0, precision=2), [sized(b"\x63"), sized(b"\x9d")], NO),
    (decimal(0, precision=2), [sized(b"\x64"), sized(b"\x9c")], {"key": 2, "value": 2, "nowhere": 0}),
    (decimal(0), [sized(b"\0" * 16 + b"\1")], {"key": 1, "value": 1, "nowhere": 1}),
    (["null", "long"], [b"\0", b"\2\2"], {"key": 0, "value": 1, "nowhere": 0}),
    (["null", "long"], [b"\4\2", b"\1\2"], {"key": 2, "value": 2, "nowhere": 2}),
    ({"type": "array", "items": "long"}, [b"\0", b"\4\2\2\2\2\0"], {"key": 2, "value": 2, "nowhere": 0}),
    ({"type": "map", "values": "long"}, [b"\0", b"\2\2a\2\0"], {"key": 2, "value": 2, "nowhere": 0}),
    ({"type": "long", "logicalType": "timestamp-millis"}, [b"\2"], {"key": 1, "value": 1, "nowhere": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "left"), AVRO)
@pytest.mark.parametrize("place", PLACES)
def test_avro(place: str, kind: Any, data: list[bytes], left: Left) -> None:
    schema = PLACES[place]
    record = {"type": "record", "name": "Event", "fields": [{"name": "k", "type": kind}, USER]}
    form, _ = test_avro_programs.registered(RawDecoder(schema).paths, {5: record})
    assert compare(schema, form, [b"\0\0\0\0\x05" + one + b"\6ann" for one in data])[0] == left[place]


TEXTS: Left = {"key": 0, "value": 2, "nowhere": 0}
LARGEST = b"\xff" * 9 + b"\1"
PROTOBUF: list[tuple[str, list[bytes], Left]] = [
    *(
        (kind, [b"\x10\0", b"\x10\1", b"\x10\xac\2", b"\x10\x80\0"], NO)
        for kind in ("int32", "int64", "uint32", "uint64", "sint32", "sint64")
    ),
    *((kind, [b"\x10" + LARGEST, b"\x10\xff\xff\xff\xff\x0f"], NO) for kind in ("int32", "int64", "uint32", "sint32", "sint64")),
    ("uint64", [b"\x10\xff\xff\xff\xff\x0f"], NO),
    ("uint64", [b"\x10" + LARGEST], {"key": 1, "value": 1, "nowhere": 0}),
    ("int64", [b"\x10" + b"\xff" * 9 + b"\2", b"\x10\x80"], {"key": 2, "value": 2, "nowhere": 2}),
    ("bool", [b"\x10\0", b"\x10\1"], TEXTS),
    ("bool", [b"\x10\2", b"\x10\x80\1"], TEXTS),
    ("fixed32", [b"\x15\1\0\0\0", b"\x15\xff\xff\xff\xff"], NO),
    ("sfixed32", [b"\x15\1\0\0\0", b"\x15\xfe\xff\xff\xff"], NO),
    ("fixed64", [b"\x11\1" + b"\0" * 7, b"\x11" + b"\xff" * 7 + b"\x7f"], NO),
    ("sfixed64", [b"\x11\1" + b"\0" * 7, b"\x11\xfe" + b"\xff" * 7], NO),
    ("float", [b"\x15\0\0\x80\x3f", b"\x15\0\0\0\xc0"], NO),
    ("double", [b"\x11" + b"\0" * 6 + b"\xf0\x3f", b"\x11" + b"\0" * 6 + b"\0\xc0"], NO),
    ("string", [b"\x12\1a", b"\x12\2\xc3\xbc"], TEXTS),
    ("bytes", [b"\x12\1a", b"\x12\2\xff\0"], TEXTS),
    ("Color", [b"\x10\1", b"\x10\0"], TEXTS),
    ("Color", [b"\x10\2"], {"key": 0, "value": 0, "nowhere": 0}),
    # What is not there has a default, and a submessage none.
    *((kind, [b""], NO) for kind in ("int32", "uint64", "sint64", "fixed32", "sfixed64", "float", "double")),
    *((kind, [b""], {"key": 0, "value": 1, "nowhere": 0}) for kind in ("bool", "string", "bytes", "Color", "optional int32")),
    # An object is no scalar, whatever its bytes would be if its length were a tag.
    ("Event", [b"\x12\x1a" + (b"\x19" + b"\1" * 8) * 2 + b"\x20" * 8], {"key": 1, "value": 1, "nowhere": 0}),
    ("repeated fixed64", [b"\x12\x08" + b"\1" * 8, b"\x11" + b"\1" * 8, b"\x12\0"], {"key": 3, "value": 3, "nowhere": 0}),
    ("repeated fixed64", [b"\x12\x09" + b"\1" * 9], {"key": 1, "value": 1, "nowhere": 1}),
    ("repeated fixed32", [b"\x12\x04" + b"\1" * 4], {"key": 1, "value": 1, "nowhere": 0}),
    ("repeated fixed32", [b"\x12\x05" + b"\1" * 5], {"key": 1, "value": 1, "nowhere": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "left"), PROTOBUF)
@pytest.mark.parametrize("place", PLACES)
def test_protobuf(place: str, kind: str, data: list[bytes], left: Left) -> None:
    text = f"""
    syntax = "proto3"; package p;
    message Event {{ string u = 1; {kind} k = 2; }}
    enum Color {{ RED = 0; BLUE = 1; }}
    """
    schema = PLACES[place]
    form, _ = test_protobuf_programs.registered(RawDecoder(schema), {5: test_protobuf_programs.file(text)}, "p.Event")
    assert compare(schema, form, [IN_CONFLUENT + b"\0\x0a\1a" + one for one in data])[0] == left[place]


@pytest.mark.parametrize(
    ("more", "left"),
    [
        (b"\x78\1", 0), (b"\x08\1", 0), (b"\x79" + b"\1" * 8, 0), (b"\x7d" + b"\1" * 4, 0), (b"\x7a\2ab", 0), (b"\x80\x40\1", 0),
        (b"\x79" + b"\1" * 7, 1), (b"\x7d" + b"\1" * 3, 1), (b"\x7a\3ab", 1), (b"\x00\1", 1), (b"\x02\1a", 1),
        (b"\x05" + b"\1" * 4, 1),
    ],
)  # fmt: skip
def test_fields_of_protobuf_that_the_type_has_not(more: bytes, left: int) -> None:
    schema = PLACES["nowhere"]
    text = 'syntax = "proto3"; package p; message Event { string u = 2; }'
    form, _ = test_protobuf_programs.registered(RawDecoder(schema), {5: test_protobuf_programs.file(text)}, "p.Event")
    assert compare(schema, form, [IN_CONFLUENT + b"\0\x12\1a" + more])[0] == left
