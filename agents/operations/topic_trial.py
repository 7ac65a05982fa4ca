"""What would become of the newest records of a pipeline's raw topics, and what to write instead. It reads, and writes nothing.

newest records ──trying.py──▶ what becomes of each; ──look.py──▶ what they are; both ──advice.py──▶ what to write

No consumer group, no transaction and no ledger: it needs the right to read the raw topics, and no other.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import KafkaException

from susurrus.agents.finding import Finding
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.clients import Clients, clients_of
from susurrus.agents.kafka.messages import ReadRecord, record_of
from susurrus.agents.kafka.raw_topics import first_topics, raw_topics
from susurrus.agents.operations.advice import NamedField, named_fields, to_write
from susurrus.agents.operations.look import Found, newest_messages, seen_in
from susurrus.agents.operations.trying import OF_TIME, Fate, Trial, try_records
from susurrus.agents.planning.raw_topic import stamp_type
from susurrus.topics.records.reason import Reason

MOST_RECORDS = 100_000
"""They are in memory at once."""


@dataclass(slots=True)
class TopicTrial:
    """One raw topic. records: by their place, for who may see them. advice: what to write, one line each."""

    topic: str
    trial: Trial
    found: Found
    fields: list[NamedField]
    advice: list[str]
    records: dict[tuple[int, int], ReadRecord] = field(default_factory=dict)


def try_topics(
    settings: HistogramSettings, records: int, clients: Clients | None = None, topics: Sequence[str] | None = None
) -> list[TopicTrial]:
    """Tries the newest records, as many of each raw topic.

    records: of all topics together. topics: instead of those that the pipeline reads. Raises ConfigurationError where a topic does
    not exist, or a package is missing; RetryableRefusal where `input.topic_pattern` matches none; KafkaException.
    """
    own = clients is None
    clients = clients_of(settings, quiet=True) if clients is None else clients
    try:
        names = _topics(settings, clients) if topics is None else topics
        return [_tried(settings, topic, -(-records // len(names)), clients) for topic in names]
    finally:
        if own:
            clients.close()


def _topics(settings: HistogramSettings, clients: Clients) -> Sequence[str]:
    """The raw topics. Who may not read the ledger, or has none yet, tries those that a pipeline would begin with."""
    try:
        return raw_topics(settings, clients)
    except KafkaException:
        return first_topics(settings, clients)


def _tried(settings: HistogramSettings, topic: str, number: int, clients: Clients) -> TopicTrial:
    source = settings.input.of(topic)
    messages = newest_messages(clients, topic, number)
    records = [record_of(message) for message in messages]
    types = np.fromiter(map(stamp_type, messages), np.int64, len(messages))
    trial = try_records(settings, source, records, types, now=int(time.time() * 1000))
    found = seen_in(records, source.registry, source)
    fields = named_fields(settings, source, records, found)
    bad = trial.rows > 0 and trial.number("dead letter") == trial.rows
    section = f'input.formats."{topic}"' if topic in settings.input.formats else "input"
    advice = list(to_write(source, found, fields, all_refused=bad, section=section))
    places = {(record.partition, record.offset): record for record in records}
    return TopicTrial(topic, trial, found, fields, advice, places)


WORTH_A_WARNING = 0.1
"""The share of dead letters among the newest records from which on preflight warns."""
LOOKED_AT = 200
"""Records that preflight looks at."""


def findings_of(tried: TopicTrial) -> Iterator[Finding]:
    """What preflight says of a topic's newest records. Their times fail nothing: a pipeline may begin later, or end earlier."""
    trial = tried.trial
    if not trial.rows:
        text = "no record can be read now" if trial.waits else "there is no record yet"
        yield Finding("records", "ok", f"{tried.topic}: {text}")
        return
    refused = [fate for fate in trial.refused if fate.reason not in (Reason.BEFORE_FIRST_WINDOW, Reason.WRONG_STAMP)]
    number = sum(fate.number for fate in refused)
    share = trial.share(number)
    if share < WORTH_A_WARNING:
        kept = f"{trial.number('kept'):,} would be kept, {number:,} dead letters"
        yield Finding("records", "ok", f"{tried.topic}: of the newest {trial.rows:,} records {kept}")
    else:
        never = number == trial.rows and all(fate.reason not in OF_TIME for fate in refused)
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


def check_records(settings: HistogramSettings, topics: Sequence[str] | None = None) -> Iterator[Finding]:
    """What would become of the newest records. Raises as `try_topics`."""
    with closing(clients_of(settings, quiet=True)) as clients:
        for tried in try_topics(settings, LOOKED_AT, clients, topics):
            yield from findings_of(tried)
