"""``susurrus worker``: run the stages of a pipeline until SIGTERM or SIGINT."""

import signal
from typing import Annotated, Literal

import typer

from susurrus.agents import logs
from susurrus.agents.cli.console import ConfigOption, SqlOption
from susurrus.agents.runtime.ending import ENDING


def worker(
    config: ConfigOption = None,
    sql: SqlOption = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option(help="Overrides worker.log_level.")
    ] = None,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option(help="Overrides worker.log_format; json also for what ends the worker."),
    ] = None,
) -> None:
    """Run one worker of a pipeline; start as many as you like, on any machine."""
    # Until Faust has its own handler, SIGTERM is an orderly end too: nothing has begun.
    signal.signal(signal.SIGTERM, ENDING.leave)
    if log_format == "json":
        logs.configure(log_level or "info", log_format)  # a file that cannot be read is reported as JSON, too
    # What follows loads for seconds, so signals and the log are ready before it.
    from susurrus.agents.cli.given import settings_of
    from susurrus.agents.operations.worker import run_worker
    from susurrus.agents.pipelines import pipeline_of

    settings = settings_of(config, sql)
    if (log_format or settings.worker.log_format) == "json":
        logs.configure(log_level or settings.worker.log_level, "json")
    ENDING.seconds = settings.worker.stop_timeout / 1000
    settings.secret()  # a worker without the secret it needs must fail at once
    ENDING.listen()
    run_worker(pipeline_of(settings), loglevel=log_level, log_format=log_format)
