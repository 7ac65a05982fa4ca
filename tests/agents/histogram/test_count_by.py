"""Counts by declared values: which column a record counts in, the errors of the columns, and a whole pipeline on a broker."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from susurrus.agents.expressions.computation import Computation
from susurrus.agents.histogram.columns.count_by import category_field
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.sql.source import StatementText
from susurrus.agents.sql.statement import statement
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics import histogram
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import ComputedField, RawDecoder, RawSchema
from tests.agents.released import settings
from tests.broker import Broker
from tests.chaos.conftest import archive
from tests.pipeline import EPOCH, SECRET, Pipeline
from tests.reference import canonical, expected

VALUES = ["200", "304", "404"]
STATUS = {"name": "status", "kind": "count_by", "field": "status", "values": VALUES}


def made(*columns: dict[str, Any], **sections: Any) -> Any:
    given = {"columns": list(columns) or [{"name": "people", "kind": "users"}, STATUS], **sections}
    return settings(privacy={"epsilon": 6.0, "delta": 1e-9}, **given)


def names(of: Any) -> list[str]:
    return [column.name for column in of.published_columns]


def test_each_value_is_a_column_and_so_are_the_others() -> None:
    ours = made()
    assert names(ours) == ["people", "status_200", "status_304", "status_404", "status_other"]
    assert [column.measures for column in ours.measured_columns] == [
        "users",
        "cells",
    ]  # one measured column, of four counts
    assert ours.layout.width == 5
    assert names(made({**STATUS, "values": ["New York", 7]})) == ["status_New_York", "status_7", "status_other"]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({"name": "s", "kind": "count_by", "field": "s"}, "values is missing"),
        ({**STATUS, "values": ["a", "a"]}, "values has one twice"),
        ({**STATUS, "lower": 1}, "lower has no meaning"),
        ({**STATUS, "at": [0.5]}, "at has no meaning"),
        ({**STATUS, "values": ["other"]}, 'two are called "status_other"'),
        ({"name": "n", "kind": "sum", "field": "s", "bound": 3, "values": ["a"]}, "values has no meaning"),
    ],
)
def test_refusals(column: dict[str, Any], problem: str) -> None:
    with pytest.raises((ConfigurationError, ValidationError)) as refused:
        made(column)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("record", "place"),
    [
        ({"status": "200"}, 0),
        ({"status": 304}, 1),  # a number counts by its text
        ({"status": "404"}, 2),
        ({"status": "500"}, 3),
        ({"status": None}, 3),
        ({}, 3),
        ({"status": "20"}, 3),
        ({"status": True}, 3),
        ({"status": "200 "}, 3),
    ],
)
def test_a_record_counts_in_one_column_whatever_its_value_is(record: dict[str, Any], place: int) -> None:
    line = json.dumps({"host": "u", "url": "/", **record}).encode()
    schema = made().raw_schema()
    others = [json.dumps({"host": "u", "url": "/", "status": other}).encode() for other in ("404", 7, None, False)]
    for lines in ([line], [*others, line], [line, *others]):  # what it is read with does not matter
        computation = Computation(schema.scalars, None)
        found = RawDecoder(schema).decode(computation.applied(JsonReader(computation.paths).read(lines)))
        assert found.reason.tolist() == [0] * len(lines)
        assert found.values[lines.index(line)].tolist() == [place]


def test_values_are_texts_of_the_expression_and_cannot_end_it() -> None:
    field = category_field(ComputedField("upper(kind)"), ("it's", "'); --"))
    assert isinstance(field.path, ComputedField)
    schema = RawSchema(user=("u",), key=("k",), values=(category_field("kind", ("it's", "'); --")), field))
    lines = [json.dumps({"u": 1, "k": 1, "kind": kind}).encode() for kind in ("it's", "'); --", "x")]
    computation = Computation(schema.scalars, None)
    found = RawDecoder(schema).decode(computation.applied(JsonReader(computation.paths).read(lines)))
    assert found.values.tolist() == [[0, 2], [1, 1], [2, 2]]


def test_sql() -> None:
    text = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, delta = 1e-9, privacy_unit_column = id)
        url, COUNT(DISTINCT id) AS people, COUNT_BY(status, '200', 304) AS status
        FROM visits GROUP BY url, TUMBLE(ROWTIME, INTERVAL '1' DAY) EMIT EVERY INTERVAL '1' HOUR"""
    columns = statement(StatementText("by.sql", text)).settings["columns"]
    assert columns[1] == {"name": "status", "kind": "count_by", "field": "status", "values": ["200", "304"]}
    for wrong in ("COUNT_BY(status)", "COUNT_BY(status, other)"):
        with pytest.raises(ConfigurationError, match=r"by\.sql:2"):
            statement(StatementText("by.sql", text.replace("COUNT_BY(status, '200', 304)", wrong)))


# ---- what is published of noisy counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 9, 30])
def test_errors_are_those_of_the_noise(number: int) -> None:
    """Against matrices: cells are C_time x + z over buckets, and a column is a row of the inverse of the buckets' factor."""
    ours = made({**STATUS, "values": [str(at) for at in range(number)]}, window={"trigger_every": "6h"})
    cells = next(value for value in HistogramPipeline(ours).strategy.values if isinstance(value, Cells))
    size = number + 1
    lag = np.arange(size)[:, None] - np.arange(size)[None, :]
    factor = np.where(lag >= 0, np.array(cells.over_buckets.numerators, np.float64)[np.abs(lag)], 0) / (
        1 << cells.over_buckets.bits
    )
    norms = np.linalg.norm(np.linalg.inv(factor), axis=1)
    wanted = cells.sigma * np.sqrt(cells.factorization.row2[-1]) * norms
    std_errors = np.zeros((1, ours.layout.width))
    std_errors[0, list(ours.layout.published[0].sources)] = cells.std[-1]
    found = [
        column.rows(np.zeros((1, ours.layout.width), np.int64), std_errors).std_error
        for column in ours.layout.published
    ]
    # beside the noise there is the rounding of one or two counts
    assert np.concatenate(found) == pytest.approx(wanted, rel=1e-2)
    if number <= 4:
        assert cells.over_buckets.exponent == 0
        assert np.ptp(wanted) == 0  # each value has the noise of one count


@pytest.mark.statistical
@pytest.mark.parametrize(("number", "broken"), [(3, False), (3, True), (12, False), (12, True)])
def test_standard_errors_hold_and_a_column_that_forgets_the_correlation_does_not(number: int, broken: bool) -> None:
    """The planted defect: the noises of two cumulative counts are taken for independent."""
    ours = made({**STATUS, "values": [str(at) for at in range(number)]}, window={"trigger_every": "6h"})
    strategy: Any = HistogramPipeline(ours).strategy
    cells = next(value for value in strategy.values if isinstance(value, Cells))
    noise = NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=str(number)).window(0)
    keys = [b"%d" % at for at in range(4000)]
    drawn = cells.noise(4, "cells", keys, noise)
    std_errors = np.tile(cells.std[3], (len(keys), 1))
    column = ours.layout.published[2].column
    estimate, error = column.publish(drawn, std_errors)
    if broken:
        error = np.hypot(std_errors[:, 2], std_errors[:, 1])
    spread = float(np.std(estimate / error))
    assert (abs(spread - 1) < 0.05) is not broken


RAW: dict[str, Any] = {
    "columns": [
        {"name": "people", "kind": "users"},
        {"name": "size", "kind": "count_by", "expression": "CASE WHEN bytes = 0 THEN 'none' WHEN bytes < 5000 THEN 'small' END",
         "values": ["none", "small"]},
    ],
    "bounds": {"max_records_per_user": 16, "max_records_per_key": 2},
    "window": {"trigger_every": "4h"},
    "privacy": {"strategy": None},
}  # fmt: skip


def test_every_published_number_is_the_references(kafka: Broker, tmp_path: Path, once: Any) -> None:
    """A discovered url times a declared part, on a broker; the reference adds records up in plain Python."""
    raw = once("count by", lambda: archive(kafka, 1))
    with Pipeline(kafka, tmp_path, raw, RAW) as pipeline:
        pipeline.start()
        pipeline.wait()
        ours: Any = pipeline.settings
        events = []
        [path] = [value.path.expression for value in ours.layout.values]
        for message in kafka.read_all(raw):
            record = json.loads(message.value())
            record[path] = 0 if record["bytes"] == 0 else 1 if record["bytes"] < 5000 else 2
            events.append((message.partition(), message.offset(), message.timestamp()[1], record))
        wanted = expected(ours, events, secret=bytes.fromhex(SECRET), epoch=EPOCH)
        seen = Counter[str]()
        for message in kafka.read_all(ours.topic("histogram")):
            row = histogram.decode_row(message.value())
            numbers = wanted.pop((row.window, row.trigger, canonical(row.key)))
            none, small, everything = numbers[1:]
            found = [row.values[f"size_{name}"].estimate for name in ("none", "small", "other")]
            assert found == [none, small - none, everything - small]
            seen.update(name for name in row.values)
        assert not wanted
        assert seen["size_other"] > 100
