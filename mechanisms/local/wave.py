r"""Square Wave: the phase 1 report, from which the server estimates a distribution.

Source: [LWL+20] Li, Wang, Lopuhaä-Zwakenberg, Li, Škorić, "Estimating numerical distributions under local differential
privacy", SIGMOD 2020, section 5. Values near the true one are reported e^eps times as often as the others.

The input domain [0, bound] is public. On the "log" scale a value x is placed at log(1 + 1024 x / bound) / log(1025):
a fixed, public, monotone map before the randomiser. It costs no privacy, and it resolves a series whose values lie in the
lowest percent of its bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.randomness import Words, check_epsilon, secure_word, secure_words
from susurrus.mechanisms.local.window import GRID, WindowMechanism

Scale = Literal["linear", "log"]
LOG_STEPS = 1024.0


def half_width(epsilon: float) -> float:
    """b of [LWL+20] eq. 6: half the window's width where the input domain has length 1. It falls from 1/2 to 0.

    b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps)), as (1 - (1 - e^-eps)/eps) / (2 (e^eps - 1 - eps) /
    eps); below eps = 0.01 by its series, where the differences would cancel.
    """
    if epsilon < 0.01:
        # numerator eps^2/2 - eps^3/6 (after e^-eps), denominator 2 (eps^2/2 + eps^3/6)
        return (0.5 - epsilon / 6 + epsilon**2 / 24) / (1 + epsilon / 3 + epsilon**2 / 12)
    return (epsilon - 1 + math.exp(-epsilon)) / (2 * (math.expm1(epsilon) - epsilon))


def place(values: npt.NDArray[np.float64], bound: float, scale: Scale) -> npt.NDArray[np.float64]:
    """Values clipped to [0, bound] and placed in [0, 1]: float64[n] -> float64[n]."""
    with np.errstate(over="ignore"):  # a warning in a log would show that a value was huge
        fraction = np.clip(values / bound, 0.0, 1.0)
    if scale == "log":
        fraction = np.log1p(LOG_STEPS * fraction) / math.log1p(LOG_STEPS)
    return fraction


def unplace(fraction: npt.NDArray[np.float64], bound: float, scale: Scale) -> npt.NDArray[np.float64]:
    """The inverse of `place` on [0, 1]."""
    if scale == "log":
        return np.expm1(fraction * math.log1p(LOG_STEPS)) / LOG_STEPS * bound
    return fraction * bound


@dataclass(frozen=True)
class SquareWave:
    """Square Wave on [0, bound].

    Privacy: pure eps-local DP per report, exactly (window.py). The caller refuses NaN; other values are clipped.
    Codes are 0..2**32-1.
    """

    epsilon: float
    bound: float
    scale: Scale = "linear"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ConfigurationError(
                f"bound={self.bound!r} must be positive and finite: set the public bound of the values"
            )
        if self.scale not in ("linear", "log"):
            raise ConfigurationError(f"scale={self.scale!r} is not known: use 'linear' or 'log'")

    @cached_property
    def window(self) -> WindowMechanism:
        b = half_width(self.epsilon)
        return WindowMechanism(self.epsilon, max(1, round(GRID * 2 * b / (1 + 2 * b))))

    @property
    def codes(self) -> int:
        """Reports are integers 0..codes-1."""
        return self.window.cells

    def randomise(self, values: npt.NDArray[np.float64], words: Words = secure_words) -> npt.NDArray[np.int64]:
        """One report for each value: float64[n] -> int64[n]."""
        return self.window.randomise(self.window.position(place(values, self.bound, self.scale)), words)

    def randomise_one(self, value: float, draw: Callable[[], int] = secure_word) -> int:
        """One report for one value; devices call this."""
        fraction = min(max(value / self.bound, 0.0), 1.0)
        if self.scale == "log":
            fraction = math.log1p(LOG_STEPS * fraction) / math.log1p(LOG_STEPS)
        return self.window.randomise_one(round(fraction * self.window.positions), draw)

    def bucket_counts(self, codes: npt.NDArray[np.int64], buckets: int) -> npt.NDArray[np.int64]:
        """Reports per output bucket: int64[n] codes -> int64[buckets]."""
        return np.bincount((codes * buckets) >> (GRID.bit_length() - 1), minlength=buckets).astype(np.int64)
