"""What a statement says of the published rows: HAVING, ORDER BY and LIMIT, as the section `[top]` has them.

They are about columns that are published, with their noise: docs/guarantees/post-processing.md.
"""

from collections.abc import Collection
from typing import Any, Final

from sqlglot import TokenType

from susurrus.agents.sql.clauses import Clauses
from susurrus.agents.sql.source import Span
from susurrus.agents.sql.values import number, whole

_SIGNS: Final = {TokenType.GTE: ">=", TokenType.GT: ">", TokenType.LTE: "<=", TokenType.LT: "<"}
_EXAMPLE: Final = "HAVING n >= 100 ORDER BY n DESC LIMIT 10"


def ranking(parts: Clauses, columns: Collection[str]) -> tuple[dict[str, Any], dict[str, Span]]:
    """The settings by dotted name, and their places; nothing where there are no such clauses. columns: that are published.

    Raises ConfigurationError.
    """
    having, order_by, limit = parts.having, parts.order_by, parts.limit
    given = [clause for clause in (having, order_by, limit) if clause is not None]
    if not given:
        return {}, {}
    if order_by is None:
        raise given[0].error(f"a ranking needs an order: by which column is a row the first? write {_EXAMPLE}")
    if limit is None:
        raise order_by.error(f"a ranking has a length; write {_EXAMPLE}")
    found: dict[str, Any] = {}
    places: dict[str, Span] = {}
    parts_of_order = order_by.items()
    if len(parts_of_order) > 1:
        raise parts_of_order[1].error(
            "one column decides, and equal rows are in the order of their keys; leave this out"
        )
    direction = order_by.word(1)
    if len(order_by) > 2 or (len(order_by) == 2 and direction not in ("ASC", "DESC")):
        raise order_by.part(1).error("write ORDER BY column, or ORDER BY column DESC for the largest first")
    found["top.order_by"], places["top.order_by"] = _column(order_by.part(0, 1), columns), order_by
    found["top.order"], places["top.order"] = "descending" if direction == "DESC" else "ascending", order_by
    found["top.limit"], places["top.limit"] = whole(limit), limit
    if having is not None:
        found["top.having"], places["top.having"] = _conditions(having, columns), having
    return found, places


def _conditions(span: Span, columns: Collection[str]) -> list[str]:
    if (other := span.find("OR", "NOT", "BETWEEN", "IN", "LIKE", "IS")) is not None:
        raise span.part(other, other + 1).error(
            "all conditions must hold: join comparisons by AND, as in n >= 100 AND m < 5"
        )
    found, start = [], 0
    while True:
        end = span.find("AND", start=start)
        found.append(_condition(span.part(start, end), columns))
        if end is None:
            return found
        start = end + 1


def _condition(span: Span, columns: Collection[str]) -> str:
    sign = next((index for index in range(len(span)) if span.kind(index) in _SIGNS), None)
    if sign is None:
        raise span.error("write a published column, one of >=, >, <=, <, and a number, as in n >= 100")
    text = _SIGNS[span.kind(sign)]  # type: ignore[index]
    return f"{_column(span.part(0, sign), columns)} {text} {number(span.part(sign + 1))}"


def _column(span: Span, columns: Collection[str]) -> str:
    name = span.tokens[0].text if len(span) == 1 and (span.word(0) or span.kind(0) == TokenType.IDENTIFIER) else ""
    if name in columns or any(name.startswith(f"{column}_p") for column in columns):  # of several quantiles, one
        return name
    raise span.error(
        f"only a published column can be named here, by its name behind AS: {', '.join(columns)}; keys and records are filtered by "
        "WHERE"
    )
