"""bound: by-user -> bounded.  Key user -> key.  State: per (window, user) its keys, the records kept of each and
what its ledger holds, nothing else.

Gathers the events of open intervals as columns. When every raw partition has closed an interval, all of its events are capped per
user, in the order of a keyed hash (record_order.py), and added up per key, in one pass per window. What becomes of a record depends
on its own user's records only, and no user id leaves this stage. Then the tick goes to every partition of bounded.

What users have brought is in memory (user_state.py); a commit carries what its interval changed.

- Strategies that need the published keys: a record's rank also depends on what was published some triggers before. An interval with
  events waits until that is known (feedback.py).
- Strategies that need the users' lists: a window's last interval also measures all of its users' lists (user_lists.py), with or
  without events.

With grouping sets, each level has caps and lists of its own (capped_level.py), and a record is offered to all of them.

State keys: those of capped_level.py and intervals.py.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.agents.finding import waits
from susurrus.agents.histogram.capped_level import CappedLevel, Pair
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.interval_records import IntervalRecords, concatenated, distinct
from susurrus.agents.histogram.interval_stage import IntervalStage
from susurrus.agents.histogram.intervals import IntervalRows
from susurrus.agents.histogram.key_hashes import KeyHashes
from susurrus.agents.histogram.level_keys import LevelKeys
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Written
from susurrus.mechanisms.arrays import Int32s, Int64s
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.topics import bounded as bounded_codec
from susurrus.topics import by_user as by_user_codec
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.wire.partitioner import partition as partition_of


class BoundStage(IntervalStage[ByUserBlock]):
    """One by-user partition."""

    name, input, source = "bound", "by-user", "route"
    counted = ("taken", "kept", "capped")
    encode, decode = staticmethod(by_user_codec.encode), staticmethod(by_user_codec.decode)

    services: HistogramServices

    def __init__(
        self, services: HistogramServices, partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        """Beside the intervals, the store has the users and the numbers of keys. Raises Refusal for state of another format."""
        levels, grouped = services.strategy.by_level, bool(services.settings.input.grouping_sets)
        found = meta.get("levels", []) if grouped else [meta]
        if len(found) != len(levels) or not all(map(CappedLevel.reads, levels, found)):
            formats = ",".join(str(of.get("format", 1)) for of in found) or "1"
            written = ",".join(str(CappedLevel.first_meta(level)["format"]) for level in levels)
            raise Refusal(
                f"stage=bound partition={partition} has state of format={formats}, and this version writes format={written}",
                f"run the version that wrote it to the end of the window, and {services.ledger.way_out}",
            )
        super().__init__(services, partition, store, meta, position)
        self._lag = services.strategy.lag
        if (self._lag is None) != (services.published_keys is None):
            raise RuntimeError("published keys must be read exactly where the strategy has a lag")
        settings = services.settings
        self._columns = settings.layout
        self._partitions = settings.topics.bounded_partitions
        self._declared = frozenset(settings.declared_keys)
        self._level_keys = LevelKeys(settings.level_parts) if grouped else None
        hashes = KeyHashes(services.secret)
        self._levels = [
            CappedLevel(number, services, store, of, hashes, grouped=grouped) for number, of in enumerate(found)
        ]
        self._measures_lists = services.strategy.measures_lists
        self._remembers = settings.remember > 0
        self._written = Written(
            partition, services.topic("bounded"), meta["written"], config_digest=services.config_digest
        )
        self._asked: tuple[Interval, int] | None = None
        """The interval that waits for published keys, and how much was known of them when that was found out."""
        services.read_published_keys()

    # ---- input -------------------------------------------------------------------------------------------------------

    @staticmethod
    def first_sources(services: HistogramServices) -> int:
        """Return the number of raw partitions that the epoch began with."""
        return len(services.ledger.start.offsets)

    @classmethod
    def begin(cls, services: HistogramServices, partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """Nothing is closed, nothing is written, and no key has a number."""
        meta, position = super().begin(services, partition, start)
        written = [0] * services.settings.topics.bounded_partitions
        levels = [CappedLevel.first_meta(level) for level in services.strategy.by_level]
        if services.settings.input.grouping_sets:
            return {**meta, "written": written, "levels": levels}, position
        [only] = levels
        return {"format": only.pop("format"), **meta, "written": written, **only}, position

    def wakes(self, inbox: Inbox) -> None:
        """Wake it when more is known of published keys."""
        if self.services.published_keys is not None:
            self.services.published_keys.wakes(inbox)

    def take_block(self, block: ByUserBlock, offset: Offset, size: int) -> None:
        """Split a block by interval."""
        raw = (int(block.offset.min()), int(block.offset.max())) if len(block) else None
        self._incoming.record(block.source, offset, raw)
        intervals = distinct(block.interval)
        if len(intervals) == 1:
            self._intervals.add(Interval(intervals[0]), block, len(block), offset, size)
            return
        ordered = block.take(np.argsort(block.interval, kind="stable"))
        ends = np.searchsorted(ordered.interval, intervals, side="right").tolist()
        for interval, start, end in zip(map(Interval, intervals), [0, *ends], ends, strict=False):
            self._intervals.add(
                interval, IntervalRows(ordered, start, end), end - start, offset, size * (end - start) // len(block)
            )

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """Close what every source has closed, interval by interval; spill if too much waits."""
        self._waiting, full = None, False
        while (ready := self._ready) > self._intervals.closed:
            waiting = (self._intervals.next_with_rows(ready), self._next_last_interval(ready))
            with_rows = min((interval for interval in waiting if interval is not None), default=None)
            interval = ready if with_rows is None else with_rows
            if with_rows is not None and not self._knows_published_keys(interval):
                # It waits for what earlier intervals make public, so those must be closed first.
                if self._intervals.closed == interval - 1:
                    # With more input, a whole archive would be spilled, and so be logged a second time.
                    outgrown = self._intervals.crowded or self._intervals.outgrows(self._max_rows // 2)
                    full = self._intervals.spilled or outgrown
                    break
                interval = Interval(interval - 1)
            yield self._close(interval)
            if levels := [level for level in self._levels if level.outgrown]:
                yield self._gather(levels)
        self.full, self.patient = full, self._waiting is None
        if self._intervals.outgrows(self._max_rows):
            yield self._spill()

    def _feedback(self, window: WindowIndex, interval: Interval) -> tuple[PublishedKeys, Interval] | None:
        """The published keys, and the interval up to which those of a window count for this one; None where none does.

        A window has no published key before its own first interval, and none is of a window before the pipeline's first. Where
        keys are remembered, those of the window before count as published at its last interval.
        """
        published_keys, lag = self.services.published_keys, self._lag
        begin = max(self._calendar.first_interval(window), self._first_interval)
        before = self._calendar.preceding(window)
        if self._remembers and before >= self.services.ledger.first_window:
            begin = min(begin, self._calendar.last_interval(before))
        if published_keys is None or lag is None or interval - lag < begin:
            return None
        return published_keys, Interval(interval - lag)

    def _knows_published_keys(self, interval: Interval) -> bool:
        """Whether all is known of published keys that the records of an interval, or its lists, depend on."""
        # Later windows begin later.
        feedback = self._feedback(self._calendar.oldest_open(interval), interval)
        if feedback is None or feedback[0].complete(feedback[1]):
            return True
        published_keys, needed = feedback
        # All records of an interval that can close are here.
        asked = interval, published_keys.version
        if asked != self._asked and self._decided(published_keys, interval, needed):
            return True
        self._asked = asked
        self._waiting = published_keys.unreadable
        if not self._waiting:
            behind = ", ".join(map(str, published_keys.behind(needed)[:8]))
            ends = self._calendar.last_interval(self._calendar.oldest_open(needed)) == needed
            what = ", whose last rows of a window say which keys are remembered" if self._remembers and ends else ""
            self._waiting = waits(
                "release",
                f"interval={interval} waits for interval={needed} of release {behind}{what}",
                "see what status says of release",
            )
        return False

    def _decided(self, published_keys: PublishedKeys, interval: Interval, needed: Interval) -> bool:
        """Whether what is known of published keys is enough for an interval, though it is not all."""
        blocks = self._intervals.in_memory(interval)
        if blocks is None or self._next_last_interval(interval) == interval:
            return False
        windows = {WindowStart(start) for block in blocks for start in distinct(block.window)}
        looking_back = [w for w in windows if self._feedback(self._calendar.window_at(w), interval) is not None]
        if not looking_back:
            return True
        keys = list(
            {key for block in blocks for level in self._keys_by_level(block.keys) for key in level} - self._declared
        )
        return all(published_keys.decides(window, needed, keys) for window in looking_back)

    def _next_last_interval(self, ready: Interval) -> Interval | None:
        """The next interval, up to ``ready``, that is the last of a window whose users' lists are measured."""
        if not self._measures_lists:
            return None
        following = Interval(self._intervals.closed + 1)
        oldest = max(self._calendar.oldest_open(following), self.services.ledger.first_window)
        last = self._calendar.last_interval(oldest)
        return last if last <= ready else None

    def _public(self, window: WindowStart, interval: Interval, keys: list[bytes]) -> npt.NDArray[np.bool_]:
        """bool[n]: keys that the window's readers know, at trigger t: declared, or published at a trigger up to t - lag."""
        known = np.fromiter(map(self._declared.__contains__, keys), np.bool_, len(keys))
        if (feedback := self._feedback(self._calendar.window_at(window), interval)) is not None:
            others = np.flatnonzero(~known)
            asked = keys if len(others) == len(keys) else [keys[i] for i in others.tolist()]
            known[others] = feedback[0].known(window, feedback[1], asked)
        return known

    def _close(self, interval: Interval) -> Commit:
        closed_before = self._intervals.closed
        blocks = self._intervals.blocks(interval)
        changed: list[list[Pair]] = [[] for _ in self._levels]
        outputs: list[Output] = []
        if blocks:
            outputs = self._bound(interval, blocks, changed)
        if self._next_last_interval(interval) == interval:
            outputs += self._measure_lists(interval, changed)
        puts = [put for level, of in zip(self._levels, changed, strict=True) for put in level.stored(of)]
        self._written.count(outputs)
        outputs += self._written.ticks(interval)
        drops = self._intervals.close(interval)
        oldest_before, oldest = (self._calendar.oldest_open(Interval(at + 1)) for at in (closed_before, interval))
        gone = self._levels if oldest > oldest_before else []
        for level in gone:
            level.drop_users(oldest)
        commit = Commit(*self._claim(), outputs=outputs, puts=puts, drops=drops)
        for level in gone:
            # Older windows went before. Their deleted places are left out: finding nothing there would take ever longer.
            level.forget(oldest_before, oldest, commit)
        return commit

    def _gather(self, levels: list[CappedLevel]) -> Commit:
        puts: list[Pair] = []
        drops: list[Pair] = []
        for level in levels:
            more, gone = level.gather()
            puts += more
            drops += gone
        return Commit(*self._claim(), puts=puts, drops=drops)

    def _meta(self, position: Offset) -> dict[str, Any]:
        shared = super()._meta(position)
        received = shared.pop("received")
        levels = [level.to_meta() for level in self._levels]
        written = {"received": received, "written": self._written.to_meta(), **shared}
        if self._level_keys is not None:
            return {**written, "levels": levels}
        [only] = levels
        return {"format": only.pop("format"), **written, **only}

    # ---- the pass over one interval --------------------------------------------------------------------------------------

    def _bound(self, interval: Interval, blocks: list[ByUserBlock], changed: list[list[Pair]]) -> list[Output]:
        """The records of the interval within the caps of each level, added up per key. changed: what to store, by level."""
        records = IntervalRecords.of(blocks)
        by_level = self._keys_by_level(records.keys)
        cells: list[BoundedBlock] = []
        for start, part in records.by_window():
            window = self._calendar.window_at(start)
            trigger = self._calendar.trigger(window, interval)
            used = np.flatnonzero(np.bincount(part.key, minlength=len(records.keys)))
            kept = np.zeros(len(part.key), np.bool_)
            for level, of_level, puts in zip(self._levels, by_level, changed, strict=True):
                keys, key = _codes_of(of_level, used, part.key, distinct=self._level_keys is None)
                public = None if level.lag is None else self._public(start, interval, keys)
                of_records = part.users, key, part.values
                added = level.close(self.partition, (window, start), interval, of_records, keys, trigger, public)
                puts += added.puts
                kept |= added.kept
                cells.append(added.block)
            count = int(np.count_nonzero(kept))
            self.counters["taken"] += len(kept)
            self.counters["kept"] += count
            self.counters["capped"] += len(kept) - count
        return self._outputs(cells[0] if len(cells) == 1 else concatenated(cells))

    def _keys_by_level(self, keys: list[bytes]) -> list[list[bytes]]:
        """By level, its key for each raw key."""
        return [keys] if self._level_keys is None else self._level_keys.of(keys)

    def _measure_lists(self, interval: Interval, changed: list[list[Pair]]) -> list[Output]:
        """The measurement of the users' lists of the window that ends with this interval; changed: what this very commit writes."""
        window = self._calendar.oldest_open(interval)
        start = self._calendar.window_start(window)
        feedback = self._feedback(window, interval)

        def units(keys: list[bytes]) -> Int64s:
            unit = np.zeros(len(keys), np.int64) if feedback is None else feedback[0].units(start, feedback[1], keys)
            if self._declared:
                # What is published has a unit already; a lag of the whole window leaves the declared keys alone public.
                unit[(unit == 0) & np.array([key in self._declared for key in keys], np.bool_)] = WEIGHT_ONE
            return unit

        outputs: list[Output] = []
        for level, puts in zip(self._levels, changed, strict=True):
            if level.lists is not None:
                outputs += self._outputs(level.measure(self.partition, (window, start), interval, puts, units))
        return outputs

    def _outputs(self, block: BoundedBlock) -> list[Output]:
        target = partition_of(block.keys, self._partitions)
        topic = self.services.topic("bounded")
        outputs = []
        for number in range(self._partitions):
            part = block.take(np.flatnonzero(target == number))
            pieces = [
                {"value": bounded_codec.encode(p)} for p in bounded_codec.split(part, self.services.max_record_bytes)
            ]
            if pieces:
                outputs.append(Output(topic, number, pieces))
        return outputs


def _codes_of(
    keys: list[bytes], used: npt.NDArray[np.intp], key: Int32s, *, distinct: bool
) -> tuple[list[bytes], Int32s]:
    """(the distinct keys of a window's records, int32[n] places of the records' keys in them).

    keys: of the interval; distinct: False where a level may have one key for several raw keys, which is there more than once; used:
    those that the window has, ascending; key: int32[n], places in keys.
    """
    if distinct and len(used) == len(keys):
        return keys, key
    wanted = [keys[i] for i in used.tolist()]
    number = {of: at for at, of in enumerate(dict.fromkeys(wanted))}
    place = np.empty(len(keys), np.int32)
    place[used] = np.fromiter(map(number.__getitem__, wanted), np.int32, len(wanted))
    return list(number), place[key]
