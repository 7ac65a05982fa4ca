"""``susurrus report``: numbers from standard input, perturbed here and reported. The smallest ToPL client."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from susurrus.agents.cli.console import ConfigOption, err, settings_of
from susurrus.agents.local.client import ToplClient
from susurrus.agents.types.durations import parse_duration
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError


def report(
    config: ConfigOption = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Brokers, where there is no --config.")] = None,
    pipeline: Annotated[str | None, typer.Option(help="Name of the pipeline, where there is no --config.")] = None,
    prefix: Annotated[str, typer.Option(help="Prefix of its topics.")] = "susurrus",
    epsilon: Annotated[float | None, typer.Option(help="Privacy loss per report.")] = None,
    bound: Annotated[float | None, typer.Option(help="Values are clipped to [0, bound].")] = None,
    interval: Annotated[str, typer.Option(help="Length of the time intervals, as the server's.")] = "1m",
    scale: Annotated[Literal["log", "linear"], typer.Option(help="Domain of phase 1, as the server's.")] = "log",
    flush_seconds: Annotated[float, typer.Option(help="How long to wait for brokers at the end.")] = 60.0,
) -> None:
    """Read one number a line from standard input; perturb and report each. Nothing else leaves this process.

    A line that is no number is counted, not shown. The pipeline's TOML gives all parameters; without it they are
    options.
    """
    client = _client(config, bootstrap_servers, pipeline, prefix, epsilon, bound, interval, scale)
    bad = 0
    with client:
        for line in sys.stdin:
            if not line.strip():
                continue
            if not _reported(client, line):
                bad += 1
        client.flush(flush_seconds)
        counts = client.counts
        phase = client.phase
    unacknowledged = counts.waiting + counts.failed
    said = f"{counts.acknowledged:,} reports acknowledged, now in phase {phase}"
    err().print(said + (f"; {bad:,} lines were no finite numbers" if bad else ""))
    if unacknowledged:
        raise SusurrusError(
            f"reports={unacknowledged} were not acknowledged, and some may have arrived: check that the brokers can be reached "
            "before the next ones, and do not report these values again, for that would cost epsilon twice"
        )
    if bad:
        raise typer.Exit(1)


def _reported(client: ToplClient, line: str) -> bool:
    try:
        client.report(line)  # type: ignore[arg-type]  # text of a number is one
    except ValueError:
        return False
    return True


def _client(
    config: Path | None,
    bootstrap_servers: str | None,
    pipeline: str | None,
    prefix: str,
    epsilon: float | None,
    bound: float | None,
    interval: str,
    scale: Literal["log", "linear"],
) -> ToplClient:
    if bootstrap_servers is None:
        from susurrus.agents.local.settings import LocalSettings  # slow to load

        settings = LocalSettings.of(settings_of(config))
        local = settings.local
        return ToplClient(
            settings.kafka.bootstrap_servers,
            pipeline=settings.pipeline.name,
            prefix=settings.pipeline.prefix,
            epsilon=local.epsilon,
            bound=local.bound,
            interval=local.interval,
            scale=local.scale,
            properties=settings.kafka.properties,
            when_full="wait",
        )
    if pipeline is None or epsilon is None or bound is None:
        raise ConfigurationError(
            "--bootstrap-servers: needs --pipeline, --epsilon and --bound beside it; give them, or --config alone"
        )
    try:
        length = parse_duration(interval)
    except ValueError as error:
        raise ConfigurationError(f"--interval: {error}") from None
    return ToplClient(
        bootstrap_servers,
        pipeline=pipeline,
        prefix=prefix,
        epsilon=epsilon,
        bound=bound,
        interval=length,
        scale=scale,
        when_full="wait",
    )
