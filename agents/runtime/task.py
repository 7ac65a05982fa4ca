"""The partition task: one object per (stage, assigned partition), with its own thread, producer and store.

An agent feeds it batches. The task gives them to its stage (reading.py) and commits what the stage has ready (committing.py). The
changelog is the authority: each commit writes the next input position there; the consumer group's offset is for tools. recovery.py
decides what follows from a failure.
"""

import contextlib
import logging
import math
import threading
import time
from typing import Any

from confluent_kafka import KafkaError

from susurrus.agents.finding import Finding
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.logs import describe
from susurrus.agents.runtime import changelog
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.committing import Committing
from susurrus.agents.runtime.reading import Reading
from susurrus.agents.runtime.recovery import Recovery, State
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.stall import MANY_ABORTS, StallReport
from susurrus.agents.runtime.task_context import Life, TaskContext
from susurrus.agents.runtime.transaction import Aborted, Fenced

log = logging.getLogger(__name__)


class PartitionTask(threading.Thread):
    """Runs one stage on one partition. ``committing`` and ``recovery`` have figures that any thread may read."""

    def __init__(self, context: TaskContext) -> None:
        super().__init__(name=context.name, daemon=True)
        self.context = context
        self._life = Life()
        self._reading = Reading(context, self._life)
        self.committing = Committing(context, self._life)
        self.recovery = Recovery(context, self._life)
        self._stalls = StallReport()
        self._stage: Stage | None = None
        self._last_counters: dict[str, int] = {}
        """The totals of the stage that was thrown away last."""

    # ---- called from other threads -----------------------------------------------------------------------------------

    @property
    def stage_name(self) -> str:
        """The name of the stage that it runs."""
        return self.context.spec.name

    @property
    def partition(self) -> int:
        """The partition of the stage's input."""
        return self.context.partition

    @property
    def state(self) -> State:
        """The state that status shows (`Recovery.state`)."""
        return self.recovery.state

    @property
    def at_work(self) -> bool:
        """Whether the stage is at work, a task on trial included."""
        return self.recovery.phase == "running"

    @property
    def accepts_input_at(self) -> float:
        """Monotonic time from which on batches are wanted, infinite while that is unknown."""
        stage = self._stage
        return stage.rests_until if stage is not None and self.at_work and not stage.full else math.inf

    def assigned(self, generation: int) -> None:
        """The group gave us the partition in this generation; batches of others are dropped."""
        self._reading.inbox.assigned(generation)

    def offer(self, batch: Batch) -> None:
        """Hand over a batch; never blocks. A task that has ended finishes it, or its successor would get no batches."""
        self._stalls.fed()
        self._reading.inbox.offer(batch)

    def cannot_read(self, reason: Finding) -> None:
        """Why no batches come; forgotten when one comes, or when it is not called again."""
        self._stalls.cannot_read(reason)

    def stop(self) -> None:
        """Ask the thread to end after the commit it is in; ``join`` waits for it."""
        self._life.stopping.set()
        self._reading.inbox.wake()

    @property
    def alive_at(self) -> float:
        """Monotonic time of the last sign of life. The watchdog sets it when the whole process stood still."""
        return self._life.alive_at

    @alive_at.setter
    def alive_at(self, moment: float) -> None:
        self._life.alive_at = moment

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
        self._life.mark_alive()
        return not self._life.stopping.is_set()

    def stall(self) -> Finding | None:
        """Why the task makes no progress, or None. A running stage stalls if it has waited for a while."""
        stage = self._stage
        return self._stalls.of(stage) if stage is not None and self.state == "running" else self.recovery.stall()

    def report(self) -> dict[str, Any]:
        """Facts for the status record."""
        stage = self._stage
        if stage is not None and self.at_work:
            facts = stage.report()
        else:
            facts = {"counters": dict(self._last_counters if stage is None else stage.counters)}
        # The offset after the interval: what comes behind it finds this interval closed (begun.py).
        return {"position": self.committing.position, "next": self._reading.next, **facts}

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start, run, start again; until stopped, fenced or refused."""
        try:
            self._run()
        finally:
            # Before the clients are closed, which may hang: a successor on this worker needs the room.
            self._reading.inbox.close()
            self._close()
        self.recovery.ended()

    def _run(self) -> None:
        while not self._life.stopping.is_set():
            try:
                began = time.monotonic()
                self._start_up()
                self.recovery.runs()
                log.info(
                    "%s runs from offset %d, ready in %.1f s", self.name, self._reading.next, time.monotonic() - began
                )
                self._work()
            # confluent-kafka can raise KafkaError (see deliver), which is no Exception; a dead thread would keep the store.
            except (Exception, KafkaError) as error:
                if not self.recovery.after(error, self._close):
                    break

    def _start_up(self) -> None:
        ledger, reading = self.context.services.ledger, self._reading
        self.recovery.starts("fencing the previous owner")
        producer = self.committing.open()
        self.recovery.starts(f"waiting for the ledger, which {ledger.initializer} writes in a new pipeline")
        ledger.join(self, producer)
        self._check_number()
        self.recovery.starts("recovering state from the changelog")
        reading.log.open()
        last = self.committing.recover()
        if last is not None:
            reading.log.check(last.position, last.topic_id)
        position = self._make_stage(last, reading.log.start() if last is None else last.position)
        if last is None:
            reading.log.check(position, reading.log.topic_id)
        self.committing.begin_at(position, self._require_stage().counters)
        reading.begin_at(position)

    def _check_number(self) -> None:
        """Raise Fenced where the ledger, which is complete now, gives the raw partition another number, or none yet."""
        context = self.context
        if context.spec.input_topic is None and context.services.ledger.number(*context.place) != self.partition:
            raise Fenced

    def _work(self) -> None:
        while not self._life.stopping.is_set():
            self._life.mark_alive()
            self.recovery.working()
            self._reading.feed(self._require_stage())
            # The error's traceback would keep the stage, and memory has room for one: it is gone before another one is made.
            if not self._commit():
                self._throw_stage_away()
                self._reading.begin_at(self._make_stage(self.committing.last(), self.committing.position))

    def _commit(self) -> bool:
        """Commit what the stage has ready, and say whether no transaction was aborted.

        Raises Refusal for a missing topic or right.
        """
        metrics, stage = self.committing.metrics, self._require_stage()
        try:
            metrics.computes()
            for commit in stage.commits(int(time.time() * 1000)):
                self.committing.commit(commit, stage, self._reading.log.topic_id)
                self._stalls.committed()
                self.recovery.committed()
                self._life.mark_alive()
                if self._life.stopping.is_set():
                    break
                metrics.computes()
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

    # ---- the stage ---------------------------------------------------------------------------------------------------

    def _make_stage(self, last: changelog.State | None, position: Offset) -> Offset:
        """Make the stage of the last commit, or of a partition that has never committed. Returns the position to read from.

        position: of the commit, or where the log starts.
        """
        kind, services, partition = self.context.spec.stage, self.context.services, self.partition
        if last is None:
            meta, position = kind.begin(services, partition, position)
        else:
            meta = last.meta
        self._stage = kind(services, partition, self.committing.store, meta, position)
        self._stage.wakes(self._reading.inbox)
        return position

    def _require_stage(self) -> Stage:
        if self._stage is None:
            raise RuntimeError("the task has no stage before it has started")
        return self._stage

    def _throw_stage_away(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            self._last_counters = dict(stage.counters)
            with contextlib.suppress(Exception):  # a connection that cannot be closed is left behind
                stage.close()

    def _close(self, wipe: bool = False) -> None:
        """Throw the stage away, and close producer and store. Never raises: a task that gives up must be able to start again."""
        self._throw_stage_away()
        self.committing.close(wipe=wipe)
