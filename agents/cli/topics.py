"""``susurrus topics``: make the pipeline's topics, or check that they are as the pipeline needs them."""

import contextlib
from typing import Annotated

import typer

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.formats.outputs import OUTPUT_FORMATS
from susurrus.agents.formats.outputs.json import JsonRows
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.raw_topics import raw_topics
from susurrus.agents.kafka.requests import REQUEST_SECONDS
from susurrus.agents.kafka.topics import create_topics, few_brokers
from susurrus.agents.operations.add_input import add_input as ask_for_topic
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.types.one_of import use_one_of
from susurrus.mechanisms.errors import ConfigurationError


def create(config: ConfigOption = None, sql: SqlOption = None) -> None:
    """Create missing topics, and add partitions where the raw topic has grown; nothing else is changed."""
    settings = settings_of(config, sql)
    with err().status("asking Kafka"):  # shows in a terminal only
        admin, raw_admin = reach_both(settings)
        with contextlib.closing(clients_of(settings, quiet=True)) as clients:
            lines = create_topics(settings, admin, raw_topics(settings, clients), raw_admin)
    for line in lines:
        out().print(line, soft_wrap=True, markup=False)


def check(config: ConfigOption = None, sql: SqlOption = None) -> None:
    """Check partitions, retention, cleanup, replication and limits of every topic; exit code 1 if anything is wrong."""
    settings = settings_of(config, sql)
    with err().status("asking Kafka"):
        admin, raw_admin = reach_both(settings)
        with contextlib.closing(clients_of(settings, quiet=True)) as clients:
            checks = pipeline_of(settings).check_topics(admin, raw_topics(settings, clients), raw_admin)
        brokers = len(admin.list_topics(timeout=REQUEST_SECONDS).brokers)
    if (few := few_brokers(settings, brokers)) is not None:
        out().print(f"warning: {few}", soft_wrap=True, markup=False)
    for found in checks:
        said = found.text if found.level == "ok" else f": {found}"
        out().print(f"{found.level:<8} {found.subject}{said}", soft_wrap=True, markup=False)
    if any(found.level != "ok" for found in checks):
        raise typer.Exit(1)


def add_input(
    topic: Annotated[str, typer.Argument(help="The raw topic.")],
    config: ConfigOption = None,
    sql: SqlOption = None,
) -> None:
    """Add a raw topic to a pipeline that runs. It counts from a public instant on, with what is written from then on."""
    settings = settings_of(config, sql)
    with err().status("asking Kafka"):
        reach_both(settings)
        with contextlib.closing(clients_of(settings, quiet=True)) as clients:
            lines = ask_for_topic(pipeline_of(settings), clients, topic)
    for line in lines:
        out().print(line, soft_wrap=True, markup=False)


def schema(
    config: ConfigOption = None,
    sql: SqlOption = None,
    topic: Annotated[
        str | None, typer.Option(help="Which public topic, such as progress; by default the one with the rows.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="json, avro or protobuf; by default output.format.",
            autocompletion=lambda: list(OUTPUT_FORMATS),
        ),
    ] = None,
) -> None:
    """Print the schema of a public topic's values: JSON Schema, an Avro schema or a .proto file."""
    settings = settings_of(config, sql)
    name = settings.topic(topic or pipeline_of(settings).output.name)
    public = settings.schemas
    if name not in public:
        names = {known.removeprefix(settings.topic("")): None for known in public}
        raise ConfigurationError(f'--topic="{topic}": {use_one_of(names)}')
    if form is not None and form not in OUTPUT_FORMATS:
        raise ConfigurationError(f'--format="{form}": {use_one_of(OUTPUT_FORMATS)}')
    if public[name].always_json and form not in (None, JsonRows.name):
        raise ConfigurationError(f'--topic="{topic}": is JSON in every format; leave --format out')
    chosen = JsonRows if public[name].always_json else OUTPUT_FORMATS[form or settings.output.format]
    typer.echo(chosen.text(public[name], settings.namespace))
