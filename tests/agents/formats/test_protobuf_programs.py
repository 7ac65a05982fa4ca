"""The compiled reader of Protobuf is protobuf's, on whatever a record may hold: the same columns, and the same reasons."""

import base64
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2

from susurrus.agents.formats.message_types import read_indexes, read_reference, starts
from susurrus.agents.formats.proto_files import file_of_text
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.topics.compiled import compiled
from susurrus.topics.records.raw import RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.scanning import UnknownNumbers
from susurrus.topics.records.values import ValuesDecoder, ValuesSchema
from tests.agents.formats.odd_protobuf import OddProtobuf
from tests.agents.formats.test_avro_programs import RAW, VALUE, Known, compare, sections, source
from tests.samples import many_odd

if compiled is not None:
    from susurrus.topics.raw_batches import RawBatchDecoder
    from susurrus.topics.values_batches import ValuesBatchDecoder

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")


def registered(
    schema: Any, files: Mapping[int, Any], message: str | None = None, framing: str | None = None
) -> tuple[Protobuf, Known]:
    """A format, with a registry that has found some files; None is a schema that is none of Protobuf's."""
    form = Protobuf(schema.paths, message, RegistrySettings(url="http://127.0.0.1:1"), framing)
    known = Known({number: None if one is None else parsed(form, one) for number, one in files.items()})
    form.schemas = known  # type: ignore[assignment]
    return form, known


def parsed(form: Protobuf, file: Any) -> Any:
    schema = SimpleNamespace(schema_str=base64.b64encode(file.SerializeToString()).decode(), schema_type="PROTOBUF")
    return form._compiled(schema, [])


def fuzz(number: int, seed: str) -> tuple[int, int, int]:
    """Records, those left, those good."""
    left = good = done = 0
    for turn in range(number // 100):
        odd, schema = OddProtobuf(f"{seed} {turn}", [0.01, 0.05, 0.2][turn % 3]), RAW[turn % len(RAW)]
        files = {number: odd.file() for number in (1, 7)}
        form, known = registered(RawDecoder(schema), files, "p.Event" if turn % 2 else None)
        payloads: list[bytes | None] = [b"", None, b"\0\0\0\0", b"\0\0\0\0\1", b"\0\0\0\0\1\0", b"\0\xff\xff\xff\xff"]
        for number, one in known.schemas.items():
            for start, name in starts(one.file, refers=False):
                if name in ("p.Event", "p.Other"):
                    payloads += [
                        b"\0" + number.to_bytes(4, "big") + start + payload
                        for payload in odd.payloads(one.message(name).DESCRIPTOR, 80 if name == "p.Event" else 15)
                    ]
        some, columns = compare(schema, form, payloads)
        left, good, done = left + some, good + int((columns.reason == 0).sum()), done + len(payloads)
    return done, left, good


def test_odd_messages_of_odd_types() -> None:
    done, left, good = fuzz(5_000, "some")
    assert good > done // 4
    assert done // 5 < left


@pytest.mark.fuzz
def test_many_odd_messages() -> None:
    done, left, good = fuzz(many_odd(20_000), "many")
    assert good > done // 4
    assert done // 5 < left


FILE = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string u = 1; }
message Event {
  string u = 1;
  optional string k = 2;
  double v = 3;
  google.protobuf.Timestamp t = 4;
  map<string, int64> counts = 5;
  repeated int32 numbers = 6;
  message Inner { string u = 1; }
}
"""
PLAIN = RawSchema(user=("u",), key=("k",), values=(VALUE,), time="t", null_key="value")
IN_CONFLUENT, IN_APICURIO = b"\0\0\0\0\x05", b"\0" + (5).to_bytes(8, "big")
EVENT = b"\x02\x02"
"""The message at [1]."""


def file(text: str = FILE) -> Any:
    from susurrus.agents.formats.proto_texts import descriptor_of_text

    found = descriptor_of_text(text)
    found.name = "one.proto"
    return found


def set_of(*files: Any) -> bytes:
    from google.protobuf import timestamp_pb2

    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.extend(files)
    return found.SerializeToString()


def message(name: str, **fields: Any) -> bytes:
    from susurrus.agents.formats.descriptors import class_named, pool_of

    return bytes(class_named(pool_of([file()]), name)(**fields).SerializeToString())


def event(number: int, **changes: Any) -> bytes:
    stamp = {"seconds": 1_790_834_400 + number, "nanos": 123_999_999}
    some = {"u": f"user-{number}", "v": number / 4, "t": stamp, "counts": {"a": 1, "b": -1}, "numbers": [1, -1]}
    return message("shop.Event", **{**some, **({} if number % 3 else {"k": "/"}), **changes})


def test_usual_records_are_all_taken() -> None:
    form, _ = registered(RawDecoder(PLAIN), {5: file()})
    left, columns = compare(PLAIN, form, [IN_CONFLUENT + EVENT + event(number) for number in range(50)])
    assert left == 0
    assert not columns.reason.any()
    assert columns.event_time.tolist() == [1_790_834_400_123 + 1_000 * number for number in range(50)]
    assert columns.keys == [b'"/"', b"null"]


def test_of_other_types_nothing_is_read() -> None:
    payloads = [
        IN_CONFLUENT + place + event(1)
        for place in (
            b"\x02\x02",
            b"\x02\x00",
            b"\0",
            b"\x02\x04",
            b"\x04\x02\x00",
            b"\x04\x02\x02",
            b"\x82\x00\x02",
            b"",
        )
    ]
    named, _ = registered(RawDecoder(PLAIN), {5: file()}, "shop.Event")
    left, columns = compare(PLAIN, named, payloads)
    assert left == 7
    assert columns.reason.tolist() == [0, *[Reason.OTHER_TYPE] * 5, 0, Reason.OTHER_TYPE]
    users = RawSchema(user=("u",), key=("k",), null_key="value")
    every, _ = registered(RawDecoder(users), {5: file()})
    left, columns = compare(users, every, payloads)
    assert left == 3
    assert columns.reason.tolist() == [0, 0, 0, Reason.OTHER_TYPE, 0, 0, 0, Reason.OTHER_TYPE]


@pytest.mark.parametrize("framing", ["none", "confluent", "apicurio", "apicurio-content-id"])
@pytest.mark.parametrize("by_registry", [False, True])
def test_every_framing_that_stands_before_a_record(framing: str, by_registry: bool) -> None:
    heads = {"none": b"", "confluent": IN_CONFLUENT + EVENT}
    head = heads.get(framing, IN_APICURIO + b"\x07\x0a\x05Event")
    if not by_registry:
        form = Protobuf(RawDecoder(PLAIN).paths, "shop.Event", None, framing, set_of(file()))
    elif framing == "none":
        pytest.skip("a bare record names no schema")
    else:
        form, known = registered(RawDecoder(PLAIN), {5: file()}, "shop.Event", framing)
        known.kind = form.framing.named(5).kind  # type: ignore[union-attr]
    payloads = [head + event(number) for number in range(20)]
    left, columns = compare(PLAIN, form, payloads)
    assert left == 0
    assert not columns.reason.any()
    odd = [b"", head, head[:-1], head + b"\xff", event(1), head[:-1] + b"f" + event(1), b"\1" + head + event(1)]
    left, _ = compare(PLAIN, form, [*payloads, *odd, IN_CONFLUENT + b"\0" + event(2)])
    assert left >= 5


def test_a_file_of_descriptors_reads_what_the_registry_says_is_its_type() -> None:
    registry = RegistrySettings(url="http://127.0.0.1:1")
    form = Protobuf(RawDecoder(PLAIN).paths, "shop.Event", registry, None, set_of(file()))
    moved = FILE.replace("message Other { string u = 1; }", "").replace("string u = 1;\n", "bytes u = 1;\n")
    texts = {5: FILE, 6: moved, 7: 'syntax = "proto3"; message Event {}'}
    schemas = {n: form._parsed(SimpleNamespace(schema_str=text, schema_type=None), []) for n, text in texts.items()}
    form.schemas = Known(schemas)  # type: ignore[assignment]
    heads = [IN_CONFLUENT + EVENT, b"\0\0\0\0\6\0", b"\0\0\0\0\6" + EVENT, b"\0\0\0\0\7\0"]
    left, columns = compare(PLAIN, form, [head + event(number) for number, head in enumerate(heads)])
    assert left == 2
    assert columns.reason.tolist() == [0, 0, Reason.OTHER_TYPE, Reason.OTHER_TYPE]
    assert columns.users == [b'"user-0"', b'"user-1"']


def test_framings_in_headers_are_left_to_the_library() -> None:
    form, _ = registered(RawDecoder(PLAIN), {5: file()}, None, "confluent-header")
    assert form.programs(form.paths) is None


def test_a_record_whose_schema_is_unknown_waits_or_is_bad_input() -> None:
    form, known = registered(RawDecoder(PLAIN), {5: file()})
    decoder = RawBatchDecoder(PLAIN, source(form))
    other = b"\0\0\0\0\x06" + EVENT
    batch = sections([IN_CONFLUENT + EVENT + event(1), other + event(2), IN_CONFLUENT + EVENT + event(3)])
    with pytest.raises(UnknownNumbers):
        decoder.decode(batch, 0)
    records, columns = decoder.decode(batch, 0, None, lambda offset, stamp: True)
    assert records.left.tolist() == [1]
    assert columns.reason.tolist() == [0, Reason.UNDECODABLE, 0]
    known.schemas[6] = parsed(form, file())
    records, columns = decoder.decode(batch, 0)
    assert len(records.left) == 0
    assert columns.reason.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("repeated string", 4), ("map<string, string>", 4), ("Inner", 3), ("google.protobuf.Duration", 3),
        ("google.protobuf.StringValue", 0), ("google.protobuf.BytesValue", 0), ("optional bool", 0), ("Color", 0),
    ],
)  # fmt: skip
def test_what_has_no_program_is_left_where_it_is_there(kind: str, left: int) -> None:
    """A field 2 of each kind that is wanted: bytes that all of them take, and one record without it."""
    text = f"""
    syntax = "proto3"; package p;
    import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto";
    message Event {{ string u = 1; {kind} k = 2; message Inner {{ string x = 9; }} }}
    enum Color {{ RED = 0; BLUE = 3; }}
    """
    numeric = kind in ("optional bool", "Color")
    values = [b"\x10\x00", b"\x10\x03", b"\x10\x83\x80\x80\x80\x10"] if numeric else [b"\x12\0"] * 3
    schema = RawSchema(user=("u",), key=("k",), null_key="value")
    form, _ = registered(RawDecoder(schema), {5: file(text)}, "p.Event")
    payloads = [IN_CONFLUENT + b"\0\x0a\1a" + value for value in (b"", *values)]
    assert compare(schema, form, payloads)[0] == left


@pytest.mark.parametrize(
    ("body", "left", "user"),
    [
        ("0a0161", 0, b'"a"'),  # the required field 2 is missing
        ("0a0161 0a0162", 0, b'"b"'),  # the last counts
        ("0a0161 3a030a0178", 0, b'"a"'),
        ("0a0161 3a030a0178 3a00", 1, b'"a"'),  # submessages are merged
        ("0a0161 420178 4801", 1, b'"a"'),  # the second of a oneof takes the first away
        ("0a0161 32 0b ffffffffffffffffff01 01", 0, b'"a"'),  # packed
        ("0a0161 3001 3002 32 020304", 0, b'"a"'),  # packed or not
        ("0a0161 53 080154", 1, b'"a"'),  # a group
        ("0a0161 fb3f 0801 fc3f", 1, b'"a"'),  # one of an unknown number
        ("0a0161 f83f05", 0, b'"a"'),  # an unknown field
        ("0a0161 5a01ff", 1, b'"a"'),  # what is no UTF-8 where nothing is wanted, which proto2 takes
        ("0a0161 6063", 0, b'"a"'),  # an enum that is closed
        ("0a0161 6863", 1, b'"a"'),  # one that is wanted
        ("0a0161 0a01ff", 1, b'"ff"'),  # what is no UTF-8 is bytes
        ("0a0161 10ffffffffffffffffff7f", 1, b'"a"'),  # bits that no number has
        ("8a80808000 0161", 0, b'"a"'),  # a tag in five bytes
        ("8a8080808000 0161", 1, None),  # in six
        ("0a8180808000 61", 0, b'"a"'),  # a length in five
        ("0a0161 0e", 1, None),  # a wire type that there is not
        ("0a0161 00", 1, None),  # a field of the number 0
        ("0a0161 120161", 1, b'"a"'),  # another wire type than the field's
        ("0a0161 14", 1, None),  # the end of a group that has not begun
    ],
)
def test_single_odd_messages(body: str, left: int, user: bytes | None) -> None:
    text = """
    syntax = "proto2"; package p;
    message Event {
      optional string u = 1; required int32 needed = 2; repeated int32 numbers = 6; optional Event who = 7;
      oneof one { string k = 8; int32 other = 9; }
      optional group More = 10 { optional int32 x = 1; }
      optional string text = 11; optional Color shade = 12; optional Color color = 13;
    }
    enum Color { RED = 1; }
    """
    schema = RawSchema(user=("u",), key=("k", "who.k", "color"), null_key="value")
    form, _ = registered(RawDecoder(schema), {5: file(text)})
    some, columns = compare(schema, form, [IN_CONFLUENT + b"\0" + bytes.fromhex(body)])
    assert some == left
    assert columns.users == ([] if user is None else [user])


def test_messages_inside_each_other_are_followed_as_deep_as_no_library_refuses() -> None:
    text = 'syntax = "proto3"; package p; message Event { string u = 1; Event inner = 2; }'
    schema = RawSchema(user=("u",), key=())

    def nested(depth: int) -> bytes:
        body = b""
        for _ in range(depth):
            size = len(body)
            body = b"\x12" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + body
        return IN_CONFLUENT + b"\0\x0a\1a" + body

    form, _ = registered(RawDecoder(schema), {5: file(text)})
    left, columns = compare(schema, form, [nested(depth) for depth in (0, 1, 60, 61, 99, 100, 101, 500)])
    assert left == 5
    assert columns.reason.tolist() == [0] * 6 + [Reason.UNDECODABLE] * 2


def test_values_of_streams() -> None:
    for schema in (
        ValuesSchema(value="v", bound=10.0, grid=0.5, stream="u", time="t"),
        ValuesSchema(value="v", bound=10.0, grid=0.5),
    ):
        decoder = ValuesDecoder(schema)
        form, _ = registered(decoder, {5: file()})
        odd = [event(1, v=v) for v in (float("nan"), 1e300, -3.0, -0.0)]
        payloads = [IN_CONFLUENT + EVENT + one for one in (*map(event, range(30)), *odd, b"", b"\xff")]
        records, found = ValuesBatchDecoder(schema, source(form)).decode(sections(payloads), 0)
        wanted = decoder.decode(form.read(payloads, lambda _: False, [()] * len(payloads)), [b"k"] * len(payloads))
        assert 2 <= len(records.left) <= 3
        for name in ("reason", "stream", "value"):
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
        assert found.streams == wanted.streams
        assert (found.event_time is None) == (wanted.event_time is None)
        assert found.event_time is None or found.event_time.tolist() == wanted.event_time.tolist()  # type: ignore[union-attr]


def test_what_stands_before_a_message_is_what_is_read_of_it() -> None:
    found = file_of_text(
        "package a; message A { map<string, int32> m = 1; message B { message C {} } } message D { message C {} }"
    )
    by_place = list(starts(found, refers=False))
    assert [name for _, name in by_place][:3] == ["a.A", "a.A", "a.A.B"]
    assert {name for _, name in by_place} == {"a.A", "a.A.B", "a.A.B.C", "a.D", "a.D.C"}
    for start, name in by_place:
        place, at = read_indexes(start + b"behind")
        assert (found.name_at(place), at) == (name, len(start))
    by_name = list(starts(found, refers=True))
    assert [name for _, name in by_name] == ["a.A", "a.A.B", "a.D"]  # there are two of the name C
    for start, name in by_name:
        short, at = read_reference(start + b"behind")
        assert (found.named(short), at) == (name, len(start))
