"""Topics as companies write them, each with the configuration that reads it: which users count under which key, and what is bad.

The data are invented. Every case goes through route as a worker runs it; what users and sums mean after that is the same for all.
"""

import base64
import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.agents.histogram.any_topic import Case, check, values
from tests.agents.stages import WINDOW

msgpack = pytest.importorskip("msgpack")
pytest.importorskip("re2")

HOUR = 3_600_000


def tracked(user: str | None, anonymous: str, *products: tuple[str, int]) -> dict[str, Any]:
    items = [{"sku": sku, "quantity": quantity} for sku, quantity in products]
    return {"userId": user, "anonymousId": anonymous, "event": "Order Completed", "properties": {"products": items}}


def change(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"table": "orders"}, "ts_ms": WINDOW}


def span(user: str, severity: str) -> dict[str, Any]:
    return {"severityText": severity, "attributes": [
        {"key": "http.route", "value": {"stringValue": "/cart"}}, {"key": "enduser.id", "value": {"stringValue": user}},
    ]}  # fmt: skip


def batch(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [one]} for one in spans]}]}


def amount(cents: int) -> str:
    return base64.b64encode(cents.to_bytes(3, "big", signed=True)).decode()


LISBON = {  # clocks were set back on 1995-09-24, the 55th day from the first window's
    "before": "1995-09-23T23:30:00+02:00",
    "early": "1995-09-24T00:30:00+02:00",
    "late": "1995-09-24T23:30:00+01:00",
    "after": "1995-09-25T00:30:00+01:00",
}
ATTRIBUTE = (
    "list_extract(log.attributes->>'$[*].value.stringValue', list_position(log.attributes->>'$[*].key', 'enduser.id'))"
)
CASES: dict[str, Case] = {
    "the user is the record's key": Case(
        source={"user": "$key", "key": ["page"]},
        records=[
            ({"page": "/a"}, b"ann", ()),
            ({"page": "/a"}, b"bob", ()),
            ({"page": "/b"}, b"ann", ()),
            ({"page": "/b"}, None, ()),
        ],
        users={"/a": {"ann", "bob"}, "/b": {"ann"}},
        letters={"MISSING_USER": 1},
    ),
    "the key is a number of eight bytes": Case(
        source={"user": "$key", "key": ["page"], "key_format": "int64"},
        records=[({"page": "/a"}, number.to_bytes(8, "big"), ()) for number in (0, 1, 2**40)]
        + [({"page": "/a"}, b"12", ())],
        users={"/a": {0, 1, 2**40}},
        letters={"UNREADABLE_KEY": 1},
    ),
    "the key is a UUID": Case(
        source={"user": "$key", "key": ["page"], "key_format": "uuid"},
        records=[({"page": "/a"}, bytes(range(16)), ())],
        users={"/a": {"00010203-0405-0607-0809-0a0b0c0d0e0f"}},
    ),
    "the user is a field of a key in JSON": Case(
        source={"user": "$key.customer.id", "key": ["page"], "key_format": "json"},
        records=[({"page": "/a"}, b'{"customer": {"id": 7}}', ()), ({"page": "/a"}, b"7", ())],
        users={"/a": {7}},
        letters={"UNREADABLE_KEY": 1},
    ),
    "the user is a header": Case(
        source={"user": "$headers.user-id", "key": ["page"]},
        records=[
            ({"page": "/a"}, None, [("user-id", b"ann"), ("trace", b"\xff")]),
            ({"page": "/a"}, None, [("user-id", b"\xff")]),
        ],
        users={"/a": {"ann"}},
        letters={"UNREADABLE_HEADER": 1},
    ),
    "a filter asks a header before the value": Case(
        source={"user": "u", "key": ["page"], "where": "$headers.type = 'click'"},
        records=[
            ({"page": "/a", "u": "ann"}, None, [("type", b"click")]),
            (b"not JSON", None, [("type", b"view")]),
            (None, None, [("type", b"view")]),
            (b"not JSON", None, [("type", b"click")]),
            ({"page": "/a"}, None, [("type", b"view")]),
        ],
        users={"/a": {"ann"}},
        letters={"NOT_JSON": 1},
        left_out=3,
    ),
    "what a record has beside its value is a key": Case(
        source={"user": "u", "key": ["$topic", "$partition", {"name": "even", "expression": "$offset % 2 = 0"}]},
        records=values({"u": "ann"}, {"u": "bob"}, {"u": "cat"}),
        users={'["raw",0,true]': {"ann", "cat"}, '["raw",0,false]': {"bob"}},
    ),
    "a bare number and its topic's header": Case(
        source={
            "user": {"expression": "split_part($headers.\"mqtt.topic\", '/', 2)"},
            "key": [{"name": "warm", "expression": "$value > 21"}],
        },
        records=[(20.5, None, [("mqtt.topic", b"home/p0/temp")]), (21.5, None, [("mqtt.topic", b"home/p1/temp")])],
        users={"false": {"p0"}, "true": {"p1"}},
    ),
    "the user, or else the visitor": Case(
        source={"user": {"expression": "coalesce(userId, anonymousId)"}, "key": ["event"]},
        records=values(tracked("u1", "a1"), tracked(None, "a2"), tracked(None, "a2")),
        users={"Order Completed": {"u1", "a2"}},
    ),
    "the user is a tenant and a number": Case(
        source={"user": ["tenant", "id"], "key": ["k"]},
        records=values(
            *({"tenant": t, "id": n, "k": "x"} for t in ("a", "b") for n in (1, 2, 1)), {"tenant": "a", "k": "x"}
        ),
        users={"x": {("a", 1), ("a", 2), ("b", 1), ("b", 2)}},
        letters={"MISSING_USER": 1},
    ),
    "a number and its digits are one person": Case(
        source={"user": {"expression": "id::VARCHAR"}, "key": ["k"]},
        records=values({"id": 1, "k": "x"}, {"id": "1", "k": "x"}, {"id": 2, "k": "x"}),
        users={"x": {"1", "2"}},
    ),
    "items of an order": Case(
        source={"user": "anonymousId", "key": ["product.sku"], "each": {"of": "properties.products", "as": "product"}},
        records=values(tracked(None, "a1", ("A", 1), ("B", 2)), tracked(None, "a2", ("A", 5)), tracked(None, "a3")),
        users={"A": {"a1", "a2"}, "B": {"a1"}},
        left_out=1,
        adds="product.quantity",
        sums={"A": 6, "B": 2},
    ),
    "a list of tags": Case(
        source={"user": "u", "key": ["tag"], "each": {"of": "tags", "as": "tag"}},
        records=values(
            {"u": "ann", "tags": ["red", "blue"]}, {"u": "bob", "tags": ["red"]}, {"u": "bob", "tags": "red"}
        ),
        users={"red": {"ann", "bob"}, "blue": {"ann"}},
        letters={"NOT_ITEMS": 1},
    ),
    "tags with commas between": Case(
        source={"user": "u", "key": ["tag"], "each": {"of": {"expression": "string_split(tags, ',')"}, "as": "tag"}},
        records=values({"u": "ann", "tags": "red,blue"}, {"u": "bob", "tags": "red"}),
        users={"red": {"ann", "bob"}, "blue": {"ann"}},
    ),
    "a map as a set": Case(
        source={"user": "u", "key": ["flag.key"], "each": {"of": "flags", "as": "flag"}, "where": "flag.value"},
        records=values({"u": "ann", "flags": {"dark": True, "beta": False}}, {"u": "bob", "flags": {"beta": True}}),
        users={"dark": {"ann"}, "beta": {"bob"}},
        left_out=1,
    ),
    "a list of events of several users": Case(
        source={"user": "u", "key": ["k"], "each": {"of": "$value"}},
        records=values([{"u": "ann", "k": "x"}, {"u": "bob", "k": "x"}, 5], {"u": "cat", "k": "x"}),
        users={"x": {"ann", "bob", "cat"}},
        letters={"WRONG_TYPE": 1},
    ),
    "lines of JSON": Case(
        source={"user": "u", "key": ["k"], "format": "json-lines", "each": {"of": "$value"}},
        records=values(b'{"u": "ann", "k": "x"}\n\n{"u": "bob", "k": "x"}\n{"u": "cat", "k"\n'),
        users={"x": {"ann", "bob"}},
        letters={"NOT_JSON": 1},
    ),
    "OpenTelemetry's logs": Case(
        source={
            "user": {"expression": ATTRIBUTE},
            "key": ["log.severityText"],
            "each": [
                {"of": "resourceLogs", "as": "resource"},
                {"of": "resource.scopeLogs", "as": "scope"},
                {"of": "scope.logRecords", "as": "log"},
            ],
        },
        records=values(batch(span("ann", "ERROR"), span("bob", "ERROR")), batch(span("ann", "INFO"))),
        users={"ERROR": {"ann", "bob"}, "INFO": {"ann"}},
    ),
    "rows of a database, and deleted ones": Case(
        source={"user": {"expression": "coalesce(after.customer, before.customer)"}, "key": ["op"]},
        records=values(
            change("c", None, {"customer": 1}),
            change("u", {"customer": 1}, {"customer": 1}),
            change("d", {"customer": 2}, None),
            None,
        ),
        users={"c": {1}, "u": {1}, "d": {2}},
        letters={"TOMBSTONE": 1},
    ),
    "Debezium's envelope": Case(
        source={"user": "customer", "key": ["$envelope.op"], "envelope": "debezium", "decimals": {"amount": 2}},
        records=values(
            change("c", None, {"customer": 1, "amount": amount(1999)}),
            change("r", None, {"customer": 2, "amount": amount(-1)}),
            change("d", {"customer": 2, "amount": amount(5)}, None),
            None,
        ),
        users={"c": {1}, "r": {2}, "d": {2}},
        left_out=1,
        adds={"expression": "amount * 100"},
        sums={"c": 1999, "r": -1, "d": 5},
    ),
    "Confluent's JSON Schema": Case(
        source={"user": "u", "key": ["k"], "framing": "confluent"},
        records=values(b'\0\0\0\0\x08{"u": "ann", "k": "x"}', b'{"u": "bob", "k": "x"}'),
        users={"x": {"ann"}},
        letters={"UNDECODABLE": 1},
    ),
    "CloudEvents, structured and in headers": Case(
        source={"user": "userId", "key": ["$envelope.type"], "envelope": "cloudevents"},
        records=[
            (
                {"specversion": "1.0", "type": "order", "source": "/shop", "id": "1", "data": {"userId": "ann"}},
                None,
                (),
            ),
            (
                {"userId": "bob"},
                None,
                [("ce_specversion", b"1.0"), ("ce_type", b"order"), ("ce_source", b"/shop"), ("ce_id", b"2")],
            ),
        ],
        users={"order": {"ann", "bob"}},
    ),
    "producers that leave nulls out": Case(
        source={"user": "u", "key": ["country"]},
        records=values({"u": "ann", "country": "de"}, {"u": "bob"}, {"u": "cat", "country": None}, {"country": "de"}),
        users={"de": {"ann"}, "null": {"bob", "cat"}},
        letters={"MISSING_USER": 1},
    ),
    "CSV": Case(
        source={"user": "u", "key": ["k"], "format": "csv", "columns": ["u", "k", "n"]},
        records=values(b"ann,x,3", b'"bob",x,1', b'"c,at","y ""z""",1\r\n', b"dan,x", b"eve,x,1\nfay,x,1"),
        users={"x": {"ann", "bob"}, 'y "z"': {"c,at"}},
        letters={"OTHER_FIELDS": 1, "SEVERAL_LINES": 1},
        adds={"expression": "n::INTEGER"},
        sums={"x": 4, 'y "z"': 1},
    ),
    "lines of TSV without quotes": Case(
        source={
            "user": "user",
            "key": ["event"],
            "format": "csv",
            "columns": ["app", "user", "event"],
            "delimiter": "\t",
            "quote": "",
            "each": {"of": "$value"},
        },
        records=values(b'web\tann\t"page view\nweb\tbob\t"page view\n'),
        users={'"page view': {"ann", "bob"}},
    ),
    "an access log": Case(
        source={
            "user": "host",
            "key": ["status"],
            "format": "text",
            "time": "at",
            "time_format": "clf",
            "pattern": r'(?P<host>\S+) \S+ \S+ \[(?P<at>[^\]]+)\] "[^"]*" (?P<status>\d+) (?P<size>\d+|-)',
        },
        records=values(
            b'10.0.0.1 - - [01/Aug/1995:00:00:00 +0000] "GET / HTTP/1.0" 200 512',
            b'10.0.0.2 - ann [01/Aug/1995:02:00:00 +0200] "GET /x HTTP/1.0" 404 -',
            b"restarting",
        ),
        users={"200": {"10.0.0.1"}, "404": {"10.0.0.2"}},
        letters={"OTHER_FIELDS": 1},
    ),
    "MessagePack": Case(
        source={"user": "u", "key": ["k"], "format": "msgpack"},
        records=values(msgpack.packb({"u": "ann", "k": 1}), msgpack.packb({"u": b"\xff", "k": 1}), b'{"u": "ann"}'),
        users={"1": {"ann", "ff"}},
        letters={"UNDECODABLE": 1},
    ),
    "compressed values and others": Case(
        source={"user": "u", "key": ["k"], "compression": "auto"},
        records=values(gzip.compress(b'{"u": "ann", "k": "x"}'), b'{"u": "bob", "k": "x"}'),
        users={"x": {"ann", "bob"}},
    ),
    "a byte order mark": Case(
        source={"user": "u", "key": ["k"]},
        records=values(b'\xef\xbb\xbf{"u": "ann", "k": "x"}', '{"u": "bob", "k": "x"}'.encode("utf-16")),
        users={"x": {"ann"}},
        letters={"UTF16": 1},
    ),
    "times without a zone, days and digits": Case(
        source={"user": "u", "key": ["k"], "time": "at", "time_format": "iso8601", "time_zone": "Atlantic/Azores"},
        records=values(
            {"u": "ann", "k": "x", "at": "1995-08-01 00:00:00,5"},
            {"u": "bob", "k": "x", "at": "1995-08-01"},
            {"u": "cat", "k": "x", "at": "1995-07-31 23:59:59"},
        ),
        users={"x": {"ann", "bob"}},
        letters={"BEFORE_FIRST_WINDOW": 1},
    ),
    "times that are digits in a text": Case(
        source={"user": "u", "key": ["k"], "time": "at", "time_unit": "s"},
        records=values({"u": "ann", "k": "x", "at": "807235200.001"}, {"u": "bob", "k": "x", "at": "807235199.999"}),
        users={"x": {"ann"}},
        letters={"BEFORE_FIRST_WINDOW": 1},
    ),
    "a computed time": Case(
        source={"user": "u", "key": ["k"], "time": {"expression": "epoch_ms(created::TIMESTAMP)"}},
        records=values(
            {"u": "ann", "k": "x", "created": "1995-08-01 00:00:00"}, {"u": "bob", "k": "x", "created": "yesterday"}
        ),
        users={"x": {"ann"}},
        letters={"EXPRESSION_FAILED": 1},
    ),
    "JSON in a text of JSON": Case(
        source={"user": {"expression": "$value->>'$.u'"}, "key": [{"name": "k", "expression": "$value->>'$.k'"}]},
        records=values(json.dumps({"u": "ann", "k": "x"})),
        users={"x": {"ann"}},
    ),
    "an access log in JSON, its numbers as texts": Case(
        source={"user": "remote_addr", "key": ["status"], "time": "msec", "time_unit": "s"},
        records=values(
            {"remote_addr": "10.0.0.1", "status": "200", "body_bytes_sent": "512", "msec": "807235200.123"},
            {"remote_addr": "10.0.0.2", "status": "200", "body_bytes_sent": "1024", "msec": "807235201.000"},
            {"remote_addr": "10.0.0.3", "status": "200", "body_bytes_sent": "-", "msec": "807235201.000"},
        ),
        users={"200": {"10.0.0.1", "10.0.0.2"}},
        letters={"EXPRESSION_FAILED": 1},
        adds={"expression": "body_bytes_sent::INTEGER"},
        sums={"200": 1536},
    ),
    "a number as a text, without an expression": Case(
        source={"user": "u", "key": ["k"]},
        records=values(
            {"u": "ann", "k": "x", "n": 2}, {"u": "bob", "k": "x", "n": "2"}, {"u": "cat", "k": "x", "n": True}
        ),
        users={"x": {"ann"}},
        letters={"VALUE_NOT_A_NUMBER": 2},
        adds="n",
        sums={"x": 2},
    ),
    "a phone whose clock is ahead": Case(
        source={"user": "u", "key": ["k"], "time": "at"},
        records=values(
            {"u": "ann", "k": "x", "at": WINDOW + 5},
            {"u": "bob", "k": "x", "at": WINDOW + 4 * 60_000},
            {"u": "cat", "k": "x", "at": WINDOW + 6 * 60_000},
        ),
        users={"x": {"ann", "bob"}},
        letters={"IN_FUTURE": 1},
    ),
    "seconds as Python's time.time() writes them, of the stamp's own ms": Case(
        source={"user": "u", "key": ["k"], "time": "at", "time_unit": "s"},
        sections={"clock": {"kind": "broker", "max_future": 0}},
        records=values({"u": "ann", "k": "x", "at": 807235200.0004}, {"u": "bob", "k": "x", "at": 807235200.0017}),
        users={"x": {"ann", "bob"}},
    ),
    "days on the clocks of a country, one of them of 25 hours": Case(
        # Windows are UTC's days of what the clocks showed.
        source={"user": "u", "key": ["k"], "time": {"expression": "epoch_ms(left(seen, 19)::TIMESTAMP)"}},
        sections={"clock": {"kind": "broker", "max_future": 3 * HOUR}},
        records=values(*({"u": "ann", "k": key, "seen": time} for key, time in LISBON.items())),
        stamped=lambda offset: int(datetime.fromisoformat(list(LISBON.values())[offset]).timestamp() * 1000),
        users={key: {"ann"} for key in LISBON},
        windows={key: {day * 24 * HOUR} for key, day in zip(LISBON, (53, 54, 54, 55), strict=True)},
    ),
    "an archive out of order by a little": Case(
        source={"user": "u", "key": ["k"]},
        sections={"clock": {"kind": "replay", "until": WINDOW + 24 * HOUR}},
        records=values(*({"u": user, "k": "x"} for user in ("ann", "bob", "cat"))),
        stamped=lambda offset: WINDOW + 6 * HOUR - offset,  # over a trigger's boundary
        users={"x": {"ann", "bob", "cat"}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_topic_is_read_as_it_is(name: str, tmp_path: Path) -> None:
    check(CASES[name], tmp_path)
