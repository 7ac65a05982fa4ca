"""route: raw -> by-user (key user) + ticks, dead-letter.  State: position, last closed slot; no user or key is kept.

Decodes whole fetches, decides window and slot of every record once, packs the events of a commit into one block per by-user
partition, and closes slots with ticks in the same transaction. The only stage that looks at a wall clock (clock.py).
"""

import contextlib
import time
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
from confluent_kafka import KafkaException

from susurrus.agents.commit import Commit, Output
from susurrus.agents.formats import decoder_of
from susurrus.agents.histogram.clock import Clock
from susurrus.agents.services import Services
from susurrus.agents.stage import NotYet, Stage
from susurrus.agents.store import Store
from susurrus.agents.transport import Batch
from susurrus.mechanisms.bounding import Bounding, UserKeys
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import by_user as by_user_codec
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import tick as tick_codec
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.dead_letter import DeadLetter, encode_headers
from susurrus.topics.partitioner import partition as partition_of
from susurrus.topics.raw import RawColumns
from susurrus.topics.reason import Reason

_LOOK_FOR_NEW_SOURCES_SECONDS = 10.0
_OFFSET, _TIMESTAMP, _TIMESTAMP_TYPE, _VALUE = map(attrgetter, ("offset", "timestamp", "timestamp_type", "value"))


class Route(Stage):
    """One raw partition."""

    name = "route"

    def __init__(self, services: Services, partition: int) -> None:
        super().__init__(services, partition)
        self._calendar = services.calendar
        self._decoder = decoder_of(services.settings)
        self._waiting = ""
        self._topic = services.settings.input.topic
        self._partitions = services.settings.topics.by_user_partitions
        self._max_future = services.settings.clock.max_future
        self._until = services.settings.clock.until if services.settings.clock.kind == "replay" else None
        plan = services.strategy.plan
        self._limits: Bounding | None = None
        if services.strategy.bounding.max_keys is None:
            self._limits = Bounding(max_records=plan.max_records, max_records_per_key=plan.max_records_per_key)
        self._clock: Clock
        self._first_window = 0
        self._ticked = 0
        self._taken = -1
        self._committed = -1
        self._sources = 1
        self._looked_at = 0.0
        self._blocks: dict[int, list[bytes]] = {}
        self._letters: list[tuple[dict[str, Any], list[tuple[str, bytes]]]] = []

    # ---- input -------------------------------------------------------------------------------------------------------

    def restore(self, store: Store, meta: dict[str, Any] | None, position: int) -> int:
        """Continue after the last commit, or begin where the ledger says."""
        services, settings = self.services, self.services.settings
        self._blocks, self._letters = {}, []
        ledger = services.ledger
        self._first_window = ledger.first_window
        end: int | None = None
        if meta is None:
            self.counters = {
                "in": 0,
                "routed": 0,
                "capped": 0,
                "late": 0,
                "dead_letter": 0,
                "before_start": 0,
                "slot_moved": 0,
            }
            closed = self._calendar.first_slot(self._first_window) - 1
            self._sources = len(ledger.start.offsets)
            if self.partition in ledger.start.offsets:
                position = ledger.start.offsets[self.partition]
                if services.clients.topic_id(self._topic) != ledger.start.topic_id:
                    raise Refusal(
                        f"topic={self._topic} is not the one the pipeline began with (topic_id={ledger.start.topic_id}): restore "
                        "it, or give the pipeline a new name to start over"
                    )
            else:
                # The raw topic has grown: source 0 announces from which slot on the readers wait for us.
                sources = ledger.joined(self.partition)
                if sources is None:
                    raise NotYet("waiting for source 0 to announce the new raw partition")
                closed, self._sources = sources.from_slot - 1, sources.number
                # Its log begins at 0: what retention ate before the first commit is refused, not skipped.
                position = 0
            if settings.clock.kind == "replay":
                _, end = services.clients.watermarks(self._topic, self.partition)
            last_stamp = None
        else:
            closed, end = int(meta["closed"]), meta["end"]
            self._sources, last_stamp = int(meta["sources"]), meta["last_stamp"]
        self._clock = Clock(settings, self._calendar, closed=closed, end=end)
        if last_stamp is not None:
            self._clock.last_stamp = int(last_stamp)
        self._ticked = closed
        self._taken = self._committed = position
        return position

    def take(self, batch: Batch) -> None:
        """Decode, place, and pack."""
        records = batch.records
        clock = self._clock
        if clock.end is not None and batch.end > clock.end:
            # What was appended after the archive's end was pinned belongs to no archive.
            beyond = len(records)
            records = [record for record in records if record.offset < clock.end]
            self.counters["in"] += beyond - len(records)
            self.counters["late"] += beyond - len(records)
        if records:
            if clock.kind == "producer":
                # What "too far ahead" means depends on now: after a pause the last cut is long ago. Unknown is no option here,
                # so a broker that does not answer makes the task start again.
                self._ask_for_cut(int(time.time() * 1000))
            self._pack(records)
        self._taken = batch.end

    def _ask_for_cut(self, now: int) -> None:
        wanted = self._clock.wants_cut(now)
        if wanted is not None:
            self._clock.asked(wanted, self.services.clients.watermarks(self._topic, self.partition)[1])

    def _pack(self, records: list[Any]) -> None:
        n = len(records)
        offsets = np.fromiter(map(_OFFSET, records), np.int64, n)
        stamps = np.fromiter(map(_TIMESTAMP, records), np.int64, n)
        if set(map(_TIMESTAMP_TYPE, records)) != {self._clock.accepted_type}:
            for record in records:
                self._clock.check_type(
                    record.timestamp_type, topic=self._topic, partition=self.partition, offset=record.offset
                )
        try:
            columns = self._decoder.decode(list(map(_VALUE, records)))
        except NotYet as waiting:
            self._waiting = str(waiting)  # outlives the restarts until records are decoded again
            raise
        self._waiting = ""
        placed = self._clock.place(stamps, offsets, topic=self._topic, partition=self.partition)
        event_time = stamps if columns.event_time is None else columns.event_time
        window = self._calendar.window_of(event_time)
        first_slot = window * self._calendar.slots_per_window
        reason = columns.reason

        def refuse(rows: Any, why: Reason) -> None:
            reason[rows & (reason == Reason.OK)] = why

        refuse(placed.too_far | (event_time > stamps + self._max_future), Reason.IN_FUTURE)
        if self._until is not None:
            refuse((stamps >= self._until) | (event_time >= self._until), Reason.IN_FUTURE)
        refuse(window < self._first_window, Reason.BEFORE_FIRST_WINDOW)
        slot = np.maximum(placed.slot, first_slot)
        good = reason == Reason.OK
        late = good & (slot - first_slot >= self._calendar.triggers)
        good &= ~late
        counters = self.counters
        counters["in"] += n
        counters["late"] += int(late.sum())
        counters["slot_moved"] += placed.clamped
        self._refuse(records, reason)

        rows = np.flatnonzero(good)
        if not len(rows):
            return
        rows = self._without_hopeless(rows, columns, slot, window)
        counters["routed"] += len(rows)
        counters["capped"] += int(good.sum()) - len(rows)
        block = ByUserBlock(
            source=self.partition,
            offset=offsets,
            slot=slot,
            window=self._calendar.origin + window * self._calendar.window,
            user=columns.user,
            users=columns.users,
            key=columns.key,
            keys=columns.keys,
            values=columns.values,
        )
        target = partition_of(columns.users, self._partitions)[columns.user[rows]]
        order = np.argsort(target, kind="stable")
        bounds = np.searchsorted(target[order], np.arange(self._partitions + 1))
        for number in range(self._partitions):
            chosen = rows[order[bounds[number] : bounds[number + 1]]]
            if len(chosen):
                pieces = by_user_codec.split(block.take(chosen), self.services.max_record_bytes)
                self._blocks.setdefault(number, []).extend(by_user_codec.encode(piece) for piece in pieces)

    def _without_hopeless(self, rows: Any, columns: RawColumns, slot: Any, window: Any) -> Any:
        """Rows without those that bound would drop whatever came before them: one user cannot fill the pipeline.

        Caps are monotone: what a user's records of one slot in this batch push over C or m on their own is over it with any
        history too (docs/guarantees/bounding.md). That does not hold for a cap on distinct keys, where history may name the key.
        """
        limits = self._limits
        if limits is None or int(np.bincount(columns.user[rows]).max()) <= limits.max_records:
            return rows
        order = rows[np.lexsort((rows, slot[rows], window[rows], columns.user[rows]))]
        changes = np.zeros(len(order), np.bool_)
        for column in (columns.user, window, slot):
            changes[1:] |= column[order[1:]] != column[order[:-1]]
        member = np.cumsum(changes, dtype=np.int32)
        members = int(member[-1]) + 1
        kept = limits.close(member, columns.key[order], np.ones(members, np.int32), UserKeys.empty(members)).kept
        return np.sort(order[kept])

    def _refuse(self, records: list[Any], reason: Any) -> None:
        bad = np.flatnonzero(reason)
        self.counters["dead_letter"] += len(bad)
        keep = self.services.settings.worker.dead_letter_values
        for row in bad.tolist():
            record = records[row]
            letter = DeadLetter(Reason(int(reason[row])), self._topic, self.partition, record.offset)
            value, key = (record.value, record.key) if keep else (None, None)
            if len(value or b"") + len(key or b"") > self.services.max_record_bytes:
                value = key = None
            self._letters.append(({"value": value, "key": key}, encode_headers(letter)))

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit for everything packed, with a tick if a boundary was passed."""
        clock = self._clock
        # While a leader is being elected: ask again in the next round, a later cut is as good.
        with contextlib.suppress(KafkaException):
            self._ask_for_cut(now)
        clock.moved(self._taken)
        if (
            not self._blocks
            and not self._letters
            and clock.closed == self._ticked
            and self._taken < self._committed + 10_000
        ):
            return
        outputs = []
        topic = self.services.topic("by-user")
        for number, blocks in self._blocks.items():
            outputs.append(Output(topic, number, [{"value": block} for block in blocks]))
        if self._letters:
            messages, headers = (list(column) for column in zip(*self._letters, strict=True))
            outputs.append(Output(self.services.topic("dead-letter"), self.partition, messages, headers))
        if clock.closed > self._ticked:
            outputs += self._tick(clock.closed)
        self._blocks, self._letters = {}, []
        self._ticked = clock.closed
        self._committed = self._taken
        meta = {"closed": clock.closed, "end": clock.end, "last_stamp": clock.last_stamp, "sources": self._sources}
        yield Commit(position=self._taken, meta=meta, outputs=outputs)

    def _tick(self, slot: int) -> list[Output]:
        """Ticks for every by-user partition; source 0's carry the number of sources, valid from the next slot on."""
        outputs = []
        if self.partition == 0 and time.monotonic() > self._looked_at + _LOOK_FOR_NEW_SOURCES_SECONDS:
            self._looked_at = time.monotonic()
            partitions = self.services.clients.partitions(self._topic)
            if partitions > self._sources:
                self._sources = partitions
                outputs.append(self.services.ledger.output(ledger_codec.Sources(number=partitions, from_slot=slot + 1)))
        tick = tick_codec.encode(
            tick_codec.Tick(
                source=self.partition,
                slot=slot,
                config_digest=self.services.config_digest,
                sources=self._sources if self.partition == 0 else None,
            )
        )
        topic = self.services.topic("by-user")
        return [*outputs, *(Output(topic, number, [{"value": tick}]) for number in range(self._partitions))]

    def stall(self, now: int) -> str | None:
        """What holds this source back."""
        held = self._clock.stall(self._taken)
        return self._waiting or (held and f"topic={self._topic} partition={self.partition}, {held}")

    def report(self) -> dict[str, Any]:
        """Counters and the last closed slot."""
        return {**super().report(), "slot": self._clock.closed}
