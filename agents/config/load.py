"""Reads a configuration: a TOML file, the variables of the environment that override it, and secrets kept elsewhere.

pydantic-settings cannot read the variables: it ignores a misspelt section, and it cannot name a client's property, because such
names have dots.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from susurrus.agents.config import secrets
from susurrus.agents.finding import Finding
from susurrus.mechanisms.errors import ConfigurationError

ENVIRONMENT_PREFIX: Final = "SUSURRUS__"
_WITH_SECRETS: Final = (("kafka",), ("input", "kafka"), ("input", "registry"), ("output", "registry"))
"""Sections with properties of a client, whose values may be secrets kept elsewhere."""


def read(path: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The tables of a TOML file with ``SUSURRUS__SECTION__FIELD`` of the environment laid over them.

    Without a path everything comes from the environment. Raises ConfigurationError for a file that is not TOML.
    """
    if path is None:
        return _overlaid({}, environ)
    try:
        return _overlaid(tomllib.loads(path.read_text(encoding="utf-8")), environ)
    except FileNotFoundError:
        raise ConfigurationError(f'config="{path}": no such file', "give the path of a TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f'config="{path}": cannot be read ({error})', "check its permissions and encoding"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f'config="{path}": not valid TOML: {error}', "correct that line") from None


def resolved(
    data: Mapping[str, Any], directory: Path, environ: Mapping[str, str], missing: list[Finding]
) -> dict[str, Any]:
    """A copy of the tables with the secrets that files and variables keep. What is wrong with these is added to ``missing``."""
    copied = dict(data)
    for section in _WITH_SECRETS:
        table = copied
        for name in section:
            if not isinstance(table.get(name), Mapping):
                break
            table[name] = dict(table[name])  # the caller's tables stay as they are
            table = table[name]
        else:
            if isinstance(table.get("properties"), Mapping):
                table["properties"] = _flattened(table["properties"])
                _resolve(table["properties"], ".".join((*section, "properties")), directory, environ, missing)
    return copied


def _flattened(properties: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names from nested tables, which TOML makes of ``security.protocol = "SSL"`` without quotes."""
    flat: dict[str, Any] = {}
    for name, value in properties.items():
        if isinstance(value, Mapping) and not set(value) <= {"file", "env"}:
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _resolve(
    properties: dict[str, Any], place: str, directory: Path, environ: Mapping[str, str], missing: list[Finding]
) -> None:
    """Put the values of files and variables into the properties."""
    for name, value in properties.items():
        try:
            properties[name] = secrets.resolve(value, f'{place}."{name}"', directory, environ)
        except ConfigurationError as problem:
            missing.append(Finding("secrets", "unknown", problem.text, problem.action))
            properties[name] = ""


def _overlaid(data: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The file's tables with ``SUSURRUS__A__B=value`` put at a.b; lists and tables are written as JSON."""
    for variable in sorted(environ):
        if not variable.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        parts = [part.lower() for part in variable[len(ENVIRONMENT_PREFIX) :].split("__")]
        if tuple(parts[:-2]) in _WITH_SECRETS and parts[-2] == "properties":
            parts[-1] = parts[-1].replace("_", ".")  # clients' names have dots, which a shell does not allow
        table = data
        for depth, part in enumerate(parts[:-1]):
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigurationError(
                    f"{variable}: {'.'.join(parts[: depth + 1])} is not a section", "name a field of one"
                )
        value: Any = environ[variable]
        if value.lstrip()[:1] in ("[", "{"):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise ConfigurationError(
                    f"{variable}: not valid JSON ({error.msg})", "write lists and tables as JSON"
                ) from None
        table[parts[-1]] = value
    return data
