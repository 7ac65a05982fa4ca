"""The evaluation of one expression over many records: columns of values in, a column out.

A record is evaluated with the types of its own values: no type is declared, and none is guessed from other records. So the result
for a record is the same in any batch, in any order and on any worker. Records whose values have the same types are evaluated
together. A record for which the expression fails has a Reason; it never fails the others.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.expressions.connection import Engine
from susurrus.agents.expressions.growth import MAX_BYTES, MAX_LIST_TEXT_BYTES, MAX_RESULT, MAX_TEXT_BYTES
from susurrus.agents.expressions.kinds import BLOB, NULL, TEXT, Kinds, Reasons, array, groups, readable, written
from susurrus.agents.expressions.language import Expression
from susurrus.mechanisms.errors import RetryableRefusal
from susurrus.topics.records.reason import Reason

_AS_IT_IS: Final = frozenset(
    (
        "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "DOUBLE", "VARCHAR",
        '"NULL"', "NULL",
    )
)  # fmt: skip
_NULL: Final = ('"NULL"', "NULL")
_QUERIES: Final = 512
"""Prepared texts of one expression that are kept, one for each combination of kinds."""
_BATCH: Final = "batch"
"""What the engine calls the records (connection.py)."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression for fields of certain types. fields: as the engine reads them of a table. value: the expression. known: tells a
    null from a failure. convert: what is still to be done with a value. fixed, by_text: the bytes that one record needs at most,
    without its texts and for each byte of the longest one."""

    fields: str
    value: str
    known: str
    convert: Callable[[Any], Any] | None
    fixed: int
    by_text: int

    def values_of(self, table: str = _BATCH) -> str:
        """The query for the values."""
        return _selected(self.value, self.fields, table)

    def known_of(self, table: str = _BATCH) -> str:
        """The query for what a null is: true for one that the expression results in."""
        return _selected(self.known, self.fields, table)

    def at_once(self, longest: int) -> int:
        """How many records one evaluation may be of, whose texts have at most so many bytes."""
        return max(1, MAX_BYTES // (self.fixed + self.by_text * longest))


class Evaluation:
    """Evaluates one expression. boolean: it is a condition; what is neither a boolean nor null fails. listed: it results in lists
    of texts, and a value is a list of str and None; what is neither a list nor null fails.

    engine: one that nobody else uses at the same time; by default one of its own, which takes 5 MB.
    """

    def __init__(
        self, expression: Expression, *, boolean: bool = False, listed: bool = False, engine: Engine | None = None
    ) -> None:
        self.expression = expression
        self._boolean, self._listed = boolean, listed
        self._longest = MAX_LIST_TEXT_BYTES if listed else MAX_TEXT_BYTES
        self.engine = Engine() if engine is None else engine
        self._text = expression.renamed({path: f"f{index}" for index, path in enumerate(expression.fields)})
        self._queries: OrderedDict[Kinds, Query | None] = OrderedDict()

    def evaluate(self, columns: Sequence[Sequence[Any]], rows: int) -> tuple[list[Any], Reasons]:
        """The values of ``rows`` records, None where null or failed; and uint8[rows], why a record failed (0: it did not).

        columns: one for each of the expression's fields, UNSET where absent.
        """
        values: list[Any] = [None] * rows
        reasons = np.zeros(rows, np.uint8)
        columns = [readable(column) for column in columns]
        for kinds, group in groups(columns, rows, reasons, self._longest):
            whole = len(group) == rows
            parts = [column if whole else [column[row] for row in group.tolist()] for column in columns]
            found, failed = self._evaluate(kinds, parts, len(group))
            if whole:
                values = found
            else:
                for row, value in zip(group.tolist(), found, strict=True):
                    values[row] = value
            reasons[group[failed]] = Reason.EXPRESSION_FAILED
        return values, reasons

    def _evaluate(
        self, kinds: Kinds, columns: Sequence[Sequence[Any]], rows: int
    ) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        """Values of records with fields of the same types, and which of them failed."""
        query = self.query(kinds)
        if query is None:
            return [None] * rows, np.ones(rows, np.bool_)
        arrays = {f"c{index}": array(kind, columns[index]) for index, kind in enumerate(kinds) if kind != NULL}
        arrays["row"] = np.arange(rows)
        step = self._at_once(query, kinds, columns)
        if step >= rows:
            return self._run(query, arrays)
        values: list[Any] = []
        failed = np.zeros(rows, np.bool_)
        for start in range(0, rows, step):
            piece = {name: array[start : start + step] for name, array in arrays.items()}
            found, failed[start : start + step] = self._run(query, piece)
            values += found
        return values, failed

    def _at_once(self, query: Query, kinds: Kinds, columns: Sequence[Sequence[Any]]) -> int:
        """How many of these records one query may evaluate. Long texts make it fewer, which changes no result."""
        texts = [column for kind, column in zip(kinds, columns, strict=True) if kind in (TEXT, BLOB)]
        longest = min(self._longest, 4 * max((max(map(len, column)) for column in texts), default=0))
        return query.at_once(longest)

    def _run(self, query: Query, arrays: dict[str, Any]) -> tuple[list[Any], npt.NDArray[np.bool_]]:
        rows = len(arrays["row"])
        try:
            values: list[Any]
            if self._listed:
                values = self.engine.fetch_lists(query.values_of(), arrays)
                nulls = np.flatnonzero([value is None for value in values])
            else:
                found = self.engine.fetch(query.values_of(), arrays)
                values = found.tolist()
                nulls = np.flatnonzero(np.ma.getmaskarray(found))
            failed = np.zeros(rows, np.bool_)
            if len(nulls):
                known = self.engine.fetch(query.known_of(), {name: array[nulls] for name, array in arrays.items()})
                failed[nulls] = ~np.ma.filled(known, False).astype(np.bool_)
        except Exception as error:
            # What TRY does not catch, such as the limit of memory or a text that is no Unicode. Whatever it is, the records that
            # are not to blame must not suffer, neither now nor later.
            self.engine.recover()
            if rows == 1:
                if isinstance(error, self.engine.short):
                    raise _short() from None
                return [None], np.ones(1, np.bool_)
            half = rows // 2
            first = self._run(query, {name: array[:half] for name, array in arrays.items()})
            second = self._run(query, {name: array[half:] for name, array in arrays.items()})
            return first[0] + second[0], np.concatenate((first[1], second[1]))
        if any(type(value) is str and len(value) > MAX_RESULT for value in values):
            for row, value in enumerate(values):
                if type(value) is str and len(value) > MAX_RESULT:
                    values[row], failed[row] = None, True
        if query.convert is not None:
            values = [None if value is None else query.convert(value) for value in values]
        return values, failed

    def query(self, kinds: Kinds) -> Query | None:
        """The query for fields of these types; None where the expression cannot be used with them."""
        if kinds in self._queries:
            self._queries.move_to_end(kinds)
            return self._queries[kinds]
        query = self._queries[kinds] = self._prepared(kinds)
        if len(self._queries) > _QUERIES:
            self._queries.popitem(last=False)
        return query

    def _prepared(self, kinds: Kinds) -> Query | None:
        arrays = {f"c{index}": array(kind, ()) for index, kind in enumerate(kinds) if kind != NULL}
        arrays["row"] = np.arange(0)
        fields = ", ".join(f"{written(kind, index)} AS f{index}" for index, kind in enumerate(kinds)) or "NULL"
        try:
            kind = self.engine.kind(_selected(self._text, fields, _BATCH), arrays)
        except self.engine.short:
            self.engine.recover()
            raise _short() from None
        except self.engine.refused:
            self.engine.recover()
            return None
        value, convert = _lists(kind, self._text) if self._listed else _readable(kind, self._text)
        if value is None or (self._boolean and kind not in ("BOOLEAN", *_NULL)):
            return None
        # Bytes may need more than the texts did when the expression was read.
        blobs = {path for kind, path in zip(kinds, self.expression.fields, strict=True) if kind == BLOB}
        most, fixed = (self.expression.bytes_of(longest, blobs) for longest in (self._longest, 0))
        if most > MAX_BYTES:
            return None
        return Query(
            fields,
            value,
            f"({self._text}) IS NULL",
            convert,
            fixed,
            # The bound grows with the texts as a straight line does, or slower.
            -(-(most - fixed) // self._longest),
        )


def _selected(expression: str, fields: str, table: str) -> str:
    return f"SELECT TRY({expression}) AS v FROM (SELECT {fields} FROM {table})"


def _short() -> RetryableRefusal:
    """One record needs far less than the engine may take (growth.py). So it is the machine that is short, and decides nothing."""
    return RetryableRefusal(
        "there is not enough memory to evaluate an expression for one record",
        "give the worker more memory; the record waits meanwhile",
    )


def _lists(kind: str, text: str) -> tuple[str | None, Callable[[Any], Any] | None]:
    """The same for a list of texts."""
    return (text if kind in ("VARCHAR[]", *_NULL) else None), None


def _readable(kind: str, text: str) -> tuple[str | None, Callable[[Any], Any] | None]:
    """The expression as a type that Python's scalars have, and what is still to do; None for what is no scalar.

    Decimals become numbers; dates, times and intervals become texts, and bytes their hexadecimal digits.
    """
    if kind in _AS_IT_IS:
        return text, None
    if kind == "FLOAT" or kind.startswith("DECIMAL"):
        return f"CAST(({text}) AS DOUBLE)", None
    if kind in ("HUGEINT", "UHUGEINT"):
        return f"CAST(({text}) AS VARCHAR)", int
    if kind == "BLOB":
        return f"lower(hex({text}))", None
    if kind in ("DATE", "TIME", "TIMESTAMP", "INTERVAL"):
        return f"CAST(({text}) AS VARCHAR)", None
    return None, None
