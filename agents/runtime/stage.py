"""What a stage is to the partition task that runs it: the contract between the task and agents/{histogram,stream,local}/.

A stage turns batches into commits. It keeps what it has read and not yet committed in memory only, so a task may at any moment
throw the stage away and restore it from the store. Only what its commits carried survives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.errors import Refusal


class NotYet(Exception):
    """Something this partition needs is not there yet; the task tries again. The text says what is waited for."""


class Stage(ABC):
    """One stage for one input partition. Called by its task's thread only."""

    name: ClassVar[str]
    counted: ClassVar[tuple[str, ...]] = ()
    """Names of the counters, in the order in which status shows them."""

    def __init__(self, services: Services, partition: int) -> None:
        self.services = services
        self.partition = partition
        self.counters: dict[str, int] = {}
        """Operator-only totals of this partition's life; part of the meta record."""
        self.full = False
        """No more batches for now: what is held waits for something that no further input brings."""
        self.rests_until = 0.0
        """Monotonic time before which no batch is wanted, because what has come by then is better taken at once."""
        self.wake: Callable[[], None] = lambda: None
        """Asks for `commits` soon. Any thread may call it: what a stage waits for does not always come with its input."""

    def restore(self, store: Store, meta: dict[str, Any] | None, position: Offset) -> Offset:
        """Forget everything and take up the state of the last commit (meta None: there was none).

        ``position`` is the commit's, or the start of the log. Returns the position to read from. Raises NotYet.
        """
        if meta is None:
            self.counters = dict.fromkeys(self.counted, 0)
            meta, position = self.begin(position)
        self.resume(store, meta, position)
        return position

    @abstractmethod
    def begin(self, start: Offset) -> tuple[dict[str, Any], Offset]:
        """(meta record, position to read from) of a partition that has never committed. start: of the log. Raises NotYet."""

    @abstractmethod
    def resume(self, store: Store, meta: dict[str, Any], position: Offset) -> None:
        """Forget everything and take up the state that a meta record and the store hold."""

    @abstractmethod
    def take(self, batch: Batch) -> None:
        """Turn a batch into columns in memory. Records below ``batch.start`` have been cut off by the task."""

    @abstractmethod
    def commits(self, now: int) -> Iterator[Commit]:
        """What is ready to be committed at wall-clock ``now`` (ms), in order. The next one is asked for only after the
        previous one is committed and in the store."""

    def committed(self, commit: Commit) -> None:
        """Called after a commit is durable and written to the store."""

    def stall(self, now: int) -> str | None:
        """Why nothing moves, for the operator; None while all is well. Names partitions and triggers, never users or keys."""
        return None

    def report(self) -> dict[str, Any]:
        """Facts for `susurrus status`: counters and the last closed interval."""
        return {"counters": dict(self.counters)}


def pinned_start(services: Services, partition: int) -> Offset:
    """The raw offset at which the epoch begins to read a partition; 0 for one that the raw topic gained later.

    Raises Refusal where the raw topic is another one of the same name.
    """
    ledger, topic = services.ledger, services.settings.input.topic
    if services.clients.topic_id(topic) != ledger.start.topic_id:
        raise Refusal(
            f"topic={topic} is not the one the pipeline began with (topic_id={ledger.start.topic_id}): restore it, or "
            f"{ledger.way_out}"
        )
    return Offset(ledger.start.offsets.get(partition, 0))
