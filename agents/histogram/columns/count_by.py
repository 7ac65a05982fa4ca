"""``kind = "count_by"``: records by the value of a field whose values are public, for every published key.

A key that is discovered (the url) has a column for each declared value (its statuses), and one for all others. The key is selected
by its users, whatever their records say. A record adds to one of the columns, so all of them cost what one count costs.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from susurrus.agents.expressions.language import quoted
from susurrus.agents.histogram.columns.base import ColumnKind
from susurrus.agents.histogram.columns.quantiles import BucketCounts
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.histogram.cells import covariances
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.raw import BucketField, ComputedField
from susurrus.topics.wire.json_rows import Numbers

OTHER = "other"
"""What the column of all other values is called."""
_ROUNDING = 1 / 12


@dataclass(frozen=True, kw_only=True)
class CountBy(ColumnKind):
    """Kept records by value. values: the declared ones. Each becomes a column of the output, and so do the others: see `parts`."""

    kind = "count_by"
    meaning = "kept records by the value of `field`, for each of `values` and for all others together"
    takes_field = True
    takes_values = True
    takes = ("values",)
    measures = "cells"

    values: tuple[str, ...] = ()
    column: str = ""
    """Of a part: the name of the column that asks for it."""
    place: int = 0
    """Of a part: which value it counts; ``len(values)``: the others."""

    @property
    def configured(self) -> str:
        """The name of the column that asks for it."""
        return self.column or self.name

    def parts(self) -> "tuple[CountBy, ...]":
        """``name_200``, ``name_404``, ``name_other``: a column for each value, in the order of the configuration."""
        if self.column:
            return (self,)
        return tuple(
            replace(self, name=f"{self.name}_{_label(value)}", column=self.name, place=place)
            for place, value in enumerate((*self.values, OTHER))
        )

    def measured(self) -> tuple[ColumnKind, ...]:
        """Counts by value, which all parts share."""
        return (BucketCounts(name=f"{self.configured}/values", field=self.field, weight=self.weight),)

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """The difference of two cumulative counts, which are what is released: [n, B] each. Post-processing.

        The noises of the two are correlated. Their covariance follows from B and from the standard error of the last one.
        """
        below = self.place - 1
        covariance = covariances(estimates.shape[1])
        square = covariance[self.place, self.place]
        estimate, roundings = estimates[:, self.place], 1
        if below >= 0:
            square = square + covariance[below, below] - 2 * covariance[below, self.place]
            estimate, roundings = estimate - estimates[:, below], 2
        scale = np.maximum(std_errors[:, -1] ** 2 - _ROUNDING, 0) / covariance[-1, -1]
        return estimate, np.sqrt(scale * square + roundings * _ROUNDING)


def category_field(path: "str | ComputedField", values: tuple[str, ...]) -> BucketField:
    """The field that is decoded: the place of a record's value among the values, as a text; the last place for all others and none.

    Any scalar counts by its text, so 200 and "200" are one value.
    """
    read = f"({path.expression})" if isinstance(path, ComputedField) else quoted(parse_path(path))
    cases = " ".join("WHEN '{}' THEN {}".format(value.replace("'", "''"), at) for at, value in enumerate(values))
    expression = f"CASE {read}::VARCHAR {cases} ELSE {len(values)} END"
    borders = tuple(at - 0.5 for at in range(len(values) + 2))
    return BucketField(path=ComputedField(expression), borders=borders)


def _label(value: str) -> str:
    """A value as a part of a column's name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", value)
