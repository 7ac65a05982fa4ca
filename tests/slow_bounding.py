"""What one user's records cost, and what keys get of the users' lists, for the slow reference: one record, one key at a time."""

from collections import defaultdict

import numpy as np

from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.histogram.value_ledger import ValueLedger


class Purse:
    """What one user's kept records cost in a window, one record after the other. ledger: of the strategy, or None."""

    def __init__(self, ledger: ValueLedger | None) -> None:
        self.ledger, self.spent = ledger, 0
        self._roots: dict[bytes, int] = defaultdict(int)

    def pays(self, key: bytes, trigger: int) -> bool:
        """Whether a record fits. If so, it is paid."""
        assert self.ledger is not None
        root, before = int(self.ledger.roots[trigger - 1]), self._roots[key]
        cost = self.ledger.measured * ((before + root) ** 2 - before**2)
        cost += 0 if before else self.ledger.counting * root**2
        if self.spent + cost > self.ledger.limit:
            return False
        self.spent += cost
        self._roots[key] += root
        return True


def list_sums(keys: list[bytes], lists: dict[bytes, list[int]], unit: dict[bytes, int]) -> ListSums:
    """The columns of some keys."""
    users, weight, public_weight = np.array([lists.get(key, [0, 0, 0]) for key in keys], np.int64).T
    return ListSums(
        users=users, weight=weight, public_weight=public_weight, unit=np.array([unit[key] for key in keys], np.int64)
    )
