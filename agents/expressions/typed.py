"""The evaluation of a pipeline's expressions over whole record batches: typed columns in, typed columns out.

fields (topics/rust/src/found.rs) ──Arrow──▶ engine ──numpy──▶ results (results.rs) ──▶ codes, numbers, times (coding.rs)

`Computation` is the definition. What is computed here is what it computes: the same queries over the same kinds of fields, and a
record's kinds are its own. What is not certain here is left to it: fields of other kinds, results of other types, and all records
of a query that breaks off.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.evaluation import Evaluation, Query
from susurrus.agents.expressions.growth import MAX_RESULT, MAX_TEXT_BYTES
from susurrus.agents.expressions.kinds import Kinds
from susurrus.agents.expressions.prepared_queries import PreparedQueries
from susurrus.topics.compiled import compiled
from susurrus.topics.raw_batches import ComputedRows
from susurrus.topics.records.fields import Path
from susurrus.topics.records.raw import ComputedField
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.scanning import FoundFields
from susurrus.topics.wire.packing import Int64s

States = npt.NDArray[np.uint8]
Spread = Callable[[bytes, bytes, bytes], None]
_PREPARED: Final = 64
"""Combinations of kinds of one expression whose queries stay prepared."""


_LEFT: Final = 255
"""In place of a Reason: the definition decides. It is larger than all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Some rows, evaluated. rows: int64. values: of each, masked where null or failed; None: they are left. failed: bool each."""

    rows: Int64s
    values: Any
    failed: npt.NDArray[np.bool_]


class TypedComputation:
    """Filters and computes as a `Computation` does, for `RawBatchDecoder`; only where ``compiled`` is there."""

    def __init__(self, computation: Computation) -> None:
        self.paths = computation.paths
        self.computed: Sequence[ComputedField] = list(computation.computed)
        number = {path: place for place, path in enumerate(self.paths)}
        where = computation.where
        self._where = None if where is None else _TypedEvaluation(where, number)
        self._evaluations = [_TypedEvaluation(one, number) for one in computation.computed.values()]

    def of(self, found: FoundFields) -> ComputedRows:
        """What the definition says of these rows, as far as it is certain."""
        state = np.zeros(len(found), np.uint8)
        state[found.scanned.left] = _LEFT
        rows = np.flatnonzero(state == 0)
        if self._where is not None:
            state[rows] = self._where.states(found, rows, _meets)
            rows = np.flatnonzero(state == 0)
        results = [compiled.Results(len(found)) for _ in self._evaluations]
        for evaluation, result in zip(self._evaluations, results, strict=True):
            # A row that is left is decided by the definition, whatever else was found of it.
            states = evaluation.states(found, rows, partial(_add, result), result.spread)
            state[rows] = np.maximum(state[rows], states)
        reason = np.where(state == _LEFT, 0, state).astype(np.uint8)
        return ComputedRows(reason=reason, rows=np.flatnonzero(state == 0), results=results)


class _TypedEvaluation:
    """One expression. numbers: of the paths of fields."""

    def __init__(self, evaluation: Evaluation, numbers: dict[Path, int]) -> None:
        self._evaluation, self._engine = evaluation, evaluation.engine
        self._paths = [numbers[path] for path in evaluation.expression.fields]
        self._prepared: OrderedDict[Kinds, PreparedQueries] = OrderedDict()

    def states(
        self, found: FoundFields, rows: Int64s, take: Callable[[_Piece], States], spread: Spread | None = None
    ) -> States:
        """uint8 of each row: its Reason, 0 where there is none, or _LEFT.

        take: takes rows with their values and returns their states. It is not given all rows that have the same fields: the
        expression is a function of these. spread: takes the places of rows that are alike.
        """
        states = np.zeros(len(found), np.uint8)
        alike = found.alike(self._paths, rows)
        some = rows if alike is None else alike[0]
        for piece in self._evaluated(found, some):
            states[piece.rows] = _LEFT if piece.values is None else take(piece)
            states[piece.rows[piece.failed]] = Reason.EXPRESSION_FAILED
        if alike is None:
            return states[rows]
        if spread is not None:
            spread(rows.tobytes(), some.tobytes(), alike[1].tobytes())
        return states[some][alike[1]]

    def _evaluated(self, found: FoundFields, rows: Int64s) -> Iterator[_Piece]:
        """The values of some rows, piece by piece; each row is in one piece."""
        groups, left = found.kinds(self._paths, rows, MAX_TEXT_BYTES)
        if len(left):
            yield _left(left)
        for kinds, members in groups:
            query = self._evaluation.query(kinds)
            if query is None:
                every = np.ones(len(members), np.bool_)
                yield _Piece(members, np.ma.array(every, mask=every), every)
            elif query.convert is not None:
                yield _left(members)
            else:
                yield from self._pieces(found, kinds, query, members)

    def _pieces(self, found: FoundFields, kinds: Kinds, query: Query, rows: Int64s) -> Iterator[_Piece]:
        table = found.table(self._paths, kinds, rows)
        step = query.at_once(table.longest)
        if step >= len(rows):
            yield self._piece(found, kinds, query, rows, table)
            return
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            yield self._piece(found, kinds, query, some, found.table(self._paths, kinds, some))

    def _piece(self, found: FoundFields, kinds: Kinds, query: Query, rows: Int64s, table: Any) -> _Piece:
        failed = np.zeros(len(rows), np.bool_)
        try:
            prepared = self._of(kinds, query)
            values = prepared.values(table)
            nulls = np.flatnonzero(np.ma.getmaskarray(values))
            if len(nulls):
                known = prepared.known(found.table(self._paths, kinds, rows[nulls]))
                failed[nulls] = ~np.ma.filled(known, False).astype(np.bool_)
        except Exception:
            # What TRY does not catch. The definition finds the records that are to blame, and no other suffers.
            self._engine.recover()
            return _left(rows)
        return _Piece(rows, values, failed)

    def _of(self, kinds: Kinds, query: Query) -> PreparedQueries:
        known = self._prepared.get(kinds)
        if known is None:
            known = self._prepared[kinds] = PreparedQueries(self._engine, query, compiled.Table.empty(bytes(kinds)))
            if len(self._prepared) > _PREPARED:
                self._prepared.popitem(last=False)[1].close()
        self._prepared.move_to_end(kinds)
        return known


def _left(rows: Int64s) -> _Piece:
    return _Piece(rows, None, np.zeros(len(rows), np.bool_))


def _meets(piece: _Piece) -> States:
    """Of a condition."""
    return np.where(np.ma.filled(piece.values, False), 0, Reason.FILTERED).astype(np.uint8)


def _add(result: Any, piece: _Piece) -> States:
    """Adds the values to the results."""
    rows, values = piece.rows, piece.values
    states = np.zeros(len(rows), np.uint8)
    good = ~np.ma.getmaskarray(values)
    if values.dtype == np.uint64:
        large = good & (np.ma.getdata(values) >= 1 << 63)
        states[large] = _LEFT
        good &= ~large
    if not good.all():
        rows, values = rows[good], values[good]
    values = np.ma.getdata(values)
    if values.dtype == np.bool_:
        result.add_booleans(rows.tobytes(), values.tobytes())
    elif values.dtype.kind == "f":
        result.add_doubles(rows.tobytes(), values.astype(np.float64).tobytes())
    elif values.dtype.kind in "iu":
        result.add_integers(rows.tobytes(), values.astype(np.int64).tobytes())
    else:
        left = np.frombuffer(result.add_texts(rows.tobytes(), values.tolist(), MAX_RESULT), np.int64)
        states[np.isin(piece.rows, left)] = _LEFT
    return states
