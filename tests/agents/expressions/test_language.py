"""Which expressions are read, in which form they are kept, and what is said of the others."""

import pytest

from susurrus.agents.expressions.language import parse
from susurrus.mechanisms.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "canonical", "fields"),
    [
        ("status=200 -- the good ones", "(status = 200)", [("status",)]),
        ("split_part( url ,'?',1 )", "split_part(url, '?', 1)", [("url",)]),
        ("geo.country IS NOT NULL", "(geo.country IS NOT NULL)", [("geo", "country")]),
        ("a.\"b.c\" = 'x'", "(a.\"b.c\" = 'x')", [("a", "b.c")]),
        ("coalesce(b, a, b)", "COALESCE(b, a, b)", [("b",), ("a",)]),
        ("CASE WHEN n IN (1, 2) THEN 'few' END", "CASE  WHEN ((n IN (1, 2))) THEN ('few') ELSE NULL END", [("n",)]),
        ("extract(hour FROM CAST(ts AS timestamp))", "date_part('HOUR', CAST(ts AS TIMESTAMP))", [("ts",)]),
        ("1 + 1", "(1 + 1)", []),
    ],
)
def test_an_expression_has_one_form(text: str, canonical: str, fields: list[tuple[str, ...]]) -> None:
    found = parse(text)
    assert (found.text, list(found.fields)) == (canonical, fields)
    assert parse(found.text) == found  # the digest of a file that explain wrote is the same


def test_fields_get_other_names() -> None:
    assert parse("a.b + b * a.b").renamed({("a", "b"): "f0", ("b",): "f1"}) == "(f0 + (f1 * f0))"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sum(bytes)", "the function sum is not available"),
        ("random() < 0.5", "the function random is not available"),
        ("now()", "the function now is not available"),
        ("unnest(string_split(tags, ','))", "unnest makes several rows of one record"),
        ("uuid()", "the function uuid is not available"),
        ("current_setting('TimeZone')", "the function current_setting is not available"),
        ("current_localtimestamp()", "the function current_localtimestamp is not available"),
        ("age(CAST(ts AS timestamp))", "the function age is not available"),
        ("read_text('/etc/passwd')", "the function read_text is not available"),
        ("repeat(url, n)", "the function repeat is not available"),
        ("exp(n)", "the function exp is not available"),
        ("main.lower(url)", "write lower without a schema"),
        ("current_date", "current_date is the clock"),
        ("current_timestamp > '2020-01-01'", "current_timestamp is the clock"),
        ("(SELECT 1)", "a query inside an expression is not possible"),
        ("url IN (SELECT url FROM t)", "a query inside an expression is not possible"),
        ("count(*) OVER ()", "a window function, which sees other records"),
        ("lower(DISTINCT url)", "lower is used like an aggregate"),
        ("lower(url) FILTER (WHERE true)", "lower is used like an aggregate"),
        ("*", "all fields at once is not possible"),
        ("$1", "is a parameter of SQL"),
        ("url COLLATE nocase", "a collation is not possible"),
        ("CAST(a AS timestamptz)", "a cast to timestamptz is not possible"),
        ("a::integer[]", "a cast to list is not possible"),
        ("a AS b", 'AS "b" has no meaning here'),
        ("a, b", "these are several expressions"),
        ("a FROM t", "this is more than one expression"),
        ("a WHERE b", "this is more than one expression"),
        ("a LIMIT 1", "this is more than one expression"),
        ("a; DROP TABLE t", "write one SQL expression"),
        ("a; SELECT 1", "this is more than one expression"),
        ("a +", "syntax error"),
        ("", "write one SQL expression"),
    ],
)
def test_what_else_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s).*" + problem.replace("(", r"\(").replace(")", r"\)")):
        parse(text)


def test_a_caret_shows_the_place() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse("'ä' = url\n  AND sin(n) > 0")
    assert str(caught.value).splitlines()[1:] == ["      AND sin(n) > 0", "          ^"]
