"""What a worker does now and then: it starts fenced tasks and those of new sources, writes its status to the ledger, purges what
was read, and gives memory back that is free.

It has a thread of its own, because all of it may wait for a broker. What fails is put off. It holds no lock while it waits; a task
is started again under the group's lock (group.py).
"""

import logging
import threading
import time
from collections.abc import Callable

import msgspec
from confluent_kafka import KafkaException, TopicPartition

from susurrus.agents.kafka.requests import answer_of
from susurrus.agents.logs import describe
from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.given_back import give_back
from susurrus.agents.runtime.group import Group
from susurrus.agents.runtime.services import Services
from susurrus.topics.ledger import Status

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_STATUS_SECONDS = 2.0
_PURGE_SECONDS = 30.0
"""Also how often memory is given back."""
_DELETE_SECONDS = 10.0


class Housekeeping:
    """The chores of one worker.

    worker: its name in the status records. purged: the input topics that are ours and may be deleted below the committed position.
    patience: seconds after which a fenced task is started again. A task is fenced when another worker has taken its partition over,
    and two heartbeats later this worker knows whether the group still assigns the partition to it. look_for_sources: starts the
    tasks of raw partitions that have become sources.
    """

    def __init__(
        self,
        group: Group,
        services: Services,
        *,
        worker: str,
        purged: frozenset[str],
        patience: float,
        look_for_sources: Callable[[], None] = lambda: None,
    ) -> None:
        self._group = group
        self._services = services
        self._worker = worker
        self._purged = purged
        self._patience = patience
        self._look_for_sources = look_for_sources
        self._reported: dict[InputPartition, Status] = {}
        self._ended_at: dict[InputPartition, float] = {}

    def keep(self, stopping: threading.Event) -> None:
        """Do the chores again and again, until the event is set."""
        status_at = purge_at = time.monotonic()
        while not stopping.wait(_LOOK_SECONDS):
            try:
                self._services.clients.serve()
                self.restart()
                self._look_for_sources()
                if time.monotonic() >= status_at:
                    status_at = time.monotonic() + _STATUS_SECONDS
                    self.report()
                if time.monotonic() >= purge_at + _PURGE_SECONDS:
                    purge_at = time.monotonic()
                    give_back()
                    self.purge()
            except Exception as error:
                log.warning("housekeeping is put off: %s", describe(error))

    def restart(self) -> None:
        """Start the tasks again that were fenced, or whose thread has died, some time ago."""
        now = time.monotonic()
        ended = {place: task for place, task in self._group.tasks.items() if task.state == "fenced" or task.died}
        self._ended_at = {place: self._ended_at.get(place, now) for place in ended}
        for place, task in ended.items():
            if now - self._ended_at[place] >= self._patience:
                del self._ended_at[place]
                self._group.start_again(place, task)

    def report(self, *, everything: bool = False) -> None:
        """Write the tasks' status to the ledger: what has changed since the last report, or everything."""
        now = int(time.time() * 1000)
        records = []
        for place, task in sorted(self._group.tasks.items()):
            facts, stall = task.report(), task.stall()
            status = Status(
                stage=task.stage_name,
                partition=task.partition,
                state=task.state,
                worker=self._worker,
                position=facts["position"],
                next=facts["next"],
                interval=facts.get("interval"),
                stalled=stall.text if stall else "",
                action=stall.action if stall else "",
                waits=stall is not None and stall.waits,
                counters=facts["counters"],
            )
            if everything or self._reported.get(place) != status:
                self._reported[place] = status
                records.append(msgspec.structs.replace(status, at=now))
        if records:
            self._services.ledger.publish(*records)

    def purge(self) -> None:
        """Delete what is never read again: internal input below the committed position, superseded changelog records."""
        if self._services.clients.embedded:
            return
        targets = []
        for place, task in self._group.tasks.items():
            if not task.at_work:
                continue
            committing = task.committing
            if place.topic in self._purged and committing.position > 0:
                targets.append(TopicPartition(place.topic, place.partition, committing.position))
            if committing.purge_before > 0:
                targets.append(TopicPartition(task.context.changelog_topic, task.partition, committing.purge_before))
        targets += [TopicPartition(*place) for place in self._services.superseded()]
        if targets:
            asked = self._services.clients.admin().delete_records(targets, request_timeout=_DELETE_SECONDS)
            for future in asked.values():
                try:
                    answer_of(future, _DELETE_SECONDS)
                except KafkaException as error:
                    log.info("deleting what has been read is put off: %s", error.args[0].name())
