"""confluent-kafka clients as every part of a worker needs them: one place for their settings and their failure modes."""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConsumerGroupDescription, OffsetSpec, ResourceType

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.follow import read_to_end
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.logs import SILENT, ClientLog
from susurrus.mechanisms.errors import ConfigurationError, RetryableRefusal

log = logging.getLogger(__name__)

REQUEST_SECONDS = 30.0
_UNKNOWN_TOPIC_ID = ""
_COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS
)  # fmt: skip


class Record(NamedTuple):
    """A record of a topic of ours; without a value it is a tombstone."""

    key: bytes
    value: bytes | None
    offset: int


class Clients:
    """Makes clients for one cluster. ``properties`` are raw librdkafka properties; ``embedded`` brokers know fewer requests.

    quiet: for a command, which reports errors in its own words; the clients' own lines are not logged.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        application: str,
        embedded: bool = False,
        transaction_timeout: int = 30_000,
        quiet: bool = False,
    ) -> None:
        # Without a callback a fatal error is raised from whatever call happens to serve it.
        self.properties = {**properties, "error_cb": (lambda error: None) if quiet else _note}
        self._logger = SILENT if quiet else _LOGGER
        self._transaction_timeout = transaction_timeout
        self.application = application
        self.embedded = embedded
        self._admin: AdminClient | None = None
        self._watermarks: Consumer | None = None
        self._lock = threading.Lock()

    def transactional_producer(self, transactional_id: str) -> Producer:
        """A producer for one partition task; ``init_transactions`` (which fences an older owner) is the caller's step."""
        return Producer(
            {
                **self.properties,
                "transactional.id": transactional_id,
                # A dead owner's open transaction holds every read_committed reader back for this long.
                "transaction.timeout.ms": self._transaction_timeout,
                # Back-to-back transactions meet CONCURRENT_TRANSACTIONS; librdkafka would sleep 100 ms for each.
                "retry.backoff.ms": 5,
                # A missing topic must be reported before the broker aborts the transaction, which looks like fencing.
                "topic.metadata.propagation.max.ms": min(10_000, self._transaction_timeout // 3),
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1 << 20,
                "message.max.bytes": 1_000_000_000,
                # The default partitioner never decides: every record names its partition (topics/partitioner.py).
            },
            logger=self._logger,
        )

    def producer(self) -> Producer:
        """An idempotent producer for what is not part of any transaction (status)."""
        properties = {**self.properties, "enable.idempotence": not self.embedded, "linger.ms": 50}
        return Producer(properties, logger=self._logger)

    def reader(self, group: str, *, lost: str = "error") -> Consumer:
        """A read_committed consumer that is assigned by hand and reports where a partition ends. lost: what it does where its
        offset has been deleted, "error" or "earliest"."""
        return Consumer(
            {
                **self.properties,
                "group.id": f"{self.application}-{group}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": lost,
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": 8 << 20,
                "allow.auto.create.topics": self.embedded,
            },
            logger=self._logger,
        )

    def admin(self) -> AdminClient:
        """The shared admin client (thread-safe)."""
        with self._lock:
            if self._admin is None:
                properties = {**self.properties, "allow.auto.create.topics": self.embedded}
                self._admin = AdminClient(properties, logger=self._logger)
            return self._admin

    def serve(self) -> None:
        """Let the shared client say what it has to say; called now and then."""
        with self._lock:
            if self._admin is not None:
                self._admin.poll(0)

    def close(self) -> None:
        """Close what is shared."""
        with self._lock:
            if self._watermarks is not None:
                self._watermarks.close()
                self._watermarks = None
            self._admin = None

    def group_metadata(self) -> Any:
        """Group metadata for send_offsets_to_transaction: a member that never joined; fencing is by transactional.id."""
        consumer = Consumer({**self.properties, "group.id": self.application}, logger=self._logger)
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def topic_id(self, topic: str) -> str:
        """The id Kafka gave this life of the topic, as text; the empty string where the broker does not know.

        Raises RetryableRefusal where the topic does not exist.
        """
        if self.embedded:
            return _UNKNOWN_TOPIC_ID
        future = self.admin().describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)[topic]
        try:
            return str(future.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise no_topic(topic) from error
            raise

    def cleanup_policy(self, topic: str) -> str:
        """The topic's cleanup.policy; the empty string where the broker does not know, or we may not ask."""
        if self.embedded:
            return ""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self.admin().describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource]
        try:
            return str(future.result()["cleanup.policy"].value)
        except KafkaException as error:
            # Reading configurations is a permission of its own; `susurrus topics check` asks again, as an operator.
            log.info("cleanup.policy of the raw topic is not known (%s)", error.args[0].name())
            return ""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 where it does not exist. Raises KafkaException where we may not know."""
        metadata = self.admin().list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
        if metadata.error is not None and metadata.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaException(metadata.error)
        return 0 if metadata.error is not None else len(metadata.partitions)

    def partitions_to_read(self, topic: str) -> int:
        """The same for a command that can do nothing without the topic. Raises ConfigurationError where it does not exist."""
        if found := self.partitions(topic):
            return found
        raise ConfigurationError(
            f'topic="{topic}" does not exist: create it with `susurrus topics create`, or correct input.topic, pipeline.name and '
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

    def _offsets(self, places: Sequence[TopicPartition], *specs: OffsetSpec) -> list[dict[TopicPartition, Offset]]:
        admin = self.admin()
        asked = [admin.list_offsets(dict.fromkeys(places, spec), request_timeout=REQUEST_SECONDS) for spec in specs]
        try:
            return [
                {place: Offset(known_offset(futures[place].result().offset)) for place in places} for futures in asked
            ]
        except KafkaException as error:
            if error.args[0].code() in _STALE:
                # The client goes on asking with the leader epoch of before the broker's restart; a new one does not know it.
                with self._lock:
                    self._admin = None
            raise

    def _embedded_watermarks(self, place: TopicPartition) -> tuple[Offset, Offset]:
        with self._lock:
            if self._watermarks is None:
                properties = {**self.properties, "group.id": f"{self.application}-watermarks"}
                self._watermarks = Consumer(properties, logger=self._logger)
            low, high = self._watermarks.get_watermark_offsets(place, timeout=REQUEST_SECONDS, cached=False)
            return Offset(low), Offset(high)

    def read(self, topic: str, start: int = 0, *, group: str, complete: bool = True) -> list[Record]:
        """What a small topic of one partition holds, from ``start``, or from what is left of it, to its end.

        complete: to the end that the leader knows. Otherwise as far as it shows now, which an open transaction, or a replica that
        lags, may hold back. Raises KafkaException as `read_to_end` does.
        """
        low, end = self.watermarks(topic, 0)
        start = max(start, low)
        if start >= end:
            return []
        with contextlib.closing(self.reader(group)) as consumer:
            messages = read_to_end(consumer, (topic, 0), start, until=end if complete else 0)
            return [Record(message.key() or b"", message.value(), message.offset()) for message in messages]

    def offset_at(self, topic: str, partition: int, stamp: int) -> int:
        """The first offset whose time stamp (ms) is at least ``stamp``; the end of the log where there is none."""
        with contextlib.closing(self.reader("offsets")) as consumer:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, stamp)], timeout=REQUEST_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return known_offset(found.offset) if found.offset != OFFSET_END else self.watermarks(topic, partition)[1]


def clients_of(settings: Settings, *, quiet: bool = False) -> Clients:
    """The clients of a pipeline."""
    return Clients(
        librdkafka(settings.kafka),
        application=settings.application,
        embedded=settings.kafka.embedded,
        transaction_timeout=settings.worker.transaction_timeout,
        quiet=quiet,
    )


def no_topic(*topics: str) -> RetryableRefusal:
    """The refusal for topics of ours that do not exist."""
    return RetryableRefusal(f"topic={', '.join(topics)} does not exist: create it with `susurrus topics create`")


def group_of(
    admin: AdminClient, group: str, *, seconds: float = REQUEST_SECONDS, rights: bool = False
) -> ConsumerGroupDescription | None:
    """What the coordinator knows of a consumer group; None where nobody has ever been in it. rights: with what this user may do.

    Asks again for ``seconds`` while a coordinator starts or moves. Raises KafkaException for any other answer, or none.
    """
    deadline = time.monotonic() + seconds
    while True:
        asked = admin.describe_consumer_groups([group], include_authorized_operations=rights, request_timeout=seconds)
        try:
            return asked[group].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            if code not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def is_fenced(error: KafkaError) -> bool:
    """Whether a newer producer has the transactional id."""
    return error.code() in (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    )


def known_offset(offset: int) -> int:
    """An offset that a broker knew. Raises KafkaException for librdkafka's placeholder.

    A broker that goes away in the midst of a request is no error to the admin client: it answers with OFFSET_INVALID, which,
    taken for an end, makes full topics look empty.
    """
    if offset < 0:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    return offset


_LOGGER = ClientLog(log)
_STALE = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


def _note(error: KafkaError) -> None:
    """What clients report. They log the details, and try again by themselves."""
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        log.warning("no broker answers; this goes on trying: check kafka.bootstrap_servers and the brokers if it stays")
    else:
        log.debug("client: %s", error.name())


def deliver(producer: Producer, seconds: float) -> int:
    """Wait until the brokers have what was produced; how many records still wait after so many seconds.

    Raises KafkaException where the producer has failed for good (fenced, say). To flush would not do: librdkafka then runs the
    delivery callbacks with that exception pending, and what comes out is a SystemError, or a KafkaError, which no ``except
    Exception`` catches; a poll ends with the first exception.
    """
    deadline = time.monotonic() + seconds
    while (waiting := len(producer)) and time.monotonic() < deadline:
        producer.poll(0.1)
    return waiting
