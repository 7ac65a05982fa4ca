"""Lists, objects and bytes of a record in expressions: their texts, their limits, and that each record is decided alone."""

import functools
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.growth import MAX_BYTES, MAX_LIST_TEXT_BYTES, MAX_TEXT_BYTES
from susurrus.agents.expressions.json_text import json_text
from susurrus.agents.expressions.language import parse
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import MAX_DEPTH

FAILED = Reason.EXPRESSION_FAILED


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@functools.cache
def evaluation_of(text: str, listed: bool) -> Evaluation:
    return Evaluation(parse(text, listed=listed), listed=listed)


def of(text: str, *columns: list[Any], listed: bool = False) -> list[Any]:
    evaluation = evaluation_of(text, listed)
    values, reasons = evaluation.evaluate(columns, len(columns[0]))
    assert all(value is None for value, reason in zip(values, reasons, strict=True) if reason)
    return [Reason(reason) if reason else value for value, reason in zip(values, reasons.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "ü", 1.5, -0.0]}, '{"b":1,"a":[true,null,"ü",1.5,-0.0]}'),
        ([1e20, 1e16, 0.1, 123456789012345680.0], "[1e20,1e16,0.1,1.2345678901234568e17]"),
        ([2**64 - 1, -(2**63)], "[18446744073709551615,-9223372036854775808]"),
        ([2**64], Reason.INTEGER_TOO_LARGE),
        ([float("nan")], Reason.NOT_FINITE),
        ({"a": Decimal("Infinity")}, Reason.NOT_FINITE),
        ([b"\x00\xff", Decimal("7"), Decimal("1.5"), UUID(int=5)], f'["00ff",7,1.5,"{UUID(int=5)}"]'),
        ([datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), date(2026, 1, 2)], '["2025-12-31T23:00:00","2026-01-02"]'),
        ([datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))], FAILED),
        ([UNSET, (1, 2)], "[null,[1,2]]"),
        (["\ud800"], FAILED),
        ({1: 2}, Reason.WRONG_TYPE),
        ([1j], Reason.WRONG_TYPE),
        (deep(MAX_DEPTH), "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH),
        (deep(MAX_DEPTH + 2), Reason.TOO_DEEP),
    ],
    ids=lambda value: ascii(value)[:40],
)  # fmt: skip
def test_texts(value: Any, text: str | Reason) -> None:
    assert json_text(value) == text


numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_the_text_of_json_reads_back(value: Any) -> None:
    """Also by another reader, and the text of what is read is the same text."""
    text = json_text(value)
    assert isinstance(text, str)
    assert json.loads(text) == msgspec.json.decode(text) == value
    assert json_text(json.loads(text)) == text


anything = st.recursive(
    json_values
    | st.binary(max_size=4)
    | st.decimals()
    | st.datetimes()
    | st.just(UNSET)
    | st.just(1j)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=2), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(anything)
def test_nothing_raises(value: Any) -> None:
    assert isinstance(json_text(value), str | Reason)


def test_json_functions_read_lists_and_objects() -> None:
    lists = [["a", "b"], [], None, {"0": 1}, "[1]", 5]
    assert of("a ->> '$[0]'", lists) == ["a", None, None, None, "1", None]
    assert of("json_array_length(a)", lists) == [2, 0, None, 0, 1, 0]
    assert of("a", [{"x": [1, {"y": None}]}, ["ü"]]) == ['{"x":[1,{"y":null}]}', '["ü"]']


def test_an_entry_of_a_list_of_keys_and_values() -> None:
    """The recipe of docs/expressions.md, as OpenTelemetry writes attributes."""
    found = "list_extract(attributes ->> '$[*]', list_position(attributes ->> '$[*].key', 'enduser.id')) ->> '$.value.stringValue'"
    user = {"key": "enduser.id", "value": {"stringValue": "p0"}}
    other = {"key": "http.status", "value": {"intValue": "200"}}
    attributes = [[user], [other, user], [other], [], None, [{"key": "enduser.id", "value": {"intValue": "5"}}]]
    assert of(found, attributes) == ["p0", "p0", None, None, None, None]


def test_bytes_become_their_hexadecimal_digits() -> None:
    assert of("a", [b"\x00\xff", b"", None]) == ["00ff", "", None]
    assert of("decode(a)", [b"abc", b"\xff", "abc"]) == ["abc", FAILED, FAILED]
    assert of("decode(a) ->> '$.id'", [b'{"id":"x"}', b"{"]) == ["x", FAILED]
    assert of("to_base64(a)", [b"\xfb\xff", "x"]) == ["+/8=", FAILED]
    assert of("from_base64(a)", ["+/8=", "x"]) == ["fbff", FAILED]
    assert of("a = unhex('00ff')", [b"\x00\xff", b"\x00"]) == [True, False]
    assert of("octet_length(a)", [b"\x00\xff"]) == [2]


def test_bytes_and_lists_may_be_so_long_and_no_longer() -> None:
    longest = b"x" * MAX_TEXT_BYTES
    assert of("octet_length(a)", [longest, longest + b"x", b"x"]) == [MAX_TEXT_BYTES, FAILED, 1]
    whole = ["x" * (MAX_TEXT_BYTES - 4)]
    assert of("json_array_length(a)", [whole, [whole[0] + "x"], []]) == [1, FAILED, 0]


def test_bytes_count_for_what_they_are_as_texts() -> None:
    """An expression that is bounded for texts may not be for bytes, which are four times as long in it: such records fail."""
    text = f"length(CAST({' || '.join(['a'] * 70)} AS VARCHAR))"
    expression = parse(text)
    assert expression.bytes_of(MAX_TEXT_BYTES) <= MAX_BYTES < expression.bytes_of(MAX_TEXT_BYTES, {("a",)})
    assert of(text, ["x", b"x", "yy"]) == [70, FAILED, 140]


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        ("string_split(a, ',')", ["a,b", "", None, 5, "x"], [["a", "b"], [""], None, FAILED, ["x"]]),
        (r"string_split_regex(a, '\s*,\s*')", ["a , b"], [["a", "b"]]),
        ("string_split(a, chr(10))", ["one\ntwo\n"], [["one", "two", ""]]),
        ("a ->> '$[*].k'", [[{"k": "x"}, {"k": None}, {}, {"k": 1}], [], "no JSON"], [["x", None, "1"], [], FAILED]),
        ("json_keys(a)", [{"b": 1, "a": 2}, {}, "{"], [["b", "a"], [], FAILED]),
        ("coalesce(string_split(a, ','), string_split('none', ','))", [None, "x"], [["none"], ["x"]]),
        ("CASE WHEN a > '' THEN string_split(a, ';') END", ["", "p;q"], [None, ["p", "q"]]),
    ],
)
def test_lists_of_texts(text: str, values: list[Any], wanted: list[Any]) -> None:
    assert of(text, values, listed=True) == wanted


@pytest.mark.parametrize(
    "text", ["lower(a)", "a", "a ->> '$.k'", "string_split(a, ',')[1]", "len(string_split(a, ','))", "5"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="does not result in a list of texts"):
        parse(text, listed=True)


def test_a_list_is_wanted_only_where_it_is_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="results in a list, which is no key"):
        parse("string_split(a, ',')")
    assert of("a ->> '$[*]'", [["x"]]) == [FAILED]
    assert of("CASE WHEN a = 'x' THEN a ->> '$[*]' END", ["y"], listed=True) == [None]


def test_a_text_that_becomes_a_list_may_be_longer() -> None:
    longest = "x" * (MAX_LIST_TEXT_BYTES - 2) + ",y"
    found = of("string_split(a, ',')", [longest, longest + "y", "a,b"], listed=True)
    assert [found[0] == longest.split(","), *found[1:]] == [True, FAILED, ["a", "b"]]


odd = st.sampled_from(
    ["a,b", "", ",", "\ud800", None, UNSET, 5, True, b"\xff,", ["x,y"], {"k": "v"}, 2**70, "x" * 40_000]
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(odd, min_size=2, max_size=8), order=st.randoms())
@pytest.mark.parametrize("text", ["string_split(a, ',')", "string_split(a ->> '$', ',')", "json_keys(a)"])
def test_a_records_list_is_its_own(text: str, rows: list[Any], order: Any) -> None:
    alone = [of(text, [row], listed=True)[0] for row in rows]
    places = list(range(len(rows)))
    order.shuffle(places)
    assert of(text, [rows[place] for place in places], listed=True) == [alone[place] for place in places]
