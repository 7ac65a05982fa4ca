"""The kinds of a record's fields: which records one query may evaluate together, and the arrays that the engine reads of them.

Records share a query iff all their fields have the same kinds, compared as a tuple: nothing is packed into one number, which more
fields than it has digits for would overflow. So which query evaluates a record depends on that record alone.
"""

from collections.abc import Sequence
from datetime import date, datetime
from datetime import time as clock_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from susurrus.agents.expressions.growth import MAX_TEXT_BYTES
from susurrus.agents.expressions.json_text import iso, json_text
from susurrus.topics.records.reason import Reason

Rows = npt.NDArray[np.intp]
Reasons = npt.NDArray[np.uint8]
Kinds = tuple[int, ...]
"""One for each field of an expression."""

NULL, BOOLEAN, BIGINT, UBIGINT, DOUBLE, TEXT, TIMESTAMP, DATE, TIME, BLOB = range(10)
_NUMBER_OF_KINDS: Final = 10
_KINDS: Final = {
    type(None): NULL, type(UNSET): NULL, bool: BOOLEAN, int: BIGINT, float: DOUBLE, str: TEXT, datetime: TIMESTAMP, date: DATE,
    clock_time: TIME, bytes: BLOB,
}  # fmt: skip
_CASTS: Final = {TIMESTAMP: "TIMESTAMP", DATE: "DATE", TIME: "TIME"}  # they reach the engine as ISO 8601 texts
_CONTAINERS: Final = frozenset((list, dict))
_NUMBERS: Final = {BOOLEAN: np.bool_, BIGINT: np.int64, UBIGINT: np.uint64, DOUBLE: np.float64}


def readable(column: Sequence[Any]) -> Sequence[Any]:
    """A column with the texts of its lists and objects; the Reason of one that has none."""
    if _CONTAINERS.isdisjoint(map(type, column)):
        return column
    return [json_text(value) if type(value) in _CONTAINERS else value for value in column]


def groups(
    columns: Sequence[Sequence[Any]], rows: int, reasons: Reasons, longest: int = MAX_TEXT_BYTES
) -> list[tuple[Kinds, Rows]]:
    """The rows by the kinds of their fields, without those whose fields no expression can use; these get a Reason. columns: as
    ``readable`` has them. longest: bytes of a text."""
    if not rows:
        return []
    kinds = [_of_column(column, rows, reasons, longest) for column in columns]
    several = [found for found in kinds if not isinstance(found, int)]
    if not several:
        return [(tuple(map(int, kinds)), np.arange(rows))]
    good = np.flatnonzero(reasons == 0)
    if not len(good):
        return []
    # Records get the number of their tuple column by column. It stays below the number of records, however many columns there are.
    number = np.zeros(len(good), np.int64)
    for found in several:
        _, number = np.unique(number * _NUMBER_OF_KINDS + found[good], return_inverse=True)
    order = np.argsort(number, kind="stable")
    members = np.split(good[order], np.cumsum(np.bincount(number))[:-1])
    return [(tuple(found if isinstance(found, int) else int(found[one[0]]) for found in kinds), one) for one in members]


def array(kind: int, column: Sequence[Any]) -> npt.NDArray[Any]:
    """Values of one kind as the engine reads them. Each is converted by itself: the kind decides the type, no neighbour does."""
    if kind in _NUMBERS:
        return np.array(column, _NUMBERS[kind])
    texts = np.empty(len(column), object)
    if kind == TEXT:
        texts[:] = column
    else:
        texts[:] = [value.hex() if kind == BLOB else iso(value) for value in column]
    return texts


def written(kind: int, index: int) -> str:
    """A field in a query, from the array ``c<index>``."""
    if kind == NULL:
        return "NULL"
    if kind == BLOB:
        return f"unhex(c{index})"
    return f"CAST(c{index} AS {_CASTS[kind]})" if kind in _CASTS else f"c{index}"


def _of_column(column: Sequence[Any], rows: int, reasons: Reasons, longest: int) -> int | npt.NDArray[np.int64]:
    """The kind of all values, or of each; the Reason of a value that cannot be used becomes the record's, if it has none."""
    types = set(map(type, column))
    kind = _KINDS.get(next(iter(types))) if len(types) == 1 else None
    if kind is not None and _usable(kind, column, longest):
        return kind
    found = np.fromiter((_kind(value, longest) for value in column), np.int64, rows)
    np.copyto(reasons, np.maximum(-found, 0).astype(np.uint8), where=reasons == 0)
    return np.maximum(found, 0)


def _usable(kind: int, column: Sequence[Any], longest: int) -> bool:
    """Whether all values of one type can be used as they are."""
    if kind == BIGINT:
        return bool(min(column) >= -(2**63) and max(column) < 2**63)
    if kind == DOUBLE:
        return bool(np.isfinite(np.array(column, np.float64)).all())
    if kind in (TEXT, BLOB):
        return max(map(len, column)) <= longest // 4
    return kind != TIMESTAMP


def _kind(value: Any, longest: int) -> int:
    """The kind of one value, or minus the Reason why it cannot be used."""
    kind = _KINDS.get(type(value))
    if kind is None:
        return -(value if isinstance(value, Reason) else Reason.WRONG_TYPE)
    if kind == BIGINT and not -(2**63) <= value < 2**63:
        return UBIGINT if 0 < value < 2**64 else -Reason.INTEGER_TOO_LARGE
    if kind == DOUBLE and not np.isfinite(value):
        return -Reason.NOT_FINITE
    if kind == TIMESTAMP:
        try:
            iso(value)
        except OverflowError:  # in UTC it is in no year that there is
            return -Reason.EXPRESSION_FAILED
    # A lone surrogate has no bytes in UTF-8; the engine refuses it.
    if kind == TEXT and len(value) > longest // 4 and len(value.encode(errors="replace")) > longest:
        return -Reason.EXPRESSION_FAILED
    if kind == BLOB and len(value) > longest:
        return -Reason.EXPRESSION_FAILED
    return kind
