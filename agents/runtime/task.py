"""The partition task: one object per (stage, assigned partition), with its own thread, producer and store.

An agent feeds it batches. The task gives them to its stage and commits what the stage has ready (transaction.py). The changelog is
the authority: each commit writes the next input position there; the consumer group's offset is for tools. recovery.py decides what
follows from a failure.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.formats.waiting import UnreadableBatch
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.requests import no_topic
from susurrus.agents.logs import describe
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.changelog import Changelog
from susurrus.agents.runtime.changelog import State as LastCommit
from susurrus.agents.runtime.commit import Commit, Released
from susurrus.agents.runtime.disk import Disk
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.input_log import InputLog
from susurrus.agents.runtime.metrics import Metrics
from susurrus.agents.runtime.recovery import Recovery, State
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import NotYet, Stage
from susurrus.agents.runtime.stall import MANY_ABORTS, StallReport
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.transaction import Aborted, Transactions
from susurrus.mechanisms.errors import Refusal, RetryableRefusal, StoreUnusable
from susurrus.topics.wire.packing import MalformedRecord

log = logging.getLogger(__name__)

_LOOP_SECONDS = 0.05
_REWIND_SECONDS = 1.5
_LOOK_AT_LOG_SECONDS = 30.0
_UNFED_SECONDS = 30.0
"""A task that wants input, and gets none for so long though its log goes on, asks for it again."""
_BATCHES_PER_COMMIT = 4
"""A stage commits and spills only when it is asked for commits, so this bounds what it holds however fast the consumer is."""


class Stopped(Exception):
    """The task was asked to stop during its start."""


class PartitionTask(threading.Thread):
    """Runs one stage on one partition. ``rewind(offset)`` asks the consumer to continue there, ``give_up(reason)`` ends
    the worker."""

    def __init__(
        self,
        *,
        input_topic: str,
        partition: int,
        stage: type[Stage],
        stage_name: str,
        changelog_topic: str,
        services: Services,
        metrics: Metrics,
        open_store: Callable[[str, int], Store],
        rewind: Callable[[int], None],
        give_up: Callable[[str], None],
        disk: Disk,
    ) -> None:
        super().__init__(name=f"{stage_name}-{partition}", daemon=True)
        self.stage_name = stage_name
        self.input_topic = input_topic
        self.partition = partition
        self.services = services
        self.changelog_topic = changelog_topic
        self._open_store = open_store
        self._rewind = rewind
        self._disk = disk
        self._stalls = StallReport()
        self._metrics = metrics.task(stage_name, partition)
        self.next = -1
        """Input offset of the next record to take."""
        self.position = Offset(-1)
        """Input offset of the last commit."""
        self.alive_at = time.monotonic()
        self.committed_at: float | None = None
        """Monotonic time of this task's last commit."""
        self.committed_counters: dict[str, int] = {}
        """The stage's totals as committed: what an aborted transaction counted is not among them."""
        self._rewound_at = 0.0
        self._misses_records = False
        """Whether the consumer has passed the next record to take, and has not been sent back yet."""
        self._fed_at = 0.0
        """Monotonic time of the last batch that was taken or asked for again, or when none was wanted."""
        self._inbox = Inbox()
        self._stopping = threading.Event()
        self._stage_class = stage
        self._stage: Stage | None = None
        self._last_counters: dict[str, int] = {}
        """The totals of the stage that was thrown away last."""
        self._input = InputLog(services, input_topic, partition)
        self._changelog = Changelog(services.clients, changelog_topic, partition)
        self._transactions = Transactions(
            services,
            self._changelog,
            stage_name=stage_name,
            partition=partition,
            input_topic=input_topic,
            mark_alive=self._mark_alive,
        )
        self._store: Store | None = None
        self._never_committed = True
        self.recovery = Recovery(
            stage_name,
            partition,
            services,
            stopping=self._stopping,
            mark_alive=self._mark_alive,
            close=self._close,
            give_up=give_up,
            disk=disk,
        )

    # ---- called from other threads -----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state that status shows (`Recovery.state`)."""
        return self.recovery.state

    @property
    def reading(self) -> bool:
        """Whether the stage is at work, a task on trial included."""
        return self.recovery.phase == "running"

    @property
    def disk_trouble(self) -> str:
        """What is wrong with the local disk; empty if nothing is."""
        return self.recovery.disk_trouble

    @property
    def accepts_input_at(self) -> float:
        """Monotonic time from which on batches are wanted, infinite while that is unknown."""
        stage = self._stage
        return stage.rests_until if stage is not None and self.reading and not stage.full else math.inf

    def assigned(self, generation: int) -> None:
        """The group gave us the partition in this generation; batches of others are dropped."""
        self._inbox.assigned(generation)

    def offer(self, batch: Batch) -> None:
        """Hand over a batch; never blocks. A task that has ended finishes it, or its successor would get no batches."""
        self._stalls.fed()
        self._inbox.offer(batch)

    def cannot_read(self, reason: str) -> None:
        """Why no batches come; forgotten when one comes, or when it is not called again."""
        self._stalls.cannot_read(reason)

    def stop(self) -> None:
        """Ask the thread to end after the commit it is in; ``join`` waits for it."""
        self._stopping.set()
        self._inbox.wake()

    def silent_for(self, limit: float) -> float | None:
        """Seconds without a sign of life, if they are more than the limit. The limit is ten times as long while it starts:
        every step of the start has its own time-out, and many tasks may wait for one ledger."""
        silent = time.monotonic() - self.alive_at
        return silent if self.is_alive() and silent > limit * (1 if self.state == "running" else 10) else None

    @property
    def died(self) -> bool:
        """Whether the thread has ended without a final state."""
        return self.ident is not None and not self.is_alive() and self.recovery.phase in ("starting", "running")

    def waiting(self) -> bool:
        """Called by the ledger while it waits for the initializer."""
        self._mark_alive()
        return not self._stopping.is_set()

    def stall(self) -> str | None:
        """Why the task makes no progress, or None. A running stage stalls if it has waited for a while."""
        stage = self._stage
        return self._stalls.of(stage) if stage is not None and self.state == "running" else self.recovery.stall()

    @property
    def store_bytes(self) -> int:
        """What the local store has on the disk; 0 while the task has none."""
        store = self._store
        return 0 if store is None else store.disk_bytes

    @property
    def purge_before(self) -> int:
        """Changelog records below this offset are superseded; -1 while that is unknown."""
        return self._changelog.purge_before

    def report(self) -> dict[str, Any]:
        """Facts for the status record."""
        stage = self._stage
        if stage is not None and self.reading:
            facts = stage.report()
        else:
            facts = {"counters": self._last_counters if stage is None else dict(stage.counters)}
        return {"position": self.position, "next": self.next, **facts}

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start, run, start again; until stopped, fenced or refused."""
        try:
            self._run()
        finally:
            # Before the clients are closed, which may hang: a successor on this worker needs the room.
            self._inbox.close()
            self._close()
            self._let_go()
        self.recovery.ended()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                began = time.monotonic()
                self._start_up()
                self.recovery.runs()
                log.info("%s runs from offset %d, ready in %.1f s", self.name, self.next, time.monotonic() - began)
                self._work()
            # confluent-kafka can raise KafkaError (see deliver), which is no Exception; a dead thread would keep the store.
            except (Exception, KafkaError) as error:
                if not self.recovery.after(error):
                    break

    def _let_go(self) -> None:
        """Give up what refers back to this task: the supervisor keeps a task that ended for its state, and a worker hardly ever
        runs the collector that would find a cycle."""
        del self.recovery.mark_alive, self.recovery.close, self._transactions.mark_alive

    def _start_up(self) -> None:
        services = self.services
        clients = services.clients
        self.recovery.starts("fencing the previous owner")
        self._transactions.open()
        self.recovery.starts(f"waiting for the ledger, which {services.ledger.initializer} writes in a new pipeline")
        services.ledger.join(self, self._transactions.producer)
        self.recovery.starts("recovering state from the changelog")
        self._input.open()
        partitions = self.partition + 1 if clients.embedded else clients.partitions(self.changelog_topic)
        if partitions == 0:
            raise no_topic(self.changelog_topic)
        if partitions <= self.partition:
            raise NotYet(
                f"topic={self.changelog_topic} has no partition {self.partition}: run `susurrus topics create`, the input has grown"
            )
        self._store = self._open_store(self.stage_name, self.partition)
        state = self._changelog.recover(
            self._store,
            epoch=services.ledger.epoch,
            mark_alive=self._go_on,
            begins=services.ledger.begins(self.changelog_topic, self.partition),
            way_out=services.ledger.way_out,
        )
        services.ledger.check_started(self.stage_name, self.partition, has_state=state is not None)
        if state is not None:
            self._input.check(state.position, state.topic_id)
        self._make_stage(state, self._input.start() if state is None else state.position)
        if state is None:
            self._input.check(self.position, self._input.topic_id)
        self.committed_counters = dict(self._require_stage().counters)
        self._metrics.starts(self.committed_counters)
        self._never_committed = state is None
        self._read_from_next()

    def _make_stage(self, last: LastCommit | None, position: Offset) -> None:
        """Make the stage of the last commit, or of a partition that has never committed. The stage before is gone by then, because
        memory has room for one. position: of the commit, or where the log starts."""
        if last is None:
            meta, position = self._stage_class.begin(self.services, self.partition, position)
        else:
            meta = last.meta
        self._stage = self._stage_class(self.services, self.partition, self._require_store(), meta, position)
        self._stage.wakes(self._inbox)
        self.next = self.position = position

    def _throw_stage_away(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            self._last_counters = dict(stage.counters)
            with contextlib.suppress(Exception):  # a connection that cannot be closed is left behind
                stage.close()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._mark_alive()
            self.recovery.working()
            # A topic that is recreated and filled quickly leaves no trace in the positions.
            with contextlib.suppress(KafkaException):
                self._look(_LOOK_AT_LOG_SECONDS)
            self._read_again_if_unfed()
            batch = self._inbox.take(_LOOP_SECONDS)
            generation, reassigned = self._inbox.generation()
            if reassigned:
                # A rebalance sent the consumer back to the group's offset; what we hold in memory is still good.
                self._seek()
            taken = 0
            while batch is not None:
                taken += 1
                self._accept(batch, generation)
                self._mark_alive()
                if taken == _BATCHES_PER_COMMIT:
                    break
                batch = self._inbox.take()
            self._read_again_if_missing()
            # The error's traceback would keep the stage, so it must be gone before another one is made.
            if not self._commit_all():
                self._throw_stage_away()
                self._make_stage(self._changelog.meta(self._require_store()), self.position)
                self._read_from_next()

    def _commit_all(self) -> bool:
        """Commit what the stage has ready; False where a transaction was aborted. Raises Refusal for a missing topic or right."""
        try:
            self._metrics.computes()
            for commit in self._require_stage().commits(int(time.time() * 1000)):
                self._commit(commit)
                self._stalls.committed()
                self.recovery.committed()
                self._mark_alive()
                if self._stopping.is_set():
                    break
                self._metrics.computes()
        except Aborted as aborted:
            self._aborted(aborted.__cause__ or aborted)
            return False
        return True

    def _aborted(self, cause: BaseException) -> None:
        if (lacking := self.recovery.lack(cause)) is not None:
            try:
                raise lacking
            finally:
                del lacking, cause  # the traceback would keep this frame, and with it the stage
        log.warning("%s: a transaction was aborted (%s); its records are read again", self.name, describe(cause))
        if self._stalls.aborted(describe(cause)) >= MANY_ABORTS:
            self.recovery.pause()

    def _read_from_next(self) -> None:
        """Give back the batches that wait, and let the consumer continue at the next record to take."""
        self._misses_records = False
        self._fed_at = time.monotonic()
        self._inbox.drain()
        self._seek()

    def _read_again_if_missing(self) -> None:
        """Send the consumer back, if it has passed the next record. Not at once after the last time: batches may be under way.

        Nor only when the next batch comes: behind the last record of a log there is none.
        """
        if self._misses_records and time.monotonic() > self._rewound_at + _REWIND_SECONDS:
            self._rewound_at = time.monotonic()
            self._read_from_next()

    def _read_again_if_unfed(self) -> None:
        """Ask for records that nobody brings. Faust drops what it has fetched when a rebalance stops it, and where that was the end
        of a log, no later batch shows the gap. If a transaction hides the records, asking again does no harm."""
        now = time.monotonic()
        if self.accepts_input_at > now or self._input.end <= self.next:
            self._fed_at = now
        elif now > self._fed_at + _UNFED_SECONDS:
            log.info(
                "%s: no record has come for %.0f s, though topic=%s partition=%d goes on behind offset=%d; asking for it again",
                self.name, _UNFED_SECONDS, self.input_topic, self.partition, self.next,
            )  # fmt: skip
            self._read_from_next()

    def _seek(self) -> None:
        """Let the consumer continue at the next record to take."""
        self._rewind(self.next)
        self._mark_alive()

    def _look(self, after: float) -> None:
        """Look whether the input still has the next record to take (`InputLog.look`). Kafka may take its time to answer."""
        try:
            self._input.look(self.next, after)
        finally:
            self._mark_alive()

    def _accept(self, batch: Batch, generation: int) -> None:
        """Take a batch if it continues exactly what was taken; rewind if something is missing."""
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
            batch.cut(Offset(self.next))
            try:
                self._require_stage().take(batch)
            except UnreadableBatch as error:
                raise RetryableRefusal(
                    f"topic={self.input_topic} partition={self.partition} offset={error.offset}: the record batch that begins here "
                    f"passes its checksum but cannot be read ({error.what}): let another replica lead the partition, and find the "
                    "producer that writes such batches; the task tries again by itself. If the batch stays as it is, "
                    f"{self.services.ledger.way_out}"
                ) from error
            except MalformedRecord as error:
                raise Refusal(
                    f"topic={self.input_topic} partition={self.partition} offsets {batch.start} to {batch.end - 1}: {error}; this "
                    f"topic is ours alone: find out who else writes to it, and {self.services.ledger.way_out}"
                ) from error
            self.next = batch.end
            self._misses_records = False
            self._fed_at = time.monotonic()
        finally:
            batch.finish()

    def _commit(self, commit: Commit) -> None:
        stage = self._require_stage()
        commit.meta["counters"] = dict(stage.counters)
        if self._never_committed:
            commit.outputs.append(self.services.ledger.started(self.stage_name, self.partition))
        with self._metrics.transaction():
            self._transactions.commit(commit, self._require_store(), self._input.topic_id)
        self.position = commit.position
        self.committed_at = time.monotonic()
        self.committed_counters = commit.meta["counters"]
        self._never_committed = False
        seconds = self._metrics.committed(commit, self.committed_counters)
        for released in commit.released:
            self._tell(released, seconds)
        stage.committed(commit)

    def _tell(self, released: Released, seconds: float) -> None:
        """One line of the log for a release. The first argument tells lines apart that must not be counted as repeats."""
        place = {"event": "release", "stage": self.stage_name, "partition": self.partition}
        said = {**place, **released.facts, "rows": released.rows, "seconds": round(seconds, 3)}
        log.info(
            "%s: %s rows published in %.2f s",
            f"{self.name}: {released.what}",
            f"{released.rows:,}",
            seconds,
            extra=said,
        )

    def _go_on(self) -> None:
        """A sign of life in a long start; ends the start if the task must stop."""
        self._mark_alive()
        if self._stopping.is_set():
            raise Stopped

    def _mark_alive(self) -> None:
        self.alive_at = time.monotonic()

    def _require_store(self) -> Store:
        if self._store is None:
            raise RuntimeError("the task has no store before it has started")
        return self._store

    def _require_stage(self) -> Stage:
        if self._stage is None:
            raise RuntimeError("the task has no stage after its end")
        return self._stage

    def _close(self, wipe: bool = False) -> None:
        """Throw the stage away, and close producer and store. Never raises: a task that gives up must be able to start again."""
        self._throw_stage_away()
        store, self._store = self._store, None
        self._transactions.close()
        if store is not None and self._disk.trouble:
            store.abandon()
        elif store is not None:
            try:
                if wipe:
                    store.wipe()
                store.close()
            except Exception as error:  # as on a full disk; what was not written is replayed
                log.warning(
                    "%s: the store could not be written (%s); it is read again from the changelog",
                    self.name,
                    str(error) if isinstance(error, StoreUnusable) else describe(error),
                )
