"""What the dead-letter topic holds: reasons, counts and references, read to its present end. For operators who may see raw events.

The topic is read with the memory of one table of counts and of the newest references, however long it is. Values come only from
`Scan.newest`, where the letters carry them (worker.dead_letter_values), and from `raw_records`, which reads the raw topic.
"""

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Message, TopicPartition

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.follow import read_ranges, read_to_end
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.spec import DEAD_LETTER
from susurrus.topics.wire.packing import MalformedRecord


class Letter(NamedTuple):
    """A dead letter. at: when it was written, in ms. topic, partition, offset: where the refused record is. key, value: of that
    record, where the letter carries them. item: which of its items was refused, where it was taken apart."""

    at: int
    topic: str
    partition: int
    offset: int
    reason: Reason
    stage: str
    key: bytes | None = None
    value: bytes | None = None
    item: int | None = None


@dataclass(slots=True)
class Scan:
    """What was found. counts: (reason, topic, partition of the refused records) -> number. first, last: when letters were written,
    in ms, None without any. newest: the newest letters, the newest first. read: records of the topic that were read. unknown:
    records that are no dead letters of a known version."""

    counts: Counter[tuple[Reason, str, int]] = field(default_factory=Counter)
    first: int | None = None
    last: int | None = None
    newest: list[Letter] = field(default_factory=list)
    read: int = 0
    unknown: int = 0

    @property
    def number(self) -> int:
        """Letters that were counted."""
        return self.counts.total()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the refused records, by name."""
        return tuple(sorted({topic for _, topic, _ in self.counts}))

    def by_reason(self) -> list[tuple[Reason, int, list[tuple[str, int]]]]:
        """(reason, number, (topic, partition) of the refused records), the commonest first."""
        reasons: Counter[Reason] = Counter()
        places: dict[Reason, list[tuple[str, int]]] = {}
        for (reason, topic, partition), number in sorted(self.counts.items()):
            reasons[reason] += number
            places.setdefault(reason, []).append((topic, partition))
        return [(reason, number, places[reason]) for reason, number in reasons.most_common()]


def scan(
    clients: Clients,
    topic: str,
    *,
    since: int | None = None,
    reason: Reason | None = None,
    show: int = 10,
    values: bool = False,
    at_most: int | None = None,
    progress: Callable[[int, int], None] = lambda read, everything: None,
) -> Scan:
    """Read the dead letters that are there now.

    since: only letters written at this time (ms) or later. reason: only these. show: how many of the newest are kept. values: keep
    their keys and values, too. at_most: so many of the newest of each partition, instead of all. progress: called with how many
    offsets of how many are read. Raises ConfigurationError where there is no such topic, KafkaException where it cannot be read.
    """
    found = Scan()
    heap: list[tuple[int, int, Letter]] = []  # the number breaks ties
    ends = _ends(clients, topic)
    starts = {p: _first(clients, topic, p, low, high, since, at_most) for p, (low, high) in ends.items()}
    left = {p: ends[p][1] - start for p, start in starts.items() if start < ends[p][1]}
    everything = sum(left.values())
    for message in _messages(
        clients, topic, {p: (starts[p], ends[p][1]) for p in left}, lambda done: progress(done, everything)
    ):
        found.read += 1
        try:
            letter = _letter(message, values)
        except MalformedRecord:
            found.unknown += 1
            continue
        if (since is not None and letter.at < since) or (reason is not None and letter.reason != reason):
            continue
        found.counts[letter.reason, letter.topic, letter.partition] += 1
        found.first = letter.at if found.first is None else min(found.first, letter.at)
        found.last = letter.at if found.last is None else max(found.last, letter.at)
        if show:
            entry = (letter.at, found.read, letter)
            (heapq.heappush if len(heap) < show else heapq.heappushpop)(heap, entry)
    found.newest = [letter for *_, letter in sorted(heap, key=lambda entry: entry[:2], reverse=True)]
    return found


def newest_reasons(pipeline: Pipeline[Any], clients: Clients, at_most: int = 2_000) -> dict[str, int]:
    """Reasons of the newest dead letters, for `susurrus status`; empty where the topic cannot be read.

    at_most: letters of all partitions together, the same number of each. They may carry values.
    """
    topic = pipeline.settings.topic(DEAD_LETTER.name)
    try:
        found = scan(clients, topic, show=0, at_most=-(-at_most // max(1, clients.partitions(topic))))
    except (ConfigurationError, KafkaException):
        return {}
    return {reason.name: number for reason, number, _ in found.by_reason()}


def _ends(clients: Clients, topic: str) -> dict[int, tuple[int, int]]:
    """Log start and end of each partition."""
    places = [TopicPartition(topic, partition) for partition in range(clients.partitions_to_read(topic))]
    starts, ends = clients.starts(places), clients.ends(places)
    return {place.partition: (starts[place], ends[place]) for place in places}


def _first(
    clients: Clients, topic: str, partition: int, low: int, high: int, since: int | None, at_most: int | None
) -> int:
    """Where to begin. Letters are stamped when they are written, about in order; the stamp of each is looked at, too."""
    start = low if since is None else max(low, clients.offset_at(topic, partition, since))
    return start if at_most is None else max(start, high - at_most)


def _messages(
    clients: Clients, topic: str, ranges: dict[int, tuple[int, int]], done: Callable[[int], None]
) -> Iterator[Message]:
    """The committed records of [start, end) of several partitions."""
    at = {partition: start for partition, (start, _) in ranges.items()}
    with contextlib.closing(clients.reader("dead-letters", lost="earliest")) as consumer:
        for records in read_ranges(consumer, {(topic, partition): of for partition, of in ranges.items()}):
            for message in records:
                partition: Any = message.partition()
                offset: Any = message.offset()
                at[partition] = offset + 1
                yield message
            done(sum(offset - ranges[partition][0] for partition, offset in at.items()))


def _letter(message: Message, values: bool) -> Letter:
    headers: Any = message.headers() or []
    letter = decode_headers(headers)
    at = message.timestamp()[1]
    key: Any = message.key() if values else None
    value: Any = message.value() if values else None
    return Letter(
        at, letter.topic, letter.partition, letter.offset, letter.reason, letter.stage, key, value, letter.item
    )


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record that a letter refers to. at: its time stamp in ms."""

    at: int
    key: bytes | None
    value: bytes | None


def raw_records(clients: Clients, letters: Iterable[Letter]) -> Iterator[tuple[Letter, RawRecord | None]]:
    """The refused records themselves, from the raw topic; None for one that is gone. Raises KafkaException."""
    with contextlib.closing(clients.raw.reader("dead-letters", lost="earliest")) as consumer:
        for letter in letters:
            yield letter, _raw_record(clients, consumer, letter)


def _raw_record(clients: Clients, consumer: Any, letter: Letter) -> RawRecord | None:
    low, high = clients.watermarks(letter.topic, letter.partition)
    if not low <= letter.offset < high:
        return None
    message = next(read_to_end(consumer, (letter.topic, letter.partition), letter.offset), None)
    if message is None or message.offset() != letter.offset:
        return None
    key: Any = message.key()
    value: Any = message.value()
    return RawRecord(message.timestamp()[1], key, value)


def console_command(settings: Settings, letter: Letter) -> str:
    """A command of Kafka's own tools that prints the refused record."""
    kafka = settings.raw_kafka
    security = " --consumer.config client.properties" if kafka.properties else ""
    return (
        f"kafka-console-consumer.sh --bootstrap-server {kafka.bootstrap_servers}{security} --topic {letter.topic} "
        f"--partition {letter.partition} --offset {letter.offset} --max-messages 1"
    )
