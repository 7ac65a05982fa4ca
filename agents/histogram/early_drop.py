"""Which records route need not pass on: those that bound would drop with any history, at every level.

Argument: docs/guarantees/bounding.md, "Dropping records early", and docs/guarantees/grouping-sets.md.
"""

from collections.abc import Sequence

import numpy as np

from susurrus.agents.histogram.level_keys import LevelKeys
from susurrus.mechanisms.arrays import Bools, Int32s
from susurrus.mechanisms.histogram.bounding import Bounding


class EarlyDrop:
    """The caps of all levels. keys: of the levels; None where the key is the only grouping."""

    def __init__(self, caps: Sequence[Bounding], keys: LevelKeys | None) -> None:
        self._caps, self._keys = caps, keys
        self.least = max(bounding.max_records for bounding in caps)
        """Of users with so many records or fewer none is dropped."""

    def arriving(self, user: Int32s, key: Int32s, keys: Sequence[bytes]) -> Bools:
        """bool[n]: False for records that no level keeps, as `Bounding.arriving` has it. keys: raw keys, into which key leads."""
        if self._keys is None:
            return self._caps[0].arriving(user, key)
        used, place = np.unique(key, return_inverse=True)
        stays = np.zeros(len(user), np.bool_)
        for bounding, names in zip(self._caps, self._keys.of([keys[i] for i in used.tolist()]), strict=True):
            number = {name: at for at, name in enumerate(dict.fromkeys(names))}
            codes = np.fromiter(map(number.__getitem__, names), np.int32, len(names))
            stays |= bounding.arriving(user, codes[place])
        return stays
