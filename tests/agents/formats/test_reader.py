"""Records to rows: what is beside a value, records taken apart, and conditions that are asked before anything is refused."""

import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path as Path_
from typing import Any

import numpy as np
import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.formats.beside import Beside
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.reader import VALUE, RecordReader
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.topics.records.fields import Path, parse_path
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.raw import MAX_ITEMS, ComputedField, RawColumns, RawDecoder, RawSchema, places
from susurrus.topics.records.reason import Reason

fastavro = pytest.importorskip("fastavro")
msgpack = pytest.importorskip("msgpack")


def source_of(key_format: str = "text", lists: Sequence[tuple[str, str | None]] = ()) -> InputSettings:
    each = [{"of": of} if name is None else {"of": of, "as": name} for of, name in lists]
    return InputSettings.model_validate({"topic": "orders", "key_format": key_format, "each": each})


def record(
    value: Any, *, key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = (), offset: int = 0
) -> Any:
    packed = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return ReadRecord("orders", 3, offset, 1_790_834_400_000 + offset, key, packed, list(headers))


def read(
    records: Sequence[Any], *paths: str, where: str | None = None, key_format: str = "text", lists: Sequence[Any] = ()
) -> list[Any]:
    """For each row its fields, or the Reason."""
    chunks = list(chunks_of(records, [parse_path(path) for path in paths], where, source_of(key_format, lists)))
    return [row for chunk in chunks for row in rows_of(chunk)]


def chunks_of(
    records: Sequence[Any], wanted: Sequence[Path | ComputedField], where: str | None, source: InputSettings
) -> list[Chunk]:
    computation = Computation(wanted, where)
    reader = reader_of(source, computation.paths, topic=None, partition=None, asked=computation.asked)
    return list(computation.applied(reader.read(records, lambda row: True)))


def rows_of(chunk: Chunk) -> list[Any]:
    assert not chunk.pending
    good = zip(*chunk.columns, strict=True)
    return [chunk.refused[row] if row in chunk.refused else next(good) for row in range(chunk.rows)]


def test_what_is_beside_the_value() -> None:
    one = record({"page": "/a"}, key=b"ann", headers=[("h", b"1"), ("h", b"2"), ("none", None)], offset=7)
    wanted = ("$key", "page", "$headers.h", "$headers.none", "$topic", "$partition", "$offset", "$timestamp")
    assert read([one], *wanted) == [("ann", "/a", "2", None, "orders", 3, 7, 1_790_834_400_007)]


@pytest.mark.parametrize(
    ("key_format", "key", "found"),
    [
        ("text", "é".encode(), "é"),
        ("text", b"\xff", Reason.UNREADABLE_KEY),
        ("text", None, None),
        ("int64", (5).to_bytes(8, "big"), 5),
        ("int64", (-5).to_bytes(8, "big", signed=True), -5),
        ("int64", b"12345", Reason.UNREADABLE_KEY),
        ("int32", (2**31 - 1).to_bytes(4, "big"), 2**31 - 1),
        ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("uuid", b"0" * 15, Reason.UNREADABLE_KEY),
        ("none", b"\xff\x00", b"\xff\x00"),
        ("json", b'"ann"', "ann"),
        ("json", b"12", 12),
        ("json", b"ann", Reason.UNREADABLE_KEY),
    ],
)
def test_a_key_has_a_format_of_its_own(key_format: str, key: bytes | None, found: Any) -> None:
    neighbours = [record({"k": "x"}, key=b"\xfe"), record({"k": "y"}, key=b"12345678")]
    wanted = found if isinstance(found, Reason) else (found, "x")
    assert read([record({"k": "x"}, key=key)], "$key", "k", key_format=key_format) == [wanted]
    assert (
        read([neighbours[0], record({"k": "x"}, key=key), neighbours[1]], "$key", "k", key_format=key_format)[1]
        == wanted
    )


def test_fields_of_a_key() -> None:
    records = [record({"k": "x"}, key=b'{"id": {"n": 4}}'), record({"k": "y"}, key=None), record({"k": "z"}, key=b"[]")]
    [first, second, third] = read(records, "$key.id.n", "k", key_format="json")
    assert (first, third) == ((4, "x"), Reason.UNREADABLE_KEY)
    assert second[1] == "y"
    assert second[0] != 4


def test_a_header_that_is_no_text_is_its_records_only() -> None:
    records = [record({"k": n}, headers=[("u", value)]) for n, value in enumerate((b"ann", b"\xff", b"bob"))]
    assert read(records, "$headers.u", "k") == [("ann", 0), Reason.UNREADABLE_HEADER, ("bob", 2)]
    assert read(records, "k") == [(0,), (1,), (2,)]


def test_the_bytes_of_a_header_are_read_beside_its_text() -> None:
    values = (b"ann", b"\xff", None)
    records = [record({"k": n}, headers=[("u", value)]) for n, value in enumerate(values)] + [record({"k": 3})]
    wanted = [ComputedField("hex($headers.u)"), ("k",)]
    [chunk] = chunks_of(records, wanted, None, source_of())
    assert rows_of(chunk) == [("616E6E", 0), ("FF", 1), (None, 2), (None, 3)]
    [chunk] = chunks_of(records, wanted, "$headers.u = 'ann' OR $headers.u IS NULL", source_of())
    assert rows_of(chunk) == [("616E6E", 0), Reason.UNREADABLE_HEADER, (None, 2), (None, 3)]


def test_lists_objects_and_bytes_in_expressions() -> None:
    first = record({"tags": ["a", "b"], "k": {"x": 1}}, key=b"\xff")
    records = [first, record({"tags": "a", "k": 5}), record({"tags": None})]
    wanted = [ComputedField("tags ->> '$[1]'"), ComputedField("k"), ComputedField("hex($key)")]
    [chunk] = chunks_of(records, wanted, None, source_of("none"))
    assert rows_of(chunk) == [("b", '{"x":1}', "FF"), Reason.EXPRESSION_FAILED, (None, None, None)]


def test_the_whole_value() -> None:
    assert read([record(20.5), record("a"), record(None), record({"a": 1})], "$value") == [
        (20.5,), ("a",), Reason.TOMBSTONE, ({"a": 1},)
    ]  # fmt: skip


ITEMS: list[Any] = [("items", "item")]


def test_one_row_for_each_item() -> None:
    records = [
        record({"u": "ann", "items": [{"sku": "A"}, {"sku": "B"}]}),
        record({"u": "bob", "items": []}),
        record({"u": "bob"}),
        record({"u": "bob", "items": None}),
        record({"u": "cat", "items": "A"}),
        record({"u": "cat", "items": [{"sku": "C"}, "D", {"sku": {"x": 1}}, {}]}),
        record(b"{"),
    ]
    rows = read(records, "u", "item.sku", lists=ITEMS)
    assert rows[:6] == [("ann", "A"), ("ann", "B"), *[Reason.NO_ITEMS] * 3, Reason.NOT_ITEMS]
    assert rows[6:9] == [("cat", "C"), Reason.WRONG_TYPE, ("cat", {"x": 1})]
    assert rows[9][0] == "cat"  # without a sku
    assert rows[10:] == [Reason.NOT_JSON]
    [chunk] = chunks_of(records, [("u",), ("item", "sku")], None, source_of(lists=ITEMS))
    assert chunk.records == 7
    assert chunk.record is not None
    assert chunk.record.tolist() == [0, 0, 1, 2, 3, 4, 5, 5, 5, 5, 6]
    assert chunk.item is not None
    assert chunk.item.tolist() == [0, 1, -1, -1, -1, -1, 0, 1, 2, 3, -1]


def test_scalars_maps_arrays_in_arrays_and_values_that_are_lists() -> None:
    assert read([record({"u": 1, "t": ["a", "b"]})], "u", "t1", lists=[("t", "t1")]) == [(1, "a"), (1, "b")]
    flags = record({"u": 1, "flags": {"dark": True, "beta": False}})
    assert read([flags], "u", "f.key", "f.value", lists=[("flags", "f")]) == [(1, "dark", True), (1, "beta", False)]
    orders = record(
        {"u": 1, "orders": [{"id": 7, "items": [{"s": "A"}, {"s": "B"}]}, {"id": 8}, {"id": 9, "items": [{"s": "C"}]}]}
    )
    twice = [("orders", "order"), ("order.items", "item")]
    assert read([orders], "u", "order.id", "item.s", lists=twice) == [
        (1, 7, "A"),
        (1, 7, "B"),
        Reason.NO_ITEMS,
        (1, 9, "C"),
    ]
    values = [record([{"u": 1}, {"u": 2}, 5]), record({"u": 3}), record([])]
    assert read(values, "u", lists=[("$value", None)]) == [(1,), (2,), Reason.WRONG_TYPE, (3,), Reason.NO_ITEMS]
    assert read(values[:1], "r.u", "$offset", lists=[("$value", "r")])[:2] == [(1, 0), (2, 0)]


def test_more_items_than_there_can_be_are_one_bad_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("susurrus.agents.formats.items.MAX_ITEMS", 3)
    many = {"u": 1, "orders": [{"items": [1, 2]}, {"items": [3, 4]}]}
    few = {"u": 2, "orders": [{"items": [1, 2]}, {"items": [3]}]}
    twice = [("orders", "order"), ("order.items", "item")]
    assert read([record(many), record(few)], "u", "item", lists=twice) == [
        Reason.TOO_MANY_ITEMS,
        (2, 1),
        (2, 2),
        (2, 3),
    ]


def test_a_condition_is_asked_before_a_record_is_bad() -> None:
    where = "\"type\" = 'click'"
    assert read([record({"type": "view", "user": "text"})], "user.id", "type", where=where) == [Reason.FILTERED]
    assert read([record({"type": "click", "user": "text"})], "user.id", "type", where=where) == [Reason.WRONG_TYPE]
    assert read([record(b"{"), record(None)], "user.id", "type", where=where) == [Reason.NOT_JSON, Reason.TOMBSTONE]
    with_key = [record({"type": t}, key=b"\xff") for t in ("view", "click")]
    assert read(with_key, "$key", where=where) == [Reason.FILTERED, Reason.UNREADABLE_KEY]


def test_a_condition_over_items_and_over_their_record() -> None:
    records = [
        record({"type": "order", "items": [{"sku": "A", "n": 1}, {"sku": "B", "n": 0}]}),
        record({"type": "page", "items": 5}),
        record({"type": "order", "items": 5}),
        record({"type": "page"}),
    ]
    rows = read(records, "item.sku", where="\"type\" = 'order'", lists=ITEMS)
    assert rows == [("A",), ("B",), Reason.FILTERED, Reason.NOT_ITEMS, Reason.NO_ITEMS]
    assert read(records[:3], "item.sku", where="item.n > 0", lists=ITEMS) == [
        ("A",), Reason.FILTERED, Reason.NOT_ITEMS, Reason.NOT_ITEMS
    ]  # fmt: skip


def test_an_item_that_cannot_be_read_is_a_bad_record_of_its_own() -> None:
    """Its neighbours in the list may be of other users."""
    good = [b'{"u": "ann", "n": 1}', b'{"u": "bob", "n": 2}']
    for odd, why in (
        (b'{"u": "eve", "n": 1e999}', Reason.NOT_FINITE),
        (b'{"u": "\xff", "n": 1}', Reason.INVALID_UTF8),
        (b"[1e999]", Reason.NOT_FINITE),
    ):
        value = b"[" + b",".join([good[0], odd, good[1]]) + b"]"
        assert read([record(value)], "u", "n", lists=[("$value", None)]) == [("ann", 1), why, ("bob", 2)]
        assert read([record(b'{"all": ' + value + b"}")], "one.u", "one.n", lists=[("all", "one")])[::2] == [
            ("ann", 1),
            ("bob", 2),
        ]
    assert read([record(b'{"m": {"a": 1, "b": 1e999, "c": 3}}')], "e.key", "e.value", lists=[("m", "e")]) == [
        ("a", 1), Reason.NOT_FINITE, ("c", 3)
    ]  # fmt: skip
    assert read([record(b'{"u": 1, "v": 1e999}')], "u", lists=[("$value", None)]) == [Reason.NOT_FINITE]


def test_places_are_distinct_and_in_order() -> None:
    offset, item = np.array([5, 5, 6, 6]), np.array([0, 1, 0, MAX_ITEMS - 1])
    found = places(offset, item)
    assert (np.diff(found) > 0).all()
    assert (found // MAX_ITEMS == offset).all()
    with pytest.raises(ValueError, match="2\\^43"):
        places(np.array([1 << 43]), np.array([0]))


ODD: list[Any] = [
    None, b"", b"{", b"[]", b"1", b'"x"', b"\xff", b'{"u": 1e999}', b"[" * 900, {"u": "ann", "items": [1, {"sku": "A"}, None]},
    {"u": 5, "items": {"a": 1}}, {"u": None, "items": [[{"sku": 1}]]}, {"u": "bob", "items": [{"sku": "B"}] * 3}, {"items": []},
    {"u": 2**70, "items": [{"sku": 2**70}]}, {"u": True, "items": [{"sku": 1.5}, {"sku": "\ud800"}]},
]  # fmt: skip


def _decoded(records: Sequence[Any]) -> tuple[list[list[Any]], RawColumns]:
    """For each record what its rows come to."""
    schema = RawSchema(user=("u",), key=("item.sku",))
    decoder = RawDecoder(schema)
    computation = Computation(decoder.scalars, "u is null or u != 'nobody'")
    reader = reader_of(source_of(lists=ITEMS), computation.paths, topic="t", partition=0, asked=computation.asked)
    columns = decoder.decode(computation.applied(reader.read(records, lambda row: True)))
    assert columns.record is not None
    assert columns.item is not None
    found: list[list[Any]] = [[] for _ in records]
    for row, owner in enumerate(columns.record.tolist()):
        why = int(columns.reason[row])
        user, key = int(columns.user[row]), int(columns.key[row])
        found[owner].append((why, int(columns.item[row]), None if why else (columns.users[user], columns.keys[key])))
    return found, columns


def test_a_record_is_decided_alone() -> None:
    dice = random.Random(1)
    alone = {number: _decoded([record(value)])[0][0] for number, value in enumerate(ODD)}
    for _ in range(50):
        chosen = dice.choices(range(len(ODD)), k=dice.randrange(1, 40))
        found, columns = _decoded([record(ODD[number], offset=at) for at, number in enumerate(chosen)])
        assert found == [alone[number] for number in chosen]
        assert len(columns.reason) == sum(map(len, found))


def test_a_key_may_wait_for_its_schema_as_long_as_its_format_says() -> None:
    key, value = Json([("id",)], None), Json([("k",)], None)
    key.patience = 5_000
    paths = [("", "key", "id"), ("k",)]
    beside = Beside(paths[:1], key, topic="t", partition=0)
    assert RecordReader(value, beside, paths=paths, wanted=paths).patience == 5_000


def test_a_reader_that_is_closed_has_ended_the_engine_of_its_lists() -> None:
    source = InputSettings.model_validate(
        {"topic": "t", "each": {"of": {"expression": "string_split(t, ',')"}, "as": "one"}}
    )
    reader = reader_of(source, [("one",)], topic="t", partition=0)
    [chunk] = reader.read([record({"t": "a,b"})], lambda row: True)
    assert chunk.columns == [["a", "b"]]
    [step] = reader._steps
    assert isinstance(step.of, Evaluation)
    reader.close()
    with pytest.raises(step.of.engine.refused, match="closed"):
        step.of.engine.connection.execute("SELECT 1")


EVENT = {"user": "ann", "n": 3, "geo": {"country": "CH"}, "tags": ["a", "b"]}
SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "user", "type": ["null", "string"]},
        {"name": "n", "type": "long"},
        {"name": "geo", "type": {"type": "record", "name": "Geo", "fields": [{"name": "country", "type": "string"}]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def in_avro(event: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), event)
    return out.getvalue()


def whole_source(directory: Any, **source: Any) -> InputSettings:
    section = InputSettings.model_validate({"topic": "orders", **source})
    (directory / "event.avsc").write_text(json.dumps(SCHEMA))
    section.read_files(directory)
    return section


WHOLE: dict[str, tuple[dict[str, Any], Callable[[Any], bytes]]] = {
    "JSON": ({}, lambda event: json.dumps(event).encode()),
    "gzip": ({"compression": "auto"}, lambda event: gzip.compress(json.dumps(event).encode(), mtime=0)),
    "UTF-16": ({"encoding": "utf-16"}, lambda event: json.dumps(event).encode("utf-16")),
    "MessagePack": ({"format": "msgpack"}, lambda event: msgpack.packb(event)),
    "Avro": ({"format": "avro", "framing": "none", "schema_file": "event.avsc"}, in_avro),
    "Connect": (
        {"envelope": "connect"}, lambda event: json.dumps({"schema": None, "payload": event}).encode(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_value_beside_its_fields(name: str, tmp_path: Path_) -> None:
    given, pack = WHOLE[name]
    source = whole_source(tmp_path, **given)
    fields = [parse_path(path) for path in ("user", "geo.country", "absent", "$offset")]
    events = [EVENT, {**EVENT, "user": None}, {**EVENT, "n": 2**60}]
    some = [record(pack(event), offset=n) for n, event in enumerate(events)]
    alone = [row for chunk in chunks_of(some, fields, None, source) for row in rows_of(chunk)]
    both = [row for chunk in chunks_of(some, [VALUE, *fields], None, source) for row in rows_of(chunk)]
    assert [row[1:] for row in both] == alone
    assert [row[0] for row in both] == events
    computed = [ComputedField("coalesce(\"user\", $value->>'$.geo.country')"), ComputedField("len($value) > 10")]
    found = [row for chunk in chunks_of(some, [*computed, fields[0]], None, source) for row in rows_of(chunk)]
    assert [row[:2] for row in found] == [("ann", True), ("CH", True), ("ann", True)]


def test_the_whole_value_beside_fields_in_conditions_and_lists() -> None:
    source = source_of(lists=[("items", "item")])
    values = [
        {"user": "a", "kind": "x", "items": [1, 2]},
        {"user": "b", "kind": "y", "items": []},
        {"user": "c", "items": 5},
        b"{",
        [1],
        None,
    ]
    wanted = [VALUE, parse_path("user"), parse_path("item")]
    [chunk] = chunks_of([record(value) for value in values], wanted, "$value->>'$.kind' = 'x' OR kind IS NULL", source)
    assert rows_of(chunk) == [
        (values[0], "a", 1), (values[0], "a", 2), Reason.NO_ITEMS, Reason.NOT_ITEMS, Reason.NOT_JSON, Reason.WRONG_TYPE,
        Reason.TOMBSTONE,
    ]  # fmt: skip


def odd_value(dice: random.Random) -> bytes | None:
    kind = dice.random()
    if kind < 0.1:
        return None
    if kind < 0.3:
        return dice.randbytes(dice.randrange(30))
    odd = [None, "", "x", 1.5, 2**70, [], {}, {"country": 1}, [{}], True, "\ud800", "[" * 900]
    value = {name: dice.choice(odd) for name in dice.sample(["user", "geo", "n", "", "tags"], dice.randrange(5))}
    return json.dumps(dice.choice([value, value, [value], 7, None])).encode()


@pytest.mark.parametrize("name", ["JSON", "gzip", "MessagePack", "Avro", "Connect"])
def test_odd_values_with_their_fields_are_each_decided_alone(name: str, tmp_path: Path_) -> None:
    given, pack = WHOLE[name]
    source = whole_source(tmp_path, **given)
    wanted, dice = [VALUE, parse_path("user"), parse_path("geo.country")], random.Random(33)
    payloads = [odd_value(dice) if dice.random() < 0.8 else pack(EVENT) for _ in range(3_000)]
    some = [record(payload, offset=n) for n, payload in enumerate(payloads)]
    together = [row for chunk in chunks_of(some, wanted, None, source) for row in rows_of(chunk)]
    assert len(together) == len(some)
    assert together.count(together[payloads.index(pack(EVENT))]) > 500
    for n in range(0, len(some), 7):
        [chunk] = chunks_of(some[n : n + 1], wanted, None, source)
        assert repr(rows_of(chunk)) == repr(together[n : n + 1])
