"""``susurrus try``: what would become of a topic's newest records, before anything runs or is published."""

import json
from typing import Annotated

import typer

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.cli.trial_tables import picture, trial_json
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.operations.topic_trial import MOST_RECORDS, try_topics
from susurrus.agents.pipelines import pipeline_of


def try_(
    config: ConfigOption = None,
    sql: SqlOption = None,
    records: Annotated[
        int, typer.Option(min=1, max=MOST_RECORDS, help="So many newest records of the raw topics.")
    ] = 1_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    show_values: Annotated[
        bool,
        typer.Option("--show-values", help="Print the records of the examples, and a value of each field: raw data."),
    ] = False,
) -> None:
    """Say what would become of the newest records: kept, left out or refused, why, and what to write.

    It reads the raw topics inside the trust zone. It publishes, charges and writes nothing, and needs no worker.
    """
    pipeline = pipeline_of(settings_of(config, sql))
    reach_both(pipeline.settings)
    with err().status("reading the newest records"):  # shows in a terminal only
        tried = try_topics(pipeline, records)
    if as_json:
        typer.echo(json.dumps(trial_json(tried, values=show_values), indent=2))
        return
    console = out()
    for part in picture(tried, values=show_values):
        console.print(part)
