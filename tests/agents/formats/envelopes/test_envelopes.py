"""Envelopes: what is inside, what is around it, and that each record is unwrapped alone."""

import base64
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.envelopes import ENVELOPES
from susurrus.agents.formats.envelopes.connect_types import converted
from susurrus.agents.formats.format import Format, ObjectFormat
from susurrus.topics.records.fields import Path, parse_path
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers
from tests.formats_rows import decoder, overdue
from tests.formats_rows import rows as rows_of
from tests.samples import many_odd


def written(payloads: Sequence[Any]) -> list[bytes | None]:
    """What is not bytes is written as JSON; None is a tombstone."""
    return [one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in payloads]


def rows(form: Format, payloads: Sequence[Any], headers: Sequence[Headers] | None = None) -> list[Any]:
    return rows_of(form, written(payloads), headers)


def base64_of(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


# ---- Debezium --------------------------------------------------------------------------------------------------------


def change(op: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_790_834_400_123, **more}


DEBEZIUM = ["customer", "$envelope.op", "$envelope.source.table", "$envelope.ts_ms"]


@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_debezium_is_the_row_after_a_change(op: str) -> None:
    form = decoder(DEBEZIUM, envelope="debezium")
    assert rows(form, [change(op, {"customer": "old"}, {"customer": "new"})]) == [
        ["new", op, "orders", 1_790_834_400_123]
    ]


def test_debezium_is_the_row_before_a_delete() -> None:
    form = decoder([*DEBEZIUM, "$envelope.before.customer"], envelope="debezium")
    found = rows(form, [change("d", {"customer": "ann"})])
    assert found == [["ann", "d", "orders", 1_790_834_400_123, "ann"]]


def test_what_is_no_row_of_debezium_is_filtered_and_what_is_no_event_is_a_dead_letter() -> None:
    odd = [
        None, change("t"), change("m", message={"prefix": "x"}), {"schema": None, "payload": None}, b"null",
        {"customer": "ann"}, {"op": "c"}, {"op": 7, "after": {}}, {"op": "z", "after": {}}, [1], 7, change("d"),
        change("c"), change("c", after=[1]), b"{", b"", b"\xff", {"schema": {}, "payload": {"op": "c"}},
    ]  # fmt: skip
    no = Reason.NO_ENVELOPE
    assert rows(decoder(DEBEZIUM, envelope="debezium"), odd) == [
        *[Reason.FILTERED] * 5, no, no, no, no, no, no, no, no, Reason.WRONG_TYPE, Reason.NOT_JSON, Reason.EMPTY,
        Reason.INVALID_UTF8, no,
    ]  # fmt: skip


def test_a_condition_is_asked_of_a_debezium_event_without_a_row() -> None:
    """A delete without the row as it was is no bad input where deletes are left out."""
    form = decoder(DEBEZIUM, envelope="debezium")
    form.prepare([parse_path("$envelope.op")], [])
    (chunk,) = form.read([json.dumps(change("d")).encode()], overdue)
    assert chunk.refused == {}
    assert chunk.pending == {0: Reason.NO_ENVELOPE}
    assert chunk.columns[1] == ["d"]


def test_documents_of_mongodb_are_texts_in_the_event() -> None:
    form = decoder(["user._id"], envelope="debezium")
    good = change("c", after='{"user": {"_id": "ann"}}')
    deep = "[" * 500 + "]" * 500
    found = rows(form, [good, change("c", after="{"), change("c", after=deep), change("c", after='"x"'), good])
    assert found == [["ann"], Reason.NOT_JSON, Reason.TOO_DEEP, Reason.WRONG_TYPE, ["ann"]]


def test_decimals_of_debezium_by_their_scale() -> None:
    form = decoder(["amount", "price.net"], envelope="debezium", decimals={"amount": 2, "price.net": 0})
    paid = [1999, 2000, -1, 0, 2**70]
    found = rows(form, [change("c", after={"amount": base64_of(n), "price": {"net": 7}}) for n in paid])
    assert found == [[n / 100, 7] for n in paid]
    odd = [{"amount": "12.5"}, {"amount": ""}, {"amount": 1.5, "price": None}, {"amount": None}, {"price": [1]}, {}]
    wrong = Reason.WRONG_TYPE
    assert [one if isinstance(one, Reason) else "good" for one in rows(form, [change("c", after=x) for x in odd])] == [
        wrong, wrong, "good", "good", wrong, "good",
    ]  # fmt: skip


def test_decimals_need_no_envelope() -> None:
    form = decoder(["amount"], decimals={"amount": 3})
    assert rows(form, [{"amount": base64_of(-1500)}, {"amount": 2}, None, {"amount": "?"}]) == [
        [-1.5], [2], Reason.TOMBSTONE, Reason.WRONG_TYPE,
    ]  # fmt: skip


# ---- Connect ---------------------------------------------------------------------------------------------------------

FIELDS = [
    {"field": "u", "type": "string", "optional": False},
    {"field": "amount", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date"},
    {"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
    {"field": "time", "type": "int32", "name": "org.apache.kafka.connect.data.Time"},
    {"field": "raw", "type": "bytes"},
    {"field": "local", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {"field": "nano", "type": "int64", "name": "io.debezium.time.NanoTimestamp"},
    {"field": "milli", "type": "int64", "name": "io.debezium.time.Timestamp"},
    {"field": "micro_time", "type": "int64", "name": "io.debezium.time.MicroTime"},
    {"field": "debezium_day", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    {"field": "any", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": [
        {"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]},
    {"field": "list", "type": "array", "items": {"type": "bytes"}},
    {"field": "map", "type": "map", "keys": {"type": "string"}, "values": {"type": "int32", "name": "io.debezium.time.Date"}},
    {"field": "inner", "type": "struct", "fields": [{"field": "raw", "type": "bytes"}]},
]  # fmt: skip
SCHEMA = {"type": "struct", "fields": FIELDS, "optional": False, "name": "shop.Order"}
ORDER = {
    "u": "ann", "amount": base64_of(1999), "day": 20_727, "at": 1_790_834_400_123, "time": 3_600_001, "raw": "AQI=",
    "local": 1_790_834_400_123_456, "nano": -1, "milli": 1, "micro_time": 1_000_001, "debezium_day": -1,
    "zoned": "2026-10-01T06:00:00Z", "any": {"scale": -1, "value": "AQ=="}, "list": ["AQI=", None], "map": {"a": 0},
    "inner": {"raw": "AQI="},
}  # fmt: skip


def wrapped(payload: Any, schema: Any = SCHEMA) -> dict[str, Any]:
    return {"schema": schema, "payload": payload}


def test_the_types_of_connect_are_read_by_the_schema_in_the_record() -> None:
    (value,) = rows(decoder([""], envelope="connect"), [wrapped(ORDER)])
    assert value == [
        {
            "u": "ann", "amount": Decimal("19.99"), "day": date(2026, 10, 1),
            "at": datetime(2026, 10, 1, 6, 0, 0, 123_000, UTC), "time": time(1, 0, 0, 1000), "raw": b"\1\2",
            "local": datetime(2026, 10, 1, 6, 0, 0, 123_456), "nano": datetime(1969, 12, 31, 23, 59, 59, 999_999),
            "milli": datetime(1970, 1, 1, 0, 0, 0, 1000), "micro_time": time(0, 0, 1, 1), "debezium_day": date(1969, 12, 31),
            "zoned": "2026-10-01T06:00:00Z", "any": Decimal(10), "list": [b"\1\2", None], "map": {"a": date(1970, 1, 1)},
            "inner": {"raw": b"\1\2"},
        }
    ]  # fmt: skip


def test_a_value_that_its_type_cannot_hold_stays_and_the_record_is_read() -> None:
    """PostgreSQL's infinity, for example, in a field that nobody wants."""
    odd = {
        "amount": "?", "day": 2**31, "at": 2**63 - 1, "time": -1, "raw": "*", "local": 2**63 - 1, "nano": "x", "milli": True,
        "micro_time": 1e9, "any": {"scale": 10**9, "value": "AQ=="}, "list": {}, "map": [], "inner": 7,
    }  # fmt: skip
    (value,) = rows(decoder([""], envelope="connect"), [wrapped(odd)])
    assert value == [odd]


def test_connect_names_the_schema_and_refuses_what_it_did_not_write() -> None:
    form = decoder(["u", "$envelope.schema"], envelope="connect")
    odd = [
        {"u": "ann"},
        [],
        b"null",
        {"schema": 1},
        {"schema": 1, "payload": 2, "x": 3},
        wrapped(None),
        None,
        wrapped(7),
    ]
    no = Reason.NO_ENVELOPE
    assert rows(form, odd) == [no] * 5 + [Reason.TOMBSTONE, Reason.TOMBSTONE, Reason.WRONG_TYPE]
    assert rows(form, [wrapped({"u": "ann"}), wrapped({"u": "ben"}, None)]) == [["ann", "shop.Order"], ["ben", None]]


def test_debezium_in_connects_wrapper_has_its_types() -> None:
    schema = {
        "type": "struct", "name": "shop.public.orders.Envelope", "fields": [
            {"field": "before", **SCHEMA}, {"field": "after", **SCHEMA}, {"field": "op", "type": "string"}]}  # fmt: skip
    form = decoder(["amount", "day", "$envelope.op", "$envelope.schema"], envelope="debezium")
    found = rows(form, [wrapped(change("c", after=ORDER), schema), change("c", after={"amount": 1})])
    assert found[0] == [19.99, date(2026, 10, 1), "c", "shop.public.orders.Envelope"]
    assert found[1][0] == 1


def test_the_work_of_a_schema_is_linear_in_the_record() -> None:
    """A list of many objects must not look through a schema of many fields each time."""

    class Counted(list[Any]):
        looks = 0

        def __iter__(self) -> Any:
            Counted.looks += 1
            return super().__iter__()

    fields = Counted({"field": f"f{n}", "type": "bytes"} for n in range(500))
    schema = {"type": "array", "items": {"type": "struct", "fields": fields}}
    found = converted([{"f7": "AQ=="} for _ in range(500)], schema)
    assert found == [{"f7": b"\1"}] * 500
    assert Counted.looks == 1


def test_values_nest_as_deep_as_json_may() -> None:
    value: Any = "AQ=="
    schema: Any = {"type": "bytes"}
    for _ in range(390):
        value, schema = [value], {"type": "array", "items": schema}
    found = converted(value, schema)
    for _ in range(390):
        (found,) = found
    assert found == b"\1"


# ---- CloudEvents -----------------------------------------------------------------------------------------------------

EVENTS = ["userId", "$envelope.type", "$envelope.time"]
BINARY: Headers = [
    ("ce_specversion", b"1.0"), ("ce_type", b"old"), ("ce_type", b"shop.order"), ("ce_time", b"2026-10-01T06:00:00Z"),
    ("content-type", b"application/json"),
]  # fmt: skip


def structured(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "type": "shop.order", "time": "2026-10-01T06:00:00Z", **more}


def test_cloudevents_are_the_same_in_both_ways() -> None:
    form = decoder(EVENTS, envelope="cloudevents")
    data = {"userId": "ann"}
    encoded = base64.b64encode(json.dumps(data).encode()).decode()
    found = rows(
        form,
        [data, structured(data=data), structured(data_base64=encoded), structured(data_base64=encoded, data=None)],
        [BINARY, (), [("content-type", b"application/cloudevents+json")], ()],
    )
    assert found == [["ann", "shop.order", "2026-10-01T06:00:00Z"]] * 4


def test_what_is_no_cloudevent_is_refused() -> None:
    form = decoder(EVENTS, envelope="cloudevents")
    bad = [("ce_specversion", b"1.0"), ("ce_type", b"\xff")]
    values: list[Any] = [
        {"userId": "ann"}, {"specversion": 1}, [], {"userId": "ann"}, structured(data_base64="?"), structured(data_base64="ew=="),
        structured(data="x"), structured(data_base64="AQ==", datacontenttype="image/png"), None, structured(),
        structured(data_base64=base64.b64encode(b"[" * 500).decode()),
    ]  # fmt: skip
    none: list[Headers] = [()] * (len(values) - 4)
    wrong = Reason.WRONG_TYPE
    found = rows(form, values, [[("ce_time", b"x")], (), (), bad, *none])
    assert found[:9] == [
        *[Reason.NO_ENVELOPE] * 3, Reason.INVALID_UTF8, wrong, Reason.NOT_JSON, wrong, wrong, Reason.TOMBSTONE,
    ]  # fmt: skip
    assert found[9][1:] == ["shop.order", "2026-10-01T06:00:00Z"]  # an event without data has no user
    assert found[10] == Reason.TOO_DEEP


# ---- all -------------------------------------------------------------------------------------------------------------


def odd_events(seed: int, number: int) -> list[bytes | None]:
    """Events of all envelopes, cut, mixed, and with other types in their places."""
    draw = random.Random(seed)
    scalars: list[Any] = [None, True, 7, -1.5, 2**63, "", "ann", "AQ==", "d", [], {}, [1], {"u": "ann"}, "{", "\ud800"]
    good: list[Any] = [
        change("c", after={"u": "ann"}), change("d", {"u": "ann"}), wrapped(ORDER), structured(data={"u": "ann"}),
        wrapped(change("u", ORDER, ORDER), {"type": "struct", "fields": [{"field": "after", **SCHEMA}]}),
    ]  # fmt: skip

    def disturbed(value: Any) -> Any:
        if draw.random() < 0.08:
            return draw.choice(scalars)
        if isinstance(value, dict):
            return {name: disturbed(inner) for name, inner in value.items() if draw.random() > 0.03}
        return [disturbed(inner) for inner in value] if isinstance(value, list) else value

    found: list[bytes | None] = []
    for _ in range(number):
        text = json.dumps(disturbed(draw.choice(good))).encode()
        if draw.random() < 0.1:
            text = text[: draw.randrange(len(text))] + draw.randbytes(2)
        found.append(None if draw.random() < 0.02 else text)
    return found


@pytest.mark.parametrize(
    "scale", ["\u0662", " 2", "2 ", "1_0", "+2", "", "-", "9" * 5_000, "00000002", 2, True, None, [], "-1001"]
)
def test_a_scale_is_written_as_connect_writes_it(scale: Any) -> None:
    """What Python reads as an integer beyond that follows its version, or takes the square of the time. The text stays then."""
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}
    assert converted("AQ==", schema) == "AQ=="
    for good, found in (("2", Decimal("0.01")), ("-2", Decimal(100)), ("0", Decimal(1))):
        assert converted("AQ==", {**schema, "parameters": {"scale": good}}) == found


PATHS = ["u", "amount", "$envelope.op", "$envelope.source.table", "$envelope.type", "$envelope.schema"]


@pytest.mark.parametrize("number", [4_000, pytest.param(many_odd(20_000), marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("name", [name for name in ENVELOPES if name != "none"])
def test_odd_events_raise_nothing_and_each_is_decided_alone(name: str, number: int) -> None:
    form = decoder(PATHS, envelope=name, decimals={"amount": 2})
    payloads = odd_events(7, number)
    draw = random.Random(8)
    headers = [BINARY if draw.random() < 0.3 else [("ce_type", draw.randbytes(2))] for _ in payloads]
    together = rows(form, payloads, headers)
    assert {type(one) for one in together} == {list, Reason}
    assert Reason.UNDECODABLE not in together  # nothing has raised
    for row in draw.sample(range(number), 1_000):
        (alone,) = rows(form, payloads[row : row + 1], headers[row : row + 1])
        assert repr(alone) == repr(together[row])


def test_what_a_format_says_around_a_value_joins_what_the_envelope_says(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(ObjectFormat):
        name = "named"
        meaning = "a toy"
        around = ("schema",)

        def parse(self, payload: bytes) -> Any:
            schema, _, text = payload.partition(b" ")
            if not text:
                return Enveloped(None, {"schema": schema.decode()}, Reason.OTHER_TYPE)
            return Enveloped(json.loads(text), {"schema": schema.decode()})

    monkeypatch.setitem(FORMATS, "named", Named)
    form = decoder(["u", "$envelope.schema", "$envelope.op"], format="named", envelope="debezium")
    good = b"shop.Order " + json.dumps(change("c", after={"u": "ann"})).encode()
    assert rows(form, [good, b"other", good]) == [
        ["ann", "shop.Order", "c"],
        Reason.OTHER_TYPE,
        ["ann", "shop.Order", "c"],
    ]
    form.prepare([parse_path("$envelope.schema")], [])
    (chunk,) = form.read([b"other", good], overdue)
    assert chunk.pending == {0: Reason.OTHER_TYPE}
    assert chunk.columns[1] == ["other", "shop.Order"]


@pytest.mark.parametrize("field", ["$envelope.amount", "a..b", ""])
def test_decimals_name_fields(field: Path) -> None:
    with pytest.raises(ValueError, match="decimals"):
        InputSettings(topic="raw", decimals={field: 2})
