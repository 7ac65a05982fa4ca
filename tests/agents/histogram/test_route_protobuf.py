"""route writes the same bytes of Protobuf, and of framed JSON, whether a fetch comes as record batches or as parsed records."""

import base64
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("authlib")

from susurrus.agents.formats.descriptors import class_named, pool_of
from susurrus.agents.formats.proto_texts import descriptor_of_text
from susurrus.topics.compiled import compiled
from susurrus.topics.records.reason import Reason
from tests.agents.formats.odd_protobuf import OddProtobuf
from tests.agents.histogram.input_cases import Registry
from tests.agents.histogram.whole_fetches import Decoded, routed
from tests.agents.stages import WINDOW
from tests.topics.odd_json import Odd

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

FETCHES, EACH, UNKNOWN = 12, 60, 77
TEXT = """
syntax = "proto3"; package p; import "google/protobuf/timestamp.proto";
message Other {{ string u = 1; }}
message Event {{ string z = 1; string u = 2; optional int32 k = 3; double v = 4; google.protobuf.Timestamp t = 5; {} }}
"""


def file(name: str, more: str) -> Any:
    found = descriptor_of_text(TEXT.format(more))
    found.name = name
    return found


FILES = {
    1: file("one.proto", ""),
    2: file("two.proto", "map<string, int64> new = 6;"),
    3: OddProtobuf("route", 0.2).file(),
}
CLASSES = {number: class_named(pool_of([one]), "p.Event") for number, one in FILES.items()}
PLACES = {
    1: b"\x02\x02",
    2: b"\x02\x02",
    3: b"\x02" + bytes([2 * [one.name for one in FILES[3].message_type].index("Event")]),
}


class OfFiles(Registry):
    """A registry with our files."""

    def get_schema(self, schema_id: int, **query: Any) -> Any:
        if schema_id not in FILES:
            return super().get_schema(UNKNOWN)  # refuses it
        text = base64.b64encode(FILES[schema_id].SerializeToString()).decode()
        return SimpleNamespace(schema_str=text, schema_type="PROTOBUF", references=[])


def message(dice: random.Random, odd: OddProtobuf, fetch: int) -> bytes | None:
    """The second file comes with the fifth fetch; one of the fetches names a file that nobody knows, and is overdue."""
    number = dice.choice([1] * 6 + [2 if fetch > 3 else 1, 3, UNKNOWN if fetch == 7 else 1])
    head = b"\0" + number.to_bytes(4, "big")
    if dice.random() < 0.05:
        return dice.choice([None, b"", head[:3], head, head + b"\0\x0a\1a", b'{"u": 1}', head + b"\xff" * 9])
    if number == UNKNOWN:
        return head + b"\0"
    if number == 3:
        return head + PLACES[3] + next(odd.payloads(CLASSES[3].DESCRIPTOR, 1))
    value: dict[str, Any] = {
        "u": f"user-{dice.randrange(30)}", "z": dice.choice(["", "ü"] * 9 + ['a"']),
        "v": dice.choice([0.5, 3.0] * 9 + [float("nan")]),
        "t": {"seconds": (WINDOW + dice.choice([0, 7_000, -(10**10)])) // 1000, "nanos": 999_999_999},
    }  # fmt: skip
    if (k := dice.choice([None, 1, 2])) is not None:
        value["k"] = k
    if number == 2:
        value["new"] = {"x": 1, "y": -1}
    return head + PLACES[number] + bytes(CLASSES[number](**value).SerializeToString())


def test_the_bytes_of_protobuf_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confluent_kafka.schema_registry.SchemaRegistryClient", OfFiles)
    dice, odd = random.Random("route"), OddProtobuf("records", 0.2)
    fetches = [[message(dice, odd, fetch) for _ in range(EACH)] for fetch in range(FETCHES)]
    source = {"topic": "raw", "user": "u", "key": ["k", "z"], "time": "t", "null_key": "value", "format": "protobuf"}
    source |= {"message": "p.Event", "registry": {"url": "http://127.0.0.1:9"}}
    decoded = Decoded(monkeypatch)
    expected = routed(tmp_path / "parsed", source, fetches, whole=False)
    assert decoded.rows == []
    assert routed(tmp_path / "whole", source, fetches, whole=True) == expected
    assert decoded.rows == [EACH] * FETCHES
    assert 0 < sum(decoded.left) < sum(decoded.rows) // 2
    _, counters, letters = expected
    assert counters["routed"] > 250
    assert {Reason.UNDECODABLE, Reason.EMPTY, Reason.TOMBSTONE, Reason.OTHER_TYPE} < set(letters)


def test_the_bytes_of_framed_json_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, odd = random.Random("json"), Odd(3)

    def value() -> bytes | None:
        head = dice.choice([b"\0\0\0\0\5"] * 9 + [b"\0\0\0\0\0", b"", b"\xc3\x01"])
        if dice.random() < 0.3:
            (some,) = odd.payloads(1)
            return None if some is None else head + some
        return head + b'{"u": "user-%d", "k": %d, "v": %d}' % tuple(dice.randrange(1, 30) for _ in range(3))

    fetches = [[value() for _ in range(EACH)] for _ in range(FETCHES)]
    source = {"topic": "raw", "user": "u", "key": ["k"], "null_key": "value", "framing": "confluent"}
    decoded = Decoded(monkeypatch)
    expected = routed(tmp_path / "parsed", source, fetches, whole=False)
    assert decoded.rows == []
    assert routed(tmp_path / "whole", source, fetches, whole=True) == expected
    assert len(decoded.rows) == FETCHES
    assert 0 < sum(decoded.left) < sum(decoded.rows) // 2
    assert Reason.FRAMING_SINGLE_OBJECT in expected[2]
