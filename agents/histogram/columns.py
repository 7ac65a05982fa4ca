"""The kinds of published columns, one class each.

    decode     ``field``: the numeric field of a raw record, which the decoder clamps and rounds to grid units
    check      ``problems``
    measure    ``measured``: the columns that the mechanism measures for it, with their ``measures``, ``bound`` and ``grid``
    aggregate  ``aggregate``: what the kept records of one interval add to each cell, exact integers
    publish    ``publish``: estimate and standard error in the field's unit, from the measured ones

A new kind is one class and its place in ``COLUMNS``. Columns that are measured alike are measured once: a mean of columns that
are published anyway is post-processing and costs no second noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.histogram.per_key import segment_sums
from susurrus.mechanisms.histogram.plan import MAX_BOUND
from susurrus.topics.histogram import ColumnRows
from susurrus.topics.records.numbers import steps_within
from susurrus.topics.records.raw import ValueField
from susurrus.topics.wire.json_rows import Numbers

MAX_USERS_PER_WINDOW: Final = 2**32
"""Users of one window for which sums are guaranteed to fit 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Records of one interval within their users' caps, those of one cell (window and key) next to each other.

    rows: intp[k], where the kept records are in the other columns. starts: int64[cells], where each cell begins in ``rows``; a cell
    of which nothing is kept ends where it begins. first: bool[n], whether the record is the first kept one of its user and key in
    the window. values: int64[n, fields], in grid units.
    """

    rows: npt.NDArray[np.intp]
    starts: Int64s
    first: npt.NDArray[np.bool_]
    values: Int64s

    def counts(self) -> Int64s:
        """int64[cells]: records of each cell."""
        return np.diff(self._indptr)

    def total(self, column: Int64s) -> Int64s:
        """int64[cells]: the sums of int64[n] ``column`` over the kept records of each cell."""
        return segment_sums(column[self.rows], self._indptr)

    @property
    def _indptr(self) -> Int64s:
        return np.append(self.starts, len(self.rows))


@dataclass(frozen=True, kw_only=True)
class ColumnKind:
    """One column as it is configured. The defaults are those of a count of records."""

    kind: ClassVar[str]
    meaning: ClassVar[str]
    """The column's description in the reference of settings, in a few words."""
    takes_field: ClassVar[bool] = False
    """Whether ``field`` and its bounds must be configured, and ``grid`` may be."""
    post_processing: ClassVar[str] = ""
    """What is done to the estimate after its noise, in words."""
    measures: ClassVar[Literal["count", "users", "sum"]] = "count"
    """What the mechanism takes the column for, where it is measured itself."""
    divisor: ClassVar[int | None] = None
    """Which of the measured columns it is divided by; None where its numbers add up over keys."""

    name: str
    field: ValueField | None = None

    @property
    def bound(self) -> int:
        """Largest absolute value that one record adds, in grid units."""
        return 1

    @property
    def grid(self) -> float:
        """The published value of one grid unit."""
        return 1.0

    def problems(self, records: int) -> Iterator[str]:
        """What is wrong with field, bound and grid. records: m * C, the product of what can be kept per key and per user."""
        yield from ()

    def measured(self) -> "tuple[ColumnKind, ...]":
        """The columns that the mechanism measures for this one."""
        return (self,)

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """int64[cells]: what the kept records add to each cell. values: int64[n] of ``field``; None where there is none."""
        return kept.counts()

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Estimate and standard error, [n] each, in the field's unit.

        estimates, std_errors: [n, len(measured())], in grid units.
        """
        return estimates[:, 0], std_errors[:, 0]


class Count(ColumnKind):
    """Kept records."""

    kind = "count"
    meaning = "kept records"


class Users(ColumnKind):
    """Distinct users."""

    kind = "users"
    meaning = "distinct users"
    measures = "users"

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """A user counts with its first kept record of the key."""
        return kept.total(kept.first.astype(np.int64))


class _OfField(ColumnKind):
    """A column of one numeric field."""

    takes_field = True

    @property
    def value(self) -> ValueField:
        """The field, which the settings' checks have asked for."""
        assert self.field is not None
        return self.field


class Sum(_OfField):
    """The sum of a field."""

    kind = "sum"
    meaning = "of `field`"
    measures = "sum"

    @property
    def bound(self) -> int:
        """The field's bound in grid units."""
        return steps_within(self.value.bound, self.value.grid)

    @property
    def grid(self) -> float:
        """The field's grid."""
        return self.value.grid

    def problems(self, records: int) -> Iterator[str]:
        """The grid must fit the bound, and sums must fit 64 bits."""
        if not 1 <= self.bound <= MAX_BOUND:
            yield f"grid = {self.value.grid:g} against bound = {self.value.bound:g}; use bound / 2^24 to bound"
            return
        if self.value.lowest > self.value.highest:
            value = self.value
            lower, upper = (
                -value.bound if value.lower is None else value.lower,
                value.bound if value.upper is None else value.upper,
            )
            yield (
                f"no multiple of grid = {value.grid:g} lies between lower = {lower:g} and upper = {upper:g}; use a smaller grid"
            )
            return
        # A key sums at most users * m * bound, a whole window at most users * C * bound; the product covers both.
        room = (2**63 - 1) // (records * MAX_USERS_PER_WINDOW)
        if self.bound > room:
            fix = f"use a grid of at least {self.value.bound / room:.3g}, or lower" if room else "lower"
            yield (
                "sums could leave 64 bits (m * C * 2^32 users * floor(bound / grid) >= 2^63); "
                f"{fix} bounds.max_records_per_user"
            )

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """The sum of the field."""
        assert values is not None
        return kept.total(values)

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Scaled to the field's unit."""
        return (estimates[:, 0] * self.grid).astype(np.float64), std_errors[:, 0] * self.grid


class Mean(_OfField):
    """The mean of a field: a noisy sum over a noisy count, so slightly biased for keys with few users."""

    kind = "mean"
    meaning = "of `field`, from a sum and a count"
    divisor = 1
    post_processing = "the estimate is clamped to the same bounds, which costs nothing"

    def problems(self, records: int) -> Iterator[str]:
        """The problems of a mean are those of its sum."""
        return self.measured()[0].problems(records)

    def measured(self) -> tuple[ColumnKind, ...]:
        """A sum and a count, which may be those of other columns."""
        return Sum(name=f"{self.name}/sum", field=self.field), Count(name=f"{self.name}/count")

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Clamped to the public bounds, which is post-processing, with the standard error of a ratio (delta method). A count below
        one is taken for one."""
        total, _ = self.measured()
        count = np.maximum(estimates[:, 1], 1).astype(np.float64)
        lowest, highest = self.value.lowest * total.grid, self.value.highest * total.grid
        mean: Floats = np.clip(estimates[:, 0] * total.grid / count, lowest, highest).astype(np.float64)
        return mean, np.hypot(std_errors[:, 0] * total.grid, mean * std_errors[:, 1]) / count


COLUMNS: Final[dict[str, type[ColumnKind]]] = {column.kind: column for column in (Count, Users, Sum, Mean)}
"""Every kind by its name in the configuration."""


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
        return next(
            (of.column.name for of in self.published if of.column.divisor is None and of.sources == sources), None
        )
