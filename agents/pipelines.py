"""All kinds of pipelines, and the way from a configuration to one of them. A new kind is its folder and one line here."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from susurrus.agents.config import load
from susurrus.agents.config.explain import explain, quoted
from susurrus.agents.config.settings import Settings
from susurrus.agents.config.written import bare_numbers
from susurrus.agents.finding import Finding
from susurrus.agents.histogram.clock import CLOCKS
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.local.pipeline import LocalPipeline
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.stream.pipeline import StreamPipeline
from susurrus.agents.types.one_of import use_one_of
from susurrus.mechanisms.errors import ConfigurationError

KINDS: Final[Mapping[str, type[Pipeline[Any]]]] = {
    p.settings_class.kind: p for p in (HistogramPipeline, StreamPipeline, LocalPipeline)
}

_REGISTRIES: Final[Mapping[str, Mapping[str, Any]]] = {"pipeline": KINDS, "clock": CLOCKS}
"""What the field ``kind`` of a section may name. Every pipeline has these sections; agents/config/ cannot import the registries."""


def pipeline_of(settings: Settings) -> Pipeline[Any]:
    """The pipeline that runs with these settings."""
    return KINDS[settings.kind](settings)


def load_settings(
    path: Path | None,
    environ: Mapping[str, str] = os.environ,
    *,
    sql: Path | None = None,
    unresolved: list[Finding] | None = None,
) -> Settings:
    """Read ``path`` (TOML), lay ``SUSURRUS__SECTION__FIELD`` of the environment over it, resolve secrets, and check.

    Raises ConfigurationError with one line per problem, each naming the field and the fix. Without a path everything
    comes from the environment. sql: a statement that says what is published (agents/sql/). unresolved: as for
    ``settings_from``.
    """
    data = tables_of(path, environ, sql=sql)
    beside = path or sql
    directory = Path() if beside is None else beside.parent
    try:
        return settings_from(data, directory=directory, environ=environ, unresolved=unresolved, written=True)
    except ConfigurationError as problem:
        if sql is None:
            raise
        from susurrus.agents.sql import tables  # as below

        raise tables.shown(tables.read(sql), problem) from None


def tables_of(path: Path | None, environ: Mapping[str, str] = os.environ, *, sql: Path | None = None) -> dict[str, Any]:
    """What ``load_settings`` checks: the tables that one TOML file with all of it would hold. Raises ConfigurationError."""
    others = load.read(path, environ)
    if sql is None:
        return others
    from susurrus.agents.sql import tables  # brings sqlglot, which a TOML file does not need

    return tables.joined(tables.read(sql), others, name=sql.stem, config=path, environ=environ)


def settings_from(
    data: Mapping[str, Any],
    *,
    directory: Path = Path(),
    environ: Mapping[str, str] = os.environ,
    unresolved: list[Finding] | None = None,
    written: bool = False,
) -> Settings:
    """Settings of an already parsed configuration; file names in it are relative to ``directory``.

    unresolved: takes what is wrong with passwords kept elsewhere, which is otherwise an error like any other. written: by people,
    so that durations and instants must be texts; a program may give ints of milliseconds.
    """
    missing: list[Finding] = []
    resolved = load.resolved(data, directory, environ, missing if unresolved is None else unresolved)
    problems = list(map(str, missing))
    kinds = {section: _kind(resolved, section) for section in _REGISTRIES}
    problems += _unknown_kinds(kinds)
    # Where there is no such kind, the rest is checked as a histogram's.
    chosen = KINDS.get(str(kinds["pipeline"]), HistogramPipeline).settings_class
    of_other_kinds = list(_of_other_kinds(resolved, chosen))
    if written and (bare := list(bare_numbers(resolved, chosen))):
        # Which unit was meant decides what else is wrong.
        raise ConfigurationError("\n".join(dict.fromkeys([*problems, *bare, *of_other_kinds])))
    try:
        settings = chosen.model_validate(resolved)
    except ValidationError as error:
        problems += explain(error, chosen, resolved)
    if problems := [*problems, *of_other_kinds]:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))  # a kind may check its clock itself
    settings.read_files(directory)
    return settings


def _kind(tables: Mapping[str, Any], section: str) -> Any:
    table = tables.get(section)
    return table.get("kind") if isinstance(table, Mapping) else None


def _unknown_kinds(kinds: Mapping[str, Any]) -> Iterator[str]:
    """One line for each section whose kind there is not. Another type than text is reported by the section's own check."""
    for section, kind in kinds.items():
        if isinstance(kind, str) and kind not in _REGISTRIES[section]:
            yield f"{section}.kind = {quoted(kind)}: {use_one_of(_REGISTRIES[section])}"


def _of_other_kinds(tables: dict[str, Any], chosen: type[Settings]) -> Iterator[str]:
    """Removes the sections of other kinds from the tables; one line for each."""
    for kind, pipeline in KINDS.items():
        for name in pipeline.settings_class.model_fields:
            if name in tables and name not in chosen.model_fields:
                del tables[name]
                yield f'{name}: belongs to kind "{kind}"; leave it out, or set pipeline.kind = "{kind}"'


def json_schema() -> dict[str, Any]:
    """The JSON schema of the configuration: one object with the sections of all kinds, of which each kind requires its own."""
    schemas = [pipeline.settings_class.model_json_schema(by_alias=True) for pipeline in KINDS.values()]
    merged: dict[str, Any] = {**schemas[0], "title": "Settings", "description": "The configuration of one pipeline."}
    for part in ("properties", "$defs"):  # of a section that several kinds have, the first kind's class may say more
        merged[part] = {name: text for schema in (*schemas, schemas[0]) for name, text in schema[part].items()}
    merged["required"] = sorted(set.intersection(*(set(schema["required"]) for schema in schemas)))
    merged["$defs"]["PipelineSettings"]["properties"]["kind"]["enum"] = list(KINDS)
    return merged
