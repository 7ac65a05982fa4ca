r"""The posterior of released block sums in dense form: any weighted sum of blocks, as a reader of the records computes it.

In units of theta / epsilon the released sums of consecutive blocks are z = x + n, where n has a known covariance (the
hierarchy's, ``BlockNoise``).  Under the prior of one model (white, drift)

.. math:: \mathrm{Cov}(x_i, x_j) = v_0 + \text{drift}\cdot\min(i, j) + \text{white}\cdot 1\{i=j\}

the posterior of x given z_1..z_k is Gaussian.  A hundred models are averaged by their likelihood on the released sums.
``BlockBank`` (susurrus.mechanisms.kalman) computes the same posterior of the running sum block by block.

Privacy: post-processing of released sums.  The answers are biased and cover the values clipped at theta.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.kalman import Models, mixture_weights

WHITE_STEPS = 9
DRIFT_STEPS = 9
WIDENING = 1.03
"""Published standard errors of filtered sums are so many times the posterior's.  Chosen on synthetic series."""
FIT_LIMIT = 2.0
"""With a larger mean of squared innovations, which is about 1 if a model fits, errors are widened by its root over this limit."""
FIT_MEMORY = 16
"""Blocks over which that mean is taken, exponentially."""
MOST = 1.5
"""But not more: right behind a jump, innovations are of any size.  Chosen on synthetic series."""
MOVE = 0.01
"""Where the clipping range changes, the level jumps: variance over that of the first level's prior."""


@dataclass(frozen=True, slots=True)
class BlockNoise:
    """Covariance of one tree's b released block sums: within (I - J/b) + total J / b^2, unit (theta/epsilon)^2."""

    blocks: int
    within: float
    total: float

    @property
    def own(self) -> float:
        """Variance of the noise that a block does not share with its tree's other blocks."""
        return self.within if self.blocks > 1 else self.total

    @property
    def common(self) -> float:
        """Covariance of two blocks of a tree, usually negative."""
        return self.total / self.blocks**2 - self.within / self.blocks if self.blocks > 1 else 0.0

    def scaled(self, by: float) -> "BlockNoise":
        """Return the noise with so many times the variance."""
        return BlockNoise(self.blocks, self.within * by, self.total * by)

    def matrix(self) -> Floats:
        """Return float64[b, b]."""
        return self.own * np.eye(self.blocks) + self.common


def block_models(values: int, epsilon: float) -> Models:
    """Return the models of blocks of ``values`` values, unit theta / epsilon.

    A block of g values clipped to [0, theta] sums to g * epsilon units at most, so the level starts in the middle with
    a standard deviation of half the range, and no component needs to be larger than that.
    """
    span = values * epsilon
    level = span**2 / 4
    white = np.repeat(_scale(level, 5e-2, WHITE_STEPS), DRIFT_STEPS + 1)
    return Models(white, np.tile(_scale(level, 1e-3, DRIFT_STEPS), WHITE_STEPS + 1), mean=span / 2, level=level)


def _scale(top: float, bottom: float, steps: int) -> Floats:
    """Return 0 and a geometric scale from ``bottom`` (far below the noise) to ``top``."""
    return np.concatenate(([0.0], np.geomspace(min(bottom, top / 16), top, steps)))


def posterior(
    models: Models,
    blocks: Floats,
    noise: list[BlockNoise],
    weights: Floats,
    known: np.ndarray,
    *,
    jumps: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation float64[q] of weighted sums of blocks, unit theta / epsilon.

    blocks float64[n]: released sums; noise: one entry per tree, in order; weights float64[q, n]; known int64[q]: how
    many blocks each answer may use (>= 1); jumps float64[n]: variance of the level's jump before each block.

    Dense form: S = prior covariance, L = chol(S + C), A = S L^-T, y = L^-1 z; the posterior after k blocks is
    sum_{j<k} A_j y_j and the variance w'Sw - sum_{j<k} (w'A_j)^2.
    """
    n = len(blocks)
    C = np.zeros((n, n))
    place = 0
    for tree in noise:
        size = min(tree.blocks, n - place)
        C[place : place + size, place : place + size] = tree.matrix()[:size, :size]
        place += size
    jumped = np.zeros((1, 1))
    if jumps is not None and jumps.any():
        behind = np.cumsum(jumps)
        jumped = np.minimum(behind[:, None], behind[None, :])
    last = np.asarray(known) - 1
    rows = np.arange(len(weights))
    means, variances, evidence = [], [], []
    for model in range(models.count):
        S = models.covariance(model, n) + jumped
        L = np.linalg.cholesky(S + C)
        y = solve_triangular(L, blocks - models.mean, lower=True, check_finite=False)
        projected = solve_triangular(L, S @ weights.T, lower=True, check_finite=False).T
        means.append(np.cumsum(projected * y, axis=1)[rows, last] + weights.sum(axis=1) * models.mean)
        prior = np.einsum("qi,ij,qj->q", weights, S, weights, optimize=True)
        variances.append(prior - np.cumsum(projected**2, axis=1)[rows, last])
        evidence.append(np.cumsum(-0.5 * y**2 - np.log(np.diag(L)))[last])
    p = mixture_weights(np.array(evidence).T)
    mean = (p * np.array(means).T).sum(axis=1)
    second = (p * (np.array(variances).T + np.array(means).T ** 2)).sum(axis=1)
    return mean, np.sqrt(np.maximum(second - mean**2, 0.0))


def widened(errors: Floats, fit: Floats) -> Floats:
    """Return the standard errors to publish for posterior ones float64[n], given the worst fit of the models in each sum."""
    result: Floats = errors * WIDENING * np.clip(np.sqrt(fit / FIT_LIMIT), 1.0, MOST)
    return result


def spreads(nodes: int, place: Floats) -> tuple[Floats, Floats]:
    """Return two variances float64[q] of a parent's first ``place`` of ``nodes`` deviations, added up.

    Both are for a mean variance of 1 per degree of freedom: of independent deviations, as the noise is, and of a random walk's.
    """
    weights = np.clip(np.asarray(place, dtype=np.float64)[:, None] - np.arange(nodes), 0, 1)
    index = np.arange(1.0, nodes + 1)
    centre = np.eye(nodes) - 1 / nodes
    walk = centre @ np.minimum(index[:, None], index[None, :]) @ centre
    walk *= (nodes - 1) / np.trace(walk)
    independent, of_walk = (np.einsum("qi,ij,qj->q", weights, each, weights) for each in (centre, walk))
    return independent, of_walk


@dataclass(frozen=True)
class Deviations:
    """How far the nodes of a lower layer lie from an equal share of their parent, averaged over a grid of variances.

    ``scale`` float64[v] are the variances tried, unit (theta / epsilon)^2.  State: one log-likelihood per variance.  Their sum up
    to a place is taken to vary as a random walk's: levels move in runs, which independent deviations would average out.
    """

    span: float

    @classmethod
    def for_node(cls, values: int, epsilon: float) -> "Deviations":
        """Return the variances tried for nodes of ``values`` values."""
        return cls(span=values * epsilon)

    @cached_property
    def scale(self) -> Floats:
        """float64[v]."""
        return _scale(self.span**2 / 4, 1e-3, 24)

    def evidence(self, squares: Floats, freedom: Floats | int, noise: Floats | float) -> Floats:
        """Return float64[..., v]: log-likelihood of deviations with sum of squares ``squares``, ``freedom`` degrees."""
        variance = self.scale + np.asarray(noise, dtype=np.float64)[..., None]
        terms = np.asarray(freedom)[..., None] * np.log(variance) + np.asarray(squares)[..., None] / variance
        return np.asarray(-0.5 * terms)

    def shrinkage(self, log_likelihood: Floats, noise: Floats | float, spread: Floats | float) -> tuple[Floats, Floats]:
        """Return (factor on a released sum of deviations, posterior variance of the sum).

        noise: variance of the sum's noise; spread: of the sum itself, for deviations of variance 1.
        """
        p = mixture_weights(log_likelihood)
        prior = self.scale * np.asarray(spread, dtype=np.float64)[..., None]
        variance = np.maximum(np.asarray(noise, dtype=np.float64)[..., None], np.finfo(np.float64).tiny)
        ratio = prior / (prior + variance)
        return (p * ratio).sum(axis=-1), (p * ratio * variance).sum(axis=-1)
