"""Inputs in every format, and odd records of them: for tests that ask what a record does to its neighbours in route.

A case is a section `[input]`, a writer, and usual records of it. `odd_records` disturbs these: a field gets another type, bytes are
changed, cut off or put in, the key or a header is another one.
"""

import gzip
import io
import json
import random
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

# ---- odd records -----------------------------------------------------------------------------------------------------

SCALARS: list[Any] = [
    None, True, False, 0, -1, 5, 2.5, 1e300, "7", "7x", 2**63, 2**64 - 1, 2**70, -(2**70), "", "bot", "\0", "\ud800", "9" * 5_000,
    "1995-08-01T00:00:00Z", [], {}, [[]], {"u": {}}, [None, 1, "a"], float("nan"), float("inf"), b"\xff", "\U0001f600",
]  # fmt: skip
PAYLOADS: list[bytes | None] = [
    None, b"", b"\0", b"{", b"[]", b"{}", b"null", b"1", b'"x"', b"\xff\xfe\xfa", b"[" * 900 + b"]" * 900, b'{"u": 1e999}',
    b"\xef\xbb\xbf{}", '{"u": "a"}'.encode("utf-16"), gzip.compress(b"{}"), gzip.compress(b"0" * 200_000), b"\x1f\x8b\x08", b"\n",
    b"\0\0\0\0\1", b"\0\0\0\0\2\2x", b"\0\0\0\0\4x", b"\0\0\0\0\x63x", b"\0\0\0\0\3\0\xff", b"\xc3\x01" + b"f" * 8,
    b"\xdd\xff\xff\xff\xff", b"\x90" * 500, b'"', b'a,"b', b",,,,,,",
    b'{"items": [1e999, {"sku": "A"}, "\xff"]}', b"\x80" * 40, b"{" * 30,
]  # fmt: skip
BYTES: list[bytes | None] = [
    None,
    b"",
    b"\xff",
    b"bot",
    b"x" * 70_000,
    b'{"id": []}',
    b"\0" * 8,
    b"\0" * 7,
    b'{"id": null}',
]


def disturbed(dice: random.Random, value: Any) -> Any:
    """An object with some of its parts left out, or replaced."""
    if dice.random() < 0.12:
        return dice.choice(SCALARS)
    if isinstance(value, dict):
        return {
            dice.choice(["u", "k", "", "items"]) if dice.random() < 0.03 else name: disturbed(dice, inner)
            for name, inner in value.items()
            if dice.random() > 0.05
        }
    if isinstance(value, list):
        found = [disturbed(dice, inner) for inner in value if dice.random() > 0.05]
        return found * dice.choice([1, 1, 1, 7]) if dice.random() < 0.3 else found
    return value


def bent(dice: random.Random, payload: bytes) -> bytes:
    """A payload with some bytes changed, cut off or put in."""
    data = bytearray(payload)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(5):
            case 0 if at < len(data):
                data[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, *b'",\n{[', dice.randrange(256)])
            case 1:
                del data[at:]
            case 2:
                data[at:at] = dice.choice([dice.randbytes(3), b"\xff", b"null", b"1e999", b"\r\n", b"\\ud800"])
            case 3:
                data[at:at] = data[at : at + dice.randrange(30)]
            case _:
                del data[at : at + dice.randrange(1, 4)]
    return bytes(data)


def _value(dice: random.Random, case: Case, usual: Any) -> bytes | None:
    if dice.random() < 0.15:
        return dice.choice(PAYLOADS)
    if dice.random() < 0.6 and not isinstance(usual, bytes):
        try:
            return case.write(disturbed(dice, usual))
        except Exception:  # no writer writes everything
            return bent(dice, case.write(usual))
    written = usual if isinstance(usual, bytes) else case.write(usual)
    return written if dice.random() < 0.1 else bent(dice, written)


def _headers(dice: random.Random, headers: Headers) -> Headers:
    changed = [(name, dice.choice(BYTES[:4]) if dice.random() < 0.2 else value) for name, value in headers]
    if dice.random() < 0.2:
        changed.insert(
            dice.randrange(len(changed) + 1), (dice.choice(["user", "kind", "ce_type", ""]), dice.choice(BYTES))
        )
    return tuple(one for one in changed if dice.random() > 0.1)


def usual_records(case: Case) -> list[Sent]:
    """In bytes."""
    return [
        Sent(one.value if isinstance(one.value, bytes) else case.write(one.value), one.key, one.headers)
        for one in case.usual
    ]


def odd_records(case: Case, number: int, dice: random.Random) -> list[Sent]:
    """In bytes."""
    found = []
    for _ in range(number):
        usual = dice.choice(case.usual)
        key = dice.choice(BYTES) if dice.random() < 0.15 else usual.key
        found.append(Sent(_value(dice, case, usual.value), key, _headers(dice, usual.headers)))
    return found
