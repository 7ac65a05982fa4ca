"""The value ledger: what a user's kept records cost the measured values, as a cap that is dearer early than late.

    records of one trigger ──admit──▶ which of them fit into what is left of their users' ledgers

A record at trigger t moves only the rows from t on, so it costs cc_t = |C e_t|^2 / |C e_1|^2 <= 1 of what it costs at the first
trigger. A user's records are kept while they cost at most the capacity Cv together. So a user may keep more than Cv records if they
come late, at the noise that Cv records at the first trigger need. Argument: docs/guarantees/bounding.md.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.histogram.factorization import Factorization
from susurrus.mechanisms.sorting import group_starts

ROOT_BITS = 16
"""Roots of costs are multiples of 2^-16, or coarser where the capacity is large ..."""
_LIMIT_BITS = 42
"""... so that the capacity is at most 2^42 units, and the costs of as many records as below add up in 64 bits."""
_MOST_RECORDS = 1 << 20
"""The most records of one user that are considered in one interval."""

MOST_USERS = 2
"""With several records per key, the first one may pay so many times as much for the users as for all other columns, and no more:
the ledger skips a key's second record with its first one, which must not be dearer (`ValueLedger.admit`)."""


class ValueLedger:
    """Costs of records by trigger, and which records a user's ledger admits.

    A user's cost is the sum over its keys of measured * A^2 + counting * r^2: A is the sum of root_t over the kept records of the
    key, r is root_t of the first of them. root_t = ceil(sqrt(cc_t)) on a grid, so that everything is an integer, rounded against
    us.

    Privacy: with costs c per unit in every mechanism, the squared shift of all values together is at most c * limit, for any
    records in any order. A record that does not fit is skipped. What becomes of it follows from its own user's records alone.
    """

    def __init__(self, factorizations: Sequence[Factorization], *, capacity: int, measured: int, counting: int) -> None:
        """capacity: Cv, in records of the first trigger. measured: a, the weight of the columns to which every record adds.
        counting: b, that of the number of users, to which only the first record of a key adds; 0 if it is not measured.
        factorizations: of all of these, over the same triggers."""
        if measured + counting < 1 or min(measured, counting) < 0:
            raise ValueError(f"measured={measured}, counting={counting}: must be columns to measure")
        self.capacity = capacity
        self.measured, self.counting = measured, counting
        total = capacity * (measured + counting)
        self.bits = max(1, min(ROOT_BITS, (_LIMIT_BITS - math.ceil(math.log2(total))) // 2))
        self.roots = np.array([0] * factorizations[0].triggers, np.int64)
        for factorization in factorizations:
            squares = factorization.column_squares
            self.roots = np.maximum(self.roots, [_root(square / squares[0], self.bits) for square in squares])
        self.limit = total << (2 * self.bits)
        cheapest = int(self.roots.min()) ** 2 * (measured + counting)
        self.most_records = self.limit // cheapest
        """The most records that add to any value, and the most keys, of one user."""

    def price(self, spent: Int64s, added: Int64s | int, root: Int64s | int) -> Int64s:
        """int64[n]: what keys cost more for ``added`` kept records of one trigger. spent: A before. root: of the trigger."""
        later = spent + added * root
        first = np.where((spent == 0) & (np.asarray(added) > 0), self.counting * root * root, 0)
        cost: Int64s = self.measured * (later * later - spent * spent) + first
        return cost

    def admit(
        self,
        user: npt.NDArray[np.int32],
        root: Int64s,
        pair: Int64s,
        repeat: Int64s,
        spent: Int64s,
        charged: Int64s,
        candidate: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[np.bool_], Int64s]:
        """(bool[n] kept, int64[n] cost of the kept records, else 0) of the records of one interval.

        user: int32[n], not decreasing. root: int64[n], of the record's trigger, the same for all records of a user. pair: int64[n],
        its (user, key); repeat: int64[n], how many records of the pair precede it. spent: int64[pairs], A of earlier intervals.
        charged: int64[U], what the users' ledgers hold. candidate: bool[n], what other caps allow.
        """
        # As if all earlier records of the pair were kept: if one is not, this one is at least as dear, and is not kept either. The
        # second of a key costs 3 a and the first a + b, so b must be at most `MOST_USERS` a.
        before = spent[pair] + repeat * root
        cost = self.price(before, 1, root)
        # Nothing where users alone are counted, and the key has a kept record; whether it has is known at the end.
        free = candidate & (cost == 0)
        start = group_starts(user)
        left = (self.limit - charged)[user]
        alive = candidate & ~free & (cost <= left)
        alive &= running(alive, start) < _MOST_RECORDS
        # Skip what does not fit and go on: what comes after it at the same cost or more does not fit either. Users of whom all fits
        # are done, so that one user with many different costs holds up no others.
        rows = np.flatnonzero(alive)
        while True:
            owner, dear = user[rows], cost[rows]
            over = np.flatnonzero(running(dear, group_starts(owner)) + dear > left[rows])
            if not len(over):
                break
            users, at = np.unique(owner[over], return_index=True)
            mine = np.isin(owner, users)
            rows, owner, dear, place = rows[mine], owner[mine], dear[mine], np.cumsum(mine)[over[at]] - 1
            each = np.searchsorted(users, owner)
            fits = (np.arange(len(rows)) < place[each]) | (dear < dear[place][each])
            alive[rows[~fits]] = False
            rows = rows[fits]
        known = spent > 0
        known[pair[alive]] = True
        return alive | (free & known[pair]), np.where(alive, cost, 0)


def running(values: npt.NDArray[np.bool_] | Int64s, start: npt.NDArray[np.intp]) -> Int64s:
    """int64[n]: the sum over earlier rows of the same group; start[i] is the first row of row i's group."""
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    before: Int64s = total[:-1] - total[start]
    return before


def _root(cost: Fraction, bits: int) -> int:
    """ceil(2^bits sqrt(cost)), exactly."""
    scaled = cost * (1 << (2 * bits))
    root = math.isqrt(scaled.numerator // scaled.denominator)
    return root if root * root >= scaled else root + 1
