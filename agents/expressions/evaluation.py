"""The evaluation of one expression over many records: columns of values in, a column out.

A record is evaluated with the types of its own values: no type is declared, and none is guessed from other records. So the result
for a record is the same in any batch, in any order and on any worker. Records whose values have the same types are evaluated
together. A record for which the expression fails has a Reason; it never fails the others.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as clock_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from susurrus.agents.expressions.connection import connect
from susurrus.agents.expressions.language import Expression
from susurrus.topics.reason import Reason

Rows = npt.NDArray[np.intp]
Reasons = npt.NDArray[np.uint8]

_NULL, _BOOLEAN, _BIGINT, _UBIGINT, _DOUBLE, _TEXT, _TIMESTAMP, _DATE, _TIME = range(9)
_KINDS: Final = {
    type(None): _NULL, type(UNSET): _NULL, bool: _BOOLEAN, int: _BIGINT, float: _DOUBLE, str: _TEXT, datetime: _TIMESTAMP,
    date: _DATE, clock_time: _TIME,
}  # fmt: skip
_CASTS: Final = {_TIMESTAMP: "TIMESTAMP", _DATE: "DATE", _TIME: "TIME"}  # they reach the engine as ISO 8601 texts
_NUMBERS: Final = {_BOOLEAN: np.bool_, _BIGINT: np.int64, _UBIGINT: np.uint64, _DOUBLE: np.float64}
_AS_IT_IS: Final = frozenset(
    (
        "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "DOUBLE", "VARCHAR",
        '"NULL"', "NULL",
    )
)  # fmt: skip
_QUERIES: Final = 512
"""Prepared texts of one expression that are kept, one for each combination of types."""
_BASE: Final = 16
"""Above every kind: kinds of several fields are the digits of one number."""


@dataclass(frozen=True, slots=True)
class _Query:
    """An expression for fields of certain types. value: the query. known: tells a null from a failure."""

    value: str
    known: str
    convert: Callable[[Any], Any] | None


class Evaluation:
    """Evaluates one expression. boolean: it is a condition; what is neither a boolean nor null fails.

    connection: an engine that nobody else uses at the same time; by default one of its own, which takes 5 MB.
    """

    def __init__(self, expression: Expression, *, boolean: bool = False, connection: Any = None) -> None:
        import duckdb  # slow to load

        self.expression = expression
        self._boolean = boolean
        self._refused: type[Exception] = duckdb.Error
        self._connection = connect() if connection is None else connection
        self._text = expression.renamed({path: f"f{index}" for index, path in enumerate(expression.fields)})
        self._queries: OrderedDict[int, _Query | None] = OrderedDict()

    def evaluate(self, columns: Sequence[Sequence[Any]], rows: int) -> tuple[list[Any], Reasons]:
        """The values of ``rows`` records, None where null or failed; and uint8[rows], why a record failed (0: it did not).

        columns: one for each of the expression's fields, UNSET where absent.
        """
        values: list[Any] = [None] * rows
        reasons = np.zeros(rows, np.uint8)
        for signature, group in _groups(columns, rows, reasons):
            whole = len(group) == rows
            parts = [column if whole else [column[row] for row in group.tolist()] for column in columns]
            found, failed = self._evaluate(signature, parts, len(group))
            if whole:
                values = found
            else:
                for row, value in zip(group.tolist(), found, strict=True):
                    values[row] = value
            reasons[group[failed]] = Reason.EXPRESSION_FAILED
        return values, reasons

    def _evaluate(
        self, signature: int, columns: Sequence[Sequence[Any]], rows: int
    ) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        """Values of records with fields of the same types, and which of them failed."""
        query = self._query(signature)
        if query is None:
            return [None] * rows, np.ones(rows, np.bool_)
        kinds = _kinds(signature, len(columns))
        arrays = {f"c{index}": _array(kind, columns[index]) for index, kind in enumerate(kinds) if kind != _NULL}
        arrays["row"] = np.arange(rows)
        return self._run(query, arrays)

    def _run(self, query: _Query, arrays: dict[str, Any]) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        rows = len(arrays["row"])
        try:
            found = self._fetch(query.value, arrays)
            values: list[Any] = found.tolist()
            failed = np.zeros(rows, np.bool_)
            nulls = np.flatnonzero(np.ma.getmaskarray(found))
            if len(nulls):
                known = self._fetch(query.known, {name: array[nulls] for name, array in arrays.items()})
                failed[nulls] = ~np.ma.filled(known, False).astype(np.bool_)
        except self._refused:
            # What TRY does not catch, such as the limit of memory: the records that are not to blame must not suffer.
            if rows == 1:
                return [None], np.ones(1, np.bool_)
            half = rows // 2
            first = self._run(query, {name: array[:half] for name, array in arrays.items()})
            second = self._run(query, {name: array[half:] for name, array in arrays.items()})
            return first[0] + second[0], np.concatenate((first[1], second[1]))
        if query.convert is not None:
            values = [None if value is None else query.convert(value) for value in values]
        return values, failed

    def _fetch(self, query: str, arrays: dict[str, Any]) -> Any:
        self._connection.register("batch", arrays)
        return self._connection.execute(query).fetchnumpy()["v"]

    def _query(self, signature: int) -> _Query | None:
        """The query for fields of these types; None where the expression cannot be used with them."""
        if signature in self._queries:
            self._queries.move_to_end(signature)
            return self._queries[signature]
        query = self._queries[signature] = self._prepared(signature)
        if len(self._queries) > _QUERIES:
            self._queries.popitem(last=False)
        return query

    def _prepared(self, signature: int) -> _Query | None:
        kinds = _kinds(signature, len(self.expression.fields))
        arrays = {f"c{index}": _array(kind, ()) for index, kind in enumerate(kinds) if kind != _NULL}
        self._connection.register("batch", {**arrays, "row": np.arange(0)})
        names = ", ".join(f"{_field(kind, index)} AS f{index}" for index, kind in enumerate(kinds))
        source = f"FROM (SELECT {names or 'NULL'} FROM batch)"
        try:
            kind = str(self._connection.execute(f"SELECT TRY({self._text}) AS v {source}").description[0][1])
        except self._refused:
            return None
        value, convert = _readable(kind, self._text)
        if value is None or (self._boolean and kind not in ("BOOLEAN", '"NULL"', "NULL")):
            return None
        return _Query(
            f"SELECT TRY({value}) AS v {source}", f"SELECT TRY(({self._text}) IS NULL) AS v {source}", convert
        )


def _groups(columns: Sequence[Sequence[Any]], rows: int, reasons: Reasons) -> list[tuple[int, Rows]]:
    """The rows by the types of their fields, without those whose fields no expression can use; these get a Reason."""
    signature: npt.NDArray[np.int64] | int = 0
    for column in columns:
        types = set(map(type, column))
        kind = _KINDS.get(next(iter(types))) if len(types) == 1 else None
        found: npt.NDArray[np.int64] | int
        if kind is not None and _in_range(kind, column):
            found = kind
        else:
            found = np.fromiter(map(_kind, column), np.int64, rows)
            np.copyto(reasons, np.maximum(-found, 0).astype(np.uint8), where=reasons == 0)
            found = np.maximum(found, 0)
        signature = signature * _BASE + found
    if isinstance(signature, int):
        return [(signature, np.arange(rows))] if rows else []
    good = np.flatnonzero(reasons == 0)
    return [(int(one), good[signature[good] == one]) for one in np.unique(signature[good])]


def _in_range(kind: int, column: Sequence[Any]) -> bool:
    """Whether all values of one type can be used as they are."""
    if kind == _BIGINT:
        return bool(min(column) >= -(2**63) and max(column) < 2**63)
    return kind != _DOUBLE or bool(np.isfinite(np.array(column, np.float64)).all())


def _kind(value: Any) -> int:
    """The kind of one value, or minus the Reason why it cannot be used."""
    kind = _KINDS.get(type(value))
    if kind is None:
        return -Reason.WRONG_TYPE
    if kind == _BIGINT and not -(2**63) <= value < 2**63:
        return _UBIGINT if 0 < value < 2**64 else -Reason.INTEGER_TOO_LARGE
    if kind == _DOUBLE and not np.isfinite(value):
        return -Reason.NOT_FINITE
    return kind


def _kinds(signature: int, fields: int) -> list[int]:
    return [signature // _BASE ** (fields - 1 - index) % _BASE for index in range(fields)]


def _array(kind: int, column: Sequence[Any]) -> npt.NDArray[Any]:
    if kind in _NUMBERS:
        return np.array(column, _NUMBERS[kind])
    texts = np.empty(len(column), object)
    texts[:] = column if kind == _TEXT else [_iso(value) for value in column]
    return texts


def _iso(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return str(value.isoformat())


def _field(kind: int, index: int) -> str:
    if kind == _NULL:
        return "NULL"
    return f"CAST(c{index} AS {_CASTS[kind]})" if kind in _CASTS else f"c{index}"


def _readable(kind: str, text: str) -> tuple[str | None, Callable[[Any], Any] | None]:
    """The expression as a type that Python's scalars have, and what is still to do; None for what is no scalar.

    Decimals become numbers; dates, times and intervals become texts.
    """
    if kind in _AS_IT_IS:
        return text, None
    if kind == "FLOAT" or kind.startswith("DECIMAL"):
        return f"CAST(({text}) AS DOUBLE)", None
    if kind in ("HUGEINT", "UHUGEINT"):
        return f"CAST(({text}) AS VARCHAR)", int
    if kind in ("DATE", "TIME", "TIMESTAMP", "INTERVAL"):
        return f"CAST(({text}) AS VARCHAR)", None
    return None, None
