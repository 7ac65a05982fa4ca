"""``susurrus preflight``: look at everything that production needs before the first worker starts."""

from collections import Counter

import typer
from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, message_and_commands, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.operations.preflight.run import preflight as checks
from susurrus.agents.pipelines import pipeline_of
from susurrus.mechanisms.errors import ConfigurationError

NOT_READY = 1
"""Exit code where a check fails."""
_STYLES = {"ok": "green", "warning": "yellow", "failure": "bold red", "unknown": "cyan"}


def preflight(config: ConfigOption = None, sql: SqlOption = None) -> None:
    """Check brokers, topics, rights, clocks, disk and limits, and say what to do; exit code 1 if a worker could not run.

    Run it where workers will run, as the user that they have. It changes nothing.
    """
    settings = settings_of(config, sql)
    if settings.kafka.embedded:
        raise ConfigurationError("kafka.embedded=true: there is nothing to check; give a real cluster")

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    counts: Counter[str] = Counter()
    commands: list[str] = []
    with err().status("asking Kafka"):  # shows in a terminal only
        for found in checks(pipeline_of(settings)):
            said, more = message_and_commands(str(found))
            commands += more
            counts[found.level] += 1
            table.add_row(Text(found.level, style=_STYLES[found.level]), Text(found.subject), Text("\n".join(said)))
    out().print(table)
    for command in commands:
        out().print(Text(command), soft_wrap=True)
    out().print(", ".join(f"{counts[level]} {level}" for level in _STYLES if counts[level]))
    if counts["failure"]:
        raise typer.Exit(NOT_READY)
