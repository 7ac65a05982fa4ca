"""The partition task: one object per (stage, assigned partition), with its own thread, producer and store.

It is the exactly-once part. A task is fed batches by an agent, gives them to its stage and commits what the stage has
ready: outputs, changelog and input position in one Kafka transaction, then the local store in one write. Authority is
the changelog: each commit writes the next input position there; the consumer group's offset is for tools.

States: starting -> running -> (refused | moved | stopped). Whatever goes wrong with Kafka that an abort does not mend
ends in starting again from the changelog, which tells what was committed and what was not. A refusal that somebody can mend from
outside is tried again with growing pauses and stays visible until the task really runs. A disk that cannot be used is tried for a
few seconds; then the worker gives up, so that others take over (agents/runtime/supervisor.py).
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from susurrus.agents.kafka.clients import is_fenced
from susurrus.agents.logs import describe
from susurrus.agents.runtime import crash_points
from susurrus.agents.runtime.changelog import Changelog
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.lacks import lack
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import NotYet, Stage
from susurrus.agents.runtime.store import Store, is_corrupt
from susurrus.agents.runtime.transport import Batch
from susurrus.mechanisms.errors import MendableRefusal, PrivacyError, Refusal, StoreUnusable
from susurrus.topics.packing import MalformedRecord

log = logging.getLogger(__name__)

_LOOP_SECONDS = 0.05
_RETRY_SECONDS = 2.0
_REWIND_SECONDS = 1.5
_LOOK_AT_LOG_SECONDS = 30.0
_STALL_SECONDS = 10.0
_OFFSETS_SECONDS = 8.0
_ABORT_SECONDS = 5.0
_CLOSE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_TRIAL_SECONDS = 30.0
"""A task that was refused has really run when it has committed, or has not refused for so long."""
_DISK_SECONDS = 20.0
"""What is wrong with a disk may pass: somebody makes room, a volume comes back."""
_DISK_SERIES_SECONDS = 60.0
"""Failures that follow each other within this are one trouble."""
_UNREADABLE_SECONDS = 20.0
"""A partition that cannot be read is said to be so every few seconds; one without news is not heard of when it is mended."""
_LEFT_BEHIND: list[Producer] = []
"""Producers that hang inside librdkafka; kept, because to destroy them would hang as well."""
_BATCHES_PER_COMMIT = 4
"""However fast the consumer is: what waits is bounded by commits and spills, and neither happens before the stage is asked."""
_ABORTS = 5
"""In a row, until they are taken for something that does not pass by itself."""


class Fenced(Exception):
    """Another owner has fenced this one. Not an error: the partition lives on elsewhere."""


class Stopped(Exception):
    """The task was told to stop in the midst of its start."""


class Aborted(Exception):
    """The transaction was aborted; nothing of it happened."""


class PartitionTask(threading.Thread):
    """Runs one stage on one partition. ``rewind(offset)`` asks the consumer to continue there, ``give_up(reason)`` ends
    the worker."""

    def __init__(
        self,
        *,
        input_topic: str,
        partition: int,
        make_stage: Callable[[Any, int], Stage],
        stage_name: str,
        changelog_topic: str,
        services: Services,
        open_store: Callable[[str, int], Store],
        rewind: Callable[[int], None],
        give_up: Callable[[str], None],
    ) -> None:
        super().__init__(name=f"{stage_name}-{partition}", daemon=True)
        self.stage_name = stage_name
        self.input_topic = input_topic
        self.partition = partition
        self.services = services
        self._phase = "starting"
        """What the thread does; ``state`` is what is shown of it."""
        self.reason = ""
        self.refusal = ""
        """Why the task refused, until it really runs again."""
        self.disk_trouble = ""
        """What is wrong with the local disk, until the store could be opened and the task runs."""
        self._refused_times = 0
        self._runs_since = 0.0
        self._disk_failures = (0.0, 0.0)
        """Times of the first and the last of a series."""
        self._trouble = ""
        self.next = -1
        """Input offset of the next record to take."""
        self.position = -1
        """Input offset of the last commit."""
        self.alive_at = time.monotonic()
        self.committed_at: float | None = None
        """Monotonic time of this task's last commit."""
        self.committed_counters: dict[str, int] = {}
        """The stage's totals as committed: what an aborted transaction counted is not among them."""
        self._rewind = rewind
        self._give_up = give_up
        self._rewound_at = 0.0
        self._looked_at = 0.0
        self._stall: tuple[str | None, float] = (None, 0.0)
        self._unreadable = ("", 0.0)
        """Why no batches come, and when that was said last."""
        self._open_store = open_store
        self._inbox: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._inbox_lock = threading.Lock()
        self._ended = False
        self._stopping = threading.Event()
        self._stage = make_stage(services, partition)
        self.changelog_topic = changelog_topic
        self._changelog = Changelog(services.clients, changelog_topic, partition)
        self._topic_id = ""
        self._group_metadata: Any = None
        self._producer: Producer | None = None
        self._store: Store | None = None
        self._generation_lock = threading.Lock()
        self._generation = -1
        self._reposition = False
        self._never_committed = True
        self._aborts = 0
        self._abort_cause = ""

    # ---- called from other threads -----------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """What is shown: a task that was refused is refused until it really runs again, whatever it tries meanwhile."""
        return "refused" if self.refusal and self._phase in ("starting", "running") else self._phase

    @property
    def reading(self) -> bool:
        """Whether the stage is at work."""
        return self._phase == "running"

    @property
    def accepts_input(self) -> bool:
        """Whether batches are wanted."""
        return self.reading and not self._stage.full

    def assigned(self, generation: int) -> None:
        """The group gave us the partition in this generation; batches of others are dropped."""
        with self._generation_lock:
            self._generation = generation
            self._reposition = True

    def take_after(self, before: "PartitionTask") -> None:
        """This worker's task that had the partition before was refused: so is this one, until it really runs."""
        self.refusal, self._refused_times = before.refusal, before._refused_times

    def offer(self, batch: Batch) -> None:
        """Hand over a batch; never blocks. A task that has ended gives it back, or its successor here would never be fed."""
        self._unreadable = ("", 0.0)
        with self._inbox_lock:
            if self._ended:
                batch.finish()
            else:
                self._inbox.put(batch)

    def cannot_read(self, reason: str) -> None:
        """Why no batches come, for whoever asks; until one comes, or it is not said again."""
        self._unreadable = (reason, time.monotonic())

    def stop(self) -> None:
        """Ask the thread to end after the commit it is in; ``join`` waits for it."""
        self._stopping.set()
        self._inbox.put(None)

    def silent_for(self, limit: float) -> float | None:
        """Seconds without a sign of life, if they are more than the limit: ten times as many while it starts, for every step
        of that has a time-out of its own and many tasks may wait for one ledger."""
        silent = time.monotonic() - self.alive_at
        return silent if self.is_alive() and silent > limit * (1 if self.state == "running" else 10) else None

    @property
    def died(self) -> bool:
        """Whether the thread has ended without saying so."""
        return self.ident is not None and not self.is_alive() and self._phase in ("starting", "running")

    def waiting(self) -> bool:
        """Called by the ledger while it waits for the initializer."""
        self._mark_alive()
        return not self._stopping.is_set()

    def stall(self) -> str | None:
        """Why nothing moves, or None. What a running stage waits for is a stall once it has waited for a while."""
        if self.state == "refused":
            return self.refusal or self.reason
        if self.state == "starting":
            return self._trouble or self.reason or None  # of the last attempt, not the step of this one
        if self.state != "running":
            return self.reason or None
        if self._aborts >= _ABORTS:
            return (
                f"the last {self._aborts} transactions were aborted ({self._abort_cause}): compare the limits of the topics it "
                "writes (`susurrus topics check`), and look at the brokers"
            )
        now = time.monotonic()
        unreadable, said = self._unreadable
        if unreadable and now - said < _UNREADABLE_SECONDS:
            return unreadable
        waits_for, since = self._stage.stall(int(time.time() * 1000)), now
        if waits_for == self._stall[0]:
            since = self._stall[1]
        self._stall = (waits_for, since)
        return waits_for if now - since > _STALL_SECONDS else None

    @property
    def purge_before(self) -> int:
        """Changelog records below this offset are superseded; -1 while that is unknown."""
        return self._changelog.purge_before

    def report(self) -> dict[str, Any]:
        """Facts for the status record."""
        facts = self._stage.report() if self.reading else {"counters": dict(self._stage.counters)}
        return {"position": self.position, "next": self.next, **facts}

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start, run, start again; until stopped, moved or refused."""
        try:
            self._run()
        finally:
            # Before the clients are closed, which may hang: a successor on this worker needs the room.
            self._end_inbox()
            self._close()
        if self._phase not in ("refused", "moved"):
            self._set_state("refused" if self.refusal else "stopped", self.refusal)

    def _end_inbox(self) -> None:
        with self._inbox_lock:
            self._ended = True
        self._drain_inbox()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                began = time.monotonic()
                self._start_up()
                self._set_state("running", "")
                self._trouble = self.disk_trouble = ""
                self._runs_since = time.monotonic()
                log.info("%s runs from offset %d, ready in %.1f s", self.name, self.next, time.monotonic() - began)
                if not self.refusal:
                    self._really_runs()
                self._work()
            except (Refusal, PrivacyError) as refusal:
                if not self._refused(refusal):
                    break
            except NotYet as waiting:
                self._trouble = str(waiting)
                self._set_state("starting", self._trouble)
                log.warning("%s waits: %s", self.name, self._trouble)
                self._close()
                self._pause()
            except Fenced:
                self._set_state("moved", "another owner has this partition")
                log.info("%s: another worker has taken this partition over", self.name)
                break
            except StoreUnusable as unusable:
                if self._stopping.is_set() or not self._disk_failed(unusable):
                    break
            # confluent-kafka can raise KafkaError (see deliver), which is no Exception; a dead thread would keep the store.
            except (Exception, KafkaError) as error:
                if self._stopping.is_set():
                    break
                # Kafka's errors name no topic and no right: whoever is asked what is missing tells both.
                if (lacking := self._lack(error)) is not None:
                    self._refused(lacking)
                    continue
                self._trouble = (
                    f"starting again after {describe(error)}: look at the worker's log and the brokers if this stays"
                )
                self._set_state("starting", self._trouble)
                # The text of an unforeseen exception may hold data, so only its type and place are logged.
                log.warning("%s starts again after %s", self.name, describe(error))
                self._close(wipe=is_corrupt(error))
                self._pause()

    def _refused(self, refusal: Refusal | PrivacyError) -> bool:
        """Tell why; whether to try again, after a pause that grows, because somebody can mend it from outside."""
        self.refusal = str(refusal)
        log.error("%s refuses: %s", self.name, self.refusal)
        self._tell()
        if not refusal.mendable:
            self._set_state("refused", self.refusal)
            return False
        self._set_state("starting", self.refusal)
        self._close()
        self._pause(min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**self._refused_times))
        self._refused_times = min(self._refused_times + 1, 10)
        return True

    def _tell(self) -> None:
        with contextlib.suppress(KafkaException, BufferError):  # it stays refused where nobody can be told, too
            self.services.ledger.refuse(self.stage_name, self.partition, self.refusal)

    def _really_runs(self) -> None:
        """Nothing is refused any more."""
        if self.refusal:
            log.info("%s goes on after it had refused", self.name)
        self.refusal, self._refused_times = "", 0
        self.services.ledger.clear_refusal(self.stage_name, self.partition)

    def _disk_failed(self, unusable: StoreUnusable) -> bool:
        """Whether to try again; else the worker was told to give up, and why is where `susurrus status` reads it."""
        now = time.monotonic()
        first, last = self._disk_failures
        first = now if now - last > _DISK_SERIES_SECONDS else first
        self._disk_failures = (first, now)
        self.disk_trouble = self._trouble = str(unusable)
        log.warning("%s: %s", self.name, self.disk_trouble)
        self._set_state("starting", self._trouble)
        self._close()
        if now - first < _DISK_SECONDS:
            self._pause()
            return True
        self.refusal = self.disk_trouble
        self._set_state("refused", self.refusal)
        self._tell()
        self._give_up(f"{self.name}: {self.refusal}")
        return False

    def _lack(self, error: BaseException) -> Refusal | None:
        """The right or the topic that is missing, where that is what Kafka says."""
        try:
            return lack(error, self)
        except (Exception, KafkaError):
            return None  # Kafka does not answer that either

    def _pause(self, seconds: float = _RETRY_SECONDS) -> None:
        """Between two attempts, which are signs of life: Kafka may be away for longer than the watchdog waits."""
        end = time.monotonic() + seconds
        while not self._stopping.is_set():
            self._mark_alive()
            if (left := end - time.monotonic()) <= 0:
                return
            self._stopping.wait(min(left, _RETRY_SECONDS))

    def _set_state(self, state: str, reason: str) -> None:
        self.reason = reason
        self._phase = state

    def _start_up(self) -> None:
        services = self.services
        clients = services.clients
        self._set_state("starting", "fencing the previous owner")
        self._producer = clients.transactional_producer(f"{clients.application}-{self.stage_name}-{self.partition}")
        self._call(lambda: self._require_producer().init_transactions(30.0))
        self._mark_alive()
        self._set_state(
            "starting", f"waiting for the ledger, which {services.ledger.initializer} writes in a new pipeline"
        )
        services.ledger.join(self, self._require_producer())
        self._set_state("starting", "recovering state from the changelog")
        self._topic_id = clients.topic_id(self.input_topic)
        partitions = self.partition + 1 if clients.embedded else clients.partitions(self.changelog_topic)
        if partitions == 0:
            raise MendableRefusal(
                f"topic={self.changelog_topic} does not exist: create it with `susurrus topics create`"
            )
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
            self._check_position(state.position, state.topic_id)
            self._stage.counters = dict(state.meta.get("counters", {}))
            position = self._stage.restore(self._store, state.meta, state.position)
        else:
            start, _ = clients.watermarks(self.input_topic, self.partition)
            position = self._stage.restore(self._store, None, start)
            self._check_position(position, self._topic_id)
        self.committed_counters = dict(self._stage.counters)
        self._never_committed = state is None
        self.next = self.position = position
        self._group_metadata = clients.group_metadata()
        self._drain_inbox()
        self._rewind(self.next)

    def _look_at_log(self, after: float) -> None:
        """Check, if the last look was so many seconds ago, that the input is still the topic whose position we keep."""
        if time.monotonic() > self._looked_at + after:
            self._looked_at = time.monotonic()
            self._check_position(self.next, self.services.clients.topic_id(self.input_topic))

    def _check_position(self, position: int, topic_id: str) -> None:
        """The changelog's position must exist in this very log: never skip, never start over."""
        if topic_id != self._topic_id:
            raise Refusal(
                f"topic={self.input_topic} was recreated (topic_id={self._topic_id}, the changelog knows {topic_id}): "
                f"restore the old topic as it was, or {self.services.ledger.way_out}"
            )
        start, end = self.services.clients.watermarks(self.input_topic, self.partition)
        if position < start:
            raise Refusal(
                f"topic={self.input_topic} partition={self.partition} starts at offset={start}, but position={position} is "
                f"still to be read, since retention ate unread records: raise its retention, and {self.services.ledger.way_out}"
            )
        if position > end:
            raise Refusal(
                f"topic={self.input_topic} partition={self.partition} ends at offset={end} before position={position}, so "
                f"the log was truncated: restore it as it was at the last commit, or {self.services.ledger.way_out}"
            )

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._mark_alive()
            if self.refusal and time.monotonic() > self._runs_since + _TRIAL_SECONDS:
                self._really_runs()
            # A topic that is recreated and filled quickly leaves no trace in the positions.
            with contextlib.suppress(KafkaException):
                self._look_at_log(_LOOK_AT_LOG_SECONDS)
            try:
                batch = self._inbox.get(timeout=_LOOP_SECONDS)
            except queue.Empty:
                batch = None
            with self._generation_lock:
                generation, reposition = self._generation, self._reposition
                self._reposition = False
            if reposition:
                # A rebalance sent the consumer back to the group's offset; what we hold in memory is still good.
                self._rewind(self.next)
            taken = 0
            while batch is not None:
                taken += 1
                self._accept(batch, generation)
                self._mark_alive()
                if taken == _BATCHES_PER_COMMIT:
                    break
                try:
                    batch = self._inbox.get_nowait()
                except queue.Empty:
                    batch = None
            try:
                for commit in self._stage.commits(int(time.time() * 1000)):
                    self._commit(commit)
                    self._aborts = 0
                    if self.refusal:
                        self._really_runs()
                    self._mark_alive()
                    if self._stopping.is_set():
                        return
            except Aborted as aborted:
                if aborted.__cause__ is not None and (lacking := self._lack(aborted.__cause__)) is not None:
                    raise lacking from aborted
                cause = describe(aborted.__cause__ or aborted)
                log.warning("%s: a transaction was aborted (%s); its records are read again", self.name, cause)
                self._aborts += 1
                self._abort_cause = cause
                if self._aborts >= _ABORTS:
                    self._pause()
                store = self._require_store()
                state = self._changelog.meta(store)
                if state is not None:
                    self._stage.counters = dict(state.meta.get("counters", {}))
                self.next = self._stage.restore(store, state.meta if state else None, self.position)
                self._drain_inbox()
                self._rewind(self.next)

    def _accept(self, batch: Batch, generation: int) -> None:
        """Take a batch if it continues exactly what was taken; rewind if something is missing."""
        try:
            if batch.generation != generation:
                return
            if batch.start != self.next:
                # Back: a rebalance, or another topic of the same name. Ahead: a dropped batch, or a hole.
                self._look_at_log(_REWIND_SECONDS)
            if batch.end <= self.next:
                return
            if batch.start > self.next:
                if time.monotonic() > self._rewound_at + _REWIND_SECONDS:
                    self._rewound_at = time.monotonic()
                    self._drain_inbox()
                    self._rewind(self.next)
                return
            # A seek that falls into a fetch brings older records than the start says: seen to count 1,350 of them
            # twice.
            if batch.start < self.next or (batch.records and batch.records[0].offset < self.next):
                batch.records = [record for record in batch.records if record.offset >= self.next]
            try:
                self._stage.take(batch)
            except MalformedRecord as error:
                raise Refusal(
                    f"topic={self.input_topic} partition={self.partition} offsets {batch.start} to {batch.end - 1}: {error}; this "
                    f"topic is ours alone: find out who else writes to it, and {self.services.ledger.way_out}"
                ) from error
            self.next = batch.end
        finally:
            batch.finish()

    def _commit(self, commit: Commit) -> None:
        """Make one step durable.

        1. begin the transaction
        2. produce outputs and ticks
        3. produce the changelog record: state, next position, topic id
        4. send the position to the consumer group, for tools
        5. commit the transaction (librdkafka flushes first); from here on the step has happened
        6. write state, meta record and changelog position to the store in one batch
        A crash before 5 leaves nothing behind, a crash after 5 is mended by replaying the changelog.
        """
        stage, producer, store = self.stage_name, self._require_producer(), self._require_store()
        commit.meta["counters"] = dict(self._stage.counters)
        if self._never_committed:
            commit.outputs.append(self.services.ledger.started(stage, self.partition))
        step = self._changelog.prepare(store, commit, self._topic_id, self.services.ledger.epoch)
        for output in commit.outputs:
            self._check_sizes(output)
        crash_points.reach(stage, "before-begin")
        try:
            producer.begin_transaction()
            crash_points.reach(stage, "after-begin")
            for output in commit.outputs:
                self._produce(output)
            crash_points.reach(stage, "after-outputs")
            self._changelog.produce(producer, step)
            crash_points.reach(stage, "after-changelog")
            self._send_offsets(commit.position)
            crash_points.reach(stage, "after-offsets")
            self._call(lambda: producer.commit_transaction(30.0))
        except KafkaException as error:
            self._abort(error)
        crash_points.reach(stage, "after-commit")
        self._changelog.apply(store, step)
        crash_points.reach(stage, "after-store")
        self.position = commit.position
        self.committed_at = time.monotonic()
        self.committed_counters = commit.meta["counters"]
        self._never_committed = False
        self._stage.committed(commit)

    def _abort(self, cause: KafkaException) -> None:
        """Abort what can be aborted and raise Aborted; raise Fenced for a fenced producer, the cause for anything
        worse.
        """
        if is_fenced(cause.args[0]):
            raise Fenced from cause
        if cause.args[0].retriable():
            raise cause
        # A delivery that failed does not say why; the abort does: it is refused to a producer that has been fenced.
        try:
            self._call(lambda: self._require_producer().abort_transaction(30.0))
        except KafkaException as failed:
            # What went wrong first says more: a transaction whose partitions were all refused never began, so cannot be ended.
            raise cause from failed
        raise Aborted from cause

    def _send_offsets(self, position: int) -> None:
        """Step 4, in a thread that can be left behind: librdkafka heeds no time-out here, and hangs for good when the group's
        coordinator has left the metadata meanwhile (its issues 5456 and 5511; seen with a broker away for half a minute).
        """
        producer, group = self._require_producer(), self._group_metadata
        offsets = [TopicPartition(self.input_topic, self.partition, position)]
        try:
            error = _in_time(
                lambda: producer.send_offsets_to_transaction(offsets, group, _OFFSETS_SECONDS),
                seconds=_OFFSETS_SECONDS + 2.0,
                name=f"{self.name}-offsets",
            )
        except TimeoutError:
            log.warning("%s: Kafka's answer is overdue; a new producer takes over", self.name)
            # Whoever closed this producer would wait for that call, too. The next one fences it.
            _LEFT_BEHIND.append(producer)
            self._producer = None
            raise
        if isinstance(error, KafkaException) and is_fenced(error.args[0]):
            raise Fenced from error
        if error is not None:
            raise error

    def _call(self, call: Callable[[], object]) -> None:
        """One transactional call, once. Raises Fenced for a fenced producer, KafkaException for the rest.

        librdkafka asks to repeat what has timed out until it is definite. A new producer ends the doubt at once instead: it
        fences this one, and the changelog tells whether the transaction was committed.
        """
        try:
            call()
        except KafkaException as error:
            if is_fenced(error.args[0]):
                raise Fenced from error
            raise

    def _produce(self, output: Output) -> None:
        producer = self._require_producer()
        if output.headers is not None or (output.messages and "timestamp" in output.messages[0]):
            # produce_batch knows neither headers nor time stamps.
            for row, message in enumerate(output.messages):
                fields = message if output.headers is None else {**message, "headers": output.headers[row]}
                while True:
                    try:
                        producer.produce(output.topic, partition=output.partition, **fields)
                        break
                    except BufferError:
                        self._mark_alive()
                        producer.poll(0.1)
            return
        messages = output.messages
        while messages:
            # librdkafka takes what fits its queue and marks the rest, in order of failure.
            producer.produce_batch(output.topic, messages, partition=output.partition)
            failed = [message for message in messages if "_error" in message]
            for message in failed:
                error = message.pop("_error")
                if error.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(error)
            messages = failed
            self._mark_alive()
            producer.poll(0.1 if failed else 0)

    def _check_sizes(self, output: Output) -> None:
        """An oversized record would abort every retry for ever, so it is refused before it is sent."""
        limit = self.services.max_record_bytes + 50_000
        largest = max(
            (len(message["value"] or b"") + len(message.get("key") or b"") for message in output.messages), default=0
        )
        if largest > limit:
            raise Refusal(
                f"topic={output.topic}: a record of {largest} bytes exceeds {limit} bytes: lower input.max_key_bytes, or "
                "report this as a bug"
            )

    def _drain_inbox(self) -> None:
        while True:
            try:
                batch = self._inbox.get_nowait()
            except queue.Empty:
                return
            if batch is not None:
                batch.finish()

    def _go_on(self) -> None:
        """Sign of life in a long start, which ends where the task is to stop."""
        self._mark_alive()
        if self._stopping.is_set():
            raise Stopped

    def _mark_alive(self) -> None:
        self.alive_at = time.monotonic()

    def _require_producer(self) -> Producer:
        if self._producer is None:
            raise RuntimeError("the task has no producer before it has started")
        return self._producer

    def _require_store(self) -> Store:
        if self._store is None:
            raise RuntimeError("the task has no store before it has started")
        return self._store

    def _close(self, *, wipe: bool = False) -> None:
        """Let go of producer and store; never raises, for whoever gives up must be able to start again."""
        producer, store = self._producer, self._store
        self._producer = self._store = None
        if producer is not None:
            # A producer that goes away with an open transaction leaves it to time out; abort what can be aborted. Closing
            # aborts once more, and waits for ever if the coordinator does not answer: the store must not wait with it.
            def end() -> None:
                # Of a fenced producer they raise whatever a callback was interrupted by, see deliver.
                for step in (producer.purge, lambda: producer.abort_transaction(_ABORT_SECONDS), producer.close):
                    with contextlib.suppress(Exception, KafkaError):
                        step()

            try:
                _in_time(end, seconds=_ABORT_SECONDS + _CLOSE_SECONDS, name=f"{self.name}-close")
            except TimeoutError:
                log.warning("%s: its producer does not close and is left behind; the next one fences it", self.name)
                _LEFT_BEHIND.append(producer)
        if store is not None:
            try:
                if wipe:
                    store.wipe()
                store.close()
            except Exception as error:  # a full disk, say: what was not written is replayed
                log.warning(
                    "%s: the store could not be written (%s); it is read again from the changelog",
                    self.name,
                    str(error) if isinstance(error, StoreUnusable) else describe(error),
                )


def _in_time(call: Callable[[], object], *, seconds: float, name: str) -> BaseException | None:
    """What a call raised, or None; made in a thread that is left behind, with TimeoutError, when it takes longer."""
    answer: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call()
        except (Exception, KafkaError) as error:
            answer.put(error)
        else:
            answer.put(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        return answer.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
