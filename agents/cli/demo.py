"""``susurrus demo``: a whole pipeline on this machine, without Kafka, Docker or configuration."""

from pathlib import Path
from typing import Annotated

import typer

from susurrus.agents.cli.console import out
from susurrus.agents.demo.histogram import HistogramDemo
from susurrus.agents.demo.local import LocalDemo
from susurrus.agents.demo.machinery import Demo, show
from susurrus.agents.demo.meter import from_file, smart_meter
from susurrus.agents.demo.stream import StreamDemo


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
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve the page of what is released, too, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --dashboard: its port; 0 takes a free one.")
    ] = 8470,
) -> None:
    """Run a pipeline on a shipped web log, or on a meter, and compare the private results with the truth; takes
    less than a minute.
    """
    chosen: Demo
    if stream:
        chosen = StreamDemo(smart_meter() if data is None else from_file(data, bound), epsilon=epsilon or 2.0)
    elif local:
        chosen = LocalDemo(epsilon=epsilon or 2.0)
    else:
        chosen = HistogramDemo(epsilon=epsilon or 6.0, rows=rows)
    show(out(), chosen, keep=keep, dashboard=port if dashboard else None)
