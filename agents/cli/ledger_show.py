"""``susurrus ledger show``: what was charged to the raw topic, by whom, what is left, and when the budget ends."""

import contextlib
import json
import time
from typing import Annotated, Any

import typer

from susurrus.agents.cli.account import picture
from susurrus.agents.cli.console import ConfigOption, SqlOption, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.raw_topics import raw_topics
from susurrus.agents.operations.account import account_of, without_windows
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.operations.charge_log import read_charges
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.charges import Charge


def show(
    config: ConfigOption = None,
    sql: SqlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the account as JSON, for programs.")] = False,
) -> None:
    """Show what a user of every window has spent, what is left of the budget, when it ends, and which pipelines charge it.

    It reads the log of charges and nothing else. What it shows is public: no data enter.
    """
    settings = settings_of(config, sql)
    pipeline = pipeline_of(settings)
    promise = pipeline.per_window()
    if promise is None:
        reason = (
            f'pipeline.kind="{settings.kind}": the promise is for each report or value, so there are no windows to charge and '
            "there is no account. `susurrus config check` says what is promised, and what many of one user cost."
        )
        if as_json:
            typer.echo(json.dumps(without_windows(settings, reason), indent=2))
        else:
            out().print(reason, markup=False)
        return
    charges, topics = _charges(pipeline)
    account = account_of(charges, settings, int(time.time() * 1000), guarantee=promise, raw_topics=topics)
    if as_json:
        typer.echo(json.dumps(account.as_json(), indent=2, allow_nan=False))
        return
    console = out()
    console.print(picture(account, console.width))


def _charges(pipeline: Pipeline[Any]) -> tuple[list[Charge], tuple[str, ...]]:
    """The charges on the pipeline's raw topics, and these topics.

    Raises ConfigurationError where there is no log of charges, or it cannot be read.
    """
    settings = pipeline.settings
    reach_both(settings)
    with contextlib.closing(clients_of(settings, quiet=True)) as clients:
        topics = raw_topics(settings, clients)
        charges = read_charges(settings, clients, topics)
    if charges is None:
        raise ConfigurationError(
            f'topic="{settings.topics.charges}": does not exist, so nothing was charged yet on this cluster; create it with '
            "`susurrus topics create --config ...`, or correct topics.charges or kafka.bootstrap_servers"
        )
    return charges, topics
