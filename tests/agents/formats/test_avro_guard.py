"""Few bytes of Avro that ask for endless nesting, values or time cost their own record and no other one."""

import io
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.avro_guard import LONGEST_DECIMAL, MOST_VALUES, costly, walk
from susurrus.agents.formats.format import Format, RefusedPayload
from susurrus.agents.pipelines import settings_from
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import MAX_DEPTH
from tests.record_batches import zigzag
from tests.registry import LateRegistry

fastavro = pytest.importorskip("fastavro")
schema_registry = pytest.importorskip("confluent_kafka.schema_registry")


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


LINKED = record("Linked", u="string", next=["null", "Linked"])
NULLS = record("Nulls", u="string", a={"type": "array", "items": "null"})
EMPTY = record("Holder", u="string", a={"type": "array", "items": record("Empty")})
DECIMAL = record("Money", u="string", d={"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2})
ITEM = record("Item", a="int", k={"type": "enum", "name": "Kind", "symbols": ["A", "B"]})
USUAL = record(
    "Usual", u="string", n=["null", {"type": "long", "logicalType": "timestamp-millis"}],
    m={"type": "map", "values": "double"}, t={"type": "array", "items": ITEM},
    again=["null", "Item"], f={"type": "fixed", "name": "Three", "size": 3}, b="boolean", x="float",
)  # fmt: skip
CHAIN = [record("R0", a="int"), *(record(f"R{n}", a=f"R{n - 1}") for n in range(1, 3 * MAX_DEPTH))]
DOUBLING = [record("D0", a="null"), *(record(f"D{n}", a=f"D{n - 1}", b=f"D{n - 1}") for n in range(1, 60))]


def linked(levels: int) -> bytes:
    return b"\2a\2" * (levels - 1) + b"\2a\0"


def parsed(schema: Any) -> tuple[Any, dict[str, Any]]:
    names: dict[str, Any] = {}
    return fastavro.parse_schema(schema, named_schemas=names), names


def reader(monkeypatch: pytest.MonkeyPatch, schema: Any) -> Format:
    answer = SimpleNamespace(references=[], schema_str=json.dumps(schema))
    monkeypatch.setattr(schema_registry, "SchemaRegistryClient", LateRegistry(answer, {1: 0.0}, lambda: 1.0))
    source = {"topic": "raw", "format": "avro", "registry": {"url": "http://localhost:1"}}
    stream = {"stream": "u", "value": "u", "bound": 1.0, "epsilon": 1.0}
    data = {"pipeline": {"name": "m", "kind": "stream"}, "input": source, "stream": stream}
    return decoder_of(settings_from(data, environ={}).input, [("u",)])


CASES: dict[str, tuple[Any, bytes, bytes, Reason]] = {
    "nesting": (LINKED, linked(MAX_DEPTH), linked(30_000), Reason.TOO_DEEP),
    "one level too deep": (LINKED, linked(MAX_DEPTH), linked(MAX_DEPTH + 1), Reason.TOO_DEEP),
    "values of no bytes": (NULLS, b"\2a" + zigzag(1_000) + b"\0", b"\2a" + zigzag(2**40) + b"\0", Reason.UNDECODABLE),
    "empty records": (EMPTY, b"\2a" + zigzag(-9) + zigzag(0) + b"\0", b"\2a" + zigzag(2**62) + b"\0", Reason.UNDECODABLE),
    "digits": (
        DECIMAL,
        b"\2a" + zigzag(12) + b"\1" * 12,
        b"\2a" + zigzag(10**6) + b"\x5a" * 10**6,
        Reason.UNDECODABLE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_payload_that_asks_for_too_much_is_refused_alone(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: the process ended, or the task worked on it for minutes or until memory was used up; and again after a restart."""
    schema, good, bad, reason = CASES[case]
    format_ = reader(monkeypatch, schema)
    payloads = [b"\0\0\0\0\1" + data for data in (good, bad, good)]
    [chunk] = format_.read(payloads, lambda row: False)
    assert chunk.refused == {1: reason}
    assert chunk.columns == [["a", "a"]]


def test_only_payloads_that_could_ask_for_too_much_are_walked() -> None:
    assert not any(costly(*parsed(schema)) for schema in (USUAL, DECIMAL, ITEM, "string", ["null", "long"]))
    assert all(costly(*parsed(schema)) for schema in (LINKED, NULLS, EMPTY, CHAIN, DOUBLING))
    wide = record("Wide", **{f"f{n}": "null" for n in range(200)})
    assert costly(*parsed({"type": "array", "items": {**wide}}))
    assert not costly(*parsed(record("Once", w=wide)))


def test_few_bytes_of_a_schema_that_doubles_are_too_many_values() -> None:
    with pytest.raises(ValueError, match="too many values"):
        walk(zigzag(59), *parsed(DOUBLING))


def test_a_chain_of_records_is_as_deep_as_one_that_is_its_own_field() -> None:
    walk(zigzag(MAX_DEPTH - 1) + b"\2", *parsed(CHAIN))
    with pytest.raises(RefusedPayload) as refused:
        walk(zigzag(MAX_DEPTH) + b"\2", *parsed(CHAIN))
    assert refused.value.reason is Reason.TOO_DEEP


def test_what_fastavro_reads_can_be_walked_and_what_is_cut_off_cannot() -> None:
    schema, names = parsed(USUAL)
    for n, items in ((None, 0), (5, 2), (2**40, 300)):
        event = {
            "u": "é" * 70, "n": n, "m": {"": 1.5, "b": -0.0}, "t": [{"a": -9, "k": "B"}] * items,
            "again": {"a": 3, "k": "A"} if items else None, "f": b"abc", "b": True, "x": 1.0,
        }  # fmt: skip
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, event)
        data = out.getvalue()
        walk(data, schema, names)
        for end in range(0, len(data), 7):
            with pytest.raises(ValueError, match="runs over the end"):
                walk(data[:end], schema, names)
    with pytest.raises(ValueError, match="no such branch"):
        walk(zigzag(2), *parsed(["null", "long"]))
    walk(b"", *parsed("null"))
    assert MOST_VALUES >= 1_000


def test_decimals_of_sense_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    reader(monkeypatch, DECIMAL)
    reader(monkeypatch, DECIMAL)
    schema, out = parsed(DECIMAL)[0], io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"u": "a", "d": Decimal("-123456789012345678901234567.89")})
    assert fastavro.schemaless_reader(io.BytesIO(out.getvalue()), schema, None)["d"] == Decimal(
        "-123456789012345678901234567.89"
    )
    longest = b"\2a" + zigzag(LONGEST_DECIMAL) + b"\1" * LONGEST_DECIMAL
    assert fastavro.schemaless_reader(io.BytesIO(longest), schema, None)["d"] > 10**2000
