"""route: raw -> by-user (key user) + ticks, dead-letter.  State: position, last closed interval; no user or key is kept.

Decodes whole fetches, decides window and interval of every record once, packs the events of a commit into one block per by-user
partition, and closes intervals with ticks in the same transaction. It is the only stage that looks at a wall clock (clock.py).
Its partitions are sources, which the ledger numbers (topics/sources.py). Source 0 also looks whether the raw topics have grown, and
whether one was added (growth.py).

Where the budget renews, records of a window that is skipped go nowhere, once the ledger says so (runtime/standing.py). Those
that came before go no further than release.

A record whose schema is not known yet is held (formats/waiting.py), and so is everything behind it, as if it were not read yet.
"""

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaException

from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.shared import SharedComputation
from susurrus.agents.finding import Finding, waits
from susurrus.agents.formats.reader import RecordReader
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.formats.waiting import Intake
from susurrus.agents.formats.whole import ComputedSource, source_of
from susurrus.agents.histogram.clock import Placed
from susurrus.agents.histogram.early_drop import EarlyDrop
from susurrus.agents.histogram.growth import Grown, TopicGrowth
from susurrus.agents.histogram.level_keys import LevelKeys
from susurrus.agents.histogram.membership import Membership
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.budget import periods_of
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.dead_letters import DeadLetters
from susurrus.agents.runtime.stage import NotYet, Stage, pinned_start
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Written
from susurrus.mechanisms.arrays import Int32s, Int64s
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.errors import RetryableRefusal
from susurrus.mechanisms.histogram.record_order import Hashes
from susurrus.topics import by_user as by_user_codec
from susurrus.topics import ledger as ledger_codec
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.raw_batches import RawBatchDecoder
from susurrus.topics.records.raw import RawColumns, RawDecoder, places
from susurrus.topics.records.reason import LEFT_OUT, Reason
from susurrus.topics.records.scanning import Scanned
from susurrus.topics.records.table import RecordTable
from susurrus.topics.sources import SourceMap
from susurrus.topics.wire.partitioner import of_placements, placements

log = logging.getLogger(__name__)

Rows = npt.NDArray[np.intp]

_REST_SECONDS = 0.5
"""A source that has read all there is waits so long for more, but never over a boundary. Each batch costs a transaction. So who
keeps up with a live topic would otherwise spend more on transactions than on records."""
_LONG_REST_SECONDS = 2.0
_FEW_OFFSETS = 1_000
"""Where a rest brings fewer than so many offsets, the next one is twice as long, up to the long one. What comes then at the end of
an interval is still read in milliseconds."""
_AFTER_BOUNDARY_SECONDS = 0.015
"""A source is read again so long after a boundary, when its first records from beyond it have come."""

_AHEAD_MS = 1_000
"""Source 0 reads the ledger so long before a look. What it says there is an operator's word, which comes at any moment."""

_OFFSET, _TIMESTAMP, _TIMESTAMP_TYPE = map(attrgetter, ("offset", "timestamp", "timestamp_type"))


def _facts(records: Sequence[Any]) -> tuple[Int64s, Int64s, npt.NDArray[np.integer[Any]]]:
    """Offsets, time stamps and their types."""
    if isinstance(records, Scanned | RecordTable):
        return records.offset, records.timestamp, records.timestamp_type
    n = len(records)
    return (
        np.fromiter(map(_OFFSET, records), np.int64, n),
        np.fromiter(map(_TIMESTAMP, records), np.int64, n),
        np.fromiter(map(_TIMESTAMP_TYPE, records), np.int64, n),
    )


def whole_decoder(
    settings: HistogramSettings, source: InputSettings, reader: RecordReader, computation: SharedComputation
) -> RawBatchDecoder | None:
    """The compiled decoder, where it is there and knows the format, and only what is in values is wanted.

    source: as it is for the raw topic. reader, computation: the definition of what is read, filtered and computed.
    """
    schema = settings.raw_schema()
    values = source_of(source, reader.form, computation.paths)
    if values is None:
        return None
    if computation.idle:
        return RawBatchDecoder(schema, values)
    return RawBatchDecoder(schema, ComputedSource(values, reader, computation.applied), computation)


class RouteStage(Stage):
    """One source: a partition of a raw topic. ``partition`` is the source's number."""

    name = "route"
    counted = ("in", "routed", "capped", "late", "filtered", "skipped", "dead_letter", "interval_moved")

    services: HistogramServices

    def __init__(
        self, services: HistogramServices, partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        """All of the state is in the meta record: clock, counts and looks."""
        super().__init__(services, partition, store, meta, position)
        self._calendar = services.calendar
        self._first_window = services.ledger.first_window  # may refuse, so it comes before what must be closed
        self._topic, self._raw_partition = services.ledger.place(partition)
        source = services.settings.input.of(self._topic)
        decoder = RawDecoder(services.settings.raw_schema())
        computation = services.computation
        reader = reader_of(
            source, computation.paths, asked=computation.asked, topic=self._topic, partition=self._raw_partition
        )
        self._intake = Intake(
            reader,
            lambda chunks, records: decoder.decode(computation.applied(chunks)),
            position=position,
            stage=self.name,
            topic=self._topic,
            partition=self._raw_partition,
            watermarks=services.clients.watermarks,
            whole=whole_decoder(services.settings, source, reader, computation),
        )
        self._partitions = services.settings.topics.by_user_partitions
        self._membership = Membership(services.settings, self._first_window)
        clock = services.settings.clock
        self._live = clock.chosen.live
        grouped = services.settings.input.grouping_sets
        self._early_drop = EarlyDrop(
            services.strategy.by_level,
            LevelKeys(services.settings.level_parts) if grouped else None,
            services.secret,
        )
        self._clock = clock.chosen(
            clock,
            self._calendar,
            closed=Interval(int(meta["closed"])),
            end=meta["end"],
            oldest=meta["oldest"],
        )
        self._ticked = Interval(int(meta["ticked"]))
        self._written = Written(
            partition, services.topic("by-user"), meta["written"], config_digest=services.config_digest
        )
        self._renews = periods_of(services.settings) is not None
        self._skipped = np.empty(0, np.int64)
        """Windows that are skipped, as far as this source knows."""
        self._learn_skipped()
        self._committed = position
        self._rest_seconds, self._rested_at = _REST_SECONDS, position
        """How long a rest is, and the offset at which the last one began."""
        self._rested_whole = False
        """Whether no boundary ended the last rest early."""
        self._growth = self._growth_of(meta["growth"]) if self._live and partition == 0 else None
        """What partition 0 of a live topic knows of its growth; an archive stays what it was when the pipeline began."""
        self._announced: list[Output] = []
        self._asked_for: Sequence[str] | None = None
        """The topics that operators have added, as the ledger said before the next look; None where it has not been read."""
        self._committed_look = Interval(0) if self._growth is None else self._growth.looked
        self._blind = False
        """The last look failed."""
        self._said_otherwise = False
        """Whether the log has said that records are stamped otherwise than the clock expects."""
        self._blocks: dict[int, list[bytes]] = {}
        self._letters = DeadLetters(
            services,
            partition,
            stage=self.name,
            topic=self._topic,
            keep=services.settings.worker.dead_letter_values,
            raw_partition=self._raw_partition,
        )

    # ---- input -------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, services: HistogramServices, partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """Where the ledger says that the epoch begins; a partition that is new since then joins at the announced interval."""
        ledger, settings = services.ledger, services.settings
        (topic, raw_partition), live, end = ledger.place(partition), settings.clock.chosen.live, None
        closed = Interval(services.calendar.first_interval(ledger.first_window) - 1)
        growth = {
            "looked": closed,
            "schedule": ((closed + 1, len(ledger.start.offsets)),),
            "sources": ledger.start.sources,
        }
        if partition in ledger.start.offsets:
            position = pinned_start(services, partition, topic)
        else:
            # The raw topic has grown: source 0 announces from which interval on the readers wait for us.
            sources = ledger.joined(partition)
            if sources is None:
                raise NotYet("waiting for source 0 to announce the new raw partition")
            closed = Interval(sources.from_interval - 1)
            # A new partition's log begins at 0: what retention ate before the first commit is refused, not skipped.
            position = max(pinned_start(services, partition, topic), Offset(sources.offsets.get(partition, 0)))
        if not live:
            _, end = services.clients.watermarks(topic, raw_partition)
        meta = {
            "closed": closed,
            "ticked": closed,
            "written": [0] * settings.topics.by_user_partitions,
            "end": end,
            "oldest": None,
            "growth": growth,
        }
        return meta, position

    def _growth_of(self, meta: dict[str, Any]) -> TopicGrowth:
        return TopicGrowth(
            self._calendar,
            margin=self._clock.margin,
            looked=Interval(int(meta["looked"])),
            schedule=tuple(meta["schedule"]),
            sources=SourceMap.of(meta["sources"]),
        )

    def close(self) -> None:
        """Close the connections of the input's format."""
        self._intake.close()

    def take(self, batch: Batch) -> None:
        """Decode, place, and pack; behind a record that waits, wait."""
        waited = self._intake.pending
        self._intake.take(batch.fetched, batch.end)
        if not waited:
            now = int(time.time() * 1000)
            self._go_on(now)
            if batch.at_end:
                self.rests_until = time.monotonic() + self._rest(now)

    def _go_on(self, now: int) -> None:
        """Take what is held, up to the first record that waits."""
        clock, intake = self._clock, self._intake
        if clock.cut_first and intake.pending:
            # What "too far ahead" means depends on now: after a pause the last cut is long ago. Unknown is no option here,
            # so a broker that does not answer makes the task start again.
            self._ask_for_cut(int(time.time() * 1000))
        # What was appended after the archive's end was pinned belongs to no archive.
        records, columns, beyond = intake.decode(now, below=clock.end)
        if len(records):
            self._pack(records, columns)
        self.counters["in"] += beyond
        self.counters["late"] += beyond
        self._taken, self.full = Offset(intake.position), intake.pending

    def _rest(self, now: int) -> float:
        """How long this source wants no batch, in s: not at all while an interval is over that it has not closed."""
        clock, calendar = self._clock, self._calendar
        current = calendar.interval_at(now - clock.margin)
        if not self._live or clock.closed < current - 1:
            return 0.0
        if self._rested_whole:
            few = self._taken - self._rested_at < _FEW_OFFSETS
            self._rest_seconds = min(2 * self._rest_seconds, _LONG_REST_SECONDS) if few else _REST_SECONDS
        left = (calendar.boundary(current) + clock.margin - now) / 1000
        self._rested_at, self._rested_whole = self._taken, self._rest_seconds <= left
        return min(self._rest_seconds, left + _AFTER_BOUNDARY_SECONDS)

    def _ask_for_cut(self, now: int) -> None:
        wanted = self._clock.wants_cut(now)
        if wanted is not None:
            self._clock.cuts.asked(wanted, self.services.clients.watermarks(self._topic, self._raw_partition)[1])

    def _pack(self, records: Sequence[Any], columns: RawColumns) -> None:
        offsets, stamps, kinds = _facts(records)
        otherwise = self._clock.stamped_otherwise(kinds)
        placed = self._place(stamps, offsets, ~otherwise)
        if columns.record is not None and columns.item is not None:
            of = columns.record
            stamps, otherwise = stamps[of], otherwise[of]
            placed = Placed(placed.interval[of], placed.clamped, placed.too_far[of])
            offsets = places(offsets[of], columns.item)
        n = len(offsets)
        reason = columns.reason
        window, interval, late = self._membership.decide(
            reason,
            columns.event_time,
            stamps=stamps,
            interval=placed.interval,
            otherwise=otherwise,
            too_far=placed.too_far,
        )
        good = (reason == Reason.OK) & ~late
        counters = self.counters
        counters["in"] += n
        counters["late"] += int(late.sum())
        counters["interval_moved"] += placed.clamped
        if len(self._skipped):
            skipped = good & np.isin(window, self._skipped)
            counters["skipped"] += int(skipped.sum())
            good &= ~skipped
        left_out = np.isin(reason, list(LEFT_OUT))
        counters["filtered"] += int(left_out.sum())
        why = np.where(left_out, Reason.OK, reason)
        counters["dead_letter"] += self._letters.refuse(records, why, columns.record, columns.item)

        rows = np.flatnonzero(good)
        if not len(rows):
            return
        by_user = placements(columns.users) if columns.placements is None else columns.placements
        rows = self._without_over_cap(rows, columns, by_user, interval, window)
        counters["routed"] += len(rows)
        counters["capped"] += int(good.sum()) - len(rows)
        block = ByUserBlock(
            source=self.partition,
            offset=offsets,
            interval=interval,
            window=self._calendar.windows.starts(window),
            user=columns.user,
            users=columns.users,
            key=columns.key,
            keys=columns.keys,
            values=columns.values,
        )
        self._add(block, rows, of_placements(by_user, self._partitions))

    def _learn_skipped(self) -> None:
        """Ask the ledger which windows are skipped. A broker that does not answer is asked again with the next interval."""
        if not self._renews:
            return
        ledger, calendar = self.services.ledger, self._calendar
        with contextlib.suppress(KafkaException):
            ledger.refresh()
        self._skipped = np.array(sorted(map(calendar.window_at, ledger.skipped())), np.int64)

    def _place(self, stamps: Int64s, offsets: Int64s, stamped: npt.NDArray[np.bool_]) -> Placed:
        """Where the records belong. stamped: bool[n], as the clock expects. The others are not there for it: they close nothing."""
        if stamped.all():
            return self._clock.place(stamps, offsets, topic=self._topic, partition=self._raw_partition)
        if not self._said_otherwise:
            self._said_otherwise = True
            first = int(offsets[int(np.argmin(stamped))])
            log.warning(
                "topic=%s partition=%d offset=%d is not stamped as clock.kind=%s expects: such records are dead letters (%s); "
                "restore the topic's message.timestamp.type",
                self._topic, self._raw_partition, first, self._clock.kind, Reason.WRONG_STAMP.name,
            )  # fmt: skip
        some = self._clock.place(stamps[stamped], offsets[stamped], topic=self._topic, partition=self._raw_partition)
        interval, too_far = np.zeros(len(stamps), np.int64), np.zeros(len(stamps), np.bool_)
        interval[stamped], too_far[stamped] = some.interval, some.too_far
        return Placed(interval, some.clamped, too_far)

    def _add(self, block: ByUserBlock, rows: Rows, partitions: Int32s) -> None:
        """Add rows of a block to the records of the next commit, by partition. partitions: of each user."""
        for number, blocks in by_user_codec.by_partition(block, rows, partitions, self.services.max_record_bytes):
            self._blocks.setdefault(number, []).extend(blocks)

    def _without_over_cap(
        self, rows: Rows, columns: RawColumns, by_user: Hashes, interval: Int64s, window: Int64s
    ) -> Rows:
        """Rows without those that bound would drop with any history: so one user cannot fill the pipeline.

        Which those are, `EarlyDrop` says from a user's records of one interval in this batch. All others must stay.
        by_user: uint32, placements of users.
        """
        # What may be dropped need not be. Only users who bring much are worth the sorting.
        of_user = columns.user[rows]
        much = np.bincount(of_user) > self._early_drop.least
        if not much.any():
            return rows
        busy = rows[much[of_user]]
        user = columns.user[busy]
        arriving = self._early_drop.arriving(
            user, by_user[user], window[busy], interval[busy], columns.key[busy], columns.keys
        )
        return np.setdiff1d(rows, busy[~arriving], assume_unique=True)

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit for everything packed, with a tick if a boundary was passed."""
        clock = self._clock
        # While a leader is being elected, no broker answers. A cut of the next round serves as well.
        with contextlib.suppress(KafkaException):
            self._ask_for_cut(now)
        self._look_for_growth(now)
        self._read_ahead(now)
        if self._intake.due:
            self._go_on(now)
        self.due_at = self._next_look(now)
        self.patient = not self._intake.pending
        clock.moved(self._taken)
        growth = self._growth
        interval = clock.closed if growth is None else min(clock.closed, growth.looked)
        if (
            not self._blocks
            and not self._letters
            and interval <= self._ticked
            and (growth is None or growth.looked == self._committed_look)
            and self._taken < self._committed + 10_000
        ):
            return
        outputs = []
        topic = self.services.topic("by-user")
        for number, blocks in self._blocks.items():
            outputs.append(Output(topic, number, [{"value": block} for block in blocks]))
        self._written.count(outputs)
        outputs += self._letters.outputs()
        outputs += self._announced
        if ticks := interval > self._ticked:
            outputs += self._tick(interval)
        self._blocks, self._announced = {}, []
        self._ticked = max(self._ticked, interval)
        self._committed = self._taken
        meta: dict[str, Any] = {
            "closed": clock.closed,
            "ticked": self._ticked,
            "written": self._written.to_meta(),
            "end": clock.end,
            "oldest": clock.oldest,
            "growth": None,
        }
        if growth is not None:
            self._committed_look = growth.looked
            schedule, sources = growth.schedule.schedule, growth.sources.runs
            meta["growth"] = {"looked": growth.looked, "schedule": schedule, "sources": sources}
        yield Commit(position=self._taken, meta=meta, outputs=outputs)
        if ticks:
            # Behind the commit, for which all readers wait.
            self._learn_skipped()

    def _next_look(self, now: int) -> float:
        """Monotonic time of the next instant at which this source looks for growth, reads ahead of that, or looks for where the log
        ends."""
        if not self._live:
            return math.inf
        margins = {self.services.settings.clock.idle_grace}
        if self._growth is not None:
            margins |= {self._clock.margin, self._clock.margin - _AHEAD_MS}
        calendar = self._calendar
        wait = min(calendar.boundary(calendar.interval_at(now - margin)) + margin - now for margin in margins)
        return time.monotonic() + wait / 1000

    def _read_ahead(self, now: int) -> None:
        """Read the ledger for the next look, which the readers of a trigger wait for."""
        growth = self._growth
        if growth is not None and self._asked_for is None and growth.due(now + _AHEAD_MS) is not None:
            with contextlib.suppress(KafkaException, RetryableRefusal):
                self._asked_for = self.services.ledger.asked_for

    def _look_for_growth(self, now: int) -> None:
        """Look at public instants. A look is committed at once, so that no later one takes its place."""
        growth = self._growth
        if growth is None or (interval := growth.due(now)) is None:
            return
        try:
            ledger, clients = self.services.ledger, self.services.clients
            partitions = {topic: clients.partitions(topic) for topic in growth.sources.topics}
            asked_for = ledger.asked_for if self._asked_for is None else self._asked_for
            asked = [topic for topic in asked_for if topic not in partitions]
            added = {topic: number for topic in asked if (number := clients.partitions(topic))}
            topic_ids = {topic: clients.topic_id(topic) for topic in added}
            found = growth.saw(partitions, interval, added, lambda *place: clients.watermarks(*place)[1])
        except (KafkaException, RetryableRefusal):
            self._blind = True
            return
        self._blind, self._asked_for = False, None
        for grown in found:
            self._announce(grown, {topic: topic_ids[topic] for topic in grown.topics})

    def _announce(self, grown: Grown, topic_ids: dict[str, str]) -> None:
        """Have the next commit say from when on new sources count, and charge the windows that are open then on new topics."""
        ledger, calendar = self.services.ledger, self._calendar
        announced = ledger_codec.SourcesRecord(
            number=len(grown.sources),
            from_interval=grown.first,
            sources=grown.sources.runs,
            topic_ids=topic_ids,
            offsets=dict(grown.offsets),
        )
        windows = [w for w in calendar.open_windows(grown.first) if w >= self._first_window]
        self._announced += [
            ledger.output(announced),
            ledger.withdrawn([ledger_codec.added_topic_key(topic) for topic in grown.topics]),
            *(
                output
                for window in windows
                for output in ledger.charge_for(
                    grown.topics, [calendar.window_start(window)], self.services.guarantee_of(window)
                )
            ),
        ]

    def _tick(self, interval: Interval) -> list[Output]:
        """Ticks for every by-user partition; source 0's carry the numbers of sources and from which interval on they hold."""
        growth = self._growth
        if growth is None:
            return self._written.ticks(interval)
        outputs = self._written.ticks(interval, growth.schedule.schedule)
        growth.schedule.prune(interval)
        return outputs

    def stall(self, now: int) -> Finding | None:
        """What holds this source back."""
        if self._intake.waits:
            return self._intake.waits
        if self._blind:
            return waits(
                "brokers",
                f"the brokers do not say how many partitions the raw topics have, and interval={self._ticked + 1} closes only "
                "then",
                "look at the brokers",
            )
        return self._clock.cuts.stall(self._taken, self._intake.place)

    def report(self) -> dict[str, Any]:
        """Counters and the last closed interval."""
        return {**super().report(), "interval": self._ticked}
