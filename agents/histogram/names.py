"""Finds names of fields that may not be what was meant: texts in double quotes, and names that differ in case only."""

from collections.abc import Iterator, Sequence

from susurrus.agents.config.fields import ComputedKey
from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import paths_of
from susurrus.agents.expressions.language import parse, quoted
from susurrus.agents.finding import Finding
from susurrus.agents.histogram.column_settings import ColumnSettings
from susurrus.topics.records.fields import Path
from susurrus.topics.records.raw import ComputedField


def findings_of_names(
    settings: InputSettings, columns: Sequence[ColumnSettings], scalars: Sequence[Path | ComputedField]
) -> Iterator[Finding]:
    """A warning for each. scalars: what is decoded of a record."""
    for place, text in _expressions(settings, columns):
        for name in parse(text).doubts():
            said = name.replace("'", "''")
            yield Finding(
                "settings",
                "warning",
                f"{place} reads a field called {quoted((name,))}, because names stand in double quotes",
                f"if a text is meant, write '{said}' in single quotes",
            )
    spelled: dict[tuple[str, ...], list[str]] = {}
    for path in paths_of(scalars, settings.where):
        spelled.setdefault(tuple(name.casefold() for name in path), []).append(quoted(path))
    for same in spelled.values():
        if len(same) > 1:
            yield Finding(
                "settings",
                "warning",
                f"{' and '.join(same)} are different fields, because upper and lower case matter",
                "if one is meant, write it as the records do",
            )


def _expressions(settings: InputSettings, columns: Sequence[ColumnSettings]) -> Iterator[tuple[str, str]]:
    """Where each one stands, and its text."""
    if settings.where is not None:
        yield "input.where", settings.where
    for user in settings.user_fields:
        if isinstance(user, ComputedField):
            yield "input.user", user.expression
    for of, _ in settings.lists:
        if isinstance(of, ComputedField):
            yield "input.each", of.expression
    if isinstance(settings.time_field, ComputedField):
        yield "input.time", settings.time_field.expression
    for part in settings.key:
        if isinstance(part, ComputedKey):
            yield f'input.key "{part.name}"', part.expression
    for column in columns:
        if column.expression is not None:
            yield f'column "{column.name}"', column.expression
