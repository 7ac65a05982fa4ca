"""Which records route need not pass on: those that bound would drop with any history, at every level.

Argument: docs/guarantees/bounding.md, "Dropping records early", and docs/guarantees/grouping-sets.md.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from susurrus.agents.histogram.key_hashes import KeyHashes
from susurrus.agents.histogram.level_keys import LevelKeys
from susurrus.mechanisms.arrays import Bools, Int32s, Int64s
from susurrus.mechanisms.histogram.record_order import Hashes, RecordOrder, in_order
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics.wire.partitioner import placements


class EarlyDrop:
    """The caps of all levels. keys: of the levels; None where the key is the only grouping. secret: of the pipeline."""

    def __init__(self, levels: Sequence[Strategy[Any]], keys: LevelKeys | None, secret: bytes) -> None:
        self._levels, self._keys = levels, keys
        self._order, self._hashes = RecordOrder(secret), KeyHashes(secret)
        self.least = max(level.bounding.max_records for level in levels)
        """Of users with so many records or fewer none is dropped."""

    def arriving(
        self, user: Int32s, user_hash: Hashes, window: Int64s, interval: Int64s, key: Int32s, keys: Sequence[bytes]
    ) -> Bools:
        """bool[n]: False for records that no level keeps, as `Bounding.arriving` has it.

        Columns of records in the order of the log; keys: raw keys, into which key leads. user_hash: as `RecordOrder` takes it.
        """
        same = np.lexsort((interval, window, user))
        begins = np.zeros(len(same), np.bool_)
        for column in (user, window, interval):
            begins[1:] |= column[same[1:]] != column[same[:-1]]
        member = np.empty(len(same), np.int32)
        member[same] = np.cumsum(begins, dtype=np.int32)
        used, place = np.unique(key, return_inverse=True)
        names = [keys[i] for i in used.tolist()]
        stays = np.zeros(len(user), np.bool_)
        by_level = [names] if self._keys is None else self._keys.of(names)
        for level, of_level in zip(self._levels, by_level, strict=True):
            # Where bound knows keys by their hashes, two keys with one hash must be one key here, too.
            known_by = self._hashes.of(of_level).tolist() if level.lists is None else of_level
            number = {name: at for at, name in enumerate(dict.fromkeys(known_by))}
            code = np.fromiter(map(number.__getitem__, known_by), np.int32, len(known_by))[place]
            priority = self._priorities(window, user_hash, placements(of_level)[place])
            order = in_order(member, priority)
            stays[order] |= level.bounding.arriving(member[order], code[order])
        return stays

    def _priorities(self, window: Int64s, user_hash: Hashes, key_hash: Hashes) -> Hashes:
        priority = np.empty(len(window), np.uint32)
        for one in np.unique(window).tolist():
            rows = np.flatnonzero(window == one)
            priority[rows] = self._order.priorities(one, user_hash[rows], key_hash[rows])
        return priority
