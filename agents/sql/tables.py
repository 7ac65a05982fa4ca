"""A statement and the other settings joined: the tables that one TOML file would hold.

The statement says what is published; the file and the environment say how the pipeline runs. Neither overrides the other.
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from susurrus.agents.sql.source import Span, StatementText
from susurrus.agents.sql.statement import Statement, statement
from susurrus.agents.types.durations import parse_duration, parse_instant
from susurrus.mechanisms.errors import ConfigurationError

_COUNTED: Final = re.compile(r'(?:column (\d+)(?: \("[^"]*"\))?(?:: (\w+)(?= = |: ))?|([\w.]+), number (\d+))')
"""How a line begins that is about a column, or about an entry of another list; people count from 1."""


def read(path: Path) -> Statement:
    """The statement in a file. Raises ConfigurationError."""
    try:
        return statement(StatementText(path.name, path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigurationError(f'sql="{path}": no such file; give the path of a file with one SELECT') from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f'sql="{path}": cannot be read ({error}); check its permissions and encoding'
        ) from None


def joined(
    said: Statement, others: Mapping[str, Any], *, name: str, config: Path | None, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The statement's settings and the others in one set of tables. name: of the pipeline, where the others give none.

    others: from the file ``config`` and the environment ``environ``. Raises ConfigurationError for what both give differently.
    """
    tables = {section: dict(table) if isinstance(table, Mapping) else table for section, table in others.items()}
    problems = []
    for place, value in {"pipeline.kind": "histogram", **said.settings}.items():
        section, _, field = place.partition(".")
        table = tables if not field else tables.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"{section}: write a section (a TOML table)")
        old = table.setdefault(field or section, value)
        if not _equal(old, value):
            variable = next((v for v in environ if v.upper() == f"SUSURRUS__{place.upper().replace('.', '__')}"), "")
            other = variable or (config.name if config is not None else "the environment")
            problems.append(_conflict(place, old, value, said.places.get(place), other))
    if problems:
        raise ConfigurationError("\n".join(problems))
    pipeline = tables["pipeline"]
    return {**tables, "pipeline": {"name": name, **pipeline}}


def shown(said: Statement, problem: ConfigurationError) -> ConfigurationError:
    """A problem of the settings, and below each line about a setting of the statement its place there."""
    lines: list[str] = []
    given = str(problem).splitlines()
    for index, line in enumerate(given):
        if line.startswith("    "):
            continue  # the picture of an expression, whose place is shown in the statement
        lines.append(line)
        name = _place_of(line)
        while name and name not in said.places:
            name = name.rpartition(".")[0]
        if name:
            caret = given[index + 2] if given[index + 2 : index + 3] and given[index + 2].strip() == "^" else None
            span = said.places[name]
            place, picture = (span if caret is None else span.at(caret.index("^") - 4)).shown()
            lines += [f"| {place}", picture]
    return ConfigurationError("\n".join(lines))


def _place_of(line: str) -> str:
    """The setting that a line is about, dotted, as the statement's places have it."""
    if (found := _COUNTED.match(line)) is None:
        return line.split(": ")[0].split(" = ")[0].split(" (")[0]
    if found[1] is None:
        return f"{found[3]}.{int(found[4]) - 1}"
    return f"columns.{int(found[1]) - 1}" + (f".{found[2]}" if found[2] else "")


def _conflict(place: str, old: Any, value: Any, span: Span | None, other: str) -> str:
    if span is None:
        return f'{place}: a statement is a pipeline of kind "{value}", and {other} says "{old}"; leave one of them out'
    where, picture = span.shown()
    both = "another value" if isinstance(value, list) else f"{value} there and {old} in {other}"
    return f"{place}: given in {where} and in {other}: {both}; keep one of them\n{picture}"


def _equal(one: Any, other: Any) -> bool:
    """Whether two values mean the same: a variable writes 6 as a text, and a day is 24h, too."""
    if isinstance(one, list) or isinstance(other, list):
        return bool(one == other)
    return bool(one == other) or any(_read(reader, one) == _read(reader, other) for reader in _READERS)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    return float(value)


_READERS = (_number, parse_duration, parse_instant)


def _read(reader: Any, value: Any) -> Any:
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return reader(value)
    return object()  # equals nothing
