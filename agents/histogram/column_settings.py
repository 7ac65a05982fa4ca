"""The section `[[columns]]`: one published column each, the bounds of its values, and what is wrong with them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from susurrus.agents.expressions.section import ExpressionText
from susurrus.agents.finding import Finding
from susurrus.agents.histogram.columns import COLUMNS, ColumnKind, Count, CountBy, Quantiles
from susurrus.agents.histogram.columns.count_by import category_field
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.agents.types.section import Finite, Name, PositiveFloat, Section
from susurrus.mechanisms.histogram.cells import MAX_BUCKETS
from susurrus.mechanisms.histogram.plan import MAX_WEIGHT, MIN_WEIGHT
from susurrus.mechanisms.histogram.quantiles import Scale, borders_of
from susurrus.topics.records.raw import BucketField, ComputedField, Measurable, ValueField

_IF_SET: Final = ("expression", "lower", "upper", "at", "buckets", "scale", "values")
"""Fields of a column that enter the digest only where they are set, as ``published_if_set`` says of other sections."""
DEFAULT_STEPS: Final = 2.0**10
"""Grid units of a bound where no grid is given."""
DEFAULT_BUCKETS: Final = 32
MOST_MAGNITUDE: Final = 1e130
"""No bound is above it, nor below its inverse: squares of a grid, and sums of squares, are floats of full precision then."""
_OF_FIELD = " and ".join(f"`{kind}`" for kind, column in COLUMNS.items() if column.takes_field)
_OF_NUMBER = " and ".join(
    f"`{kind}`" for kind, column in COLUMNS.items() if column.takes_field and not column.takes_values
)
_OF_VALUES = " and ".join(
    f"`{kind}`"
    for kind, column in COLUMNS.items()
    if column.takes_field and not (column.takes_buckets or column.takes_values)
)
_OF_BUCKETS = " and ".join(f"`{kind}`" for kind, column in COLUMNS.items() if column.takes_buckets)
_OWN: Final = ("at", "buckets", "scale", "values")
"""Settings that only some kinds have."""


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class ColumnSettings(Section):
    """One published column."""

    name: Name
    """Name of the column in the output."""
    kind: Annotated[str, OneOf(COLUMNS)] = Field(default=Count.kind, description=meanings(COLUMNS))
    field: str | None = Field(
        default=None, description=f"{_OF_FIELD}: the field, a dotted path; a number for all but `{CountBy.kind}`."
    )
    expression: ExpressionText | None = Field(
        default=None,
        description=f"{_OF_FIELD}: instead of `field`, one SQL expression over the record's fields, for example `bytes / 1000`: "
        "docs/expressions.md.",
    )
    bound: PositiveFloat | None = Field(
        default=None,
        description=f"{_OF_VALUES}: values are clamped to [-bound, bound] before anything else; `lower` or `upper` moves that "
        "end. The noise of a sum follows it, that of means and variances half of upper - lower. Public: choose it without "
        "looking at the data. Default: the larger of |lower| and |upper|.",
    )
    grid: PositiveFloat | None = Field(
        default=None,
        description=f"{_OF_VALUES}: values are rounded to multiples of this, so that sums are exact. Default: bound / 1024.",
    )

    lower: Finite | None = Field(
        default=None,
        description=f"{_OF_NUMBER}: values below it are clamped to it. `lower = 0` and `upper = 5000` need no `bound`. A mean's "
        "estimate is clamped to the same bounds, which is post-processing.",
    )
    upper: Finite | None = Field(
        default=None, description=f"{_OF_NUMBER}: values above it are clamped to it, as with `lower`. Default: bound."
    )
    weight: float = Field(
        default=1.0,
        ge=MIN_WEIGHT,
        le=MAX_WEIGHT,
        description="What it has of the noise budget, against the other columns: four times their weight is half of their standard "
        "error, for one unit of the bound. Public. A column that is measured for several has the largest weight of theirs. "
        "docs/sums.md.",
    )

    at: tuple[Annotated[float, Field(gt=0, lt=1)], ...] | None = Field(
        default=None,
        min_length=1,
        description=f"`{Quantiles.kind}`: which ones, between 0 and 1. One is published under the column's own name, several as "
        "`name_p50`, `name_p95`.",
        examples=[[0.5, 0.95]],
    )
    buckets: Annotated[int, Field(ge=2, le=MAX_BUCKETS)] | None = Field(
        default=None,
        description=f"{_OF_BUCKETS}: into how many buckets the range from `lower` to `upper` is divided. More are finer and have "
        f"more noise: four times as many have about 1.4 times the noise. Default: {DEFAULT_BUCKETS}.",
    )
    scale: Scale | None = Field(
        default=None,
        description=f"{_OF_BUCKETS}: `linear` for buckets of one width, `log` for borders that grow by one factor, which suits "
        "durations and sizes; then `lower` must be above 0. Default: linear.",
    )

    values: tuple[Annotated[str, Field(max_length=200), BeforeValidator(_text)], ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_BUCKETS - 1,
        description=f"`{CountBy.kind}`: the values that are counted, each in a column of its own (`name_200`), and all others in "
        "`name_other`. Public knowledge, as declared keys. A number counts by its text.",
        examples=[["200", "304", "404"]],
    )

    @property
    def magnitude(self) -> float | None:
        """L: the largest absolute value that one record adds, in the field's unit; None where no bounds say so."""
        if self.bound is not None:
            return self.bound
        return None if self.lower is None or self.upper is None else max(abs(self.lower), abs(self.upper))

    @property
    def limits(self) -> tuple[float, float] | None:
        """Where values are clamped, lower and upper; None where no bounds say so."""
        if (most := self.magnitude) is None:
            return None
        return -most if self.lower is None else self.lower, most if self.upper is None else self.upper

    @property
    def buckets_text(self) -> str | None:
        """Into which buckets the range is divided, in words; None where it is not."""
        if not COLUMNS[self.kind].takes_buckets:
            return None
        how = "by equal factors" if self.scale == "log" else "of equal width"
        return f"{self.buckets or DEFAULT_BUCKETS} buckets {how}"

    def published(self) -> dict[str, Any]:
        """What the digest covers, as JSON values: a bound that follows from lower and upper is the same as one that is written."""
        fields = self.model_dump(mode="json")
        if COLUMNS[self.kind].takes_buckets:
            fields |= {"buckets": self.buckets or DEFAULT_BUCKETS, "scale": self.scale or "linear"}
        else:
            fields["bound"] = self.magnitude
            if self.upper == self.magnitude:
                fields["upper"] = None
        if self.weight == 1:
            del fields["weight"]
        return {name: value for name, value in fields.items() if value is not None or name not in _IF_SET}

    def column(self) -> ColumnKind:
        """The column of this kind. A kind that takes a field gets one if field and bounds are there."""
        value: Measurable | None = None
        kind = COLUMNS[self.kind]
        path, bound = self.field if self.expression is None else ComputedField(self.expression), self.magnitude
        if kind.takes_values:
            value = None if path is None or self.values is None else category_field(path, self.values)
        elif kind.takes_buckets:
            borders = self._borders()
            value = None if path is None or borders is None else BucketField(path=path, borders=borders)
        elif path is not None and bound:
            value = ValueField(
                path=path,
                bound=bound,
                grid=bound / DEFAULT_STEPS if self.grid is None else self.grid,
                lower=self.lower,
                upper=None if self.upper == bound else self.upper,
            )
        own = {name: getattr(self, name) for name in kind.takes if getattr(self, name) is not None}
        return kind(name=self.name, field=value, weight=self.weight, **own)

    def _borders(self) -> tuple[float, ...] | None:
        if self.lower is None or self.upper is None:
            return None
        try:
            found = borders_of(self.lower, self.upper, self.buckets or DEFAULT_BUCKETS, self.scale or "linear")
        except ValueError:  # which `problems` says in the words of the settings
            return None
        return tuple(found.tolist())


def problems(columns: Sequence[ColumnSettings], *, records: int) -> Iterator[str]:
    """Everything that is wrong with the columns, one line each. records: m * C, as ``ColumnKind.problems`` has it."""
    names = [name for column in columns for name in _names(column)]
    if not names:
        yield f'columns: is empty; add at least [[columns]] name = "visits", kind = "{Count.kind}"'
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f'columns: two are called "{name}"; rename one'
    for number, column in enumerate(columns, start=1):
        place = f'column {number} ("{column.name}")'
        yield from (f"{place}: {problem}" for problem in _column_problems(column, records))


def _column_problems(column: ColumnSettings, records: int) -> Iterator[str]:
    kind = f'kind = "{column.kind}"'
    given = [
        name
        for name in ("field", "expression", "bound", "grid", "lower", "upper", *_OWN)
        if getattr(column, name) is not None
    ]
    if not COLUMNS[column.kind].takes_field:
        kinds = " or ".join(f'"{name}"' for name, other in COLUMNS.items() if other.takes_field)
        yield from (f"{name} has no meaning for {kind}; leave it out, or choose kind = {kinds}" for name in given)
        return
    if {"field", "expression"} <= set(given):
        yield "field and expression are both there; keep one of them"
        return
    if not {"field", "expression"} & set(given):
        yield f'field is missing; {kind} needs it, for example field = "bytes"'
    if COLUMNS[column.kind].takes_values:
        yield from _value_problems(column, given)
        return
    if COLUMNS[column.kind].takes_buckets:
        yield from _bucket_problems(column, given, records)
        return
    for name in given:
        if name in _OWN:
            kinds = " or ".join(f'"{other}"' for other in COLUMNS if _has(COLUMNS[other], name))
            yield f"{name} has no meaning for {kind}; leave it out, or choose kind = {kinds}"
    if column.magnitude is None:
        other = next(
            (f"{name} is missing" for name in ("lower", "upper") if ({"lower", "upper"} - {name}) & set(given)), ""
        )
        yield f"{other or 'bound is missing'}; {kind} needs bounds of its values, for example lower = 0, upper = 5000"
    if (limits := column.limits) is None:
        return
    if (problem := _limits_problem(column, *limits)) is not None:
        yield problem
    elif column.field is not None or column.expression is not None:
        yield from column.column().problems(records)


def counted_apart(columns: Sequence[ColumnSettings]) -> Iterator[Finding]:
    """A warning for each field that is counted by bucket more than once: each takes a share of the noise budget."""
    measured: dict[str | ComputedField, dict[BucketField, str]] = {}
    for column in columns:
        of_numbers = COLUMNS[column.kind].takes_buckets
        if of_numbers and isinstance(field := column.column().field, BucketField):
            measured.setdefault(field.path, {}).setdefault(field, column.name)
    for of, ways in measured.items():
        if len(ways) > 1:
            named = of.expression if isinstance(of, ComputedField) else of
            by = " and ".join(f'"{name}"' for name in ways.values())
            yield Finding(
                "settings",
                "warning",
                f"columns: {named} is counted by bucket {len(ways)} times, for {by}, and each takes a share of the noise budget",
                "give these columns the same lower, upper, buckets and scale: then they are computed from the same counts",
            )


def _range_problem(lower: float, upper: float) -> str | None:
    """What does not fit of lower and upper."""
    most = max(abs(lower), abs(upper))
    if not lower < upper:
        return f"lower = {lower:g} is not below upper = {upper:g}; correct one of them"
    if not 1 / MOST_MAGNITUDE <= most <= MOST_MAGNITUDE:
        return (
            f"the largest value is {most:g}, and sums and squares must be numbers between {1 / MOST_MAGNITUDE:g} and "
            f"{MOST_MAGNITUDE:g} in size; compute the field in another unit (expression)"
        )
    return None


def _limits_problem(column: ColumnSettings, lower: float, upper: float) -> str | None:
    """What does not fit of lower, upper and bound."""
    if (problem := _range_problem(lower, upper)) is not None:
        return problem
    most = max(abs(lower), abs(upper))
    if column.bound is None or most == column.bound:
        return None
    if most > column.bound:
        outside = f"lower = {lower:g}" if abs(lower) > column.bound else f"upper = {upper:g}"
        return f"{outside} lies outside [-bound, bound]; leave bound = {column.bound:g} out, or write bound = {most:g}"
    return (
        f"bound = {column.bound:g} is more than lower = {lower:g} and upper = {upper:g} need, and the noise follows it; leave "
        f"bound out, or write bound = {most:g}"
    )


def _has(kind: type[ColumnKind], name: str) -> bool:
    """Whether a kind has a setting of `_OWN`."""
    return name in kind.takes or (name in ("buckets", "scale") and kind.takes_buckets)


def _names(column: ColumnSettings) -> list[str]:
    """What is published of a column, by name."""
    return [part.name for part in column.column().parts()]


def _value_problems(column: ColumnSettings, given: Sequence[str]) -> Iterator[str]:
    """What is wrong with declared values."""
    here = f'kind = "{column.kind}"'
    yield from (
        f"{name} has no meaning for {here}; leave it out"
        for name in given
        if name not in ("field", "expression", "values")
    )
    if column.values is None:
        yield f'values is missing; {here} needs it, for example values = ["200", "404"]'
    elif len(set(column.values)) < len(column.values):
        yield "values has one twice; leave one of them out"


def _bucket_problems(column: ColumnSettings, given: Sequence[str], records: int) -> Iterator[str]:
    """What is wrong with the range, the buckets and what is asked of them."""
    kind = COLUMNS[column.kind]
    here = f'kind = "{column.kind}"'
    for name in given:
        if name in ("bound", "grid"):
            yield f"{name} has no meaning for {here}; use lower, upper and buckets"
        elif name in _OWN and not _has(kind, name):
            yield f"{name} has no meaning for {here}; leave it out"
    for name in kind.takes:
        if name not in given:
            yield f"{name} is missing; {here} needs it, for example at = [0.5, 0.95]"
    if column.lower is None or column.upper is None:
        yield f"{'lower' if column.lower is None else 'upper'} is missing; {here} needs both, for example lower = 1, upper = 60000"
        return
    if (problem := _range_problem(column.lower, column.upper)) is not None:
        yield problem
        return
    if column.scale == "log" and column.lower <= 0:
        yield f'lower = {column.lower:g} is not above 0, and scale = "log" needs that; raise it, or use scale = "linear"'
        return
    made = column.column() if set(kind.takes) <= set(given) else None
    if made is None or not {"field", "expression"} & set(given):
        return
    if made.field is None:
        yield (
            f"lower = {column.lower:g} and upper = {column.upper:g} are too close together for so many buckets; lower buckets"
        )
        return
    yield from made.problems(records)
