"""What a statement selects: keys first, then published columns.

Differs from BigQuery where docs/sql.md says so: values are clamped row by row, and an average is a sum over a count.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlglot import TokenType

from susurrus.agents.sql import quantiles
from susurrus.agents.sql.source import Span, same
from susurrus.agents.sql.values import bounds, field_or_none, meant, number

_OF_VALUE: Final = {
    "SUM": "sum",
    "AVG": "mean",
    "VAR_POP": "variance",
    "VARIANCE": "variance",
    "STDDEV_POP": "stddev",
    "STDDEV": "stddev",
}
"""Kinds of columns of a value. Variances are of the population: over n records they are (n - 1) / n of those of a sample."""
_COUNT_BY: Final = "COUNT_BY"
_AGGREGATES: Final = frozenset(("COUNT", _COUNT_BY, *_OF_VALUE, *quantiles.FUNCTIONS))
_UNKNOWN: Final = frozenset(
    (
        "MIN", "MAX", "MEDIAN", "APPROX_COUNT_DISTINCT", "ARRAY_AGG", "STRING_AGG",
        "ANY_VALUE", "COUNTIF", "MODE", "ANON_COUNT", "ANON_SUM", "ANON_AVG", "ANON_VAR_POP", "ANON_STDDEV_POP", "FIRST", "LAST",
    )
)  # fmt: skip
_INSTEAD: Final = {"VAR_SAMP": "VAR_POP", "STDDEV_SAMP": "STDDEV_POP"}
_USE: Final = "use COUNT(*), COUNT(DISTINCT the privacy unit), SUM, AVG, VAR_POP, STDDEV_POP or PERCENTILE_CONT"
_PER_GROUP: Final = "CONTRIBUTION_BOUNDS_PER_GROUP"


@dataclass(frozen=True, slots=True)
class Key:
    """One selected key. setting: as ``input.key`` has it. value: without the alias."""

    setting: str | dict[str, str]
    value: Span
    alias: str | None
    place: Span


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """One published column. table: as ``[[columns]]`` has it. by_group: the bounds, if they are of a user's sum. value: what is
    counted, added up or averaged."""

    table: dict[str, Any]
    by_group: Span | None
    place: Span
    value: Span


def selected(span: Span, user: Span) -> tuple[list[Key], list[SelectedColumn]]:
    """The selected keys and columns. user: the privacy unit. Raises ConfigurationError."""
    keys: list[Key] = []
    columns: list[SelectedColumn] = []
    for item in span.items():
        if not len(item):
            raise item.error("something is missing here; write a key or a column between the commas")
        if item.kind(0) == TokenType.STAR:
            raise item.error("name each key and column; * would publish what users sent")
        value, alias = _alias(item)
        if value.word(0) in ("GROUPING", "GROUPING_ID") and value.kind(1) == TokenType.L_PAREN:
            raise item.error(
                "each row names its level, and its key is null where the level leaves a part out; leave this out"
            )
        if quantiles.is_call(value):
            columns.append(_quantiles(value, alias))
            continue
        call = value.kind(1) == TokenType.L_PAREN
        if call and value.word(0) in _AGGREGATES and value.closing(1) == len(value) - 1:
            columns.append(_column(value, alias, user))
            continue
        _no_aggregate(value)
        path = field_or_none(value)
        if path is None and alias is None:
            raise item.error("; ".join(filter(None, (meant(value), "a computed key needs a name: add AS name"))))
        if path is not None and alias in (None, path):
            keys.append(Key(path, value, None, item))
        else:
            assert alias is not None
            if any(value.kind(i) != TokenType.STRING and t.text == alias for i, t in enumerate(value.tokens)):
                raise item.error(f"the name {alias} is that of a field, too, so GROUP BY could mean both; use another")
            keys.append(Key({"name": alias, "expression": value.sql()}, value, alias, item))
    if not columns:
        raise span.error(f"no column is published; {_USE}")
    names = [column.table["name"] for column in columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise columns[index].place.error(f"two columns are called {name}; rename one")
    return keys, columns


def _alias(item: Span) -> tuple[Span, str | None]:
    """The value of an item, and its alias."""
    place = item.find("AS")
    if place is None:
        return item, None
    value, alias = item.part(0, place), item.part(place + 1)
    if len(alias) != 1 or not (alias.word(0) or alias.kind(0) == TokenType.IDENTIFIER) or not len(value):
        raise item.part(place).error("write AS and one name after the value")
    return value, alias.tokens[0].text


def _no_aggregate(value: Span) -> None:
    for index in range(len(value)):
        if value.kind(index + 1) != TokenType.L_PAREN:
            continue
        word, place = value.word(index), value.part(index, index + 1)
        if word in _INSTEAD:
            raise place.error(
                f"there is no private {word}; use {_INSTEAD[word]}, of all records, from which it differs by less than the noise"
            )
        if word in _UNKNOWN:
            raise place.error(f"there is no private {word}; {_USE}")
        if word in _AGGREGATES:
            raise place.error(f"{word} stands alone; compute inside it, or after publication, which costs nothing")


def _column(call: Span, alias: str | None, user: Span) -> SelectedColumn:
    function, inside = call.word(0), call.part(2, len(call) - 1)
    if alias is None:
        raise call.error(f"the column needs a name; add AS name after {function}(...)")
    if function == "COUNT":
        return SelectedColumn({"name": alias, "kind": _count(inside, user)}, None, call, inside)
    if function == _COUNT_BY:
        return _count_by(call, inside, alias)
    if inside.word(0) == "DISTINCT":
        raise inside.part(0, 1).error(f"{function}(DISTINCT ...) is not possible; {_USE}")
    value, low, high, grid, by_group = _value(inside, function)
    _no_aggregate(value)
    table: dict[str, Any] = {"name": alias, "kind": _OF_VALUE[function]}
    path = field_or_none(value)
    table |= {"expression": value.sql()} if path is None else {"field": path}
    table |= {"bound": high} if low == -high else {"lower": low, "upper": high}
    if grid is not None:
        table["grid"] = grid
    return SelectedColumn(table, by_group, call, value)


def _quantiles(call: Span, alias: str | None) -> SelectedColumn:
    if alias is None:
        raise call.error(f"the column needs a name; add AS name after {call.word(0)}(...)")
    table, value = quantiles.table_of(call)
    _no_aggregate(value)
    return SelectedColumn({"name": alias, **table}, None, call, value)


def _count_by(call: Span, inside: Span, alias: str) -> SelectedColumn:
    """``COUNT_BY(status, '200', '304')``: counts by declared values."""
    value, *values = inside.items()
    if not len(value) or not values:
        raise call.error("name a field and the values that are counted: COUNT_BY(status, '200', '304', '404')")
    for each in values:
        if len(each) != 1 or each.kind(0) not in (TokenType.STRING, TokenType.NUMBER):
            raise each.error(
                "write a text in single quotes, or a number; the values are public and stand in the statement"
            )
    _no_aggregate(value)
    path = field_or_none(value)
    table: dict[str, Any] = {"name": alias, "kind": "count_by", "values": [each.tokens[0].text for each in values]}
    table |= {"expression": value.sql()} if path is None else {"field": path}
    return SelectedColumn(table, None, call, value)


def _count(inside: Span, user: Span) -> str:
    if inside.word(0) == "DISTINCT":
        counted = inside.part(1)
        if same(counted, user) or (
            field_or_none(counted) is not None and field_or_none(counted) == field_or_none(user)
        ):
            return "users"
        raise inside.error(
            "only the privacy unit can be counted distinctly, because whether a value of another field is new depends on what all "
            f"other users sent; write COUNT(DISTINCT {user.sql()})"
        )
    if len(inside) == 1 and inside.kind(0) == TokenType.STAR:
        return "count"
    if len(inside.items()) > 1 or inside.find("CLAMPED") is not None:
        raise inside.error("a count has no bounds of its own; write COUNT(*) and the option max_rows_per_group")
    raise inside.error(
        f"records are counted, not values; write COUNT(*), or COUNT(DISTINCT {user.sql()}), and use WHERE"
    )


def _value(inside: Span, function: str) -> tuple[Span, float, float, float | None, Span | None]:
    """(value, lower, upper, grid, place of a user's bounds in a group) of ``SUM(...)``."""
    parts, grid = inside.items(), None
    example = f"write {function}(value CLAMPED BETWEEN lower AND upper)"
    if len(parts) == 2 and parts[1].word(0) == _PER_GROUP:
        pair = parts[1]
        if pair.kind(1) != TokenType.FARROW or pair.kind(2) != TokenType.L_PAREN or pair.closing(2) != len(pair) - 1:
            raise pair.error("write contribution_bounds_per_group => (lower, upper)")
        low, high = bounds(pair.part(3, len(pair) - 1), ",")
        value, by_group = parts[0], pair
    elif len(parts) > 1:
        raise parts[1].error(f"{function} takes one value and its bounds; {example}")
    elif (place := inside.find("CLAMPED")) is None:
        raise inside.error(f"the value needs public bounds; {example}")
    else:
        value, limits, by_group = inside.part(0, place), inside.part(place + 1), None
        if limits.word(0) != "BETWEEN":
            raise inside.part(place, place + 1).error(f"the bounds are missing; {example}")
        rounded = limits.find("ROUNDED")
        if rounded is not None:
            if limits.word(rounded + 1) != "TO":
                raise limits.part(rounded).error("write ROUNDED TO number, the grid of the values")
            grid = number(limits.part(rounded + 2))
        low, high = bounds(limits.part(1, rounded), "AND")
    if not len(value):
        raise inside.error(f"the value is missing; {example}")
    return value, low, high, grid, by_group
