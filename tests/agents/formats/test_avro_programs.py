"""The compiled reader of Avro is fastavro's, on whatever a record may hold: the same columns, and the same reasons."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.format import Format, Unanswered, UnknownSchema
from susurrus.agents.formats.framing import ID, SchemaName
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.formats.whole import FramedSource, source_of
from susurrus.topics.compiled import compiled
from susurrus.topics.records.raw import RawDecoder, RawSchema, ValueField
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.scanning import UnknownNumbers
from susurrus.topics.records.values import ValuesDecoder, ValuesSchema
from tests.agents.formats.odd_avro import OddAvro, fastavro_bytes
from tests.record_batches import record_batch, section_of
from tests.samples import many_odd
from tests.topics.test_raw_batches import difference

if compiled is not None:
    from susurrus.topics.raw_batches import RawBatchDecoder
    from susurrus.topics.values_batches import ValuesBatchDecoder

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

VALUE = ValueField("v", 100.0, 0.5)
RAW = [
    RawSchema(user=("u",), key=("k",), values=(VALUE,), time="t"),
    RawSchema(user=("who.id",), key=("k", "u"), time="t", time_unit="us", null_user="value", null_key="value"),
    RawSchema(user=("u",), key=("k", "who.id"), time="t", time_unit="iso", null_key="value", max_key_bytes=60),
    RawSchema(
        user=("u", "k"), key=(), values=(VALUE, ValueField("k", 9, 1)), time="t", time_unit="s", empty_user="value"
    ),
    RawSchema(user=("k",), key=("u",), values=(VALUE,), time="t", time_unit="d", time_zone="Europe/Berlin"),
    RawSchema(user=("u",), key=("t",), values=(VALUE,)),
    RawSchema(user=("u",), key=("k",), time="t", time_format="iso8601", time_zone="UTC"),
]


class Known:
    """A registry and its schemas. asked: what it was asked for. answers: whether it does."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self.schemas, self.kind = dict(schemas), ID
        self.asked: list[int] = []
        self._found: set[int] = set()
        self.answers = True

    def begin(self) -> None:
        pass

    def close(self) -> None:
        pass

    def get(self, name: SchemaName) -> Any:
        assert isinstance(name.value, int)
        assert name.kind == self.kind
        self.asked.append(name.value)
        if not self.answers:
            raise Unanswered
        if name.value not in self.schemas:
            raise UnknownSchema
        self._found.add(name.value)
        return self.schemas[name.value]

    def known(self, name: SchemaName) -> Any:
        return self.schemas.get(name.value) if name.value in self._found else None  # type: ignore[call-overload]


def registered(paths: Sequence[Any], schemas: Mapping[int, Any], reader: Any = None) -> tuple[Avro, Known]:
    """A format, with a registry that has found some schemas; None is one that is none of Avro's. reader: the reader's schema."""
    text = None if reader is None else json.dumps(reader).encode()
    form = Avro(list(paths), RegistrySettings(url="http://127.0.0.1:1"), None, text)
    known = Known({number: None if one is None else parsed(form, one) for number, one in schemas.items()})
    form.schemas = known  # type: ignore[assignment]
    return form, known


def parsed(form: Avro, schema: Any) -> Any:
    return form._parsed(SimpleNamespace(schema_str=json.dumps(schema), schema_type="AVRO"), [])


def sections(payloads: Sequence[bytes | None], headers: Any = ()) -> list[Any]:
    cuts = np.linspace(0, len(payloads), 3).astype(int).tolist()
    return [
        section_of(record_batch(payloads[a:b], first=a, headers=headers)) for a, b in itertools.pairwise(cuts) if b > a
    ]


def source(form: Format) -> FramedSource:
    found = source_of(InputSettings(topic="t", format="avro"), form, form.paths)
    assert isinstance(found, FramedSource)
    return found


def compare(schema: RawSchema, form: Format, payloads: Sequence[bytes | None], headers: Any = ()) -> tuple[int, Any]:
    """Both decoders. How many rows were left, and the columns."""
    records, columns = RawBatchDecoder(schema, source(form)).decode(sections(payloads, headers), 0)
    chunks = form.read(payloads, lambda _: False, [list(headers)] * len(payloads))
    wanted = RawDecoder(schema).decode(chunks)
    assert difference(columns, wanted) == ""
    assert len(records) == len(payloads)
    return len(records.left), columns


def fuzz(number: int, seed: str, *, reader: bool = False) -> tuple[int, int, int]:
    """Records, those left, those good. reader: with a reader's schema, for one writer's instead of three."""
    left = good = done = 0
    for turn in range(number // 100):
        odd, schema = OddAvro(f"{seed} {turn}", [0.01, 0.05, 0.1 if reader else 0.3][turn % 3]), RAW[turn % len(RAW)]
        schemas = {number: odd.schema() for number in (1, 7, 2**31 - 1)}
        if reader:
            # Most fields may be absent, or a row would tell little.
            schemas = {1: schemas[1]}
            schema = replace(schema, null_user="value", null_key="value", time=schema.time if turn % 3 == 0 else None)
            schema = replace(schema, values=schema.values if turn % 5 == 0 else ())
        form, _ = registered(RawDecoder(schema).paths, schemas, odd.reader(schemas[1], 0.1) if reader else None)
        payloads: list[bytes | None] = [
            b"\0" + number.to_bytes(4, "big") + payload
            for number, one in schemas.items()
            for payload in odd.payloads(one, 99 // len(schemas))
        ]
        payloads += [b"", None, b"\0\0\0\0", b"\0\0\0\0\0", b"\0\xff\xff\xff\xff", b"\1\0\0\0\1a"]
        some, columns = compare(schema, form, payloads)
        left, good, done = left + some, good + int((columns.reason == 0).sum()), done + len(payloads)
    return done, left, good


def test_odd_records_of_odd_schemas() -> None:
    done, left, good = fuzz(5_000, "some")
    assert good > done // 4
    assert done // 5 < left < 3 * done // 4


def test_odd_records_with_an_odd_readers_schema() -> None:
    done, left, good = fuzz(5_000, "reader", reader=True)
    assert good > done // 10
    assert left < 9 * done // 10


@pytest.mark.fuzz
def test_many_odd_records_with_odd_readers_schemas() -> None:
    done, left, good = fuzz(many_odd(20_000), "readers", reader=True)
    assert good > done // 10
    assert left < 9 * done // 10


@pytest.mark.fuzz
def test_many_odd_records() -> None:
    done, left, good = fuzz(many_odd(20_000), "many")
    assert good > done // 4
    assert done // 5 < left < 3 * done // 4


EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "u", "type": "string"},
        {"name": "k", "type": ["null", "string"]},
        {"name": "v", "type": "double"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PLAIN = RawSchema(user=("u",), key=("k",), values=(VALUE,), time="t", null_key="value")


def event(number: int, **changes: Any) -> bytes:
    found = {"u": f"user-{number}", "k": None if number % 3 else "/", "v": number / 4, "t": 1_790_834_400_123 + number}
    return fastavro_bytes(EVENT, {**found, **changes})


def test_usual_records_are_all_taken() -> None:
    form, _ = registered(RawDecoder(PLAIN).paths, {5: EVENT})
    left, columns = compare(PLAIN, form, [b"\0\0\0\0\x05" + event(number) for number in range(50)])
    assert left == 0
    assert not columns.reason.any()
    assert columns.event_time.tolist() == [1_790_834_400_123 + number for number in range(50)]
    assert columns.keys == [b'"/"', b"null"]


def test_a_record_is_read_by_the_schema_that_it_names() -> None:
    other = {**EVENT, "fields": [EVENT["fields"][at] for at in (3, 2, 1, 0)]}  # type: ignore[index]
    form, _ = registered(RawDecoder(PLAIN).paths, {5: EVENT, 6: other, 7: None, 8: "string"})
    written = {"u": "ann", "k": "/", "v": 1.0, "t": 7}
    payloads = [
        b"\0\0\0\0" + bytes([number]) + fastavro_bytes(other if number == 6 else EVENT, written)
        for number in (5, 6, 5, 7, 6, 8, 5)
    ]
    left, columns = compare(PLAIN, form, payloads)
    assert left == 2
    assert columns.reason.tolist() == [0, 0, 0, Reason.UNDECODABLE, 0, columns.reason[5], 0]
    assert columns.users == [b'"ann"']


def batch_of(*ids: int) -> list[Any]:
    return sections([b"\0\0\0\0" + bytes([schema]) + event(number) for number, schema in enumerate(ids)])


def test_a_schema_is_asked_for_once_before_the_first_fetch_that_names_it_is_read() -> None:
    form, known = registered(RawDecoder(PLAIN).paths, {5: EVENT, 6: EVENT, 7: None})
    decoder = RawBatchDecoder(PLAIN, source(form))
    records, columns = decoder.decode(batch_of(6, 5, 5, 6), 0)
    assert len(records.left) == 0
    assert columns.reason.tolist() == [0, 0, 0, 0]
    assert known.asked == [5, 6]
    records, columns = decoder.decode(batch_of(7, 5, 6), 0)
    assert records.left.tolist() == [0]
    assert columns.reason.tolist() == [Reason.UNDECODABLE, 0, 0]
    assert known.asked == [5, 6, 7, 7]  # the row that is left goes to fastavro, and `Schemas` keeps what it found
    decoder.decode(batch_of(6, 5), 0)
    assert known.asked == [5, 6, 7, 7]


def test_of_a_fetch_in_which_a_record_has_to_wait_nothing_is_decoded() -> None:
    form, known = registered(RawDecoder(PLAIN).paths, {5: EVENT})
    decoder, batch = RawBatchDecoder(PLAIN, source(form)), batch_of(5, 6, 5)
    with pytest.raises(UnknownNumbers):
        decoder.decode(batch, 0)
    known.answers = False
    with pytest.raises(UnknownNumbers):
        decoder.decode(batch, 0, None, lambda offset, stamp: True)  # while nobody answers, nothing is over
    known.answers = True
    known.schemas[6] = parsed(form, EVENT)
    records, columns = decoder.decode(batch, 0)
    assert len(records.left) == 0
    assert columns.reason.tolist() == [0, 0, 0]


def test_a_record_whose_schema_stays_unknown_slows_no_other_record() -> None:
    form, _ = registered(RawDecoder(PLAIN).paths, {5: EVENT})
    decoder, asked = RawBatchDecoder(PLAIN, source(form)), []

    def over(offset: int, stamp: int) -> bool:
        asked.append((offset, stamp))
        return True

    records, columns = decoder.decode(batch_of(5, 6, 5), 0, None, over)
    assert records.left.tolist() == [1]
    assert columns.reason.tolist() == [0, Reason.UNDECODABLE, 0]
    assert asked == [(1, records.timestamp[1])]


def test_what_a_refused_record_seems_to_be_is_told_by_its_headers_too() -> None:
    form, _ = registered(RawDecoder(PLAIN).paths, {5: EVENT})
    payloads = [
        b"\0\0\0\0\x05" + event(1),
        event(2),
        b"\xc3\x01" + b"f" * 8 + event(3),
        b'{"u": 1}',
        b"\0\0\0\0\x05\xff",
    ]
    reasons = []
    for headers in ([], [("__value_schema_id", b"\0\0\0\0\x05")], [("apicurio.value.globalId", b"\0" * 8)]):
        _, columns = compare(PLAIN, form, payloads, headers)
        reasons.append(columns.reason.tolist())
    assert reasons[1][1] == Reason.FRAMING_CONFLUENT_HEADER
    assert reasons[2][1] == Reason.FRAMING_APICURIO_HEADER
    assert reasons[0][2] == Reason.FRAMING_SINGLE_OBJECT


@pytest.mark.parametrize("framing", ["none", "single-object"])
def test_schemas_of_a_file_need_no_registry(framing: str) -> None:
    form = Avro(RawDecoder(PLAIN).paths, None, framing, json.dumps(EVENT).encode())
    prefix = b"" if framing == "none" else b"\xc3\x01" + bytes.fromhex(form._fingerprint(form._reader))
    payloads = [prefix + event(number) for number in range(20)]
    left, columns = compare(PLAIN, form, payloads)
    assert left == 0
    assert not columns.reason.any()
    left, _ = compare(
        PLAIN, form, [*payloads, b"", prefix, prefix + b"\0", event(1), b"\xc3\x01" + b"g" * 8 + event(3)]
    )
    assert left >= 3


def test_a_file_that_makes_something_else_of_what_was_written_leaves_all_to_fastavro() -> None:
    registry = RegistrySettings(url="http://127.0.0.1:1")
    paths = RawDecoder(PLAIN).paths
    branches = json.dumps([EVENT, {**EVENT, "name": "Other"}]).encode()
    assert Avro(paths, None, "single-object", branches).programs(paths) is None
    assert Avro(paths, registry, "confluent-header").programs(paths) is None
    form = Avro(paths, None, "none", branches)
    left, _ = compare(PLAIN, form, [bytes([2 * branch]) + event(branch) for branch in (0, 1, 2)])
    assert left == 1


def test_a_readers_schema_gives_defaults_and_names() -> None:
    fields: Any = EVENT["fields"]
    reader = {
        **EVENT,
        "fields": [
            {"name": "v", "type": ["null", "double"]},
            {"name": "t", "type": "long", "default": 7},
            {"name": "u", "type": "string", "aliases": ["person"]},
            {"name": "k", "type": "string", "default": "none"},
        ],
    }
    older = {
        **EVENT,
        "fields": [{"name": "more", "type": "bytes"}, {**fields[0], "name": "person"}, {"name": "v", "type": "int"}],
    }
    form, _ = registered(RawDecoder(PLAIN).paths, {5: EVENT, 6: older, 7: reader}, reader)
    payloads = [
        b"\0\0\0\0\x05" + event(3),
        b"\0\0\0\0\x06" + fastavro_bytes(older, {"more": b"", "person": "ann", "v": -9}),
    ]
    payloads += [b"\0\0\0\0\x07" + fastavro_bytes(reader, {"v": 0.5, "t": 1, "u": "eve", "k": "/"})]
    left, columns = compare(PLAIN, form, payloads)
    assert left == 0
    assert columns.users == [b'"user-3"', b'"ann"', b'"eve"']
    assert columns.keys == [b'"/"', b'"none"']
    assert columns.event_time.tolist() == [1_790_834_400_126, 7, 1]
    assert columns.values[:, 0].tolist() == [2, -18, 1]


@pytest.mark.parametrize(
    "field",
    [
        {"name": "more", "type": ["null", "Event"]},
        {"name": "more", "type": {"type": "array", "items": "null"}},
    ],
)
def test_a_schema_whose_records_may_cost_much_has_no_program(field: Any) -> None:
    schema = {**EVENT, "fields": [*EVENT["fields"], field]}  # type: ignore[misc]
    form, _ = registered(RawDecoder(PLAIN).paths, {5: schema})
    left, columns = compare(PLAIN, form, [b"\0\0\0\0\x05" + event(number) + b"\0" for number in range(4)])
    assert left == 4
    assert not columns.reason.any()


def test_values_of_streams() -> None:
    for schema in (
        ValuesSchema(value="v", bound=10.0, grid=0.5, stream="u", time="t"),
        ValuesSchema(value="v", bound=10.0, grid=0.5),
    ):
        decoder = ValuesDecoder(schema)
        form, _ = registered(decoder.paths, {5: EVENT})
        odd = [event(1, v=v) for v in (float("nan"), 1e300, -3.0, -0.0)]
        payloads = [b"\0\0\0\0\x05" + one for one in (*map(event, range(30)), *odd, b"", b"\xff")]
        records, found = ValuesBatchDecoder(schema, source(form)).decode(sections(payloads), 0)
        wanted = decoder.decode(form.read(payloads, lambda _: False, [()] * len(payloads)), [b"k"] * len(payloads))
        assert len(records.left) == 3
        for name in ("reason", "stream", "value"):
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
        assert found.streams == wanted.streams
        assert (found.event_time is None) == (wanted.event_time is None)
        assert found.event_time is None or found.event_time.tolist() == wanted.event_time.tolist()  # type: ignore[union-attr]


LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
LETTERS = {"type": "enum", "name": "Letter", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("written", "read", "data"),
    [
        (LETTERS, {**LETTERS, "symbols": ["B", "C"]}, [b"\0", b"\2"]),
        (["long", "double"], ["double", "long"], [b"\0" + b"\xff" * 8 + b"\x7f", b"\2" + b"\0" * 8]),
        (["null", "bytes"], ["null", "string", "bytes"], [b"\0", b"\2\4ab"]),
        ("long", "double", [b"\xff" * 8 + b"\x7f", b"\x08", b"\xfe\xff\xff\xff\xff\xff\xff\x1f"]),
        ("string", "bytes", [b"\4ab"]),
        ("bytes", "string", [b"\4ab", b"\2\xff"]),
        (LOCAL, None, [b"\x08"]),
        (DATE, None, [b"\x08", b"\xf3\xe4\x57", b"\xf5\xe4\x57", b"\xc0\x82\xe6\x02", b"\xc2\x82\xe6\x02"]),
        ({"type": "array", "items": "long"}, None, [b"\0", b"\2\2\0"]),
        ({"type": "map", "values": "long"}, None, [b"\0"]),
    ],
)
@pytest.mark.parametrize("name", ["k", "t", "more"])
def test_each_type_is_what_fastavro_makes_of_it(name: str, written: Any, read: Any, data: list[bytes]) -> None:
    """As a key, as an event time, and where nobody wants it."""

    def of(kind: Any) -> dict[str, Any]:
        return {
            "type": "record",
            "name": "Event",
            "fields": [{"name": "u", "type": "string"}, {"name": name, "type": kind}],
        }

    schema = RawSchema(
        user=("u",), key=("k",), time="t" if name == "t" else None, null_key="value", time_zone="Europe/Berlin"
    )
    form, _ = registered(RawDecoder(schema).paths, {5: of(written)}, None if read is None else of(read))
    compare(schema, form, [b"\0\0\0\0\x05\6ann" + one for one in data])
