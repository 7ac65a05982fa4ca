"""Randomness of exactly private reports: 64-bit words of the operating system, and probabilities over 2**64.

A report is drawn once, on the device, and never again, so its noise has no address. Every randomiser takes its words from
a `Words` function, so that tests can repeat them; the default is `secure_words`. Nothing is buffered between calls: a
forked process must not repeat its parent's words.

Probabilities are integers over 2**64, rounded so that the ratio bound e**epsilon holds exactly. A probability in a double
can exceed its bound in the last place; an integer that is compared with a 64-bit word cannot.
"""

import math
import os
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError

WORD = 1 << 64
MAXIMUM_EPSILON = 16.0
MINIMUM_EPSILON = 2.0**-10
_CONTEXT = Context(prec=60, rounding=ROUND_FLOOR)
Words = Callable[[int], npt.NDArray[np.uint64]]
"""`words(n)` returns n independent uniform uint64."""


def check_epsilon(epsilon: float) -> float:
    """`epsilon` if it is a usable per-report budget, else ConfigurationError."""
    if not (math.isfinite(epsilon) and MINIMUM_EPSILON <= epsilon <= MAXIMUM_EPSILON):
        raise ConfigurationError(
            f"epsilon={epsilon!r} is outside [{MINIMUM_EPSILON}, {MAXIMUM_EPSILON}]: "
            "set the per-report epsilon of local privacy to a number in that range"
        )
    return float(epsilon)


def exp_below(epsilon: float) -> Fraction:
    """A rational number at most e**epsilon, and within 1e-50 of it relatively."""
    value = _CONTEXT.exp(Decimal(epsilon))  # correctly rounded to 60 digits: half a unit in the last place away
    return Fraction(value) * (1 - Fraction(1, 10**55))


def secure_words(count: int) -> npt.NDArray[np.uint64]:
    """`count` uniform 64-bit words from `os.urandom`: uint64[count]."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def uniform_below(bound: int, words: Words, drawn: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Exactly uniform integers in [0, bound), one for each drawn word; a word that would bias the remainder is redrawn.

    `bound` is below 2**63. With bound <= 2**32 a word is rejected with probability below 2**-32, for every input.
    """
    remainder = WORD % bound
    if remainder:
        limit = np.uint64(WORD - remainder)
        again = np.flatnonzero(drawn >= limit)
        if again.size:
            drawn = drawn.copy()
            while again.size:
                drawn[again] = words(again.size)
                again = again[drawn[again] >= limit]
    return (drawn % np.uint64(bound)).astype(np.int64)


def uniform_below_one(bound: int, draw: Callable[[], int]) -> int:
    """One exactly uniform integer in [0, bound) from 64-bit integers `draw()`; the scalar twin of `uniform_below`."""
    limit = WORD - WORD % bound
    word = draw()
    while word >= limit:
        word = draw()
    return word % bound


def secure_word() -> int:
    """One uniform 64-bit integer from `os.urandom`, as a Python int."""
    return int.from_bytes(os.urandom(8), "little")
