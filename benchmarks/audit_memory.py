"""A whole histogram pipeline in memory: the agents' own stages and ledger. Topics are lists, stores are dictionaries.

Flow: audit_pipeline makes raw logs and services → `Runner.run` → values of the histogram topic.
What Kafka does (transactions, fencing, rebalances) is not here: `Runner` hands every stage its batches, applies each commit
whole, and makes every stage anew from its state after each commit, as a worker does that restarts all the time. Fetches go round
the raw partitions, so by-user logs interleave them differently when one of them carries more load.
"""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.ledger import Ledger
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import NotYet, Stage
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import ledger as ledger_codec

FETCH = 500
STEP_MS = 3_000
"""How often a live pipeline is looked at."""


class Memory:
    """One store: what agents/runtime/store.py offers, in a dictionary. A planted defect forgets users or hides due keys."""

    def __init__(self, defect: str) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.defect = defect

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.rows.get(key) for key in keys]

    def get_one(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self.defect == "tested when touched" and start.startswith(b"d"):
            return
        for key in sorted(key for key in self.rows if start <= key < end):
            yield key, self.rows[key]

    def scan_chunks(self, start: bytes, end: bytes, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        rows = list(self.scan(start, end))
        for at in range(0, len(rows), size):
            yield rows[at : at + size]

    def write(self, commit: Commit) -> None:
        for start, end in commit.drops:
            self.rows = {key: value for key, value in self.rows.items() if not start <= key < end}
        for key in commit.deletes:
            self.rows.pop(key, None)
        self.rows.update(commit.puts)

    def restart(self) -> None:
        if self.defect == "cap lost":
            self.rows = {key: value for key, value in self.rows.items() if key[:1] not in (b"v", b"g")}


class MemoryLedger(Ledger):
    """The ledger over a list, begun by its own code; every window counts as charged."""

    rows: list[tuple[bytes, bytes | None]]

    def found(self) -> None:
        """A new pipeline: its initializer joins an empty ledger."""
        self.rows = []
        stage, partition = self._initializer
        member = SimpleNamespace(stage_name=stage, partition=partition, waiting=lambda: False)
        self.join(member, Producer(self.rows))  # type: ignore[arg-type]

    def refresh(self, *, complete: bool = False) -> None:
        self._records = {}
        for key, value in self.rows:
            if (record := ledger_codec.decode(key, value)) is not None:
                self._records[key.decode()] = record

    def is_charged(self, window: int) -> bool:
        return True


class Producer:
    """The producer of the initializer."""

    def __init__(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        self._rows = rows

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: bytes | None, key: bytes, partition: int) -> None:
        self._rows.append((key, value))

    def commit_transaction(self, timeout: float) -> None: ...


class WallClock:
    """Replaces the module `time` in a stage. Milliseconds."""

    def __init__(self, now: int) -> None:
        self.now = now

    def time(self) -> float:
        return self.now / 1000

    def monotonic(self) -> float:
        return self.now / 1000


class Clients:
    """The raw topics: complete from the beginning, or as far as the one has grown by now (`clock`, `grows_at`).

    topics: by name. With several, each has one of the logs as its partition.
    """

    embedded = True
    """Like the broker inside a process: there was no life before this one."""

    def __init__(
        self,
        logs: list[list[SimpleNamespace]],
        *,
        clock: WallClock | None = None,
        grows_at: int | None = None,
        topics: Sequence[str] = ("raw",),
    ) -> None:
        self._logs, self._clock, self._grows_at, self._topics = logs, clock, grows_at, topics

    def sources(self) -> int:
        """How many there are."""
        return sum(map(self.partitions, self._topics))

    def topic_id(self, topic: str) -> str:
        return "raw"

    def settings_of(self, topic: str) -> dict[str, str]:
        stamps = "CreateTime" if self._clock is None else "LogAppendTime"
        return {"cleanup.policy": "delete", "message.timestamp.type": stamps, "retention.ms": "-1"}

    def partitions(self, topic: str) -> int:
        if len(self._topics) > 1:
            return 1
        if self._clock is None or self._grows_at is None or self._clock.now >= self._grows_at:
            return len(self._logs)
        return len(self._logs) - 1

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        log = self._logs[partition if len(self._topics) == 1 else self._topics.index(topic)]
        if self._clock is None:
            return 0, len(log)
        now = self._clock.now
        return 0, sum(record.timestamp <= now for record in log)


class Runner:
    """One pipeline over in-memory logs.

    fetch: number of records in a fetch. lasting: stages are not made anew, as in a worker that is not restarted.
    """

    def __init__(
        self,
        services: Services,
        raw: list[list[SimpleNamespace]],
        defect: str,
        *,
        fetch: int = FETCH,
        lasting: bool = False,
    ) -> None:
        self.services = services
        self.defect = defect
        self.fetch, self.lasting = fetch, lasting
        self.raw = "raw"  # by number of the source, whatever its topic
        self.logs: dict[tuple[str, int], list[Any]] = {(self.raw, p): log for p, log in enumerate(raw)}
        self.tasks: dict[tuple[type[Stage], int], Any] = {}

    def run(self, now: int) -> list[bytes]:
        """All values of the histogram topic, from an archive."""
        sources = range(self.services.clients.sources())  # type: ignore[attr-defined]
        for at in range(0, max(len(self.logs[self.raw, source]) for source in sources) + 1, self.fetch):
            for source in sources:
                self.pump(RouteStage, source, self.raw, now, limit=at + self.fetch)
        return self.settle(now)

    def run_live(self, clock: WallClock, until: int) -> list[bytes]:
        """Like `run`, from a topic that is read while it is written."""
        while clock.now < until:
            clock.now += STEP_MS
            for source in range(self.services.clients.partitions(self.raw)):
                end = self.services.clients.watermarks(self.raw, source)[1]
                self.pump(RouteStage, source, self.raw, clock.now, limit=end)
        return self.settle(clock.now)

    def settle(self, now: int) -> list[bytes]:
        """Run bound and release in turn, because each may wait for the other."""
        settings, seen = self.services.settings, -1
        while (size := sum(map(len, self.logs.values()))) > seen:
            seen = size
            for partition in range(settings.topics.by_user_partitions):
                self.pump(BoundStage, partition, self.services.topic("by-user"), now)
            for partition in range(settings.topics.bounded_partitions):
                self.pump(ReleaseStage, partition, self.services.topic("bounded"), now)
        topic = self.services.topic("histogram")
        return [record.value for (name, _), log in self.logs.items() if name == topic for record in log]

    def pump(self, kind: type[Stage], partition: int, topic: str, now: int, limit: int = 1 << 60) -> None:
        """Feeds a stage its log up to `limit`, in fetches, and applies its commits; a restart follows every commit."""
        log = self.logs.get((topic, partition), [])
        task = self.tasks.get((kind, partition))
        if task is None:
            task = SimpleNamespace(store=Memory(self.defect), meta=None, position=0, next=0, stage=None, counters=None)
            self.tasks[kind, partition] = task
        try:
            self._pump(task, kind, partition, log, now, min(limit, len(log)))
        except (NotYet, Refusal):
            task.stage = None  # as a worker does: begin again from what is committed, later

    def _pump(self, task: Any, kind: type[Stage], partition: int, log: list[Any], now: int, end: int) -> None:
        if task.stage is None:
            self._begin(task, kind, partition)
        while True:
            upto = min(task.next + self.fetch, end)
            if upto > task.next:
                task.stage.take(Batch(task.next, upto, log[task.next : upto], 0))
                task.next = upto
            # Asked also without news, as a worker's task does: an empty partition must close its intervals too.
            committed = False
            for commit in task.stage.commits(now):
                committed = True
                self.apply(commit)
                task.store.write(commit)
                task.meta, task.position = commit.meta, commit.position
                task.stage.committed(commit)
                if not self.lasting:
                    break  # what the stage has in memory goes, and what is behind the commit is read again
            if committed and not self.lasting:
                task.store.restart()
                task.counters = dict(task.stage.counters)
                self._begin(task, kind, partition)
            elif task.next >= end:
                return

    def _begin(self, task: Any, kind: type[Stage], partition: int) -> None:
        meta, task.next = task.meta, task.position
        if meta is None:
            meta, task.next = kind.begin(self.services, partition, Offset(0))
        elif task.counters is not None:
            meta = {**meta, "counters": task.counters}
        task.stage = kind(self.services, partition, task.store, meta, task.next)

    def apply(self, commit: Commit) -> None:
        services = self.services
        feedback = services.topic("published-keys")
        for output in commit.outputs:
            log = self.logs.setdefault((output.topic, output.partition), [])
            for message in output.messages:
                log.append(SimpleNamespace(offset=len(log), value=message["value"]))
                if output.topic == services.ledger.topic:
                    services.ledger.rows.append((message["key"], message["value"]))  # type: ignore[attr-defined]
                if output.topic == feedback and services.published_keys is not None:
                    services.published_keys.take(message["value"], len(log) - 1)
