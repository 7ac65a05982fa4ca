"""From the fields of records to the scalars that a decoder wants: records are filtered, and scalars computed.

It stands between a format, which reads the fields, and the decoder of raw records (topics/records/raw.py). Each record is
decided alone. A record that does not meet the condition is FILTERED, whatever else is wrong with its other fields.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from susurrus.agents.expressions.connection import Engine
from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.kinds import Reasons
from susurrus.agents.expressions.language import parse, quoted
from susurrus.agents.expressions.lookup import LookupCall, LookupTables, finders
from susurrus.topics.records.fields import Path, check_paths
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.raw import ComputedField
from susurrus.topics.records.reason import Reason

_Columns = dict[Path, list[Any]]


class Computation:
    """Computes ``scalars`` of records that meet ``where``. tables: the files that lookups name; None where nothing will be
    computed. Raises ValueError where one field's path leads through another's."""

    def __init__(
        self, scalars: Sequence[Path | ComputedField], where: str | None, tables: LookupTables | None = None
    ) -> None:
        self._scalars = scalars
        functions = {} if tables is None else finders(tables, lookups_of(scalars, where))
        named = {scalar: parse(scalar.expression) for scalar in scalars if isinstance(scalar, ComputedField)}
        # One engine for all: they are evaluated one after the other, and the limit of memory is theirs alone.
        self.engine = engine = Engine(functions) if named or where is not None else None
        self.where = None if where is None else Evaluation(parse(where), boolean=True, engine=engine)
        """What decides which records count; None where all do."""
        self.computed = {scalar: Evaluation(one, engine=engine) for scalar, one in named.items()}
        """What computes each scalar that is no field, in their order."""
        evaluations = [*([] if self.where is None else [self.where]), *self.computed.values()]
        plain = [scalar for scalar in scalars if not isinstance(scalar, ComputedField)]
        # Without expressions the columns are the scalars, one for each, as a format reads them.
        self.paths: list[Path] = plain
        """What a format reads of each record."""
        if evaluations:
            self.paths = list(dict.fromkeys([*plain, *(path for one in evaluations for path in one.expression.fields)]))
        check_paths(self.paths)
        self._idle = not evaluations
        self.asked: list[Path] | None = None if self.where is None else list(self.where.expression.fields)
        """The fields of the condition; None where there is none."""

    def close(self) -> None:
        """End the engine."""
        if self.engine is not None:
            self.engine.close()

    def applied(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Chunks with a column for each scalar, from chunks with a column for each path."""
        return iter(chunks) if self._idle else map(self.apply, chunks)

    def apply(self, chunk: Chunk) -> Chunk:
        """The same of one chunk, where there are expressions."""
        accepted = np.delete(np.arange(chunk.rows), list(chunk.refused))
        columns: _Columns = dict(zip(self.paths, chunk.columns, strict=True))
        refused = dict(chunk.refused)
        if self.where is not None:
            met, reasons = _evaluated(self.where, columns, len(accepted))
            reasons[(reasons == 0) & ~np.array(met, np.bool_)] = Reason.FILTERED
            for row, why in chunk.pending.items():
                at = int(np.searchsorted(accepted, row))
                if reasons[at] != Reason.FILTERED:
                    reasons[at] = why
            accepted, columns, _ = _without(accepted, columns, reasons, refused)
        computed: dict[ComputedField, list[Any]] = {}
        failed = np.zeros(len(accepted), np.uint8)
        for scalar, evaluation in self.computed.items():
            computed[scalar], reasons = _evaluated(evaluation, columns, len(accepted))
            np.copyto(failed, reasons, where=failed == 0)
        _, columns, good = _without(accepted, columns, failed, refused)
        if good is not None:
            computed = {scalar: list(compress(values, good)) for scalar, values in computed.items()}
        return replace(
            chunk,
            columns=[
                computed[scalar] if isinstance(scalar, ComputedField) else columns[scalar] for scalar in self._scalars
            ],
            refused=refused,
            pending={},
        )


def paths_of(scalars: Sequence[Path | ComputedField], where: str | None) -> list[Path]:
    """The fields that `Computation` reads, without an engine; each once."""
    plain = [scalar for scalar in scalars if not isinstance(scalar, ComputedField)]
    return list(dict.fromkeys([*plain, *(path for text in _texts(scalars, where) for path in parse(text).fields)]))


def lookups_of(scalars: Sequence[Path | ComputedField], where: str | None) -> list[LookupCall]:
    """What `Computation` asks lookup tables for; each once."""
    return list(dict.fromkeys(call for text in _texts(scalars, where) for call in parse(text).lookups()))


def _texts(scalars: Sequence[Path | ComputedField], where: str | None) -> list[str]:
    """All expressions."""
    computed = (one.expression for one in scalars if isinstance(one, ComputedField))
    return [*([] if where is None else [where]), *computed]


def expression_names(scalars: Sequence[Path | ComputedField], where: str | None) -> tuple[list[str], list[str]]:
    """(fields, texts) that expressions name, as SQL writes them: a name that is no plain word in double quotes, a text in single
    ones."""
    parsed = [parse(text) for text in _texts(scalars, where)]
    fields = dict.fromkeys(path for one in parsed for path in one.fields)
    return [quoted(path) for path in fields], list(dict.fromkeys(text for one in parsed for text in one.texts()))


def _evaluated(evaluation: Evaluation, columns: _Columns, rows: int) -> tuple[list[Any], Reasons]:
    return evaluation.evaluate([columns[path] for path in evaluation.expression.fields], rows)


def _without(
    accepted: Any, columns: _Columns, reasons: Reasons, refused: dict[int, Reason]
) -> tuple[Any, _Columns, list[bool] | None]:
    """Rows and columns of the records that have no reason, and which these are (None: all); the others' go to ``refused``."""
    if not reasons.any():
        return accepted, columns, None
    bad = np.flatnonzero(reasons)
    refused.update(zip(accepted[bad].tolist(), map(Reason, reasons[bad].tolist()), strict=True))
    good = (reasons == 0).tolist()
    kept = {path: list(compress(column, good)) for path, column in columns.items()}
    return accepted[reasons == 0], kept, good
