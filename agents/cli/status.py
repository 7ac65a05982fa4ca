"""``susurrus status``: what runs and how far it is; what became of the records; what does not run, why, and what to do."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer
from confluent_kafka import KafkaException
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.account import headline
from susurrus.agents.cli.console import ConfigOption, SqlOption, out
from susurrus.agents.cli.findings import notice, paragraphs
from susurrus.agents.cli.given import settings_of
from susurrus.agents.cli.outcomes import outcomes_table, released_line
from susurrus.agents.cli.status_json import status_json
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding, error_of
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.operations.dead_letters import newest_reasons
from susurrus.agents.operations.explanation import EXACT, dead_letters_of, explain, facts_of
from susurrus.agents.operations.probe import Ready, look
from susurrus.agents.operations.status import PartitionStatus, PipelineStatus, collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.facts import Facts
from susurrus.agents.runtime.ledger import CHANGE_BACK
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.errors import ConfigurationError

NEEDS_OPERATOR = 1
"""Exit code while any partition is refused, stalled, stopped or without a worker, or the configuration differs."""
_STYLES = {"running": "green", "starting": "yellow", "fenced": "yellow", "stalled": "yellow"}


def status(
    config: ConfigOption = None,
    sql: SqlOption = None,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="List every partition, not only those that stall.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what runs, what became of the records, and why results are thin; exit code 1 while something needs an operator."""
    settings = settings_of(config, sql)
    pipeline = pipeline_of(settings)
    found, starting = _found(pipeline)
    facts = _facts(pipeline, found)
    findings = explain(pipeline, facts)
    if as_json:
        typer.echo(json.dumps(status_json(pipeline, found, facts, findings, starting), indent=2))
    else:
        console = out()
        console.print(picture(found, pipeline, every=every, width=console.width))
        console.print(records(pipeline, found, facts, findings, width=console.width))
        for finding in starting:
            console.print(start(finding, found))
    if found.problems or found.changed:
        raise typer.Exit(NEEDS_OPERATOR)


def _facts(pipeline: Pipeline[Any], found: PipelineStatus) -> Facts:
    """What findings follow from; the dead letters' reasons are read only where they are told."""
    facts = facts_of(pipeline, found, now=int(time.time() * 1000))
    if not dead_letters_of(pipeline, facts):
        return facts
    clients = clients_of(pipeline.settings, quiet=True)
    try:
        return replace(facts, reasons=newest_reasons(pipeline, clients))
    finally:
        clients.close()


def _found(pipeline: Pipeline[Any]) -> tuple[PipelineStatus, list[Finding]]:
    """What runs and, where something does not run, what would stop a worker that starts now.

    Raises ConfigurationError where that hides the status as well.
    """
    reach_both(pipeline.settings)
    try:
        found = collect(pipeline)
    except (ConfigurationError, KafkaException):
        starting = look(pipeline)
        if isinstance(starting, Ready):
            raise
        raise error_of(starting) from None
    if not found.problems or isinstance(starting := look(pipeline), Ready):
        return found, []
    return found, starting


def start(finding: Finding, found: PipelineStatus) -> Group:
    """Why workers are gone, or would not come back."""
    would = "waits" if finding.waits else "ends with exit code 2"
    who = "No worker runs. One that starts now" if found.workers == 0 else "A worker that starts now"
    said = replace(finding, text=f"{who} {would}:\n{finding.text}")
    return Group(*notice(said, "[bold]starting a worker[/bold]", "red"))


def picture(found: PipelineStatus, pipeline: Pipeline[Any], *, every: bool, width: int) -> Group:
    """The whole status as one renderable, with as many columns as the width allows."""
    settings = pipeline.settings
    return Group(
        _head(found, pipeline),
        *_budget(found),
        *_memory(found, pipeline),
        _stages(found, settings),
        *([_partitions(found.partitions, settings, width)] if every else []),
        *([Text("")] if found.problems or found.changed else []),
        *(_changed(found.changed) if found.changed else []),
        *(part for rows in _grouped(found.problems) for part in _problem(rows)),
    )


def _budget(found: PipelineStatus) -> list[Text]:
    return [] if found.account is None else [headline(found.account)]


def _memory(found: PipelineStatus, pipeline: Pipeline[Any]) -> list[Text]:
    sentences = pipeline.memory_sentences(found.newest) if found.epoch else ()
    return [Text(f"memory: {' '.join(sentences)}")] if sentences else []


def records(
    pipeline: Pipeline[Any], found: PipelineStatus, facts: Facts, findings: tuple[Finding, ...], *, width: int
) -> Group:
    """What became of the records, and the findings."""
    parts: list[Text | Table] = []
    if found.epoch and pipeline.outcomes:
        parts += [Text(""), outcomes_table(pipeline, facts), released_line(pipeline, facts)]
    if findings:
        parts += [Text(""), *paragraphs(findings, width)]
    return Group(*parts, *([Text(EXACT, style="italic")] if parts else []))


def _head(found: PipelineStatus, pipeline: Pipeline[Any]) -> Text:
    name = (pipeline.settings.pipeline.name, "bold")
    if not found.epoch:
        return Text.assemble(name, ": not started yet; start a worker with `susurrus worker`")
    progress = pipeline.progress(found.first_window, found.charged, found.charged_all)
    epoch = f"epoch {found.epoch_number} ({found.epoch[:8]})"
    idle = " · no worker runs" if found.workers == 0 else ""
    moving = " · rebalancing" if found.rebalancing else ""
    return Text.assemble(name, f" · {epoch}{progress}{moving}{idle}")


def _stages(found: PipelineStatus, settings: Settings) -> Table:
    table = _table("stage", "partitions", "state", "behind", "closed up to")
    for stage in dict.fromkeys(row.stage for row in found.partitions):
        rows = [row for row in found.partitions if row.stage == stage]
        lags = [row.lag for row in rows]
        known = [lag for lag in lags if lag is not None]
        behind = f"{sum(known):,}" + ("+?" if len(known) < len(lags) else "") if known else "?"
        table.add_row(stage, str(len(rows)), _states(rows), behind, _closed(rows, settings))
    return table


def _table(*names: str, no_wrap: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        justify: Literal["left", "right"] = (
            "left" if name in ("stage", "reads", "state", "closed up to", "worker") else "right"
        )
        table.add_column(name, justify=justify, no_wrap=no_wrap and name != "reads", overflow="fold")
    return table


def _states(rows: list[PartitionStatus]) -> Text:
    counts = Counter(row.state for row in rows)
    return Text(", ").join(Text(f"{n} {state}", style=_STYLES.get(state, "red")) for state, n in counts.items())


def _closed(rows: list[PartitionStatus], settings: Settings) -> str:
    """The public instant up to which every partition has closed its triggers."""
    intervals = [row.interval for row in rows if row.interval is not None]
    if not intervals or len(intervals) < len(rows):
        return "-"
    return settings.window.instant_text(settings.calendar.boundary(Interval(min(intervals))))


def _partitions(rows: tuple[PartitionStatus, ...], settings: Settings, width: int) -> Table:
    wide = ("closed up to", "worker") if width >= 100 else ()
    reads = ("reads",) if any(map(_is_numbered, rows)) else ()
    table = _table("stage", "partition", *reads, "state", "position", "behind", *wide, no_wrap=True)
    for row in rows:
        cells: list[str | Text] = [row.stage, str(row.partition)]
        cells += [_read(row)] if reads else []
        cells += [Text(row.state, style=_STYLES.get(row.state, "red"))]
        cells += ["?" if row.position < 0 else f"{row.position:,}", "?" if row.lag is None else f"{row.lag:,}"]
        if wide:
            cells += [_closed([row], settings), row.worker]
        table.add_row(*cells)
    return table


def _is_numbered(row: PartitionStatus) -> bool:
    """Whether the number of the row's partition is that of a source, and not the one that its topic has."""
    return row.topic_partition not in (-1, row.partition)


def _read(row: PartitionStatus) -> str:
    return f"{row.topic} {row.topic_partition}" if row.topic else ""


def _grouped(rows: tuple[PartitionStatus, ...]) -> list[list[PartitionStatus]]:
    """Rows that say the same thing together, so that it is said once."""
    groups: dict[str, list[PartitionStatus]] = {}
    for row in rows:
        groups.setdefault(f"{row.state}: {row.finding}", []).append(row)
    return list(groups.values())


def _problem(rows: list[PartitionStatus]) -> Iterator[Panel | Text]:
    row = max(rows, key=lambda row: row.at)
    since = "" if not row.at else f", reported {format_duration(max(0, int(time.time()) - row.at // 1000) * 1000)} ago"
    title = Text.assemble((_places(rows), "bold"), f": {row.state}{since}")
    found = row.finding or Finding(row.stage, "failure", "no reason given", "look at the worker's log")
    return notice(found, title, _STYLES.get(row.state, "red"))


def _changed(fields: tuple[str, ...]) -> Iterator[Panel | Text]:
    text = f"The pipeline runs with other values of {', '.join(fields)}; a worker with this configuration refuses to start."
    found = Finding("configuration", "failure", text, CHANGE_BACK)
    return notice(found, "[bold]this configuration[/bold]", "red")


def _places(rows: list[PartitionStatus]) -> str:
    """Which partitions of which stages: ``route 0-3; bound 2, 5``; of sources, what they read: ``route 4 (orders 0)``."""
    stages: dict[str, list[PartitionStatus]] = {}
    for row in rows:
        stages.setdefault(row.stage, []).append(row)
    return "; ".join(f"{stage} {_ranges(sorted(r.partition for r in of))}{_inputs(of)}" for stage, of in stages.items())


def _inputs(rows: list[PartitionStatus]) -> str:
    """What rows of one stage read, where their numbers do not say it."""
    if not any(map(_is_numbered, rows)):
        return ""
    topics: dict[str, list[int]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row.topic_partition)
    return f" ({'; '.join(f'{topic} {_ranges(sorted(numbers))}' for topic, numbers in topics.items() if topic)})"


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
