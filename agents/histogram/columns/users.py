"""``kind = "users"``: distinct users."""

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, Kept
from susurrus.mechanisms.arrays import Int64s


class Users(ColumnKind):
    """Distinct users."""

    kind = "users"
    meaning = "distinct users"
    measures = "users"

    def aggregate(self, kept: Kept, values: Int64s | None) -> Int64s:
        """A user counts with its first kept record of the key."""
        return kept.total(kept.first.astype(np.int64))
