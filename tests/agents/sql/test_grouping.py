"""GROUPING SETS, ROLLUP and CUBE, as the grouping sets of a TOML file."""

import re

import pytest

from susurrus.agents.sql.source import StatementText
from susurrus.agents.sql.statement import Statement, statement
from susurrus.mechanisms.errors import ConfigurationError

FORM = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, delta = 1e-9, privacy_unit_column = id)
{keys}, COUNT(*) AS n
FROM visits
GROUP BY {groups}, TUMBLE(ROWTIME, INTERVAL '1' DAY)
EMIT EVERY INTERVAL '15' MINUTE
"""


def said(groups: str, keys: str = "country, city") -> Statement:
    return statement(StatementText("visits.sql", FORM.format(groups=groups, keys=keys)))


@pytest.mark.parametrize(
    ("groups", "sets"),
    [
        ("GROUPING SETS ((country), (country, city), ())", [["country"], ["country", "city"], []]),
        ("grouping sets (country, (city, country))", [["country"], ["country", "city"]]),
        ("ROLLUP (country, city)", [["country", "city"], ["country"], []]),
        ("ROLLUP ((country, city))", [["country", "city"], []]),
        ("CUBE (country, city)", [["country", "city"], ["country"], ["city"], []]),
        ("country, GROUPING SETS ((city), ())", [["country", "city"], ["country"]]),
        ("country, ROLLUP (city)", [["country", "city"], ["country"]]),
    ],
)
def test_sets(groups: str, sets: list[list[str]]) -> None:
    found = said(groups)
    assert found.settings["input.grouping_sets"] == sets
    assert found.settings["input.key"] == ["country", "city"]


def test_a_computed_key_goes_by_its_name() -> None:
    found = said("ROLLUP (host, page)", keys="host, split_part(url, '?', 1) AS page")
    assert found.settings["input.grouping_sets"] == [["host", "page"], ["host"], []]
    assert found.settings["input.key"] == ["host", {"name": "page", "expression": "split_part(url, '?', 1)"}]


def test_the_key_of_a_plain_group_by_has_no_sets() -> None:
    assert "input.grouping_sets" not in said("country, city").settings


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ("GROUPING SETS ((country), (region))", "grouped by and not selected"),
        ("GROUPING SETS ((country), ())", "selected and in no grouping set"),
        ("GROUPING SETS ((country,), (city))", "a part is missing"),
        ("ROLLUP (country), CUBE (city)", "two of GROUPING SETS"),
        ("ROLLUP ()", "a part is missing"),
        ("GROUPING SETS ((Country), (city))", "are different fields"),
    ],
)
def test_refusals_show_the_place(groups: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as refused:
        said(groups)
    assert re.search(r"visits\.sql:\d+:\d+: ", str(refused.value))


def test_rows_name_their_level_without_being_asked() -> None:
    with pytest.raises(ConfigurationError, match="each row names its level"):
        said("ROLLUP (country, city)", keys="country, city, GROUPING(city) AS of_city")
