"""Which columns are measured, and which published columns each of them serves."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, Kept
from susurrus.agents.histogram.columns.count import Count
from susurrus.agents.histogram.columns.users import Users
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.histogram.plan import places_of
from susurrus.topics.histogram import ColumnRows
from susurrus.topics.records.raw import Measurable

Alike = tuple[type[ColumnKind], Measurable | None]
"""Columns of one kind and field are measured once."""
UnitVariances = Callable[[tuple[ColumnKind, ...]], Sequence[float] | None]
"""The noise's variance for each of these measured columns, if one record added at most 1, up to a common factor; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedColumn:
    """A column of the output. sources: where what it is computed from stands among the measured numbers."""

    column: ColumnKind
    sources: tuple[int, ...]

    def rows(self, estimates: Int64s, std_errors: Floats, direct: tuple[Int64s, Floats] | None = None) -> ColumnRows:
        """The column of a release. Post-processing only.

        estimates, std_errors: [rows, measured numbers], in grid units. direct: both from the stream alone, where it differs.
        """
        sources = list(self.sources)
        beside = None if direct is None else (direct[0][:, sources], direct[1][:, sources])
        return self.column.rows(estimates[:, sources], std_errors[:, sources], beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which fields are decoded, which columns are measured, which are published. All follow the configuration's order. Counts by
    bucket alone are measured behind the other columns."""

    values: tuple[Measurable, ...]
    measured: tuple[ColumnKind, ...]
    published: tuple[PublishedColumn, ...]

    def formula(self, column: PublishedColumn) -> str | None:
        """How a published column is computed from measured ones, by their names; None where it is one of them."""
        names = {
            place: of.name
            for of, places in zip(self.measured, self.places, strict=True)
            for place in range(places.start, places.stop)
        }
        return column.column.formula([names[source] for source in column.sources])

    def aggregate(self, kept: Kept) -> Int64s:
        """int64[cells, width]: what the kept records add to each cell."""
        sums = [
            column.aggregate(kept, None if column.field is None else kept.values[:, self.values.index(column.field)])
            for column in self.measured
        ]
        return np.column_stack(sums)

    @property
    def width(self) -> int:
        """How many numbers are measured of a key: one for each column, and B for counts by bucket."""
        return sum(column.width for column in self.measured)

    @property
    def places(self) -> tuple[slice, ...]:
        """Where the numbers of each measured column stand."""
        return places_of(column.width for column in self.measured)

    def totals(self, sums: Int64s) -> Int64s:
        """int64[n, width]: what releases would say of int64[n, width] sums if there were no noise."""
        pieces = [column.totals(sums[:, place]) for column, place in zip(self.measured, self.places, strict=True)]
        return np.concatenate(pieces, axis=1)

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
    one_record: whether one record of a user and key counts, so that the number of users is a count of records. What several columns
    need has the largest of their weights; a count that a sum makes use of, where it could be measured by itself, keeps its own.
    """
    anyway = _measured(
        (part, column.weight) for column in columns if not column.from_count() for part in column.measured()
    )
    same = {_COUNT: _USERS} if one_record and _COUNT not in anyway and _USERS in anyway else {}
    chosen = _Choice(columns, anyway, same, unit_variances).chosen()
    parts = [
        (part, of.weight)
        for column, of in sorted(zip(chosen, columns, strict=True), key=lambda pair: pair[0].measured() != (pair[0],))
        for part in column.measured()
        if column is of or part.field is not None or all(_alike(other) in anyway for other in column.measured())
    ]
    measured = _measured(parts)
    slices = places_of(part.width for part in measured.values())
    places = {name: tuple(range(of.start, of.stop)) for name, of in zip(measured, slices, strict=True)}
    return Layout(
        values=fields_of(columns),
        measured=tuple(measured.values()),
        published=tuple(
            PublishedColumn(
                column=column,
                sources=tuple(
                    place for part in column.measured() for place in places[same.get(_alike(part), _alike(part))]
                ),
            )
            for column in chosen
        ),
    )


def fields_of(columns: Sequence[ColumnKind]) -> tuple[Measurable, ...]:
    """The fields that are decoded for columns."""
    return tuple(dict.fromkeys(column.field for column in columns if column.field is not None))


def _alike(part: ColumnKind) -> Alike:
    return type(part), part.field


_COUNT, _USERS = _alike(Count(name="")), _alike(Users(name=""))


def _measured(parts: Iterable[tuple[ColumnKind, float]]) -> dict[Alike, ColumnKind]:
    """The columns that are measured for these parts, each with the largest of the weights that are given with it.

    Counts by bucket take several places. They come last, so that any other column has its own number.
    """
    found: dict[Alike, ColumnKind] = {}
    for part, weight in parts:
        first = found.setdefault(_alike(part), replace(part, weight=weight))
        found[_alike(part)] = replace(first, weight=max(first.weight, weight))
    return dict(sorted(found.items(), key=lambda item: item[1].width > 1))


@dataclass(frozen=True, slots=True)
class _Choice:
    """How each column is computed. anyway: what is measured for columns that leave no choice. same: counts by another name."""

    columns: Sequence[ColumnKind]
    anyway: dict[Alike, ColumnKind]
    same: dict[Alike, Alike]
    unit_variances: UnitVariances

    def chosen(self) -> list[ColumnKind]:
        """The columns themselves; or their numbers from a count that is measured anyway, where no more is measured for them than
        what they would measure themselves, and they are at least as exact. Argument: docs/guarantees/means.md."""
        # Whatever is chosen, as many columns are measured, with the same weights.
        sums = [(part, column.weight) for column, part in self._lacking()]
        every = _measured([*((part, part.weight) for part in self.anyway.values()), *sums])
        variances = self.unit_variances(tuple(every.values())) if sums else None
        units = {} if variances is None else dict(zip(every, map(math.sqrt, variances), strict=True))
        return [self._chosen(column, column.from_count(), units) for column in self.columns]

    def _lacking(self) -> Iterable[tuple[ColumnKind, ColumnKind]]:
        """What would have to be measured in place of sums, where a count is there."""
        for column in self.columns:
            other = column.from_count()
            if other is not None and all(
                self._of(part) in self.anyway for part in other.measured() if part.field is None
            ):
                yield from ((column, part) for part in other.measured() if part.field is not None)

    def _of(self, part: ColumnKind) -> Alike:
        return self.same.get(_alike(part), _alike(part))

    def _chosen(self, column: ColumnKind, other: ColumnKind | None, units: dict[Alike, float]) -> ColumnKind:
        """units: standard errors of measured columns for records that add at most 1; none where there is no choice."""
        if other is None:
            return column
        parts = [self._of(part) for part in other.measured()]
        if all(part in self.anyway for part in parts):
            return other
        if any(part not in units for part in parts):
            return column
        errors = [units[of] * part.bound for of, part in zip(parts, other.measured(), strict=True)]
        [unit] = (units[of] for of in parts if of not in self.anyway)
        return other if _error(other, errors) <= _error(column, [unit * column.bound]) else column


def _error(column: ColumnKind, std_errors: Sequence[float]) -> float:
    """The standard error of an additive column, given those of what it is computed from."""
    zeros = np.zeros((1, len(std_errors)), np.int64)
    return float(column.publish(zeros, np.array([std_errors]))[1][0])
