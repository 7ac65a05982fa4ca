"""Settings that say how event times are written."""

from typing import Annotated

from pydantic import AfterValidator

from susurrus.agents.types.one_of import nearest
from susurrus.topics.records.time_spellings import spelling
from susurrus.topics.records.zones import zone_names


def _format(value: str) -> str:
    spelling(value)
    return value


def _zone(value: str) -> str:
    if value not in zone_names():
        raise ValueError(f"is no time zone of the tz database; {nearest(value, zone_names())}")
    return value


TimeFormat = Annotated[str, AfterValidator(_format)]
"""A named format, or a pattern of directives."""
TimeZone = Annotated[str, AfterValidator(_zone)]
"""An IANA name."""
