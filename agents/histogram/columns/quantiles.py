"""``kind = "quantiles"`` and ``kind = "spread"``: quantiles and the interquartile range of a field, from counts by bucket.

Both are computed from one measured column, `BucketCounts`: B counts for each key, of which a record adds to one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, Kept
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.histogram.quantiles import QuantileRows, quantile, spread
from susurrus.topics.histogram import ColumnRows
from susurrus.topics.records.raw import BucketField


class _OfBuckets(ColumnKind):
    """A column that is computed from the buckets of a field."""

    takes_field = True
    additive = False

    @property
    def buckets(self) -> BucketField:
        """The field and its borders, which the settings' checks have asked for."""
        assert isinstance(self.field, BucketField)
        return self.field


class BucketCounts(_OfBuckets):
    """Records by bucket; no kind of its own in the configuration. Its numbers are B counts, and measured as cumulative ones."""

    kind = "cells"
    measures = "cells"

    @property
    def width(self) -> int:
        """B; 1 where the settings' checks have yet to ask for borders."""
        return self.field.highest + 1 if isinstance(self.field, BucketField) else 1

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """int64[cells, B]: kept records by bucket."""
        assert values is not None
        owner = np.repeat(np.arange(len(kept.starts)), kept.counts())
        flat = owner * self.width + values[kept.rows]
        size = len(kept.starts) * self.width
        return np.bincount(flat, minlength=size).astype(np.int64).reshape(len(kept.starts), self.width)

    def totals(self, sums: Int64s) -> Int64s:
        """Counts up to each border."""
        return np.cumsum(sums, axis=1)


class _Computed(_OfBuckets):
    """What both kinds share: the measured column, and rows with intervals."""

    measures = "cells"
    takes_buckets = True
    has_interval = True

    def measured(self) -> tuple[ColumnKind, ...]:
        """Counts by bucket, which columns of one field, range and scale share."""
        return (BucketCounts(name=f"{self.configured}/buckets", field=self.field),)

    @property
    def configured(self) -> str:
        """The column's name in the configuration."""
        return self.name

    def compute(self, counts: Int64s, scale: Floats, borders: Floats) -> QuantileRows:
        """Estimates and intervals of int64[n, B] cumulative counts. scale: float64[n], the standard error of the last one."""
        raise NotImplementedError

    def rows(self, estimates: Int64s, std_errors: Floats, direct: tuple[Int64s, Floats] | None = None) -> ColumnRows:
        """Estimates with their intervals. Post-processing only; counts by bucket are never calibrated, so nothing stands beside."""
        found = self.compute(estimates, std_errors[:, -1], np.array(self.buckets.borders, np.float64))
        return ColumnRows(
            name=self.name, estimate=found.estimate, std_error=found.std_error, interval=(found.lower, found.upper)
        )


@dataclass(frozen=True, kw_only=True)
class Quantiles(_Computed):
    """Quantiles of a field. at: which ones, between 0 and 1. Each becomes a column of the output: see `parts`."""

    kind = "quantiles"
    meaning = "of `field`, each with an interval, from counts by bucket"
    takes = ("at",)

    at: tuple[float, ...] = ()
    column: str = ""
    """Of one quantile among several: the name of the column that asks for them."""

    @property
    def configured(self) -> str:
        """The name of the column that asks for it."""
        return self.column or self.name

    def problems(self, records: int) -> Iterator[str]:
        """Every share lies between 0 and 1, once."""
        wrong = [share for share in self.at if not 0 < share < 1]
        if wrong or not self.at or len(set(self.at)) < len(self.at):
            yield "at must be numbers between 0 and 1, each once; for example at = [0.5, 0.95]"

    def parts(self) -> "tuple[Quantiles, ...]":
        """One column for each quantile. A single one has the column's own name; several are ``name_p50``, ``name_p99_9``."""
        if len(self.at) < 2:
            return (self,)
        return tuple(
            replace(self, name=f"{self.name}_p{percent(share)}", at=(share,), column=self.name) for share in self.at
        )

    def compute(self, counts: Int64s, scale: Floats, borders: Floats) -> QuantileRows:
        """The quantile."""
        return quantile(counts, scale, borders, self.at[0])


class InterquartileRange(_Computed):
    """The interquartile range of a field."""

    kind = "spread"
    meaning = "the interquartile range of `field` with its interval, from counts by bucket"

    def compute(self, counts: Int64s, scale: Floats, borders: Floats) -> QuantileRows:
        """The range."""
        return spread(counts, scale, borders)


def percent(share: float) -> str:
    """0.5 is "50", 0.999 is "99_9"."""
    return f"{100 * share:.10g}".replace(".", "_")
