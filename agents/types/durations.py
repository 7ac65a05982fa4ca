"""Durations and instants: people write ``"15m"`` and ISO 8601, the code has ``int`` milliseconds.

A window may also be as long as a calendar says: ``"1 day"``, which has 23 to 25 hours.

Every instant in the settings is an ``int`` of milliseconds since the Unix epoch (UTC), so that trigger arithmetic is exact and
the same on every machine.
"""

import contextlib
import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from susurrus.mechanisms.windows import CalendarLength

UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)\s*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_duration(value: Any) -> int:
    """Milliseconds of ``"500ms"``, ``"15m"``, ``"1h 30m"`` or ``"1d"``; an int is taken as milliseconds already.

    Raises ValueError for anything else, with the units that are understood.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (text := value.strip().lower()):
        parts = _PART.findall(text)
        if parts and "".join(_PART.split(text)[::3]) == "":
            return sum(int(number) * UNITS[unit] for number, unit in parts)
        if text == "0":
            return 0
        if text.isdecimal():
            raise ValueError(
                f'has no unit; write "{text}ms", or "{format_duration(int(text) * 1000)}" for {text} seconds'
            )
    raise ValueError('write a duration as a whole number and a unit (ms, s, m, h, d, w), for example "15m" or "1h 30m"')


def format_duration(milliseconds: int) -> str:
    """The shortest text that :func:`parse_duration` reads back: ``90_000`` is ``"1m 30s"``, ``0`` is ``"0s"``."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, UNITS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts) or "0s"


def parse_length(value: Any) -> int | CalendarLength:
    """`parse_duration`, or a length that a calendar gives. Raises ValueError for anything else."""
    if isinstance(value, str) and (text := " ".join(value.lower().split())) in set(CalendarLength):
        return CalendarLength(text)
    try:
        length = parse_duration(value)
    except ValueError as problem:
        if not re.search("day|week|month|year", str(value).lower()):
            raise
        calendar = ", ".join(f'"{each}"' for each in CalendarLength)
        raise ValueError(f"{problem}; or, with a window.time_zone, one of {calendar}") from None
    if length < 1:
        raise ValueError('must be above 0; write a longer one, for example "1d"')
    return length


def format_length(length: int | CalendarLength) -> str:
    """The text that :func:`parse_length` reads back."""
    return length.value if isinstance(length, CalendarLength) else format_duration(length)


def parse_instant(value: Any) -> int:
    """Milliseconds since the Unix epoch of an ISO 8601 text, a TOML date or date-time, or an int of milliseconds.

    An instant without an offset is refused rather than guessed: which day a record belongs to depends on it.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.fromisoformat(value.strip())
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, datetime):
        raise ValueError('write an instant as ISO 8601 with an offset, for example "2026-01-31T00:00:00Z"')
    if value.tzinfo is None:
        raise ValueError(f'say which offset is meant: append "Z" for UTC, as in "{value.isoformat()}Z"')
    # Exact integer arithmetic: float timestamps lose milliseconds far from 1970.
    return (value - _EPOCH) // _MILLISECOND


Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+\s*(ms|s|m|h|d|w)\s*)+$", "examples": ["15m", "1d"]}),
]
"""A settings field of int milliseconds, written as text with a unit."""

WindowLength = Annotated[
    int | CalendarLength,
    BeforeValidator(parse_length),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^((\d+\s*(ms|s|m|h|d|w)\s*)+|1 (day|week|month))$",
            "examples": ["1d", "1 day", "1 month"],
        }
    ),
]
"""A settings field of int milliseconds, or of a length that a calendar gives."""

Instant = Annotated[
    int,
    BeforeValidator(parse_instant),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-01-31T00:00:00Z"]}),
]
"""A settings field of int milliseconds since the Unix epoch (UTC), written as ISO 8601."""
