"""Quantiles in a statement: ``PERCENTILE_CONT``, ``APPROX_QUANTILES`` and ``INTERQUARTILE_RANGE``, as ``[[columns]]`` has them.

PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY ms CLAMPED BETWEEN 1 AND 60000 IN 32 LOG BUCKETS)
PERCENTILE_CONT(ms, 0.5, contribution_bounds_per_row => (1, 60000))
APPROX_QUANTILES(ms CLAMPED BETWEEN 1 AND 60000, 4)
INTERQUARTILE_RANGE(ms CLAMPED BETWEEN 1 AND 60000)
"""

from typing import Any, Final

from sqlglot import TokenType

from susurrus.agents.sql.source import Span
from susurrus.agents.sql.values import bounds, field_or_none, number, whole

FUNCTIONS: Final = frozenset(("PERCENTILE_CONT", "APPROX_QUANTILES", "INTERQUARTILE_RANGE"))
_PER_ROW: Final = "CONTRIBUTION_BOUNDS_PER_ROW"
_MOST: Final = 100
_RANGE: Final = "value CLAMPED BETWEEN lower AND upper"
_EXAMPLE: Final = {
    "PERCENTILE_CONT": f"PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {_RANGE})",
    "APPROX_QUANTILES": f"APPROX_QUANTILES({_RANGE}, 4)",
    "INTERQUARTILE_RANGE": f"INTERQUARTILE_RANGE({_RANGE})",
}


def is_call(value: Span) -> bool:
    """Whether this is a call of one of them, with nothing behind it."""
    if value.word(0) not in FUNCTIONS or value.kind(1) != TokenType.L_PAREN:
        return False
    end = value.closing(1)
    if value.words(end + 1, "WITHIN", "GROUP") and value.kind(end + 3) == TokenType.L_PAREN:
        end = value.closing(end + 3)
    return end == len(value) - 1


def table_of(call: Span) -> tuple[dict[str, Any], Span]:
    """(the settings of the column but for its name, what is measured). Raises ConfigurationError."""
    function = call.word(0)
    close = call.closing(1)
    inside, behind = call.part(2, close), call.part(close + 1)
    if len(behind):
        if function != "PERCENTILE_CONT":
            raise behind.error(f"write {_EXAMPLE[function]}")
        ordered = behind.part(3, len(behind) - 1)
        if not (ordered.word(0) == "ORDER BY" and len(ordered) > 1):
            raise ordered.error(f"write {_EXAMPLE[function]}")
        value, ranged = _ranged(ordered.part(1), function)
        return {"kind": "quantiles", **ranged, "at": [_share(inside)]}, value
    parts = inside.items()
    per_row = [part for part in parts if part.word(0) == _PER_ROW]
    plain = [part for part in parts if part.word(0) != _PER_ROW]
    wanted = 1 if function == "INTERQUARTILE_RANGE" else 2
    if len(plain) != wanted or len(per_row) > 1 or not all(map(len, plain)):
        raise call.error(f"write {_EXAMPLE[function]}")
    value, ranged = _per_row(plain[0], per_row[0]) if per_row else _ranged(plain[0], function)
    if function == "INTERQUARTILE_RANGE":
        return {"kind": "spread", **ranged}, value
    at = [_share(plain[1])] if function == "PERCENTILE_CONT" else _steps(plain[1])
    return {"kind": "quantiles", **ranged, "at": at}, value


def _share(span: Span) -> float:
    share = number(span)
    if not 0 < share < 1:
        raise span.error("a quantile lies between 0 and 1; the smallest and the largest value cannot be private")
    return share


def _steps(span: Span) -> list[float]:
    steps = whole(span)
    if not 2 <= steps <= _MOST:
        raise span.error(f"write a whole number from 2 to {_MOST}: into how many parts the quantiles divide the values")
    return [step / steps for step in range(1, steps)]


def _per_row(value: Span, pair: Span) -> tuple[Span, dict[str, Any]]:
    if pair.kind(1) != TokenType.FARROW or pair.kind(2) != TokenType.L_PAREN or pair.closing(2) != len(pair) - 1:
        raise pair.error("write contribution_bounds_per_row => (lower, upper)")
    if (clamped := value.find("CLAMPED")) is not None:
        raise value.part(clamped).error("the bounds are there twice; keep one of them")
    low, high = bounds(pair.part(3, len(pair) - 1), ",")
    return value, {**_named(value), "lower": low, "upper": high}


def _ranged(span: Span, function: str) -> tuple[Span, dict[str, Any]]:
    """``value CLAMPED BETWEEN a AND b``, perhaps with ``IN 32 LOG BUCKETS``."""
    place = span.find("CLAMPED")
    if place is None or not place:
        raise span.error(f"the value needs public bounds; write {_EXAMPLE[function]}")
    value, limits = span.part(0, place), span.part(place + 1)
    if limits.word(0) != "BETWEEN":
        raise span.part(place, place + 1).error(f"the bounds are missing; write {_EXAMPLE[function]}")
    behind = limits.find("IN")
    low, high = bounds(limits.part(1, behind), "AND")
    found = {**_named(value), "lower": low, "upper": high}
    return value, found if behind is None else found | _buckets(limits.part(behind))


def _buckets(span: Span) -> dict[str, Any]:
    """``IN 32 BUCKETS``, ``IN LOG BUCKETS``, ``IN 32 LOG BUCKETS``."""
    words = span.part(1, len(span) - 1)
    found: dict[str, Any] = {}
    if len(words) and words.word(len(words) - 1) in ("LOG", "LINEAR"):
        found["scale"] = words.word(len(words) - 1).lower()
        words = words.part(0, len(words) - 1)
    if span.word(len(span) - 1) != "BUCKETS" or not (found or len(words)):
        raise span.error("write IN 32 BUCKETS, IN LOG BUCKETS or IN 32 LOG BUCKETS")
    return ({"buckets": whole(words)} if len(words) else {}) | found


def _named(value: Span) -> dict[str, Any]:
    path = field_or_none(value)
    return {"expression": value.sql()} if path is None else {"field": path}
