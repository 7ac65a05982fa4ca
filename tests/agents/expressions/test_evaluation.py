"""One expression over many records: each record's result is its own, whatever stands beside it."""

import functools
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.language import parse
from susurrus.topics.records.reason import Reason

FAILED, TYPE, RANGE, INFINITE = (
    Reason.EXPRESSION_FAILED, Reason.WRONG_TYPE, Reason.INTEGER_TOO_LARGE, Reason.NOT_FINITE
)  # fmt: skip


def of(text: str, *columns: list[Any], boolean: bool = False) -> list[Any]:
    """The value of each record, or its Reason."""
    values, reasons = Evaluation(parse(text), boolean=boolean).evaluate(columns, len(columns[0]))
    assert all(value is None for value, reason in zip(values, reasons, strict=True) if reason)
    return [Reason(reason) if reason else value for value, reason in zip(values, reasons.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "column", "wanted"),
    [
        ("split_part(a, '?', 1)", ["/x?y", "", "a\0b?", "ü" * 5000], ["/x", "", "a\0b", "ü" * 5000]),
        ("split_part(a, '?', 1)", [None, UNSET, 5, True, {}, b"x", 1j], [None, None, FAILED, FAILED, "{}", FAILED, TYPE]),
        ("a = 200", [200, 200.0, "200", "x", None], [True, True, True, FAILED, None]),
        ("a + 1", [1, -(2**63), 2**63 - 1, 2**64 - 2, 2**64, 0.5], [2, -(2**63) + 1, FAILED, 2**64 - 1, RANGE, 1.5]),
        ("a * 1.5", [2, 4.0, float("nan"), float("inf")], [3.0, 6.0, INFINITE, INFINITE]),
        ("1000 / a", [8, 0, "y"], [125.0, float("inf"), FAILED]),
        ("CAST(a AS INTEGER)", ["7", "x", None, "99999999999", True], [7, FAILED, None, FAILED, 1]),
        ("try(CAST(a AS INTEGER))", ["7", "x"], [7, None]),
        ("TRY_CAST(a AS INTEGER)", ["7", "x"], [7, None]),
        ("coalesce(a, 'none')", [None, UNSET, "x"], ["none", "none", "x"]),
        ("a IS NULL", [None, UNSET, "x", 0], [True, True, False, False]),
        ("CASE WHEN a < 10 THEN 'small' WHEN a < 100 THEN 'large' END", [1, 50, 500], ["small", "large", None]),
        ("CAST(a AS HUGEINT) * a", [2**40, -(2**62)], [2**80, 2**124]),
        ("CAST(a AS DECIMAL(10, 2))", ["1.25", 3], [1.25, 3.0]),
        ("a", [[1], "x", 3, b"\xff"], ["[1]", "x", 3, "ff"]),
        ("string_split(a, '/')[2]", ["/x/y", "", None], ["x", None, None]),
        ("coalesce(string_split(a, '/'), NULL)", ["/x"], [FAILED]),  # no scalar
        ("1", [None, "x"], [1, 1]),
    ],
)  # fmt: skip
def test_values_and_failures(text: str, column: list[Any], wanted: list[Any]) -> None:
    if text == "1":
        assert Evaluation(parse(text)).evaluate([], 2)[0] == wanted
        return
    found = of(text, column)
    assert found == wanted
    assert [type(value) for value in found] == [type(value) for value in wanted]


def test_instants_are_utc() -> None:
    instants = [
        datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 5, 1),
    ]
    assert of("date_trunc('day', a)", instants) == ["2025-12-31 00:00:00", "2026-01-01 00:00:00", "2026-05-01 00:00:00"]
    assert of("extract(hour FROM a)", instants[:2]) == [23, 0]


def test_a_condition_is_a_boolean_or_null() -> None:
    assert of("a", [True, False, None, 1, "true"], boolean=True) == [True, False, None, FAILED, FAILED]


def test_what_try_does_not_catch_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails the query of all its records."""
    evaluation = Evaluation(parse("upper(a)"))
    fetch = evaluation.engine.fetch

    def failing(query: str, arrays: dict[str, Any]) -> Any:
        if "large" in arrays["c0"]:
            raise duckdb.InvalidInputException("no")
        return fetch(query, arrays)

    monkeypatch.setattr(evaluation.engine, "fetch", failing)
    values, reasons = evaluation.evaluate([["a", "large", "b", "c", "d", "large"]], 6)
    assert values == ["A", None, "B", "C", "D", None]
    assert np.flatnonzero(reasons == FAILED).tolist() == [1, 5]


scalars = st.one_of(
    st.none(), st.just(UNSET), st.booleans(), st.integers(-(2**65), 2**65), st.integers(-3, 3), st.floats(), st.floats(-2, 2),
    st.sampled_from(["", "1", "-2", "1.5", "abc", "a?b", "\0", "𝄞", "true", "NaN", "null", "2026-01-01"]), st.text(max_size=5),
    st.dates(), st.datetimes(), st.binary(max_size=3), st.lists(st.integers(), max_size=1),
)  # fmt: skip
EXPRESSIONS = [
    "a = b", "a < b", "a + b", "a || b", "a AND b", "coalesce(a, b)", "CASE WHEN a THEN b ELSE a END", "split_part(a, b, 1)",
    "a IN (1, 2, b)", "a BETWEEN 0 AND b", "CAST(a AS INTEGER) + 1", "length(a) > 1", "a / b", "a % b", "substring(a, b)",
    "round(a, 1)", "upper(a) LIKE '%A%'", "regexp_extract(a, '[a-z]+')", "a IS NULL OR b IS NULL", "a::VARCHAR",
    "strftime(a, '%d')", "greatest(a, b)", "md5(a)", "nullif(a, b)",
]  # fmt: skip


@functools.cache
def evaluation_of(text: str) -> Evaluation:
    return Evaluation(parse(text))


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


@settings(max_examples=12, deadline=None)
@given(records=st.lists(st.tuples(scalars, scalars), min_size=1, max_size=8), dice=st.randoms(use_true_random=False))
def test_a_records_result_is_its_own(records: list[tuple[Any, Any]], dice: Any) -> None:
    """In any batch and any order as alone."""
    for text in EXPRESSIONS:
        evaluation = evaluation_of(text)
        alone = [evaluation.evaluate([[a], [b]][: len(evaluation.expression.fields)], 1) for a, b in records]
        order = list(range(len(records)))
        dice.shuffle(order)
        columns = [[records[row][field] for row in order] for field in range(len(evaluation.expression.fields))]
        values, reasons = evaluation.evaluate(columns, len(order))
        for row, value, reason in zip(order, values, reasons.tolist(), strict=True):
            assert reason == alone[row][1][0], (text, records[row])
            assert same(value, alone[row][0][0]), (text, records[row])


def test_many_records_at_once() -> None:
    """More than one vector of the engine's, with failures far apart."""
    rows = 20_000
    column = [str(row) if row % 777 else f"bad{row}" for row in range(rows)]
    values, reasons = evaluation_of("CAST(a AS INTEGER) + 1").evaluate([column], rows)
    assert values == [row + 1 if row % 777 else None for row in range(rows)]
    assert np.flatnonzero(reasons).tolist() == list(range(0, rows, 777))
