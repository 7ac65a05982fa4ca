"""``susurrus demo``: the whole thing on this machine, without Kafka, Docker or configuration."""

from pathlib import Path
from typing import Annotated

import typer

from susurrus.agents.cli.console import out


def demo(
    epsilon: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=50,
            help="Privacy loss per host and day (6), or per reading with --stream or --local (2).",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=3, max=200, help="Rows to show.")] = 15,
    stream: Annotated[bool, typer.Option("--stream", help="A real-valued stream instead of a histogram.")] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Locally private meters, which send nothing true, instead of a histogram.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="With --stream: an npz file with `values` instead of a made-up smart meter.")
    ] = None,
    bound: Annotated[float, typer.Option(help="With --data: the public upper bound of a value.")] = 1638.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep configuration, secret, state and log, and say where.")
    ] = False,
) -> None:
    """Run a pipeline on a shipped web log, or on a meter, and compare what is private with the truth; under a
    minute.
    """
    if stream:
        from susurrus.agents.demo.meter import from_file, smart_meter
        from susurrus.agents.demo.stream import run as run_stream

        series = smart_meter() if data is None else from_file(data, bound)
        run_stream(out(), series, epsilon=2.0 if epsilon is None else epsilon, keep=keep)
        return
    if local:
        from susurrus.agents.demo.local import run as run_local

        run_local(out(), epsilon=2.0 if epsilon is None else epsilon, keep=keep)
        return
    from susurrus.agents.demo.histogram import run

    run(out(), epsilon=6.0 if epsilon is None else epsilon, rows=rows, keep=keep)
