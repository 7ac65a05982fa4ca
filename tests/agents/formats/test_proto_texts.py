"""Descriptors of texts: messages are read as by protoc's descriptors of the same text, and what is odd is refused."""

import contextlib
import random
from typing import Any

import pytest

pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

from susurrus.agents.formats.descriptors import class_named, pool_of  # noqa: E402
from susurrus.agents.formats.message_fields import message_fields  # noqa: E402
from susurrus.agents.formats.proto_files import file_of_descriptor, file_of_text  # noqa: E402
from susurrus.agents.formats.proto_texts import descriptor_of_text  # noqa: E402

PROTO3 = """
// A comment with "quotes" and braces {
syntax = "proto3"; package shop.v1;
import public "google/protobuf/timestamp.proto"; import 'google/protobuf/struct.proto';
option java_package = "com.shop"; option (custom).thing = { a: 1 b: { c: "}" } };
message Outer {
  message Inner { string user = 1 [json_name = "u", deprecated = true]; Kind kind = 2; enum Kind { NONE = 0; A = 1; } }
  Inner inner = 1; repeated .shop.v1.Outer.Inner many = 2; map<string, Inner> by_name = 3; map<int64, sint32> counts = 0x4;
  optional int32 maybe = 5; oneof choice { option (x) = 1; string text = 6; Inner other = 7; }
  google.protobuf.Timestamp at = 8; Status status = 9; optional string name = 12; reserved 10, 13 to max; reserved "old";
  string message = 14; string optional = 15; bytes oneof = 16; google.protobuf.Struct struct = 17;
  string map = 18; string enum = 19;
}
enum Status { option allow_alias = true; UNKNOWN = 0; PAID = 1; SETTLED = 1 [deprecated = true]; BACK = -1; reserved 7; }
service Shop { rpc Get (Outer) returns (stream Outer) { option idempotency_level = NO_SIDE_EFFECTS; } }
"""
PROTO2 = """
syntax = "proto2";
message Old { required string user = 1; optional int64 n = 2 [default = 7]; extensions 100 to 199;
  repeated int32 p = 3 [packed = true];
  optional group Result = 4 { optional string url = 1; } extend Old { optional int32 more = 150; } optional Old next = 5; }
"""


def made(text: str, name: str) -> Any:
    return class_named(pool_of([descriptor_of_text(text)]), name)


def test_fields_maps_oneofs_and_enums_of_a_text() -> None:
    outer = made(PROTO3, "shop.v1.Outer")
    message = outer(
        inner={"user": "ann", "kind": 1}, many=[{"user": "x"}], by_name={"k": {"user": "bob"}}, counts={-3: 4}, maybe=0, text="t",
        status=1, message="m", optional="o", oneof=b"b", map="p", enum="e",
    )  # fmt: skip
    message.at.seconds = 1
    message.struct.update({"a": 1})
    fields = message_fields(outer.FromString(message.SerializeToString()))
    assert fields.pop("at").timestamp() == 1
    assert fields == {
        "inner": {"user": "ann", "kind": "A"}, "many": [{"user": "x", "kind": "NONE"}],
        "by_name": {"k": {"user": "bob", "kind": "NONE"}}, "counts": {"-3": 4}, "maybe": 0, "text": "t", "status": "PAID",
        "message": "m", "optional": "o", "oneof": b"b", "struct": {"a": 1.0}, "map": "p", "enum": "e",
    }  # fmt: skip
    assert "maybe" not in message_fields(outer())  # presence, as protoc gives it to optional fields
    assert message_fields(outer())["status"] == "UNKNOWN"


def test_a_text_of_proto2() -> None:
    old = made(PROTO2, "Old")
    message = old(user="ann", p=[1, 2], next={"user": "bob"})
    message.result.url = "/"
    found = message_fields(old.FromString(message.SerializeToString()))
    assert found == {"user": "ann", "p": [1, 2], "result": {"url": "/"}, "next": {"user": "bob", "p": []}}


@pytest.mark.parametrize("text", [PROTO3, PROTO2])
def test_messages_have_the_places_that_the_text_gives_them(text: str) -> None:
    assert file_of_descriptor(descriptor_of_text(text)).package == file_of_text(text).package
    described, written = file_of_descriptor(descriptor_of_text(text)).messages, file_of_text(text).messages

    def shape(messages: Any) -> Any:
        return [("" if one.entry else one.name, one.entry, shape(one.nested)) for one in messages]

    assert shape(described) == shape(written)


def test_the_wire_types_are_protobufs_own() -> None:
    kinds = ["double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"]
    kinds += ["sfixed32", "sfixed64", "sint32", "sint64"]
    text = "syntax = 'proto3'; message All {" + "".join(f"{kind} f{n} = {n};" for n, kind in enumerate(kinds, 1)) + "}"
    fields = made(text, "All").DESCRIPTOR.fields
    assert [pb2.FieldDescriptorProto.Type.Name(field.type) for field in fields] == [
        f"TYPE_{kind.upper()}" for kind in kinds
    ]


@pytest.mark.parametrize(
    "text",
    [
        "message {",
        "message A { string u = ; }", "message A { string u 1; }", "message A { string u = 1 }", "message A {",
        "syntax = proto3;", "message A { map<string> m = 1; }", "nonsense",
        "message A { oneof x { string u = 1; }", "enum E { A = x; }",
        "edition = '2023'; option features.field_presence = IMPLICIT; message A {}",
        "edition = '2023'; message A { string u = 1 [features.field_presence = IMPLICIT]; }",
        "edition = '1999'; message A {}", "message A " * 300, "message A { " * 300, "/* no end", "'",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of many kinds)
        descriptor_of_text(text)


@pytest.mark.parametrize(
    "text", ["message A { Missing u = 1; }", "message A { string u = 1; string v = 1; }", 'import "x.proto";']
)
def test_what_does_not_fit_together_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"fit together|is missing"):
        pool_of([descriptor_of_text("syntax = 'proto3'; " + text)])


def test_noise_never_fails_otherwise() -> None:
    dice = random.Random(11)
    for _ in range(3_000):
        text = list(dice.choice([PROTO3, PROTO2]))
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(text))
            text[at : at + dice.randrange(3)] = dice.choice(
                ["{", "}", ";", "=", '"', "x", "[", "<", "", "\0", "option "]
            )
        with contextlib.suppress(ValueError):  # nothing else
            pool_of([descriptor_of_text("".join(text))])
