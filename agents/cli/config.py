"""``susurrus config``: check a configuration, print its schema, make a noise secret. init.py and reference.py have the others."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.config import kafka_properties, secrets
from susurrus.agents.config.settings import Settings
from susurrus.agents.display.panels import framed
from susurrus.agents.finding import sentences
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
    elsewhere: list[str] = []  # reported, not raised: a file can be checked where no secret is mounted
    settings = settings_of(file or config, sql, unresolved=elsewhere)
    pipeline = pipeline_of(settings)
    remarks = _clients(settings, elsewhere)
    if unknown := pipeline.unknown_fields():
        raise ConfigurationError("\n".join(unknown))
    if early := list(settings.start_findings(int(time.time() * 1000))):
        raise ConfigurationError(sentences(early))
    if lacks := pipeline.missing():  # a package or a class may be on the workers only
        elsewhere.append(lacks)
    console = out()
    promise = pipeline.guarantee()
    console.print(summary(pipeline))
    console.print(Panel(promise, title="The guarantee", title_align="left", border_style="green"))
    if warnings := pipeline.warnings(users):
        console.print(framed(Text("\n\n".join(warnings)), "Before you promise it", "yellow"))
    for line in elsewhere:
        console.print(f"not here: {line}", markup=False)
    for line in remarks:
        console.print(f"note: {line}", markup=False)
    if settings.secret_field is None:
        return
    try:
        settings.secret()
        secret = "found"
    except ConfigurationError as error:
        secret = str(error)
    console.print(f"noise secret: {secret}", markup=False)


def _clients(settings: Settings, elsewhere: list[str]) -> list[str]:
    """Make every client once, without connecting; what an operator should know of the properties.

    Raises ConfigurationError where a client cannot be made on any machine. What may be on other machines goes to ``elsewhere``.
    """
    unknown = bool(elsewhere)  # a password that is on the workers only
    refused = [] if unknown else profiles.refusals(settings)
    if sure := [one.text for one in refused if not one.here]:
        raise ConfigurationError("\n".join(sure))
    elsewhere += [one.text for one in refused]
    if unknown:
        elsewhere.append("a password is missing, so the clients were not tried")
    if not refused:
        try:
            kafka_properties.load_files(settings.kafka)
        except ConfigurationError as error:
            elsewhere.append(str(error))
    if not unknown:
        for place, registry in (
            ("input.registry", settings.input.registry),
            ("output.registry", settings.output.registry),
        ):
            if registry is not None and (lacks := registry.check(place)):
                elsewhere.append(lacks)
    return [*settings.remarks(), *profiles.notes(settings)]


def schema() -> None:
    """Print the JSON schema of the configuration, for editors."""
    typer.echo(json.dumps(json_schema(), indent=2))


def secret(file: Annotated[Path, typer.Argument(help="File to write; never replaced.")]) -> None:
    """Make a noise secret. All workers of a pipeline need the same one. Anyone who has it can remove the noise."""
    secrets.create(file)
    out().print(f"wrote a new noise secret to {file}, readable by its owner only")


def summary(pipeline: Pipeline[Any]) -> Table:
    """The configuration as its consequences: topics, calendar, bounds, promise, digest, costs."""
    settings = pipeline.settings
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [
        ("pipeline", f"{settings.pipeline.name} ({settings.kind})"),
        ("brokers", settings.kafka.bootstrap_servers),
        ("raw topic", f"{settings.input.topic} ({settings.input.format})"),
        *pipeline.summary(),
        ("output", f"{settings.topic(pipeline.output.name)} ({settings.output.format})"),
        ("digest", settings.config_digest().hex()[:16]),
    ]
    for row in rows:
        table.add_row(*map(Text, row))  # brackets of an expression are no markup
    return table
