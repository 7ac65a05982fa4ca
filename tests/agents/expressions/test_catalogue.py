"""The functions of expressions: exactly those that were looked at, whatever a new version of the engine adds."""

from pathlib import Path

import duckdb
import pytest

from susurrus.agents.expressions.catalogue import functions
from susurrus.agents.expressions.connection import connect
from susurrus.agents.expressions.language import parse

PAGE = Path(__file__).parents[3] / "docs" / "expressions.md"


def test_the_page_lists_all_functions() -> None:
    listed = PAGE.read_text().split("<!-- functions -->")[1].replace("`", "").split()
    assert [name.rstrip(",.") for name in listed] == sorted(name for name in functions() if name[0].isalpha())


def test_operators_are_those_of_sql() -> None:
    known = "!__postfix !~~ !~~* % & * + - ->> / // << >> @ ^@ | || ~ ~~ ~~* ~~~"
    assert " ".join(sorted(name for name in functions() if not name[0].isalpha())) == known


def test_the_engine_calls_none_of_them_volatile() -> None:
    """By another question to the catalogue than the rule asks."""
    bad = connect().execute(
        "SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT' OR function_type NOT IN ('scalar', 'macro')"
    )
    assert not functions() & {name for (name,) in bad.fetchall()} - {"%", "contains"}


def test_macros_are_made_of_allowed_functions() -> None:
    rows = connect().execute(
        "SELECT macro_definition FROM duckdb_functions() WHERE function_type = 'macro' AND list_contains(?, function_name)",
        [sorted(functions())],
    )  # fmt: skip
    definitions = [definition for (definition,) in rows.fetchall()]
    assert len(definitions) >= 7
    for definition in definitions:
        parse(definition)


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM read_text('/etc/hostname')", "INSTALL httpfs", "SET threads = 4", "SET TimeZone = 'Asia/Tokyo'"],
)
def test_the_engine_reaches_nothing(statement: str) -> None:
    with pytest.raises(duckdb.Error):
        connect().execute(statement)
