"""What a partition task is given, and what its parts share: its place and its duties, and whether it shall go on."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.disk import Disk
from susurrus.agents.runtime.metrics import Metrics
from susurrus.agents.runtime.pipeline import StageSpec
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store


class Stopped(Exception):
    """The task was asked to stop during its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What one partition task is given. spec, place: its stage and what it reads. partition: the number by which its changelog, its
    position and its outputs know it: the partition of the input, or the number of a source where the input is raw topics.

    open_store: opens the local store. rewind: asks the consumer to continue at an offset. give_up: ends the worker, for a reason.
    group_reads: whether the consumer group reads the input, so that its position is one of the group's.
    """

    spec: StageSpec
    place: InputPartition
    partition: int
    services: Services
    metrics: Metrics
    open_store: Callable[[], Store]
    rewind: Callable[[Offset], None]
    give_up: Callable[[str], None]
    disk: Disk
    group_reads: bool = True

    @property
    def name(self) -> str:
        """The name of the task in log lines and of its thread."""
        return f"{self.spec.name}-{self.partition}"

    @property
    def changelog_topic(self) -> str:
        """The full name of the topic with the stage's commits."""
        return self.services.topic(self.spec.changelog)


@dataclass(eq=False, slots=True)
class Life:
    """Whether a task shall go on, and when it last gave a sign of life. Thread-safe."""

    stopping: threading.Event = field(default_factory=threading.Event)
    alive_at: float = field(default_factory=time.monotonic)
    """Monotonic time of the last sign of life."""

    def mark_alive(self) -> None:
        """Give a sign of life."""
        self.alive_at = time.monotonic()

    def go_on(self) -> None:
        """Give a sign of life in a long start. Raises Stopped if the task must stop."""
        self.mark_alive()
        if self.stopping.is_set():
            raise Stopped
