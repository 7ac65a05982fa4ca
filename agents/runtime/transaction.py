"""One commit of a partition task: outputs, changelog and input position in one Kafka transaction, and then the store.

Every wait for Kafka in a commit has a limit of its own, so the end of a wait is a sign of life.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from susurrus.agents.kafka.requests import is_fenced
from susurrus.agents.kafka.transactional import TransactionalProducer
from susurrus.agents.runtime import crash_points
from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.changelog import Changelog
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.errors import Refusal

log = logging.getLogger(__name__)

_SECONDS = 30.0
_OFFSETS_SECONDS = 8.0


class Fenced(Exception):
    """Another owner has fenced this one. This is no error: the partition lives on elsewhere."""


class Aborted(Exception):
    """The transaction was aborted; nothing of it happened."""


@dataclass(eq=False)
class Transactions:
    """The transactional producer of one task and its commits. ``mark_alive`` is called while a step may take long."""

    services: Services
    changelog: Changelog
    stage_name: str
    partition: int
    place: InputPartition
    group_reads: bool
    """Whether the consumer group of the pipeline reads the input, so that its position is one of the group's."""
    mark_alive: Callable[[], None]
    _producer: TransactionalProducer | None = field(default=None, init=False)
    _group_metadata: Any = field(default=None, init=False)

    @property
    def _name(self) -> str:
        return f"{self.stage_name}-{self.partition}"

    @property
    def producer(self) -> TransactionalProducer:
        """The producer in use. Raises RuntimeError before `open`."""
        if self._producer is None:
            raise RuntimeError("the task has no producer before it has started")
        return self._producer

    def open(self) -> None:
        """Make a producer, which fences the previous owner's. Raises Fenced, KafkaException."""
        clients = self.services.clients
        self._producer = clients.transactional_producer(f"{clients.application}-{self._name}")
        self._call(lambda: self.producer.init_transactions(_SECONDS))
        self._group_metadata = clients.group_metadata()

    def commit(self, commit: Commit, store: Store, topic_id: str) -> None:
        """Make one step durable.

        1. begin the transaction
        2. produce outputs and ticks
        3. produce the changelog record: state, next position, topic id
        4. send the position to the consumer group, for tools, unless the input is on another cluster
        5. commit the transaction (librdkafka flushes first); from here on the step has happened
        6. write state, meta record and changelog position to the store in one batch
        A crash before 5 leaves nothing behind. After a crash past 5 the next start replays the changelog.

        Raises Aborted if nothing of it happened, Fenced, and KafkaException if only the changelog shows whether it happened.
        """
        producer, stages = self.producer, (self.stage_name, f"{self.stage_name}.{commit.kind}")
        step = self.changelog.prepare(store, commit, topic_id, self.services.ledger.epoch)
        for output in commit.outputs:
            self._check_sizes(output)
        crash_points.reach(stages, "before-begin")
        try:
            self._call(producer.begin_transaction)
            crash_points.reach(stages, "after-begin")
            for output in commit.outputs:
                self._produce(output)
            crash_points.reach(stages, "after-outputs")
            self.changelog.produce(producer, step)
            self.mark_alive()
            crash_points.reach(stages, "after-changelog")
            if self.group_reads:
                offsets = [TopicPartition(*self.place, commit.position)]
                self._call(
                    lambda: producer.send_offsets_to_transaction(offsets, self._group_metadata, _OFFSETS_SECONDS)
                )
            crash_points.reach(stages, "after-offsets")
            self._call(lambda: producer.commit_transaction(_SECONDS))
        except KafkaException as error:
            if is_fenced(error.args[0]):
                raise Fenced from error
            # A failed delivery does not say why it failed. The abort does, because a fenced producer may not abort. But the first
            # error says more than an abort that fails: a transaction whose partitions were all refused never began.
            if error.args[0].retriable() or not self._aborts():
                raise
            raise Aborted from error
        crash_points.reach(stages, "after-commit")
        self.changelog.apply(store, step)
        crash_points.reach(stages, "after-store")

    def close(self) -> None:
        """Close the producer. Never raises: a task that gives up must be able to start again."""
        producer, self._producer = self._producer, None
        if producer is not None and not producer.discard():
            log.warning("%s: its producer does not answer and is left behind; the next one fences it", self._name)

    def _aborts(self) -> bool:
        """Abort the transaction; whether that worked. Raises Fenced."""
        try:
            self._call(lambda: self.producer.abort_transaction(_SECONDS))
        except KafkaException:
            return False
        return True

    def _call(self, call: Callable[[], object]) -> None:
        """One transactional call, once. Raises Fenced for a fenced producer, KafkaException for the rest.

        librdkafka asks to repeat a call that has timed out until its outcome is known. A new producer settles it at once: it
        fences this one, and the changelog shows whether the transaction was committed.
        """
        try:
            call()
        except KafkaException as error:
            if is_fenced(error.args[0]):
                raise Fenced from error
            raise
        finally:
            self.mark_alive()

    def _produce(self, output: Output) -> None:
        producer = self.producer
        if output.headers is not None or (output.messages and "timestamp" in output.messages[0]):
            # produce_batch knows neither headers nor time stamps.
            for row, message in enumerate(output.messages):
                fields = message if output.headers is None else {**message, "headers": output.headers[row]}
                while True:
                    try:
                        producer.produce(output.topic, partition=output.partition, **fields)
                        break
                    except BufferError:
                        self.mark_alive()
                        producer.poll(0.1)
            return
        messages = list(output.messages)
        while messages:
            # librdkafka takes what fits its queue and marks the rest, in order of failure.
            producer.produce_batch(output.topic, messages, partition=output.partition)
            failed = [message for message in messages if "_error" in message]
            for message in failed:
                error = message.pop("_error")
                if error.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(error)
            messages = failed
            self.mark_alive()
            producer.poll(0.1 if failed else 0)

    def _check_sizes(self, output: Output) -> None:
        """An oversized record would abort every retry, so it is refused before it is sent."""
        limit = self.services.max_record_bytes + 50_000
        largest = max(
            (len(message["value"] or b"") + len(message.get("key") or b"") for message in output.messages), default=0
        )
        if largest > limit:
            raise Refusal(
                f"topic={output.topic}: a record of {largest} bytes exceeds {limit} bytes",
                "lower input.max_key_bytes, or report this as a bug",
            )
