"""Begins a new epoch: fresh noise over empty state, charged again. For internal topics that were lost or are an older copy.

One transaction in the ledger decides what the epoch is, where it begins in the raw topic, and which offsets of the internal topics
belong to the epoch before. Everything before that transaction is harmless; after it nothing is left to do. Order of events:

1. refuse while the consumer group has members
2. fence every task of the pipeline, running, frozen or yet to start, by initialising its transactional producer
3. read what was published and charged, and where the internal topics end: all of it is final now
4. write the new epoch into an open transaction of the initializer. A task that starts later waits for its outcome (Ledger.join)
5. fence every task once more, and refuse if anything was written since 3: a task may have started between 2 and 4
6. commit

The new epoch's tasks read nothing below the offsets that the transaction names. The workers delete the old records.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.kafka.requests import deliver, group_of, is_fenced, no_topic
from susurrus.agents.kafka.topics import partitions_of
from susurrus.agents.kafka.transactional import TransactionalProducer
from susurrus.agents.runtime import crash_points
from susurrus.agents.runtime.budget import budget_of, charge_of, charged_once, spend_of
from susurrus.agents.runtime.initial_offsets import Origin, check_start, sources_from
from susurrus.agents.runtime.new_beginning import FirstWindow
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.errors import ConfigurationError, Refusal
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.spend import Spend
from susurrus.topics import charges as charge_codec
from susurrus.topics import ledger as codec
from susurrus.topics.progress import Progress
from susurrus.topics.sources import SourceMap
from susurrus.topics.spec import LEDGER, PROGRESS

log = logging.getLogger(__name__)

_TRANSACTION_SECONDS = 30.0
_AT_ONCE = 8
"""Producers that are initialised at the same time."""
_POINTS = "new-epoch"
"""The name of its crash points (agents/runtime/crash_points.py), for tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A window that is published a second time. spend: of a user in it, in this pipeline, with the new epoch; delta:
    the sum over the epochs."""

    window: int
    trigger: int
    of_triggers: int
    epochs: int
    spend: Spend
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """What a new epoch would be, and what it costs.

    before: number of the epoch that ends; 0 where the ledger has lost it. origin, first_window: where it begins, in ms.
    again: windows that are published a second time. unfinished: the last record of windows before the first that have not had
    their last trigger. forgotten: charges that the log has lost, though progress shows their windows.
    """

    before: str
    number: int
    origin: Origin
    first_window: int
    guarantee: Guarantee
    again: tuple[Again, ...]
    unfinished: tuple[Progress, ...]
    forgotten: tuple[charge_codec.Charge, ...]
    windows_left: int | None
    """How many more windows [budget] allows after that; None without one."""


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
        self._begins = pipeline.new_beginning(first_window, origin)
        settings = services.settings
        if settings.kafka.embedded:
            raise ConfigurationError("kafka.embedded=true: the embedded broker cannot fence", "use a real one")
        self._stages = pipeline.stages
        self._services = services
        self._settings = settings
        self._clients = services.clients

    # ---- the plan ----------------------------------------------------------------------------------------------------

    def plan(self, now: int) -> EpochPlan:
        """Read the ledger, progress and charges. Raises Refusal while workers run and as `check_start`, BudgetExhausted where
        [budget] forbids it."""
        self._check_alone()
        self._check_topics()
        ledger, settings = self._services.ledger, self._settings
        ledger.refresh()
        topics = self._topics()
        published = self._published()
        first_window, origin = self._begins.at(now, max(published, default=None))
        check_start(settings, self._clients, topics, now=now, first_window=first_window)
        records = ledger.records()
        before = records.get("epoch")
        number = before.number if isinstance(before, codec.Epoch) else 0
        number = max([number, *(epoch for epochs in published.values() for epoch in epochs)]) + 1
        guarantee = self._begins.guarantee
        charged = ledger.charges.read(complete=True)
        known = {(charge.window, charge.epoch) for charge in charged if charge.pipeline == settings.pipeline.name}
        forgotten = tuple(
            charge_of(settings, topic, window, said.epoch, guarantee)
            for window, epochs in sorted(published.items())
            for said in epochs.values()
            for topic in topics
            if (window, said.epoch) not in known
        )
        charged = charged_once([*charged, *forgotten], topics)
        again = tuple(
            self._again(window, epochs, charged, guarantee)
            for window, epochs in sorted(published.items())
            if window >= first_window
        )
        newest = {window: epochs[max(epochs)] for window, epochs in published.items()}
        left = None
        if (total := budget_of(settings)) is not None:
            spent = spend_of(charged)
            if again:
                spent = total.charge(spent, guarantee, len(again))
            left = total.windows_left(spent, guarantee)
        return EpochPlan(
            before=before.epoch if isinstance(before, codec.Epoch) else "",
            number=number,
            origin=origin,
            first_window=first_window,
            guarantee=guarantee,
            again=again,
            unfinished=tuple(
                said
                for window, said in sorted(newest.items())
                if window < first_window and said.trigger < said.of_triggers
            ),
            forgotten=forgotten,
            windows_left=left,
        )

    def _check_alone(self) -> None:
        group = self._clients.application
        found = group_of(self._clients.admin(), group)
        if found is not None and found.members:
            hosts = ", ".join(sorted({str(member.host).lstrip("/") for member in found.members}))
            raise Refusal(
                f"group={group} has members={len(found.members)} at {hosts}, but no worker may run while an epoch ends",
                "stop every worker, and wait until the session of a dead one, or of a stopped one with "
                "worker.instance, is over (worker.session_timeout)",
            )

    def _check_topics(self) -> None:
        settings, clients = self._settings, self._clients
        between = {stage.input_topic for stage in self._stages if stage.purge and stage.input_topic is not None}
        wanted = {
            topic: partitions_of(settings, spec, raw=0)
            for spec in settings.topic_specs
            if (topic := settings.topic(spec.name)) in between
        }
        known = (self._services.ledger.topic, settings.topic(PROGRESS.name), self._services.ledger.charges.topic)
        for topic in (*known, *self._internal()):
            found = clients.partitions(topic)
            if not found:
                raise no_topic(topic)
            if found != wanted.get(topic, found):
                raise Refusal(
                    f"topic={topic} has partitions={found}, the configuration says {wanted[topic]}",
                    "change [topics] back",
                )

    def _published(self) -> dict[int, dict[int, Progress]]:
        """Window start in ms -> number of the epoch -> the newest trigger that any partition has published."""
        found: dict[int, dict[int, Progress]] = {}
        for said in self._begins.announced(self._clients):
            epochs = found.setdefault(said.window, {})
            if said.epoch_number not in epochs or epochs[said.epoch_number].trigger < said.trigger:
                epochs[said.epoch_number] = said
        return found

    def _again(
        self, window: int, epochs: Mapping[int, Progress], charged: Iterable[charge_codec.Charge], guarantee: Guarantee
    ) -> Again:
        ours = [c for c in charged if c.window == window and c.pipeline == self._settings.pipeline.name]
        last = epochs[max(epochs)]
        return Again(
            window=window,
            trigger=last.trigger,
            of_triggers=last.of_triggers,
            epochs=len(ours) + 1,
            spend=spend_of(ours).plus(guarantee),
            delta=sum(charge.delta for charge in ours) + guarantee.delta,
        )

    # ---- the change --------------------------------------------------------------------------------------------------

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
            epoch, topics = os.urandom(16).hex(), self._topics()
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
            self._check_alone()
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
        raw = self._topics()
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

    def _topics(self) -> tuple[str, ...]:
        """The raw topics of the new epoch: those that the file names, and those that were added to the old one by a command. With a
        pattern, those of the old one."""
        listed, known = self._settings.input.listed, self._services.ledger.to_read()
        if not listed:
            return known
        start = self._services.ledger.records().get("start")
        began = SourceMap(start.sources).topics if isinstance(start, codec.Start) else ()
        return tuple(dict.fromkeys((*listed, *(topic for topic in known if topic not in began))))

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
            for name in self._internal()
        }

    def _internal(self) -> tuple[str, ...]:
        """The topics of the stages' state and of what they hand to each other, by full name."""
        settings = self._settings
        handed = (
            settings.topic(spec.name)
            for spec in settings.topic_specs
            if spec.readers != "public" and spec.retention == "forever" and spec is not LEDGER
        )
        return tuple(dict.fromkeys([*(settings.topic(stage.changelog) for stage in self._stages), *handed]))
