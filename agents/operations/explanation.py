"""Why a result is empty or thin: findings about a pipeline's records, ordered by how many of them each keeps out of the result.

    PipelineStatus (status.py), reasons of dead letters ──facts_of──▶ Facts ──explain──▶ findings

Pure functions. What all kinds share is here; `Pipeline.explain` adds what its kind knows. The numbers are exact functions of raw
data: findings are for operators inside the trust zone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from susurrus.agents.finding import Finding
from susurrus.agents.operations.status import HEALTHY, PartitionStatus, PipelineStatus
from susurrus.agents.runtime.facts import WORTH_TELLING, Facts, PartitionTotal, added, percent, records
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.timestamps import format_time

EXACT = "Exact figures from raw data: for operators inside the trust zone, not for readers of the results."
"""What is said wherever findings and shares are shown."""


def facts_of(
    pipeline: Pipeline[Any], found: PipelineStatus, *, now: int, reasons: Mapping[str, int] | None = None
) -> Facts:
    """What findings follow from. now: ms. reasons: newest dead letters by the name of their reason (dead_letters.py)."""
    stages: dict[str, list[PartitionStatus]] = {stage.name: [] for stage in pipeline.stages}
    for row in found.partitions:
        stages.setdefault(row.stage, []).append(row)
    origin = str(pipeline.settings.start.from_) if found.start is None else found.start.origin
    facts = Facts(
        now=now,
        began=bool(found.epoch),
        first_window=found.first_window,
        origin=origin,
        skipped=found.skipped,
        written=_written(stages[pipeline.stages[0].name]),
        deleted=found.deleted,
        unread=_unread(pipeline, found, stages[pipeline.stages[0].name]),
        totals={stage: added(row.counters for row in rows) for stage, rows in stages.items()},
        closed={stage: {row.partition: row.interval for row in rows} for stage, rows in stages.items()},
        held={stage: held for stage, rows in stages.items() if (held := _held(rows))},
        newest=found.newest,
        reasons=dict(reasons or {}),
    )
    read = facts.number_of(pipeline.outcomes[0]) if pipeline.outcomes else PartitionTotal()
    published = facts.total(*pipeline.released[-1]) if pipeline.released else PartitionTotal()
    return replace(facts, read=read, published=published)


def _held(rows: list[PartitionStatus]) -> dict[int, str]:
    """Why partitions need an operator."""
    return {row.partition: row.finding.text if row.finding else row.state for row in rows if row.state not in HEALTHY}


def _written(rows: list[PartitionStatus]) -> int | None:
    return sum(row.end for row in rows) if rows and all(row.end >= 0 for row in rows) else None


def _unread(pipeline: Pipeline[Any], found: PipelineStatus, rows: list[PartitionStatus]) -> int | None:
    """Records that the first stage has not taken. A partition that nobody has run yet begins where the epoch does."""
    if not found.epoch:
        return None
    number = 0
    for row in rows:
        taken = max(row.next, row.position)
        if taken < 0 and found.start is not None and pipeline.settings.reads_raw:
            taken = found.start.offsets.get(row.partition, 0)
        if taken < 0 or row.end < 0:
            return None
        number += max(0, row.end - taken)
    return number


def explain(pipeline: Pipeline[Any], facts: Facts) -> tuple[Finding, ...]:
    """The causes that are worth telling, the one that explains most first."""
    if not facts.began:
        return tuple(_not_begun(pipeline, facts))
    found = [
        *pipeline.explain(facts),
        *_start(pipeline, facts),
        *_nothing_came(pipeline, facts),
        *_dead(pipeline, facts),
    ]
    # Of two with one cause, the kind's own says more.
    causes = {finding.subject: finding for finding in reversed(found)}
    return tuple(sorted(causes.values(), key=lambda finding: -finding.share))


def _not_begun(pipeline: Pipeline[Any], facts: Facts) -> Iterator[Finding]:
    topic = pipeline.settings.input.called
    if facts.origin == "latest" and facts.skipped:
        yield Finding(
            subject="start",
            level="warning",
            text=f"The {records(facts.skipped)} that {_are(facts.skipped)} in topic {topic} will not be read.",
            number=facts.skipped,
            share=facts.share(facts.skipped),
            why='start.from = "latest": a new pipeline reads what is written after its first worker has begun it.',
            action="to read them, set start.from before the first worker starts; afterwards the start is fixed:"
            + _copied(pipeline.start_over(facts)[2:]),
        )
    if pipeline.settings.clock.until is not None and facts.written == facts.deleted:  # it would be in vain
        yield _deleted(pipeline) if facts.deleted else _never_written(pipeline, facts)


def _start(pipeline: Pipeline[Any], facts: Facts) -> Iterator[Finding]:
    skipped = facts.skipped or 0
    share, topic = facts.share(skipped), pipeline.settings.input.called
    if not skipped or not (facts.nothing_published or share >= 0.5):
        return
    since = ", and none has come since" if not (facts.read.number or facts.unread) else ""
    epoch = "" if pipeline.way_out == Pipeline.way_out else f"; or {pipeline.way_out}"
    origin = f'"{facts.origin}"' if facts.origin in ("earliest", "latest") else format_time(int(facts.origin))
    yield Finding(
        subject="start",
        level="warning",
        text=f"{records(skipped)} of topic {topic} {_lie(skipped)} before the start and {_are(skipped)} not read{since}.",
        number=skipped,
        share=share,
        why=f"The epoch began with start.from = {origin}. That is fixed in the ledger; changing the setting has no effect.",
        action=f"to read them, start a new pipeline, which has its own topics and charges{epoch}. The new one needs:"
        + _copied(pipeline.start_over(facts)),
    )


def _copied(lines: Iterable[str]) -> str:
    return "".join(f"\n    {line}" for line in lines)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _lie(number: int) -> str:
    return "lies" if number == 1 else "lie"


def _nothing_came(pipeline: Pipeline[Any], facts: Facts) -> Iterator[Finding]:
    stage = pipeline.stages[0]
    if facts.read.number or facts.skipped:
        return
    if facts.unread:
        if not facts.held.get(stage.name):
            yield Finding(
                subject="unread",
                level="warning",
                waits=True,
                text=f"{records(facts.unread)} of topic {pipeline.settings.input.called} wait to be read; none has been.",
                number=facts.unread,
                share=facts.share(facts.unread),
                why="Workers have just started, or they restore their state.",
                action="look again in a minute; if it stays, look at the worker's log",
            )
    elif facts.unread == 0 and facts.read.number == 0:
        yield _deleted(pipeline) if facts.deleted else _never_written(pipeline, facts)


def _deleted(pipeline: Pipeline[Any]) -> Finding:
    return Finding(
        subject="deleted",
        level="warning",
        text=f"Topic {pipeline.settings.input.called} holds no record that is to be read.",
        number=0,
        share=1.0,
        why="There were records in it, but they are deleted: by the topic's retention, or by hand.",
        action="let the topic keep records for longer (retention.ms; -1 for an archive), and write them again; an archive whose "
        "epoch has begun needs a new pipeline name, because its end is fixed",
    )


def _never_written(pipeline: Pipeline[Any], facts: Facts) -> Finding:
    since = "The epoch began with the latest record, and nothing has been written to the topic since."
    start = "start the producers"
    if pipeline.settings.clock.until is not None:
        start = "write the whole archive and then start a worker"
        if facts.began:  # its end is fixed at nothing
            start += " with a new pipeline name, because the archive's end is fixed"
    correct = "correct input.topic" + (", which takes a new pipeline name" if facts.began else "")
    return Finding(
        subject="no-records",
        level="warning",
        text=f"No record has come in topic {pipeline.settings.input.called}.",
        number=0,
        share=1.0,
        why=since if facts.began and facts.origin == "latest" else "Nothing was ever written to the topic.",
        action=f"{start}, or {correct}",
    )


def dead_letters_of(pipeline: Pipeline[Any], facts: Facts) -> int:
    """How many dead letters there are, if so many are worth telling; else 0. Their reasons need not be read then."""
    outcome = next((outcome for outcome in pipeline.outcomes if outcome.name == "dead letters"), None)
    number = 0 if outcome is None else facts.number_of(outcome).number or 0
    return number if facts.share(number) >= WORTH_TELLING else 0


def _dead(pipeline: Pipeline[Any], facts: Facts) -> Iterator[Finding]:
    number = dead_letters_of(pipeline, facts)
    if not number:
        return
    of_read = facts.of_read(number)
    why, action = "Their reasons could not be read.", "see `susurrus dead-letters`"
    if facts.reasons:
        name, times = max(facts.reasons.items(), key=lambda item: item[1])
        newest = sum(facts.reasons.values())
        reason = Reason.__members__.get(name)
        message = "" if reason is None else f": {reason.message}"
        why = f"The commonest reason, {percent(times / newest)} of the newest {newest:,}, is {name}{message}."
        action = (f"{reason.advice}; " if reason is not None else "") + "`susurrus dead-letters` shows where they are"
    action += ", `susurrus try` which setting is to blame and what to write"
    yield Finding(
        subject="dead-letters",
        level="warning",
        text=f"{of_read[0].upper()}{of_read[1:]} are dead letters.",
        number=number,
        share=facts.share(number),
        why=why,
        action=action,
    )
