"""``susurrus demo``: a whole pipeline on this machine, without Kafka, Docker or configuration."""

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
        bool,
        typer.Option("--local", help="Meters that perturb every reading before they send it, instead of a histogram."),
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="With --stream: an npz file with `values` instead of a made-up smart meter.")
    ] = None,
    bound: Annotated[float, typer.Option(help="With --data: the public upper bound of a value.")] = 1638.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep configuration, secret, state and log, and print their folder.")
    ] = False,
) -> None:
    """Run a pipeline on a shipped web log, or on a meter, and compare the private results with the truth; takes
    less than a minute.
    """
    from susurrus.agents.demo import histogram, machinery, meter  # slow to load
    from susurrus.agents.demo import local as local_demo
    from susurrus.agents.demo import stream as stream_demo

    shown: machinery.Demo
    if stream:
        series = meter.smart_meter() if data is None else meter.from_file(data, bound)
        shown = stream_demo.StreamDemo(series, epsilon=2.0 if epsilon is None else epsilon)
    elif local:
        shown = local_demo.LocalDemo(epsilon=2.0 if epsilon is None else epsilon)
    else:
        shown = histogram.HistogramDemo(epsilon=6.0 if epsilon is None else epsilon, rows=rows)
    machinery.show(out(), shown, keep=keep)
