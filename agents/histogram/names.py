"""Finds names of fields that may not be what was meant: texts in double quotes, names that differ in case only, and the offset,
which is no fact of its record alone.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from susurrus.agents.config.fields import ComputedKey
from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import paths_of
from susurrus.agents.expressions.language import Expression, parse, quoted
from susurrus.agents.finding import Finding
from susurrus.agents.histogram.column_settings import ColumnSettings
from susurrus.topics.records.fields import BESIDE, Path
from susurrus.topics.records.raw import ComputedField

_OFFSET: Final = (BESIDE, "offset")


def findings_of_names(
    settings: InputSettings, columns: Sequence[ColumnSettings], scalars: Sequence[Path | ComputedField]
) -> Iterator[Finding]:
    """A warning for each. scalars: what is decoded of a record."""
    for place, expression in _expressions(settings, columns):
        for name in expression.doubts():
            said = name.replace("'", "''")
            yield Finding(
                "settings",
                "warning",
                f"{place} reads a field called {quoted((name,))}, because names stand in double quotes",
                f"if a text is meant, write '{said}' in single quotes",
            )
    paths = paths_of(scalars, settings.where)
    computed = [parse(of.expression, listed=True) for of, _ in settings.lists if isinstance(of, ComputedField)]
    if _OFFSET in [*paths, *(path for expression in computed for path in expression.fields)]:
        yield Finding(
            "settings",
            "warning",
            "input: $offset counts the records of all users, so without one user's records all later records have another one, "
            "and what is made of it may change by more than one user's part",
            "leave it out where something is published, or have producers write a number of their own",
        )
    spelled: dict[tuple[str, ...], list[Path]] = {}
    for path in paths:
        spelled.setdefault(tuple(name.casefold() for name in path), []).append(path)
    for same in spelled.values():
        if len(same) > 1:  # only now the engine is asked: a pipeline without expressions starts without it
            yield Finding(
                "settings",
                "warning",
                f"{' and '.join(map(quoted, same))} are different fields, because upper and lower case matter",
                "if one is meant, write it as the records do",
            )


def _expressions(settings: InputSettings, columns: Sequence[ColumnSettings]) -> Iterator[tuple[str, Expression]]:
    """Where each one stands."""
    if settings.where is not None:
        yield "input.where", parse(settings.where)
    for user in settings.user_fields:
        if isinstance(user, ComputedField):
            yield "input.user", parse(user.expression)
    for of, _ in settings.lists:
        if isinstance(of, ComputedField):
            yield "input.each", parse(of.expression, listed=True)
    if isinstance(settings.time_field, ComputedField):
        yield "input.time", parse(settings.time_field.expression)
    for part in settings.key:
        if isinstance(part, ComputedKey):
            yield f'input.key "{part.name}"', parse(part.expression)
    for column in columns:
        if column.expression is not None:
            yield f'column "{column.name}"', parse(column.expression)
