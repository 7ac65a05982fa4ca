"""What to write instead: names that no record has, with the nearest one, and settings that do not fit the records."""

import gzip
import json
from typing import Any

import pytest

from susurrus.agents.histogram.decisions import HistogramDecisions
from susurrus.agents.operations.advice import NamedField, named_fields, nearest, to_write
from susurrus.agents.operations.look import seen_in
from susurrus.topics.records.fields import parse_path
from tests.agents.operations.raw_records import record, records, settings


@pytest.mark.parametrize(
    ("wanted", "known", "found"),
    [
        ("status", ["Status", "state"], "Status"),
        ("user_id", ["user", "userId"], "userId"),
        ("user_id", ["payload.user.user-id"], "payload.user.user-id"),
        ("headers.user-id", ["$headers.user-id"], "$headers.user-id"),
        ("costomer", ["customer", "cost"], "customer"),
        ("amount", ["page", "user"], ""),
    ],
)
def test_the_nearest_name(wanted: str, known: list[str], found: str) -> None:
    assert nearest(parse_path(wanted), [parse_path(name) for name in known]) == found


def named(source: dict[str, Any], values: list[Any]) -> dict[str, NamedField]:
    ours, some = settings(**source), records(values)
    return {
        one.name: one
        for one in named_fields(HistogramDecisions(ours), ours.input, some, seen_in(some, None, ours.input))
    }


def test_shares_of_the_fields_that_a_file_names() -> None:
    values = [{"user_id": "a", "page": None, "Bytes": 1}, {"user_id": "b", "Bytes": 1}, b"{", None]
    found = named({"where": "bytes > 0 AND page IS NULL"}, values)
    assert (found["user_id"].rows, found["user_id"].present, found["user_id"].absent) == (4, 2, 0)
    assert (found["page"].present, found["page"].null, found["page"].absent) == (0, 1, 1)
    assert not found["page"].unknown
    assert found["page"].settings == ["input.where", 'input.key = "page"']
    assert found["bytes"].unknown
    assert found["bytes"].nearest == "Bytes"


def test_fields_of_items_and_the_list_itself() -> None:
    source = {"each": {"of": "items", "as": "item"}, "key": ["item.SKU"]}
    found = named(source, [{"user_id": "a", "items": [{"sku": 1}, {"sku": 2}]}])
    assert (found["item.SKU"].rows, found["item.SKU"].absent, found["item.SKU"].nearest) == (2, 2, "item.sku")
    assert (found["user_id"].rows, found["items"].present) == (1, 1)
    missing = named(source, [{"user_id": "a", "Items": [{"sku": 1}]}])
    assert missing["items"].nearest == "Items"


def advice(source: dict[str, Any], values: list[Any], key: bytes | None = None) -> list[str]:
    ours = settings(**source)
    some = [record(value, key=key, offset=offset) for offset, value in enumerate(values)]
    found = seen_in(some, None, ours.input)
    fields = named_fields(HistogramDecisions(ours), ours.input, some, found)
    return list(to_write(ours.input, found, fields, all_refused=True))


EVENT = {"user_id": "a", "page": "b"}
INSIDE = "input.each takes lists apart: page may be items[].page, inside a list (docs/configuration.md)"


@pytest.mark.parametrize(
    ("source", "values", "lines"),
    [
        ({}, [gzip.compress(json.dumps(EVENT).encode())], ['input.compression = "auto"']),
        ({"format": "csv", "columns": ["user_id", "page", "x"]}, [EVENT, EVENT], ['input.format = "json"']),
        ({}, [b"\0\0\0\0\1" + json.dumps(EVENT).encode()], ['input.framing = "confluent"']),
        ({}, [json.dumps([EVENT, EVENT]).encode()], ['input.each = { of = "$value" }']),
        ({}, [{"userId": "a", "page": "b"}], ['input.user = "user_id": write userId instead of user_id']),
        ({"where": "Page = 'x'"}, [EVENT], ["input.where: write page instead of Page"]),
        ({}, [{"user_id": "x", "items": [{"page": 1}]}], [INSIDE]),
        ({}, [EVENT], []),
    ],
)  # fmt: skip
def test_what_to_write(source: dict[str, Any], values: list[Any], lines: list[str]) -> None:
    assert advice(source, values) == lines


def test_the_format_of_the_key() -> None:
    assert advice({"user": "$key"}, [EVENT], key=(-1).to_bytes(8, "big", signed=True)) == ['input.key_format = "int64"']
    assert advice({}, [EVENT], key=(7).to_bytes(8, "big")) == []
