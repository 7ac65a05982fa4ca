"""``susurrus watch``: the released histogram as a live table with error bars, or as a file."""

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out, settings_of
from susurrus.agents.cli.tables import caption, histogram_table
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.reader import HistogramReader, Snapshot
from susurrus.agents.types.durations import parse_instant
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError

REFRESH_SECONDS = 0.5
ONCE_SECONDS = 20.0


def watch(
    config: ConfigOption = None,
    sql: SqlOption = None,
    window: Annotated[
        str | None, typer.Option(help="Start of the window to show; by default the newest with results.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="Column to order and draw; by default the first.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Rows to show; by default what fits.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the newest complete trigger and leave.")] = False,
    export: Annotated[
        Literal["parquet", "csv", "jsonl"] | None, typer.Option(help="Write the newest complete trigger to --output.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, - for standard output.")] = None,
) -> None:
    """Show a pipeline's released histogram with 95 % error bars; only complete triggers, read_committed."""
    settings = settings_of(config, sql)
    if (export is None) != (output is None):
        raise ConfigurationError("--export and --output belong together; give both or none")
    start = None if window is None else _window(window)
    from susurrus.agents.operations.brokers import reach  # slow to load
    from susurrus.agents.pipelines import pipeline_of

    reader: HistogramReader = pipeline_of(settings).reader(start)
    reach(settings)
    with reader:
        if export is not None and output is not None:
            from susurrus.agents.cli.export import export as write

            rows = write(_newest(reader), export, output, settings.input.key_names, settings.window.trigger_every)
            err().print(f"{rows:,} rows written to {output}")
            return
        console = out()
        if once:
            snapshot = _newest(reader)
            console.print(
                histogram_table(snapshot, width=console.width, limit=limit or len(snapshot.rows), column=column)
            )
            console.print(caption(snapshot, min(limit or len(snapshot.rows), len(snapshot.rows))))
            return
        _follow(reader, settings, console, limit, column)


def _window(text: str) -> WindowStart:
    try:
        return WindowStart(parse_instant(text if "T" in text else f"{text}T00:00:00Z"))
    except ValueError as error:
        raise ConfigurationError(f'--window="{text}": {error}') from None


def _newest(reader: HistogramReader) -> Snapshot:
    """The newest complete trigger once everything there is has been read. Raises SusurrusError when there is none."""
    deadline = time.monotonic() + ONCE_SECONDS
    while time.monotonic() < deadline:
        reader.poll(0.2)
        snapshot = reader.snapshot() if reader.caught_up else None
        if snapshot is not None:
            return snapshot
        if reader.caught_up and not reader.windows:
            raise SusurrusError("nothing is published yet; wait for the first trigger, or see `susurrus status`")
    raise SusurrusError("no trigger is complete yet; wait for it, or see `susurrus status`")


def _follow(
    reader: HistogramReader, settings: Settings, console: Console, limit: int | None, column: str | None
) -> None:
    """Redraw whenever a trigger completes, until interrupted. Without a terminal every trigger is printed once."""
    shown: Snapshot | None = None
    if not console.is_terminal:
        while True:
            snapshot = reader.snapshot() if reader.poll(REFRESH_SECONDS) else None
            if snapshot is not None and snapshot != shown:
                console.print(picture(snapshot, settings, console, limit, column))
                shown = snapshot
    with Live(Text("reading …", style="bright_black"), console=console, screen=True, auto_refresh=False) as live:
        while True:
            reader.poll(REFRESH_SECONDS)
            shown = (reader.snapshot() if reader.caught_up else None) or shown
            if shown is not None:  # drawn again each time: the terminal may have another size now
                live.update(picture(shown, settings, console, limit, column), refresh=True)
            elif reader.caught_up:
                live.update(Text("no trigger is complete yet", style="bright_black"), refresh=True)


def picture(snapshot: Snapshot, settings: Settings, console: Console, limit: int | None, column: str | None) -> Group:
    """Title, as many rows as fit, and what they are."""
    fits = max(3, console.height - 5) if console.is_terminal else 30
    rows = min(limit or fits, fits, len(snapshot.rows))
    title = Text.assemble((settings.pipeline.name, "bold"), f"  {settings.topic('histogram')}")
    title.truncate(console.width, overflow="ellipsis")
    table = histogram_table(snapshot, width=console.width, limit=rows, column=column)
    return Group(title, table, caption(snapshot, rows))
