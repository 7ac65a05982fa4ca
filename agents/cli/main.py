"""The command ``susurrus``: one module per command. Faust and the mechanisms are imported by the commands that need
them.
"""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from susurrus.agents.cli import (
    acls,
    config,
    dashboard,
    dead_letters,
    demo,
    explain,
    kafka,
    ledger,
    plan,
    preflight,
    report,
    status,
    topics,
    tune,
    watch,
    worker,
)
from susurrus.agents.cli.console import Guarded, out

app = typer.Typer(
    name="susurrus",
    cls=Guarded,
    help="Private histograms and streams from raw Kafka topics.",
    no_args_is_help=True,
    epilog="Begin with `susurrus demo`, or with `susurrus config init` for a topic of yours.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(config.app, name="config")
app.add_typer(kafka.app, name="kafka")
app.add_typer(ledger.app, name="ledger")
app.add_typer(topics.app, name="topics")
app.command()(acls.acls)
app.command()(dashboard.dashboard)
app.command()(dead_letters.dead_letters)
app.command()(demo.demo)
app.command()(explain.explain)
app.command()(plan.plan)
app.command()(preflight.preflight)
app.command()(report.report)
app.command()(status.status)
app.command()(tune.tune)
app.command()(watch.watch)
app.command()(worker.worker)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            out().print(f"susurrus {version_of('susurrus')}")
        except PackageNotFoundError:
            out().print("susurrus (run from its sources, not installed)")
        raise typer.Exit


@app.callback()
def main(
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the traceback of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Private histograms and streams from raw Kafka topics."""
