"""``susurrus status --json``: names as in docs/how-to/explain-an-empty-result.md."""

from dataclasses import asdict
from typing import Any

from susurrus.agents.cli.outcomes import WAITING, waiting_count
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.operations.status import PartitionStatus, PipelineStatus
from susurrus.agents.runtime.facts import Facts, Outcome, PartitionTotal
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.calendar import Interval
from susurrus.topics.wire.timestamps import format_time


def status_json(
    pipeline: Pipeline[Any],
    found: PipelineStatus,
    facts: Facts,
    findings: tuple[Finding, ...],
    starting: list[Finding],
) -> dict[str, Any]:
    """The whole status by name."""
    return {
        "pipeline": pipeline.settings.pipeline.name,
        "kind": pipeline.settings.kind,
        "epoch": found.epoch or None,
        "epoch_number": found.epoch_number if found.epoch else None,
        "first_window": None if found.first_window is None else format_time(found.first_window),
        "workers": found.workers,
        "rebalancing": found.rebalancing,
        "changed": list(found.changed),
        "memory": pipeline.memory(found.newest),
        "starting": [asdict(finding) for finding in starting],
        "records": outcomes_json(pipeline, facts) if pipeline.outcomes else None,
        "findings": [asdict(finding) for finding in findings],
        "partitions": [_partition_json(row, pipeline.settings) for row in found.partitions],
    }


def _partition_json(row: PartitionStatus, settings: Settings) -> dict[str, Any]:
    closed = None if row.interval is None else format_time(settings.calendar.boundary(Interval(row.interval)))
    return {
        "stage": row.stage,
        "partition": row.partition,
        "topic": row.topic or None,
        "topic_partition": None if row.topic_partition < 0 else row.topic_partition,
        "state": row.state,
        "worker": row.worker or None,
        "position": None if row.position < 0 else row.position,
        "behind": row.lag,
        "closed_until": closed,
        "finding": None if row.finding is None else asdict(row.finding),
        "reported": format_time(row.at) if row.at else None,
        "counters": dict(row.counters),
    }


def outcomes_json(pipeline: Pipeline[Any], facts: Facts) -> dict[str, Any]:
    """What became of the records."""
    first, *others = pipeline.outcomes
    waits = waiting_count(pipeline, facts)
    rows = [_row_json(outcome, facts) for outcome in (first, *others)]
    rows.append(
        {
            "outcome": WAITING,
            "number": waits.number,
            "partial": waits.partial,
            "share": _ratio(waits, facts.read),
            "stages": {},
        }
    )
    return {
        "outcomes": rows,
        "before_start": facts.skipped,
        "unread": facts.unread,
        "released": {name: facts.total(stage, name).number for stage, name in pipeline.released},
    }


def _row_json(outcome: Outcome, facts: Facts) -> dict[str, Any]:
    count = facts.number_of(outcome)
    return {
        "outcome": outcome.name,
        "number": count.number,
        "partial": count.partial,
        "share": _ratio(count, facts.read),
        "stages": {stage: facts.total(stage, *names).number for stage, names in outcome.counters.items()},
    }


def _ratio(count: PartitionTotal, read: PartitionTotal) -> float | None:
    return None if count.number is None or not read.number else count.number / read.number
