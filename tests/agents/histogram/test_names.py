"""Names of fields that may not be what was meant: warned of wherever settings are told, with the spelling to use."""

import subprocess
import sys
from typing import Any

import pytest

from tests.agents.released import settings
from tests.statistical import ROOT

NO_TEXT = "because names stand in double quotes; if a text is meant, write {} in single quotes"
INPUT: dict[str, Any] = {"topic": "raw", "user": "host", "key": ["url"]}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"where": 'city = "New York"'},
            'input.where reads a field called "New York", ' + NO_TEXT.format("'New York'"),
        ),
        (
            {"key": [{"name": "path", "expression": 'split_part(url, "?", 1)'}]},
            'input.key "path" reads a field called "?", ' + NO_TEXT.format("'?'"),
        ),
        ({"where": 'city = "it\'s"'}, 'input.where reads a field called "it\'s", ' + NO_TEXT.format("'it''s'")),
        ({"where": "Status = 1 OR status = 2"}, "Status and status are different fields, because upper and lower case"),
        ({"where": "URL IS NOT NULL"}, "url and URL are different fields"),
        ({"where": "geo.City = 'a'", "key": ["Geo.city"]}, "Geo.city and geo.City are different fields"),
    ],
)
def test_it_is_warned_of(section: dict[str, Any], said: str) -> None:
    [found] = settings(input={**INPUT, **section}).findings()
    assert str(found).startswith(said)


def test_a_column_is_named() -> None:
    columns = [{"name": "long", "kind": "sum", "bound": 1, "expression": 'CASE WHEN a = "b c" THEN 1 ELSE 0 END'}]
    [found] = settings(columns=columns).findings()
    assert str(found).startswith('column "long" reads a field called "b c"')


@pytest.mark.parametrize(
    "section",
    [
        {"where": "$offset > 1000"},
        {"key": ["url", "$offset"]},
        {"key": [{"name": "part", "expression": "$offset % 2"}]},
        {"user": ["host", "$offset"]},
        {"time": {"expression": "make_timestamp_ms($timestamp + $offset)"}},
        {"each": {"of": {"expression": "string_split(a || $offset::VARCHAR, ',')"}, "as": "one"}},
    ],
)
def test_the_offset_is_no_fact_of_a_record_alone(section: dict[str, Any]) -> None:
    """Without one user's records all later ones have other offsets."""
    [found] = settings(input={**INPUT, **section}).findings()
    assert str(found).startswith("input: $offset counts the records of all users")


def test_what_is_plain_is_not() -> None:
    plain = {
        "where": '"event-type" = \'click\' AND "order" > 3',
        "key": ["url", "Status", "$partition", {"name": "status", "expression": "Status + 1"}],
    }
    assert list(settings(input={**INPUT, **plain}).findings()) == []


def test_a_pipeline_without_expressions_starts_without_their_engine() -> None:
    """Every worker looks for doubtful names; loading the engine for it takes a fifth of a start."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from susurrus.agents.pipelines import settings_from\n"
        "from tests.pipeline import DEFAULTS, merged\n"
        "own = {'pipeline': {'prefix': 'p'}, 'kafka': {'bootstrap_servers': 'x:1'}, 'input': {'topic': 't'}}\n"
        "settings = settings_from(merged(DEFAULTS, own), directory=Path('.'), environ={})\n"
        "print(len(list(settings.findings())), 'duckdb' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["0", "False"]
