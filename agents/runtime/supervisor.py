"""The supervisor of a worker: starts, feeds and stops the partition tasks as the consumer group assigns partitions.

It lives on Faust's event loop; the tasks have threads of their own. Tasks are made on assignment only, and started in parallel.
Rebalances are eager: all partitions are revoked first. A partition that stays keeps its task, and so its store and producer. A
task is fenced when another worker has taken its partition over. It is started again after two heartbeats, but only if the same
generation still assigns the partition to this worker.
"""

import asyncio
import fcntl
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaException, TopicPartition
from faust.types import TP

from susurrus.agents.kafka.requests import answer_of
from susurrus.agents.logs import describe, where_threads_are
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.disk import Disk
from susurrus.agents.runtime.ending import DISK_UNUSABLE, ENDING, FAILED, MISCONFIGURED
from susurrus.agents.runtime.metrics import Metrics
from susurrus.agents.runtime.pipeline import StageSpec
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store, usable
from susurrus.agents.runtime.task import PartitionTask
from susurrus.topics.charges import Charge
from susurrus.topics.ledger import Status

log = logging.getLogger(__name__)

_STATUS_SECONDS = 2.0
_PURGE_SECONDS = 30.0
_DELETE_SECONDS = 10.0
_JOIN_SHARE = 0.6
"""The tasks' share in what is left of worker.stop_timeout. In the rest, Faust leaves the group and closes its clients."""
_GIVE_UP_SECONDS = 30.0
_LOOP_SECONDS = 3.0
_PAUSE_SECONDS = 5.0


class Supervisor:
    """Owns the partition tasks of one worker process."""

    def __init__(self, app: Any, services: Services, stages: Sequence[StageSpec], *, heartbeat_seconds: float) -> None:
        self._app = app
        self._services = services
        self._stages = {stage.input_topic: stage for stage in stages}
        self._tasks: dict[TP, PartitionTask] = {}
        self.generation = -1
        """The group's generation of the last assignment; -1 before the first."""
        self._assigned: set[TP] = set()
        self._heartbeat_seconds = heartbeat_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._closing = False
        self._gave_up = ""
        """Why this worker ends without a signal."""
        self.left_behind: list[str] = []
        """Tasks that did not end in time when the worker stopped; their threads still run."""
        self._directory, self._directory_lock = _take_directory(services.settings.worker.data_directory)
        self._disk = Disk(
            self._directory, gives_up=self._disk_stays_unusable, silence=services.settings.worker.watchdog / 1000
        )
        self.worker = f"{socket.gethostname()}-{os.getpid()}"
        self.waits_for = ""
        self.metrics = Metrics(services.settings.application)
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (
                ("watchdog", self._keep_watch),
                ("housekeeping", self._keep_house),
                ("disk", lambda: self._disk.watch(self._stopping)),
            )
        ]

    # ---- called by the transport and the agents ----------------------------------------------------------------------

    def wanted_at(self, tp: TP) -> float:
        """Monotonic time from which on the partition's task wants batches, infinite while that is unknown."""
        task = self._tasks.get(tp)
        return math.inf if task is None else task.accepts_input_at

    def on_trouble(self, tp: TP, reason: str) -> None:
        """The partition cannot be read at the moment."""
        if (task := self._tasks.get(tp)) is not None:
            task.cannot_read(reason)

    def offer(self, tp: TP, batch: Batch) -> None:
        """Hand a batch to its task; a batch of a partition that has left this worker is dropped."""
        batch.offered = True
        task = self._tasks.get(tp)
        if task is None:
            batch.finish()
        else:
            task.offer(batch)

    def admit(self) -> None:
        """Called before Faust joins the group. Raises Refusal if no task of this worker could run (`Ledger.admit`), and
        ConfigurationError if this worker could not write its rows.

        The ledger comes first: a worker with another configuration must not register its schemas.
        """
        self._services.ledger.admit()
        self._services.publisher.open()

    def wait_for(self, what: str) -> None:
        """What the worker still waits for before it is ready; empty if nothing (agents/operations/probe.py)."""
        self.waits_for = what

    # ---- the group ---------------------------------------------------------------------------------------------------

    async def on_revoked(self, tps: set[TP]) -> None:
        """Stop nothing yet: most partitions come back with the next assignment, and fencing guards the others."""
        with self._lock:
            self._assigned = set()

    async def on_assigned(self, tps: set[TP]) -> None:
        """Start what is new, keep what stays, stop what has gone. Returns at once: recovery runs in the tasks' threads."""
        self._loop = asyncio.get_running_loop()
        while self._threads:
            self._threads.pop().start()
        self.metrics.rebalances.inc()
        generation = self._app.consumer_generation_id
        ours = {TP(tp.topic, tp.partition) for tp in tps if tp.topic in self._stages}
        with self._lock:
            self.generation, self._assigned = generation, ours
            gone = [self._tasks.pop(tp) for tp in list(self._tasks) if tp not in ours]
            for task in gone:
                task.stop()
            for tp in sorted(ours):
                kept = self._tasks.get(tp)
                if kept is not None and kept.is_alive() and kept.state in ("starting", "running", "refused"):
                    kept.assigned(generation)
                elif kept is None or kept.state != "refused":
                    self._start(tp)
        names = ", ".join(f"{self._stages[tp.topic].name}-{tp.partition}" for tp in sorted(ours)) or "none"
        log.info("generation %d of the group: %d given up, now %s", generation, len(gone), names)

    def _start(self, tp: TP) -> None:
        stage = self._stages[tp.topic]
        task = PartitionTask(
            input_topic=tp.topic,
            partition=tp.partition,
            make_stage=stage.make,
            stage_name=stage.name,
            changelog_topic=self._services.topic(stage.changelog),
            services=self._services,
            metrics=self.metrics,
            open_store=lambda stage, partition: Store(self._directory / f"{stage}-{partition}"),
            rewind=lambda offset: self._rewind(tp, offset),
            give_up=self.give_up,
            disk=self._disk,
        )
        task.assigned(self.generation)
        if (before := self._tasks.get(tp)) is not None:
            task.recovery.take_after(before.recovery)
        self._tasks[tp] = task
        task.start()

    def _rewind(self, tp: TP, offset: int) -> None:
        """Called by a task's thread: let the consumer continue at an offset, if the partition is still assigned."""
        loop = self._loop
        if loop is None or self._stopping.is_set():
            return

        async def seek() -> None:
            if tp in self._assigned:
                await self._app.consumer.rewind(tp, offset)

        future = asyncio.run_coroutine_threadsafe(seek(), loop)
        try:
            # Raised from here, the error would keep the task's frames, and this one the future, which keeps the error.
            refused = "" if (error := future.exception(timeout=30.0)) is None else type(error).__name__
        except Exception as missed:  # cancelled, or no answer
            refused = type(missed).__name__
        if refused:
            # Mid-rebalance the consumer refuses; the next assignment repositions every task that stays.
            log.info("%s-%d: seek refused (%s)", tp.topic, tp.partition, refused)

    # ---- the watchdog ------------------------------------------------------------------------------------------------

    def _keep_watch(self) -> None:
        """Ends the process if a task hangs: the worker's heartbeats would go on and keep the partition from other workers.

        It has a thread of its own and waits for nothing else. So it notices whenever the whole process stood still (SIGSTOP, a
        paused container or machine), and does not take that for a hang.
        """
        limit = self._services.settings.worker.watchdog / 1000
        awake = time.monotonic()
        while not self._stopping.wait(0.5):
            silent = {tp: task.silent_for(limit) for tp, task in list(self._tasks.items())}
            before, awake = awake, time.monotonic()
            if awake > before + _PAUSE_SECONDS:
                log.warning("the worker stood still for a while and goes on")
                for task in list(self._tasks.values()):
                    task.alive_at = awake
                continue
            for tp, seconds in silent.items():
                if seconds is not None:
                    log.critical("%s-%d has hung for %.0f s; the worker ends", tp.topic, tp.partition, seconds)
                    where_threads_are()
                    os._exit(70)

    # ---- housekeeping: restarts, status, purges ----------------------------------------------------------------------

    def _keep_house(self) -> None:
        reported: dict[TP, Status] = {}
        status_at = purge_at = time.monotonic()
        fenced_at: dict[TP, float] = {}
        while not self._stopping.wait(0.5):
            try:
                self._services.clients.serve()
                self._restart_fenced(fenced_at)
                if time.monotonic() >= status_at:
                    status_at = time.monotonic() + _STATUS_SECONDS
                    self.report(reported)
                if time.monotonic() >= purge_at + _PURGE_SECONDS:
                    purge_at = time.monotonic()
                    self._purge()
            except Exception as error:
                log.warning("housekeeping is put off: %s", describe(error))

    def give_up(self, reason: str) -> None:
        """Called by a task that cannot use the local disk: the worker ends, so that others get all of its partitions."""
        self._end(DISK_UNUSABLE, reason, why="so that others take over; ")

    def _disk_stays_unusable(self, reason: str) -> None:
        """Called by a look at the disk: all partitions leave together, and the status says why until others have them."""
        self.give_up(reason)
        for task in list(self._tasks.values()):
            task.recovery.disk_stays_unusable(reason)

    def on_fenced(self) -> None:
        """Another worker has joined the group with this worker's instance, and has its partitions."""
        settings = self._services.settings
        reason = (
            f"worker.instance={settings.worker.instance} group={settings.application}: another worker has joined with the same "
            "instance and has the partitions of this one; give each worker of the pipeline an instance of its own "
            "(SUSURRUS__WORKER__INSTANCE), and do not start this one again if the other replaces it"
        )
        self._end(MISCONFIGURED, reason)

    def gives_up_its_place(self) -> bool:
        """Whether this worker should not be waited for when it has ended: the others take its partitions at once."""
        return ENDING.exit_code == DISK_UNUSABLE

    def _end(self, exit_code: int, reason: str, *, why: str = "") -> None:
        with self._lock:
            if self._gave_up or self._closing:
                return
            self._gave_up = reason
        log.critical("the worker ends, exit code %d, %s%s", exit_code, why, reason)
        ENDING.give_up(exit_code, seconds=_GIVE_UP_SECONDS)

    def _restart_fenced(self, fenced_at: dict[TP, float]) -> None:
        with self._lock:
            for tp, task in list(self._tasks.items()):
                if task.state != "fenced" and not task.died:
                    fenced_at.pop(tp, None)
                    continue
                since = fenced_at.setdefault(tp, time.monotonic())
                if time.monotonic() - since < 2 * self._heartbeat_seconds + 1.0:
                    continue
                fenced_at.pop(tp)
                if tp in self._assigned and not self._closing and self._app.consumer_generation_id == self.generation:
                    log.info("%s-%d is still assigned to this worker; starting it again", tp.topic, tp.partition)
                    self._start(tp)

    def report(self, reported: dict[TP, Status]) -> None:
        """Write what changed to the ledger's status records."""
        now = int(time.time() * 1000)
        records = []
        for tp, task in sorted(self._tasks.items()):
            facts = task.report()
            status = Status(
                stage=task.stage_name,
                partition=tp.partition,
                state=task.state,
                worker=self.worker,
                position=facts["position"],
                next=facts["next"],
                interval=facts.get("interval"),
                stalled=task.stall() or "",
                counters=facts["counters"],
            )
            if reported.get(tp) != status:
                reported[tp] = status
                records.append(msgspec.structs.replace(status, at=now))
        if records:
            self._services.ledger.publish(*records)

    def _purge(self) -> None:
        """Delete what is never read again: internal input below the committed position, superseded changelog records."""
        if self._services.clients.embedded:
            return
        targets = []
        for tp, task in list(self._tasks.items()):
            if not task.reading:
                continue
            if self._stages[tp.topic].purge and task.position > 0:
                targets.append(TopicPartition(tp.topic, tp.partition, task.position))
            if task.purge_before > 0:
                targets.append(TopicPartition(task.changelog_topic, tp.partition, task.purge_before))
        targets += [TopicPartition(*place) for place in self._services.superseded()]
        if targets:
            asked = self._services.clients.admin().delete_records(targets, request_timeout=_DELETE_SECONDS)
            for future in asked.values():
                try:
                    answer_of(future, _DELETE_SECONDS)
                except KafkaException as error:
                    log.info("deleting what has been read is put off: %s", error.args[0].name())

    # ---- the end -----------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[TP, PartitionTask]:
        """The tasks, for tests and status."""
        return dict(self._tasks)

    @property
    def charges(self) -> Sequence[Charge]:
        """The charges on the raw topic, as this worker has last read them."""
        return self._services.ledger.charges.known

    def unhealthy(self) -> str | None:
        """Why this process should be restarted, or None. A restart helps neither a refusal nor a broker that is away."""
        if self._gave_up:
            return self._gave_up
        if trouble := self._disk.unhealthy():
            return trouble
        limit = self._services.settings.worker.watchdog / 1000
        for task in self.tasks.values():
            if task.disk_trouble:
                return f"{task.name}: {task.disk_trouble}"
            if (silent := task.silent_for(limit)) is not None:
                return f"{task.name} has hung for {silent:.0f} s"
        loop = self._loop
        if loop is None or self._stopping.is_set():
            return None
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return None  # the loop has been closed: the process is about to end
        return None if answered.wait(_LOOP_SECONDS) else f"the event loop has not answered for {_LOOP_SECONDS:.0f} s"

    def unready(self) -> str | None:
        """What this worker still has to do before it is ready, or None. A rolling upgrade waits for it."""
        if self.waits_for:
            return self.waits_for
        if self.generation < 0:
            return "waiting for the consumer group"
        starting = [task.name for task in self.tasks.values() if task.state == "starting"]
        return f"starting: {', '.join(sorted(starting))}" if starting else None

    async def stop(self) -> None:
        """End the task threads, each after the commit it is in. Must be called before Faust stops the consumer."""
        ENDING.begin(
            FAILED
        )  # has an effect only if no signal came: then Faust has failed, and its end may hang as well
        with self._lock:
            self._closing = True
            tasks = list(self._tasks.values())
            for task in tasks:
                task.stop()
        log.info("stopping: %d tasks finish their commits", len(tasks))
        deadline = time.monotonic() + _JOIN_SHARE * ENDING.left()
        loop = asyncio.get_running_loop()
        for task in tasks:
            await loop.run_in_executor(None, task.join, max(0.1, deadline - time.monotonic()))
        self._stopping.set()
        await loop.run_in_executor(None, self._services.close)
        self.report({})
        self._services.ledger.close()
        self._directory_lock.close()
        self.left_behind = sorted(task.name for task in tasks if task.is_alive())
        if self.left_behind:
            names = ", ".join(self.left_behind)
            log.warning(
                "stopped without waiting for %s: they have not come back from the broker or a library; nothing is lost",
                names,
            )
        else:
            log.info("stopped")


def _take_directory(directory: Path) -> tuple[Path, Any]:
    """A directory of this worker's own below the configured one, with its lock: workers on one machine never share a store.

    Raises StoreUnusable where the disk cannot be written.
    """
    for number in range(1_000):
        own = directory / f"worker-{number}"
        with usable(own):
            own.mkdir(parents=True, exist_ok=True)
            lock = (own / "lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.close()
                if isinstance(error, BlockingIOError):  # another worker's
                    continue
                raise
        return own, lock
    raise RuntimeError(
        f"worker.data_directory={directory} has 1000 workers already: give each host a directory of its own"
    )
