"""A record's result is the same alone as in any batch, in any order, beside any neighbours, over any number of fields."""

import functools
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.kinds import groups
from susurrus.agents.expressions.language import parse
from susurrus.topics.records.reason import Reason

WIDTHS = [1, 2, 7, 15, 16, 17, 18, 31, 32, 33, 40]
"""Numbers of fields: 64 bits hold the kinds of 16 of them as hexadecimal digits, and of 20 as those of base 9."""
ODD = [
    None, UNSET, True, 1, -(2**63), 2**63, 2**64, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "1", "x", "a\0b", "\ud800",
    date(1, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))), clock_time(3, 4, 5),
    clock_time(3, 4, tzinfo=timezone(timedelta(hours=2))), b"x", {}, [1], b"",
    b"\xff" * 40_000, {"a": [2**70]}, [float("nan")], ["\ud800"], [b"\xff", {"b": None}], ["x" * 40_000], {1: 2},
]  # fmt: skip
"""A value of each kind and of each sort that no expression can use."""


def names(width: int) -> list[str]:
    return [f"a{index}" for index in range(width)]


def shown(name: str) -> str:
    return f"coalesce(CAST({name} AS VARCHAR), '-')"


FORMS = {
    "all": lambda width: " || '|' || ".join(map(shown, names(width))),
    "sum": lambda width: " + ".join(names(width)),
    "first": lambda width: "coalesce(" + ", ".join(names(width)) + ")",
    "nulls": lambda width: "concat(" + ", ".join(f"{name} IS NULL" for name in names(width)) + ")",
    "condition": lambda width: "a0 = 'x' OR " + " OR ".join(f"({name} IS NOT NULL AND a0 IS NULL)" for name in names(width)),
}  # fmt: skip


@functools.cache
def evaluation_of(form: str, width: int) -> Evaluation:
    return Evaluation(parse(FORMS[form](width)), boolean=form == "condition")


def evaluated(evaluation: Evaluation, records: list[tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Of each record its value, as Python writes it, and its Reason."""
    values, reasons = evaluation.evaluate([list(column) for column in zip(*records, strict=True)], len(records))
    return [(repr(value), reason) for value, reason in zip(values, reasons.tolist(), strict=True)]


@pytest.mark.parametrize("width", [16, 17, 21, 40])
@pytest.mark.parametrize("odd", ODD, ids=ascii)
@pytest.mark.parametrize("place", [0, -1])
def test_one_odd_record_changes_no_other(width: int, odd: Any, place: int) -> None:
    """Whatever it has in its first field or in its last."""
    evaluation = evaluation_of("all", width)
    usual = [f"x{index}" for index in range(width)]
    strange: list[Any] = list(usual)
    strange[place] = odd
    found = evaluated(evaluation, [tuple(usual)] * 50 + [tuple(strange)] + [tuple(usual)] * 50)
    assert set(found[:50] + found[51:]) == {(repr("|".join(usual)), 0)}
    assert found[50] == evaluated(evaluation, [tuple(strange)])[0]


usual_values = st.sampled_from(["x", "1", 1, None])
values = usual_values | st.sampled_from(ODD) | st.floats() | st.integers(-(2**65), 2**65) | st.text(max_size=3)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), width=st.sampled_from(WIDTHS), form=st.sampled_from(sorted(FORMS)))
def test_a_records_result_is_its_own_over_any_number_of_fields(data: st.DataObject, width: int, form: str) -> None:
    base = data.draw(st.tuples(*[usual_values] * width))
    changes = st.dictionaries(st.integers(0, width - 1), values, max_size=4)
    drawn = data.draw(st.lists(changes, min_size=2, max_size=6))
    records = [tuple(change.get(index, value) for index, value in enumerate(base)) for change in drawn]
    evaluation = evaluation_of(form, width)
    alone = [evaluated(evaluation, [record])[0] for record in records]
    order = data.draw(st.permutations(range(len(records))))
    together = evaluated(evaluation, [records[row] for row in order])
    assert together == [alone[row] for row in order]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.integers(1, 45))
def test_records_are_grouped_by_the_kinds_of_all_their_fields(data: st.DataObject, width: int) -> None:
    """Against a dictionary of tuples, each of a record that is looked at alone."""
    rows = data.draw(st.lists(st.tuples(*[values] * width), min_size=1, max_size=8))
    reasons = np.zeros(len(rows), np.uint8)
    found = groups([list(column) for column in zip(*rows, strict=True)], len(rows), reasons)
    wanted: dict[tuple[int, ...], list[int]] = {}
    for row, record in enumerate(rows):
        reason = np.zeros(1, np.uint8)
        for kinds, _ in groups([[value] for value in record], 1, reason):
            wanted.setdefault(kinds, []).append(row)
        assert reasons[row] == reason[0]
    assert {kinds: members.tolist() for kinds, members in found} == wanted


def test_an_instant_that_is_in_no_year_in_utc_fails_alone() -> None:
    edges = [datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 1, 1, tzinfo=UTC), "x"]
    assert [reason for _, reason in evaluated(Evaluation(parse("a IS NULL")), [(edge,) for edge in edges])] == [
        Reason.EXPRESSION_FAILED, 0, 0,
    ]  # fmt: skip


def test_an_engine_that_a_record_has_broken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fatal error makes a connection refuse everything behind it; only the record that caused it may fail."""
    evaluation = Evaluation(parse("upper(a)"))
    fetch = evaluation.engine.fetch

    def breaks(query: str, arrays: dict[str, Any]) -> Any:
        if "bad" in arrays["c0"]:
            evaluation.engine.connection.close()
        return fetch(query, arrays)

    monkeypatch.setattr(evaluation.engine, "fetch", breaks)
    records = [("a",), ("b",), ("bad",), ("c",)]
    assert evaluated(evaluation, records) == [("'A'", 0), ("'B'", 0), ("None", Reason.EXPRESSION_FAILED), ("'C'", 0)]


@pytest.mark.parametrize(
    "error", [OverflowError, UnicodeEncodeError("utf-8", "", 0, 1, ""), AttributeError, ValueError]
)
def test_whatever_a_record_raises_is_its_own(error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation = Evaluation(parse("upper(a)"))
    fetch = evaluation.engine.fetch

    def raising(query: str, arrays: dict[str, Any]) -> Any:
        if "bad" in arrays["c0"]:
            raise error
        return fetch(query, arrays)

    monkeypatch.setattr(evaluation.engine, "fetch", raising)
    records = [("a",), ("bad",), ("c",)]
    assert evaluated(evaluation, records) == [("'A'", 0), ("None", Reason.EXPRESSION_FAILED), ("'C'", 0)]


def test_many_constants_are_compared_with_as_few_are() -> None:
    """The engine would join with a list of constants: outside TRY, so that one failure would fail the batch."""
    few, many = (Evaluation(parse(f"CAST(a AS INTEGER) IN ({', '.join(map(str, range(n)))})")) for n in (3, 40))
    records = [(str(row % 3),) if row % 7 else ("x",) for row in range(5_000)]
    assert evaluated(few, records) == evaluated(many, records)
    assert "JOIN" not in "".join(
        map(str, many.engine.connection.execute(f"EXPLAIN SELECT {many.expression.text} FROM (SELECT '1' AS a)").fetchall())
    )  # fmt: skip
