"""The supervisor of a worker: it makes the parts that look after the partition tasks, and decides how the worker begins and ends.

| part | duty |
|---|---|
| group.py | the assignment, the tasks and the generation |
| watchdog.py | ends a worker in which a task hangs |
| housekeeping.py | starts fenced tasks again, writes the status, purges what was read |
| disk.py | looks whether the stores' disk can be written |
| health.py | says whether the worker is healthy and ready |

The supervisor lives on Faust's event loop. The tasks, the watchdog, the housekeeping and the look at the disk have threads of their
own; the last three begin with the first assignment. There are two locks: the group's (group.py), and the supervisor's, which lets
only the first of all reasons to give up end the worker. Neither is held while the other is taken, or while anything is waited for.
"""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.disk import Disk, take_directory
from susurrus.agents.runtime.ending import DISK_UNUSABLE, ENDING, FAILED, MISCONFIGURED
from susurrus.agents.runtime.group import Group
from susurrus.agents.runtime.health import Health
from susurrus.agents.runtime.housekeeping import Housekeeping
from susurrus.agents.runtime.metrics import Metrics
from susurrus.agents.runtime.pipeline import StageSpec
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.task import PartitionTask
from susurrus.agents.runtime.task_context import TaskContext
from susurrus.agents.runtime.watchdog import Watchdog
from susurrus.topics.charges import Charge
from susurrus.topics.spec import SOURCES

log = logging.getLogger(__name__)

_JOIN_SHARE = 0.6
"""The tasks' share in what is left of worker.stop_timeout. In the rest, Faust leaves the group and closes its clients."""
_GIVE_UP_SECONDS = 30.0
_SOURCES_SECONDS = 10.0
"""How often a worker looks whether a raw topic was added."""


class Supervisor:
    """Owns the partition tasks of one worker process."""

    def __init__(self, app: Any, services: Services, stages: Sequence[StageSpec], *, heartbeat_seconds: float) -> None:
        settings = services.settings
        self._services = services
        self.stages = tuple(stages)
        self._by_raw = next((stage for stage in stages if stage.input_topic is None), None)
        """The stage that reads the raw topics, where the ledger numbers their partitions."""
        self._stages = {stage.input_topic: stage for stage in stages if stage.input_topic is not None}
        """By the topic whose partitions the group shares out: the input topic. Raw topics may be added."""
        self._standing = None if settings.input.kafka is None else settings.topic(SOURCES.name)
        """The topic that stands for the raw topics, where these are on another cluster."""
        if self._standing is not None:
            self._stages = {topic: stage for topic, stage in self._stages.items() if stage is not stages[0]}
            self._stages[self._standing] = stages[0]
        self._sources_at = 0.0
        self.subscribe: Callable[[Sequence[str]], None] = lambda topics: None
        """Lets the consumer read these raw topics, where there are more than it has read."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.left_behind: list[str] = []
        """Tasks that did not end in time when the worker stopped; their threads still run."""
        self._directory, self._directory_lock = take_directory(settings.worker.data_directory)
        limit = settings.worker.watchdog / 1000
        self._disk = Disk(self._directory, gives_up=self._disk_stays_unusable, silence=limit)
        self.worker = f"{socket.gethostname()}-{os.getpid()}"
        self.metrics = Metrics(settings.application)
        self.group = Group(app, self._stages, self._new_task, self._stopping)
        self.health = Health(self.group, self._disk, limit, self._stopping)
        self._housekeeping = Housekeeping(
            self.group,
            services,
            worker=self.worker,
            purged=frozenset(stage.input_topic for stage in stages if stage.purge and stage.input_topic is not None),
            look_for_sources=self._look_for_sources,
            patience=2 * heartbeat_seconds + 1.0,
        )
        self._threads = [
            threading.Thread(target=run, args=(self._stopping,), name=name, daemon=True)
            for name, run in (
                ("watchdog", Watchdog(self.group, limit).watch),
                ("housekeeping", self._housekeeping.keep),
                ("disk", self._disk.watch),
            )
        ]

    def _new_task(self, place: InputPartition, rewind: Callable[[int], None]) -> PartitionTask | None:
        stage, number, elsewhere = self._stages[place.topic], place.partition, place.topic == self._standing
        if elsewhere:
            raw = (stage.input_topic, number) if stage.input_topic else self._services.ledger.known_place(number)
            if raw is None:
                return None
            place = InputPartition(*raw)
        elif stage.input_topic is None:
            found = self._services.ledger.number(*place)
            if found is None:
                if self._services.settings.clock.until is not None and self._services.ledger.sources is not None:
                    log.warning(
                        "topic=%s partition=%d was added when the archive had begun to be read, so it is not part of it: give the "
                        "pipeline a new name to start over with the whole archive",
                        *place,
                    )
                return None
            number = found
        return PartitionTask(
            TaskContext(
                spec=stage,
                place=place,
                partition=number,
                services=self._services,
                metrics=self.metrics,
                open_store=lambda: Store(self._directory / f"{stage.name}-{number}"),
                rewind=rewind,
                give_up=self.give_up,
                disk=self._disk,
                group_reads=not elsewhere,
            )
        )

    @property
    def charges(self) -> Sequence[Charge]:
        """The charges on the raw topics, as this worker has last read them."""
        return self._services.ledger.charges.known

    # ---- the beginning -----------------------------------------------------------------------------------------------

    def wait_for(self, what: Finding | None) -> None:
        """What the worker still waits for before it is ready (agents/operations/probe.py)."""
        self.health.waits_for = what

    def admit(self) -> None:
        """Called before Faust joins the group. Raises Refusal if no task of this worker could run (`Ledger.admit`), and
        ConfigurationError if this worker could not write its rows. Then the raw topics are known.

        The ledger comes first: a worker with another configuration must not register its schemas.
        """
        self._services.ledger.admit()
        self._services.publisher.open()
        if self._by_raw is not None:
            self._read(self._services.ledger.to_read())

    # ---- raw topics --------------------------------------------------------------------------------------------------

    def stage_of(self, topic: str) -> StageSpec | None:
        """The stage that reads a topic."""
        return self._stages.get(topic)

    @property
    def raw_topics(self) -> tuple[str, ...]:
        """The raw topics that this worker's consumer reads, or what stands for them."""
        return tuple(topic for topic, stage in self._stages.items() if stage is self._by_raw)

    def topics_of(self, stage: StageSpec) -> tuple[str, ...]:
        """The topics whose partitions the group shares out for a stage."""
        return tuple(topic for topic, of in self._stages.items() if of is stage)

    def _read(self, topics: Iterable[str]) -> bool:
        """Take raw topics up; whether one of them is new."""
        before = len(self._stages)
        if self._by_raw is not None and self._standing is None:
            for topic in topics:
                self._stages.setdefault(topic, self._by_raw)
        return len(self._stages) > before

    def _look_for_sources(self) -> None:
        """Called by the housekeeping now and then: start the tasks of raw partitions that have become sources, and read raw topics
        that were added. An archive has what it began with."""
        waits = self.group.waiting
        live = self._services.settings.clock.until is None
        if self._by_raw is None or not (waits or (live and time.monotonic() >= self._sources_at)):
            return
        ledger = self._services.ledger
        ledger.refresh()
        self._sources_at = time.monotonic() + _SOURCES_SECONDS
        self.group.start_waiting()
        if ledger.sources is not None and self._read(ledger.to_read()):
            log.info("reading %s from now on", ", ".join(self.raw_topics))
            self.subscribe(self.raw_topics)

    def on_assigned(self, places: Iterable[InputPartition]) -> None:
        """Called on the event loop when the group has assigned partitions to this worker."""
        while self._threads:
            self._threads.pop().start()
        self.metrics.rebalances.inc()
        self.group.assign(places)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def give_up(self, reason: str) -> None:
        """Called by a task that cannot use the local disk: the worker ends, so that others get all of its partitions."""
        self._end(DISK_UNUSABLE, reason, why="so that others take over; ")

    def _disk_stays_unusable(self, reason: Finding) -> None:
        """Called by a look at the disk: all partitions leave together, and the status says why until others have them."""
        self.give_up(str(reason))
        for task in self.group.tasks.values():
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
            if self.health.gave_up or self.group.closing:
                return
            self.health.gave_up = reason
        log.critical("the worker ends, exit code %d, %s%s", exit_code, why, reason)
        ENDING.give_up(exit_code, seconds=_GIVE_UP_SECONDS)

    async def stop(self) -> None:
        """End the task threads, each after the commit it is in. Must be called before Faust stops the consumer."""
        # It has an effect only if no signal came: then Faust has failed, and its end may hang as well.
        ENDING.begin(FAILED)
        tasks = self.group.close()
        log.info("stopping: %d tasks finish their commits", len(tasks))
        deadline = time.monotonic() + _JOIN_SHARE * ENDING.left()
        loop = asyncio.get_running_loop()
        for task in tasks:
            await loop.run_in_executor(None, task.join, max(0.1, deadline - time.monotonic()))
        self._stopping.set()
        await loop.run_in_executor(None, self._services.close)
        self._housekeeping.report(everything=True)
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
