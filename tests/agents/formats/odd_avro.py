"""Schemas and records of Avro that are as odd as anyone may write them."""

import contextlib
import random
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, Final

import fastavro

from tests.agents.formats.damaged import damaged

_TEXTS: Final = [
    "ann",
    "ü",
    "",
    'a"b',
    "a\\b",
    "a\nb",
    "\x7f",
    "ẞ" * 30,
    "x" * 90,
    "null",
    "1",
    "2026-01-31T12:00:00.5Z",
]
_LONGS: Final = [0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 1_790_834_400_123]
_FLOATS: Final = [
    0.0,
    -0.0,
    1.0,
    0.1,
    -2.5,
    1e300,
    5e-324,
    float("nan"),
    float("inf"),
    -float("inf"),
    2.0**53,
    1e9,
    0.3,
]
_DAY: Final = 86_400_000
_TIMES: Final = [0, 1_790_834_400_123, -1, -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000, 2**62]
_DEFAULTS: Final[list[tuple[Any, Any]]] = [
    (["null", "string"], None), ("boolean", True), ("long", 7), ("double", 2.5), ("string", "ann"), ("string", 'a"b'),
    ("string", "ü"), ({"type": "map", "values": "long"}, {"id": 3}), ({"type": "array", "items": "long"}, [1]),
    ("double", 4), ("string", ""),
    ({"type": "record", "name": "D", "fields": [{"name": "id", "type": "string"}]}, {"id": "eve"}),
]  # fmt: skip
_UUIDS: Final = [
    "6f1e0a3c-0000-4000-8000-00c0ffee00ff",
    "6F1E0A3C-0000-4000-8000-00C0FFEE00FF",
    "6f1e0a3c00004000800000c0ffee00ff",
]


class OddAvro:
    """Makes schemas, and records of them. The same seed makes the same. odd: how much of all is unusual, from 0 to 1."""

    def __init__(self, seed: int | str, odd: float) -> None:
        self._dice, self._odd, self._named = random.Random(seed), odd, 0

    def _unusual(self) -> bool:
        return self._dice.random() < self._odd

    def schema(self) -> dict[str, Any]:
        """A record with most of the fields u, k, who.id, v and t, and others."""
        dice = self._dice
        fields = [
            (name, self._wanted(name))
            for name in ("u", "k", "who", "v", "t")
            if not self._unusual() or dice.random() < 0.8
        ]
        fields += [(f"f{number}", self._kind(2)) for number in range(dice.randrange(4))]
        dice.shuffle(fields)
        return self._record(fields)

    def _name(self) -> str:
        self._named += 1
        return f"N{self._named}"

    def _record(self, fields: list[tuple[str, Any]]) -> dict[str, Any]:
        described = [{"name": name, "type": kind} for name, kind in fields]
        return {"type": "record", "name": f"{self._dice.choice(['', 'a.', 'a.b.'])}{self._name()}", "fields": described}

    def _wanted(self, name: str) -> Any:
        dice = self._dice
        usual = {
            "u": ["string", {"type": "string", "logicalType": "uuid"}, "long", "bytes"],
            "k": ["string", ["null", "string"], "int", "boolean", self._scalar(), ["null", "int", "string"]],
            "v": ["double", "float", "long", ["null", "double"], self._decimal(), "int"],
            "t": [
                {"type": "long", "logicalType": "timestamp-millis"},
                "long",
                "string",
                {"type": "long", "logicalType": "timestamp-micros"},
                ["null", {"type": "long", "logicalType": "timestamp-nanos"}],
                {"type": "long", "logicalType": "local-timestamp-millis"},
                {"type": "int", "logicalType": "date"},
            ],
        }
        if name == "who":
            of_id = self._scalar() if self._unusual() else "string"
            inner = self._record([("x", self._kind(1)), ("id", of_id), ("y", self._kind(1))])
            kinds = [inner, ["null", inner], [inner, "string", "null"]]
        else:
            kinds = usual[name]
        return self._kind(1) if self._unusual() else dice.choice(kinds if self._unusual() else kinds[:2])

    def _scalar(self) -> Any:
        dice = self._dice
        return dice.choice(
            [
                *("null", "boolean", "int", "long", "float", "double", "string", "bytes"),
                {"type": "string", "avro.java.string": "String"},
                {"type": "fixed", "name": self._name(), "size": dice.choice([0, 1, 16])},
                {"type": "fixed", "name": self._name(), "size": 16, "logicalType": "uuid"},
                {"type": "enum", "name": self._name(), "symbols": ["A", "b_1", "C"][: dice.randrange(1, 4)]},
                {"type": "long", "logicalType": dice.choice(["timestamp-millis", "local-timestamp-micros", "odd"])},
                {"type": "long", "logicalType": dice.choice(["timestamp-micros", "timestamp-nanos", "time-micros"])},
                {"type": "int", "logicalType": dice.choice(["date", "time-millis", "timestamp-millis"])},
                {"type": "string", "logicalType": "uuid"},
                self._decimal(),
            ]
        )

    def _decimal(self) -> Any:
        dice = self._dice
        scale = dice.choice([0, 1, 2, 9, 18])
        found: dict[str, Any] = {"logicalType": "decimal", "precision": scale + dice.randrange(1, 20), "scale": scale}
        if dice.random() < 0.5:
            return {"type": "bytes", **found}
        found["precision"] = max(scale, 1)
        return {"type": "fixed", "name": self._name(), "size": 16, **found}

    def _kind(self, deep: int) -> Any:
        dice = self._dice
        if deep <= 0 or dice.random() < 0.5:
            return self._scalar()
        match dice.randrange(5):
            case 0:
                return {"type": "array", "items": self._kind(deep - 1)}
            case 1:
                return {"type": "map", "values": self._kind(deep - 1)}
            case 2:
                return self._record([(f"g{number}", self._kind(deep - 1)) for number in range(dice.randrange(4))])
            case 3:
                kinds = ["null", "boolean", "int", "string", "double"]
                return dice.sample(kinds, dice.randrange(1, 5))
            case _:
                return ["null", self._record([("id", self._kind(deep - 1))])]

    def reader(self, schema: dict[str, Any], odd: float) -> Any:
        """A reader's schema for a writer's one. odd: how much of it is changed."""
        self._odd, before = odd, self._odd
        while True:
            found = self._reader(schema)
            with contextlib.suppress(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
                fastavro.parse_schema(found)
                self._odd = before
                return found

    def _reader(self, kind: Any) -> Any:
        dice = self._dice
        if isinstance(kind, list):
            return [self._reader(branch) for branch in kind] if dice.random() < 0.9 else self._reader(kind[-1])
        if isinstance(kind, str):
            wider = {"int": ["long", "double", "float"], "long": ["double", "float"], "float": ["double"]}
            odd = {"string": ["bytes"], "bytes": ["string"], "double": ["float"], "long": ["int"], "null": ["string"]}
            if self._unusual():
                kind = dice.choice([*wider.get(kind, []), *(odd.get(kind, []) if self._unusual() else []), kind])
            return ["null", kind] if kind != "null" and self._unusual() else kind
        match kind["type"]:
            case "record":
                fields = [self._read(field) for field in kind["fields"] if not self._unusual()]
                if self._unusual():
                    dice.shuffle(fields)
                known = {field["name"] for field in kind["fields"]} | {field["name"] for field in fields}
                for name in [name for name in ("u", "k", "v", "t", "who", "new") if name not in known]:
                    of_type, default = dice.choice(_DEFAULTS)
                    fields.append(
                        {"name": name, "type": of_type} | ({"default": default} if dice.random() < 0.97 else {})
                    )
                name = "Other" if self._unusual() and self._unusual() else kind["name"]
                return {"type": "record", "name": name, "fields": fields}
            case "enum":
                symbols = [*kind["symbols"], "D"] if not self._unusual() else kind["symbols"][1:] or ["D"]
                return {**kind, "symbols": symbols}
            case "array" | "map" as container:
                inside = "items" if container == "array" else "values"
                return {**kind, inside: self._reader(kind[inside])}
            case name:
                return self._reader(name) if self._unusual() and name not in ("fixed", "enum") else kind

    def _read(self, field: Any) -> Any:
        found = {"name": field["name"], "type": self._reader(field["type"])}
        if self._unusual():
            return {**found, "name": f"{field['name']}_", "aliases": [field["name"]]}
        return found

    def payloads(self, schema: Mapping[str, Any], number: int) -> Iterator[bytes]:
        """Records of the schema, of which about half have been damaged."""
        for _ in range(number):
            written = self._written(schema)
            yield damaged(self._dice, written) if self._unusual() else written

    def _written(self, kind: Any) -> bytes:
        """The bytes of some value; written here, since fastavro writes only what it can read."""
        dice = self._dice
        if isinstance(kind, list):
            branch = dice.randrange(len(kind))
            return _long(branch) + self._written(kind[branch])
        described = kind if isinstance(kind, dict) else {"type": kind}
        some = 1_000_000 if self._unusual() else 4  # the first of these are usual
        logical = described.get("logicalType")
        match described["type"]:
            case "null":
                return b""
            case "boolean":
                return dice.choice([b"\0", b"\1"])
            case "int" | "long":
                return _long(self._integer(logical))
            case "float":
                return fastavro_bytes("float", dice.choice([x for x in _FLOATS if abs(x) < 1e30 or x != x][:some]))
            case "double":
                return fastavro_bytes("double", dice.choice(_FLOATS[:some]))
            case "string":
                text = dice.choice((_UUIDS if logical == "uuid" else _TEXTS)[: max(2, some // 2)])
                return _long(len(text.encode())) + text.encode()
            case "bytes":
                data = self._unscaled() if logical == "decimal" else dice.randbytes(dice.choice([0, 1, 5, 40]))
                return _long(len(data)) + data
            case "fixed":
                size = described["size"]
                return self._unscaled(size) if logical == "decimal" else dice.randbytes(size)
            case "enum":
                return _long(dice.randrange(len(described["symbols"])))
            case "array" | "map" as container:
                return self._blocks(described["items" if container == "array" else "values"], container == "map")
            case _:
                return b"".join(self._written(field["type"]) for field in described["fields"])

    def _integer(self, logical: str | None) -> int:
        dice = self._dice
        some = 1_000_000 if self._unusual() else 4
        if logical in (None, "odd") or (some > 4 and dice.random() < 0.3):
            return dice.choice(_LONGS[:some])
        of_type = {
            "date": [0, 20_000, -719_162, -719_163, 2_932_896, 2_932_897],
            "time-millis": [0, _DAY - 1, _DAY, -1],
            "time-micros": [0, _DAY * 1_000 - 1, _DAY * 1_000, -1],
        }
        scale = 1_000 if "micros" in logical else 1_000_000 if "nanos" in logical else 1  # type: ignore[operator]
        stamps = [(stamp * scale + dice.choice([0, 0, scale - 1, -1])) for stamp in _TIMES[:some]]
        found = dice.choice(of_type.get(logical, stamps)[: some // 2])  # type: ignore[arg-type]
        return max(-(2**63), min(2**63 - 1, found))

    def _unscaled(self, size: int | None = None) -> bytes:
        number = self._dice.choice([0, 1, -1, 12_345, -99, 10**9, 10**17 + 1, -(2**63), 2**63 - 1, 2**63, 10**20])
        return number.to_bytes(size or self._dice.choice([9, 12, 16, 17]), "big", signed=True)

    def _blocks(self, item: Any, keyed: bool) -> bytes:
        dice, found = self._dice, b""
        for _ in range(dice.choice([0, 0, 1, 2])):
            count = dice.randrange(1, 4)
            items = b"".join((self._written("string") if keyed else b"") + self._written(item) for _ in range(count))
            # A block may say how long it is.
            found += _long(-count) + _long(len(items)) + items if self._unusual() else _long(count) + items
        return found + b"\0"


def _long(number: int) -> bytes:
    word, found = (number << 1) ^ (number >> 63), bytearray()
    while word > 0x7F:
        found.append(word & 0x7F | 0x80)
        word >>= 7
    return bytes([*found, word])


def fastavro_bytes(kind: Any, value: Any) -> bytes:
    """A value as fastavro writes it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(kind), value)
    return out.getvalue()
