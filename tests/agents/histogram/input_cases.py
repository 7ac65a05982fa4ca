"""Inputs in every format: a section `[input]`, a writer, and usual records. odd_input.py disturbs these."""

import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import fastavro
import msgpack

from tests.proto import DOUBLE, INTEGER, TEXT, message_class

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Sent:
    """What a producer writes. value: an object for the case's writer; bytes and None as they are."""

    value: Any
    key: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True)
class Case:
    """source: of `[input]`. usual: the records that are disturbed. adds: the expression of a sum. files: that the source names."""

    source: Mapping[str, Any]
    usual: Sequence[Sent]
    write: Callable[[Any], bytes] = lambda value: json.dumps(value).encode()
    adds: str = "coalesce(length(CAST(u AS VARCHAR)), 0)"
    files: Mapping[str, bytes] = field(default_factory=dict)


# ---- Avro and Protobuf -----------------------------------------------------------------------------------------------

_ANY = ["null", "string", "long", "double", "boolean", "bytes", {"type": "int", "logicalType": "date"}]
_ITEM = {"type": "record", "name": "Item", "fields": [{"name": name, "type": _ANY} for name in ("sku", "n")]}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "u", "type": _ANY},
        {"name": "k", "type": _ANY},
        {"name": "items", "type": ["null", {"type": "array", "items": _ITEM}, {"type": "map", "values": _ANY}]},
    ],
}
OTHER_AVRO = {"type": "record", "name": "Page", "namespace": "shop", "fields": [{"name": "k", "type": "string"}]}
PROTOBUF = message_class("shop.Event", {"u": TEXT, "k": INTEGER, "n": DOUBLE})
"""For a registry, its file is in base64 there; for a class, in a module of that name."""


def avro_of(schema: Any, head: bytes) -> Callable[[Any], bytes]:
    parsed = fastavro.parse_schema(schema)

    def write(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return head + out.getvalue()

    return write


def to_protobuf(value: Any) -> bytes:
    return b"\0\0\0\0\x03\0" + bytes(PROTOBUF(**value).SerializeToString())


class Registry:
    """Takes the place of confluent-kafka's client. It knows two schemas of Avro, one of Protobuf, and one that is none."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Nothing is asked for yet."""

    def __exit__(self, *exception: object) -> None:
        """Nothing to close."""

    def clear_caches(self) -> None:
        """Nothing is kept."""

    def get_subjects(self, **query: Any) -> list[str]:
        return ["some-value"]

    def get_schema(self, schema_id: int, **query: Any) -> Any:
        import base64

        from confluent_kafka.schema_registry import SchemaRegistryError
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto()
        PROTOBUF.DESCRIPTOR.file.CopyToProto(file)
        known = {
            1: ("AVRO", json.dumps(AVRO)),
            2: ("AVRO", json.dumps(OTHER_AVRO)),
            3: ("PROTOBUF", base64.b64encode(file.SerializeToString()).decode()),
            4: ("AVRO", "{"),
        }
        if schema_id not in known:
            raise SchemaRegistryError(404, 40403, "Schema not found")
        kind, text = known[schema_id]
        return SimpleNamespace(schema_str=text, schema_type=kind, references=[])


# ---- usual records ---------------------------------------------------------------------------------------------------


def _plain(**more: Any) -> list[Sent]:
    return [Sent({"u": f"u{n}", "k": "x", "n": n, **more}) for n in range(4)]


def _orders(name: str = "items") -> list[Sent]:
    lists = [[("A", 1), ("B", 2), ("A", 3)], [("C", 4)], [], [("A", 2.5), ("D", 0)]]
    return [
        Sent({"u": f"u{n}", "k": "x", name: [{"sku": s, "n": v} for s, v in items]}) for n, items in enumerate(lists)
    ]


def _change(op: str, user: str | None) -> dict[str, Any]:
    row = None if user is None else {"u": user, "k": "x", "amount": "AQ=="}
    return {
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "op": op,
        "source": {"table": "t"},
    }


def _connected(value: Mapping[str, Any]) -> dict[str, Any]:
    fields = [{"field": name, "type": "string", "optional": True} for name in value]
    return {"schema": {"type": "struct", "name": "shop.Order", "fields": fields}, "payload": value}


def _otlp(user: str, *texts: str) -> dict[str, Any]:
    logs = [{"attributes": [{"key": "user", "value": user}], "text": text} for text in texts]
    return {"resource": [{"scope": [{"log": logs[:1]}, {"log": logs[1:]}]}]}


def _csv(value: Any) -> bytes:
    return ("\r\n".join(",".join(map(str, line)) for line in value)).encode()


BINARY: Headers = (("ce_specversion", b"1.0"), ("ce_type", b"order"), ("ce_source", b"/s"), ("ce_id", b"1"))
REGISTRY = {"url": "http://127.0.0.1:9"}
WHERE = "coalesce(CAST(k AS VARCHAR), '') <> 'bot'"
USER = {"expression": "lower(coalesce(CAST(u AS VARCHAR), CAST(k AS VARCHAR)))"}
COMPUTED = {"name": "kind", "expression": "CAST(k AS VARCHAR) || '/' || coalesce(CAST(n AS VARCHAR), '-')"}
ITEMS = {"of": "items", "as": "item"}
OF_ITEM = {"name": "sku", "expression": "upper(CAST(item.sku AS VARCHAR))"}
AMOUNT = "coalesce(TRY_CAST(CAST(item.n AS VARCHAR) AS DOUBLE), 1)"

CASES: dict[str, Case] = {
    "json, all computed": Case(
        {
            "user": USER,
            "key": [COMPUTED],
            "where": WHERE,
            "time": {"expression": "807235200000 + CAST(n AS BIGINT)"},
        },
        [Sent({"u": f"u{n}", "k": "x", "n": f"{n}"}) for n in range(4)],
    ),
    "json, users in the key": Case(
        {"user": ["$key.id", "u"], "key": ["k"], "key_format": "json", "where": WHERE, "null_user": "value"},
        [Sent(one.value, b'{"id": %d}' % n) for n, one in enumerate(_plain())],
    ),
    "json, users in a header": Case(
        {"user": "$headers.user", "key": ["k", "$headers.kind"], "where": "$headers.kind <> 'bot' OR u = 'u1'"},
        [Sent(one.value, None, (("user", b"u%d" % n), ("kind", b"web"))) for n, one in enumerate(_plain())],
    ),
    "json, users in an integer": Case(
        {
            "user": "$key",
            "key": ["k"],
            "key_format": "int64",
            "time": "n",
            "time_unit": "iso",
            "time_zone": "Asia/Kolkata",
        },
        [Sent({"u": 1, "k": "x", "n": "1995-08-02T00:00:00.5"}, n.to_bytes(8, "big")) for n in range(3)],
    ),
    "json, items": Case(
        {"user": USER, "key": [OF_ITEM], "each": ITEMS, "where": "item.n IS NULL OR CAST(item.n AS VARCHAR) <> '0'"},
        _orders(),
        adds=AMOUNT,
    ),
    "json, items of a filtered record": Case(
        {"user": "u", "key": ["item.sku"], "each": ITEMS, "where": WHERE}, _orders(), adds=AMOUNT
    ),
    "json, entries of a map": Case(
        {"user": "u", "key": ["item.key"], "each": ITEMS, "where": "item.value"},
        [Sent({"u": f"u{n}", "items": {"dark": n > 1, "beta": True, "x": None}}) for n in range(4)],
    ),
    "json, a computed list": Case(
        {"user": USER, "key": ["tag"], "each": {"of": {"expression": "string_split(k, ',')"}, "as": "tag"}},
        [Sent({"u": f"u{n}", "k": "red,blue,red" if n else ""}) for n in range(4)],
    ),
    "json, events of several users": Case(
        {"user": "u", "key": [COMPUTED], "each": {"of": "$value"}, "where": WHERE},
        [Sent([one.value for one in _plain()][n:]) for n in range(4)],
    ),
    "json, lists in lists": Case(
        {
            "user": {"expression": "log.attributes ->> '$[0].value'"},
            "key": ["log.text"],
            "each": [
                {"of": "resource", "as": "one"},
                {"of": "one.scope", "as": "two"},
                {"of": "two.log", "as": "log"},
            ],
        },
        [Sent(_otlp("u1", "a", "b", "c")), Sent(_otlp("u2", "a")), Sent(_otlp("u3", *"abcdef"))],
        adds="length(log.text)",
    ),
    "json lines": Case(
        {"format": "json-lines", "user": "u", "key": ["k"], "each": {"of": "$value"}, "where": WHERE},
        [Sent([one.value for one in _plain()][n:]) for n in range(4)],
        lambda value: b"\n".join(json.dumps(line).encode() for line in value),
    ),
    "csv": Case(
        {"format": "csv", "columns": ["u", "k", "n"], "user": USER, "key": [COMPUTED], "where": WHERE},
        [Sent([(f"u{n}", '"x ""y"""' if n else "x", n)]) for n in range(4)],
        _csv,
        adds="CAST(n AS INTEGER)",
    ),
    "csv, lines": Case(
        {"format": "csv", "columns": ["u", "k", "n"], "user": "u", "key": ["k"], "each": {"of": "$value"}},
        [Sent([(f"u{n}", "x", n), ("u9", '"a,b"', 1)] * (n + 1)) for n in range(4)],
        _csv,
    ),
    "text": Case(
        {
            "format": "text",
            "pattern": r"(?P<u>\S+) \[(?P<at>[^\]]+)\] (?P<k>\S+)(?: (?P<n>\d+))?",
            "user": "u",
            "key": ["k"],
            "time": "at",
            "time_format": "clf",
            "where": WHERE,
        },
        [Sent(f"u{n} [02/Aug/1995:01:00:0{n} +0100] /7 {n}".encode()) for n in range(4)],
        adds="CAST(substr(k, 2) AS INTEGER)",
    ),
    "text in another encoding": Case(
        {
            "format": "text",
            "user": {"expression": "split_part($value, ' ', 1)"},
            "key": ["$topic"],
            "encoding": "iso-8859-1",
        },
        [Sent(f"\xe9{n} x".encode("latin-1")) for n in range(4)],
        adds="length($value)",
    ),
    "msgpack": Case({"format": "msgpack", "user": USER, "key": [COMPUTED], "where": WHERE}, _plain(), msgpack.packb),
    "msgpack, items": Case(
        {"format": "msgpack", "user": "u", "key": [OF_ITEM], "each": ITEMS}, _orders(), msgpack.packb, adds=AMOUNT
    ),
    "avro": Case(
        {"format": "avro", "registry": REGISTRY, "user": USER, "key": ["k", "$envelope.schema"], "where": WHERE},
        _orders(),
        avro_of(AVRO, b"\0\0\0\0\1"),
    ),
    "avro, items": Case(
        {
            "format": "avro",
            "registry": REGISTRY,
            "user": "u",
            "key": [OF_ITEM],
            "each": ITEMS,
            "where": "$envelope.schema = 'shop.Order'",
        },
        _orders(),
        avro_of(AVRO, b"\0\0\0\0\1"),
        adds=AMOUNT,
    ),
    "avro without framing": Case(
        {
            "format": "avro",
            "framing": "none",
            "schema_file": "order.avsc",
            "user": "u",
            "key": [OF_ITEM],
            "each": ITEMS,
        },
        _orders(),
        avro_of(AVRO, b""),
        adds=AMOUNT,
        files={"order.avsc": json.dumps(AVRO).encode()},
    ),
    "protobuf": Case(
        {"format": "protobuf", "message": "susurrus_odd_pb2:Event", "user": USER, "key": [COMPUTED], "where": WHERE},
        [Sent({"u": f"u{n}", "k": n, "n": n / 2}) for n in range(4)],
        to_protobuf,
    ),
    "protobuf by the registry": Case(
        {
            "format": "protobuf",
            "message": "shop.Event",
            "registry": REGISTRY,
            "user": "u",
            "key": ["k", "$envelope.message"],
            "where": "n > -1",
        },
        [Sent({"u": f"u{n}", "k": n, "n": n / 2}) for n in range(4)],
        to_protobuf,
    ),
    "json, framed": Case(
        {"framing": "confluent", "user": USER, "key": [COMPUTED], "where": WHERE},
        _plain(),
        lambda value: b"\0\0\0\0\x08" + json.dumps(value).encode(),
    ),
    "json, compressed": Case(
        {"compression": "auto", "user": "u", "key": [OF_ITEM], "each": ITEMS, "max_value_bytes": 65_536},
        _orders(),
        lambda value: gzip.compress(json.dumps(value).encode()),
        adds=AMOUNT,
    ),
    "debezium": Case(
        {
            "envelope": "debezium",
            "decimals": {"amount": 2},
            "user": USER,
            "key": ["$envelope.op", "k"],
            "where": "$envelope.op <> 'r'",
        },
        [Sent(_change(op, f"u{n}")) for n, op in enumerate("cudr")],
        adds="coalesce(CAST(amount AS DOUBLE), 0)",
    ),
    "connect": Case(
        {"envelope": "connect", "user": USER, "key": ["k"]},
        [Sent(_connected({"u": f"u{n}", "k": "x"})) for n in range(4)],
    ),
    "cloudevents": Case(
        {"envelope": "cloudevents", "user": USER, "key": ["$envelope.type"], "where": WHERE},
        [
            Sent({"specversion": "1.0", "type": "order", "source": "/s", "id": "1", "data": {"u": "u1", "k": "x"}}),
            Sent({"u": "u2", "k": "x"}, None, BINARY),
        ],
    ),
}
"""Every format, framing of each sort, envelope; users and times of every kind; lists of every kind."""
