"""Releases with levels as readers, tables, exports, the dashboard and other formats have them."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from susurrus.agents.cli.csv_rows import csv_rows
from susurrus.agents.formats.outputs import OUTPUT_FORMATS
from susurrus.agents.histogram.estimates import Estimates, Release, ReleasedLevel
from susurrus.agents.histogram.releases import released_levels
from susurrus.agents.histogram.terminal_table import histogram_table
from susurrus.agents.histogram.windows import Windows
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import histogram
from susurrus.topics.histogram import ColumnRows, TriggerHeader
from susurrus.topics.wire.row_schema import converted, restored
from tests.agents.released import EPOCHS, WINDOW, settings

LEVELS = {"country": ReleasedLevel(parts=(0,)), "both": ReleasedLevel(parts=(0, 1)), "total": ReleasedLevel(parts=())}
ROWS: list[tuple[str, list[Any], int, float]] = [
    ("country", ["DE", None], 1000, 3.0),
    ("country", ["FR", None], 400, 3.0),
    ("both", ["DE", None], 100, 4.0),  # a part that is null in the records
    ("both", ["DE", "Bonn"], 620, 4.0),
    ("both", ["IT", "Rom"], 90, 4.0),  # whose country is not published
    ("total", [None, None], 1480, 2.0),
]


def release(levels: dict[str, ReleasedLevel] | None = None) -> Release:
    return Release(
        window_start=WINDOW,
        window_end=WINDOW + 86_400_000,
        trigger_time=WINDOW + 86_400_000,
        trigger=4,
        of_triggers=4,
        epoch=EPOCHS[1],
        epoch_number=1,
        strategy="toeplitz",
        fields=("country", "city"),
        keys=[key for _, key, _, _ in ROWS],
        columns={"bytes": Estimates(np.array([n for *_, n, _ in ROWS]), np.array([error for *_, error in ROWS]))},
        levels=levels or LEVELS,
        row_levels=[level for level, *_ in ROWS],
    )


def test_a_level_has_its_rows_and_its_parts_of_the_key() -> None:
    countries, both, total = (release().level(name) for name in LEVELS)
    assert (countries.fields, countries.keys) == (("country",), ["DE", "FR"])
    assert both.keys == [["DE", None], ["DE", "Bonn"], ["IT", "Rom"]]
    assert (total.fields, total.keys, len(total)) == ((), [[]], 1)
    assert countries.total().estimate == 1400
    assert "DE" in countries
    assert ["DE", "Bonn"] in both
    with pytest.raises(ConfigurationError, match='use one of "country", "both", "total"'):
        release().level("city")
    with pytest.raises(ConfigurationError, match="has one grouping"):
        countries.level("country")


def test_rows_of_all_levels_are_not_added_up() -> None:
    for asked in (lambda: release().total(), lambda: release().share("DE"), lambda: "DE" in release()):
        with pytest.raises(ConfigurationError, match="rows of several levels"):
            asked()


def test_other_is_what_a_parent_has_beyond_its_published_children() -> None:
    other = release().other("country", "both")
    assert other.keys == ["DE", "FR"]
    assert other.columns["bytes"].estimate.tolist() == [1000 - 100 - 620, 400]
    assert other.columns["bytes"].std_error.tolist() == pytest.approx([np.sqrt(9 + 16 + 16), 3.0])
    of_total = release().other("total", "country")
    assert (of_total.keys, of_total.columns["bytes"].estimate.tolist()) == ([[]], [1480 - 1400])
    for parent, children in (("both", "country"), ("country", "country"), ("country", "total")):
        with pytest.raises(ConfigurationError, match="a level below it"):
            release().other(parent, children)


def test_distinct_users_do_not_add_up_over_children_unless_each_has_one() -> None:
    users = frozenset({"bytes"})
    several = {
        **LEVELS,
        "country": ReleasedLevel(parts=(0,), of_users=users),
        "both": ReleasedLevel(parts=(0, 1), of_users=users),
    }
    with pytest.raises(ConfigurationError, match="counts distinct users"):
        release(several).other("country", "both")
    single = {**several, "both": ReleasedLevel(parts=(0, 1), of_users=users, single=True)}
    assert release(single).other("country", "both").columns["bytes"].estimate.tolist() == [280, 400]
    mixed = {**LEVELS, "country": ReleasedLevel(parts=(0,), of_users=users)}
    with pytest.raises(ConfigurationError, match="counts distinct users"):
        release(mixed).other("country", "both")


def test_other_uses_the_direct_estimates_where_there_are_some() -> None:
    one = release()
    direct = np.array([n - 50 for *_, n, _ in ROWS]), np.full(len(ROWS), 7.0)
    calibrated = Estimates(one.columns["bytes"].estimate, one.columns["bytes"].std_error, direct)
    found = replace(one, columns={"bytes": calibrated})
    other = found.other("country", "both").columns["bytes"]
    assert other.estimate.tolist() == [950 - 50 - 570, 350]
    assert other.std_error.tolist() == pytest.approx([np.sqrt(3 * 49), 7.0])


def test_tables_and_exports_name_the_level() -> None:
    text = io.StringIO()
    Console(file=text, width=120).print(histogram_table(release(), width=120, limit=10))
    assert "country · DE" in text.getvalue()
    assert "both · DE · Bonn" in text.getvalue()
    assert "level" in release().table().splitlines()[1]
    rows = list(csv.DictReader(io.StringIO(csv_rows(release().exported().rows()).decode("utf-8-sig"))))
    assert [row["level"] for row in rows] == [level for level, *_ in ROWS]
    assert [json.loads(row["key"]) for row in rows] == [key for _, key, _, _ in ROWS]


def test_the_dashboard_keeps_rows_of_two_levels_apart() -> None:
    windows = Windows()
    assert windows.add(release())
    window = windows.get(WINDOW)
    assert window is not None
    assert len(window.keys) == len(ROWS)
    assert window.keys[:3] == [["country", "DE"], ["country", "FR"], ["both", "DE", None]]


GROUPED = {
    "topic": "raw",
    "user": "id",
    "key": ["country", "city"],
    "grouping_sets": [["country"], ["country", "city"], []],
}


def test_rows_are_the_same_in_every_format_and_by_their_schemas() -> None:
    ours: Any = settings(input=GROUPED)
    header = TriggerHeader(
        window_start=WINDOW, window_end=WINDOW + 1, trigger=1, of_triggers=4, strategy="toeplitz", epoch=EPOCHS[1]
    )
    columns = [ColumnRows(name="count", estimate=np.array([3, 4]), std_error=np.array([1.5, 1.5]))]
    keys, values = histogram.encode_rows(header, [b'["DE",null]', b"[null,null]"], columns, [b'"country"', b'"total"'])
    assert [json.loads(key)["level"] for key in keys] == ["country", "total"]
    schema = ours.schemas[ours.topic("histogram")]
    for value in map(json.loads, values):
        assert restored(schema.members, {})(converted(schema.members, {})(value)) == value
    for name, form in OUTPUT_FORMATS.items():
        assert "level" in form.text(schema, "susurrus.t"), name
    plain: Any = settings()
    assert "level" not in {field.name for field in plain.schemas[plain.topic("histogram")].members.fields}
    [found] = histogram.decode_rows(values)
    assert found.levels == ["country", "total"]


def test_what_a_reader_knows_of_the_levels() -> None:
    ours: Any = settings(
        input=GROUPED,
        levels=[{"key": ["country"], "max_records_per_user": 9, "max_records_per_key": 9}],
        columns=[{"name": "n", "kind": "count"}, {"name": "people", "kind": "users"}],
    )
    found = released_levels(ours)
    assert {name: (level.parts, level.single) for name, level in found.items()} == {
        "country": ((0,), False),
        "country, city": ((0, 1), False),
        "total": ((), True),
    }
    assert found["country"].of_users == {"people"}
    assert found["total"].of_users == {"n", "people"}
