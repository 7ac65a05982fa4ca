"""How an event time is spelt as a text: the named formats and strptime's directives, as regular expressions.

times.py reads columns of texts by them. They are closed lists of our own: what Python's strptime and fromisoformat take depends
on the locale and on the version, and a replay must find what was found before.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from susurrus.topics.wire.timestamps import EARLIEST, LATEST

LONGEST: Final = 128
"""Characters of a text that may be a time."""
PATTERN_LENGTH: Final = 100
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL_MONTHS = (
    ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"]
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_OFFSET = r"[+-][0-9]{2}(?::?[0-9]{2})?"
_MONTH = "|".join(MONTHS)
_FLAGS = re.ASCII | re.IGNORECASE

_TIME = r"(?P<H>[0-9]{2}):(?P<M>[0-9]{2}):(?P<S>[0-9]{2})"
_DATE = r"(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
_FRACTION = r"(?P<f>[0-9]{1,18})"
# Java writes Z[UTC] and +02:00[Europe/Berlin], Go +0200 CEST: the offset decides, and the name behind it is passed over.
_ZONE = rf"(?: ?(?P<z>Z|UTC|GMT|{_OFFSET})(?: ?\[[a-z0-9_+/-]{{1,64}}\]| [a-z]{{1,5}})?)?"


@dataclass(frozen=True, slots=True)
class Spelling:
    """regexes: tried in turn, each for the whole text. strict: no 24:00 and no :60. meaning: for the documentation."""

    regexes: tuple[re.Pattern[str], ...]
    strict: bool = False
    meaning: str = ""

    @property
    def may_be_zoned(self) -> bool:
        """Whether a text may say its offset."""
        return any("z" in regex.groupindex for regex in self.regexes)

    def match(self, text: str) -> re.Match[str] | None:
        """What the text says, by the letters of the directives; None where it is spelt otherwise."""
        if len(text) <= LONGEST:
            for regex in self.regexes:
                if (found := regex.fullmatch(text)) is not None:
                    return None if self.strict and (found["H"] > "23" or found["S"] > "59") else found
        return None


def _compiled(*regexes: str, strict: bool = False, meaning: str = "") -> Spelling:
    return Spelling(tuple(re.compile(regex, _FLAGS) for regex in regexes), strict, meaning)


FORMATS: Final[Mapping[str, Spelling]] = {
    "rfc3339": _compiled(
        rf"{_DATE}[T ]{_TIME}(?:\.{_FRACTION})?(?P<z>Z|[+-][0-9]{{2}}:?[0-9]{{2}})?",
        strict=True,
        meaning="`2026-10-01T06:00:00.123Z` or `+02:00`; with `time_zone`, the same without an offset",
    ),
    "iso8601": _compiled(
        rf"{_DATE}(?:[T ](?P<H>[0-9]{{2}}):(?P<M>[0-9]{{2}})(?::(?P<S>[0-9]{{2}})(?:[.,]{_FRACTION})?)?{_ZONE})?",
        r"(?P<Y>[0-9]{4})(?P<m>[0-9]{2})(?P<d>[0-9]{2})T(?P<H>[0-9]{2})(?P<M>[0-9]{2})(?:(?P<S>[0-9]{2})"
        rf"(?:[.,]{_FRACTION})?)?{_ZONE}",
        meaning="the same and more, such as a comma for the point, no seconds, `+02`, ` UTC`, `Z[UTC]`, a date alone, "
        "`20261001T060000Z`",
    ),
    "rfc1123": _compiled(
        rf"(?:(?:{'|'.join(day[:3] for day in _DAYS)}), )?(?P<d>[0-9]{{1,2}}) (?P<b>{_MONTH}) (?P<Y>[0-9]{{4}}) "
        r"(?P<H>[0-9]{2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2}))? (?P<z>GMT|UTC|UT|Z|[+-][0-9]{4})(?: \([a-z ]{1,40}\))?",
        meaning="`Thu, 01 Oct 2026 06:00:00 GMT`",
    ),
    "clf": _compiled(
        rf"(?P<d>[0-9]{{2}})/(?P<b>{_MONTH})/(?P<Y>[0-9]{{4}}):{_TIME} (?P<z>[+-][0-9]{{4}})",
        meaning="`01/Oct/2026:06:00:00 +0000`, as access logs have it",
    ),
    "log4j": _compiled(
        rf"{_DATE} {_TIME},{_FRACTION}", meaning="`2026-10-01 06:00:00,123`, as logs of Log4j and Python have it"
    ),
}
"""Every format by its name in the configuration."""

# strptime's letters. The numbers have a fixed width, so that digits are never split in two ways; %-d is one digit or two.
_NUMBERS = {"Y": 4, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2, "y": 2, "j": 3, "G": 4, "V": 2}
_WORDS = {
    "b": _MONTH,
    "B": "|".join(_FULL_MONTHS),
    "a": "|".join(day[:3] for day in _DAYS),
    "A": "|".join(_DAYS),
    "p": "AM|PM",
    "z": rf"Z|{_OFFSET}",
    "Z": "UTC|GMT|Z",
}
_VARIABLE = {"f": _FRACTION, "e": r"(?P<d>[ 0-9][0-9])", "u": "(?P<u>[1-7])"}
_UNPADDED = ("m", "d", "H", "I")
DIRECTIVES: Final = tuple(f"%{x}" for x in (*_NUMBERS, *_WORDS, *_VARIABLE, *(f"-{u}" for u in _UNPADDED), "%"))
"""What a pattern may have."""
_PART = re.compile(r"%-?.|[^%]|%", re.DOTALL)


def spelling(text: str) -> Spelling:
    """The named format, or the pattern of strptime's directives. Raises ValueError that says what is wrong with it."""
    if text in FORMATS:
        return FORMATS[text]
    if "%" not in text:
        names = ", ".join(FORMATS)
        raise ValueError(f"is no format; use one of {names}, or a pattern such as %d.%m.%Y %H:%M:%S")
    if len(text) > PATTERN_LENGTH:
        raise ValueError(f"has more than {PATTERN_LENGTH} characters; shorten it")
    made: list[str] = []
    used: list[str] = []
    # No number stands right behind one without a fixed width: the two could share the digits in more ways than one.
    digits_may_follow = True
    for part in _PART.findall(text):
        letter = part[1:] if part[0] == "%" else ""
        made.append(_regex_of(part, letter))
        if not digits_may_follow and (part.isdigit() or letter.strip("-") in (*_NUMBERS, *_VARIABLE)):
            raise ValueError(f"has {part} right behind a number of no fixed width; put another character between")
        digits_may_follow = letter not in ("f", "z") and not letter.startswith("-")
        if letter not in ("", "%"):
            used.append(_field_of(letter))
    if len(set(used)) < len(used):
        raise ValueError("says the same twice; leave one of the directives out")
    _check(set(used))
    return _compiled("".join(made))


def _field_of(letter: str) -> str:
    """The field of a match that a directive fills."""
    letter = letter.strip("-")
    return {"e": "d", "B": "b", "Z": "z", "A": "a"}.get(letter, letter)


def _regex_of(part: str, letter: str) -> str:
    if part[0] != "%":
        return re.escape(part)
    if letter == "%":
        return "%"
    if letter in _NUMBERS:
        return f"(?P<{letter}>[0-9]{{{_NUMBERS[letter]}}})"
    if letter[:1] == "-" and letter[1:] in _UNPADDED:
        return f"(?P<{letter[1:]}>[0-9]{{1,2}})"
    if letter in ("a", "A"):
        return f"(?:{_WORDS[letter]})"
    if letter in _WORDS:
        return f"(?P<{_field_of(letter)}>{_WORDS[letter]})"
    if letter in _VARIABLE:
        return _VARIABLE[letter]
    raise ValueError(f"has the directive {part}; use {', '.join(DIRECTIVES)}")


def _check(has: set[str]) -> None:
    """Raises ValueError unless the fields make one instant."""
    years, dates = has & {"Y", "y"}, has & {"m", "b", "d", "j"}
    calendar = len(years) == 1 and dates in ({"m", "d"}, {"b", "d"}, {"j"})
    weeks = has & {"G", "V", "u"}
    if calendar == (weeks == {"G", "V", "u"}) or (calendar and weeks) or (weeks and (years or dates)):
        raise ValueError("does not say the date once; use %Y with %m and %d (or %b, or %j), or %G, %V and %u")
    if {"H", "I"} <= has or ("I" in has) != ("p" in has):
        raise ValueError("does not say the hour once; use %H, or %I with %p")
    for finer, coarser in (("M", {"H", "I"}), ("S", {"M"}), ("f", {"S"})):
        if finer in has and not has & coarser:
            raise ValueError(f"has %{finer}, but not what it is a part of; add it")


def milliseconds(found: re.Match[str]) -> tuple[int, bool]:
    """Milliseconds since 1970, finer digits cut off, and whether they are local, as the text has no offset.

    24:00 is the next midnight. A leap second, :60, is the last millisecond of its minute. Raises ValueError where it is no
    instant of the years 1 to 9999.
    """
    said = found.groupdict()
    second, fraction = int(said.get("S") or 0), (said.get("f") or "")[:3].ljust(3, "0")
    if second == 60:
        second, fraction = 59, "999"
    hour, minute = _hour(said), int(said.get("M") or 0)
    if hour > 24 or minute > 59 or second > 59 or (hour == 24 and (minute, second, fraction) != (0, 0, "000")):
        raise ValueError("no time of a day")
    local = ((_day(said) * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + int(fraction)
    zone = said.get("z")
    instant = local if zone is None else local - offset(zone)
    if not (EARLIEST <= local <= LATEST and EARLIEST <= instant <= LATEST):
        raise ValueError("outside the years 1 to 9999")
    return instant, zone is None


def _hour(said: Mapping[str, str | None]) -> int:
    if (twelve := said.get("I")) is None:
        return int(said.get("H") or 0)
    if not 1 <= int(twelve) <= 12:
        raise ValueError("no hour")
    return int(twelve) % 12 + 12 * ((said.get("p") or "").lower() == "pm")


def _day(said: Mapping[str, str | None]) -> int:
    """Days since 1970. Raises ValueError where there is no such day."""
    if (week_year := said.get("G")) is not None:
        day = date.fromisocalendar(int(week_year), int(said["V"] or 0), int(said["u"] or 0))
        return day.toordinal() - _EPOCH
    if (year := said.get("Y")) is None:
        short = int(said["y"] or 0)
        year = str(short + (1900 if short >= 69 else 2000))  # as POSIX and Python do
    if (of_year := said.get("j")) is not None:
        first = date(int(year), 1, 1).toordinal()
        if not 1 <= int(of_year) <= date(int(year), 12, 31).toordinal() - first + 1:
            raise ValueError("no day of the year")
        return first + int(of_year) - 1 - _EPOCH
    return date(int(year), month(said), int(said["d"] or 0)).toordinal() - _EPOCH


_EPOCH = date(1970, 1, 1).toordinal()


def month(said: Mapping[str, str | None]) -> int:
    """1 to 12, from its number or its name; a number may be wrong."""
    name = said.get("b")
    return int(said["m"] or 0) if name is None else MONTHS.index(name[:3].lower()) + 1


def offset(zone: str) -> int:
    """ms east of Greenwich of Z, UTC, GMT, +02, +0200 or +02:00. Raises ValueError for 24 hours or more."""
    if zone[0] not in "+-":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
    if hours > 23 or minutes > 59:
        raise ValueError("no offset of a zone")
    return (hours * 60 + minutes) * (60_000 if zone[0] == "+" else -60_000)
