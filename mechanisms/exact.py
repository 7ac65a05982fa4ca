"""Exact random choices from uniform integers: no floating point between the source of randomness and the outcome.

Source: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", algorithms 1 and 2. Every probability is
a rational number or exp of one, and is met exactly. Used where a mechanism draws once; the noise of a pipeline is noise.py's.
"""

from collections.abc import Callable
from fractions import Fraction

Below = Callable[[int], int]
"""Below(n): a uniform integer in 0..n-1, independent of all others; `secrets.randbelow` outside tests."""

_ONE = Fraction(1)


def bernoulli(probability: Fraction, below: Below) -> bool:
    """True with this probability, in 0..1."""
    return below(probability.denominator) < probability.numerator


def bernoulli_exp(gamma: Fraction, below: Below) -> bool:
    """True with probability exp(-gamma), gamma >= 0."""
    if gamma < 0:
        raise ValueError(f"gamma={gamma}: must not be negative")
    while gamma > 1:  # ends after 1.6 rounds on average, however large gamma is
        if not _bernoulli_exp_below_one(_ONE, below):
            return False
        gamma -= 1
    return _bernoulli_exp_below_one(gamma, below)


def _bernoulli_exp_below_one(gamma: Fraction, below: Below) -> bool:
    # P(k >= n) = gamma^(n-1) / (n-1)!, so P(k is odd) = sum of (-gamma)^j / j!.
    k = 1
    while bernoulli(gamma / k, below):
        k += 1
    return k % 2 == 1


def discrete_laplace(epsilon: Fraction, below: Below) -> int:
    """The integer z with probability proportional to exp(-epsilon |z|), in 1 / epsilon steps on average. epsilon > 0."""
    if epsilon <= 0:
        raise ValueError(f"epsilon={epsilon}: must be positive")
    while True:
        magnitude = 0
        while bernoulli_exp(epsilon, below):
            magnitude += 1
        negative = bool(below(2))
        if magnitude or not negative:  # else zero would have two signs
            return -magnitude if negative else magnitude
