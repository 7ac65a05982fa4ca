"""The kinds of published columns, one file each.

    decode     ``field``: the numeric field of a raw record, which the decoder clamps and rounds to grid units
    check      ``problems``
    measure    ``measured``: the columns that the mechanism measures for it, with their ``measures``, ``bound`` and ``grid``
    aggregate  ``aggregate``: what the kept records of one interval add to each cell, exact integers
    publish    ``publish``: estimate and standard error in the field's unit, from the measured ones

A new kind is one file and its place in ``COLUMNS``. base.py has what all kinds share; layout.py says what is measured for them.
Columns that are measured alike are measured once: a mean of columns that are published anyway is post-processing and costs no
second noise. Where a count is measured anyway, a sum may be computed from it: ``from_count``.
"""

from typing import Final

from susurrus.agents.histogram.columns.base import ColumnKind, Kept
from susurrus.agents.histogram.columns.count import Count
from susurrus.agents.histogram.columns.count_by import CountBy
from susurrus.agents.histogram.columns.layout import Layout, PublishedColumn, fields_of, layout_of
from susurrus.agents.histogram.columns.mean import Mean
from susurrus.agents.histogram.columns.quantiles import InterquartileRange, Quantiles
from susurrus.agents.histogram.columns.sum import Sum
from susurrus.agents.histogram.columns.users import Users
from susurrus.agents.histogram.columns.variance import StandardDeviation, Variance

__all__ = [
    "COLUMNS",
    "ColumnKind",
    "Count",
    "CountBy",
    "InterquartileRange",
    "Kept",
    "Layout",
    "Mean",
    "PublishedColumn",
    "Quantiles",
    "Sum",
    "Users",
    "fields_of",
    "layout_of",
]

_ALL: tuple[type[ColumnKind], ...] = (
    Count,
    Users,
    Sum,
    Mean,
    Variance,
    StandardDeviation,
    Quantiles,
    InterquartileRange,
    CountBy,
)
COLUMNS: Final[dict[str, type[ColumnKind]]] = {column.kind: column for column in _ALL}
"""Every kind by its name in the configuration."""
