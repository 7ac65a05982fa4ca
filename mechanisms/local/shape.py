r"""A distribution with a believable tail: penalised likelihood for Square Wave reports on the log scale.

EM puts spurious atoms where there are few reports. Far above the data, a few surplus reports are noise, but EM turns them
into mass, and a threshold that weighs squared excess follows that mass. Here the distribution is exp(g) on d buckets of
the wave's own (log) scale, and g maximises

    log-likelihood of the reports
    - smoothness / 2 * sum (third differences of g)^2      a log-normal distribution has none
    - 100 / 2 * sum (second differences of g + k0)^2       weakly: as curved as a log-normal of log-deviation 0.8 or 0.25
    subject to g concave above the median                  a tail falls faster and faster, and does not rise again

by Fisher scoring. The constraint is a stiff one-sided penalty, so that scoring is an active-set method. Fits over a grid
of smoothness and both log-deviations are averaged by their evidence (Laplace's approximation) and prior probability. Narrow
shapes are rarer: where most values are 0, the reports hardly tell a narrow shape from a wide one, and a theta for a narrow one
cuts the wide one's tail. The lowest bucket is free, because many series are often exactly 0. All of it is post-processing
of the reports: the constants affect the quality of the threshold, not privacy.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.reconstruction import Transition
from susurrus.mechanisms.local.threshold import Distribution
from susurrus.mechanisms.local.wave import LOG_STEPS, SquareWave, unplace

BUCKETS = 64
SMOOTHNESS = tuple(10.0**k for k in range(6, -1, -1))
CURVATURE_WEIGHT = 100.0
LOG_DEVIATIONS = {0.8: 1.0, 0.25: 0.1}  # and their prior odds: many sizes and durations; measurements about one value
STIFFNESS = 1e4
RIDGE = 1e-4
_FREE = 1  # buckets at the low end without a shape


@dataclass(frozen=True)
class _Fit:
    evidence: float
    log_density: Floats
    frequencies: Floats


class _Problem:
    """The penalised likelihood of one set of counts, and the log-deviation that its shape is pulled to."""

    def __init__(self, matrix: Floats, counts: Floats, log_deviation: float) -> None:
        d = matrix.shape[1]
        self.matrix, self.counts, self.d = matrix, counts, d
        third = np.diff(np.eye(d), 3, axis=0)[_FREE:]
        self.second = np.diff(np.eye(d), 2, axis=0)
        curved = self.second[_FREE:]
        step = math.log1p(LOG_STEPS) / d  # a bucket's width in log x, far from 0
        self.smooth = third.T @ third
        self.base = CURVATURE_WEIGHT * curved.T @ curved + RIDGE * np.eye(d)
        self.pull = -CURVATURE_WEIGHT * (step / log_deviation) ** 2 * curved.sum(axis=0)

    def fit(self, smoothness: float, start: Floats, concave_from: int) -> _Fit:
        """Fisher scoring with backtracking from `start`; second differences centred at or above `concave_from` are
        kept <= 0.
        """
        prior = smoothness * self.smooth + self.base
        bends = self.second[max(_FREE, concave_from - 1) :]
        total = self.counts.sum()

        def objective(g: Floats) -> tuple[float, Floats, Floats, Floats]:
            f = np.exp(g - g.max())
            f /= f.sum()
            expected = self.matrix @ f
            excess = np.maximum(bends @ g, 0.0)
            value = self.counts @ np.log(expected) - g @ prior @ g / 2 + self.pull @ g - STIFFNESS / 2 * excess @ excess
            return float(value), f, expected, excess

        g = start
        value, f, expected, excess = objective(g)
        for _ in range(200):
            jacobian = self.matrix * f - np.outer(expected, f)  # d expected / d g
            active = bends[excess > 0]
            gradient = jacobian.T @ (self.counts / expected) - prior @ g + self.pull - STIFFNESS * (bends.T @ excess)
            curvature = prior + STIFFNESS * active.T @ active + (jacobian * (total / expected)[:, None]).T @ jacobian
            factor = cho_factor(curvature)
            step = cho_solve(factor, gradient)
            # The quadratic model is local in log density.
            step *= min(1.0, 3.0 / max(float(np.abs(step).max()), 1e-300))
            length = 1.0
            while True:
                candidate = g + length * step
                found, f, expected, excess = objective(candidate)
                if found >= value or length < 1e-5:
                    break
                length /= 2
            g = candidate - candidate.mean()
            gain, value = found - value, found
            if gain < 1e-4:
                break
        log_prior = np.linalg.slogdet(prior)[1] / 2 - self.pull @ np.linalg.solve(prior, self.pull) / 2
        evidence = value + log_prior - float(np.log(np.diag(factor[0])).sum())
        return _Fit(float(evidence), g, f)


def fit_distribution(wave: SquareWave, counts: npt.NDArray[np.int64], *, buckets: int = BUCKETS) -> Distribution:
    """The distribution of the values behind Square Wave reports, from the reports per output bucket (int64[D]).

    Works on either scale, but is meant for "log". Post-processing of the reports: no privacy cost.
    Raises ConfigurationError without reports.
    """
    if counts.sum() <= 0:
        raise ConfigurationError("counts=0: no reports to fit a distribution to; wait for reports")
    edges = np.linspace(0.0, 1.0, buckets + 1)
    matrix = Transition(wave, edges, counts.size).dense()
    fits, prior = [], []
    for log_deviation, odds in LOG_DEVIATIONS.items():
        problem = _Problem(matrix, counts.astype(np.float64), log_deviation)
        start = np.zeros(buckets)
        for smoothness in SMOOTHNESS:
            free = problem.fit(smoothness, start, buckets)
            start = free.log_density
            body = np.cumsum(free.frequencies[_FREE:])
            median = int(np.searchsorted(body, body[-1] / 2)) + _FREE
            fits.append(problem.fit(smoothness, start, median))
            prior.append(odds)
    evidence = np.array([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max()) * prior
    frequencies = weights @ np.stack([fit.frequencies for fit in fits]) / weights.sum()
    return Distribution(unplace(edges, wave.bound, wave.scale), frequencies)
