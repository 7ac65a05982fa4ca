"""Requests to Kafka whose answers need care: what an error means, and which answers are none."""

import shlex
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ConsumerGroupDescription, ResourceType

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.mechanisms.errors import RetryableRefusal

REQUEST_SECONDS = 30.0
_LATE_SECONDS = 5.0
"""The time by which an answer may exceed its request's time-out."""
_PAUSE_SECONDS = 0.2
_COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS
)  # fmt: skip

Answer = TypeVar("Answer")


class Delivering(Protocol):
    """A producer of confluent-kafka, or one that is like it."""

    def __len__(self) -> int:
        """How many records have not been delivered yet."""

    def poll(self, timeout: float) -> int:
        """Call the callbacks of those that have been."""


def no_topic(*topics: str) -> RetryableRefusal:
    """The refusal for topics of ours that do not exist."""
    return RetryableRefusal(
        f"topic={', '.join(topics)} does not exist",
        "create it with `susurrus topics create`",
    )


def no_raw_topic(settings: Settings, raw: str) -> Finding:
    """What to say where a raw topic does not exist: `susurrus topics create` never makes it. The command is a line of its own."""
    topics, name = settings.topics, "topic" if settings.input.topic else "topics"
    needed = "".join(f" --config {name}={value}" for name, value in settings.raw_topic_settings.items())
    where = (
        "this cluster" if settings.input.kafka is None else f'the cluster at "{settings.input.kafka.bootstrap_servers}"'
    )
    return Finding(
        "topics",
        "failure",
        f'input.{name}="{raw}": does not exist on {where}; it belongs to its producers, and Susurrus only reads it',
        "let them create it, or correct the name. For instance:\n"
        f"    kafka-topics.sh --bootstrap-server {settings.raw_kafka.bootstrap_servers} --create --topic {shlex.quote(raw)} "
        f"--partitions {topics.by_user_partitions} --replication-factor {topics.replication_factor}{needed}",
        waits=True,
    )


def is_fenced(error: KafkaError) -> bool:
    """Whether a newer producer has the transactional id."""
    return error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


def answer_of(future: "Future[Answer]", seconds: float = REQUEST_SECONDS) -> Answer:
    """What Kafka answers to a request of the admin client with this time-out. Raises KafkaException, _TIMED_OUT for no answer.

    The request's own time-out is not enough: a client that is destroyed meanwhile leaves requests without any answer.
    """
    try:
        failed = future.exception(seconds + _LATE_SECONDS)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)) from None
    if isinstance(failed, KafkaException):
        # The future keeps its own. With a traceback, that would keep the frames of all callers, and one of them the future.
        raise KafkaException(*failed.args)
    return future.result()


def settings_of(admin: AdminClient, topic: str) -> dict[str, str]:
    """A topic's settings in Kafka, by name. Raises KafkaException, also without the right to ask."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = answer_of(admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource])
    return {name: str(entry.value) for name, entry in found.items()}


def known_offset(offset: int) -> int:
    """An offset that a broker knew. Raises KafkaException for librdkafka's placeholder.

    The admin client reports no error when a broker goes away during a request. It answers with OFFSET_INVALID, and a full topic
    with that end would look empty.
    """
    if offset < 0:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    return offset


def ask_again(ask: Callable[[], Answer], while_codes: Collection[int], seconds: float) -> Answer:
    """What ``ask`` returns. It is called again for so many seconds while it raises a KafkaException with one of these codes."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in while_codes or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def group_of(
    admin: AdminClient, group: str, *, seconds: float = REQUEST_SECONDS, rights: bool = False
) -> ConsumerGroupDescription | None:
    """What the coordinator knows of a consumer group; None if no member ever joined it. rights: with what this user may do.

    Asks again for ``seconds`` while a coordinator starts or moves. Raises KafkaException for any other answer, or none.
    """

    def ask() -> ConsumerGroupDescription:
        asked = admin.describe_consumer_groups([group], include_authorized_operations=rights, request_timeout=seconds)
        return answer_of(asked[group], seconds)

    try:
        return ask_again(ask, _COORDINATOR_MOVES, seconds)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise


def write_one(producer: Producer, topic: str, key: bytes, value: bytes, seconds: float) -> bool:
    """Write a record to partition 0 of a topic; whether the brokers took it within so many seconds. Raises KafkaException."""
    failed: list[KafkaException] = []
    producer.produce(
        topic,
        value,
        key,
        partition=0,
        on_delivery=lambda error, _: failed.append(KafkaException(error)) if error is not None else None,
    )
    waiting = deliver(producer, seconds)
    if failed:
        raise failed[0]
    return not waiting


def deliver(producer: Delivering, seconds: float) -> int:
    """Wait until the brokers have what was produced; how many records still wait after so many seconds.

    Raises KafkaException if the producer has failed for good, because it is fenced, for example. A poll ends with the first
    exception. A flush would run the delivery callbacks with that exception pending. It would then raise a SystemError, or a
    KafkaError, which ``except Exception`` does not catch.
    """
    deadline = time.monotonic() + seconds
    while (waiting := len(producer)) and time.monotonic() < deadline:
        producer.poll(0.1)
    return waiting
