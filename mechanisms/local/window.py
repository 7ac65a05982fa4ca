r"""A uniform window on a public integer grid: the common core of Square Wave and the piecewise mechanism.

An input is one of N - W + 1 positions s; the output is one of the N codes 0..N-1. With probability P it is uniform on
the window s..s+W-1, else uniform on the N - W codes outside. Both papers' mechanisms are this shape and differ in W
only:

    Square Wave   W/N = 2b / (1 + 2b),      b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps))   [LWL+20] eq. 6
    Piecewise     W/N = 1 / (e^(eps/2) + 1)                                                            [WXY+19] Alg. 2

Privacy: pure eps-local DP per report, exactly (not up to floating point). P = p / 2**64 with the largest integer p
such that p (N - W) <= E (2**64 - p) W for a rational E <= e**eps. p is compared with a 64-bit word and both uniforms
are drawn without bias, so for every code j and all positions s, s'  Pr[j | s] <= e**eps Pr[j | s'].  See
docs/guarantees/topl.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.randomness import (
    WORD,
    Words,
    check_epsilon,
    exp_below,
    secure_word,
    secure_words,
    uniform_below,
    uniform_below_one,
)

GRID_BITS = 32
GRID = 1 << GRID_BITS


@dataclass(frozen=True)
class WindowMechanism:
    """The window mechanism with `cells` = N output codes and a window of `width` = W of them."""

    epsilon: float
    width: int
    cells: int = GRID

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 0 < self.width < self.cells <= GRID:
            raise ConfigurationError(
                f"width={self.width} must be between 1 and cells={self.cells} - 1: use another grid"
            )

    @cached_property
    def inside(self) -> int:
        """p: the probability of the window, over 2**64. The largest integer that keeps the ratio bound."""
        weight = exp_below(self.epsilon) * self.width
        return int(weight * WORD / (weight + self.cells - self.width))  # floor of a positive Fraction

    @property
    def positions(self) -> int:
        """K: positions are 0..K, K = N - W."""
        return self.cells - self.width

    def exact_probabilities(self) -> tuple[Fraction, Fraction]:
        """(probability of one code inside the window, of one code outside), as exact fractions."""
        inside = Fraction(self.inside, WORD)
        return inside / self.width, (1 - inside) / self.positions

    @cached_property
    def _affine(self) -> tuple[Fraction, Fraction]:
        """(slope, intercept) of E[code | position s] = slope * s + intercept: exact, for every s."""
        inner, outer = self.exact_probabilities()
        n, w = self.cells, self.width
        slope = (inner - outer) * w
        intercept = (inner - outer) * Fraction(w * (w - 1), 2) + outer * Fraction(n * (n - 1), 2)
        return slope, intercept

    @cached_property
    def decoder(self) -> tuple[float, float]:
        """(scale, offset): scale * code + offset is an unbiased estimate of s / K, in [0, 1] before noise."""
        slope, intercept = self._affine
        scale = 1 / (slope * self.positions)
        return float(scale), float(-intercept * scale)

    def position(self, fraction: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Positions of inputs in [0, 1], to the nearest grid point (off by at most 1 / 2K, that is about 2**-32)."""
        return np.rint(fraction * self.positions).astype(np.int64)

    def randomise(self, position: npt.NDArray[np.int64], words: Words = secure_words) -> npt.NDArray[np.int64]:
        """One code in 0..N-1 for each position in 0..K: int64[n] -> int64[n]. Takes 2n words, more if some are rejected."""
        n = position.size
        drawn = words(2 * n)
        inside = drawn[:n] < np.uint64(self.inside)
        # Both uniforms come from the same word and only one is used: the number of draws does not show which.
        second = drawn[n:]
        near = uniform_below(self.width, words, second)
        far = uniform_below(self.positions, words, second)
        far += self.width * (far >= position)
        return np.where(inside, position + near, far)

    def randomise_one(self, position: int, draw: Callable[[], int] = secure_word) -> int:
        """`randomise` of one position without numpy's overhead: the same code from the same words."""
        if draw() < self.inside:
            return position + uniform_below_one(self.width, draw)
        far = uniform_below_one(self.positions, draw)
        return far if far < position else far + self.width

    def decode(self, code: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Unbiased estimates of s / K: int64[n] -> float64[n]; with the noise they may lie outside [0, 1]."""
        scale, offset = self.decoder
        return np.asarray(scale * code + offset, dtype=np.float64)

    def variance(self, fraction: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Var[decode(randomise(s))] at s = fraction * K, in units of [0, 1] squared; exact sums, then float64."""
        inner, outer = self.exact_probabilities()
        n, w, k = self.cells, self.width, self.positions
        slope, intercept = self._affine
        # E[j^2 | s] = (inner - outer) * sum_{i<w} (s + i)^2 + outer * sum_{j<n} j^2 is a quadratic in s
        squares = Fraction((w - 1) * w * (2 * w - 1), 6)
        a = (inner - outer) * w - slope**2
        b = (inner - outer) * w * (w - 1) - 2 * slope * intercept
        c = (inner - outer) * squares + outer * Fraction((n - 1) * n * (2 * n - 1), 6) - intercept**2
        unit = (slope * k) ** 2
        return float(a * k * k / unit) * fraction**2 + float(b * k / unit) * fraction + float(c / unit)
