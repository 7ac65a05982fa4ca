"""The committing side of a partition task: its producer, its changelog and its store, and how far it has committed."""

import logging
import time

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.requests import no_topic
from susurrus.agents.kafka.transactional import TransactionalProducer
from susurrus.agents.logs import describe
from susurrus.agents.runtime.changelog import Changelog, State
from susurrus.agents.runtime.commit import Commit, ReleasedRows
from susurrus.agents.runtime.stage import NotYet, Stage
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.task_context import Life, TaskContext
from susurrus.agents.runtime.transaction import Transactions
from susurrus.mechanisms.errors import StoreUnusable

log = logging.getLogger(__name__)


class Committing:
    """Makes the commits of one partition durable. Used by the task's thread; its figures are read by all."""

    def __init__(self, context: TaskContext, life: Life) -> None:
        self.position = Offset(-1)
        """Input offset of the last commit; -1 while that is unknown."""
        self.committed_at: float | None = None
        """Monotonic time of this task's last commit."""
        self.counters: dict[str, int] = {}
        """The stage's totals as committed: what an aborted transaction counted is not among them."""
        self._context, self._life = context, life
        self.metrics = context.metrics.task(context.spec.name, context.partition)
        self._changelog = Changelog(context.services.clients, context.changelog_topic, context.partition)
        self._transactions = Transactions(
            context.services,
            self._changelog,
            stage_name=context.spec.name,
            partition=context.partition,
            place=context.place,
            group_reads=context.group_reads,
            mark_alive=life.mark_alive,
        )
        self._store: Store | None = None
        self._never_committed = True

    @property
    def store(self) -> Store:
        """The local store. Raises RuntimeError before `recover`."""
        if self._store is None:
            raise RuntimeError("the task has no store before it has started")
        return self._store

    @property
    def store_bytes(self) -> int:
        """What the local store has on the disk; 0 while the task has none."""
        store = self._store
        return 0 if store is None else store.disk_bytes

    @property
    def purge_before(self) -> int:
        """Changelog records below this offset are superseded; -1 while that is unknown."""
        return self._changelog.purge_before

    # ---- a start -----------------------------------------------------------------------------------------------------

    def open(self) -> TransactionalProducer:
        """Make a producer, which fences the previous owner's. Raises Fenced, KafkaException."""
        self._transactions.open()
        return self._transactions.producer

    def recover(self) -> State | None:
        """Open the store, and bring it up to the end of the changelog. Returns the last commit, None if there was never one.

        Raises NotYet where the changelog lacks the partition, Refusal where it cannot be what this epoch wrote, and Stopped.
        """
        context, services = self._context, self._context.services
        topic, partition = context.changelog_topic, context.partition
        partitions = partition + 1 if services.clients.embedded else services.clients.partitions(topic)
        if partitions == 0:
            raise no_topic(topic)
        if partitions <= partition:
            raise NotYet(
                f"topic={topic} has no partition {partition}", "run `susurrus topics create`, the input has grown"
            )
        self._store = context.open_store()
        state = self._changelog.recover(
            self._store,
            epoch=services.ledger.epoch,
            mark_alive=self._life.go_on,
            begins=services.ledger.begins(topic, partition),
            way_out=services.ledger.way_out,
        )
        services.ledger.check_started(context.spec.name, partition, has_state=state is not None)
        self._never_committed = state is None
        return state

    def last(self) -> State | None:
        """The last commit, as the store has it."""
        return self._changelog.meta(self.store)

    def begin_at(self, position: Offset, counters: dict[str, int]) -> None:
        """Take up the figures of the last commit, or those with which a partition begins."""
        self.position, self.counters = position, dict(counters)
        self.metrics.starts(self.counters)

    # ---- commits -----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit, stage: Stage, topic_id: str) -> None:
        """Make a commit of the stage durable. topic_id: which life of the input it has read. Raises as `Transactions.commit`."""
        commit.meta["counters"] = dict(stage.counters)
        if self._never_committed:
            commit.outputs.append(
                self._context.services.ledger.started(self._context.spec.name, self._context.partition)
            )
        with self.metrics.transaction():
            self._transactions.commit(commit, self.store, topic_id)
        self.position = commit.position
        self.committed_at = time.monotonic()
        self.counters = commit.meta["counters"]
        self._never_committed = False
        seconds = self.metrics.committed(commit, self.counters)
        for released in commit.released:
            self._tell(released, seconds)
        stage.committed(commit)

    def _tell(self, released: ReleasedRows, seconds: float) -> None:
        """One line of the log for a release. The first argument tells lines apart that must not be counted as repeats."""
        place = {"event": "release", "stage": self._context.spec.name, "partition": self._context.partition}
        said = {**place, **released.facts, "rows": released.rows, "seconds": round(seconds, 3)}
        log.info(
            "%s: %s rows published in %.2f s",
            f"{self._context.name}: {released.what}",
            f"{released.rows:,}",
            seconds,
            extra=said,
        )

    def close(self, *, wipe: bool = False) -> None:
        """Close producer and store. Never raises: a task that gives up must be able to start again."""
        store, self._store = self._store, None
        self._transactions.close()
        if store is not None and self._context.disk.finding:
            store.abandon()
        elif store is not None:
            try:
                if wipe:
                    store.wipe()
                store.close()
            except Exception as error:  # as on a full disk; what was not written is replayed
                log.warning(
                    "%s: the store could not be written (%s); it is read again from the changelog",
                    self._context.name,
                    str(error) if isinstance(error, StoreUnusable) else describe(error),
                )
