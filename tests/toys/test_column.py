"""A column kind that is registered in one line checks its settings, is decoded, measured, aggregated and published."""

import json

import numpy as np
import pytest

from susurrus.agents.cli.reference import _type_name
from susurrus.agents.histogram.column_settings import ColumnSettings
from susurrus.agents.histogram.columns import COLUMNS, Kept
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import RawDecoder
from tests.agents.released import settings
from tests.toys.column import SumOfSquares

SPENT = {"name": "spent", "kind": SumOfSquares.kind, "field": "amount", "bound": 10.0, "grid": 0.5}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMNS, SumOfSquares.kind, SumOfSquares)


def test_its_settings_are_checked() -> None:
    with pytest.raises(ConfigurationError, match='bound is missing; kind = "sum-of-squares" needs bounds'):
        settings(columns=[{"name": "spent", "kind": SumOfSquares.kind, "field": "amount"}])
    with pytest.raises(ConfigurationError, match=r'column 1 \("spent"\): grid = 0.001 against bound = 10'):
        settings(columns=[SPENT | {"grid": 0.001}])  # 10^4 units, and their square is more than 2^24
    with pytest.raises(ConfigurationError, match=r"use 'count', 'users', .* or 'sum-of-squares'"):
        settings(columns=[SPENT | {"kind": "squares"}])


def test_schema_and_reference_name_it() -> None:
    assert SumOfSquares.kind in ColumnSettings.model_json_schema()["properties"]["kind"]["enum"]
    assert SumOfSquares.kind in _type_name(ColumnSettings.model_fields["kind"].rebuild_annotation())


def test_it_is_decoded_measured_and_published_beside_a_sum_of_the_same_field() -> None:
    found = settings(columns=[SPENT, SPENT | {"name": "paid", "kind": "sum"}, {"name": "visits"}])
    assert [(c.name, c.kind, c.bound) for c in found.plan().columns] == [
        ("spent", "sum", 400), ("paid", "sum", 20), ("visits", "count", 1)
    ]  # fmt: skip
    decoder = RawDecoder(found.raw_schema())
    events = [{"host": user, "url": "/", "amount": amount} for user, amount in (("a", 1.5), ("b", -2), ("c", 99))]
    records = decoder.decode(JsonReader(decoder.paths).read([json.dumps(event).encode() for event in events]))
    kept = Kept(rows=np.array([2, 0, 1]), starts=np.array([0, 1]), first=np.ones(3, np.bool_), values=records.values)
    sums = found.layout.aggregate(kept)
    assert sums.tolist() == [[400, 20, 1], [9 + 16, 3 - 4, 2]]
    spent, paid, visits = (c.rows(sums, np.full(sums.shape, 4.0)) for c in found.layout.published)
    assert (spent.name, spent.estimate.tolist(), spent.std_error.tolist()) == ("spent", [100.0, 6.25], [1.0, 1.0])
    assert (paid.estimate.tolist(), visits.estimate.tolist()) == ([10.0, -0.5], [1, 2])
