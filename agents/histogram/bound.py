"""bound: by-user -> bounded.  Key user -> key.  State: per (window, user) its keys, the records kept of each and
what its ledger holds, nothing else.

Gathers the events of open intervals as columns. When every raw partition has closed an interval, all of its events are put in the
order (source, raw offset), capped per user and added up per key, in one pass per window. What becomes of a record depends on
its own user's records only, and no user id leaves this stage. Then the tick goes to every partition of bounded.

What users have brought is in memory (user_state.py); a commit carries what its interval changed.

- Strategies that need the published keys: a record's rank also depends on what was published some triggers before. An interval with
  events waits until that is known (feedback.py).
- Strategies that need the users' lists: a window's last interval also measures all of its users' lists (user_lists.py), with or
  without events.

State keys: those of user_state.py, intervals.py and user_lists.py.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.agents.finding import waits
from susurrus.agents.histogram.columns import Kept
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.interval_records import IntervalRecords, concatenated, distinct
from susurrus.agents.histogram.interval_stage import IntervalStage
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.user_caps import CapsLayout
from susurrus.agents.histogram.user_lists import KEYS, NUMBERS, KeyNumbers, block_of, keys_of, measure
from susurrus.agents.histogram.user_state import BEFORE, CHANGES, GATHERED, UserState
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Written
from susurrus.mechanisms.arrays import Int32s, Int64s
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.per_key import offsets, segment_sums
from susurrus.mechanisms.histogram.user_lists import ListWeights
from susurrus.mechanisms.histogram.user_table import Closed, Codes
from susurrus.topics import bounded as bounded_codec
from susurrus.topics import by_user as by_user_codec
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.wire.partitioner import partition as partition_of

_HASHES, _HASHED_BYTES = 1 << 17, 1 << 23
"""Hashes of keys that are remembered, and the bytes of these keys."""


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
        self._bounding = (
            services.strategy.bounding
        )  # for what is the same in all windows; users ask for that of their window
        self._caps = CapsLayout(self._bounding)
        if meta.get("format") not in (self._caps.version, self._caps.before):
            raise Refusal(
                f"stage=bound partition={partition} has state of format={meta.get('format', 1)}, and this version "
                f"writes format={self._caps.version}",
                f"run the version that wrote it to the end of the window, and {services.ledger.way_out}",
            )
        super().__init__(services, partition, store, meta, position)
        if (self._bounding.lag is None) != (services.published_keys is None):
            raise RuntimeError("published keys must be read exactly where the strategy has a lag")
        self._columns = services.settings.layout
        self._partitions = services.settings.topics.bounded_partitions
        # A user's key list holds hashes. Two keys with one hash are one key to the caps, here and in what is stored: a collision
        # makes that user's caps tighter and concerns no other user. The hashes are keyed, so no user can search for collisions.
        self._hash_key = blake2b(services.secret, person=b"susurrus-bound", digest_size=32).digest()
        self._declared = frozenset(services.settings.declared_keys)
        self._lists = services.strategy.lists
        self._hashes: dict[bytes, int] = {}
        self._hashed_bytes = 0
        self._numbers = None if self._lists is None else KeyNumbers(store, int(meta["numbers"]))
        self._users = UserState(store, lambda window: services.strategy_of(window).bounding, self._caps, meta)
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
        version = CapsLayout(services.strategy.bounding).version
        return {"format": version, **meta, "written": written, "numbers": 0}, position

    def wakes(self, inbox: Inbox) -> None:
        """Wake it when more is known of published keys."""
        if self.services.published_keys is not None:
            self.services.published_keys.wakes(inbox)

    def take_block(self, block: ByUserBlock, offset: Offset, size: int) -> None:
        """Split a block by interval."""
        raw = (int(block.offset.min()), int(block.offset.max())) if len(block) else None
        self._incoming.record(block.source, offset, raw)
        intervals = distinct(block.interval)
        for interval in map(Interval, intervals):
            part = block if len(intervals) == 1 else block.take(np.flatnonzero(block.interval == interval))
            self._intervals.add(interval, part, len(part), offset, size * len(part) // len(block))

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
                    full = self._intervals.spilled or self._intervals.outgrows(self._max_rows // 2)
                    break
                interval = Interval(interval - 1)
            yield self._close(interval)
            if self._users.outgrown:
                yield self._gather()
        self.full = full
        if self._intervals.outgrows(self._max_rows):
            yield self._spill()

    def _feedback(self, window: WindowIndex, interval: Interval) -> tuple[PublishedKeys, Interval] | None:
        """The published keys, and the interval up to which those of a window count for this one; None where none does.

        A window has no published key before its own first interval, and none is of a window before the pipeline's first.
        """
        published_keys, lag = self.services.published_keys, self._bounding.lag
        begin = max(self._calendar.first_interval(window), self._first_interval)
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
            self._waiting = waits(
                "release",
                f"interval={interval} waits for interval={needed} of release {behind}",
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
        keys = list({key for block in blocks for key in block.keys} - self._declared)
        return all(published_keys.decides(window, needed, keys) for window in looking_back)

    def _next_last_interval(self, ready: Interval) -> Interval | None:
        """The next interval, up to ``ready``, that is the last of a window whose users' lists are measured."""
        if self._lists is None:
            return None
        following = Interval(self._intervals.closed + 1)
        oldest = max(self._calendar.oldest_open(following), self.services.ledger.first_window)
        last = self._calendar.last_interval(oldest)
        return last if last <= ready else None

    def _public(self, window: WindowStart, interval: Interval, keys: list[bytes]) -> npt.NDArray[np.bool_]:
        """bool[n]: keys that the window's readers know, at trigger t: declared, or published at a trigger up to t - lag."""
        known = np.fromiter((key in self._declared for key in keys), np.bool_, len(keys))
        if (feedback := self._feedback(self._calendar.window_at(window), interval)) is not None:
            others = np.flatnonzero(~known)
            known[others] = feedback[0].known(window, feedback[1], [keys[i] for i in others.tolist()])
        return known

    def _close(self, interval: Interval) -> Commit:
        closed_before = self._intervals.closed
        blocks = self._intervals.blocks(interval)
        puts: list[tuple[bytes, bytes]] = []
        outputs: list[Output] = []
        if blocks:
            puts, outputs = self._bound(interval, blocks)
        if self._lists is not None and self._next_last_interval(interval) == interval:
            outputs += self._measure_lists(self._lists, interval, dict(puts))
        self._written.count(outputs)
        outputs += self._written.ticks(interval)
        drops = self._intervals.close(interval)
        oldest_before, oldest = (self._calendar.oldest_open(Interval(at + 1)) for at in (closed_before, interval))
        gone: tuple[bytes, ...] = ()
        if oldest > oldest_before:
            self._users.drop(oldest)
            gone = (CHANGES, GATHERED, BEFORE, NUMBERS, KEYS)
        commit = Commit(*self._claim(), outputs=outputs, puts=puts, drops=drops)
        for table in gone:
            # Older windows went before. Their deleted places are left out: finding nothing there would take ever longer.
            commit.drop(table + ordered(oldest_before), table + ordered(oldest))
        return commit

    def _gather(self) -> Commit:
        puts, drops = self._users.gather()
        return Commit(*self._claim(), puts=puts, drops=drops)

    def _meta(self, position: Offset) -> dict[str, Any]:
        shared = super()._meta(position)
        numbers = {} if self._numbers is None else {"numbers": self._numbers.next}
        received = shared.pop("received")
        return {
            "format": self._caps.version,
            "received": received,
            "written": self._written.to_meta(),
            **shared,
            **self._users.to_meta(),
            **numbers,
        }

    # ---- the pass over one interval --------------------------------------------------------------------------------------

    def _bound(self, interval: Interval, blocks: list[ByUserBlock]) -> tuple[list[tuple[bytes, bytes]], list[Output]]:
        """(what to store, outputs): the records of the interval within the caps, added up per key."""
        records = IntervalRecords.of(blocks)
        puts: list[tuple[bytes, bytes]] = []
        cells: list[BoundedBlock] = []
        for start, part in records.by_window():
            window = self._calendar.window_at(start)
            key = part.key
            used = np.flatnonzero(np.bincount(key, minlength=len(records.keys)))
            if len(used) < len(records.keys):
                place = np.empty(len(records.keys), np.int32)
                place[used] = np.arange(len(used), dtype=np.int32)
                key = place[key]
            keys = [records.keys[i] for i in used.tolist()]
            public = None if self._bounding.lag is None else self._public(start, interval, keys)
            codes = self._codes(window, keys)
            trigger = self._calendar.trigger(window, interval)
            closed, changes = self._users.close(window, interval, part.users, key, codes, trigger, public)
            puts += changes
            if self._numbers is not None:
                puts += self._numbers.listed(closed.changes.key)
            kept = int(np.count_nonzero(closed.kept))
            self.counters["taken"] += len(key)
            self.counters["kept"] += kept
            self.counters["capped"] += len(key) - kept
            cells.append(self._added_up(interval, start, keys, key, part.values, closed))
        return puts, self._outputs(cells[0] if len(cells) == 1 else concatenated(cells))

    def _added_up(
        self, interval: Interval, start: WindowStart, keys: list[bytes], key: Int32s, values: Int64s, closed: Closed
    ) -> BoundedBlock:
        """What a window's records add to its keys. key: int32[n], places in keys; values: int64[n, fields]."""
        # A record may put weight on its key's selection and not be kept.
        weighty = closed.weight > 0
        rows = np.flatnonzero(closed.kept | weighty)
        # numpy sorts 16 bits in a tenth of the time.
        narrow = key.astype(np.uint16) if len(keys) <= 1 << 16 else key
        rows = rows[np.argsort(narrow[rows], kind="stable")]
        number = np.bincount(key[rows], minlength=len(keys))
        cells = np.flatnonzero(number)
        indptr, keeps = offsets(number[cells]), closed.kept[rows]
        kept_starts = offsets(keeps.astype(np.int64))[indptr[:-1]]
        gathered = Kept(rows=rows[keeps], starts=kept_starts, first=closed.first, values=values)
        return BoundedBlock(
            partition=self.partition,
            interval=interval,
            window=np.full(len(cells), start, np.int64),
            keys=[keys[i] for i in cells.tolist()],
            users=segment_sums(weighty[rows].astype(np.int64), indptr),
            weight=segment_sums(closed.weight[rows], indptr),
            sums=self._columns.aggregate(gathered),
        )

    def _codes(self, window: WindowIndex, keys: list[bytes]) -> Codes:
        """uint32[n]: what the window's table knows the keys by."""
        if self._numbers is not None:
            return self._numbers.of(window, keys)
        known = self._hashes
        codes = list(map(known.get, keys))
        for at, code in enumerate(codes):
            if code is None:
                # Eight bytes, of which four are used: versions before stored all of them.
                digest = blake2b(keys[at], digest_size=8, key=self._hash_key).digest()
                codes[at] = known[keys[at]] = int.from_bytes(digest[:4], "little")
                self._hashed_bytes += len(keys[at])
        if len(known) > _HASHES or self._hashed_bytes > _HASHED_BYTES:
            self._hashes, self._hashed_bytes = {}, 0
        return np.array(codes, np.uint32)

    def _measure_lists(self, lists: ListWeights, interval: Interval, puts: dict[bytes, bytes]) -> list[Output]:
        """The measurement of the users' lists of the window that ends with this interval; puts: what this very commit writes."""
        window = self._calendar.oldest_open(interval)
        start = self._calendar.window_start(window)
        numbers, keys = keys_of(self._store, window, puts)
        feedback = self._feedback(window, interval)
        unit = np.zeros(len(keys), np.int64) if feedback is None else feedback[0].units(start, feedback[1], keys)
        if self._declared:
            # What is published has a unit already; a lag of the whole window leaves the declared keys alone public.
            unit[(unit == 0) & np.array([key in self._declared for key in keys], np.bool_)] = WEIGHT_ONE
        sums = measure(self._users.lists(window), lists, numbers, unit)
        return self._outputs(block_of(self.partition, interval, start, keys, sums, self._columns.width))

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
