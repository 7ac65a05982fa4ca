"""What became of a pipeline's records: for a terminal."""

from typing import Any, Final

from rich.table import Table
from rich.text import Text

from susurrus.agents.runtime.facts import Facts, Outcome, PartitionTotal, total_of
from susurrus.agents.runtime.pipeline import Pipeline

WAITING: Final = "waiting"
SKIPPED: Final = "before the start"


def outcomes_table(pipeline: Pipeline[Any], facts: Facts) -> Table:
    """Records by what became of them: over each stage, and as a share of what was read."""
    first, *others = pipeline.outcomes
    stages = list(dict.fromkeys(stage for outcome in pipeline.outcomes for stage in outcome.counters))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("records", no_wrap=True)
    for stage in stages:
        table.add_column(stage, justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for outcome in (first, *others):
        if outcome.rare and not facts.number_of(outcome).number:
            continue
        cells = [_of_stage(facts, outcome, stage) for stage in stages]
        table.add_row(outcome.name, *cells, _share(facts.number_of(outcome), facts.read))
    waits = waiting_count(pipeline, facts)
    table.add_row(WAITING, *[""] * (len(stages) - 1), str(waits), _share(waits, facts.read))
    if facts.skipped is not None:
        table.add_row(SKIPPED, f"{facts.skipped:,}", *[""] * (len(stages) - 1), "not read")
    return table


def _of_stage(facts: Facts, outcome: Outcome, stage: str) -> str:
    names = outcome.counters.get(stage)
    return "" if names is None else str(facts.total(stage, *names))


def _share(count: PartitionTotal, read: PartitionTotal) -> str:
    """The share as a text in percent; it is empty where the share is not known."""
    if count.number is None or not read.number:
        return "?" if count.number is None else ""
    return f"{100 * count.number / read.number:.1f} %"


def waiting_count(pipeline: Pipeline[Any], facts: Facts) -> PartitionTotal:
    """Records that are read, and whose trigger has not come. Stages report one after the other, so the number is about that."""
    others = total_of(facts.number_of(outcome) for outcome in pipeline.outcomes[1:])
    if facts.read.number is None or others.number is None:
        return PartitionTotal()
    return PartitionTotal(max(0, facts.read.number - others.number), facts.read.partial or others.partial)


def released_line(pipeline: Pipeline[Any], facts: Facts) -> Text:
    """What is published: ``released: 96 triggers, 74 rows``."""
    totals = ", ".join(f"{facts.total(stage, name)} {name}" for stage, name in pipeline.released)
    return Text(f"released by {pipeline.released[-1][0]}: {totals}")
