"""From the columns an operator asks for to the columns a mechanism measures, and back to what is published.

A mean is not measured: it is computed from a noisy sum and a noisy count, and shares them with columns that are
published anyway. Values are integers from the decoder on (multiples of ``grid``); only the published number is scaled
back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from susurrus.agents.histogram.sections import ColumnSettings
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.numbers import steps_within


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueColumn:
    """A numeric field of the raw record: clamped to ±bound and rounded to multiples of grid."""

    path: str
    bound: float
    grid: float

    @property
    def limit(self) -> int:
        """Largest absolute value in grid units: floor(bound / grid)."""
        return steps_within(self.bound, self.grid)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredColumn:
    """A column the mechanism measures; ``bound`` is in grid units, ``grid`` turns its integers into the field's
    unit."""

    name: str
    kind: Literal["count", "users", "sum"]
    bound: int
    grid: float
    value: int | None
    """Index into the decoded record's values (``Settings.value_fields``); None for counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedColumn:
    """A column of the output. ``source`` indexes the measured columns; a mean also divides by the measured
    ``divisor``."""

    name: str
    source: int
    divisor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which fields are decoded, which columns are measured, which are published. All follow the configuration's
    order."""

    values: tuple[ValueColumn, ...]
    measured: tuple[MeasuredColumn, ...]
    published: tuple[PublishedColumn, ...]


def value_column(column: ColumnSettings) -> ValueColumn:
    """The numeric field of a sum or a mean. Raises ConfigurationError when field or bound is missing."""
    if column.field is None or column.bound is None:
        raise ConfigurationError(
            f'column "{column.name}": field and bound are missing; kind = "{column.kind}" needs them'
        )
    grid = column.grid if column.grid is not None else column.bound * 2.0**-10
    return ValueColumn(path=column.field, bound=column.bound, grid=grid)


def layout(columns: Sequence[ColumnSettings]) -> Layout:
    """Measure every column but means; a mean takes a measured sum and count where there are such, else brings its own.

    Sharing costs nothing: a mean of columns that are published anyway is post-processing and needs no second noise.
    """
    values = tuple(dict.fromkeys(value_column(column) for column in columns if column.kind in ("sum", "mean")))
    measured: list[MeasuredColumn] = []

    def measure(name: str, kind: Literal["count", "users", "sum"], field: ValueColumn | None) -> int:
        value = None if field is None else values.index(field)
        for position, known in enumerate(measured):
            if (known.kind, known.value) == (kind, value):
                return position
        bound, grid = (1, 1.0) if field is None else (field.limit, field.grid)
        measured.append(MeasuredColumn(name=name, kind=kind, bound=bound, grid=grid, value=value))
        return len(measured) - 1

    sources: dict[str, tuple[int, int | None]] = {}
    for column in columns:
        if column.kind != "mean":
            field = value_column(column) if column.kind == "sum" else None
            sources[column.name] = (measure(column.name, column.kind, field), None)
    for column in columns:
        if column.kind == "mean":
            total = measure(f"{column.name}/sum", "sum", value_column(column))
            sources[column.name] = (total, measure(f"{column.name}/count", "count", None))
    published = [PublishedColumn(name=c.name, source=sources[c.name][0], divisor=sources[c.name][1]) for c in columns]
    return Layout(values=values, measured=tuple(measured), published=tuple(published))
