"""The lists of all users, measured once at the last trigger, for strategies with `Strategy.lists`.

    list of a user at T: its distinct keys, in order ──ListWeights──▶ per key: users, weight, public weight
    (bound)                                                           (release: one noisy number per key and measure)

`bound` adds up what the lists weigh, `release` hands the sums to `Strategy.step` as `Increments.lists`.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.per_key import PerKey

UNKNOWN_NORM = 1
"""Squared norm of one user's weights on keys that are not public: a user with one such key counts in full."""
PUBLIC_NORM = 6.0
"""The same for the public ones."""
KNEE = 60
"""A public key with an estimate n up to this weighs 1, others (KNEE / n)^(1/3), so that popular keys leave room for rare ones."""
WEIGHT_CONSTANTS = (UNKNOWN_NORM, PUBLIC_NORM, KNEE, "-1/3")
"""Everything above, for the digest of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSums(PerKey):
    """What the users' lists add to each key at the last trigger, aligned with the keys of a step.

    users          int64[k]  users with weight on the key, where it was not public
    weight         int64[k]  the sum of their weights, in units of 2^-20
    public_weight  int64[k]  the sum of all users' weights, where it was public
    unit           int64[k]  0 where the key was not public; else a short list's weight on it
    """

    users: npt.NDArray[np.int64]
    weight: npt.NDArray[np.int64]
    public_weight: npt.NDArray[np.int64]
    unit: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sums: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]) -> Self:
        """sums: int64[k, 3], as `ListWeights.add_up` orders them."""
        return cls(users=sums[:, 0], weight=sums[:, 1], public_weight=sums[:, 2], unit=unit)


class ListWeights:
    """What the keys of one user's list weigh in the closing measurement; a pure function of list and public units.

    Privacy: one user's weights have a squared norm of at most `unknown_square` on keys that are not public, and of at most
    `public_square` on the others (both in units of 2^-40), for every list and every set of public keys. Of the keys that are
    not public, at most `keys` get positive weight.
    """

    def __init__(self, *, keys: int, max_keys: int, column: int = 0) -> None:
        """keys: of those not public, how many count. max_keys: the longest list.

        column: of a step's estimates, one that counts users.
        """
        self.keys = min(keys, max_keys)
        self.column = column
        counts = range(1, self.keys + 1)
        # floor(2^20 / sqrt(k)), in integers.
        self._unknown = np.array([0, *(math.isqrt((UNKNOWN_NORM << 40) // k) for k in counts)], np.int64)
        self.unknown_square = max(k * int(self._unknown[k]) ** 2 for k in counts)
        if self.unknown_square > UNKNOWN_NORM << 40 or int(self._unknown.max()) > WEIGHT_ONE:
            raise AssertionError("closing weights exceed the sensitivity they were made for")
        self.public_square = math.floor(min(PUBLIC_NORM, max_keys) * WEIGHT_ONE**2)

    def row_units(self, estimates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[n], in units of 2^-20: what one user's record weighs on keys with these published rows.

        estimates: int64[n, columns], of a step.
        """
        return public_units(estimates[:, self.column])

    def unknown_weight(self, keys: int) -> float:
        """The weight of each of a user's `keys` keys that are not public, in users."""
        return float(self._unknown[keys]) / WEIGHT_ONE

    def weigh(
        self, indptr: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(weight on keys not public, weight on public keys), int64[n] each, in units of 2^-20.

        indptr: int64[U + 1], the users' lists; unit: int64[n], of the list's keys in the order of the list: 0 where the key is
        not public, else what a user whose list is short puts on it (`public_units`), at most 2^20.
        """
        users = len(indptr) - 1
        owner = np.repeat(np.arange(users), np.diff(indptr))
        unknown = unit == 0
        before = np.concatenate(([0], np.cumsum(unknown)))
        counted = unknown & (before[:-1] - before[indptr[owner]] < self.keys)
        number = np.minimum(before[indptr[1:]] - before[indptr[:-1]], self.keys)
        weight = np.where(counted, self._unknown[number[owner]], 0)
        # The running sum may wrap around; a list's own, 2^40 at most per key, does not.
        square = np.concatenate(([0], np.cumsum(unit * unit)))
        total = square[indptr[1:]] - square[indptr[:-1]]
        scale = np.ones(users)
        long = total > self.public_square
        scale[long] = np.sqrt(self.public_square / total[long]) * (1 - 1e-12)
        public = np.where(long[owner], np.floor(unit * scale[owner]), unit).astype(np.int64)
        squares = np.concatenate(([0], np.cumsum(public * public)))
        if np.any(squares[indptr[1:]] - squares[indptr[:-1]] > self.public_square):
            raise AssertionError("closing weights exceed the sensitivity they were made for")
        return weight, public

    def add_up(
        self, indptr: npt.NDArray[np.int64], key: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """int64[keys, 3]: users with weight on each key where it is not public, their weight, and all users' where it is.

        indptr: int64[U + 1]; key: int64[n], the lists' keys; unit: int64[keys], of every key.
        """
        weight, public = self.weigh(indptr, unit[key])
        # Sums of integers below 2^53 are exact in bincount's float64.
        columns = [np.bincount(key, weights=values, minlength=len(unit)) for values in (weight > 0, weight, public)]
        return np.stack(columns, axis=1).astype(np.int64)


def public_units(estimates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[k] in 1..2^20: what one user's record weighs on a public key, from the key's published estimate.

    Exactly floor(2^20 (KNEE / n)^(1/3)) for n > KNEE, everywhere: how a processor rounds cube roots must not show in a replay.
    """
    # floor(2^60 KNEE / n) without leaving int64, for which n may not either: units are its integer cube roots.
    n = np.clip(estimates, KNEE, 1 << 55)
    whole, rest = np.divmod(np.int64(1 << 60), n)
    cubes = whole * KNEE + rest * KNEE // n
    unit = np.rint(np.cbrt(cubes.astype(np.float64))).astype(np.int64)
    unit -= unit**3 > cubes
    unit += (unit + 1) ** 3 <= cubes
    return np.maximum(unit, 1)
