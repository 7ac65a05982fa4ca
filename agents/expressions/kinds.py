"""The kinds of a record's fields: which records one query may evaluate together, and the arrays that the engine reads of them.

Records share a query iff all their fields have the same kinds, compared as a tuple: nothing is packed into one number, which more
fields than it has digits for would overflow. So which query evaluates a record depends on that record alone.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from datetime import time as clock_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from susurrus.agents.expressions.growth import MAX_TEXT_BYTES
from susurrus.topics.records.reason import Reason

Rows = npt.NDArray[np.intp]
Reasons = npt.NDArray[np.uint8]
Kinds = tuple[int, ...]
"""One for each field of an expression."""

NULL, BOOLEAN, BIGINT, UBIGINT, DOUBLE, TEXT, TIMESTAMP, DATE, TIME = range(9)
_NUMBER_OF_KINDS: Final = 9
_KINDS: Final = {
    type(None): NULL, type(UNSET): NULL, bool: BOOLEAN, int: BIGINT, float: DOUBLE, str: TEXT, datetime: TIMESTAMP, date: DATE,
    clock_time: TIME,
}  # fmt: skip
_CASTS: Final = {TIMESTAMP: "TIMESTAMP", DATE: "DATE", TIME: "TIME"}  # they reach the engine as ISO 8601 texts
_NUMBERS: Final = {BOOLEAN: np.bool_, BIGINT: np.int64, UBIGINT: np.uint64, DOUBLE: np.float64}


def groups(columns: Sequence[Sequence[Any]], rows: int, reasons: Reasons) -> list[tuple[Kinds, Rows]]:
    """The rows by the kinds of their fields, without those whose fields no expression can use; these get a Reason."""
    if not rows:
        return []
    kinds = [_of_column(column, rows, reasons) for column in columns]
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
    texts[:] = column if kind == TEXT else [_iso(value) for value in column]
    return texts


def written(kind: int, index: int) -> str:
    """A field in a query, from the array ``c<index>``."""
    if kind == NULL:
        return "NULL"
    return f"CAST(c{index} AS {_CASTS[kind]})" if kind in _CASTS else f"c{index}"


def _of_column(column: Sequence[Any], rows: int, reasons: Reasons) -> int | npt.NDArray[np.int64]:
    """The kind of all values, or of each; the Reason of a value that cannot be used becomes the record's, if it has none."""
    types = set(map(type, column))
    kind = _KINDS.get(next(iter(types))) if len(types) == 1 else None
    if kind is not None and _usable(kind, column):
        return kind
    found = np.fromiter(map(_kind, column), np.int64, rows)
    np.copyto(reasons, np.maximum(-found, 0).astype(np.uint8), where=reasons == 0)
    return np.maximum(found, 0)


def _usable(kind: int, column: Sequence[Any]) -> bool:
    """Whether all values of one type can be used as they are."""
    if kind == BIGINT:
        return bool(min(column) >= -(2**63) and max(column) < 2**63)
    if kind == DOUBLE:
        return bool(np.isfinite(np.array(column, np.float64)).all())
    if kind == TEXT:
        return max(map(len, column)) <= MAX_TEXT_BYTES // 4
    return kind != TIMESTAMP


def _kind(value: Any) -> int:
    """The kind of one value, or minus the Reason why it cannot be used."""
    kind = _KINDS.get(type(value))
    if kind is None:
        return -Reason.WRONG_TYPE
    if kind == BIGINT and not -(2**63) <= value < 2**63:
        return UBIGINT if 0 < value < 2**64 else -Reason.INTEGER_TOO_LARGE
    if kind == DOUBLE and not np.isfinite(value):
        return -Reason.NOT_FINITE
    if kind == TIMESTAMP:
        try:
            _iso(value)
        except OverflowError:  # in UTC it is in no year that there is
            return -Reason.EXPRESSION_FAILED
    # A lone surrogate has no bytes in UTF-8; the engine refuses it.
    if kind == TEXT and len(value) > MAX_TEXT_BYTES // 4 and len(value.encode(errors="replace")) > MAX_TEXT_BYTES:
        return -Reason.EXPRESSION_FAILED
    return kind


def _iso(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return str(value.isoformat())
