"""Which raw topics a pipeline reads: those of its ledger once it has begun, before that those of `[input]`.

The ledger decides, because a pattern is asked only once, and because `susurrus topics add-input` adds topics while workers run.
"""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.requests import REQUEST_SECONDS
from susurrus.mechanisms.errors import RetryableRefusal
from susurrus.topics import ledger as codec
from susurrus.topics.spec import LEDGER
from susurrus.topics.wire.packing import MalformedRecord

_NO_RIGHT: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


def matching(settings: Settings, names: Iterable[str]) -> tuple[str, ...]:
    """The topics of a cluster that ``input.topic_pattern`` matches, by name; Kafka's own and those of the pipeline are none."""
    return tuple(
        name
        for name in sorted(names)
        if not name.startswith("__") and not settings.is_own(name) and settings.input.may_read(name)
    )


def visible(settings: Settings, names: Iterable[str]) -> tuple[str, ...]:
    """The raw topics that the settings name; with a pattern, those of a cluster's topics that match."""
    return settings.input.listed or matching(settings, names)


def first_topics(settings: Settings, clients: Clients) -> tuple[str, ...]:
    """The raw topics with which a pipeline begins now. Raises RetryableRefusal where a pattern matches none, KafkaException."""
    if settings.input.listed:
        return settings.input.listed
    found = matching(settings, clients.raw.admin().list_topics(timeout=REQUEST_SECONDS).topics)
    if not found:
        raise RetryableRefusal(
            f'input.topic_pattern="{settings.input.topic_pattern}": no topic that this user may see matches it',
            "correct it, or let the producers create the topics, and grant Describe on them (`susurrus acls`)",
        )
    return found


def asked_for(records: Iterable[codec.LedgerRecord]) -> tuple[str, ...]:
    """The raw topics that an operator has added and that are no sources yet, by name."""
    return tuple(sorted(record.topic for record in records if isinstance(record, codec.AddedTopic)))


def topics_of(settings: Settings, clients: Clients, records: Iterable[codec.LedgerRecord]) -> tuple[str, ...]:
    """The raw topics by the ledger's records, those that were added last at the end. Raises as `first_topics`."""
    records = list(records)
    sources = codec.sources_of(records)
    first = first_topics(settings, clients) if sources is None else sources.topics
    return tuple(dict.fromkeys((*first, *asked_for(records))))


def read_ledger(settings: Settings, clients: Clients) -> list[codec.LedgerRecord]:
    """What the ledger holds that this version knows; empty where there is no such topic. Raises KafkaException."""
    topic = settings.topic(LEDGER.name)
    records: dict[bytes, codec.LedgerRecord] = {}
    for key, value, _ in clients.read(topic, 0, group="status", complete=False) if clients.partitions(topic) else []:
        try:
            record = codec.decode(key, value)
        except MalformedRecord:
            continue  # a newer version's record: the others still count
        records.pop(key, None)
        if record is not None:
            records[key] = record
    return list(records.values())


def raw_topics(settings: Settings, clients: Clients) -> tuple[str, ...]:
    """The raw topics of a pipeline, for a command. Who may not read the ledger knows those that the file names, without those that
    were added by a command. Raises as `first_topics`."""
    if not settings.reads_raw or not settings.several_topics:
        return settings.input.listed
    try:
        records = read_ledger(settings, clients)
    except KafkaException as error:
        if not settings.input.listed or error.args[0].code() not in _NO_RIGHT:
            raise
        return settings.input.listed
    return topics_of(settings, clients, records)
