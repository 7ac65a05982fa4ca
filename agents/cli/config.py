"""``susurrus config``: check a configuration, print its schema, make a noise secret."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.panel import Panel
from rich.table import Table

from susurrus.agents.cli.console import out
from susurrus.agents.config import secrets
from susurrus.agents.config.durations import format_duration
from susurrus.agents.config.settings import Settings, load_settings
from susurrus.agents.formats import decoder_of
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.timestamps import format_time

app = typer.Typer(no_args_is_help=True, help="Check a configuration, print its schema, make a noise secret.")


@app.command()
def check(file: Annotated[Path, typer.Argument(help="TOML file of the pipeline.")]) -> None:
    """Check a configuration and say in plain words what it promises, publishes and costs."""
    elsewhere: list[str] = []  # reported, not raised: the file can be checked where no secret is mounted
    settings = load_settings(file, unresolved=elsewhere)
    try:
        settings.aiokafka()  # loads the TLS files
    except ConfigurationError as error:
        elsewhere.append(str(error))
    console = out()
    table = summary(settings)
    if settings.pipeline.kind != "local":
        try:
            decoder_of(settings.input, ()).close()
        except ConfigurationError as error:  # its package or class may be on the workers only
            elsewhere.append(f"input: {error}")
    promise = ""
    if settings.pipeline.kind == "histogram":
        from susurrus.mechanisms.histogram.strategy import build_strategy

        strategy = build_strategy(settings.plan())
        promise = strategy.guarantee.sentence()
        for row in costs(settings, strategy.describe()):
            table.add_row(*row)
    elif settings.stream is not None:
        from susurrus.agents.stream.mechanism import promise_of

        promise = promise_of(settings.stream).sentence()
    elif settings.local is not None:
        promise = (
            f"Every report is {settings.local.epsilon:g}-locally private by itself, whoever runs the server; a device that "
            "reports k times has spent k times that."
        )
    console.print(table)
    console.print(Panel(promise, title="The guarantee", title_align="left", border_style="green"))
    for line in elsewhere:
        console.print(f"not here: {line}", markup=False)
    if settings.pipeline.kind == "local":
        return  # its noise is the devices'
    try:
        settings.secret()
        secret = "found"
    except ConfigurationError as error:
        secret = str(error)
    console.print(f"noise secret: {secret}", markup=False)


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration, for editors."""
    typer.echo(json.dumps(Settings.model_json_schema(by_alias=True), indent=2))


@app.command()
def reference() -> None:
    """Print every setting with its meaning, as Markdown."""
    from susurrus.agents.cli.reference import markdown

    typer.echo(markdown(), nl=False)


@app.command()
def secret(file: Annotated[Path, typer.Argument(help="File to write; never replaced.")]) -> None:
    """Make a noise secret. All workers of a pipeline need the same one; whoever has it can undo the noise."""
    secrets.create(file)
    out().print(f"wrote a new noise secret to {file}, readable by its owner only")


def costs(settings: Settings, described: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the promise costs: standard errors of the noise, and how many users make a key that nobody declared appear."""
    grids = {column.name: column.grid for column in settings.measured_columns}
    if described["strategy"] == "dp-sqlp":
        for name, std in described["std_last"].items():
            yield "noise", f"± {_plain(1.96 * std * grids[name])} on {name} at the last trigger (95 %)"
        if "thresholds" in described:
            tau = described["thresholds"]
            yield "new keys", f"appear from about {tau['min']:,.0f} to {tau['mean']:,.0f} users on"
        return
    for name, mechanism in described["columns"].items():
        first, last = (1.96 * described["values"][mechanism][at] * grids[name] for at in ("std_first", "std_last"))
        yield "noise", f"± {_plain(first)} on {name} at a window's first trigger, ± {_plain(last)} at its last (95 %)"
    selection = described["selection"]
    if selection is None:
        return  # nothing but declared keys
    weights = described.get("weights_first_trigger")
    if weights is None:
        yield (
            "new keys",
            f"appear from about {selection['threshold_first']:,.0f} users on at the first trigger, "
            f"{selection['matched_threshold_last']:,.0f} (who came steadily) to {selection['threshold_last']:,.0f} at the last",
        )
    else:
        users = selection["threshold_first"] / weights[0]
        yield (
            "new keys",
            f"appear from about {users:,.0f} users on at the first trigger, if it is the first key of each"
            + (" that is not published yet" if "lag" in described else ""),
        )
    if closing := described.get("closing"):
        yield (
            "at the end",
            f"keys still missing appear from about {closing['threshold']:,.0f} users on, if each has two such keys at most",
        )


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def summary(settings: Settings) -> Table:
    """The configuration as its consequences: topics, calendar, bounds, promise, digest."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    window, start = settings.window, settings.start
    table.add_row("pipeline", f"{settings.pipeline.name} ({settings.pipeline.kind})")
    table.add_row("brokers", settings.kafka.bootstrap_servers)
    table.add_row("raw topic", f"{settings.input.topic} ({settings.input.format})")
    if settings.pipeline.kind == "histogram":
        table.add_row("user, key", f"{settings.input.user}, {' × '.join(settings.input.key)}")
        columns = ", ".join(
            f"{c.name} ({c.kind}" + (f" of {c.field} in ±{c.bound:g})" if c.field else ")") for c in settings.columns
        )
        table.add_row("columns", columns)
        table.add_row(
            "windows",
            f"{format_duration(window.length)} from {format_time(window.origin)}, "
            f"{settings.triggers} triggers {format_duration(window.trigger_every)} apart",
        )
        bounds = settings.bounds
        table.add_row(
            "per user",
            f"at most {bounds.max_records_per_user} records, {bounds.max_records_per_key} per key and window",
        )
        begins = start.from_ if isinstance(start.from_, str) else format_time(start.from_)
        first = "" if start.first_window is None else f", first window {format_time(start.first_window)}"
        table.add_row("begins", f"{begins}{first} (clock: {settings.clock.kind})")
        privacy = settings.privacy
        table.add_row("privacy", f"epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, strategy {privacy.strategy}")
    output = {"histogram": "histogram", "stream": "private-stream", "local": "estimate"}[settings.pipeline.kind]
    table.add_row("output", settings.topic(output))
    table.add_row("digest", settings.config_digest().hex()[:16])
    return table
