"""Keys and values that wait for their schemas, in records that are taken apart: waiting moves no row and changes none."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.raw import ComputedField

pytest.importorskip("fastavro")
registry_module = pytest.importorskip("confluent_kafka.schema_registry")

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
VALUE = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "k", "type": "string"}, {"name": "items", "type": {"type": "array", "items": ITEM}}],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
OF_VALUES, OF_KEYS = range(1, 5), range(5, 9)
"""Ids of schemas, which are registered one after the other."""


class Registry:
    """Takes the place of confluent-kafka's client: it knows more and more ids."""

    known: frozenset[int] = frozenset()

    def __init__(self, properties: Any) -> None:
        """Nothing is asked for yet."""

    def __exit__(self, *exception: object) -> None:
        """Nothing to close."""

    def get_subjects(self, **query: Any) -> list[str]:
        return ["some-value"]

    def get_schema(self, schema_id: int, **query: Any) -> Any:
        if schema_id not in self.known:
            raise registry_module.SchemaRegistryError(404, 40403, "Schema not found")
        return registry_module.Schema(json.dumps(VALUE if schema_id in OF_VALUES else KEY), "AVRO")


def zigzag(number: int) -> bytes:
    assert 0 <= number < 64
    return bytes([2 * number])


def text(of: str) -> bytes:
    return zigzag(len(of)) + of.encode()


def record(offset: int, dice: random.Random) -> Any:
    skus = [dice.choice("ABC") for _ in range(dice.randrange(4))]
    items = (zigzag(len(skus)) + b"".join(map(text, skus)) if skus else b"") + b"\0"
    value: bytes | None = b"\0\0\0\0" + bytes([dice.choice(OF_VALUES)]) + text(dice.choice(["x", "bot"])) + items
    key: bytes | None = b"\0\0\0\0" + bytes([dice.choice(OF_KEYS)]) + zigzag(dice.randrange(9))
    if dice.random() < 0.2:
        value = dice.choice([None, b"", b"\0", value[:-1], value + b"\0"])
    if dice.random() < 0.2:
        key = dice.choice([None, b"", b"\0", key + b"\0"])
    return ReadRecord("orders", 0, offset, 1_790_834_400_000, key, value, [])


def rows_of(chunk: Chunk) -> Iterator[tuple[int, int, Any]]:
    """Of each row: its record among those of the chunk, its place there, and its fields or why it is refused."""
    assert chunk.record is not None
    assert chunk.item is not None
    good = zip(*chunk.columns, strict=True)
    for row, (owner, item) in enumerate(zip(chunk.record.tolist(), chunk.item.tolist(), strict=True)):
        yield owner, item, chunk.refused[row] if row in chunk.refused else next(good)


@pytest.mark.parametrize("where", [None, "k <> 'bot'", "$key.id > 2", "item.sku <> 'A'"])
@pytest.mark.parametrize("seed", range(3))
def test_a_schema_that_comes_late_changes_no_row(where: str | None, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "SchemaRegistryClient", Registry)
    source = InputSettings.model_validate(
        {
            "topic": "orders",
            "format": "avro",
            "key_format": "avro",
            "registry": {"url": "http://127.0.0.1:9"},
            "each": {"of": "items", "as": "item"},
        }
    )
    dice = random.Random(f"{where} {seed}")
    records = [record(offset, dice) for offset in range(80)]

    def read(orders: list[set[int]]) -> list[tuple[int, int, Any]]:
        """orders: the ids that are known, moment by moment."""
        scalars = [parse_path("$key.id"), parse_path("k"), ComputedField("lower(item.sku)")]
        computation = Computation(scalars, where)
        reader = reader_of(source, computation.paths, topic="orders", partition=0, asked=computation.asked)
        found: list[tuple[int, int, Any]] = []
        taken = 0
        for known in orders:
            monkeypatch.setattr(Registry, "known", frozenset(known))
            for chunk in computation.applied(reader.read(records[taken:], lambda row: False)):
                found += [(taken + owner, item, row) for owner, item, row in rows_of(chunk)]
                taken += chunk.payloads
            assert (reader.waits is None) == (taken == len(records))
        assert taken == len(records)
        reader.close()
        computation.close()
        return found

    everything = {*OF_VALUES, *OF_KEYS}
    at_once = read([everything])
    assert len({owner for owner, *_ in at_once}) == len(records)
    assert len({repr(row) for *_, row in at_once}) > 5
    ids = list(everything)
    dice.shuffle(ids)
    assert read([set(ids[:number]) for number in range(len(ids) + 1)]) == at_once
