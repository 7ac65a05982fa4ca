"""The settings of event times: what is refused, and what it says."""

from typing import Any

import pytest

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError

INPUT = {"topic": "raw", "user": "host", "key": ["url"], "time": "at"}


def settings(**given: Any) -> HistogramSettings:
    return HistogramSettings.of(
        settings_from(
            {
                "pipeline": {"name": "visits"},
                "input": {**INPUT, **given},
                "privacy": {"epsilon": 6.0, "delta": 1e-9, "secret_file": "secret"},
            }
        )
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"time_unit": "h"}, "use 's', 'ms', 'us', 'ns', 'd' or 'iso'"),
        ({"time_format": "iso"}, "is no format; use one of rfc3339, iso8601, rfc1123, clf, log4j, or a pattern"),
        ({"time_format": "%Y-%m-%d %Q"}, "has the directive %Q; use %Y"),
        ({"time_format": "%H:%M"}, "does not say the date once"),
        ({"time_format": "log4j"}, 'input.time_format = "log4j": has no time zone; set input.time_zone'),
        ({"time_format": "%Y-%m-%d"}, 'input.time_format = "%Y-%m-%d": has no time zone; set input.time_zone'),
        (
            {"time_format": "clf", "time_unit": "s"},
            'input.time_unit = "s": input.time_format says that times are texts',
        ),
        ({"time_zone": "Europe/Berlim"}, 'is no time zone of the tz database; did you mean "Europe/Berlin"?'),
        ({"time_zone": "CEST"}, "is no time zone of the tz database"),
    ],
)
def test_what_is_refused_says_what_to_write(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings(**given)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"time_format": "clf"},
        {"time_format": "clf", "time_unit": "iso"},
        {"time_format": "iso8601"},
        {"time_format": "log4j", "time_zone": "Asia/Kolkata"},
        {"time_format": "%d.%m.%Y", "time_zone": "UTC"},
        {"time_format": "%d.%m.%Y %z"},
        {"time_unit": "d"},
        {"time_zone": "America/Argentina/Buenos_Aires"},
    ],
)
def test_the_raw_schema_reads_what_the_settings_say(given: dict[str, Any]) -> None:
    schema = settings(**given).raw_schema()
    wanted = ("ms", None, None)
    found = (schema.time_unit, schema.time_format, schema.time_zone)
    names = ("time_unit", "time_format", "time_zone")
    assert found == tuple(given.get(name, default) for name, default in zip(names, wanted, strict=True))


def test_settings_of_times_without_a_field_of_time_get_a_warning() -> None:
    found = [finding.text for finding in settings(time="kafka", time_format="log4j", time_zone="UTC").findings()]
    for name in ("time_format", "time_zone"):
        assert any(f'input.{name}: has no effect with input.time = "kafka"' in text for text in found), found
