"""Begins a new epoch: fresh noise over empty state, charged again. For internal topics that were lost or are an older copy.

One transaction in the ledger decides what the epoch is, where it begins in the raw topic, and which offsets of the internal topics
belong to the epoch before. Everything before that transaction is harmless; after it nothing is left to do. Order of events:

1. refuse while the consumer group has members
2. fence every task of the pipeline, running, frozen or yet to start, by initialising its transactional producer
3. read what was published and charged, and where the internal topics end: all of it is final now
4. write the new epoch into an open transaction of the initializer. A task that starts later waits for its outcome (Ledger.join)
5. fence every task once more, and refuse if anything was written since 3: a task may have started between 2 and 4
6. commit

The new epoch's tasks read nothing below the offsets that the transaction names. The workers delete the old records. What the epoch
costs is in epoch_plan.py.
"""

import contextlib
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.kafka.requests import deliver, is_fenced
from susurrus.agents.kafka.transactional import TransactionalProducer
from susurrus.agents.operations.epoch_plan import EpochPlan, EpochPlanner
from susurrus.agents.runtime import crash_points
from susurrus.agents.runtime.initial_offsets import Origin, sources_from
from susurrus.agents.runtime.new_beginning import FirstWindow
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.errors import ConfigurationError, Refusal
from susurrus.topics import charges as charge_codec
from susurrus.topics import ledger as codec

log = logging.getLogger(__name__)

_TRANSACTION_SECONDS = 30.0
_AT_ONCE = 8
"""Producers that are initialised at the same time."""
_POINTS = "new-epoch"
"""The name of its crash points (agents/runtime/crash_points.py), for tests."""


class NewEpoch:
    """One run of the command. Raises Refusal for pipelines without charged epochs, and where topics are missing."""

    def __init__(
        self,
        pipeline: Pipeline[Any],
        services: Services,
        *,
        first_window: FirstWindow = "next",
        origin: Origin | None = None,
    ) -> None:
        begins = pipeline.new_beginning(first_window, origin)
        settings = services.settings
        if settings.kafka.embedded:
            raise ConfigurationError("kafka.embedded=true: the embedded broker cannot fence", "use a real one")
        self._stages = pipeline.stages
        self._services = services
        self._settings = settings
        self._clients = services.clients
        self._planner = EpochPlanner(begins, pipeline.stages, services)

    def plan(self, now: int) -> EpochPlan:
        """See `EpochPlanner.plan`."""
        return self._planner.plan(now)

    def begin(self, plan: EpochPlan, now: int) -> str:
        """Begin the epoch, and return its id. Raises Refusal where something has changed since the plan was made."""
        ledger, clients = self._services.ledger, self._clients
        crash_points.reach((_POINTS,), "before-fence")
        try:
            initializer = self._fence(self._tasks())
            if initializer is None:
                raise RuntimeError(f"{ledger.initializer} is none of the pipeline's tasks")
            crash_points.reach((_POINTS,), "after-fence")
            ledger.refresh(complete=True)
            if self.plan(now) != plan:
                raise Refusal(
                    "another trigger was published, or another epoch has begun, since the costs were shown",
                    "run this again",
                )
            ends = self._ends()
            epoch, topics = os.urandom(16).hex(), self._planner.topics()
            records: list[codec.LedgerRecord] = [
                codec.Start(
                    first_window=plan.first_window,
                    origin=str(plan.origin),
                    topic_ids={topic: clients.topic_id(topic) for topic in topics},
                    internal=ends,
                    **sources_from(clients, topics, plan.origin),
                ),
                ledger.configuration,
                codec.Epoch(epoch=epoch, number=plan.number, created=int(time.time() * 1000)),
            ]
            kept = {codec.key_of(record) for record in records}
            rows: list[tuple[str, bytes, bytes | None]] = [
                (ledger.topic, key.encode(), None) for key in ledger.records() if key not in kept
            ]
            rows += [(ledger.topic, *codec.encode(record)) for record in records]
            rows += [(ledger.charges.topic, *charge_codec.encode(charge)) for charge in plan.forgotten]
            self._commit(initializer, rows, ends)
        except KafkaException as error:
            if is_fenced(error.args[0]):
                raise Refusal(
                    "a worker has started meanwhile, and the old epoch goes on", "stop every worker"
                ) from error
            raise
        crash_points.reach((_POINTS,), "after-commit")
        log.info("epoch %d begins, %s", plan.number, epoch)
        return epoch

    def _commit(
        self,
        initializer: TransactionalProducer,
        rows: list[tuple[str, bytes, bytes | None]],
        ends: dict[str, dict[int, int]],
    ) -> None:
        """Steps 4 to 6."""
        initializer.begin_transaction()
        try:
            for topic, key, value in rows:
                initializer.produce(topic, value, key, partition=0)
            if deliver(initializer, _TRANSACTION_SECONDS):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            crash_points.reach((_POINTS,), "after-ledger")
            self._fence([task for task in self._tasks() if task != self._services.ledger.initializer])
            crash_points.reach((_POINTS,), "after-second-fence")
            self._planner.check_alone()
            if self._ends() != ends:
                raise Refusal("a worker has started meanwhile, and the old epoch goes on", "stop every worker")
        except BaseException:
            with contextlib.suppress(KafkaException):
                initializer.abort_transaction(_TRANSACTION_SECONDS)
            raise
        initializer.commit_transaction(_TRANSACTION_SECONDS)

    def _tasks(self) -> list[str]:
        """Every present and former task: a topic that replaces a lost one may have fewer partitions."""
        clients = self._clients
        raw = self._planner.topics()
        return [
            f"{stage.name}-{partition}"
            for stage in self._stages
            for partition in range(
                max(
                    sum(clients.partitions(topic) for topic in stage.inputs(raw)),
                    clients.partitions(self._settings.topic(stage.changelog)),
                )
            )
        ]

    def _fence(self, tasks: list[str]) -> TransactionalProducer | None:
        """Fence these tasks: their producers cannot commit any more. Their open transactions are aborted when this returns.

        Returns the initializer's producer, if it is among them.
        """

        def fence(task: str) -> TransactionalProducer | None:
            producer = self._clients.transactional_producer(f"{self._clients.application}-{task}")
            producer.init_transactions(_TRANSACTION_SECONDS)
            return producer if task == self._services.ledger.initializer else None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return next((found for found in list(pool.map(fence, tasks)) if found is not None), None)

    def _ends(self) -> dict[str, dict[int, int]]:
        """Where the topics of the stages' state and of what they hand to each other end, by full name and partition."""
        clients = self._clients
        return {
            name: {partition: clients.watermarks(name, partition)[1] for partition in range(clients.partitions(name))}
            for name in self._planner.internal()
        }
