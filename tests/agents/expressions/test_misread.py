"""What SQL reads otherwise than it was meant is refused, with the spelling to use."""

import pytest

from susurrus.agents.expressions.catalogue import types
from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.language import parse, quoted
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path

HYPHEN = "for a field of that name write {} in double quotes, to subtract put blanks around the -"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("event-type = 'click'", "event-type is a subtraction, event minus type: " + HYPHEN.format('"event-type"')),
        ("a-b-c", "a-b-c is a subtraction, a minus b minus c: " + HYPHEN.format('"a-b-c"')),
        ("geo.country-code = 'x'", HYPHEN.format('geo."country-code"')),
        ("coalesce(x, user-agent)", HYPHEN.format('"user-agent"')),
        ("@version = '1'", 'write "@version" in double quotes, to compute write abs(version)'),
        ('country = "DE"', "write 'DE' for the text, or DE without quotes for the field"),
        ('country IN (\'FR\', "DE")', "write 'DE' for the text"),
        ('url LIKE "home"', "write 'home' for the text"),
        ('"DE" = country', "write 'DE' for the text"),
        ('city BETWEEN "A" AND "B"', "write 'A' for the text"),
        ('CASE WHEN n > 1 THEN "many" ELSE \'few\' END', "write 'many' for the text"),
        ("CASE WHEN n > 1 THEN 'many' ELSE \"few\" END", "write 'few' for the text"),
        ('CASE a WHEN "DE" THEN 1 END', "write 'DE' for the text"),
        ('coalesce(country, "nowhere")', "write 'nowhere' for the text"),
        ('split_part(url, "x", 1)', "write 'x' for the text"),
        ('concat("a", url)', "write 'a' for the text"),
        ('"a" || url', "write 'a' for the text"),
        ("event-type-2 = 1", HYPHEN.format('"event-type-2"')),
        ("größe-klasse = 1", HYPHEN.format('"größe-klasse"')),
        ("bytes-in > 3", "bytes-in is a subtraction, bytes minus in: " + HYPHEN.format('"bytes-in"')),
        ("check-in IS NULL", HYPHEN.format('"check-in"')),
        ("$type = 1", 'write "$type" in double quotes'),
        ("user:id = 1", 'write "user:id" in double quotes'),
        ("#tag = 1", "with names in double quotes that have more than letters, digits and _"),
        ("city = New York", "put a text of several words in single quotes"),
        ("order = 1", 'order is a word of SQL: put the field in double quotes, "order"'),
        ("at = 1", 'at is a word of SQL: put the field in double quotes, "at"'),
        ("by=2", 'put the field in double quotes, "by"'),
        ("order = 1 AND end = 2", 'order, end are words of SQL: put the fields in double quotes, "order", "end"'),
        ("CAST(x AS JSON)", "a cast to JSON is not possible"),
        ("x::json", "a cast to json is not possible"),
        ("string_split(url, '/')", "the expression results in a list, which is no key and no value"),
    ],
)  # fmt: skip
def test_it_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(text)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("event - type = 1", ["\"event\"", '"type"']),
        ("\"event-type\" = 'click'", ['"event-type"']),
        ("n-1 > 0", ["n"]),
        ('"n" - "m" > 0', ["n", "m"]),
        ('lower("Url") = \'x\'', ["Url"]),
        ('"Status" = 200', ["Status"]),
        ("'a-b' = c", ["c"]),
        ("@(n) > 1", ["n"]),
        ("\"@version\" = '1'", ['"@version"']),
        ("country = DE", ["country", "DE"]),
        ('country = "New York"', ["country", '"New York"']),
        ('"order" = 1 AND "end" = "at"', ['"order"', '"end"', '"at"']),
        ("Status = status", ["Status", "status"]),
        ("string_split(url, '/')[1]", ["url"]),
    ],
)  # fmt: skip
def test_what_was_meant_is_not_and_neither_is_its_canonical_form(text: str, fields: list[str]) -> None:
    found = parse(text)
    assert [quoted(path) for path in found.fields] == fields
    assert parse(found.text) == found


@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        ('city = "New York"', ["New York"]),
        ('"New York" = city', ["New York"]),
        ('city IN (\'Paris\', "New York", "Sao Paulo")', ["New York", "Sao Paulo"]),
        ('consent = "yes"', ["yes"]),
        ('split_part(url, "?", 1)', ["?"]),
        ('coalesce(city, "not known")', ["not known"]),
        ('url || "/x"', ["/x"]),
        ("\"event-type\" = 'click'", []),
        ('"event-type" IS NULL AND "order" > 3', []),
        ("concat(type, name) = 'x'", []),
        ("lower(\"user agent\") LIKE '%bot%'", []),
        ("a = größe", []),
    ],
)  # fmt: skip
def test_names_that_need_their_quotes_are_doubted_where_a_text_could_stand(text: str, doubted: list[str]) -> None:
    assert parse(text).doubts() == doubted
    assert parse(parse(text).text).doubts() == doubted


def test_the_place_of_what_is_misread_is_shown() -> None:
    for text, place in (('n > 1 AND country = "DE"', 20), ("n > 1 AND order = 1", 10), ("n > 1 AND a-b = 1", 10)):
        with pytest.raises(ConfigurationError) as refused:
            parse(text)
        *_, line, caret = str(refused.value).splitlines()
        assert (line.strip(), caret) == (text, " " * (4 + place) + "^")


def test_texts_are_told_from_names() -> None:
    assert parse("a = 'it''s' OR \"b c\" IN ('x', 'it''s', 3)").texts() == ["'it''s'", "'x'"]


def test_a_path_is_written_as_sql_reads_it() -> None:
    paths: list[Path] = [("a", "b.c"), ("event-type",), ("Status",)]
    assert [quoted(path) for path in paths] == ['a."b.c"', '"event-type"', "Status"]


@pytest.mark.parametrize("name", sorted(types()))
def test_each_type_that_is_allowed_gives_a_value(name: str) -> None:
    """Of some text: a cast that fails for every record is refused where it is read."""
    values, _ = Evaluation(parse(f"CAST(x AS {name})")).evaluate([["1", "2026-01-01", "12:00:00", "1 day", "true"]], 5)
    assert any(value is not None for value in values)
