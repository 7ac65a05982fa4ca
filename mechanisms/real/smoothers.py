"""The five smoothers of ToPS section 4.4: what is published of a value before its leaf is complete.

Inside a leaf of g values every value is published as u / g, where u guesses the leaf's sum from the leaves released
before it, and the leaf's last value is published as node - (u / g)(g - 1), so that the leaf adds up to the released
node exactly. The first guess is g * theta / 2.  Algorithm 1 prints the correction as u (16^s - 1), a slip of units.
Everything here is post-processing of released numbers.
"""

from enum import StrEnum

import numpy as np
from susurrus.mechanisms.real.addresses import Floats, Ints


class Smoother(StrEnum):
    """How the next leaf is guessed."""

    RECENT = "recent"
    MEAN = "mean"
    MEDIAN = "median"
    MOVING_AVERAGE = "moving-average"
    EXPONENTIAL = "exponential"


def guesses(
    smoother: Smoother, released: Ints | Floats, first: float, *, window: int = 8, weight: float = 0.6
) -> Floats:
    """Return float64[n + 1]: the guess for each leaf and for the one after the last, from released leaf sums [n].

    guess[0] = first; guess[i] uses released[:i] only.  ``window`` leaves enter the moving average; ``weight`` is the
    exponential smoother's weight of the newest leaf (0.6 in the authors' program).
    """
    n = len(released)
    result = np.empty(n + 1)
    result[0] = first
    values = np.asarray(released, dtype=np.float64)
    if not n:
        return result
    if smoother is Smoother.RECENT:
        result[1:] = values
    elif smoother is Smoother.MEAN:
        result[1:] = np.cumsum(values) / np.arange(1, n + 1)
    elif smoother is Smoother.MOVING_AVERAGE:
        sums = np.concatenate(([0.0], np.cumsum(values)))
        ends = np.arange(1, n + 1)
        starts = np.maximum(0, ends - window)
        result[1:] = (sums[ends] - sums[starts]) / (ends - starts)
    elif smoother is Smoother.EXPONENTIAL:
        guess = values[0]
        for i, value in enumerate(values):
            guess = value if i == 0 else (1 - weight) * guess + weight * value
            result[i + 1] = guess
    else:
        result[1:] = _running_medians(values)
    return result


def _running_medians(values: Floats) -> Floats:
    """Return the median of each prefix, by insertion into one sorted buffer."""
    ordered = np.empty(len(values))
    result = np.empty(len(values))
    for i, value in enumerate(values):
        place = int(np.searchsorted(ordered[:i], value))
        ordered[place + 1 : i + 1] = ordered[place:i].copy()
        ordered[place] = value
        result[i] = (ordered[i // 2] + ordered[(i + 1) // 2]) / 2 if i % 2 else ordered[i // 2]
    return result


def published_values(released: Ints | Floats, guess: Floats, leaf: int) -> Floats:
    """Return float64[n * leaf]: what is published of every value of n complete leaves."""
    n = len(released)
    inside = np.asarray(guess[:n], dtype=np.float64) / leaf
    result = np.repeat(inside[:, None], leaf, axis=1)
    result[:, -1] = np.asarray(released, dtype=np.float64) - inside * (leaf - 1)
    return result.reshape(-1)
