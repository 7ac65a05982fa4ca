"""The benchmarks' own encoders write what the formats' libraries do, and what the pipelines under measurement read."""

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.encodings import ENCODINGS, ITEMS, Encode
from tests.proto import message_class

OBSERVATIONS = [
    (1, 0, 0),
    (17, 4_711, 3),
    (1_000_000, 999_999, 64),
    (5, 12, 127),
    (6, 12, 128),
    (7, 13, 999),
    (8, 1, 1_000),
]
"""Key, user and number: values of one byte and of two, and the first that begins again at zero."""


def encoded(name: str, prefix: bytes = b"") -> Encode:
    return ENCODINGS[name].make(prefix)


def fields(key: int, user: int, number: int) -> dict[str, Any]:
    return {"k": f"key{key}", "u": f"u{user}", "v": number % 1_000}


@pytest.mark.parametrize(("key", "user", "number"), OBSERVATIONS)
class TestOneObservation:
    def test_json(self, key: int, user: int, number: int) -> None:
        assert json.loads(encoded("json")([key], user, number)) == fields(key, user, number)

    def test_json_schema_stands_behind_the_id(self, key: int, user: int, number: int) -> None:
        value = encoded("json-schema", b"\0\0\0\0\x07")([key], user, number)
        assert value == b"\0\0\0\0\x07" + encoded("json")([key], user, number)

    def test_avro_is_that_of_fastavro(self, key: int, user: int, number: int) -> None:
        fastavro = pytest.importorskip("fastavro")
        assert ENCODINGS["avro"].schema is not None
        schema = fastavro.parse_schema(json.loads(ENCODINGS["avro"].schema[1].read_text()))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, fields(key, user, number))
        assert encoded("avro", b"id")([key], user, number) == b"id" + out.getvalue()

    def test_protobuf_is_that_of_its_library(self, key: int, user: int, number: int) -> None:
        event = message_class("susurrus.proto.Event", {"k": 9, "u": 9, "v": 3})
        wanted = event(**fields(key, user, number)).SerializeToString()
        assert encoded("protobuf", b"id")([key], user, number) == b"id\0" + wanted


@pytest.mark.parametrize("keys", [range(1, 1 + ITEMS), [9] * ITEMS])
def test_arrays_have_the_observations_of_one_user(keys: Sequence[int]) -> None:
    value = json.loads(encoded("arrays")(keys, 42, 998))
    assert value["u"] == "u42"
    assert value["items"] == [{"k": f"key{key}", "v": (998 + at) % 1_000} for at, key in enumerate(keys)]
    assert ENCODINGS["arrays"].items == ITEMS
