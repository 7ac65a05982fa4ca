"""What the consumer group has given to a worker: the partitions, the tasks that run them, and the generation that assigned them.

Tasks are made on assignment only, and started in parallel. Rebalances are eager: all partitions are revoked first. A partition that
stays keeps its task, and so its store and producer.

**The lock.** One lock guards the assignment, the generation, the tasks and whether the worker is closing. The event loop's thread
changes them in a rebalance and at the end, the housekeeping's thread when it starts a task again. Whoever changes them, or decides
by more than one of them, holds the lock. A single look at the tasks needs no lock, because a look-up in a dictionary and a copy of
one are atomic. What was seen may be out of date at once. That does no harm: a task that has gone finishes what it is offered.
Nothing that may wait for a broker or a disk is called while the lock is held.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.batch import Batch, InputPartition
from susurrus.agents.runtime.pipeline import StageSpec
from susurrus.agents.runtime.task import PartitionTask

log = logging.getLogger(__name__)

_SEEK_SECONDS = 30.0


class OtherConsumer(Protocol):
    """The consumer of raw topics on another cluster (faust/elsewhere.py)."""

    topic: str
    """The topic of ours whose partitions stand for sources."""

    def continue_at(self, place: InputPartition, offset: int) -> None:
        """Continue reading a raw partition at an offset."""


class Group:
    """The partitions of one worker and their tasks.

    app: Faust's application, for the generation and the consumer. stages: by input topic; topics may be added. make_task: a task
    for a partition, which nobody has started; it calls its second argument with an offset when the consumer must continue there.
    It makes none for a raw partition that is no source yet. stopping: set once the tasks have ended.
    """

    def __init__(
        self,
        app: Any,
        stages: Mapping[str, StageSpec],
        make_task: Callable[[InputPartition, Callable[[int], None]], PartitionTask | None],
        stopping: threading.Event,
    ) -> None:
        self._app = app
        self._stages = stages
        self._make_task = make_task
        self._stopping = stopping
        self._lock = threading.Lock()
        self._tasks: dict[InputPartition, PartitionTask] = {}
        self._assigned: set[InputPartition] = set()
        self._waiting: set[InputPartition] = set()
        """Partitions that have no task, because they are no sources yet."""
        self.generation = -1
        """The group's generation of the last assignment; -1 before the first."""
        self.closing = False
        """Whether the worker ends: no task is started any more."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Faust's event loop; None before the first assignment."""
        self.elsewhere: OtherConsumer | None = None
        """What reads the raw topics, where they are on another cluster."""

    @property
    def tasks(self) -> Mapping[InputPartition, PartitionTask]:
        """The tasks at this moment, as a copy."""
        return dict(self._tasks)

    @property
    def waiting(self) -> bool:
        """Whether a partition waits until it is a source."""
        return bool(self._waiting)

    # ---- called by the transport and the agents ----------------------------------------------------------------------

    def wanted_at(self, place: InputPartition) -> float:
        """Monotonic time from which on the partition's task wants batches, infinite while that is unknown."""
        task = self._tasks.get(place)
        return math.inf if task is None else task.accepts_input_at

    def on_trouble(self, place: InputPartition, reason: Finding) -> None:
        """Tell the partition's task why the partition cannot be read at the moment."""
        if (task := self._tasks.get(place)) is not None:
            task.cannot_read(reason)

    def offer(self, place: InputPartition, batch: Batch) -> None:
        """Hand a batch to its task; a batch of a partition that has left this worker is dropped."""
        batch.offered = True
        task = self._tasks.get(place)
        if task is None:
            batch.finish()
        else:
            task.offer(batch)

    # ---- the assignment ----------------------------------------------------------------------------------------------

    def revoke(self) -> None:
        """Stop nothing yet: most partitions come back with the next assignment, and fencing guards the others."""
        with self._lock:
            self._assigned = set()

    def assign(self, places: Iterable[InputPartition]) -> None:
        """Start what is new, keep what stays, stop what has gone. Returns at once: recovery runs in the tasks' threads.

        Must be called on the event loop.
        """
        self.loop = asyncio.get_running_loop()
        generation = self._app.consumer_generation_id
        ours = {place for place in places if place.topic in self._stages}
        with self._lock:
            self.generation, self._assigned, self._waiting = generation, ours, set()
            gone = [self._tasks.pop(place) for place in list(self._tasks) if place not in ours]
            for task in gone:
                task.stop()
            for place in sorted(ours):
                kept = self._tasks.get(place)
                if kept is not None and kept.is_alive() and kept.state in ("starting", "running", "refused"):
                    kept.assigned(generation)
                elif kept is None or kept.state != "refused":
                    self._start(place)
            names = ", ".join(map(self._name, sorted(ours))) or "none"
        log.info("generation %d of the group: %d given up, now %s", generation, len(gone), names)

    def start_again(self, place: InputPartition, ended: PartitionTask) -> None:
        """Start a task in place of one that has ended, if the same generation still assigns the partition to this worker."""
        with self._lock:
            if self._tasks.get(place) is not ended or place not in self._assigned or self.closing:
                return
            if self._app.consumer_generation_id == self.generation:
                log.info("%s-%d is still assigned to this worker; starting it again", place.topic, place.partition)
                self._start(place)

    def start_waiting(self) -> None:
        """Start the tasks of partitions that have become sources, and are still assigned to this worker."""
        with self._lock:
            if not self.closing and self._app.consumer_generation_id == self.generation:
                for place in sorted(self._waiting & self._assigned):
                    self._start(place)

    def close(self) -> list[PartitionTask]:
        """Start no task any more, and ask all tasks to end after the commit they are in. Returns them."""
        with self._lock:
            self.closing = True
            tasks = list(self._tasks.values())
            for task in tasks:
                task.stop()
        return tasks

    def _start(self, place: InputPartition) -> None:
        """Whoever calls it holds the lock."""
        task = self._make_task(place, lambda offset: self._rewind(place, offset))
        if task is None:
            self._waiting.add(place)
            self._tasks.pop(place, None)
            return
        self._waiting.discard(place)
        task.assigned(self.generation)
        if (before := self._tasks.get(place)) is not None:
            task.recovery.take_after(before.recovery)
        self._tasks[place] = task
        task.start()

    def _name(self, place: InputPartition) -> str:
        """What a log line calls a partition."""
        name = f"{self._stages[place.topic].name}-{place.partition}" if place.topic in self._stages else str(place)
        return f"{place.topic}-{place.partition} (no source)" if place in self._waiting else name

    def _rewind(self, place: InputPartition, offset: int) -> None:
        """Called by a task's thread: let the consumer continue at an offset, if the partition is still assigned."""
        if self.elsewhere is not None and place.topic == self.elsewhere.topic:
            if (task := self._tasks.get(place)) is not None:
                self.elsewhere.continue_at(task.context.place, offset)
            return
        loop = self.loop
        if loop is None or self._stopping.is_set():
            return

        async def seek() -> None:
            if place in self._assigned:
                await self._app.consumer.rewind(place, offset)

        future = asyncio.run_coroutine_threadsafe(seek(), loop)
        try:
            # Raised from here, the error would keep the task's frames, and this one the future, which keeps the error.
            refused = "" if (error := future.exception(timeout=_SEEK_SECONDS)) is None else type(error).__name__
        except Exception as missed:  # cancelled, or no answer
            refused = type(missed).__name__
        if refused:
            # Mid-rebalance the consumer refuses; the next assignment repositions every task that stays.
            log.info("%s-%d: seek refused (%s)", place.topic, place.partition, refused)
