"""``susurrus config check`` and ``schema``; init.py, reference.py and secret.py have the other commands of the group."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.config.settings import Settings
from susurrus.agents.display.panels import framed
from susurrus.agents.finding import Finding, refuse
from susurrus.agents.kafka import profiles
from susurrus.agents.pipelines import json_schema, pipeline_of
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError


def check(
    file: Annotated[Path | None, typer.Argument(help="TOML file of the pipeline; the same as --config.")] = None,
    config: ConfigOption = None,
    sql: SqlOption = None,
    users: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many users there are, from public knowledge: delta should be far below one over it."
        ),
    ] = None,
) -> None:
    """Check a configuration and explain what it promises, publishes and costs."""
    if file is not None and config is not None:
        raise ConfigurationError(f'config="{config}": there is the file {file}, too; name one of them')
    elsewhere: list[Finding] = []  # reported, not raised: a file can be checked where no secret is mounted
    settings = settings_of(file or config, sql, unresolved=elsewhere)
    pipeline = pipeline_of(settings)
    found = [
        *_clients(settings, elsewhere),
        *pipeline.format_findings(),
        *settings.start_findings(int(time.time() * 1000)),
        *settings.findings(),
        *profiles.findings(settings),
    ]
    refuse(one for one in found if one.level == "failure")
    console = out()
    promise = pipeline.guarantee()
    console.print(summary(pipeline))
    console.print(Panel(promise, title="The guarantee", title_align="left", border_style="green"))
    if warnings := pipeline.promise_findings(users):
        console.print(framed(Text("\n\n".join(map(str, warnings))), "Before you promise it", "yellow"))
    for one in sorted((*elsewhere, *found), key=lambda one: one.level != "unknown"):
        console.print(f"{'not here' if one.level == 'unknown' else 'note'}: {one}", markup=False)
    if settings.secret_field is None:
        return
    try:
        settings.secret()
        secret = "found"
    except ConfigurationError as error:
        secret = str(error)
    console.print(f"noise secret: {secret}", markup=False)


def _clients(settings: Settings, missing: Sequence[Finding]) -> Iterator[Finding]:
    """Make every client once, without connecting. missing: passwords that are on the workers only; no client is made without."""
    refused = [] if missing else profiles.refusals(settings)
    yield from refused
    if missing:
        text, action = "a password is missing, so the clients were not tried", "check where it is, too"
        yield Finding("kafka.properties", "unknown", text, action)
    if not refused and (files := profiles.files_refused(settings)) is not None:
        yield files
    if not missing:
        registries = {path: section.registry for path, section in settings.input.each_format.items()}
        for path, registry in {**registries, "output": settings.output.registry}.items():
            if registry is not None:
                yield from registry.findings(f"{path}.registry")


def schema() -> None:
    """Print the JSON schema of the configuration, for editors."""
    typer.echo(json.dumps(json_schema(), indent=2))


def _read(settings: Settings) -> str:
    """The raw topics, each with its format where there are several."""
    source = settings.input
    if source.topic or source.topic_pattern is not None:
        return f"{source.called} ({source.format})"
    return ", ".join(f"{topic} ({source.of(topic).format})" for topic in source.listed)


def summary(pipeline: Pipeline[Any]) -> Table:
    """The configuration as its consequences: topics, calendar, bounds, promise, digest, costs."""
    settings = pipeline.settings
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [
        ("pipeline", f"{settings.pipeline.name} ({settings.kind})"),
        ("brokers", settings.kafka.bootstrap_servers),
        ("raw topic", _read(settings)),
        *([] if settings.input.kafka is None else [("raw brokers", settings.input.kafka.bootstrap_servers)]),
        *pipeline.summary(),
        ("output", f"{settings.topic(pipeline.output.name)} ({settings.output.format})"),
        ("digest", settings.config_digest().hex()[:16]),
    ]
    for row in rows:
        table.add_row(*map(Text, row))  # brackets of an expression are no markup
    return table
