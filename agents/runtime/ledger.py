"""The ledger as the tasks see it: the pipeline's epoch, configuration and start, its refusals and its status.

One instance per worker reads the compacted topic and keeps it in memory. One task, the initializer (release-0 in a histogram
pipeline), writes epoch, configuration and start in a transaction of its own, and charges windows (budget.py). All other tasks wait
for these records. Refusals and status go through a plain producer, because a refused task has no transaction.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.raw_topics import asked_for, first_topics, topics_of
from susurrus.agents.kafka.transactional import TransactionalProducer
from susurrus.agents.runtime.budget import Charges
from susurrus.agents.runtime.commit import Output
from susurrus.agents.runtime.initial_offsets import check_start, first_start
from susurrus.mechanisms.calendar import Calendar, Interval, Trigger, WindowIndex, WindowStart
from susurrus.mechanisms.errors import Refusal, RetryableRefusal
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.topics import ledger as codec
from susurrus.topics.sources import SourceMap
from susurrus.topics.wire.packing import MalformedRecord

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.3
_START_OVER = "give the pipeline a new [pipeline] name (its windows are charged again)"
CHANGE_BACK = f"change them back, or {_START_OVER}"
"""What to do where a worker's configuration is not the one that the epoch began with."""


def fingerprint(secret: bytes) -> str:
    """A fingerprint of the secret. It shows whether two secrets are equal, and nothing else about a random one."""
    return blake2b(secret, person=b"susurrus-print", digest_size=16).hexdigest()


def _messages(*records: codec.LedgerRecord) -> list[dict[str, Any]]:
    return [dict(zip(("key", "value"), codec.encode(record), strict=True)) for record in records]


class Member(Protocol):
    """What the ledger needs to know of a task."""

    @property
    def stage_name(self) -> str:
        """The name of the stage that it runs."""

    @property
    def partition(self) -> int:
        """The partition of the stage's input."""

    def waiting(self) -> bool:
        """A sign of life while waiting; False if the task must stop."""


class Ledger:
    """Thread-safe view of the ledger topic; ``charges`` is the view of the charges."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        calendar: Calendar,
        *,
        config_digest: bytes,
        secret: bytes,
        initializer: tuple[str, int],
        way_out: str,
        published_before: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._calendar = calendar
        self._digest = config_digest.hex()
        self._fingerprint = fingerprint(secret)
        self._initializer = initializer
        self.way_out = way_out
        """What an operator can do after internal topics were lost or restored from an older copy."""
        self._shown_before = published_before
        """The evidence outside the ledger that something was published; empty if there is none."""
        self._joined = ""
        self.topic = settings.topic("ledger")
        self.charges = Charges(settings, clients, lambda: self.raw_topics, self._topics_in)
        self._lock = threading.RLock()
        self._reading = threading.Lock()
        self._records: dict[str, codec.LedgerRecord] = {}
        self._next = 0
        self._end = -1
        """Where the log ended when all before it had been read."""
        self._producer: Producer | None = None

    # ---- reading -----------------------------------------------------------------------------------------------------

    def refresh(self, *, complete: bool = False) -> None:
        """Read what is new in the ledger topic. complete: see `Clients.read`.

        Each release commit makes it grow, and many tasks of a worker ask behind a trigger: the first one reads, and the others see
        that the log still ends where it did. That takes a tenth of the time of a consumer.
        """
        with self._reading:
            low, end = self._clients.watermarks(self.topic, 0)
            if end == self._end:
                return
            records, shown = self._clients.read_up_to(
                end, self.topic, max(self._next, low), group="ledger", complete=complete
            )
            for key, value, offset in records:
                try:
                    record = codec.decode(key, value)
                except MalformedRecord as error:
                    raise Refusal(
                        f"topic={self.topic} offset={offset}: {error}", "find out who else writes to it"
                    ) from error
                with self._lock:
                    if record is None:
                        self._records.pop(key.decode(), None)
                    else:
                        self._records[key.decode()] = record
                self._next = offset + 1
            self._end = shown

    def _get(self, key: str) -> codec.LedgerRecord | None:
        with self._lock:
            return self._records.get(key)

    @property
    def epoch(self) -> str:
        """The epoch in force. A task must join first."""
        record = self._get("epoch")
        if not isinstance(record, codec.Epoch):
            raise RetryableRefusal(f"topic={self.topic} holds no epoch", f"start the initializer, {self.initializer}")
        return record.epoch

    @property
    def epoch_number(self) -> int:
        """1, 2, …: which epoch of the pipeline is in force."""
        record = self._get("epoch")
        return record.number if isinstance(record, codec.Epoch) else 0

    @property
    def initializer(self) -> str:
        """The task that writes a new pipeline's first records."""
        return f"{self._initializer[0]}-{self._initializer[1]}"

    @property
    def start(self) -> codec.Start:
        """The start of the pipeline."""
        record = self._get("start")
        if not isinstance(record, codec.Start):
            raise Refusal(
                f"topic={self.topic} holds an epoch but no start",
                f"restore the ledger topic as it was at the last commit, or {self.way_out}",
            )
        return record

    def begins(self, topic: str, partition: int) -> Offset:
        """The epoch's first offset in an internal topic (full name): records below it belong to an earlier epoch."""
        return Offset(self.start.internal.get(topic, {}).get(partition, 0))

    @property
    def first_window(self) -> WindowIndex:
        """Number of the pipeline's first window."""
        return self._calendar.window_at(self.start.first_window)

    @property
    def sources(self) -> SourceMap | None:
        """The sources as far as they are known here; None where no epoch has begun."""
        return codec.sources_of(self.records().values())

    @property
    def raw_topics(self) -> tuple[str, ...]:
        """The topics of the sources; before an epoch has begun, those that the settings name."""
        sources = self.sources
        return self._settings.input.listed if sources is None else sources.topics

    def _topics_in(self, window: int) -> tuple[str, ...]:
        """The raw topics whose records may count in a window (start in ms): all but those that joined when it was over.

        Source 0 charges a topic that joins for the windows that are open then (route.py), and release for all later ones.
        """
        window_index = self._calendar.window_at(window)
        later = {
            topic
            for record in self.records().values()
            if isinstance(record, codec.SourcesRecord)
            and window_index < self._calendar.oldest_open(Interval(record.from_interval))
            for topic in record.topic_ids
        }
        return tuple(topic for topic in self.raw_topics if topic not in later)

    @property
    def asked_for(self) -> tuple[str, ...]:
        """The raw topics that an operator has added and that are no sources yet."""
        self.refresh()
        return asked_for(self.records().values())

    def to_read(self) -> tuple[str, ...]:
        """The raw topics that a worker must read, those among them that are no sources yet. Raises as `first_topics`."""
        return topics_of(self._settings, self._clients, self.records().values())

    def number(self, topic: str, partition: int) -> int | None:
        """The number of a raw partition as a source; None while it has none. A topic that is the only one begins with its own
        numbers, so they need not be waited for."""
        sources = self.sources
        if sources is None:
            return partition if self._settings.input.listed == (topic,) else None
        return sources.number(topic, partition)

    def known_place(self, source: int) -> tuple[str, int] | None:
        """(raw topic, partition) of a source; None while it is none, as far as is known here. As `number`, of a topic that is the
        only one before an epoch has begun."""
        sources, listed = self.sources, self._settings.input.listed
        if sources is None:
            return (listed[0], source) if len(listed) == 1 else None
        return sources.place(source)

    def place(self, source: int) -> tuple[str, int]:
        """(raw topic, partition) of a source. Raises Refusal where the ledger does not name it."""
        place = None if (sources := self.sources) is None else sources.place(source)
        if place is None:
            raise Refusal(
                f"topic={self.topic} does not name source={source}",
                f"restore the ledger topic as it was at the last commit, or {self.way_out}",
            )
        return place

    def topic_id(self, raw_topic: str) -> str:
        """The id that a raw topic had when it became one; empty for one that is none."""
        return codec.raw_topic_ids(self.records().values()).get(raw_topic, "")

    def joined(self, source: int) -> codec.SourcesRecord | None:
        """The announcement that made a raw partition a source: the first that includes it, or None."""
        self.refresh()
        with self._lock:
            announced = [record for record in self._records.values() if isinstance(record, codec.SourcesRecord)]
        return min((a for a in announced if a.number > source), key=lambda a: a.number, default=None)

    def digests(self, partition: int) -> dict[tuple[WindowStart, Trigger], str]:
        """What this release partition has published: (window start in ms, trigger) -> link of the digest chain."""
        self.refresh()
        with self._lock:
            return {
                (WindowStart(record.window), Trigger(record.trigger)): record.digest
                for record in self._records.values()
                if isinstance(record, codec.Digest) and record.partition == partition
            }

    def published(self, partition: int) -> codec.PublishedPosition | None:
        """How far this partition of streams has published; None where it has not. All commits before the caller's fence count."""
        # Commits of other partitions that are still open hide what lies behind them, so it is read to the very end.
        self.refresh(complete=True)
        record = self._get(f"published/{partition}")
        return record if isinstance(record, codec.PublishedPosition) else None

    def records(self) -> Mapping[str, codec.LedgerRecord]:
        """Everything, for status."""
        with self._lock:
            return dict(self._records)

    # ---- joining -----------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Raise Refusal if the pipeline, where it exists already, has another configuration or secret than this worker; and where
        it does not exist, if it must not begin.

        Called before the worker joins the group, because a member takes partitions from workers that could run them. If there is
        no ledger yet, or no broker answers, the tasks ask again (``join``).
        """
        try:
            self.refresh()
            if self._get("epoch") is None:
                check_start(self._settings, self._clients, first_topics(self._settings, self._clients))
        except KafkaException as error:
            log.info("the ledger cannot be read yet (%s)", error.args[0].name())
            return
        except RetryableRefusal as refusal:
            log.warning("the ledger cannot be read yet: %s", refusal)
            return
        if self._get("epoch") is not None:
            self._check_configuration()

    def join(self, member: Member, producer: TransactionalProducer) -> None:
        """Return when the ledger has an epoch whose configuration is ours; the initializer writes it if there is none.

        Raises Refusal for another configuration under the same epoch.
        """
        # To the very end: a task that starts while `susurrus ledger new-epoch` works must wait for its outcome, and an epoch
        # that does not show yet must not be initialized a second time.
        self.refresh(complete=True)
        if self._get("epoch") is None and (member.stage_name, member.partition) == self._initializer:
            if shown := self._shown_before():
                # A pipeline that has published has an epoch. Another initializer may have written it just now.
                self.refresh(complete=True)
            if self._get("epoch") is None:
                if shown:
                    raise Refusal(
                        f"{shown}, but topic={self.topic} is empty, so the ledger was lost, or is a copy from "
                        "before the beginning",
                        f"restore the internal topics as they were at the last commit, or {self.way_out}",
                    )
                self._initialize(producer)
                self.refresh()
        while self._get("epoch") is None:
            if not member.waiting():
                raise RuntimeError("stopped while waiting for the ledger")
            time.sleep(_POLL_SECONDS)
            self.refresh()
        self._check_configuration()
        self._joined = self._joined or self.epoch
        if self.epoch != self._joined:
            raise Refusal(
                f"epoch={self.epoch_number} has begun while this worker was away, and it still has the epoch before",
                "restart it",
            )
        if self.epoch_number == 1 and self.start.origin != str(self._settings.start.from_):
            log.warning("start.from is ignored: this pipeline began at %s, once and for all", self.start.origin)

    def _check_configuration(self) -> None:
        found = self._get("config")
        config = found if isinstance(found, codec.Config) else None
        if config is None or config.digest != self._digest:
            changed = codec.changed_fields(config, self._settings.published_fields(), self._settings.digest_of_default)
            raise Refusal(
                f"configuration changed under the same epoch (fields: {', '.join(changed) or 'unknown'})", CHANGE_BACK
            )
        self._check_raw_topics()
        if config.fields.get(codec.FINGERPRINT) != self._fingerprint:
            # Other noise over the same data is a second release of it, and bound would not recognize a user's keys.
            raise Refusal(
                "the secret differs from the one that the epoch began with",
                f"give every worker the old secret back (privacy.secret_file or SUSURRUS_SECRET), or {_START_OVER}",
            )

    def _check_raw_topics(self) -> None:
        """The list of topics may grow within an epoch, by `susurrus topics add-input`, and not otherwise."""
        listed, began = self._settings.input.listed, SourceMap(self.start.sources).topics
        if not listed:
            return  # a pattern is part of the digest
        known = {*self.raw_topics, *asked_for(self.records().values())}
        if foreign := [topic for topic in listed if topic not in known]:
            raise Refusal(
                f"input.topics: topic={foreign[0]} is none of those that this pipeline reads",
                "add it with `susurrus topics add-input`, or leave it out",
            )
        if left := [topic for topic in began if topic not in listed]:
            raise Refusal(
                f"input.topics: topic={left[0]} is missing, and this pipeline has read it since the epoch began",
                CHANGE_BACK,
            )

    def _initialize(self, producer: TransactionalProducer) -> None:
        """Write epoch, configuration and start, once. The producer has fenced every other initializer."""
        start = first_start(self._settings, self._clients, self._calendar)
        epoch = self._settings.start.epoch or os.urandom(16).hex()
        if self._settings.start.epoch is not None:
            log.warning(
                "start.epoch is set: the same epoch and secret over different data reveal the difference; use it in tests only"
            )
        producer.begin_transaction()
        for message in _messages(start, self.configuration, codec.Epoch(epoch=epoch, created=int(time.time() * 1000))):
            producer.produce(self.topic, partition=0, **message)
        producer.commit_transaction(30.0)
        log.info("began epoch %s with %d raw partitions", epoch, len(start.offsets))

    @property
    def configuration(self) -> codec.Config:
        """This worker's configuration and secret, as the ledger keeps them."""
        return codec.Config(
            digest=self._digest, fields={**self._settings.published_fields(), codec.FINGERPRINT: self._fingerprint}
        )

    def check_started(self, stage: str, partition: int, *, has_state: bool) -> None:
        """A partition that has committed before must find its changelog: an empty one is a loss, not a beginning."""
        if not has_state and self._get(f"started/{stage}/{partition}") is not None:
            raise Refusal(
                f"stage={stage} partition={partition} has committed before, but its changelog is empty",
                f"restore the changelog topic as it was at the last commit, or {self.way_out}",
            )

    def started(self, stage: str, partition: int) -> Output:
        """The mark that ``check_started`` looks for; part of a partition's first commit."""
        return self.output(codec.Started(stage=stage, partition=partition))

    def output(self, *records: codec.LedgerRecord) -> Output:
        """Ledger records as part of a commit."""
        return Output(self.topic, 0, _messages(*records))

    def withdrawn(self, keys: list[bytes]) -> Output:
        """Tombstones for ledger records as part of a commit."""
        return Output(self.topic, 0, [{"key": key, "value": None} for key in keys])

    def charge_output(self, window: int, guarantee: Guarantee) -> Output:
        """The records that charge a window (start in ms) in the epoch in force, on every raw topic that has been announced."""
        # An announcement that an open transaction hides was committed before the window could be charged, so it is waited for.
        self.refresh(complete=True)
        return self.charges.output(window, self.epoch, guarantee)

    def charge_for(self, topics: Iterable[str], windows: Iterable[int], guarantee: Guarantee) -> list[Output]:
        """The records that charge windows (starts in ms) that may have been charged before these raw topics were announced."""
        topics, skipped = list(topics), self.skipped()
        charged = [window for window in windows if window not in skipped]
        return [self.charges.output(window, self.epoch, guarantee, topics) for window in charged if topics]

    def is_charged(self, window: int) -> bool:
        """Whether a window (start in ms) is charged in the epoch in force. Raises BudgetExhausted as `Charges.include` does."""
        return self.charges.include(window, self.epoch)

    def decision(self, window: int) -> bool | None:
        """Whether a window (start in ms) begins in the epoch in force, where the budget renews; None while that is undecided."""
        self.refresh()
        record = self._get(codec.decision_key(window).decode())
        if not isinstance(record, codec.WindowDecision) or record.epoch != self.epoch:
            return None
        return record.begun

    def skipped(self) -> frozenset[int]:
        """The windows (starts in ms) that are skipped in the epoch in force, as far as that is known here."""
        records, epoch = self.records().values(), self.epoch
        decided = [record for record in records if isinstance(record, codec.WindowDecision) and record.epoch == epoch]
        return frozenset(record.window for record in decided if not record.begun)

    # ---- refusals and status -----------------------------------------------------------------------------------------

    def refuse(self, stage: str, partition: int, refusal: Finding) -> None:
        """Record why a partition does not go on."""
        self.publish(
            codec.RefusalRecord(
                stage=stage,
                partition=partition,
                cause=refusal.text,
                action=refusal.action,
                waits=refusal.waits,
                at=int(time.time() * 1000),
            )
        )

    def clear_refusal(self, stage: str, partition: int) -> None:
        """Withdraw a refusal that no longer holds. It is not read first: one in an open transaction is not visible yet."""
        self._plain_producer().produce(self.topic, None, f"refusal/{stage}/{partition}".encode(), partition=0)

    def publish(self, *records: codec.LedgerRecord) -> None:
        """Write records outside any transaction."""
        producer = self._plain_producer()
        for message in _messages(*records):
            producer.produce(self.topic, partition=0, **message)
        producer.poll(0)

    def close(self) -> None:
        """Send what is waiting."""
        with self._lock:
            if self._producer is not None:
                self._producer.flush(5.0)
                self._producer = None

    def _plain_producer(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = self._clients.producer()
            return self._producer
