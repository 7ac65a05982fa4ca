"""What one record can make of memory and time is bounded by public numbers, and a limit that a batch reaches decides nothing."""

import functools
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.agents.expressions.catalogue import textual
from susurrus.agents.expressions.connection import Engine
from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.growth import MAX_BYTES, MAX_RESULT, MAX_TEXT_BYTES, size_of
from susurrus.agents.expressions.kinds import TEXT
from susurrus.agents.expressions.language import _tree, parse
from susurrus.mechanisms.errors import ConfigurationError, RetryableRefusal
from susurrus.topics.records.reason import Reason

ENGINE = Engine()
LONGEST = "x" * MAX_TEXT_BYTES


def evaluated(text: str, *columns: list[Any]) -> list[Any]:
    values, reasons = Evaluation(parse(text)).evaluate(columns, len(columns[0]))
    return [Reason(reason) if reason else value for value, reason in zip(values, reasons.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("damerau_levenshtein(a, b) < 3", "the function damerau_levenshtein is not available"),
        ("levenshtein(a, 'x')", "the function levenshtein is not available"),
        ("replace(a, b, 'x')", "argument 2 of replace must be written out"),
        ("replace(a, 'x', b)", "argument 3 of replace must be written out"),
        ("replace(a, '', 'x')", "replace has no text to look for"),
        ("regexp_replace(a, b, '')", "argument 2 of regexp_replace must be written out"),
        ("a ~ b", "argument 2 of regexp_matches must be written out"),
        ("a SIMILAR TO b", "argument 2 of regexp_full_match must be written out"),
        ("len(string_split_regex(a, b))", "argument 2 of string_split_regex must be written out"),
        ("json_contains(a, b)", "argument 2 of json_contains must be written out"),
        ("len(a ->> '$.**')", "would return all levels of a text"),
        ("a ->> ('$.*' || '*')", "argument 2 of ->> must be written out"),
        ("replace(a, 'x', '" + "y" * 9_000 + "')", "could become"),
        ("replace(" * 8 + "a" + ", 'x', 'yyyy')" * 8, "could become"),
        (" || ".join(["a"] * 200), "could become"),
        (" || ".join(["a"] * 2_400), "depth limit"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_not_bounded_is_refused_where_it_is_read(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(text)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "replace(url, 'https://', '')",
        "replace(replace(url, '%20', ' '), '+', '/plus/')",
        r"regexp_replace(url, '\?.*', '')",
        r"regexp_replace(url, '/(\d+)/', '/\1-id/', 'g')",
        "payload ->> '$.user.id'",
        "json_extract_string(payload, '$.items[0]')",
        "a LIKE b",
        "split_part(a, b, -1)",
        " || ".join(f"a{index}" for index in range(40)),
    ],
)
def test_what_engineers_write_is_not(text: str) -> None:
    parse(text)


def test_a_text_may_be_so_long_and_no_longer() -> None:
    texts = [LONGEST, LONGEST + "x", "ü" * (MAX_TEXT_BYTES // 2), "ü" * (MAX_TEXT_BYTES // 2) + "x", "short", 5]
    failed = Reason.EXPRESSION_FAILED
    assert evaluated("a IS NOT NULL", texts) == [True, failed, True, failed, True, True]


PLAIN = [
    "bin", "hex", "lcase", "lower", "ltrim", "md5", "nfc_normalize", "regexp_escape", "reverse", "rtrim", "sha1", "sha256",
    "strip_accents", "to_binary", "to_hex", "trim", "ucase", "upper", "url_decode", "url_encode", "json_keys", "json_type",
]  # fmt: skip
BASE = {name: f"{name}(a)" for name in PLAIN} | {
    "||": "a || b || a", "concat": "concat(a, b, a)", "concat_ws": "concat_ws(a, b, a, b)", "->>": "a ->> '$'",
    "array_extract": "array_extract(a, 2)", "chr": "chr(length(a)::INTEGER)", "dayname": "dayname(DATE '2026-01-01')",
    "monthname": "monthname(DATE '2026-01-01')", "formatreadabledecimalsize": "formatReadableDecimalSize(length(a))",
    "formatreadablesize": "formatReadableSize(length(a))", "format_bytes": "format_bytes(length(a))",
    "greatest": "greatest(a, b)", "least": "least(a, b)", "json_extract_path_text": "json_extract_path_text(a, '$')",
    "json_extract_string": "json_extract_string(a, '$[*]')", "json_value": "json_value(a, '$[0]')", "left": "left(a, 9)",
    "left_grapheme": "left_grapheme(a, 9)", "right": "right(a, 9)", "right_grapheme": "right_grapheme(a, 9)",
    "list_element": "list_element(a, 1)", "list_extract": "list_extract(string_split(a, 'x'), 1)",
    "overlay": "overlay(a, b, length(a), -length(a))", "regexp_extract": "regexp_extract(a, '(.*)', 1)",
    "regexp_extract_all": "regexp_extract_all(a, '')", "regexp_replace": r"regexp_replace(a, '(.*)', 'x\1\1\0y', 'g')",
    "regexp_split_to_array": "regexp_split_to_array(a, '')", "replace": "replace(a, 'a', 'xyz')", "split": "split(a, '')",
    "str_split": "str_split(a, b)", "str_split_regex": "str_split_regex(a, '.')",
    "strftime": "strftime(TIMESTAMP '2026-09-30 12:00:00.123456', a)", "string_split": "string_split(a, b)",
    "string_split_regex": "string_split_regex(a, '')", "string_to_array": "string_to_array(a, b)", "substr": "substr(a, -3, 9)",
    "substring": "substring(a, 2)", "substring_grapheme": "substring_grapheme(a, 1, 4)", "to_base": "to_base(length(a), 2, 64)",
    "translate": "translate(a, 'aä', '𝄞𝄞')", "if": "if(a > b, a, b)", "nullif": "nullif(a, b)", "split_part": "split_part(a, b, 1)",
    "date_add": "date_add(DATE '2026-01-01', INTERVAL 1 DAY)", "days_in_month": "days_in_month(DATE '2026-01-01')",
    "fdiv": "fdiv(length(a), 2)", "fmod": "fmod(length(a), 2)", "base64": "base64(encode(a))", "to_base64": "to_base64(encode(a))",
    "encode": "encode(a)", "decode": "decode(unhex(hex(a)))", "unhex": "unhex(hex(a))", "from_hex": "from_hex(hex(a))",
    "from_base64": "from_base64(to_base64(encode(a)))", "from_binary": "from_binary(bin(a))", "unbin": "unbin(bin(a))",
}  # fmt: skip
"""A use of each function that may return a text, with arguments that make much of it."""
FREE = {
    **BASE,
    "bytes as text": "concat(encode(a), b)",
    "replaced": "regexp_replace(a, '', 'xy', 'g')",
    "as text": "CAST(string_split(a, '') AS VARCHAR)",
}


@functools.cache
def form_of(name: str) -> tuple[Any, Evaluation]:
    """The tree of the expression, and an evaluation of its result's length."""
    text = FREE[name]
    return _tree(text)["statements"][0]["node"]["select_list"][0], Evaluation(parse(f"strlen(CAST({text} AS VARCHAR))"))


def test_each_function_that_returns_a_text_is_looked_at() -> None:
    assert set(BASE) == textual()


texts = st.one_of(
    st.text(max_size=12),
    st.text("aä𝄞'\\ ,\"?%\0", max_size=12),
    st.sampled_from(
        ["a", "%c%A%B", "ŉǰΐ", "İİİ", "[1e20,1e20]", '{"a":1e20}', '[[],[],"\'"]', "ﬃ", "שּׁ", "\u0390" * 4, "\u1f82" * 3]
    ),
)


def repeated(text: str, times: int) -> str:
    return "[" + ",".join([text] * times) + "]" if text.startswith("[") else text * times


@settings(max_examples=8, deadline=None)
@given(records=st.lists(st.tuples(texts, texts, st.integers(1, 30)), min_size=1, max_size=30))
def test_no_result_is_larger_than_its_bound(records: list[tuple[str, str, int]]) -> None:
    fields = {
        "a": [repeated(a, times) for a, _, times in records],
        "b": [repeated(b, times) for _, b, times in records],
    }
    longest = [max(len(a.encode()), len(b.encode())) for a, b in zip(*fields.values(), strict=True)]
    for name in FREE:
        node, evaluation = form_of(name)
        columns = [fields[path[0]] for path in evaluation.expression.fields]
        values, _ = evaluation.evaluate(columns, len(records))
        for row, value in enumerate(values):
            if value is not None:
                size = size_of(node, longest[row])
                assert value <= size.result * (8 if size.listed else 1), (name, records[row])


def joined(times: int) -> str:
    return " || ".join(["a"] * times)


def test_the_largest_expression_works_for_one_record_of_the_longest_texts() -> None:
    """In the engine's limit, with what it takes beside the texts."""
    times = max(
        n
        for n in range(2, 200)
        if size_of(_tree(joined(n))["statements"][0]["node"]["select_list"][0]).total <= MAX_BYTES
    )
    assert times > 100
    assert evaluated(f"length({joined(times)})", [LONGEST]) == [times * MAX_TEXT_BYTES]
    deep = "replace(" * 4 + "a" + ", 'x', 'yxyxyx')" * 4
    assert evaluated(f"length({deep})", [LONGEST])[0] > 2_000_000


def test_a_batch_is_evaluated_in_pieces_that_stay_within_the_bound() -> None:
    """300 records that take up to 7 MB each; one record of them alone has the same result."""
    evaluation = Evaluation(parse(f"length({joined(20)}) + CAST(b AS INTEGER)"))
    fetch, largest = evaluation.engine.fetch, []

    def counted(query: str, arrays: dict[str, Any]) -> Any:
        largest.append(len(arrays["row"]))
        return fetch(query, arrays)

    evaluation.engine.fetch = counted  # type: ignore[method-assign]
    rows = 300
    columns = [
        [LONGEST if row % 3 else "y" for row in range(rows)],
        [str(row) if row % 7 else "bad" for row in range(rows)],
    ]
    values, reasons = evaluation.evaluate(columns, rows)
    assert max(largest) * evaluation.expression.bytes_of(MAX_TEXT_BYTES) <= MAX_BYTES
    assert max(largest) > 10
    assert values == [row + 20 * (MAX_TEXT_BYTES if row % 3 else 1) if row % 7 else None for row in range(rows)]
    assert [row for row in range(rows) if reasons[row]] == list(range(0, rows, 7))
    alone = [evaluation.evaluate([[a], [b]], 1) for a, b in list(zip(*columns, strict=True))[:9]]
    assert [found[0] for found, _ in alone] == values[:9]


def test_a_result_may_be_so_long_and_no_longer() -> None:
    half = MAX_RESULT // 2
    assert half == MAX_TEXT_BYTES
    assert [type(value) for value in evaluated("a || b", ["x" * half] * 3, ["x" * half, "x", ""])] == [str, str, str]
    assert evaluated("a || b || 'y'", ["x" * half] * 2, ["x" * half, "x" * (half - 1)]) == [
        Reason.EXPRESSION_FAILED,
        "x" * (2 * half - 1) + "y",
    ]


@pytest.mark.parametrize("longest", [0, 1, 100, 129, 5_000, MAX_TEXT_BYTES])
def test_the_bound_grows_no_faster_than_a_straight_line(longest: int) -> None:
    for text in [
        *FREE.values(),
        joined(30),
        "a = b AND length(a) > 3",
        "replace(replace(a, 'x', 'yz'), 'yz', 'abcdefg')",
    ]:
        evaluation = Evaluation(parse(f"strlen(CAST({text} AS VARCHAR))"), engine=ENGINE)
        kinds = (TEXT,) * len(evaluation.expression.fields)
        query = evaluation.query(kinds)
        if query is None:
            assert "strftime" in text  # whose format must be written out
            continue
        assert evaluation.expression.bytes_of(longest) <= query.fixed + query.by_text * longest


@pytest.mark.parametrize("error", [duckdb.OutOfMemoryException, MemoryError])
def test_a_machine_that_is_short_of_memory_decides_nothing(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record waits, as all do; later it has the fate that it has anywhere."""

    def short(*_: Any) -> Any:
        raise error

    for method in ("fetch", "kind"):
        evaluation = Evaluation(parse("upper(a)"))
        with monkeypatch.context() as patched:
            patched.setattr(evaluation.engine, method, short)
            with pytest.raises(RetryableRefusal, match="not enough memory"):
                evaluation.evaluate([["a", "b"]], 2)
        assert evaluation.evaluate([["a", "b"]], 2)[0] == ["A", "B"]
