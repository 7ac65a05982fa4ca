"""The plan of a pipeline with grouping sets: a forecast for each level, on the level's keys."""

import json
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.cli.plan_tables import rendered
from susurrus.agents.planning.as_json import as_json
from susurrus.agents.planning.law import Law
from susurrus.agents.planning.plan import PipelinePlan, make_plan
from susurrus.agents.planning.sample import read_file
from susurrus.agents.planning.sources import NoData, OfLaw, OfSample, WindowSource, in_grid_units
from susurrus.agents.planning.variants import Configuration
from susurrus.mechanisms.errors import ConfigurationError

TABLES: dict[str, Any] = {
    "pipeline": {"name": "geo", "kind": "histogram"},
    "kafka": {"bootstrap_servers": "none:1"},
    "input": {
        "topic": "raw",
        "user": "id",
        "key": ["country", "city"],
        "grouping_sets": [["country"], ["country", "city"], []],
    },
    "levels": [
        {"key": ["country"], "max_records_per_user": 2},
        {"key": ["country", "city"], "max_records_per_user": 4},
    ],
    "window": {"length": "1d", "trigger_every": "6h"},
    "privacy": {"epsilon": 6.0, "delta": 1e-9},
}
RECORDS = [
    {
        "id": f"u{number % 500}",
        "country": f"c{number % 3}",
        "city": f"t{number % 8}",
        "ts": 1_767_225_600_000 + number * 40_000,
    }
    for number in range(2000)
]


def planned(source: WindowSource | None = None, **more: Any) -> PipelinePlan:
    return make_plan(Configuration(TABLES), source or NoData(), seeds=1, **more)


@pytest.fixture(scope="module")
def of_sample(tmp_path_factory: pytest.TempPathFactory) -> PipelinePlan:
    file: Path = tmp_path_factory.mktemp("sample") / "sample.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    settings = Configuration(TABLES).histogram()
    return planned(OfSample(in_grid_units(read_file(file, settings, time="ts", wide=True), settings), "a sample"))


def test_each_level_has_its_own_errors_and_thresholds() -> None:
    plan = planned()
    assert [each.name for each in plan.forecasts] == ["country", "country, city", "total"]
    country, city, total = (each.std_errors["count"][-1] for each in plan.forecasts)
    assert total < country < city  # parts of the budget are by the root of the cap
    assert [bool(each.appears) for each in plan.forecasts] == [True, True, False]  # the total is always there


def test_a_sample_is_forecast_with_the_keys_of_each_level(of_sample: PipelinePlan) -> None:
    keys = [each.outcome.keys for each in of_sample.forecasts if each.outcome is not None]
    assert keys == [
        len({record["country"] for record in RECORDS}),
        len({(record["country"], record["city"]) for record in RECORDS}),
        1,
    ]
    kept = [each.outcome.kept for each in of_sample.forecasts if each.outcome is not None]
    assert kept[2] == pytest.approx(500 / 2000)  # one record of each user
    assert kept[0] < kept[1]
    assert of_sample.forecasts[2].outcome is not None
    assert of_sample.forecasts[2].outcome.triggers[-1].keys.mean == 1


def test_text_and_json_speak_of_levels(of_sample: PipelinePlan) -> None:
    text = "\n".join(str(getattr(part, "plain", "")) for part in rendered(of_sample, 100).renderables)
    assert "Keys by their users, at the end of a window (country, city)" in text
    assert "total: 25.0% of the records count" in text
    document = as_json(of_sample)
    assert [level["name"] for level in document["levels"]] == [each["strategy"] for each in document["strategies"]]


def test_what_a_plan_of_levels_cannot_say_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="knows nothing of the parts of a key"):
        planned(OfLaw(lambda settings: Law(users=10)))
    with pytest.raises(ConfigurationError, match="changes the constants of one grouping"):
        planned(variants=[{"C": 3.0}])
