"""The five smoothers of ToPS section 4.4: what is published of a value before its leaf is complete.

Inside a leaf of g values every value is published as u / g, where u guesses the leaf's sum from the leaves released
before it, and the leaf's last value is published as node - (u / g)(g - 1), so that the leaf adds up to the released
node exactly.  The first guess is g * theta / 2.  Algorithm 1 prints the correction as u (16^s - 1), a slip of units.
Everything here is post-processing of released numbers.
"""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from susurrus.mechanisms.stream.addresses import Floats, Ints


class Smoother(StrEnum):
    """How the next leaf is guessed."""

    RECENT = "recent"
    MEAN = "mean"
    MEDIAN = "median"
    MOVING_AVERAGE = "moving-average"
    EXPONENTIAL = "exponential"


@dataclass
class Guesser:
    """Guesses of one stream, leaf by leaf.

    ``memory``: how many released leaves the moving average uses and the median remembers; recent, mean and exponential
    need none.  ``weight``: the exponential smoother's weight of the newest leaf (0.6 in the authors' program).
    """

    smoother: Smoother
    guess: float
    memory: int = 8
    weight: float = 0.6
    count: int = 0
    total: float = 0.0
    history: list[float] = field(default_factory=list)

    def extend(self, released: Ints | Floats) -> Floats:
        """Take in released leaf sums [n]; return float64[n + 1].

        The guess held before each, and the one after the last.
        """
        guesses = np.empty(len(released) + 1)
        guesses[0] = self.guess
        for i, leaf in enumerate(np.asarray(released, dtype=np.float64).tolist()):
            self.count += 1
            self.total += leaf
            if self.smoother is Smoother.RECENT:
                self.guess = leaf
            elif self.smoother is Smoother.MEAN:
                self.guess = self.total / self.count
            elif self.smoother is Smoother.EXPONENTIAL:
                self.guess = leaf if self.count == 1 else (1 - self.weight) * self.guess + self.weight * leaf
            else:
                self.history = [*self.history, leaf][-self.memory :]
                average = np.mean if self.smoother is Smoother.MOVING_AVERAGE else np.median
                self.guess = float(average(self.history))
            guesses[i + 1] = self.guess
        return guesses


def published_values(released: Ints | Floats, guess: Floats, leaf: int) -> Floats:
    """Return float64[n * leaf]: what is published of every value of n complete leaves."""
    n = len(released)
    inside = np.asarray(guess[:n], dtype=np.float64) / leaf
    result = np.repeat(inside[:, None], leaf, axis=1)
    result[:, -1] = np.asarray(released, dtype=np.float64) - inside * (leaf - 1)
    return result.reshape(-1)


def guess_weights(smoother: Smoother, index: int, leaves: int, *, memory: int = 8, weight: float = 0.6) -> Floats:
    """Return float64[leaves]: weights of the released leaves in the guess for leaf ``index``; the median counts as a
    mean.

    For standard errors: the guess is a weighted sum of released leaves, all zero for the first leaf.
    """
    result = np.zeros(leaves)
    if index == 0:
        return result
    if smoother is Smoother.RECENT:
        result[index - 1] = 1.0
    elif smoother is Smoother.EXPONENTIAL:
        age = np.arange(index - 1, -1, -1)
        result[:index] = weight * (1 - weight) ** age
        result[0] = (1 - weight) ** (index - 1)
    else:
        start = 0 if smoother is Smoother.MEAN else max(0, index - memory)
        result[start:index] = 1 / (index - start)
    return result
