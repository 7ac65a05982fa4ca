"""``susurrus worker``: run the stages of a pipeline until it is told to stop."""

import signal
import sys
from typing import Annotated, Literal

import typer

from susurrus.agents.cli.console import ConfigOption, settings_of


def worker(
    config: ConfigOption = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option(help="Overrides worker.log_level.")
    ] = None,
) -> None:
    """Run one worker of a pipeline; start as many as you like, on any machine."""
    # Until Faust has its own handler, being told to stop is an orderly end too: nothing has begun.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = settings_of(config)
    if settings.pipeline.kind != "local":  # its noise is the devices'
        settings.secret()  # before Faust is up: a worker without a secret must refuse at once
    from susurrus.agents.app import run_worker

    run_worker(settings, loglevel=log_level or settings.worker.log_level)
