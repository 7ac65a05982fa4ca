"""The five smoothers of ToPS section 4.4: a guess of a leaf's sum from the leaves released before it.

A range may end inside a leaf of g values.  The guess u then stands for the leaf's sum, and each value counts as u / g.
The first guess is g * theta / 2.  Everything here is post-processing of released numbers.
"""

from enum import StrEnum

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s

WEIGHT = 0.6
"""The exponential smoother's weight of the newest leaf, as in the authors' program."""
MEMORY = 8
"""Released leaves that the moving average uses."""


class Smoother(StrEnum):
    """How the next leaf is guessed."""

    RECENT = "recent"
    MEAN = "mean"
    MEDIAN = "median"
    MOVING_AVERAGE = "moving-average"
    EXPONENTIAL = "exponential"


def guesses(smoother: Smoother, first: float, released: Int64s | Floats, *, memory: int) -> Floats:
    """Return float64[n + 1]: the guess before each of n released leaf sums, and the one after the last.

    first: the first guess.  memory: how many released leaves the moving average and the median use.
    """
    result = np.empty(len(released) + 1)
    result[0] = guess = first
    leaves, total = np.asarray(released, dtype=np.float64).tolist(), 0.0
    for i, leaf in enumerate(leaves):
        total += leaf
        if smoother is Smoother.RECENT:
            guess = leaf
        elif smoother is Smoother.MEAN:
            guess = total / (i + 1)
        elif smoother is Smoother.EXPONENTIAL:
            guess = leaf if i == 0 else (1 - WEIGHT) * guess + WEIGHT * leaf
        else:
            average = np.mean if smoother is Smoother.MOVING_AVERAGE else np.median
            guess = float(average(leaves[max(0, i + 1 - memory) : i + 1]))
        result[i + 1] = guess
    return result


def guess_weights(smoother: Smoother, index: int, leaves: int) -> Floats:
    """Return float64[leaves]: weights of the released leaves in the guess for leaf ``index``, for standard errors.

    All zero for the first leaf.  The median counts as a mean.
    """
    result = np.zeros(leaves)
    if index == 0:
        return result
    if smoother is Smoother.RECENT:
        result[index - 1] = 1.0
    elif smoother is Smoother.EXPONENTIAL:
        age = np.arange(index - 1, -1, -1)
        result[:index] = WEIGHT * (1 - WEIGHT) ** age
        result[0] = (1 - WEIGHT) ** (index - 1)
    else:
        start = 0 if smoother is Smoother.MEAN else max(0, index - MEMORY)
        result[start:index] = 1 / (index - start)
    return result
