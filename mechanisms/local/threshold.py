"""The threshold theta of phase 2: where the perturber's noise and the truncated tail cost the same.

A range query over positions i..j of n phase 2 values, its ends uniform and independent, has length l with E[l] = n/3
and E[l^2] = n^2/6. Values are clipped at theta and perturbed independently. They are assumed to be an independent sample
from one distribution (docs/guarantees/topl.md says what breaks otherwise). Then the expected squared error of a range sum
is

    n/3 * theta^2 * E[Var(clip(x)/theta)]  +  n^2/6 * (E[(x - theta)+])^2  +  a sampling term linear in n, which is neglected.

The authors' `exact_mse` has n/3 * (2 theta)^2 * worst variance and n^2/24. The first is the noise of an interval of
length 2 theta, although the mechanism perturbs [0, theta]; the second is a quarter of the squared length's expectation.
Together they weigh the noise 16 times too much, and their theta is too small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.hybrid import Hybrid, hybrid_alpha


@dataclass(frozen=True)
class Distribution:
    """A histogram in the values' unit: `edges` float64[d + 1] from 0, `frequencies` float64[d] with sum 1; uniform within."""

    edges: Floats
    frequencies: Floats

    def excess(self, thetas: Floats) -> Floats:
        """E[(x - theta)+] for each theta: float64[k]."""
        low, high = self.edges[:-1, None], self.edges[1:, None]
        cut = np.clip(thetas, low, high)
        above = (high - cut) * ((high + cut) / 2 - thetas) / (high - low)
        return np.asarray(self.frequencies @ above)

    def clipped_moments(self, thetas: Floats) -> tuple[Floats, Floats]:
        """(E[min(x, theta)], E[min(x, theta)^2]) for each theta."""
        low, high = self.edges[:-1, None], self.edges[1:, None]
        cut = np.clip(thetas, low, high)
        width = high - low
        first = ((cut**2 - low**2) / 2 + thetas * (high - cut)) / width
        second = ((cut**3 - low**3) / 3 + thetas**2 * (high - cut)) / width
        return np.asarray(self.frequencies @ first), np.asarray(self.frequencies @ second)


@dataclass(frozen=True)
class Threshold:
    """What the server publishes for phase 2, and the figures that it was chosen by."""

    theta: float
    alpha: float
    expected_squared_error: float
    expected_truncation: float  # E[(x - theta)+] per value under the estimated distribution


def expected_squared_error(distribution: Distribution, thetas: Floats, perturber: Hybrid, values: int) -> Floats:
    """Expected squared error of a random range sum over `values` phase 2 reports, for each theta: float64[k]."""
    constant, linear, square = perturber.variance_coefficients()
    first, second = distribution.clipped_moments(thetas)
    noise = constant * thetas**2 + linear * thetas * first + square * second
    return values / 3 * noise + values**2 / 6 * distribution.excess(thetas) ** 2


def candidates(bound: float, count: int = 400) -> Floats:
    """Thresholds to choose from: geometric from bound / 5000 to bound."""
    return np.geomspace(bound / 5000, bound, count)


def choose_threshold(
    distribution: Distribution,
    epsilon: float,
    values: int,
    *,
    thetas: Floats | None = None,
    alphas: Sequence[float] | None = None,
) -> Threshold:
    """The theta and the perturber's alpha of smallest expected squared error. Post-processing: no privacy cost.

    `values`: reports expected in phase 2 before the next threshold. `alphas` defaults to stochastic rounding, the
    hybrid and piecewise: the hybrid's alpha is the best for the worst value, not for values that mostly lie near 0.
    """
    if values < 1:
        raise ConfigurationError(f"values={values} must be positive: set the number of reports expected in phase 2")
    grid = candidates(float(distribution.edges[-1])) if thetas is None else thetas
    best: Threshold | None = None
    for alpha in (0.0, hybrid_alpha(epsilon), 1.0) if alphas is None else alphas:
        errors = expected_squared_error(distribution, grid, Hybrid(epsilon, alpha), values)
        k = int(np.argmin(errors))
        if best is None or errors[k] < best.expected_squared_error:
            theta = float(grid[k])
            best = Threshold(theta, alpha, float(errors[k]), float(distribution.excess(grid[k : k + 1])[0]))
    assert best is not None
    return best


def round_up(theta: float, digits: int = 4) -> float:
    """theta to a few significant digits, so that the published number is short; upwards, since truncation costs more."""
    unit = 10.0 ** (math.floor(math.log10(theta)) - digits + 1)
    return float(f"{math.ceil(theta / unit) * unit:.{digits}g}")
