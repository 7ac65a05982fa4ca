"""``susurrus demo``: the whole thing on this machine, without Kafka, Docker or configuration."""

from typing import Annotated

import typer
from susurrus.agents.cli.console import out


def demo(
    epsilon: Annotated[float, typer.Option(min=0.1, max=50, help="Privacy loss per host and day.")] = 6.0,
    rows: Annotated[int, typer.Option(min=3, max=200, help="Rows to show.")] = 15,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep configuration, secret, state and log, and say where.")
    ] = False,
) -> None:
    """Run a pipeline on a shipped web log and compare its private histogram with the truth; under a minute."""
    from susurrus.agents.demo.histogram import run

    run(out(), epsilon=epsilon, rows=rows, keep=keep)
