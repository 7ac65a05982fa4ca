r"""A quantile over users from a public list of candidates, by the exponential mechanism, in exact arithmetic.

.. math:: G(c) = \sum_u L_u(c) - q \sum_u t_u,\qquad
          s(c) = \max(0,\ -G(c),\ G(c^-)),\qquad
          P(c) \propto e^{-\epsilon s(c) / 2}

L_u(c): the part of user u's mass on values up to c. t_u <= 1: all of it. c^-: the candidate before c (L = 0 for none). The last
candidate is "more", which holds everything. So s is 0 at the smallest candidate that holds at least q of all mass, and elsewhere
the number of users by which a candidate misses that. A user's mass is split evenly over what it brings, so that no user weighs
more than one.

Argument and neighbour relation: docs/guarantees/quantile.md. Used by agents/planning/tune.py, outside the pipeline.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np

from susurrus.mechanisms.accounting import mu_of_bounded_range
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.exact import Below, bernoulli_exp

MASS: Final = 1 << 32
"""The mass of one user, in integer units."""
MAX_USERS: Final = 1 << 31
"""So that the mass of all users fits 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuantile:
    """candidates: increasing integers, public; "more" is one besides. quantile: q, in (0, 1). epsilon: of one choice.

    Privacy: epsilon-differential privacy, and mu-GDP with ``mu``; neighbours differ in the records of one user, in any way: added,
    removed or replaced, all of them or some. Raises ConfigurationError, naming the field.
    """

    candidates: tuple[int, ...]
    quantile: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        if not self.candidates or list(self.candidates) != sorted(set(self.candidates)):
            raise ConfigurationError(f"candidates={self.candidates}: must increase; give at least one")
        if not 0 < self.quantile < 1:
            raise ConfigurationError(f"quantile={float(self.quantile):g}: must lie between 0 and 1, for example 0.95")
        if self.epsilon <= 0:
            raise ConfigurationError(f"epsilon={float(self.epsilon):g}: must be positive")

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy: log probabilities of all candidates change within a range of epsilon."""
        return mu_of_bounded_range(float(self.epsilon))

    def masses(self, user: Int64s, value: Int64s) -> tuple[Int64s, int]:
        """(int64[m] the mass on values up to each candidate, the mass of all values), in units of 1 / MASS.

        user: int64[n], codes from 0. value: int64[n]. A user with k values has floor(MASS / k) on each.
        """
        each = np.bincount(user)
        if len(each) > MAX_USERS:
            raise ConfigurationError(f"users={len(each)}: more than 2^31 do not fit 64 bits; take a part of the users")
        mass = MASS // each[user]
        found = np.zeros(len(self.candidates) + 1, np.int64)
        np.add.at(found, np.searchsorted(np.array(self.candidates, np.int64), value), mass)
        up_to = np.cumsum(found)
        return up_to[:-1], int(up_to[-1])

    def scores(self, user: Int64s, value: Int64s) -> list[Fraction]:
        """s(c) of each candidate and of "more", in users, exactly. Arguments as in `masses`."""
        up_to, total = self.masses(user, value)
        held = (0, *up_to.tolist(), total)
        balance = [Fraction(mass, MASS) - self.quantile * Fraction(total, MASS) for mass in held]
        return [max(Fraction(0), -here, before) for before, here in pairwise(balance)]

    def choose(self, user: Int64s, value: Int64s, below: Below) -> int | None:
        """A candidate, with probability proportional to exp(-epsilon s / 2) exactly; None is "more". Arguments as in `masses`.

        By rejection: a uniform candidate is taken with probability exp(-epsilon (s - min s) / 2), else another is drawn.
        """
        scores = self.scores(user, value)
        least = min(scores)
        while True:
            index = below(len(scores))
            if bernoulli_exp(self.epsilon * (scores[index] - least) / 2, below):
                return self._candidate(index)

    def without_noise(self, user: Int64s, value: Int64s) -> int | None:
        """The first candidate with the least score; not private."""
        scores = self.scores(user, value)
        return self._candidate(scores.index(min(scores)))

    def _candidate(self, index: int) -> int | None:
        return self.candidates[index] if index < len(self.candidates) else None

    def misses(self, beta: float = 0.05) -> float:
        """The number of users by which `choose` misses the quantile at most, except with probability ``beta``.

        P(s >= t) <= m exp(-epsilon t / 2) for m + 1 candidates with "more", one of which has s = 0.
        """
        return 2 / float(self.epsilon) * math.log(len(self.candidates) / beta)


def round_numbers(low: float, high: float) -> list[Fraction]:
    """The numbers 1, 1.5, 2, 3, 5, 7 times powers of ten in [low, high], increasing, exactly."""
    found = []
    for power in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1):
        for digits in ("1", "1.5", "2", "3", "5", "7"):
            number = Fraction(digits) * Fraction(10) ** power
            if low <= number <= high:
                found.append(number)
    return found
