"""Framings: each is read in each format that may have it, and named where another one is configured. Records decide alone."""

import base64
import contextlib
import io
import json
import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from susurrus.agents.broker.network import free_ports
from susurrus.agents.formats import FORMATS, decoder_of
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.framing import FRAMINGS
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.raw import RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import seen
from susurrus.topics.wire.batch_reader import Headers
from tests.proto import INTEGER, TEXT, message_class
from tests.samples import many_odd
from tests.web_server import Request, answering

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("authlib")
pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

EVENT = {
    "type": "record",
    "name": "Event",
    "namespace": "framing_test",
    "fields": [{"name": "u", "type": "string"}, {"name": "n", "type": "long"}],
}
MESSAGE = message_class("framing_test.Event", {"u": TEXT, "n": INTEGER})
GUID = UUID("0bd4c4a0-91c5-4a1c-8c0a-5d4e6f708192")
ID, LONG = 7, 9
GUID_ID = b"\x01" + GUID.bytes
FOUR, EIGHT = b"\0" + struct.pack(">I", ID), b"\0" + struct.pack(">q", LONG)
FINGERPRINT = bytes.fromhex(
    fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(EVENT), "CRC-64-AVRO")
)
ADVISED = {
    "confluent": Reason.FRAMING_CONFLUENT, "confluent-header": Reason.FRAMING_CONFLUENT_HEADER,
    "apicurio": Reason.FRAMING_APICURIO, "apicurio-content-id": Reason.FRAMING_APICURIO,
    "apicurio-header": Reason.FRAMING_APICURIO_HEADER, "single-object": Reason.FRAMING_SINGLE_OBJECT,
}  # fmt: skip
FORMS = ("avro", "json", "protobuf")
Sent = tuple[bytes, Headers]


def descriptor(cls: Any = MESSAGE) -> Any:
    file = pb2.FileDescriptorProto()
    cls.DESCRIPTOR.file.CopyToProto(file)
    return file


def body(form: str, u: str = "ann", n: int = 1) -> bytes:
    if form == "json":
        return json.dumps({"u": u, "n": n}).encode()
    if form == "protobuf":
        return bytes(MESSAGE(u=u, n=n).SerializeToString())
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVENT), {"u": u, "n": n})
    return out.getvalue()


def sent(framing: str, form: str, u: str = "ann", n: int = 1, *, part: str = "value") -> Sent:
    """A record as serializers write it."""
    data = body(form, u, n)
    indexes = b"\0" if form == "protobuf" else b""
    reference = b"\x07\x0a\x05Event" if form == "protobuf" else b""
    kinds = {
        "none": (data, []),
        "confluent": (FOUR + indexes + data, []),
        "confluent-header": (data, [(f"__{part}_schema_id", FOUR + indexes)]),
        "apicurio": (EIGHT + reference + data, []),
        "apicurio-content-id": (EIGHT + reference + data, []),
        "apicurio-header": (data, [(f"apicurio.{part}.globalId", EIGHT[1:]), ("apicurio.protobuf.type", b"Event")]),
        "single-object": (b"\xc3\x01" + FINGERPRINT + data, []),
    }
    return kinds[framing]  # type: ignore[return-value]


class Registry:
    """Has one schema of each kind under each name; the ids are told by the path."""

    form = "avro"
    asked: list[str]

    def __init__(self) -> None:
        self.asked = []

    def text(self) -> str:
        if self.form == "avro":
            return json.dumps(EVENT)
        return base64.b64encode(descriptor().SerializeToString()).decode()

    def answer(self, request: Request) -> tuple[int, bytes]:
        path = request.path.partition("?")[0]
        if not path.endswith("/references"):
            self.asked.append(path)
        if path in (f"/schemas/ids/{ID}", f"/schemas/guids/{GUID}"):
            found = {"schema": self.text(), "schemaType": self.form.upper(), "references": []}
            return 200, json.dumps(found).encode()
        if path in (f"/ids/globalIds/{LONG}", f"/ids/contentIds/{LONG}"):
            return 200, self.text().encode()
        if path.endswith("/references"):
            return 200, b"[]"
        if path == "/subjects":
            return 200, b'["some-value"]'
        if path == "/search/artifacts":
            return 200, b'{"artifacts": [{}], "count": 1}'
        if path.startswith("/ids/"):
            return 404, b'{"error_code": 404, "message": "No artifact", "name": "ArtifactNotFoundException"}'
        code = 0 if path.startswith("/schemas/guids") else 40403  # Apicurio has no such path
        return 404, json.dumps({"error_code": code, "message": "not found"}).encode()


@pytest.fixture
def registry() -> Iterator[tuple[Registry, str]]:
    known = Registry()
    with answering(known.answer) as url:
        yield known, url


def settings(form: str, framing: str | None, url: str | None, **more: Any) -> Any:
    chosen = {} if framing is None else {"framing": framing}
    source: dict[str, Any] = {"topic": "raw", "format": form, "user": "u", "key": ["u"], **chosen, **more}
    if url is not None and form != "json":
        source["registry"] = {"url": url}
    return {
        "pipeline": {"name": "p"}, "input": source, "window": {"length": "1h", "trigger_every": "1h"},
        "privacy": {"epsilon": 1, "delta": 1e-9, "secret_file": "s"},
    }  # fmt: skip


def given(source: dict[str, Any]) -> Any:
    data = settings("json", None, None)
    return {**data, "input": {**data["input"], **source}}


PATHS = [("u",), ("n",)]


@contextlib.contextmanager
def reader(form: str, framing: str | None, url: str, directory: Any, paths: Sequence[Any] = PATHS) -> Iterator[Format]:
    more: dict[str, Any] = {}
    asks = framing is None or FRAMINGS[framing].asks
    if form == "avro" and not asks:
        (directory / "event.avsc").write_text(json.dumps(EVENT))
        more["schema_file"] = "event.avsc"
    if form == "protobuf":
        more["message"] = "framing_test.Event"
        if not asks:
            files = pb2.FileDescriptorSet(file=[descriptor()])
            (directory / "event.desc").write_bytes(files.SerializeToString())
            more["schema_file"] = "event.desc"
    found = settings_from(settings(form, framing, url if asks else None, **more), directory=directory, environ={})
    with contextlib.closing(decoder_of(found.input, paths)) as made:
        yield made


def rows(form: Format, records: Sequence[Sent], *, overdue: bool = True) -> list[Any]:
    """The fields of each record, or why it was refused; up to the first that waits."""
    found: list[Any] = []
    while len(found) < len(records):
        rest, before = records[len(found) :], len(found)
        for chunk in form.read([payload for payload, _ in rest], lambda row: overdue, [beside for _, beside in rest]):
            values = iter(list(zip(*chunk.columns, strict=True)))
            for row in range(chunk.rows):
                why = chunk.refused.get(row) or chunk.pending.get(row)
                fields = None if row in chunk.refused else next(values)
                found.append(fields if why is None else why)
        if form.waits is not None or len(found) == before:  # otherwise it has asked for long enough, and is asked again
            break
    return found


CASES = [(form, framing) for form in FORMS for framing in FORMATS[form].framings]


@pytest.mark.parametrize(("form", "framing"), CASES)
def test_each_framing_is_read_in_each_format_that_may_have_it(
    form: str, framing: str, registry: tuple[Registry, str], tmp_path: Any
) -> None:
    known, url = registry
    known.form = form
    with reader(form, framing, url, tmp_path) as made:
        records = [sent(framing, form), (None, ()), sent(framing, form, "bob", 2), (b"", ())]
        assert rows(made, records) == [("ann", 1), Reason.TOMBSTONE, ("bob", 2), Reason.EMPTY]  # type: ignore[arg-type]
        assert made.waits is None
    assert len(known.asked) == (form != "json" and FRAMINGS[framing].asks)


@pytest.mark.parametrize(("form", "framing"), CASES)
def test_another_framing_than_the_configured_one_is_named(
    form: str, framing: str, registry: tuple[Registry, str], tmp_path: Any
) -> None:
    known, url = registry
    known.form = form
    with reader(form, framing, url, tmp_path) as made:
        good = sent(framing, form)
        for other, advice in ADVISED.items():
            if other == framing or advice == ADVISED.get(framing):
                continue
            record = sent(other, "avro" if other == "single-object" else form)
            one, named, two = rows(made, [good, record, good])
            assert one == two == ("ann", 1)
            if framing == "confluent-header" and other == "confluent":
                assert named == ("ann", 1)  # as Confluent's own clients
            elif framing == "none" and other.endswith("-header"):
                assert named == ("ann", 1)  # a bare value, whatever a header says
            else:
                assert named is advice, other
        glue = (b"\x03\x00" + GUID.bytes + body(form), ())
        assert rows(made, [glue]) == [Reason.FRAMING_GLUE]


@pytest.mark.parametrize("form", FORMS)
def test_newer_clients_of_confluent_write_a_guid(form: str, registry: tuple[Registry, str], tmp_path: Any) -> None:
    known, url = registry
    known.form = form
    indexes = b"\0" if form == "protobuf" else b""
    with reader(form, "confluent-header", url, tmp_path) as made:
        good = (body(form), [("__value_schema_id", GUID_ID + indexes)])
        unknown = (body(form), [("__value_schema_id", b"\x01" + bytes(16) + indexes)])
        absent = ("ann", 1) if form == "json" else Reason.UNDECODABLE
        assert rows(made, [good, unknown, good]) == [("ann", 1), absent, ("ann", 1)]
        last = (body(form), [("__value_schema_id", b"?"), ("__value_schema_id", GUID_ID + indexes)])
        assert rows(made, [last, (body(form), [("__value_schema_id", b"?")])]) == [("ann", 1), Reason.UNDECODABLE]
        if form != "json":  # a registry without GUIDs must not hold its partition up for ever
            assert rows(made, [good, unknown, good], overdue=False) == [("ann", 1)]
            assert "becomes bad input if it stays so" in str(made.waits)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("framing", ["confluent-header", "apicurio-header"])
def test_keys_have_headers_of_their_own(form: str, framing: str, registry: tuple[Registry, str], tmp_path: Any) -> None:
    known, url = registry
    known.form = form
    with reader(form, framing, url, tmp_path) as made:
        made.part = "key"
        assert rows(made, [sent(framing, form, part="key")]) == [("ann", 1)]
        (found,) = rows(made, [sent(framing, form, part="value")])
        assert found in (Reason.UNDECODABLE, Reason.OTHER_TYPE)


def test_a_key_may_have_another_format_than_the_value(registry: tuple[Registry, str], tmp_path: Any) -> None:
    """Of Protobuf, each key by its own schema: `input.message` speaks of values."""
    known, url = registry
    known.form = "protobuf"
    more = {"key_format": "protobuf", "registry": {"url": url}, "framing": "confluent-header"}
    found: Any = settings_from(given(more), environ={}).input
    with contextlib.closing(decoder_of(found, PATHS, "key")) as made:
        assert rows(made, [sent("confluent-header", "protobuf", part="key")]) == [("ann", 1)]
        assert rows(made, [sent("confluent", "protobuf")]) == [("ann", 1)]
    with pytest.raises(
        ConfigurationError, match=r'input\.registry: is missing; input\.key_format = "protobuf" needs it'
    ):
        settings_from(given({"key_format": "protobuf"}), environ={})
    bare = {**more, "framing": "none", "message": "shop.Event", "schema_file": "event.desc"}
    files = pb2.FileDescriptorSet(file=[descriptor()])
    (tmp_path / "event.desc").write_bytes(files.SerializeToString())
    bare["message"] = "framing_test.Event"
    found = settings_from(given({"format": "protobuf", **bare}), directory=tmp_path, environ={}).input
    with contextlib.closing(decoder_of(found, PATHS, "key")) as made:
        assert rows(made, [sent("confluent", "protobuf")]) == [("ann", 1)]


def test_an_apicurio_id_that_is_unknown_waits_and_one_that_is_none_does_not(
    registry: tuple[Registry, str], tmp_path: Any
) -> None:
    _, url = registry
    with reader("avro", "apicurio", url, tmp_path) as made:
        good, unknown = sent("apicurio", "avro"), (b"\0" + struct.pack(">q", 2**30) + body("avro"), ())
        assert rows(made, [good, unknown, good]) == [("ann", 1), Reason.UNDECODABLE, ("ann", 1)]
        assert rows(made, [good, unknown, good], overdue=False) == [("ann", 1)]
        assert f"does not know schema globalId={2**30}" in str(made.waits)
        negative = (b"\0" + struct.pack(">q", -1) + body("avro"), ())
        assert rows(made, [negative, good], overdue=False) == [Reason.UNDECODABLE, ("ann", 1)]
    with reader("avro", "apicurio", url + "/wrong", tmp_path) as made:
        assert rows(made, [good]) == []
        assert "HTTP 404" in str(made.waits)


def test_of_several_addresses_the_first_that_answers_is_asked_for_apicurios_ids(
    registry: tuple[Registry, str], tmp_path: Any
) -> None:
    known, url = registry
    [closed] = free_ports(1)
    with answering(lambda request: (503, b"")) as busy:
        addresses = f"http://127.0.0.1:{closed},{busy},{url}"
        with reader("avro", "apicurio", addresses, tmp_path) as made:
            assert rows(made, [sent("apicurio", "avro")]) == [("ann", 1)]
        assert known.asked == [f"/ids/globalIds/{LONG}"]
        with reader("avro", "apicurio", f"{busy},http://127.0.0.1:{closed}", tmp_path) as made:
            assert rows(made, [sent("apicurio", "avro")]) == []
            assert "does not answer" in str(made.waits)


def test_content_ids_and_global_ids_are_not_mixed_up(registry: tuple[Registry, str], tmp_path: Any) -> None:
    """A number of one kind may be another schema's of the other kind."""
    known, url = registry
    for framing, place in (("apicurio", "globalIds"), ("apicurio-content-id", "contentIds")):
        with reader("avro", framing, url, tmp_path) as made:
            assert rows(made, [sent(framing, "avro")]) == [("ann", 1)]
        assert known.asked[-1] == f"/ids/{place}/{LONG}"
    with reader("avro", "apicurio-header", url, tmp_path) as made:
        by_content = (body("avro"), [("apicurio.value.contentId", EIGHT[1:])])
        in_json = (body("avro"), [*by_content[1], ("apicurio.value.encoding", b"JSON")])
        short = (body("avro"), [("apicurio.value.globalId", b"\0")])
        assert rows(made, [by_content, in_json, short]) == [("ann", 1), Reason.UNDECODABLE, Reason.UNDECODABLE]
    assert known.asked[-1] == f"/ids/contentIds/{LONG}"


def test_a_single_object_of_another_schema_is_not_read_as_ours(tmp_path: Any, registry: tuple[Registry, str]) -> None:
    other = {**EVENT, "name": "Other"}
    mark = bytes.fromhex(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(other), "CRC-64-AVRO"))
    record = (b"\xc3\x01" + mark + body("avro"), ())
    with reader("avro", "single-object", "", tmp_path) as made:
        assert rows(made, [sent("single-object", "avro"), record]) == [("ann", 1), Reason.UNDECODABLE]
    (tmp_path / "both.avsc").write_text(json.dumps([EVENT, other]))
    data = settings("avro", "single-object", None, schema_file="both.avsc")
    name = parse_path("$envelope.schema")
    with contextlib.closing(
        decoder_of(settings_from(data, directory=tmp_path, environ={}).input, [("u",), name])
    ) as made:
        found = rows(made, [sent("single-object", "avro"), record])
    assert found == [("ann", "framing_test.Event"), ("ann", "framing_test.Other")]


def test_the_fingerprint_is_that_of_avros_own_library() -> None:
    avro_schema = pytest.importorskip("avro.schema")
    assert avro_schema.parse(json.dumps(EVENT)).fingerprint("CRC-64-AVRO") == FINGERPRINT


@pytest.mark.parametrize(("form", "framing"), CASES)
def test_odd_records_never_raise_and_each_is_decided_alone(
    form: str, framing: str, registry: tuple[Registry, str], tmp_path: Any
) -> None:
    known, url = registry
    known.form = form
    fuzz(form, framing, url, tmp_path, 1_500)


@pytest.mark.fuzz
@pytest.mark.parametrize(("form", "framing"), CASES)
def test_many_odd_records(form: str, framing: str, registry: tuple[Registry, str], tmp_path: Any) -> None:
    known, url = registry
    known.form = form
    fuzz(form, framing, url, tmp_path, many_odd(20_000) // len(FORMATS[form].framings))


def fuzz(form: str, framing: str, url: str, directory: Any, number: int) -> None:
    dice = random.Random(f"{form} {framing}")
    name = parse_path(f"$envelope.{FORMATS[form].around[0]}") if FORMATS[form].around else None
    paths = PATHS if name is None else [*PATHS, name]
    records = [odd(dice, form) for _ in range(number)]
    with reader(form, framing, url, directory, paths) as made:
        found = rows(made, records)
        assert len(found) == number
        assert made.waits is None
        order = list(range(number))
        dice.shuffle(order)
        again = rows(made, [records[at] for at in order])
        assert all(same(again[row], found[at]) for row, at in enumerate(order))
        some = dice.sample(range(number), 200)
        assert all(same(rows(made, [records[at]])[0], found[at]) for at in some)
        assert any(not isinstance(one, Reason) for one in found)


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # NaN is itself here


def odd(dice: random.Random, form: str) -> Sent:
    """Something like a record of some framing, with a few bytes changed, cut off or put in."""
    payload, headers = sent(
        dice.choice(list(FRAMINGS)), form, dice.choice(["ann", "", "b" * 200]), dice.randrange(-5, 2**40)
    )
    data = bytearray(payload)
    for _ in range(dice.choice([0, 0, 1, 1, 2, 5])):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0 if at < len(data):
                data[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            case 1:
                del data[at:]
            case 2:
                data[at:at] = dice.randbytes(dice.randrange(1, 20))
            case _:
                del data[at : at + dice.randrange(1, 4)]
    # Ids that no registry knows cost a question each.
    if data[:1] == b"\0" and len(data) >= 9 and bytes(data[:5]) != FOUR and bytes(data[:9]) != EIGHT:
        data[:9] = dice.choice([FOUR, EIGHT, b"\0\0\0\0\0\0\0\0\0", b"\0\xff\xff\xff\xff"])
    if headers and dice.random() < 0.2:
        wrong = [b"", b"\0", b"\2abcd", b"\0\0\0\0\0", FOUR[:3], EIGHT, GUID_ID[:9], None]
        headers = [(one, dice.choice(wrong)) for one, _ in headers]  # type: ignore[misc]
    return bytes(data), headers


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\0\0\0\0\x07x", Reason.FRAMING_CONFLUENT),
        (b"\0\x7f\xff\xff\xff", Reason.FRAMING_CONFLUENT),
        (b"\0\x80\0\0\0", None),
        (b"\0\0\0\0\0", None),
        (b"\0" * 9, None),
        (b"\0\0\0\0\0\0\0\0\x02x", Reason.FRAMING_APICURIO),
        (b"\xc3\x01" + b"f" * 8, Reason.FRAMING_SINGLE_OBJECT),
        (b"\xc3\x01" + b"f" * 7, None),
        (b"\x03\x05" + b"u" * 16, Reason.FRAMING_GLUE),
        (b"\x03\x00" + b"u" * 15, None),
        (b"\x03\x01" + b"u" * 16, None),
        (b'{"u": 1}', None),
        (b"", None),
    ],
)
def test_a_framing_is_seen_by_its_first_bytes(payload: bytes, reason: Reason | None) -> None:
    assert seen(payload) is reason


def test_plain_json_says_what_a_framed_value_is() -> None:
    decoder = RawDecoder(RawSchema(user=("u",), key=("u",)))
    good = b'{"u": "ann"}'
    with contextlib.closing(FORMATS["json"](decoder.paths, None)) as made:
        found = decoder.decode(made.read([good, FOUR + good, EIGHT + good, good], lambda row: True)).reason.tolist()
    assert found == [0, Reason.FRAMING_CONFLUENT, Reason.FRAMING_APICURIO, 0]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ({"format": "json", "framing": "single-object"}, 'input.framing = "single-object": is no framing of input.format = "json"'),
        ({"format": "json", "framing": "glue"}, "input.framing = 'glue': use 'none', 'confluent'"),
        ({"format": "avro", "framing": "none"}, 'input.schema_file: is missing; input.framing = "none" needs it'),
        ({"format": "avro"}, 'input.registry: is missing; input.format = "avro" needs it'),
        (
            {"format": "avro", "framing": "none", "schema_file": "x", "registry": {"url": "http://a:1"}},
            'input.registry: is not asked with input.framing = "none"',
        ),
        ({"format": "json", "schema_file": "x"}, 'input.schema_file: has no meaning for input.format = "json"'),
        ({"format": "protobuf", "message": "shop.Event"}, 'input.message = "shop.Event": is a name, and nothing tells its fields'),
        (
            {"format": "protobuf", "message": "m:Event", "schema_file": "x"},
            'input.schema_file: the class input.message = "m:Event" has its own schema',
        ),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(source: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        settings_from(given(source), environ={})
    assert line.replace("'", '"') in str(refused.value).replace("'", '"')


@pytest.mark.parametrize(
    ("source", "text", "line"),
    [
        ({"format": "avro"}, b"{}", "input.schema_file: is no schema of Avro"),
        ({"format": "avro"}, b"\xff", "input.schema_file: is no schema of Avro"),
        (
            {"format": "protobuf", "message": "a.B"},
            b"\xff",
            "input.schema_file: no set of descriptors; make it by protoc",
        ),
        ({"format": "protobuf", "message": "a.B"}, b"", "input.schema_file: a set of no descriptors"),
        (
            {"format": "protobuf", "message": "a.B"},
            pb2.FileDescriptorSet(file=[descriptor()]).SerializeToString(),
            'input.message = "a.B": is no message of input.schema_file',
        ),
    ],
)
def test_a_file_that_is_no_schema_is_a_configuration_error(
    source: dict[str, Any], text: bytes, line: str, tmp_path: Any
) -> None:
    (tmp_path / "schema").write_bytes(text)
    data = settings(
        form="avro",
        framing="none",
        url=None,
        schema_file="schema",
        **{"format": source["format"], **source},
    )
    with pytest.raises(ConfigurationError) as refused:
        decoder_of(settings_from(data, directory=tmp_path, environ={}).input, PATHS)
    assert line in str(refused.value)
    with pytest.raises(ConfigurationError, match=r'input.schema_file = "none": cannot be read'):
        settings_from({**data, "input": {**data["input"], "schema_file": "none"}}, directory=tmp_path, environ={})


def test_the_digest_covers_what_is_in_the_file_and_not_its_name(tmp_path: Any) -> None:
    for name, text in (("a", EVENT), ("b", EVENT), ("c", {**EVENT, "name": "Other"})):
        (tmp_path / name).write_text(json.dumps(text))
    digests = [
        settings_from(settings("avro", "none", None, schema_file=name), directory=tmp_path, environ={}).config_digest()
        for name in "abc"
    ]
    assert digests[0] == digests[1] != digests[2]
