"""Which columns are measured, and which published columns each of them serves."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, Kept
from susurrus.agents.histogram.columns.count import Count
from susurrus.agents.histogram.columns.users import Users
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.topics.histogram import ColumnRows
from susurrus.topics.records.raw import ValueField

Alike = tuple[type[ColumnKind], ValueField | None]
"""Columns of one kind and field are measured once."""
UnitVariances = Callable[[tuple[ColumnKind, ...]], Sequence[float] | None]
"""The noise's variance for each of these measured columns, if one record added at most 1, up to a common factor; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedColumn:
    """A column of the output. sources: where what it is computed from stands among the measured columns."""

    column: ColumnKind
    sources: tuple[int, ...]

    def rows(self, estimates: Int64s, std_errors: Floats, direct: tuple[Int64s, Floats] | None = None) -> ColumnRows:
        """The column of a release. Post-processing only.

        estimates, std_errors: [rows, measured columns], in grid units. direct: both from the stream alone, where it differs.
        """
        sources = list(self.sources)
        estimate, error = self.column.publish(estimates[:, sources], std_errors[:, sources])
        beside = None if direct is None else self.column.publish(direct[0][:, sources], direct[1][:, sources])
        return ColumnRows(name=self.column.name, estimate=estimate, std_error=error, direct=beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which fields are decoded, which columns are measured, which are published. All follow the configuration's order."""

    values: tuple[ValueField, ...]
    measured: tuple[ColumnKind, ...]
    published: tuple[PublishedColumn, ...]

    def formula(self, column: PublishedColumn) -> str | None:
        """How a published column is computed from measured ones, by their names; None where it is one of them."""
        return column.column.formula([self.measured[source].name for source in column.sources])

    def aggregate(self, kept: Kept) -> Int64s:
        """int64[cells, measured columns]: what the kept records add to each cell."""
        sums = [
            column.aggregate(kept, None if column.field is None else kept.values[:, self.values.index(column.field)])
            for column in self.measured
        ]
        return np.stack(sums, axis=1)

    def divisor(self, column: PublishedColumn) -> str | None:
        """The published column by which this one is divided; None where it is not divided, or by one that is not published."""
        if column.column.divisor is None:
            return None
        sources = (column.sources[column.column.divisor],)
        return next((of.column.name for of in self.published if of.sources == sources), None)


def layout_of(
    columns: Sequence[ColumnKind], *, one_record: bool = False, unit_variances: UnitVariances = lambda measured: None
) -> Layout:
    """The layout of the configured columns. It follows from public constants alone.

    Every column that is measured itself is measured; another takes what is measured already where that is alike, else its own.
    one_record: whether one record of a user and key counts, so that the number of users is a count of records.
    """
    anyway = [part for column in columns if column.from_count() is None for part in column.measured()]
    there = {_alike(part) for part in anyway}
    same = {_COUNT: _USERS} if one_record and _COUNT not in there and _USERS in there else {}
    chosen = [_chosen(column, anyway, same, unit_variances) for column in columns]
    measured: dict[Alike, ColumnKind] = {}
    for column in sorted(chosen, key=lambda column: column.measured() != (column,)):
        for part in column.measured():
            if _alike(part) not in same:
                measured.setdefault(_alike(part), part)
    places = {alike: place for place, alike in enumerate(measured)}
    return Layout(
        values=fields_of(columns),
        measured=tuple(measured.values()),
        published=tuple(
            PublishedColumn(
                column=column,
                sources=tuple(places[same.get(_alike(part), _alike(part))] for part in column.measured()),
            )
            for column in chosen
        ),
    )


def fields_of(columns: Sequence[ColumnKind]) -> tuple[ValueField, ...]:
    """The fields that are decoded for columns."""
    return tuple(dict.fromkeys(column.field for column in columns if column.field is not None))


def _alike(part: ColumnKind) -> Alike:
    return type(part), part.field


_COUNT, _USERS = _alike(Count(name="")), _alike(Users(name=""))


def _chosen(
    column: ColumnKind, anyway: Sequence[ColumnKind], same: dict[Alike, Alike], unit_variances: UnitVariances
) -> ColumnKind:
    """The column itself, or its numbers from a count that is measured anyway, where no more is measured for them than what it would
    measure itself, and they are at least as exact. Argument: docs/guarantees/means.md."""
    other = column.from_count()
    if other is None:
        return column
    places = {_alike(part): place for place, part in enumerate(anyway)}
    parts = [same.get(_alike(part), _alike(part)) for part in other.measured()]
    lacking = [part for part in other.measured() if same.get(_alike(part), _alike(part)) not in places]
    if not lacking:
        return other
    if any(part.field is None for part in lacking):
        return column
    measured = (*anyway, *lacking)
    variances = unit_variances(measured)
    if variances is None:
        return column
    errors = {_alike(part): part.bound * math.sqrt(of) for part, of in zip(measured, variances, strict=True)}
    [own] = lacking
    by_itself = _error(column, [column.bound / own.bound * errors[_alike(own)]])
    return other if _error(other, [errors[part] for part in parts]) <= by_itself else column


def _error(column: ColumnKind, std_errors: Sequence[float]) -> float:
    """The standard error of an additive column, given those of what it is computed from."""
    zeros = np.zeros((1, len(std_errors)), np.int64)
    return float(column.publish(zeros, np.array([std_errors]))[1][0])
