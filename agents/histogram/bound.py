"""bound: by-user -> bounded.  Key user -> key.  State: per (window, user) its keys, the records kept of each and
what its ledger holds, nothing else.

Gathers the events of open intervals as columns. When every raw partition has closed an interval, all of its events are put in the
order (user, source, raw offset), capped per user and added up per key, in one vectorised pass. What becomes of a record depends on
its own user's records only, and no user id leaves this stage. Then the tick goes to every partition of bounded.

- Strategies that need the published keys: a record's rank also depends on what was published some triggers before. An interval with
  events waits until that is known (feedback.py).
- Strategies that need the users' lists: a window's last interval also measures all of its users' lists (user_lists.py), with or
  without events.

State keys: ``u`` window user -> caps, and those of intervals.py and user_lists.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.columns import Kept
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.interval_stage import IntervalStage
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.user_caps import CapsLayout
from susurrus.agents.histogram.user_lists import KEYS, NUMBERS, KeyNumbers, block_of, keys_of, measure, rows_of
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Written
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.per_key import offsets, segment_sums
from susurrus.mechanisms.histogram.user_lists import ListWeights
from susurrus.topics import bounded as bounded_codec
from susurrus.topics import by_user as by_user_codec
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.packing import Int64s
from susurrus.topics.partitioner import partition as partition_of

_USERS = b"u"


class Bound(IntervalStage[ByUserBlock]):
    """One by-user partition."""

    name, input, source = "bound", "by-user", "route"
    counted = ("taken", "kept", "capped")
    encode, decode = staticmethod(by_user_codec.encode), staticmethod(by_user_codec.decode)

    services: HistogramServices

    def __init__(self, services: HistogramServices, partition: int) -> None:
        super().__init__(services, partition)
        self._bounding = services.strategy.bounding
        self._caps = CapsLayout(self._bounding)
        if (self._bounding.lag is None) != (services.published_keys is None):
            raise RuntimeError("published keys must be read exactly where the strategy has a lag")
        self._columns = services.settings.layout
        self._partitions = services.settings.topics.bounded_partitions
        # A user's key list holds hashes. Two keys with one hash are one key to the caps, here and in what is stored: a collision
        # makes that user's caps tighter and concerns no other user. The hashes are keyed, so no user can search for collisions.
        self._hash_key = blake2b(services.secret, person=b"susurrus-bound", digest_size=32).digest()
        self._declared = frozenset(services.settings.declared_keys)
        self._lists = services.strategy.lists
        self._numbers: KeyNumbers | None = None
        self._written: Written
        self._asked: tuple[Interval, int] | None = None
        """The interval that waits for published keys, and how much was known of them when that was found out."""

    # ---- input -------------------------------------------------------------------------------------------------------

    def first_sources(self) -> int:
        """The raw partitions that the epoch began with."""
        return len(self.services.ledger.start.offsets)

    def begin(self, start: Offset) -> tuple[dict[str, Any], Offset]:
        """As every stage of intervals; nothing is written, and no key has a number."""
        meta, position = super().begin(start)
        return {"format": self._caps.version, **meta, "written": [0] * self._partitions, "numbers": 0}, position

    def resume(self, store: Store, meta: dict[str, Any], position: Offset) -> None:
        """The intervals, what is written, and the numbers of keys. Raises Refusal for state of another format."""
        services, version = self.services, self._caps.version
        if meta.get("format") != version:
            raise Refusal(
                f"stage=bound partition={self.partition} has state of format={meta.get('format', 1)}, and this version writes "
                f"format={version}: run the version that wrote it to the end of the window, and {services.ledger.way_out}"
            )
        super().resume(store, meta, position)
        self._written = Written(
            self.partition, services.topic("bounded"), meta["written"], config_digest=services.config_digest
        )
        if self._lists is not None:
            self._numbers = KeyNumbers(store, int(meta["numbers"]))
        self._asked = None
        if services.published_keys is not None:
            services.published_keys.wakes(self)
        if services.published_keys_reader is not None:
            begins = services.ledger.begins(services.topic("published-keys"), 0)
            services.published_keys_reader.ensure_started(bytes.fromhex(services.ledger.epoch), begins)

    def take_block(self, block: ByUserBlock, offset: Offset, size: int) -> None:
        """Split a block by interval."""
        raw = (int(block.offset.min()), int(block.offset.max())) if len(block) else None
        self._incoming.record(block.source, offset, raw)
        intervals = np.unique(block.interval)
        for interval in map(Interval, intervals.tolist()):
            part = block if len(intervals) == 1 else block.take(np.flatnonzero(block.interval == interval))
            self._intervals.add(interval, part, len(part), offset, size * len(part) // len(block))

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """Close what every source has closed, interval by interval; spill if too much waits."""
        self._waiting, full = "", False
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
            self._waiting = (
                f"interval={interval} waits for interval={needed} of release {behind}: see what status says of release"
            )
        return False

    def _decided(self, published_keys: PublishedKeys, interval: Interval, needed: Interval) -> bool:
        """Whether what is known of published keys is enough for an interval, though it is not all."""
        blocks = self._intervals.in_memory(interval)
        if blocks is None or self._next_last_interval(interval) == interval:
            return False
        windows = {WindowStart(start) for block in blocks for start in np.unique(block.window).tolist()}
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
        commit = Commit(*self._claim(), outputs=outputs, puts=puts, drops=drops)
        oldest = self._calendar.oldest_open(Interval(interval + 1))
        if oldest > self._calendar.oldest_open(Interval(closed_before + 1)):
            for table in (_USERS, NUMBERS, KEYS):
                commit.drop(table, table + ordered(oldest))
        return commit

    def _meta(self, position: Offset) -> dict[str, Any]:
        shared = super()._meta(position)
        numbers = {} if self._numbers is None else {"numbers": self._numbers.next}
        received = shared.pop("received")
        return {
            "format": self._caps.version,
            "received": received,
            "written": self._written.to_meta(),
            **shared,
            **numbers,
        }

    # ---- the pass over one interval --------------------------------------------------------------------------------------

    def _bound(self, interval: Interval, blocks: list[ByUserBlock]) -> tuple[list[tuple[bytes, bytes]], list[Output]]:
        """(what to store, outputs): the records of the interval within the caps, added up per key."""
        records = _Records.of(blocks)
        starts = [WindowStart(start) for start in records.windows.tolist()]
        windows = [self._calendar.window_at(start) for start in starts]
        state_keys = records.named([_USERS + ordered(window) for window in windows])
        hashes, code = self._coded(windows, records)
        state, old_hashes = self._caps.unpack(self._store.get(state_keys), hashes)
        triggers = np.array([self._calendar.trigger(window, interval) for window in windows], np.int32)
        public = None
        if self._bounding.lag is not None:
            by_window = np.stack([self._public(start, interval, records.keys) for start in starts])
            public = by_window[records.window, records.key]
        result = self._bounding.close(
            records.member.astype(np.int32), code, triggers[records.members % len(windows)], state, public
        )
        # A key that is new on a list changes it, also where nothing is kept of the key.
        after = result.state
        changed = np.flatnonzero((after.kept != state.kept) | (np.diff(after.indptr) != np.diff(state.indptr)))
        puts = self._caps.pack(state_keys, changed, after, np.concatenate([hashes, old_hashes]), len(hashes))
        if self._numbers is not None:
            puts += self._numbers.listed(hashes[code[result.listed]])
        kept = int(result.kept.sum())
        self.counters["taken"] += len(records.member)
        self.counters["kept"] += kept
        self.counters["capped"] += len(records.member) - kept

        # A record may put weight on its key's selection and not be kept.
        weighty = result.weight > 0
        rows = np.flatnonzero(result.kept | weighty)
        if not len(rows):
            return puts, []
        rows = rows[np.argsort(records.cell[rows], kind="stable")]
        cells, begins = np.unique(records.cell[rows], return_index=True)
        indptr, keeps = np.append(begins, len(rows)), result.kept[rows]
        kept_starts = offsets(keeps.astype(np.int64))[begins]
        gathered = Kept(rows=rows[keeps], starts=kept_starts, first=result.first, values=records.values)
        block = BoundedBlock(
            partition=self.partition,
            interval=interval,
            window=records.windows[cells // len(records.keys)],
            keys=[records.keys[i] for i in (cells % len(records.keys)).tolist()],
            users=segment_sums(weighty[rows].astype(np.int64), indptr),
            weight=segment_sums(result.weight[rows], indptr),
            sums=self._columns.aggregate(gathered),
        )
        return puts, self._outputs(block)

    def _coded(
        self, windows: list[WindowIndex], records: "_Records"
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """(what state holds for the keys, ascending; int32[n] each record's place in it)."""
        keys = records.keys
        if self._numbers is None:
            digests = b"".join([blake2b(name, digest_size=8, key=self._hash_key).digest() for name in keys])
            found, code_of = np.unique(np.frombuffer(digests, "<u8"), return_inverse=True)
            return found, code_of.astype(np.int32)[records.key]
        cells, cell = np.unique(records.cell, return_inverse=True)
        of_window = [windows[i] for i in (cells // len(keys)).tolist()]
        found, code_of = np.unique(
            self._numbers.of(of_window, [keys[i] for i in (cells % len(keys)).tolist()]), return_inverse=True
        )
        return found, code_of.astype(np.int32)[cell]

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
        sums = measure(rows_of(self._store, _USERS + ordered(window), puts), self._caps, lists, numbers, unit)
        return self._outputs(block_of(self.partition, interval, start, keys, sums, len(self._columns.measured)))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    """The records of one interval in the order of the caps: by member, which is a user in a window, source and raw offset.

    windows: int64[W], their starts. members: int64[U], number of the user * W + number of the window, ascending.
    member, window, key: int64[n], places in `members`, `windows` and `keys`. values: int64[n, fields].
    """

    windows: Int64s
    users: list[bytes]
    keys: list[bytes]
    members: Int64s
    member: Int64s
    window: Int64s
    key: Int64s
    values: Int64s

    @classmethod
    def of(cls, blocks: list[ByUserBlock]) -> Self:
        """The records of blocks in log order."""
        # The log has the blocks of one source in the order of their offsets.
        blocks = sorted(blocks, key=lambda block: block.source)
        user, users = _joined([block.user for block in blocks], [block.users for block in blocks])
        key, keys = _joined([block.key for block in blocks], [block.keys for block in blocks])
        values = np.concatenate([block.values for block in blocks])
        windows, window = np.unique(np.concatenate([block.window for block in blocks]), return_inverse=True)
        if len(windows) == 1:
            members, member = np.arange(len(users), dtype=np.int64), user.astype(np.int64)
        else:
            members, member = np.unique(user.astype(np.int64) * len(windows) + window, return_inverse=True)
        order = np.argsort(member, kind="stable")
        return cls(
            windows=windows,
            users=users,
            keys=keys,
            members=members,
            member=member[order],
            window=window[order].astype(np.int64),
            key=key[order].astype(np.int64),
            values=values[order],
        )

    @property
    def cell(self) -> Int64s:
        """int64[n]: number of the window * number of keys + number of the key."""
        return self.window * len(self.keys) + self.key

    def named(self, prefixes: list[bytes]) -> list[bytes]:
        """The state key of each member. prefixes: of each window."""
        number = len(prefixes)
        return [prefixes[member % number] + self.users[member // number] for member in self.members.tolist()]


def _joined(codes: list[npt.NDArray[np.int32]], items: list[list[bytes]]) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Codes of several blocks, each into its own list, as codes into one list of distinct items."""
    if len(codes) == 1:
        return codes[0], items[0]
    # Everything per item is done by the interpreter's C loops: there may be as many users as records.
    distinct = list(dict.fromkeys(chain.from_iterable(items)))
    number = dict(zip(distinct, range(len(distinct)), strict=True))
    parts = []
    for block_codes, block_items in zip(codes, items, strict=True):
        renumbered = np.array(list(map(number.__getitem__, block_items)), np.int32)
        parts.append(renumbered[block_codes])
    return np.concatenate(parts), distinct
