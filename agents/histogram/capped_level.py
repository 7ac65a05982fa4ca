"""One grouping in bound: its users' caps, its keys' codes, and what a window's records of an interval add to its keys.

    records of (window, interval), with the level's keys ──close──▶ a block of increments, and what to store
    last trigger: all users' lists of the window ──measure──▶ a block of list sums

A pipeline without grouping sets has one level, whose place in the store is the stage's own. Otherwise each level has a part of the
store (`StorePart`), so levels know nothing of each other.

State keys: those of user_state.py and user_lists.py, behind the level's prefix.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from susurrus.agents.histogram.columns import Kept
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.key_hashes import KeyHashes
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.user_caps import CapsLayout
from susurrus.agents.histogram.user_lists import KEYS, NUMBERS, KeyNumbers, block_of, keys_of, measure
from susurrus.agents.histogram.user_state import BEFORE, CHANGES, GATHERED, Users, UserState
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.store_part import ReadStore, StorePart
from susurrus.mechanisms.arrays import Bools, Int32s, Int64s
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.mechanisms.histogram.levels import FIRST_LETTER
from susurrus.mechanisms.histogram.per_key import offsets, segment_sums
from susurrus.mechanisms.histogram.record_order import RecordOrder
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.mechanisms.histogram.user_table import Closed
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.wire.partitioner import placements

_LEVEL = b"l"

Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What a window's records of one interval do at a level. kept: bool[n], by record. puts: what to store."""

    block: BoundedBlock
    kept: Bools
    puts: list[Pair]


class CappedLevel:
    """The users and keys of one level of one by-user partition."""

    def __init__(
        self,
        number: int,
        services: HistogramServices,
        store: Store,
        meta: dict[str, Any],
        hashes: KeyHashes,
        *,
        grouped: bool,
    ) -> None:
        """number: of the level. meta: of the last commit, what `to_meta` gave. hashes: codes of keys, for a level that measures no
        lists. grouped: whether there are grouping sets."""
        # What is the same in all windows; users ask for that of their window.
        strategy = services.strategy.by_level[number]
        self.lag, self.lists = strategy.lag, strategy.lists
        self._prefix = _LEVEL + bytes([FIRST_LETTER + number]) if grouped else b""
        self._store: ReadStore = StorePart(store, self._prefix) if grouped else store
        self._columns, self._hashes = services.settings.layout, hashes
        self._order = RecordOrder(services.secret)
        self._caps = CapsLayout(strategy.bounding)
        self._numbers = None if self.lists is None else KeyNumbers(self._store, int(meta["numbers"]))
        self._users = UserState(
            self._store,
            lambda window: services.strategy_of(window).by_level[number].bounding,
            self._caps,
            meta,
        )

    @staticmethod
    def first_meta(strategy: Strategy[Any]) -> dict[str, Any]:
        """What a new partition begins with."""
        return {"format": CapsLayout(strategy.bounding).version, "numbers": 0}

    @staticmethod
    def reads(strategy: Strategy[Any], meta: dict[str, Any]) -> bool:
        """Whether state of this format can be read."""
        caps = CapsLayout(strategy.bounding)
        return meta.get("format") in (caps.version, caps.before)

    def to_meta(self) -> dict[str, Any]:
        """What the next owner must know to read the state."""
        numbers = {} if self._numbers is None else {"numbers": self._numbers.next}
        return {"format": self._caps.version, **self._users.to_meta(), **numbers}

    # ---- an interval -------------------------------------------------------------------------------------------------

    def close(
        self,
        partition: int,
        window: tuple[WindowIndex, WindowStart],
        interval: Interval,
        records: tuple[Sequence[Users], Int32s, Int64s],
        keys: list[bytes],
        trigger: int,
        public: Bools | None,
    ) -> Added:
        """Apply the level's caps to a window's records of an interval.

        records: users by block, int32[n] places in the level's keys, and int64[n, fields] values.
        public: bool[keys], where the strategy has a lag.
        """
        users, key, values = records
        entered = self._users.enter(window[0], users)
        # Neither codes nor numbers: what numbers keys have follows what other users bring.
        priority = self._order.priorities(window[0], entered.hashes, placements(keys)[key])
        codes = self._hashes.of(keys) if self._numbers is None else self._numbers.of(window[0], keys)
        closed, puts = self._users.close(window[0], interval, entered, key, codes, priority, trigger, public)
        if self._numbers is not None:
            puts += self._numbers.listed(closed.changes.key)
        return Added(
            block=self._added_up(partition, interval, window[1], keys, key, values, closed),
            kept=closed.kept,
            puts=puts,
        )

    def _added_up(
        self,
        partition: int,
        interval: Interval,
        start: WindowStart,
        keys: list[bytes],
        key: Int32s,
        values: Int64s,
        closed: Closed,
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
            partition=partition,
            interval=interval,
            window=np.full(len(cells), start, np.int64),
            keys=[keys[i] for i in cells.tolist()],
            users=segment_sums(weighty[rows].astype(np.int64), indptr),
            weight=segment_sums(closed.weight[rows], indptr),
            sums=self._columns.aggregate(gathered),
        )

    def stored(self, puts: list[Pair]) -> list[Pair]:
        """The same under the names that the stage's store has."""
        return [(self._prefix + name, value) for name, value in puts] if self._prefix else puts

    # ---- the end of a window -----------------------------------------------------------------------------------------

    def measure(
        self,
        partition: int,
        window: tuple[WindowIndex, WindowStart],
        interval: Interval,
        puts: list[Pair],
        units: Callable[[list[bytes]], Int64s],
    ) -> BoundedBlock:
        """What all users' lists of a window add. puts: what this very commit writes of the level. units: of public keys."""
        assert self.lists is not None
        numbers, keys = keys_of(self._store, window[0], dict(puts))
        sums = measure(self._users.lists(window[0]), self.lists, numbers, units(keys))
        return block_of(partition, interval, window[1], keys, sums, self._columns.width)

    def forget(self, before: WindowIndex, oldest: WindowIndex, commit: Commit) -> None:
        """Drop the windows from ``before`` on that are older than ``oldest``."""
        for table in (CHANGES, GATHERED, BEFORE, NUMBERS, KEYS):
            commit.drop(self._prefix + table + ordered(before), self._prefix + table + ordered(oldest))

    def drop_users(self, oldest: WindowIndex) -> None:
        """Forget in memory the users of windows before this one, and the numbers of their keys."""
        self._users.drop(oldest)
        if self._numbers is not None:
            self._numbers.forget(oldest)

    # ---- memory ------------------------------------------------------------------------------------------------------

    @property
    def outgrown(self) -> bool:
        """Whether the users take more than memory should hold."""
        return self._users.outgrown

    def gather(self) -> tuple[list[Pair], list[Pair]]:
        """As `UserState.gather`, under the names that the stage's store has."""
        puts, drops = self._users.gather()
        prefix = self._prefix
        return self.stored(puts), [(prefix + start, prefix + end) for start, end in drops] if prefix else drops
