"""confluent-kafka clients as every part of a worker needs them: one place for their settings and their failure modes."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.logs import ClientLog
from susurrus.mechanisms.errors import MendableRefusal

log = logging.getLogger(__name__)

REQUEST_SECONDS = 30.0
_SILENCE_SECONDS = 60.0
_UNKNOWN_TOPIC_ID = ""
_CONSUME_SECONDS = 0.02
"""The end-of-partition event does not end a consume call, its time-out does."""


class Clients:
    """Makes clients for one cluster. ``properties`` are raw librdkafka properties; ``embedded`` brokers know fewer requests."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        application: str,
        embedded: bool = False,
        transaction_timeout: int = 30_000,
    ) -> None:
        # Without a callback a fatal error is raised from whatever call happens to serve it.
        self.properties = {**properties, "error_cb": _note}
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
                # A topic that does not exist must be told before the broker aborts the transaction, which looks like fencing.
                "topic.metadata.propagation.max.ms": min(10_000, self._transaction_timeout // 3),
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1 << 20,
                "message.max.bytes": 1_000_000_000,
                # The default partitioner never decides: every record names its partition (topics/partitioner.py).
            },
            logger=_LOGGER,
        )

    def producer(self) -> Producer:
        """An idempotent producer for what is not part of any transaction (status)."""
        properties = {**self.properties, "enable.idempotence": not self.embedded, "linger.ms": 50}
        return Producer(properties, logger=_LOGGER)

    def reader(self, group: str = "reader") -> Consumer:
        """A read_committed consumer that is assigned by hand and tells where a partition ends."""
        return Consumer(
            {
                **self.properties,
                "group.id": f"{self.application}-{group}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": 8 << 20,
                "allow.auto.create.topics": self.embedded,
            },
            logger=_LOGGER,
        )

    def admin(self) -> AdminClient:
        """The shared admin client (thread-safe)."""
        with self._lock:
            if self._admin is None:
                properties = {**self.properties, "allow.auto.create.topics": self.embedded}
                self._admin = AdminClient(properties, logger=_LOGGER)
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
        consumer = Consumer({**self.properties, "group.id": self.application}, logger=_LOGGER)
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def topic_id(self, topic: str) -> str:
        """The id Kafka gave this life of the topic, as text; the empty string where the broker cannot tell.

        Raises MendableRefusal where the topic does not exist.
        """
        if self.embedded:
            return _UNKNOWN_TOPIC_ID
        future = self.admin().describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)[topic]
        try:
            return str(future.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise MendableRefusal(
                    f"topic={topic} does not exist: create it with `susurrus topics create`"
                ) from error
            raise

    def cleanup_policy(self, topic: str) -> str:
        """The topic's cleanup.policy; the empty string where the broker cannot tell, or may not."""
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

    def watermarks(self, topic: str, partition: int) -> tuple[Offset, Offset]:
        """(log start, high watermark) with isolation read_uncommitted: what had been appended when the request was sent.

        A read_committed watermark is the last stable offset: it hides what an open transaction still holds.
        """
        if self.embedded:
            with self._lock:
                if self._watermarks is None:
                    properties = {**self.properties, "group.id": f"{self.application}-watermarks"}
                    self._watermarks = Consumer(properties, logger=_LOGGER)
                low, high = self._watermarks.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=REQUEST_SECONDS, cached=False
                )
                return Offset(low), Offset(high)
        admin, tp = self.admin(), TopicPartition(topic, partition)
        low, high = (
            admin.list_offsets({tp: spec}, request_timeout=REQUEST_SECONDS)[tp]
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        try:
            return Offset(told(low.result().offset)), Offset(told(high.result().offset))
        except KafkaException as error:
            if error.args[0].code() in _STALE:
                # The client goes on asking with the leader epoch of before the broker's restart; a new one does not know it.
                with self._lock:
                    self._admin = None
            raise

    def offset_at(self, topic: str, partition: int, stamp: int) -> int:
        """The first offset whose time stamp (ms) is at least ``stamp``; the end of the log where there is none."""
        with contextlib.closing(self.reader("offsets")) as consumer:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, stamp)], timeout=REQUEST_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return told(found.offset) if found.offset != OFFSET_END else self.watermarks(topic, partition)[1]


def is_fenced(error: KafkaError) -> bool:
    """Whether a newer producer has the transactional id."""
    return error.code() in (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    )


def told(offset: int) -> int:
    """An offset that a broker told. Raises KafkaException for librdkafka's placeholder.

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


def read_to_end(consumer: Consumer, topic: str, partition: int, start: int, *, until: int = 0) -> Iterator[list[Any]]:
    """Batches of messages of one partition from ``start`` to its end as met (read_committed); empty ones as signs of life.

    until: the end that must be reached. A leader just elected, and a follower that ``client.rack`` makes us read from, do not
    know yet how much is committed and show an earlier end. Raises KafkaException where nothing comes for a long time.
    """
    consumer.assign([TopicPartition(topic, partition, start)])
    heard = time.monotonic()
    try:
        while True:
            batch = []
            for message in consumer.consume(5_000, timeout=_CONSUME_SECONDS):
                error = message.error()
                if error is None:
                    batch.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= until:
                        yield batch
                        return
                elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise KafkaException(error)
            if batch:
                heard = time.monotonic()
            elif time.monotonic() > heard + _SILENCE_SECONDS:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            yield batch
    finally:
        consumer.unassign()
