r"""The phase 2 report, from which the server estimates means: stochastic rounding, piecewise, and their hybrid.

Sources: [DJW18] Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation" (stochastic
rounding); [WXY+19] Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with
local differential privacy", ICDE 2019, Alg. 2 (piecewise) and section III-C (hybrid).

A value is a fraction in [0, 1] of the public threshold theta. With t = 2 x - 1 in [-1, 1] the papers' variances are

    stochastic rounding   ((e^eps + 1) / (e^eps - 1))^2 - t^2
    piecewise             t^2 / (e^(eps/2) - 1) + (e^(eps/2) + 3) / (3 (e^(eps/2) - 1)^2)
    hybrid                alpha * piecewise + (1 - alpha) * rounding

(a quarter of them in units of x). alpha = 1 - e^(-eps/2) above eps* = 0.61, and 0 below, makes the worst case over t
smallest. If the distribution is known roughly, alpha 0 or 1 is better. alpha is public: it is part of the threshold.

One integer per report: 0..2**32-1 are the piecewise codes, 2**32 and 2**32 + 1 the two of stochastic rounding. The coin
between them is independent of the value, so its outcome reveals nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.randomness import WORD, Words, check_epsilon, exp_below, secure_word, secure_words
from susurrus.mechanisms.local.window import GRID, GRID_BITS, WindowMechanism

EPSILON_STAR = 0.61  # [WXY+19] eq. 7: ln((-5 + 2 (6353 - 405 sqrt 241)^(1/3) + 2 (6353 + 405 sqrt 241)^(1/3)) / 27)


def hybrid_alpha(epsilon: float) -> float:
    """The paper's share of piecewise reports: 1 - e^(-eps/2) above eps* = 0.61, else 0."""
    return -math.expm1(-epsilon / 2) if epsilon > EPSILON_STAR else 0.0


@dataclass(frozen=True)
class StochasticRounding:
    """One bit, 1 with probability k0 + x (1 - 2 k0), where k0 is the smallest with (1 - k0) / k0 <= e^eps on the grid.

    Privacy: pure eps-local DP per report, exactly: every probability is an integer over 2**64 from k0 to 2**64 - k0.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @cached_property
    def _integers(self) -> tuple[int, int]:
        """(k0, step): Pr[1 | i] = (k0 + i * step) / 2**64 for i in 0..2**32."""
        smallest = math.ceil(WORD / (1 + exp_below(self.epsilon)))
        step = (WORD - 2 * smallest) >> GRID_BITS
        step -= step & 1
        return (WORD - (step << GRID_BITS)) // 2, step

    def randomise(self, fraction: npt.NDArray[np.float64], words: Words = secure_words) -> npt.NDArray[np.int64]:
        base, step = self._integers
        index = np.rint(fraction * GRID).astype(np.uint64)
        return (words(fraction.size) < np.uint64(base) + index * np.uint64(step)).astype(np.int64)

    def randomise_one(self, fraction: float, draw: Callable[[], int] = secure_word) -> int:
        base, step = self._integers
        return int(draw() < base + round(fraction * GRID) * step)

    @cached_property
    def decoder(self) -> tuple[float, float]:
        """(scale, offset): scale * bit + offset is unbiased for the fraction."""
        base, step = self._integers
        scale = Fraction(WORD, step << GRID_BITS)
        return float(scale), float(-Fraction(base, WORD) * scale)

    def decode(self, bit: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        scale, offset = self.decoder
        return np.asarray(scale * bit + offset, dtype=np.float64)

    def variance(self, fraction: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """p (1 - p) scale^2 with p = Pr[1]; equals (C^2 - t^2) / 4."""
        base, _ = self._integers
        scale = self.decoder[0]
        p = base / WORD + fraction / scale
        return p * (1 - p) * scale**2


def piecewise(epsilon: float) -> WindowMechanism:
    """The piecewise mechanism on the grid: a window of the share 1 / (e^(eps/2) + 1) of the outputs. [WXY+19] Alg. 2"""
    return WindowMechanism(epsilon, max(1, round(GRID / (math.exp(check_epsilon(epsilon) / 2) + 1))))


@dataclass(frozen=True)
class Hybrid:
    """Piecewise with probability `alpha`, else stochastic rounding; alpha 0 and 1 are these two alone.

    Privacy: pure eps-local DP per report, exactly: a mixture by a coin that is independent of the value. Unbiased on
    the grid of 2**-32; a value is rounded to it first.
    Codes: 0..2**32-1 piecewise; 2**32 + bit stochastic rounding.
    """

    epsilon: float
    alpha: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 0 <= self.alpha <= 1:
            raise ConfigurationError(f"alpha={self.alpha!r} must be in [0, 1]: it is the share of piecewise reports")

    @cached_property
    def rounding(self) -> StochasticRounding:
        return StochasticRounding(self.epsilon)

    @cached_property
    def window(self) -> WindowMechanism:
        return piecewise(self.epsilon)

    def allowed(self, code: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which codes this mechanism can produce."""
        low = 0 if self.alpha > 0 else GRID
        high = GRID + 2 if self.alpha < 1 else GRID
        return (code >= low) & (code < high)

    @cached_property
    def _coin(self) -> int:
        return math.floor(self.alpha * WORD)

    def randomise(self, fraction: npt.NDArray[np.float64], words: Words = secure_words) -> npt.NDArray[np.int64]:
        """One code for each value, as a fraction of theta in [0, 1] (clipped here): float64[n] -> int64[n]."""
        fraction = np.clip(fraction, 0.0, 1.0)
        if self.alpha == 0:
            return GRID + self.rounding.randomise(fraction, words)
        if self.alpha == 1:
            return self.window.randomise(self.window.position(fraction), words)
        wide = words(fraction.size) < np.uint64(self._coin)
        code = np.empty(fraction.size, dtype=np.int64)
        code[wide] = self.window.randomise(self.window.position(fraction[wide]), words)
        code[~wide] = GRID + self.rounding.randomise(fraction[~wide], words)
        return code

    def randomise_one(self, fraction: float, draw: Callable[[], int] = secure_word) -> int:
        """One code for one value; devices call this."""
        fraction = min(max(fraction, 0.0), 1.0)
        if self.alpha == 1 or (self.alpha > 0 and draw() < self._coin):
            return self.window.randomise_one(round(fraction * self.window.positions), draw)
        return GRID + self.rounding.randomise_one(fraction, draw)

    def decode(self, code: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Unbiased estimates of the fraction: int64[n] -> float64[n]."""
        return np.where(code < GRID, self.window.decode(code), self.rounding.decode(code - GRID))

    def variance(self, fraction: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Closed-form variance of one decoded report given the fraction: both parts are unbiased, so variances mix."""
        mixed = np.zeros_like(fraction)
        if self.alpha > 0:
            mixed = mixed + self.alpha * self.window.variance(fraction)
        if self.alpha < 1:
            mixed = mixed + (1 - self.alpha) * self.rounding.variance(fraction)
        return mixed

    def variance_coefficients(self) -> tuple[float, float, float]:
        """(c0, c1, c2): the variance at fraction f is c0 + c1 f + c2 f^2, exactly a quadratic for every alpha."""
        return _variance_coefficients(self)


@lru_cache(maxsize=64)  # the server asks for it in every interval, and exact fractions take time
def _variance_coefficients(hybrid: Hybrid) -> tuple[float, float, float]:
    start, middle, end = (float(v) for v in hybrid.variance(np.array([0.0, 0.5, 1.0])))
    square = 2 * (start + end - 2 * middle)
    return start, end - start - square, square
