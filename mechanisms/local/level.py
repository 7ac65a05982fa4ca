r"""theta that follows the level: the means of phase 2 say how far the values have moved since phase 1.

Phase 1 gives the distribution of x. Later values are taken to be L x, with a level L that moves (a scale family). Under
theta the mean of the clipped values is then

    m(L) = E[min(L x, theta)] = L * E[min(x, theta / L)],

which increases in L. So the level of the released means (the filter's, with its standard error) gives L. A difference from
m(1) that is within half a standard error counts as none, and a larger one is shrunk (as by James and Stein's positive part):

    d -> d * max(0, 1 - (error / 2 d)^2).

Levels are remembered as weights on a public grid, which are forgotten at the rate 1/32 an interval. The expected squared
error of threshold.py scales with them: under the weights w the excess is sum_L w_L L e(theta / L), and the clipped moments
likewise. Two thetas are best: that for the present level, and that for the levels of late. The larger one is wanted, because
truncation adds up over a range and noise averages out: theta rises at once and falls when a high level is forgotten. It moves
only if it is off by a fifth, and at most doubles in one step. The level rises at most fourfold in one interval: where theta
clips nearly all values, the mean hardly tells the level.

Privacy: post-processing. Reports of phase 2 are locally private for every theta, also for one that was chosen from earlier
reports (docs/guarantees/topl.md). The constants were chosen on the synthetic series of benchmarks/topl.py.
"""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.threshold import Distribution, Threshold, candidates

LEVELS: Floats = np.exp2(np.arange(-48, 49) / 8)
"""Levels in eighths of octaves, from 1/64 to 64."""
_START = 48  # the place of level 1
FORGET = 1 / 32
SHRINK = 0.5  # standard errors
RISE, FALL, STEP, LEAP = 1.2, 0.8, 2.0, 4.0


class LevelFollower:
    """The levels since a fit of phase 1, and the theta that they ask for.

    `distribution`: of phase 1. `perturber`: of phase 2; its alpha stays. `values`: reports expected under one fit.
    `weights`: float64[levels], sum 1; all at level 1 by default.
    """

    def __init__(
        self,
        distribution: Distribution,
        perturber: Hybrid,
        values: int,
        *,
        level: float = 1.0,
        weights: Floats | None = None,
    ) -> None:
        self._distribution, self._perturber, self._values = distribution, perturber, values
        self._level = level
        self._weights = _spread(level) if weights is None else weights
        self._clipped: tuple[float, Floats] = 0.0, LEVELS
        self._thetas = candidates(float(distribution.edges[-1]))
        scaled, shape = (self._thetas / LEVELS[:, None]).ravel(), (LEVELS.size, self._thetas.size)
        first, second = (moment.reshape(shape) for moment in distribution.clipped_moments(scaled))
        self._excess = LEVELS[:, None] * distribution.excess(scaled).reshape(shape)
        constant, linear, square = perturber.variance_coefficients()
        linear_part, square_part = linear * LEVELS[:, None] * first, square * LEVELS[:, None] ** 2 * second
        self._noise = constant * self._thetas**2 + linear_part * self._thetas + square_part

    def state(self) -> dict[str, list[float] | float]:
        """Return what a successor needs to go on, beside the perturber and the number of values."""
        return {
            "edges": self._distribution.edges.tolist(),
            "frequencies": self._distribution.frequencies.tolist(),
            "weights": self._weights.tolist(),
            "level": self._level,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any], perturber: Hybrid, values: int) -> Self:
        """Return the follower as `state` left it, bit for bit."""
        edges, frequencies, weights = (
            np.array(state[name], np.float64) for name in ("edges", "frequencies", "weights")
        )
        distribution = Distribution(edges, frequencies)
        return cls(distribution, perturber, values, level=float(state["level"]), weights=weights)

    def means(self, theta: float) -> Floats:
        """The mean of the values clipped at theta, at each level: float64[levels], not decreasing."""
        if theta != self._clipped[0]:
            self._clipped = theta, LEVELS * self._distribution.clipped_moments(theta / LEVELS)[0]
        return self._clipped[1]

    def level(self, theta: float, mean: float, error: float) -> float:
        """The level at which values clipped at theta have this mean, which is known up to the standard error `error`."""
        means = self.means(theta)
        expected = float(means[_START])
        distance = mean - expected
        doubt = SHRINK * error
        if abs(distance) <= doubt:
            return 1.0
        found = expected + distance * (1 - (doubt / distance) ** 2)
        return float(np.exp(np.interp(found, means, np.log(LEVELS))))

    def take(self, theta: float, mean: float, error: float) -> None:
        """Take in the level of the means, as of one more interval under theta, and its standard error."""
        self._level = min(self.level(theta, mean, error), LEAP * self._level)
        self._weights = (1 - FORGET) * self._weights + FORGET * _spread(self._level)

    def proposal(self, theta: float) -> Threshold | None:
        """The threshold that should replace theta, None while theta is good enough."""
        choices = [(self._best(weights), weights) for weights in (_spread(self._level), self._weights)]
        best, weights = max(choices, key=lambda choice: choice[0].theta)
        if FALL * theta <= best.theta <= RISE * theta:
            return None
        if best.theta <= STEP * theta:
            return best
        return self._at(int(np.searchsorted(self._thetas, STEP * theta, side="right")) - 1, weights)

    def _best(self, weights: Floats) -> Threshold:
        errors = self._values / 3 * (weights @ self._noise) + self._values**2 / 6 * (weights @ self._excess) ** 2
        return self._at(int(np.argmin(errors)), weights)

    def _at(self, place: int, weights: Floats) -> Threshold:
        excess = float(weights @ self._excess[:, place])
        error = self._values / 3 * float(weights @ self._noise[:, place]) + self._values**2 / 6 * excess**2
        return Threshold(float(self._thetas[place]), self._perturber.alpha, error, excess)


def _spread(level: float) -> Floats:
    """A level as weights on the grid, shared by its two neighbours: float64[levels]."""
    place = min(max(math.log2(level) * 8 + _START, 0.0), LEVELS.size - 1.0)
    weights: Floats = np.maximum(0.0, 1.0 - np.abs(np.arange(LEVELS.size) - place))
    return weights
