"""Timestamps of every topic: int64 milliseconds since the Unix epoch inside, RFC 3339 in UTC in JSON.

The range is that of RFC 3339 and of datetime: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z.
"""

import functools
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

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
    return _text(milliseconds)


@functools.lru_cache(maxsize=1024)
def _text(milliseconds: int) -> str:
    """The texts of few instants, each of which is in many records."""
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


_ZERO, _NINE = ord("0"), ord("9")
_SIGNS = {4: b"--", 7: b"--", 10: b"Tt", 13: b"::", 16: b"::"}
_FIELDS = ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))


def parse_times(texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Milliseconds, int64[n], of the texts in UTC with a Z, all at once; bool[n]: which rows are done.

    A row is done where this function agrees with parse_time. The others, whose texts differ in length or are unusual or
    wrong, are 0 and left to parse_time.
    """
    n = len(texts)
    nothing = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    length = len(texts[0]) if n else 0
    if not (length == 20 or 22 <= length <= 39) or set(map(len, texts)) != {length}:
        return nothing
    try:
        table = np.frombuffer("".join(texts).encode("ascii"), np.uint8).reshape(n, length).T
    except UnicodeEncodeError:
        return nothing
    done = (table[length - 1] == ord("Z")) | (table[length - 1] == ord("z"))
    if length > 20:
        done &= table[19] == ord(".")
    for at, signs in _SIGNS.items():
        done &= (table[at] == signs[0]) | (table[at] == signs[1])
    places = [at for first, end in _FIELDS for at in range(first, end)] + list(range(20, length - 1))
    digits = {at: table[at] - np.int64(_ZERO) for at in places}
    for digit in digits.values():
        done &= (digit >= 0) & (digit <= _NINE - _ZERO)

    def number(first: int, end: int) -> npt.NDArray[np.int64]:
        found = np.zeros(n, np.int64)
        for at in range(first, end):
            found = found * 10 + digits[at]
        return np.where(done, found, 0)

    year, month, day, hour, minute, second = (number(first, end) for first, end in _FIELDS)
    milliseconds = number(20, min(23, length - 1)) * 10 ** max(0, 3 - (length - 21)) if length > 20 else 0
    done &= (year >= 1) & (month >= 1) & (month <= 12) & (hour <= 23) & (minute <= 59) & (second <= 59)
    months = np.where(done, (year - 1970) * 12 + month - 1, 0)
    days, next_month = (first_days(months + later) for later in (0, 1))
    done &= (day >= 1) & (day <= next_month - days)
    seconds = ((days + day - 1) * 24 + hour) * 3600 + minute * 60 + second
    return np.where(done, seconds * 1000 + milliseconds, 0), done


def first_days(months: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Days from 1970-01-01 to the first day of a month counted from January 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
