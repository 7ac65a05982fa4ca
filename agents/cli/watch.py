"""``susurrus watch``: what a pipeline has released, live with error bars, or as a file; and when more is due."""

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.export import export as write
from susurrus.agents.cli.given import settings_of
from susurrus.agents.config.settings import Settings
from susurrus.agents.display.view import View, Wanted
from susurrus.agents.operations.brokers import reach
from susurrus.agents.operations.pulse import Pulse
from susurrus.agents.pipelines import pipeline_of
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError

REFRESH_SECONDS = 0.5
_SILENCE_SECONDS = 60.0
_LINES_BELOW = 3
"""The lines below the live picture: what is due, and what is wrong with the brokers."""


def watch(
    config: ConfigOption = None,
    sql: SqlOption = None,
    window: Annotated[
        str | None, typer.Option(help="Histograms: start of the window to show; the newest with results by default.")
    ] = None,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="Histograms: the rolling view, the last window's length at every trigger.")
    ] = False,
    stream: Annotated[
        str | None,
        typer.Option(help="Streams: id of the stream to show; the first by default, or all of them in a file."),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Column to order by, or to draw; an unknown one names those that there are.")
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Histograms with grouping sets: the level to show; all of them by default.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Histograms: rows to show; by default what fits.")] = None,
    top: Annotated[bool, typer.Option("--top", help="Histograms: only the ranking, as [top] says.")] = False,
    number: Annotated[
        Literal["estimate", "direct"] | None,
        typer.Option(
            help="Histograms: the number of each row to show; by default the smoothed one, where a row has it. `estimate` leaves "
            "out earlier windows, `direct` is from the row's own stream alone."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what is newest and complete, and leave.")] = False,
    export: Annotated[
        Literal["parquet", "csv", "jsonl"] | None,
        typer.Option(help="Write it to --output: a histogram's newest complete trigger, all rows of other kinds."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, - for standard output.")] = None,
) -> None:
    """Show what a pipeline has released, with 95 % error bars, and when more is due; complete releases only. Ctrl-C ends it."""
    settings = settings_of(config, sql)
    if (export is None) != (output is None):
        raise ConfigurationError("--export and --output belong together; give both or none")
    start = None if window is None else _window(settings, window)
    wanted = Wanted(
        window=start,
        stream=stream,
        column=column,
        rolling=rolling,
        level=level,
        all_rows=export is not None,
        top=top,
        number=number,
    )
    opened = pipeline_of(settings).view(wanted)
    with err().status("asking Kafka"):  # shows in a terminal only
        reach(settings)
    with opened() as view:
        if export is not None and output is not None:
            _newest(view)
            rows = write(view.records(), export, output, instants=view.instants)
            err().print(f"{rows:,} rows written to {output}", soft_wrap=True)
            return
        console = out()
        if once:
            _newest(view)
            console.print(view.picture(console.width, None if limit is None else limit + _LINES_BELOW))
            return
        with Pulse(settings) as pulse:
            _follow(view, pulse, console, limit)


def _window(settings: Settings, text: str) -> WindowStart:
    try:
        return WindowStart(settings.window.instant_of(text))
    except ValueError as error:
        raise ConfigurationError(f'--window="{text}": {error}') from None


def _newest(view: View) -> None:
    """Read everything there is, however long that takes, with a bar on a terminal.

    Raises SusurrusError where nothing is released, or nothing comes for a minute.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console, read, heard = err(), -1, 0.0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading what is released", total=None)
        while not view.caught_up:
            view.poll(0.2)
            before, (read, total) = read, view.progress
            bar.update(task, completed=min(read, total), total=total or None)
            if read != before:
                heard = time.monotonic()
            elif time.monotonic() > heard + _SILENCE_SECONDS:
                raise SusurrusError(f"kafka: nothing came for {_SILENCE_SECONDS:.0f} s; see whether the brokers run")
    if view.newest is None:
        raise SusurrusError(view.due(_now()) if view.over else f"{view.due(_now())}; or see `susurrus status`")


def _follow(view: View, pulse: Pulse, console: Console, limit: int | None) -> None:
    """Redraw whenever something is released, until interrupted. Without a terminal everything is printed once."""
    if not console.is_terminal:
        _print(view, pulse, console, limit)
        return
    with Live(Text("reading …", style="bright_black"), console=console, screen=True, auto_refresh=False) as live:
        while True:
            view.poll(REFRESH_SECONDS)
            # Drawn again each time: the terminal may have another size now, and the time goes on.
            live.update(picture(view, pulse.text, console.size, limit), refresh=True)


def picture(view: View, trouble: str, size: tuple[int, int], limit: int | None) -> Group:
    """What is newest, when more is due, and what is wrong with the brokers."""
    width, height = size
    notes = [Text("reading …" if not view.caught_up else view.due(_now()), style="bright_black")]
    notes += [Text(f"{trouble}. This goes on by itself.", style="yellow")] if trouble else []
    if view.newest is None:
        return Group(*notes)
    below = sum(len(note.wrap(Console(width=width), width)) for note in notes)
    fits = height - below
    return Group(view.picture(width, fits if limit is None else min(fits, limit + _LINES_BELOW)), *notes)


def _print(view: View, pulse: Pulse, console: Console, limit: int | None) -> None:
    """Every release once, to standard output; what is waited for, and brokers that go and come back, to standard error.

    It ends where nothing more can come.
    """
    shown: object = None
    said, trouble = "", ""
    while not view.over or (shown is None and view.newest is not None):
        view.poll(REFRESH_SECONDS)
        newest = view.newest if view.caught_up else None
        if newest is not None and newest != shown:
            console.print(view.picture(console.width, 30 if limit is None else limit + _LINES_BELOW))
            shown = newest
        elif view.caught_up and newest is None and not said:
            said = view.due(_now())
            err().print(said, soft_wrap=True, markup=False)
        if pulse.text != trouble:
            trouble = pulse.text
            err().print(f"{trouble}. This goes on by itself." if trouble else "Brokers answer again.", soft_wrap=True)


def _now() -> int:
    return int(time.time() * 1000)
