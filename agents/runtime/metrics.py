"""What a worker counts and times while it works, in prometheus_client's types. A worker has one registry.

Nothing is done per record: a task notes each of its transactions, and a transaction holds many records. What only the moment of a
scrape can tell, such as a lag, is in agents/operations/metrics.py.

A label says pipeline, stage, partition, or one of the names in the code. No label and no help text comes from a record. The numbers
are exact functions of raw data, so they are for operators only (docs/monitoring.md).
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.transaction import Aborted, Fenced

OUTCOMES: Final = ("committed", "aborted", "fenced", "failed")
"""failed: an error that is none of the others. After a failed transaction the changelog shows whether it happened."""
_TRANSACTION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds; worker.transaction_timeout is 30 s unless it is set."""
_RELEASE_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Seconds; a release is a transaction, and the computation before it."""


class Metrics:
    """The registry of one worker of a pipeline, and what its tasks count. pipeline: prefix and name. Thread-safe."""

    def __init__(self, pipeline: str) -> None:
        # They are a second series beside each counter, which nothing here reads. (The function has no types.)
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self.pipeline = pipeline
        registry = self.registry
        self.totals = Counter(
            "susurrus_stage_total",
            "What a stage has counted in committed transactions, by the name of the count.",
            ("pipeline", "stage", "partition", "total"),
            registry=registry,
        )
        self.dead_letters = Counter(
            "susurrus_dead_letters_total",
            "Records written to the dead-letter topic in committed transactions, by reason.",
            ("pipeline", "stage", "partition", "reason"),
            registry=registry,
        )
        self.transactions = Counter(
            "susurrus_transactions_total",
            "Transactions of a partition, by outcome.",
            ("pipeline", "stage", "partition", "outcome"),
            registry=registry,
        )
        self.transaction_seconds = Histogram(
            "susurrus_transaction_duration_seconds",
            "Time of one transaction, from its first record until it is committed and in the local store.",
            ("pipeline", "stage"),
            buckets=_TRANSACTION_BUCKETS,
            registry=registry,
        )
        self.release_seconds = Histogram(
            "susurrus_release_duration_seconds",
            "Time to compute and commit one release of one partition.",
            ("pipeline", "stage"),
            buckets=_RELEASE_BUCKETS,
            registry=registry,
        )
        self.rebalances = Counter(
            "susurrus_worker_rebalances_total",
            "Assignments that the consumer group has given to this worker.",
            ("pipeline",),
            registry=registry,
        ).labels(pipeline)

    def task(self, stage: str, partition: int) -> "TaskMetrics":
        """What one partition's task counts. A task that starts again on the same worker goes on where the one before stopped."""
        return TaskMetrics(self, stage, partition)


class TaskMetrics:
    """What one partition's task counts."""

    def __init__(self, metrics: Metrics, stage: str, partition: int) -> None:
        self._metrics = metrics
        self._place = (metrics.pipeline, stage, str(partition))
        self._transaction_seconds = metrics.transaction_seconds.labels(metrics.pipeline, stage)
        self._outcomes = {outcome: metrics.transactions.labels(*self._place, outcome) for outcome in OUTCOMES}
        self._counted: Mapping[str, int] = {}
        self._began = 0.0

    def starts(self, counters: Mapping[str, int]) -> None:
        """The task has recovered these totals. They are not added: the worker that committed them has counted them."""
        self._counted = dict(counters)
        for name in counters:
            self._metrics.totals.labels(*self._place, name)  # shown as 0, so that the first increase is seen

    def computes(self) -> None:
        """The stage is asked for its next commit."""
        self._began = time.monotonic()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Time and count the transaction that is made inside."""
        began, outcome = time.monotonic(), "failed"
        try:
            yield
            outcome = "committed"
        except Aborted:
            outcome = "aborted"
            raise
        except Fenced:
            outcome = "fenced"
            raise
        finally:
            self._outcomes[outcome].inc()
            if outcome == "committed":
                self._transaction_seconds.observe(time.monotonic() - began)

    def committed(self, commit: Commit, counters: Mapping[str, int]) -> float:
        """A commit is durable, and these are the stage's totals. Returns the seconds since the stage was asked for it."""
        seconds = time.monotonic() - self._began
        if commit.publishes:
            # Only here, because most stages publish nothing.
            self._metrics.release_seconds.labels(*self._place[:2]).observe(seconds)
        for name, total in counters.items():
            if (more := total - self._counted.get(name, 0)) > 0:
                self._metrics.totals.labels(*self._place, name).inc(more)
        self._counted = dict(counters)
        for output in commit.outputs:
            for reason, number in output.reasons.items():
                self._metrics.dead_letters.labels(*self._place, reason).inc(number)
        return seconds
