"""confluent-kafka clients with the settings that every part of a worker needs, and what they ask of the cluster."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from susurrus.agents.finding import Finding, error_of
from susurrus.agents.kafka import profiles
from susurrus.agents.kafka.follow import read_to_end
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.requests import (
    REQUEST_SECONDS,
    answer_of,
    ask_again,
    known_offset,
    no_topic,
    settings_of,
)
from susurrus.agents.kafka.transactional import TransactionalProducer
from susurrus.agents.logs import SILENT, ClientLog
from susurrus.mechanisms.errors import ConfigurationError, RetryableRefusal

log = logging.getLogger(__name__)

_LOGGER = ClientLog(log)
_STALE = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION)
"""The errors after a broker's restart, and while a new partition is not yet known to all brokers."""
_STALE_SECONDS = 5.0
_LEADERS_SECONDS = 600.0
"""The leaders are asked for again after this time. It is less than the 15 minutes for which librdkafka keeps the leaders of a
topic (metadata.max.age.ms)."""

_TAIL = 64
"""How many offsets are read at first to find the last record."""


class TopicRecord(NamedTuple):
    """A record of a topic of ours; without a value it is a tombstone."""

    key: bytes
    value: bytes | None
    offset: int


class Clients:
    """Makes clients for one cluster. ``properties`` are raw librdkafka properties; ``embedded`` brokers know fewer requests.

    quiet: for a command, which reports errors in its own words; the clients' own lines are not logged. raw: topics that belong to
    others, and what to say where one does not exist.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        application: str,
        embedded: bool = False,
        transaction_timeout: int = 30_000,
        quiet: bool = False,
        raw: Mapping[str, Finding] = MappingProxyType({}),
    ) -> None:
        # Without a callback, a fatal error is raised from the next call that polls the client.
        self.properties = {**properties, "error_cb": (lambda error: None) if quiet else _note}
        self._logger = SILENT if quiet else _LOGGER
        self._transaction_timeout = transaction_timeout
        self.application = application
        self._raw = raw
        self.embedded = embedded
        self._admin: AdminClient | None = None
        self._leaders_known: dict[str, float] = {}
        """When the admin client was told the leaders of a topic."""
        self._watermarks: Consumer | None = None
        self._group_metadata: Any = None
        self._lock = threading.Lock()

    @property
    def raw(self) -> "Clients":
        """The clients of the cluster that has the raw topics: these, unless that is another one."""
        return self

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        """A producer for one partition task; ``init_transactions`` (which fences an older owner) is the caller's step."""
        own = profiles.transactional_producer(transactional_id, timeout=self._transaction_timeout)
        producer = Producer({**self.properties, **own}, logger=self._logger)
        return TransactionalProducer(producer)

    def producer(self) -> Producer:
        """An idempotent producer for records outside transactions, such as status."""
        properties = {**self.properties, **profiles.plain_producer(embedded=self.embedded)}
        return Producer(properties, logger=self._logger)

    def reader(self, group: str, *, lost: str = "error", follows: bool = False) -> Consumer:
        """A read_committed consumer that is assigned by hand and reports where a partition ends. lost: what it does where its
        offset has been deleted, "error" or "earliest". follows: whether it stays, so that learning of the end may take longer."""
        name = f"{self.application}-{group}"
        own = profiles.reader(name, lost=lost, embedded=self.embedded, follows=follows)
        return Consumer({**self.properties, **own}, logger=self._logger)

    def admin(self) -> AdminClient:
        """The shared admin client (thread-safe)."""
        with self._lock:
            if self._admin is None:
                properties = {**self.properties, **profiles.admin(embedded=self.embedded)}
                self._admin = AdminClient(properties, logger=self._logger)
                self._leaders_known.clear()
            return self._admin

    def serve(self) -> None:
        """Let the shared client log and call back; called now and then."""
        with self._lock:
            if self._admin is not None:
                self._admin.poll(0)

    def close(self) -> None:
        """Close the shared clients."""
        with self._lock:
            if self._watermarks is not None:
                self._watermarks.close()
                self._watermarks = None
            self._admin = None

    def group_metadata(self) -> Any:
        """Group metadata for send_offsets_to_transaction: a member that never joined; fencing is by transactional.id.

        It is the same for all partitions, so one client is made for it, and is gone again.
        """
        with self._lock:
            if self._group_metadata is None:
                properties = {**self.properties, **profiles.group(self.application)}
                with contextlib.closing(Consumer(properties, logger=self._logger)) as consumer:
                    self._group_metadata = consumer.consumer_group_metadata()
            return self._group_metadata

    def topic_id(self, topic: str) -> str:
        """The id that Kafka gave this life of the topic, as text; empty for an embedded broker.

        Raises RetryableRefusal where the topic does not exist.
        """
        if self.embedded:
            return ""
        future = self.admin().describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)[topic]
        try:
            return str(answer_of(future).topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self.lacks(topic) from error
            raise

    def lacks(self, topic: str) -> RetryableRefusal:
        """The refusal for a topic that does not exist: who has to create it."""
        found = self._raw.get(topic)
        return no_topic(topic) if found is None else RetryableRefusal(found.text, found.action)

    def settings_of(self, topic: str) -> dict[str, str]:
        """The topic's settings in Kafka; none for an embedded broker, or without the right to ask."""
        if self.embedded:
            return {}
        admin = self.admin()
        try:
            return settings_of(admin, topic)
        except KafkaException as error:
            # Reading configurations is a permission of its own; `susurrus topics check` asks again, as an operator.
            log.info("the settings of topic %s are not known (%s)", topic, error.args[0].name())
            return {}

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it does not exist. Raises KafkaException without the right to ask."""
        metadata = self.admin().list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
        if metadata.error is None:
            self._leaders_known[topic] = time.monotonic()
            return len(metadata.partitions)
        if metadata.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaException(metadata.error)
        return 0

    def partitions_to_read(self, topic: str) -> int:
        """How many partitions a topic has. Raises ConfigurationError if it does not exist."""
        if found := self.partitions(topic):
            return found
        if (missing := self._raw.get(topic)) is not None:
            raise error_of([missing])
        raise ConfigurationError(
            f'topic="{topic}" does not exist: create it with `susurrus topics create`, or correct pipeline.name and '
            "pipeline.prefix"
        )

    def watermarks(self, topic: str, partition: int) -> tuple[Offset, Offset]:
        """(log start, high watermark) with isolation read_uncommitted: what had been appended when the request was sent.

        A read_committed watermark is the last stable offset: it hides what an open transaction still holds.
        """
        place = TopicPartition(topic, partition)
        if self.embedded:
            return self._embedded_watermarks(place)
        low, high = self._offsets([place], OffsetSpec.earliest(), OffsetSpec.latest())
        return low[place], high[place]

    def ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The high watermarks of many partitions, in one request."""
        if self.embedded:
            return {place: self._embedded_watermarks(place)[1] for place in places}
        return self._offsets(places, OffsetSpec.latest())[0]

    def starts(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The log starts of many partitions, in one request."""
        if self.embedded:
            return {place: self._embedded_watermarks(place)[0] for place in places}
        return self._offsets(places, OffsetSpec.earliest())[0]

    def _offsets(self, places: Sequence[TopicPartition], *specs: OffsetSpec) -> list[dict[TopicPartition, Offset]]:
        """Asks again for some seconds while brokers and client disagree about who leads. Raises KafkaException."""

        def ask() -> list[dict[TopicPartition, Offset]]:
            admin = self.admin()
            self._learn_leaders({place.topic for place in places})
            asked = [admin.list_offsets(dict.fromkeys(places, spec), request_timeout=REQUEST_SECONDS) for spec in specs]
            try:
                return [{p: Offset(known_offset(answer_of(futures[p]).offset)) for p in places} for futures in asked]
            except KafkaException as error:
                if error.args[0].code() in _STALE:
                    # This client would go on asking with the leader epoch from before the broker's restart. A new one asks anew.
                    with self._lock:
                        self._admin = None
                raise

        return ask_again(ask, _STALE, _STALE_SECONDS)

    def _learn_leaders(self, topics: Iterable[str]) -> None:
        """Let the admin client cache who leads.

        Without that, librdkafka (its source of 2.15) works on a ListOffsets request in two threads: in the caller's, and in its own
        as soon as any answer brings metadata. Its own may finish the request and free it while the caller's still reads it.
        """
        for topic in topics:
            if time.monotonic() > self._leaders_known.get(topic, -_LEADERS_SECONDS) + _LEADERS_SECONDS:
                with contextlib.suppress(KafkaException):  # ListOffsets says what is wrong
                    self.partitions(topic)

    def _embedded_watermarks(self, place: TopicPartition) -> tuple[Offset, Offset]:
        with self._lock:
            if self._watermarks is None:
                properties = {**self.properties, "group.id": f"{self.application}-watermarks"}
                self._watermarks = Consumer(properties, logger=self._logger)
            low, high = self._watermarks.get_watermark_offsets(place, timeout=REQUEST_SECONDS, cached=False)
            return Offset(low), Offset(high)

    def read(self, topic: str, start: int = 0, *, group: str, complete: bool = True) -> list[TopicRecord]:
        """What a small topic of one partition holds, from ``start``, or from what is left of it, to its end.

        complete: to the end that the leader knows. Otherwise to the end that shows now: an open transaction, or a replica that
        lags, may hide later records. Raises KafkaException as `read_to_end` does.
        """
        low, end = self.watermarks(topic, 0)
        return self.read_up_to(end, topic, max(start, low), group=group, complete=complete)[0]

    def read_up_to(
        self, end: int, topic: str, start: int, *, group: str, complete: bool
    ) -> tuple[list[TopicRecord], int]:
        """As `read`, where the log ends at ``end`` and does not begin behind ``start``. Returns also the end that showed: while the
        log ends there, there is nothing more to read."""
        if start >= end:
            return [], end
        records: list[TopicRecord] = []
        with contextlib.closing(self.reader(group)) as consumer:
            messages = read_to_end(consumer, (topic, 0), start, until=end if complete else 0)
            while True:
                try:
                    message = next(messages)
                except StopIteration as stop:
                    return records, stop.value
                records.append(TopicRecord(message.key() or b"", message.value(), message.offset()))

    def newest(self, topic: str, partition: int) -> TopicRecord | None:
        """The last committed record of a partition, read to the end that the leader knows; None where it holds none.

        Raises KafkaException as `read_to_end` does.
        """
        low, end = self.watermarks(topic, partition)
        start: int = end
        width = _TAIL
        while start > low:
            # The end may hold nothing but the marks of transactions, and records of aborted ones.
            start, width = max(low, end - width), width * 8
            found = None
            with contextlib.closing(self.reader("newest")) as consumer:
                for message in read_to_end(consumer, (topic, partition), start, until=end):
                    found = TopicRecord(message.key() or b"", message.value(), message.offset())
            if found is not None:
                return found
        return None

    def offset_at(self, topic: str, partition: int, stamp: int) -> int:
        """The first offset whose time stamp (ms) is at least ``stamp``; the end of the log if there is none."""
        with contextlib.closing(self.reader("offsets")) as consumer:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, stamp)], timeout=REQUEST_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return known_offset(found.offset) if found.offset != OFFSET_END else self.watermarks(topic, partition)[1]


def _note(error: KafkaError) -> None:
    """The error callback of clients, which log the details and try again by themselves."""
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        log.warning("no broker answers; this goes on trying: check kafka.bootstrap_servers and the brokers if it stays")
    else:
        log.debug("client: %s", error.name())
