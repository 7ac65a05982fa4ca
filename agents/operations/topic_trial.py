"""What would become of the newest records of a pipeline's raw topics, and what to write instead. It reads, and writes nothing.

newest records ──trying.py──▶ what becomes of each; ──look.py──▶ what they are; both ──advice.py──▶ what to write

No consumer group and no transaction. It needs the right to read the raw topics. Where it may read the ledger, too, and the pipeline
has begun, the ledger's first window and closed intervals count.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import KafkaException

from susurrus.agents.config.input import InputSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.messages import ReadRecord, record_of
from susurrus.agents.kafka.raw_topics import read_ledger, topics_of
from susurrus.agents.operations.advice import NamedField, named_fields, to_write
from susurrus.agents.operations.look import Found, newest_messages, seen_in
from susurrus.agents.operations.trying import Fate, Trial, try_records
from susurrus.agents.planning.raw_topic import stamp_type
from susurrus.agents.runtime.begun import Begun, begun_of
from susurrus.agents.runtime.decisions import Decisions
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.ledger import LedgerRecord

MOST_RECORDS = 100_000
"""They are in memory at once."""


@dataclass(slots=True)
class TopicTrial:
    """One raw topic. advice: what to write, one line each. decisions: that were asked. records: by their place, for who may see
    them."""

    topic: str
    trial: Trial
    found: Found
    fields: list[NamedField]
    advice: list[str]
    decisions: Decisions
    records: dict[tuple[int, int], ReadRecord] = field(default_factory=dict)


def try_topics(
    pipeline: Pipeline[Any], records: int, clients: Clients | None = None, topics: Sequence[str] | None = None
) -> list[TopicTrial]:
    """Tries the newest records, as many of each raw topic.

    records: of all topics together. topics: instead of those that the pipeline reads. Raises ConfigurationError where a topic does
    not exist, a package is missing, or the kind decides no records; RetryableRefusal where `input.topic_pattern` matches none;
    Refusal where a topic of the pipeline holds what is not its own; KafkaException.
    """
    own = clients is None
    clients = clients_of(pipeline.settings, quiet=True) if clients is None else clients
    try:
        decisions = pipeline.decisions(clients)
        if decisions is None:
            raise ConfigurationError(
                f'pipeline.kind = "{pipeline.settings.kind}": its records cannot be tried', "give another configuration"
            )
        ledger = _ledger(pipeline, clients)
        names = _topics(pipeline, clients, ledger) if topics is None else topics
        begun = None if ledger is None else begun_of(ledger, pipeline.stages[0].name)
        trials = [_tried(pipeline, decisions, begun, topic, -(-records // len(names)), clients) for topic in names]
        for tried in trials:
            if ledger is None:
                tried.trial.undecided.append("whether the pipeline has begun, and where: the ledger cannot be read")
        return trials
    finally:
        if own:
            clients.close()


def _ledger(pipeline: Pipeline[Any], clients: Clients) -> list[LedgerRecord] | None:
    """None for who may not read it."""
    try:
        return read_ledger(pipeline.settings, clients)
    except KafkaException:
        return None


def _topics(pipeline: Pipeline[Any], clients: Clients, ledger: Sequence[LedgerRecord] | None) -> Sequence[str]:
    """What the first stage reads. Who may not read the ledger, or has none yet, tries what a pipeline would begin with."""
    settings: Settings = pipeline.settings
    several = settings.reads_raw and settings.several_topics
    return pipeline.stages[0].inputs(topics_of(settings, clients, ledger or ()) if several else settings.input.listed)


def _tried(
    pipeline: Pipeline[Any], decisions: Decisions, begun: Begun | None, topic: str, number: int, clients: Clients
) -> TopicTrial:
    source: InputSettings = pipeline.settings.input.of(topic)
    messages = newest_messages(clients, topic, number)
    records = [record_of(message) for message in messages]
    types = np.fromiter(map(stamp_type, messages), np.int64, len(messages))
    trial = try_records(decisions, source, records, types, now=int(time.time() * 1000), begun=begun)
    looked_at = decisions.written_by_others(records)
    found = seen_in(looked_at, source.registry, source)
    fields = named_fields(decisions, source, looked_at, found)
    bad = trial.rows > 0 and trial.number("dead letter") == trial.rows
    section = f'input.formats."{topic}"' if topic in pipeline.settings.input.formats else "input"
    advice = list(to_write(source, found, fields, all_refused=bad, section=section))
    places = {(record.partition, record.offset): record for record in records}
    return TopicTrial(topic, trial, found, fields, advice, decisions, places)


WORTH_A_WARNING = 0.1
"""The share of dead letters among the newest records from which on preflight warns."""
LOOKED_AT = 200
"""Records that preflight looks at."""


def findings_of(tried: TopicTrial) -> Iterator[Finding]:
    """What preflight says of a topic's newest records. Their times fail nothing: a pipeline may begin later, or end earlier."""
    trial, decisions = tried.trial, tried.decisions
    if not trial.rows:
        text = "no record can be read now" if trial.waits else "there is no record yet"
        yield Finding("records", "ok", f"{tried.topic}: {text}")
        return
    refused = [fate for fate in trial.refused if fate.reason not in decisions.never_told]
    number = sum(fate.number for fate in refused)
    share = trial.share(number)
    if share < WORTH_A_WARNING:
        kept = f"{trial.number('kept'):,} would be kept, {number:,} dead letters"
        yield Finding("records", "ok", f"{tried.topic}: of the newest {trial.rows:,} records {kept}")
    else:
        never = number == trial.rows and all(fate.reason not in decisions.of_time for fate in refused)
        yield Finding(
            "records", "failure" if never else "warning", *_said(tried, refused, number), number=number, share=share
        )
    for one in tried.fields:
        if one.unknown:
            other = f"; the nearest is {one.nearest}" if one.nearest else ""
            yield Finding(
                "records",
                "warning",
                f"{tried.topic}: none of the newest {one.rows:,} records has {one.name} ({', '.join(one.settings)}){other}",
                "correct the name (upper and lower case matter), unless records have it at other times",
            )


def _said(tried: TopicTrial, refused: Sequence[Fate], number: int) -> tuple[str, str]:
    """What becomes of most records, and what to do."""
    rows, common = tried.trial.rows, refused[0]
    many = f"all {rows:,}" if number == rows else f"{number:,} of the newest {rows:,}"
    newest = "newest records" if number == rows else "records"
    blamed = f", {common.setting}" if common.setting else ""
    most = "" if len(refused) == 1 else f"{common.number:,} of them "
    advice = "".join(f"\n    {line}" for line in tried.advice)
    look = "susurrus try shows where they are" + (" and what they seem to need:" if advice else "")
    return (
        f"{tried.topic}: {many} {newest} would be dead letters, {most}{common.reason.name} "
        f"({common.reason.message}{blamed})",
        f"{common.reason.advice}; {look}{advice}",
    )


def check_records(pipeline: Pipeline[Any], topics: Sequence[str] | None = None) -> Iterator[Finding]:
    """What would become of the newest records. Raises as `try_topics`."""
    with closing(clients_of(pipeline.settings, quiet=True)) as clients:
        for tried in try_topics(pipeline, LOOKED_AT, clients, topics):
            yield from findings_of(tried)
