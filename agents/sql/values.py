"""The values inside clauses: numbers, texts, intervals, instants, names of fields."""

import math
import re
from collections.abc import Callable
from typing import Any, Final

from sqlglot import TokenType

from susurrus.agents.sql.source import Span
from susurrus.agents.types.durations import UNITS, format_duration, parse_instant
from susurrus.mechanisms.windows import CalendarLength
from susurrus.topics.records.fields import BESIDE_NAMES, written

_UNITS: Final = {
    "MILLISECOND": UNITS["ms"], "SECOND": UNITS["s"], "MINUTE": UNITS["m"], "HOUR": UNITS["h"], "DAY": UNITS["d"],
    "WEEK": UNITS["w"],
}  # fmt: skip
_WHOLE: Final = re.compile(r"\d{1,15}\Z", re.ASCII)
_LIKE_A_NAME: Final = re.compile(r"[@#$]?\w+([-.:/]\w+)*")
_OTHER_QUOTES: Final = {
    "''": "single quotes are for texts",
    "``": "there are no backticks",
    "[]": "brackets are for lists",
}
_PLAIN: Final = re.compile(r"[^\W\d]\w*")
_NO_NAME: Final = frozenset(("CASE", "NULL", "TRUE", "FALSE", "NOT", "INTERVAL", "*"))


def number(span: Span) -> int | float:
    """A finite number, whole if it is written so. Raises ConfigurationError."""
    sign = -1 if span.kind(0) == TokenType.DASH else 1
    value = span.part(1) if sign < 0 else span
    if len(value) == 1 and value.kind(0) == TokenType.NUMBER:
        text = value.tokens[0].text
        try:
            found = int(text) if _WHOLE.match(text) else float(text)
        except ValueError:
            raise span.error("this is not a number; write one") from None
        if math.isfinite(found):
            return sign * found
    raise span.error("write a number here")


def whole(span: Span) -> int:
    """A whole number. Raises ConfigurationError."""
    value = number(span)
    if not isinstance(value, int):
        raise span.error("write a whole number here")
    return value


def text(span: Span) -> str:
    """A text in single quotes. Raises ConfigurationError."""
    if len(span) == 1 and span.kind(0) == TokenType.STRING:
        return str(span.tokens[0].text)
    raise span.error("write a text in single quotes here")


def word_or_text(span: Span) -> str:
    """A word, or a text in single quotes. Raises ConfigurationError."""
    return span.tokens[0].text if len(span) == 1 and span.word(0) else text(span)


def duration(span: Span) -> str:
    """``INTERVAL '15' MINUTE`` as the settings write it. Raises ConfigurationError."""
    example = "write it as INTERVAL '15' MINUTE"
    if span.word(0) != "INTERVAL" or len(span) != 3:
        raise span.error(f"this is no interval; {example}")
    amount, unit = span.tokens[1].text, span.word(2)
    if span.kind(1) not in (TokenType.STRING, TokenType.NUMBER) or not _WHOLE.match(amount):
        raise span.part(1, 2).error(f"an interval is a whole number of units; {example}")
    if unit.removesuffix("S") not in _UNITS:
        raise span.part(2).error(
            f"use one of {', '.join(_UNITS)}; months and years differ in length, but a window with a time zone may have '1' MONTH"
        )
    return format_duration(int(amount) * _UNITS[unit.removesuffix("S")])


def calendar_length(span: Span) -> str:
    """``INTERVAL '1' MONTH`` as the length of windows in a time zone. Raises ConfigurationError."""
    amount, unit = (span.tokens[1].text, span.word(2).removesuffix("S")) if len(span) == 3 else ("", "")
    length = f"1 {unit.lower()}"
    if span.word(0) != "INTERVAL" or amount != "1" or length not in set(CalendarLength):
        raise span.error("with a time zone, a window is INTERVAL '1' DAY, '1' WEEK or '1' MONTH; write one of them")
    return length


def instant(span: Span) -> str:
    """``TIMESTAMP '2026-01-01T00:00:00Z'`` as the settings write it. Raises ConfigurationError."""
    if span.word(0) != "TIMESTAMP" or len(span) != 2:
        raise span.error("this is no instant; write it as TIMESTAMP '2026-01-01T00:00:00Z'")
    value = text(span.part(1))
    try:
        parse_instant(value)
    except ValueError as problem:
        raise span.part(1).error(str(problem)) from None
    return value


def meant(span: Span) -> str | None:
    """How to write the field that this may be meant as, where SQL reads it otherwise; None where it is nothing like a name."""
    text = span.sql()
    for quotes, why in _OTHER_QUOTES.items():
        if len(text) > 2 and text[0] + text[-1] == quotes and not set(quotes) & set(text[1:-1]):
            return f'for a field write "{text[1:-1]}" in double quotes; {why}'
    if not _LIKE_A_NAME.fullmatch(text) or _PLAIN.fullmatch(text):
        return None
    written = ".".join(name if _PLAIN.fullmatch(name) else f'"{name}"' for name in text.split("."))
    return f"for a field of that name write {written} in double quotes"


def field_or_none(span: Span) -> str | None:
    """A field's path as the settings write it, with dots between the names of nested objects; None where this is no plain field."""
    if span.kind(0) == TokenType.PARAMETER and span.tokens[0].text == "$":
        return _beside(span)
    names = []
    for index, token in enumerate(span.tokens):
        if index % 2:
            if token.token_type != TokenType.DOT:
                return None
            continue
        word = span.word(index)
        if token.token_type != TokenType.IDENTIFIER and (not word or " " in word or word in _NO_NAME):
            return None
        if not token.text:
            return None
        names.append(token.text)
    return written(tuple(names)) if len(span) % 2 else None


def _beside(span: Span) -> str | None:
    """What a record has beside its value: ``$key.id``, ``$headers['user-id']``."""
    names, rest = [""], span.part(1)
    while len(rest):
        if rest.kind(0) == TokenType.L_BRACKET and rest.kind(1) == TokenType.STRING and len(names) > 1:
            name, after = rest.tokens[1].text, rest.part(3)
            if rest.kind(2) != TokenType.R_BRACKET:
                return None
        else:
            if len(names) > 1:
                if rest.kind(0) != TokenType.DOT:
                    return None
                rest = rest.part(1)
            if not rest.word(0) and rest.kind(0) != TokenType.IDENTIFIER:
                return None
            name, after = rest.tokens[0].text, rest.part(1)
        if not name:
            return None
        names.append(name)
        rest = after
    return written(tuple(names)) if names[1:2] and names[1] in BESIDE_NAMES else None


def field_or_expression(span: Span) -> str | dict[str, str]:
    """A field as the settings write it, or else a table with an expression. Raises ConfigurationError where a field is meant."""
    path = field_or_none(span)
    if path is not None:
        return path
    if (hint := meant(span)) is not None or not len(span):
        raise span.error(hint or "name a field here, or write an expression")
    return {"expression": span.sql()}


def unit(span: Span) -> str | dict[str, str] | list[str | dict[str, str]]:
    """The privacy unit: a field, an expression, or ``(tenant, id)``. Raises ConfigurationError."""
    parts = unit_parts(span)
    return field_or_expression(span) if len(parts) == 1 else [field_or_expression(part) for part in parts]


def unit_parts(span: Span) -> list[Span]:
    """The parts of the privacy unit; the whole where it is no tuple."""
    if span.kind(0) == TokenType.L_PAREN and span.closing(0) == len(span) - 1:
        parts = span.part(1, len(span) - 1).items()
        if len(parts) > 1:
            return parts
    return [span]


def bounds(span: Span, between: str) -> tuple[int | float, int | float]:
    """``low AND high``, or ``low, high``; between: what stands between them. Raises ConfigurationError."""
    parts = span.items()
    if between == "AND" and (middle := span.find("AND")) is not None:
        parts = [span.part(0, middle), span.part(middle + 1)]
    if len(parts) != 2:
        raise span.error(f"write two numbers here: lower {between} upper")
    low, high = number(parts[0]), number(parts[1])
    if not low < high:
        raise span.error(f"lower={low:g} is not below upper={high:g}; write the lower bound first")
    return low, high


Reader = Callable[[Span], Any]
"""Reads the value of an option."""
