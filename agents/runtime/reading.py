"""The reading side of a partition task: which record is the next to take, and how the consumer is made to bring it."""

import contextlib
import logging
import time

from confluent_kafka import KafkaException

from susurrus.agents.formats.waiting import UnreadableBatch
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.input_log import InputLog
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.task_context import Life, TaskContext
from susurrus.mechanisms.errors import Refusal, RetryableRefusal
from susurrus.topics.wire.packing import MalformedRecord

log = logging.getLogger(__name__)

_LOOP_SECONDS = 0.05
_PATIENT_SECONDS = 0.25
"""A worker with many tasks at rest would spend most of its time on asking them."""
_REWIND_SECONDS = 1.5
_LOOK_AT_LOG_SECONDS = 30.0
_UNFED_SECONDS = 30.0
"""A task that wants input, and gets none for so long though its log goes on, asks for it again."""
_BATCHES_PER_COMMIT = 4
"""A stage commits and spills only when it is asked for commits, so this bounds what it holds however fast the consumer is."""


class Reading:
    """Gives a stage the batches of one partition, each record once and in order. Used by the task's thread, ``inbox`` by all."""

    def __init__(self, context: TaskContext, life: Life) -> None:
        self.inbox = Inbox()
        self.log = InputLog(context.services, *context.place)
        self.next = Offset(-1)
        """Input offset of the next record to take."""
        self._context, self._life = context, life
        self._rewound_at = 0.0
        self._misses_records = False
        """Whether the consumer has passed the next record to take, and has not been sent back yet."""
        self._fed_at = 0.0
        """Monotonic time of the last batch that was taken or asked for again, or when none was wanted."""

    def begin_at(self, position: Offset) -> None:
        """Go on with the record at ``position``, whatever was read before."""
        self.next = position
        self._read_from_next()

    def feed(self, stage: Stage) -> None:
        """Wait a moment for batches, or until the stage is due, and give it at most some of them. Ask for records again that nobody
        brings.

        Raises Refusal where the log does not have the next record any more, or what it has cannot be read.
        """
        # A topic that is recreated and filled quickly leaves no trace in the positions.
        with contextlib.suppress(KafkaException):
            self._look(_LOOK_AT_LOG_SECONDS)
        self._read_again_if_unfed(stage)
        longest = _PATIENT_SECONDS if stage.patient else _LOOP_SECONDS
        batch = self.inbox.take(max(0.0, min(longest, stage.due_at - time.monotonic())))
        generation, reassigned = self.inbox.generation()
        if reassigned:
            # A rebalance sent the consumer back to the group's offset; what we hold in memory is still good.
            self._seek()
        taken = 0
        while batch is not None:
            taken += 1
            self.accept(batch, generation, stage)
            self._life.mark_alive()
            if taken == _BATCHES_PER_COMMIT or stage.crowded:
                break
            batch = self.inbox.take()
        self._read_again_if_missing()

    def accept(self, batch: Batch, generation: int, stage: Stage) -> None:
        """Give the stage a batch if it continues exactly what was taken. Note it if something is missing before it."""
        try:
            if batch.generation != generation:
                return
            if batch.start != self.next:
                # Back: a rebalance, or another topic of the same name. Ahead: a dropped batch, or a hole.
                self._look(_REWIND_SECONDS)
            if batch.end <= self.next:
                return
            if batch.start > self.next:
                self._misses_records = True
                self._read_again_if_missing()
                return
            # A seek during a fetch can bring records from before the batch's start (once, 1,350 were counted twice).
            batch.cut(self.next)
            self._give(batch, stage)
            self.next = batch.end
            self._misses_records = False
            self._fed_at = time.monotonic()
        finally:
            batch.finish()

    def _give(self, batch: Batch, stage: Stage) -> None:
        place, way_out = f"topic={self.log.topic} partition={self.log.partition}", self._context.services.ledger.way_out
        try:
            stage.take(batch)
        except UnreadableBatch as error:
            raise RetryableRefusal(
                f"{place} offset={error.offset}: the record batch that begins here passes its checksum but cannot "
                f"be read ({error.what})",
                "let another replica lead the partition, and find the producer that writes such batches; the task "
                f"tries again by itself. If the batch stays as it is, {way_out}",
            ) from error
        except MalformedRecord as error:
            raise Refusal(
                f"{place} offsets {batch.start} to {batch.end - 1}: {error}; this topic is ours alone",
                f"find out who else writes to it, and {way_out}",
            ) from error

    def _read_from_next(self) -> None:
        """Give back the batches that wait, and let the consumer continue at the next record to take."""
        self._misses_records = False
        self._fed_at = time.monotonic()
        self.inbox.drain()
        self._seek()

    def _read_again_if_missing(self) -> None:
        """Send the consumer back, if it has passed the next record. Not at once after the last time: batches may be under way.

        Nor only when the next batch comes: behind the last record of a log there is none.
        """
        if self._misses_records and time.monotonic() > self._rewound_at + _REWIND_SECONDS:
            self._rewound_at = time.monotonic()
            self._read_from_next()

    def _read_again_if_unfed(self, stage: Stage) -> None:
        """Ask for records that nobody brings. Faust drops what it has fetched when a rebalance stops it, and where that was the end
        of a log, no later batch shows the gap. If a transaction hides the records, asking again does no harm."""
        now = time.monotonic()
        if stage.full or stage.rests_until > now or self.log.end <= self.next:
            self._fed_at = now
        elif now > self._fed_at + _UNFED_SECONDS:
            log.info(
                "%s: no record has come for %.0f s, though topic=%s partition=%d goes on behind offset=%d; asking for it again",
                self._context.name, _UNFED_SECONDS, self.log.topic, self.log.partition, self.next,
            )  # fmt: skip
            self._read_from_next()

    def _seek(self) -> None:
        """Let the consumer continue at the next record to take."""
        self._context.rewind(self.next)
        self._life.mark_alive()

    def _look(self, after: float) -> None:
        """Look whether the input still has the next record to take (`InputLog.look`). Kafka may take its time to answer."""
        try:
            self.log.look(self.next, after)
        finally:
            self._life.mark_alive()
