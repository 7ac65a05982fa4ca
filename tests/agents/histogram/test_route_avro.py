"""route writes the same bytes of Avro whether a fetch comes as record batches, decoded by programs, or as parsed records."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.topics.compiled import compiled
from susurrus.topics.records.reason import Reason
from tests.agents.formats.odd_avro import OddAvro, fastavro_bytes
from tests.agents.histogram.input_cases import Registry
from tests.agents.histogram.whole_fetches import Decoded, routed
from tests.agents.stages import WINDOW

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

FETCHES, EACH = 12, 60
USUAL: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "z", "type": "string"},
        {"name": "u", "type": "string"},
        {"name": "k", "type": ["null", "int"]},
        {"name": "v", "type": ["double", "null"]},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
NEWER = {**USUAL, "fields": [{"name": "new", "type": {"type": "map", "values": "long"}}, *USUAL["fields"]]}
SCHEMAS = {1: USUAL, 2: NEWER, 3: OddAvro("route", 0.2).schema(), 4: "string"}
UNKNOWN = 77


class OfSchemas(Registry):
    """A registry with our schemas."""

    asked: list[int]

    def get_schema(self, schema_id: int, **query: Any) -> Any:
        OfSchemas.asked.append(schema_id)
        if schema_id not in SCHEMAS:
            return super().get_schema(schema_id, **query)  # refuses it
        return SimpleNamespace(schema_str=json.dumps(SCHEMAS[schema_id]), schema_type="AVRO", references=[])


def written(dice: random.Random, odd: OddAvro, fetch: int) -> bytes | None:
    """A record. The newer schema comes with the fifth fetch; the eighth one
    names a schema that nobody knows, and its records are overdue."""
    number = dice.choice([1] * 6 + [2 if fetch > 3 else 1, 3, 4, UNKNOWN if fetch == 7 else 1])
    head = b"\0" + number.to_bytes(4, "big")
    if number == 3:
        return head + next(odd.payloads(SCHEMAS[3], 1))  # type: ignore[arg-type]
    if dice.random() < 0.05:
        return dice.choice([None, b"", head[:3], head, b'{"u": 1}', head + b"\xff" * 9])
    times = [WINDOW, WINDOW + 7, WINDOW - 10**10]
    value = {
        "u": f"user-{dice.randrange(30)}", "k": dice.choice([None, 1, 2]), "z": dice.choice(["", "ü"] * 9 + ['a"']),
        "v": dice.choice([0.5, 3.0] * 9 + [None, float("nan")]), "t": dice.choice(times) * 1000 + 999, "new": {"x": 1, "y": -1},
    }  # fmt: skip
    return head + fastavro_bytes(NEWER if number == 2 else USUAL, value)


def routed_of(directory: Path, whole: bool) -> tuple[Any, ...]:
    OfSchemas.asked, odd, dice = [], OddAvro("records", 0.2), random.Random("route")
    fetches = [[written(dice, odd, fetch) for _ in range(EACH)] for fetch in range(FETCHES)]
    source = {"topic": "raw", "user": "u", "key": ["k", "z"], "time": "t", "null_key": "value", "format": "avro"}
    found = routed(directory, {**source, "registry": {"url": "http://127.0.0.1:9"}}, fetches, whole=whole)
    return *found, OfSchemas.asked


def test_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confluent_kafka.schema_registry.SchemaRegistryClient", OfSchemas)
    decoded = Decoded(monkeypatch)
    *expected, asked = routed_of(tmp_path / "parsed", whole=False)
    assert decoded.rows == []
    assert sorted(asked) == [1, 2, 3, 4, UNKNOWN]
    *found, asked = routed_of(tmp_path / "whole", whole=True)
    assert found == expected
    assert decoded.rows == [EACH] * FETCHES
    assert 0 < sum(decoded.left) < sum(decoded.rows) // 2
    assert asked == [1, 3, 4, 2, UNKNOWN, UNKNOWN]  # before the fetch, and once more for its records
    _, counters, letters = found
    assert counters["routed"] > 250
    assert {Reason.UNDECODABLE, Reason.EMPTY, Reason.TOMBSTONE, Reason.MISSING_VALUE} < set(letters)
