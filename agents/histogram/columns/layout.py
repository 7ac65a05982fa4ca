"""Which columns are measured, and which published columns each of them serves."""

from dataclasses import dataclass

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, Kept
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.topics.histogram import ColumnRows
from susurrus.topics.records.raw import ValueField


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
