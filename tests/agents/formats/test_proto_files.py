"""The messages of .proto files in the order that protoc gives them: against descriptors that protoc made."""

import base64
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.formats.proto_files import Message, ProtoFile, file_of_descriptor, file_of_schema, file_of_text

pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")


def shape(messages: list[Message]) -> list[Any]:
    """Entries of maps have no name in the text."""
    return [("" if one.entry else one.name, shape(one.nested) if not one.entry else []) for one in messages]


def with_descriptors() -> list[tuple[Path, str]]:
    """The .proto files that installed packages bring together with what protoc made of them."""
    found = util.find_spec("google")
    places = [] if found is None else list(found.submodule_search_locations or ())
    files = [(path, place) for place in places for path in sorted(Path(place).rglob("*.proto"))]
    return [
        (path, ".".join(("google", *path.relative_to(place).with_suffix("").parts)) + "_pb2") for path, place in files
    ]


def test_the_files_that_packages_bring_are_read_as_protoc_has_read_them() -> None:
    compared = messages = 0
    for path, module in with_descriptors():
        try:
            descriptor = import_module(module).DESCRIPTOR
        except ImportError:
            continue
        proto = pb2.FileDescriptorProto()
        descriptor.CopyToProto(proto)
        read, meant = file_of_text(path.read_text()), file_of_descriptor(proto)
        assert (read.package, shape(read.messages)) == (meant.package, shape(meant.messages)), path
        encoded = base64.b64encode(proto.SerializeToString()).decode()
        assert file_of_schema(encoded) == meant
        compared, messages = compared + 1, messages + len(meant.messages)
    if compared == 0:
        pytest.skip("no package with .proto files is installed")
    assert compared > 20
    assert messages > 100


PROTO2 = r'''
// message Commented { }
/* message Commented2 {
   message Inside {} */
syntax = "proto2"; import public "a.proto"; import weak 'b;c.proto';
package  my . shop /* of */ . v1 ;
option java_package = "com.x; message InText {";
option (some.opt) = { a: "}" b { c: 1 } d: [ { e: 2 }, { e: 3 } ] };
;
enum Kind { option allow_alias = true; A = 0 [(x) = "{"]; B = 1; reserved 5 to 9, 20; reserved "message"; }
message First {
  optional string message = 1 [default = "message X { }; \" '", (o) = { a: "}" }];
  optional Kind enum_ = 2; required int32 group_ = 3;
  map<string, Inner> counts = 4 [deprecated = true];
  message Inner { extensions 100 to 199, 500 to max [verification = UNVERIFIED]; }
  repeated group Result = 5 { required string url = 1; message Deep { } optional group Deeper = 2 { } }
  oneof choice {
    option (z) = 1;
    string service = 6;
    group InChoice = 7 [(o) = {a: 1}] { optional map_like m = 1; }
  }
  enum In { X = 0; }
  extend Other { optional group InExtend = 200 { } }
  message Last { message VeryLast {} }
  reserved 9, 11 to 13; reserved "foo", 'bar';
  optional .my.shop.v1.First option_ = 30;
}
service S {
  option (q) = 1; rpc Get (First) returns (stream Other) { option (http) = { get: "/v1/{name=x}" }; }
  rpc B(First) returns (First); }
extend Other { optional group AtTop = 201 { } repeated string more = 202; }
message Other{extensions 200 to 300;}
message End {}
'''  # fmt: skip
SHAPE = [
    ("First", [
        ("", []), ("Inner", []), ("Result", [("Deep", []), ("Deeper", [])]), ("InChoice", []), ("InExtend", []),
        ("Last", [("VeryLast", [])]),
    ]),
    ("AtTop", []), ("Other", []), ("End", []),
]  # fmt: skip
"""As protoc 35 has it, of the same text without its imports and options of its own."""


def test_whatever_the_language_allows_is_passed_over() -> None:
    found = file_of_text(PROTO2)
    assert found.package == "my.shop.v1"
    assert shape(found.messages) == SHAPE
    assert shape(file_of_text(PROTO2.replace("\n", "\r\n")).messages) == SHAPE
    dense = " ".join(line for line in PROTO2.splitlines() if not line.startswith("//"))
    assert shape(file_of_text(dense).messages) == SHAPE


def test_a_file_without_a_package_and_an_edition() -> None:
    found = file_of_text(
        'edition = "2024"; export message A { local message B {} local enum E { X = 0; } } local message C {}'
    )
    assert (found.package, shape(found.messages)) == ("", [("A", [("B", [])]), ("C", [])])


@pytest.mark.parametrize(
    "text",
    [
        "message", "message A", "message A {", "message A }", "message {}", "message 1 {}", "message A { string x = 1 }",
        "message A { string x = 1 {} }", '"', "/*", "message A {} }", "hello", "message A { [ }", "package", "option a = {",
        "message A {} /* ", "message A { string s = 1 [default = \"\n\"]; }", '{"type": "record"}', "enum", "extend A",
        "message A { oneof x }", "message A {" * 200 + "}" * 200,
    ],
)  # fmt: skip
def test_what_is_no_proto_file_raises_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        file_of_schema(text)


@pytest.mark.parametrize("text", ["AAAA", "Zm9v", "////"])
def test_base64_that_is_no_descriptor_raises_a_value_error_or_has_no_message(text: str) -> None:
    try:
        found = file_of_schema(text)
    except ValueError:
        return
    assert found.name_at((0,)) is None


def test_indexes_lead_to_names_inwards() -> None:
    found = file_of_text(PROTO2)
    names = {
        (0,): "my.shop.v1.First",
        (1,): "my.shop.v1.AtTop",
        (3,): "my.shop.v1.End",
        (4,): None,
        (): None,
        (0, 1): "my.shop.v1.First.Inner",
        (0, 2, 1): "my.shop.v1.First.Result.Deeper",
        (0, 5, 0): "my.shop.v1.First.Last.VeryLast",
        (0, 5, 1): None,
        (3, 0): None,
    }
    assert {path: found.name_at(path) for path in names} == names


def test_who_does_not_count_maps_is_understood_where_the_count_with_them_leads_to_none() -> None:
    entry = Message("CountsEntry", entry=True)
    file = ProtoFile("p", [Message("Event", nested=[entry, Message("Inner", nested=[Message("Leaf")])])])
    assert file.name_at((0, 1)) == file.name_at((0, 0)) == "p.Event.Inner"
    assert file.name_at((0, 1, 0)) == file.name_at((0, 0, 0)) == "p.Event.Inner.Leaf"
    both = ProtoFile("", [Message("Event", nested=[entry, Message("One"), Message("Two")])])
    assert [both.name_at((0, n)) for n in range(4)] == ["Event.One", "Event.One", "Event.Two", None]
