"""Lookup tables: what is found, what a file must look like, and that nothing else can be read or reaches another record."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.expressions import lookup
from susurrus.agents.expressions.computation import Computation, lookups_of
from susurrus.agents.expressions.connection import Engine
from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.growth import MAX_TEXT_BYTES
from susurrus.agents.expressions.language import parse
from susurrus.agents.expressions.lookup import LookupCall, LookupTables, finders, read_tables
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import ComputedField, RawDecoder
from susurrus.topics.records.reason import Reason

FILE = "countries.csv"
TABLE = 'code,name,"union, or none"\r\nDE,Deutschland,EU\r\n\r\n49,Zahl,"a ""b""\n"\r\ntrue,wahr,\r\nzß,ü,x\r\n'
FAILED = Reason.EXPRESSION_FAILED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text(TABLE, encoding="utf-8", newline="")
    return tmp_path


def evaluated(text: str, folder: Path, column: list[Any]) -> list[Any]:
    expression = parse(text)
    calls = expression.lookups()
    engine = Engine(finders(read_tables(calls, folder), calls))
    values, reasons = Evaluation(expression, engine=engine).evaluate([column], len(column))
    engine.close()
    return [Reason(why) if why else value for value, why in zip(values, reasons.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "column", "wanted"),
    [
        ("lookup('countries.csv', a)", ["DE", "de", "DE ", "", None, "zß"], ["Deutschland", None, None, None, None, "ü"]),
        ("lookup('countries.csv', a)", [49, 49.0, "49", True, b"DE", [1]], ["Zahl", None, "Zahl", "wahr", "Deutschland", None]),
        ("LOOKUP('countries.csv', a, 'union, or none')", ["DE", "49", "true", "x"], ["EU", 'a "b"\n', "", None]),
        ("coalesce(lookup('countries.csv', upper(a)), 'elsewhere')", ["de", "xx"], ["Deutschland", "elsewhere"]),
        ("lookup('countries.csv', lower(lookup('countries.csv', a)))", ["DE", "x"], [None, None]),
        ("lookup('countries.csv', CAST(a AS INTEGER))", ["49", "x", None], ["Zahl", FAILED, None]),
        # What is not asked for does not fail.
        ("CASE WHEN a = 'x' THEN 'none' ELSE lookup('countries.csv', CAST(a AS INTEGER)) END", ["x", "49"], ["none", "Zahl"]),
        ("length(lookup('countries.csv', a)) > 5", ["DE", "49", None], [True, False, None]),
    ],
)  # fmt: skip
def test_what_is_found(text: str, column: list[Any], wanted: list[Any], folder: Path) -> None:
    assert evaluated(text, folder, column) == wanted


@given(
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(0, 60), st.text(max_size=3), st.sampled_from(["DE", "49"]))
    )
)
def test_a_record_finds_the_same_alone(column: list[Any]) -> None:
    calls = [LookupCall(FILE, None)]
    table = lookup.LookupTable("", 2, {"name": {"DE": "Deutschland", "49": "Zahl"}})
    engine = Engine(finders({FILE: table}, calls))
    evaluation = Evaluation(parse(f"lookup('{FILE}', a) || 'x'"), engine=engine)
    together = evaluation.evaluate([column], len(column))[0]
    assert together == [evaluation.evaluate([[value]], 1)[0][0] for value in column]
    engine.close()


def test_an_engine_that_was_replaced_still_knows_the_tables(folder: Path) -> None:
    calls = [LookupCall(FILE, None)]
    engine = Engine(finders(read_tables(calls, folder), calls))
    evaluation = Evaluation(parse(f"lookup('{FILE}', a)"), engine=engine)
    engine.connection.close()
    engine.recover()
    assert evaluation.evaluate([["DE"]], 1)[0] == ["Deutschland"]


def test_the_canonical_text_has_the_file_and_the_column() -> None:
    found = parse("lookup( 'countries.csv' , code ,'name')")
    assert found.text == "lookup('countries.csv', code, 'name')"
    assert parse(found.text) == found
    assert found.fields == (("code",),)
    assert found.lookups() == [LookupCall(FILE, "name")]
    # The size of a record's parts counts the longest value that a table may have.
    assert parse("lookup('x.csv', a) || ''").bytes_of(MAX_TEXT_BYTES) > 2 * lookup.MAX_VALUE_BYTES
    assert LookupCall(FILE, None).function != LookupCall(FILE, "name").function


@pytest.mark.parametrize(
    "file",
    ["../countries.csv", "a/countries.csv", "/etc/passwd", "..", ".", "", "*.csv", "c?.csv", "http://x", "a\\b", "x\0"],
)
def test_only_files_beside_the_configuration_are_read(file: str) -> None:
    with pytest.raises(ConfigurationError, match=r"beside the configuration|Parser Error|parser error|syntax"):
        parse(f"lookup('{file}', a)")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lookup('c.csv')", "takes a file, a key"),
        ("lookup('c.csv', a, 'b', 'c')", "takes a file, a key"),
        ("lookup(a, b)", "in single quotes"),
        ('lookup("c.csv", a)', "in single quotes"),
        ("lookup('c.csv', a, b)", "in single quotes"),
        ("lookup('c' || '.csv', a)", "in single quotes"),
        ("lookup(DISTINCT 'c.csv', a)", "sees other records"),
        ("lookup('c.csv', sum(a))", "not decided by one record alone"),
        ("main.lookup('c.csv', a)", "without a schema"),
    ],
)
def test_other_calls_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse(text)


def test_a_list_is_taken_apart_before_its_items_are_looked_up() -> None:
    with pytest.raises(ConfigurationError, match="use it on the items of the list"):
        parse("string_split(lookup('c.csv', a), ',')", listed=True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "the file cannot be read"),
        (b"code,name\n\xff,x\n", "the file cannot be read"),
        (b"", "the first line does not name two columns"),
        (b"code\nDE\n", "the first line does not name two columns"),
        (b"code,name,name\n", "the first line does not name two columns"),
        (b"code,\n", "the first line does not name two columns"),
        (b"code,name\nDE,Deutschland\nFR\n", "line 3 has 1 fields, and the first line names 2"),
        (b"code,name\nDE,a\n\nDE,b\n", "line 4 has the key of a line before"),
        (b"code,name\nDE," + b"x" * (lookup.MAX_VALUE_BYTES + 1), "line 2 has a value of more than 1,024 bytes"),
        (b'code,name\nDE,"x\n', "no line of CSV"),
        (b"code,name\n" + b"\n" * lookup.MAX_FILE_BYTES, "has more than 16,777,216 bytes"),
    ],
)
def test_a_file_that_cannot_be_used(content: bytes | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        read_tables([LookupCall(FILE, None)], tmp_path)
    assert "Deutschland" not in str(caught.value)


def test_a_column_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match='no column "nmae" behind its first one; name one of: name, union'):
        read_tables([LookupCall(FILE, "nmae")], folder)
    with pytest.raises(ConfigurationError, match='no column "code"'):
        read_tables([LookupCall(FILE, "code")], folder)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xef\xbb\xbfcode,name\nDE,x\n")
    assert read_tables([LookupCall(FILE, None)], tmp_path)[FILE].columns == {"name": {"DE": "x"}}


def configured(folder: Path, key: str = "lookup('countries.csv', code)", **more: Any) -> HistogramSettings:
    data = {
        "pipeline": {"name": "p"},
        "input": {"topic": "raw", "user": "u", "key": [{"name": "country", "expression": key}], **more},
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
    }
    return HistogramSettings.of(settings_from(data, directory=folder, environ={}))


def test_the_content_is_part_of_the_digest(folder: Path) -> None:
    before = configured(folder)
    assert before.published_fields()["lookup('countries.csv')"] == hashlib.sha256(TABLE.encode()).hexdigest()
    assert configured(folder).config_digest() == before.config_digest()
    (folder / FILE).write_text(TABLE.replace("Deutschland", "Allemagne"), encoding="utf-8", newline="")
    after = configured(folder)
    assert after.config_digest() != before.config_digest()
    assert [name for name, value in after.published_fields().items() if before.published_fields()[name] != value] == [
        "lookup('countries.csv')"
    ]
    assert not any("lookup" in name for name in configured(folder, "upper(code)").published_fields())


def test_tables_of_every_expression_are_read(folder: Path) -> None:
    (folder / "b.csv").write_text("k,v\nx,y\n", encoding="utf-8")
    found = configured(folder, where="lookup('b.csv', kind) = 'y'")
    assert list(found.lookup_tables) == ["b.csv", FILE]
    assert ("lookup table", "b.csv: 1 keys, sha256 ef1bada8c80fad3b") in list(HistogramPipeline(found).summary())


def decoded(settings: HistogramSettings, tables: LookupTables, records: list[bytes]) -> Any:
    decoder = RawDecoder(settings.raw_schema())
    computation = Computation(decoder.scalars, settings.input.where, tables)
    return decoder.decode(computation.applied(JsonReader(computation.paths).read(records)))


def test_records_get_what_the_table_says(folder: Path) -> None:
    settings = configured(folder, where="lookup('countries.csv', code, 'union, or none') IS NOT NULL")
    records = [b'{"u":"a","code":"DE"}', b'{"u":"b","code":"XX"}', b'{"u":"c","code":49}', b'{"u":"d"}']
    found = decoded(settings, settings.lookup_tables, records)
    assert found.reason.tolist() == [0, Reason.FILTERED, 0, Reason.FILTERED]
    assert found.keys == [b'"Deutschland"', b'"Zahl"']
    assert lookups_of([ComputedField("lookup('b.csv', x)")], settings.input.where) == [
        LookupCall(FILE, "union, or none"),
        LookupCall("b.csv", None),
    ]
