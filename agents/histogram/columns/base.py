"""What every kind of column has, and what it is given to aggregate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.histogram.per_key import segment_sums
from susurrus.topics.histogram import ColumnRows
from susurrus.topics.records.raw import Measurable, ValueField
from susurrus.topics.wire.json_rows import Numbers


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
    takes_buckets: ClassVar[bool] = False
    """Whether the field is read into buckets: then ``lower`` and ``upper`` must be configured, ``buckets`` and ``scale`` may be."""
    takes_values: ClassVar[bool] = False
    """Whether the field is compared with declared values: then ``values`` must be configured, and the field may be any scalar."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Settings of this kind alone, which are fields of the class with the same names. They must be configured."""
    has_interval: ClassVar[bool] = False
    """Whether its rows have the ends of an interval that is not that of the normal distribution."""
    post_processing: ClassVar[str] = ""
    """What is done to the estimate after its noise, in words."""
    measures: ClassVar[Literal["count", "users", "sum", "cells"]] = "count"
    """What the mechanism takes the column for, where it is measured itself. What is computed from a count measures that."""
    additive: ClassVar[bool] = True
    """Whether its numbers add up over keys."""
    divisor: ClassVar[int | None] = None
    """For a mean: which of the measured columns it is divided by, and weighed by over several keys."""

    purpose: ClassVar[str] = ""
    """What `least_records` of a key are needed for, in words."""

    name: str
    field: Measurable | None = None
    weight: float = 1.0
    """What it has of the noise budget, against other columns."""

    @property
    def width(self) -> int:
        """How many numbers it has where it is measured itself."""
        return 1

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

    def parts(self) -> "tuple[ColumnKind, ...]":
        """The columns that are published of it."""
        return (self,)

    def measured(self) -> "tuple[ColumnKind, ...]":
        """The columns that the mechanism measures for this one."""
        return (self,)

    def from_count(self) -> "ColumnKind | None":
        """The same numbers, computed from a count of records that is measured anyway; None where there is no such way."""
        return None

    @property
    def centre(self) -> float | None:
        """What is taken off each value before it is added up, in the field's unit; None where nothing is."""
        return None

    def formula(self, measured: Sequence[str]) -> str | None:
        """How it is computed from the measured columns of these names; None where it is one of them."""
        return None

    def least_records(self, std_errors: Floats) -> float | None:
        """About how many records a key needs for its number to mean anything; None for kinds that mean something with few.

        std_errors: [len(measured())], in grid units.
        """
        return None

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """int64[cells], or [cells, width]: what the kept records add to each cell. values: int64[n] of ``field``, None without
        one."""
        return kept.counts()

    def totals(self, sums: Int64s) -> Int64s:
        """int64[n, width]: what a release says of int64[n, width] sums, but for the noise."""
        return sums

    def rows(self, estimates: Int64s, std_errors: Floats, direct: tuple[Int64s, Floats] | None = None) -> ColumnRows:
        """The column of a release, from [n, sources] of the measured ones, in grid units.

        direct: both from the stream alone, where it differs.
        """
        estimate, error = self.publish(estimates, std_errors)
        beside = None if direct is None else self.publish(*direct)
        return ColumnRows(name=self.name, estimate=estimate, std_error=error, direct=beside)

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Estimate and standard error, [n] each, in the field's unit.

        estimates, std_errors: [n, len(measured())], in grid units.
        """
        return estimates[:, 0], std_errors[:, 0]


class ColumnOfField(ColumnKind):
    """A column of one numeric field. It is no kind itself."""

    takes_field = True

    @property
    def value(self) -> ValueField:
        """The field, which the settings' checks have asked for."""
        assert isinstance(self.field, ValueField)
        return self.field
