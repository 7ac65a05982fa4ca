"""What a stage is to the partition task that runs it: the contract between the task and agents/{histogram,stream,local}/.

A stage turns batches into commits. All of its state follows from the store, the meta record and the position of the last commit,
and what it has read since then is in memory only. So a task may at any moment throw the stage away and make a new one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from susurrus.agents.finding import Finding
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.errors import Refusal, SusurrusError


class NotYet(SusurrusError):
    """Something this partition needs is not there yet; the task tries again. The text says what is waited for."""

    retryable = True


class MorePublic(NotYet):
    """More is public than the state knows. The first time, another owner may have published it since the state was read.

    A task that starts again fences that owner and reads the state again. If the next start finds the same ``evidence``, the state
    is an older copy, and the task refuses with ``refusal``.
    """

    def __init__(self, waits: str, *, evidence: object, refusal: Refusal) -> None:
        super().__init__(waits)
        self.evidence, self.refusal = evidence, refusal


class Stage(ABC):
    """One stage for one input partition, from its last commit on. Called by its task's thread only.

    store: as the last commit left it. meta, position: that commit's, or what ``begin`` returned. A constructor may raise NotYet and
    Refusal; it then leaves nothing open.
    """

    name: ClassVar[str]
    counted: ClassVar[tuple[str, ...]] = ()
    """Names of the counters, in the order in which status shows them."""

    def __init__(
        self, services: Services, partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        self.services = services
        self.partition = partition
        self.counters: dict[str, int] = dict.fromkeys(self.counted, 0) | meta.get("counters", {})
        """Operator-only totals of this partition's life; part of the meta record."""
        self.full = False
        """No more batches for now: what is held waits for something that no further input brings."""
        self.crowded = False
        """What is held should be committed, as far as it can be, before more batches are taken."""
        self.rests_until = 0.0
        """Monotonic time before which no batch is wanted, because what has come by then is better taken at once."""
        self.due_at = math.inf
        """Monotonic time at which commits should be asked for, though nothing has come by then."""
        self.patient = False
        """Until a batch comes, `due_at`, or a wake, there is nothing to commit: so it need not be asked often."""
        self._store = store
        self._taken = position
        """Input offset up to which records are taken."""

    @classmethod
    @abstractmethod
    def begin(cls, services: Any, partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """Return the meta record of a partition that has never committed, and the position to read from.

        services: of the stage's own kind of pipeline. start: the first offset of the log. Raises NotYet and Refusal.
        """

    def wakes(self, inbox: Inbox) -> None:
        """Have the inbox woken when something comes that the stage waits for, and that does not come with its input."""

    def close(self) -> None:
        """Close the connections that the stage has opened. It is thrown away then."""

    @abstractmethod
    def take(self, batch: Batch) -> None:
        """Turn a batch into columns in memory. Records below ``batch.start`` have been cut off by the task."""

    @abstractmethod
    def commits(self, now: int) -> Iterator[Commit]:
        """What is ready to be committed at wall-clock ``now`` (ms), in order. The next one is asked for only after the
        previous one is committed and in the store."""

    def committed(self, commit: Commit) -> None:
        """Called after a commit is durable and written to the store."""

    def stall(self, now: int) -> Finding | None:
        """Why nothing moves; None while all is well. Names partitions and triggers, never users or keys."""
        return None

    def report(self) -> dict[str, Any]:
        """Facts for `susurrus status` and for metrics: counters, the last closed interval, and numbers that rise and fall
        ("gauges", by what metrics call them), which are public."""
        return {"counters": dict(self.counters)}


def pinned_start(services: Services, source: int, topic: str) -> Offset:
    """The raw offset at which the epoch begins to read a source; 0 for one that its raw topic gained later.

    Raises Refusal where the raw topic is another one of the same name.
    """
    ledger = services.ledger
    if services.clients.topic_id(topic) != (known := ledger.topic_id(topic)):
        raise Refusal(
            f"topic={topic} is not the one the pipeline began with (topic_id={known})",
            f"restore it, or {ledger.way_out}",
        )
    return Offset(ledger.start.offsets.get(source, 0))
