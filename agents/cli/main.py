"""The command ``susurrus``: one table of all commands. The module of a command is loaded when the command is called, or when
its page of help is asked for. The list of commands, and a shell that completes their names, load none of them.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from keyword import iskeyword
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from susurrus.agents.cli.console import Guarded, out
from susurrus.agents.cli.helps import readable


class Command(NamedTuple):
    """A command or a group of commands. Its function has the last word of its path as its name (with `_` behind `try`)."""

    path: str
    module: str | None
    """The module of agents/cli with the function; None for a group."""
    help: str
    """What a list says of it: the first clause of the function's docstring. For a group all that its page says."""
    context: Mapping[str, Any] = {}
    """Settings of its context, as typer has them."""


COMMANDS: Final = (
    Command("acls", "acls", "Print the kafka-acls.sh commands that give every user just what it needs."),
    Command("dashboard", "dashboard", "Serve one live page of what is released."),
    Command("dead-letters", "dead_letters", "Show why records were refused."),
    Command(
        "demo",
        "demo",
        "Run a pipeline on a shipped web log, or on a meter, and compare the private results with the truth.",
    ),
    Command(
        "explain", "explain", "Say what is protected, what a row means and how noisy it is, and print the equal TOML."
    ),
    Command(
        "plan",
        "plan",
        "Forecast keys, errors and volumes of a histogram, for every strategy, and standard errors of the other kinds.",
    ),
    Command("preflight", "preflight", "Check brokers, topics, rights, clocks, disk and limits, and say what to do."),
    Command("report", "report", "Read one number a line from standard input."),
    Command("status", "status", "Show what runs, what became of the records, and why results are thin."),
    Command("try", "trying", "Say what would become of the newest records."),
    Command(
        "tune",
        "tune",
        "Recommend max_records_per_user and the bounds of sums and means, by private quantiles over the users of a sample.",
    ),
    Command("watch", "watch", "Show what a pipeline has released, with 95 % error bars, and when more is due."),
    Command("worker", "worker", "Run one worker of a pipeline."),
    Command("config", None, "Write a configuration, check it, print its schema, make a noise secret."),
    Command("config init", "init", "Write a commented configuration after a few questions."),
    Command("config check", "config", "Check a configuration and explain what it promises, publishes and costs."),
    Command("config schema", "config", "Print the JSON schema of the configuration, for editors."),
    Command("config reference", "reference", "Print every setting with its meaning, as Markdown."),
    Command("config secret", "secret", "Make a noise secret."),
    Command(
        "kafka",
        None,
        "A real Kafka on this machine, without Docker. Needs a JDK (17 or later) and, the first time, Maven.",
    ),
    Command("kafka start", "kafka", "Start brokers in the background, on loopback, and print their bootstrap servers."),
    Command("kafka status", "kafka", "Show the brokers, their addresses and logs."),
    Command("kafka stop", "kafka", "Stop what `start` started, and nothing else."),
    Command(
        "kafka run",
        "kafka",
        "Run a command beside a new cluster that is gone afterwards, with its data.",
        {"allow_interspersed_args": False},
    ),
    Command("kafka fetch", "kafka", "Fetch Kafka's JARs, so that a later start needs no Maven and no network."),
    Command(
        "ledger", None, "Show what was charged to the raw topic and what is left of the budget; begin a new epoch."
    ),
    Command(
        "ledger show",
        "ledger_show",
        "Show what a user of every window has spent, what is left of the budget, when it ends, and which pipelines charge it.",
    ),
    Command(
        "ledger new-epoch", "ledger", "End the pipeline's epoch and begin another, with fresh noise and empty state."
    ),
    Command("topics", None, "Create or check the topics of a pipeline, or print their schemas."),
    Command("topics create", "topics", "Create missing topics, and add partitions where the raw topic has grown."),
    Command("topics add-input", "topics", "Add a raw topic to a pipeline that runs."),
    Command("topics check", "topics", "Check partitions, retention, cleanup, replication and limits of every topic."),
    Command("topics schema", "topics", "Print the schema of a public topic's values."),
)


class Unloaded(TyperCommand):
    """The name and the short help of a command. Its module is loaded as soon as there are arguments for it to read."""

    def __init__(self, name: str, entry: Command) -> None:
        super().__init__(name, short_help=entry.help, rich_markup_mode="rich")
        self._name, self._entry = name, entry

    def loaded(self) -> Any:
        """The command itself."""
        module = import_module(f"{__package__}.{self._entry.module}")
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        function = self._name.replace("-", "_")
        alone.command(self._name, context_settings=dict(self._entry.context))(
            getattr(module, function + "_" * iskeyword(function))
        )
        return readable(typer.main.get_command(alone))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself."""
        return self.loaded().make_context(info_name, args, parent, **extra)


class Commands(Guarded):
    """The group of all commands and groups in the table."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        groups: dict[str, TyperGroup] = {"": self}
        for entry in COMMANDS:
            group, _, name = entry.path.rpartition(" ")
            if entry.module is None:
                groups[name] = TyperGroup(name=name, help=entry.help, no_args_is_help=True, rich_markup_mode="rich")
            groups[group].add_command(groups[name] if entry.module is None else Unloaded(name, entry))


app = typer.Typer(
    name="susurrus",
    cls=Commands,
    help="Private histograms and streams from raw Kafka topics.",
    no_args_is_help=True,
    epilog="Begin with `susurrus demo`, or with `susurrus config init` for a topic of yours.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from susurrus.agents.operations.compiled import finding  # no other call of this module needs the compiled loops

        try:
            out().print(f"susurrus {version_of('susurrus')}")
        except PackageNotFoundError:
            out().print("susurrus (run from its sources, not installed)")
        out().print(str(finding()), soft_wrap=True)
        raise typer.Exit


@app.callback()
def main(
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the traceback of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version, and whether the hot loops are compiled.",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Private histograms and streams from raw Kafka topics."""
