"""The section `[top]`: a ranking of the published rows, in a topic of its own."""

import re
from collections.abc import Collection, Iterator
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from susurrus.agents.types.one_of import use_one_of
from susurrus.agents.types.section import Name, Section
from susurrus.mechanisms.ranking import COMPARISONS, Condition, RowRanking

MOST_ROWS: Final = 1_000
"""The longest ranking."""
_RECORD_BYTES: Final = 900_000
"""Of a ranking, which is one record: Kafka's limit is a little above it."""
_ROW_BYTES, _COLUMN_BYTES = 100, 300
"""Of a row beside its key and columns, and of a column, at most."""
_CONDITION: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)\s*(>=|<=|>|<)\s*([-+]?[0-9][0-9.eE+-]*)")


def condition_of(text: str) -> Condition:
    """A condition such as `visits >= 100`. Raises ValueError for other texts."""
    found = _CONDITION.fullmatch(text.strip())
    try:
        if found is None or found[2] not in COMPARISONS:
            raise ValueError
        whole = re.fullmatch(r"[-+]?[0-9]{1,15}", found[3])
        number = int(found[3]) if whole else float(found[3])
        if number in (float("inf"), float("-inf")):
            raise ValueError
    except ValueError:
        raise ValueError(
            'write a published column, one of >=, >, <=, <, and a number, for example "visits >= 100"'
        ) from None
    return Condition(found[1], found[2], number)


def _canonical(text: str) -> str:
    return str(condition_of(text))


class TopSettings(Section):
    """A ranking of the published rows at every trigger, in the topic `top`. It is post-processing and costs nothing. A key that is
    not in it may still be large: docs/guarantees/post-processing.md."""

    order_by: Name
    """The column whose estimate decides."""
    order: Literal["descending", "ascending"] = "descending"
    """`descending`: the largest estimate comes first. Equal ones are in the order of their keys."""
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 10
    """How many rows there are at most."""
    having: tuple[Annotated[str, AfterValidator(_canonical)], ...] = ()
    """Conditions that the estimates of a row must meet, all of them: `["visits >= 100"]`. They see the noise, too."""

    @property
    def ranking(self) -> RowRanking:
        """What is first."""
        return RowRanking(
            order_by=self.order_by,
            descending=self.order == "descending",
            limit=self.limit,
            having=tuple(map(condition_of, self.having)),
        )


def problems(
    top: TopSettings, columns: Collection[str], *, key_bytes: int, grouped: bool, repeats: bool
) -> Iterator[str]:
    """What is wrong, one line each. columns: that are published. key_bytes: of the longest key. grouped: whether there is more than
    one key. repeats: whether a trigger publishes all rows, and not only those that are new."""
    for number, text in enumerate(top.having, 1):
        if condition_of(text).column not in columns:
            yield f'top.having, number {number} = "{text}": there is no such column; {use_one_of(dict.fromkeys(columns))}'
    if top.order_by not in columns:
        yield f'top.order_by = "{top.order_by}": there is no such column; {use_one_of(dict.fromkeys(columns))}'
    most = _RECORD_BYTES // (key_bytes + _ROW_BYTES + _COLUMN_BYTES * len(columns))
    if top.limit > most:
        yield (
            f"top.limit = {top.limit}: one record has the whole ranking, and keys may have input.max_key_bytes = {key_bytes:,}; "
            f"use {most:,} or fewer, or lower input.max_key_bytes"
        )
    if not grouped:
        yield "top: with input.key = [] there is one row, and nothing to rank; leave it out"
    if not repeats:
        yield (
            "top: a trigger of this privacy.strategy publishes the keys that are new, so a ranking would lack the others; use "
            "another strategy"
        )
