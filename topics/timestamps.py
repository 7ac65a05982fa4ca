"""Timestamps of every topic: int64 milliseconds since the Unix epoch inside, RFC 3339 in UTC in JSON.

The range is that of RFC 3339 and of datetime: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z.
"""

import re
from datetime import UTC, datetime, timedelta

EARLIEST = -62_135_596_800_000  # 0001-01-01T00:00:00Z
LATEST = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# Narrower than datetime.fromisoformat, whose idea of ISO 8601 grows with every Python version: a replay under a newer
# Python must not accept what was refused before. [0-9] and not \d, which takes any script's digits.
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,18})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])",
    re.ASCII,
)
_FRACTION = re.compile(r"\.([0-9]+)")


def format_time(milliseconds: int) -> str:
    """RFC 3339 in UTC: whole seconds without a fraction, else three digits. Raises ValueError out of range."""
    if not EARLIEST <= milliseconds <= LATEST:
        raise ValueError(f"milliseconds={milliseconds} is outside the years 1 to 9999")
    seconds, fraction = divmod(milliseconds, 1000)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{text}.{fraction:03d}Z" if fraction else f"{text}Z"


def parse_time(text: str) -> int:
    """Milliseconds of an RFC 3339 instant, finer digits cut off. An offset is required. Raises ValueError."""
    if _RFC3339.fullmatch(text) is None:
        raise ValueError("not an RFC 3339 instant with an offset, such as 2026-01-31T12:00:00Z")
    # Six digits are all that datetime holds; cutting more of them off is the floor, also before 1970.
    instant = datetime.fromisoformat(_FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), text).upper())
    return milliseconds_of(instant)


def milliseconds_of(instant: datetime) -> int:
    """Milliseconds of an aware datetime, finer digits cut off. Raises ValueError outside the years 1 to 9999 of UTC."""
    milliseconds = (instant - _EPOCH) // _MILLISECOND
    if not EARLIEST <= milliseconds <= LATEST:
        raise ValueError("the instant is outside the years 1 to 9999 of UTC")
    return milliseconds
