"""``susurrus report``: numbers from standard input, perturbed here and reported. The smallest ToPL client."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer
from confluent_kafka import KafkaError

from susurrus.agents.cli.console import ConfigOption, err
from susurrus.agents.cli.given import settings_of
from susurrus.agents.config.sections import KafkaSettings
from susurrus.agents.local.client import ToplClient
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.operations.brokers import Cluster, reach
from susurrus.agents.types.durations import parse_duration
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics.spec import REPORTS, topic_name

_ANSWER_SECONDS = 10.0


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
    properties: dict[str, Any] = {}
    embedded = False
    if bootstrap_servers is None:
        settings = LocalSettings.of(settings_of(config))
        kafka, local = settings.kafka, settings.local
        bootstrap_servers, properties = kafka.bootstrap_servers, kafka.properties
        embedded = kafka.embedded
        pipeline, prefix = settings.pipeline.name, settings.pipeline.prefix
        epsilon, bound, length, scale = local.epsilon, local.bound, local.interval, local.scale
    elif pipeline is None or epsilon is None or bound is None:
        raise ConfigurationError(
            "--bootstrap-servers: needs --pipeline, --epsilon and --bound beside it; give them, or --config alone"
        )
    else:
        length = _milliseconds(interval)
    SquareWave(epsilon, bound, scale)  # wrong parameters are reported first, brokers next
    if not embedded:
        _reach(bootstrap_servers, properties, topic_name(prefix, pipeline, REPORTS.name))
    client = ToplClient(
        bootstrap_servers,
        pipeline=pipeline,
        prefix=prefix,
        epsilon=epsilon,
        bound=bound,
        interval=length,
        scale=scale,
        properties=properties,
        when_full="wait",
    )
    bad = 0
    with client:
        for line in filter(str.strip, sys.stdin):
            bad += not _reported(client, line)
        with err().status("waiting for brokers"):  # shows in a terminal only
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


def _reach(bootstrap_servers: str, properties: Mapping[str, Any], topic: str) -> None:
    """Raises ConfigurationError where no broker answers or there is no such topic: nothing has been perturbed yet."""
    admin = reach(Cluster(KafkaSettings(bootstrap_servers=bootstrap_servers, properties=dict(properties))))
    found = admin.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
    if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise ConfigurationError(
            f'topic="{topic}" does not exist: create it with `susurrus topics create`, or correct pipeline and prefix'
        )


def _milliseconds(interval: str) -> int:
    try:
        return parse_duration(interval)
    except ValueError as error:
        raise ConfigurationError(f"--interval: {error}") from None
