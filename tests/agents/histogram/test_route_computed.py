"""Pipelines that filter or compute are decoded compiled, whatever their format, and write the same bytes; so are statements."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("authlib")

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from susurrus.agents.expressions.typed import TypedComputation
from susurrus.agents.pipelines import settings_from
from susurrus.agents.sql.source import StatementText
from susurrus.agents.sql.statement import statement
from susurrus.agents.sql.tables import joined
from susurrus.topics import raw_batches
from susurrus.topics.compiled import compiled
from tests.agents.formats.odd_avro import fastavro_bytes
from tests.agents.histogram.input_cases import Registry
from tests.agents.histogram.test_route_batches import chosen
from tests.agents.histogram.whole_fetches import Decoded, routed_by
from tests.agents.stages import WINDOW
from tests.proto import DOUBLE, INTEGER, TEXT, message_class

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

EACH, FETCHES = 40, 3
AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "u", "type": "string"},
        {"name": "k", "type": "string"},
        {"name": "v", "type": "double"},
        {"name": "s", "type": "long"},
    ],
}
PROTOBUF = message_class("p.Event", {"u": TEXT, "k": TEXT, "v": DOUBLE, "s": INTEGER})


class OfBoth(Registry):
    """A registry with one schema of Avro, 1, and one of Protobuf, 2."""

    def get_schema(self, schema_id: int, **query: Any) -> Any:
        file = FileDescriptorProto()
        PROTOBUF.DESCRIPTOR.file.CopyToProto(file)
        kinds = {
            1: ("AVRO", json.dumps(AVRO)),
            2: ("PROTOBUF", base64.b64encode(file.SerializeToString()).decode()),
        }
        kind, text = kinds[schema_id]
        return SimpleNamespace(schema_str=text, schema_type=kind, references=[])


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confluent_kafka.schema_registry.SchemaRegistryClient", OfBoth)


def event(number: int) -> dict[str, Any]:
    return {
        "u": f"User-{number % 17}",
        "k": f"/a{number % 3}?q={number}",
        "v": number / 4,
        "s": 200 if number % 4 else 404,
    }


def in_json(value: Any) -> bytes:
    return json.dumps(value).encode()


_REGISTRY = {"registry": {"url": "http://127.0.0.1:9"}}
FORMATS: dict[str, tuple[dict[str, Any], Callable[[Any], bytes]]] = {
    "json": ({}, in_json),
    "json schema": ({"framing": "confluent"}, lambda value: b"\0\0\0\0\x05" + in_json(value)),
    "avro": ({"format": "avro", **_REGISTRY}, lambda value: b"\0\0\0\0\x01" + fastavro_bytes(AVRO, value)),
    "protobuf": (
        {"format": "protobuf", "message": "p.Event", **_REGISTRY},
        lambda value: b"\0\0\0\0\x02\0" + bytes(PROTOBUF(**value).SerializeToString()),
    ),
}
"""Of `[input]`, and what writes a record."""
FIELDS = {"topic": "raw", "user": "u", "key": ["k"]}
COUNT = {"name": "visits", "kind": "count"}
PIPELINES: dict[str, dict[str, Any]] = {
    "where": {"input": {**FIELDS, "where": "s = 200"}, "columns": [COUNT]},
    "user": {"input": {**FIELDS, "user": {"expression": "lower(u)"}}, "columns": [COUNT]},
    "keys": {
        "input": {**FIELDS, "key": [{"name": "path", "expression": "split_part(k, '?', 1)"}, "s"]},
        "columns": [COUNT],
    },
    "value": {
        "input": FIELDS,
        "columns": [COUNT, {"name": "kilo", "kind": "sum", "expression": "v / 10", "bound": 9.0, "grid": 0.5}],
    },
    "all": {
        "input": {
            **FIELDS,
            "user": {"expression": "lower(u)"},
            "where": "s = 200 AND k LIKE '/a%'",
            "key": [
                {"name": "path", "expression": "split_part(k, '?', 1)"},
                {"name": "size", "expression": "length(k)"},
            ],
        },
        "columns": [COUNT, {"name": "kilo", "kind": "sum", "expression": "v / 10", "bound": 9.0, "grid": 0.5}],
    },
}
STATEMENT = """
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 6, delta = 1e-9, privacy_unit_column = u, strategy = toeplitz)
split_part(k, '?', 1) AS path, length(k) AS size, COUNT(*) AS visits, SUM(v / 10 CLAMPED BETWEEN 0 AND 9) AS kilo
FROM raw WHERE s = 200
GROUP BY path, size, TUMBLE(ROWTIME, INTERVAL '1' DAY) EMIT EVERY INTERVAL '6' HOUR
"""


class Taken:
    """Counts the batches whose expressions are evaluated over typed columns, beside what `Decoded` counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decoded, self.typed = Decoded(monkeypatch), 0
        of = TypedComputation.of

        def counted(*arguments: Any) -> raw_batches.ComputedRows:
            self.typed += 1
            return of(*arguments)

        monkeypatch.setattr(TypedComputation, "of", counted)


def check(settings: Any, name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Whole fetches are decoded compiled, nothing of them is left to the definition, and the bytes are the definition's."""
    _, write = FORMATS[name]
    fetches = [[write(event(fetch * EACH + n)) for n in range(EACH)] for fetch in range(FETCHES)]
    taken = Taken(monkeypatch)
    expected = routed_by(settings, directory / "parsed", fetches, whole=False)
    assert (taken.decoded.rows, taken.typed) == ([], 0)
    assert routed_by(settings, directory / "whole", fetches, whole=True) == expected
    assert taken.decoded.rows == [EACH] * FETCHES
    assert taken.decoded.left == [0] * FETCHES
    assert taken.typed == FETCHES
    _, counters, letters = expected
    assert not letters
    return dict(counters)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_expressions_are_evaluated_over_what_the_compiled_decoder_finds(
    pipeline: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = PIPELINES[pipeline]
    settings = chosen(**{**tables, "input": {**tables["input"], **FORMATS[name][0]}, "bounds": {}})
    counters = check(settings, name, tmp_path, monkeypatch)
    filtered = EACH * FETCHES // 4 if "where" in tables["input"] else 0
    assert (counters["routed"], counters["filtered"]) == (EACH * FETCHES - filtered, filtered)


@pytest.mark.parametrize("name", FORMATS)
def test_a_statement_is_decoded_compiled(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "pipeline": {"name": "page-views", "prefix": "t"},
        "kafka": {"bootstrap_servers": "localhost:1", "embedded": True},
        "topics": {"charges": "t.charges"},
        "input": FORMATS[name][0],
        "start": {"from": "earliest", "first_window": WINDOW},
        "clock": {"kind": "broker"},
    }
    data = joined(statement(StatementText("p.sql", STATEMENT)), config, name="p", config=None, environ={})
    counters = check(settings_from(data, environ={}), name, tmp_path, monkeypatch)
    assert (counters["routed"], counters["filtered"]) == (EACH * FETCHES * 3 // 4, EACH * FETCHES // 4)


@pytest.mark.parametrize("name", FORMATS)
def test_lists_are_taken_apart_by_the_definition(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is no scalar, so no program finds it: each record is read by its format, and its items are the rows."""
    source = {**FIELDS, **FORMATS[name][0], "key": ["part"], "where": "s = 200"}
    source["each"] = [{"of": {"expression": "string_split(k, '?')"}, "as": "part"}]
    settings = chosen(input=source, columns=[COUNT], bounds={})
    fetches = [[FORMATS[name][1](event(n)) for n in range(EACH)]]
    taken = Taken(monkeypatch)
    expected = routed_by(settings, tmp_path / "parsed", fetches, whole=False)
    assert routed_by(settings, tmp_path / "whole", fetches, whole=True) == expected
    assert (taken.decoded.rows, taken.typed) == ([], 0)
    assert expected[1]["routed"] == 2 * EACH * 3 // 4
