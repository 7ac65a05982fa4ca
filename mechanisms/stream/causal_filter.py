r"""A causal filter over released block sums: post-processing that averages hard what is level and hardly what moves.

In units of theta / epsilon the released sums of consecutive blocks are z = x + n, where n has a known covariance (the
hierarchy's, ``BlockNoise``).  Under the prior of one model (white, drift)

.. math:: \mathrm{Cov}(x_i, x_j) = v_0 + \text{drift}\cdot\min(i, j) + \text{white}\cdot 1\{i=j\}

the posterior of x given z_1..z_k is Gaussian.  About a hundred models are averaged by their likelihood on the released
sums.  Nothing but released numbers and public constants enters, so the filter costs no privacy.

Two forms of the same posterior: ``BlockFilter.step`` (Kalman, constant state, what an agent publishes as it goes) and
``posterior`` (dense, any weighted sum of blocks, what a reader of the released records computes).

The answers are shrunk towards the models and so biased in general, they cover the values clipped at theta, and their
standard errors are those of the posterior.  The plain sums beside them are unbiased given theta.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from susurrus.mechanisms.stream.addresses import Floats

WHITE_STEPS = 9
DRIFT_STEPS = 9


@dataclass(frozen=True, slots=True)
class BlockNoise:
    """Covariance of one tree's released block sums: within (I - J/b) + total J / b^2, for b blocks.

    Unit (theta/epsilon)^2.
    """

    blocks: int
    within: float
    total: float

    @property
    def common(self) -> float:
        """Covariance of two blocks of a tree: what they have in common, usually negative."""
        return self.total / self.blocks**2 - self.within / self.blocks

    def matrix(self) -> Floats:
        """Return float64[b, b]."""
        return self.within * np.eye(self.blocks) + self.common


@dataclass(frozen=True)
class Models:
    """The averaged models: pairs (white, drift), prior mean and variance of the level, unit theta / epsilon.

    A block of g values clipped to [0, theta] sums to g * epsilon units at most, so the level starts in the middle with
    a standard deviation of half the range, and no component needs to be larger than that.
    """

    span: float

    @classmethod
    def for_block(cls, values: int, epsilon: float) -> "Models":
        """Return the models for blocks of ``values`` values."""
        return cls(span=values * epsilon)

    @property
    def mean(self) -> float:
        """Prior mean of a block."""
        return self.span / 2

    @property
    def level(self) -> float:
        """v_0."""
        return self.span**2 / 4

    @cached_property
    def white(self) -> Floats:
        """float64[models]."""
        return np.repeat(_scale(self.level, 5e-2, WHITE_STEPS), DRIFT_STEPS + 1)

    @cached_property
    def drift(self) -> Floats:
        """float64[models]."""
        return np.tile(_scale(self.level, 1e-3, DRIFT_STEPS), WHITE_STEPS + 1)

    @property
    def count(self) -> int:
        """Number of models."""
        return len(self.white)

    def covariance(self, model: int, blocks: int) -> Floats:
        """Return the prior covariance float64[blocks, blocks] of one model."""
        index = np.arange(1, blocks + 1)
        shared = self.level + self.drift[model] * np.minimum(index[:, None], index[None, :])
        result: Floats = shared + self.white[model] * np.eye(blocks)
        return result


def _scale(top: float, bottom: float, steps: int) -> Floats:
    """Return 0 and a geometric scale from ``bottom`` (far below the noise) to ``top``."""
    return np.concatenate(([0.0], np.geomspace(min(bottom, top / 16), top, steps)))


@dataclass
class FilterState:
    """The Kalman state of k streams under M models: (level, common noise of the open tree, running sum).

    mean float64[k, M, 3], covariance float64[k, M, 3, 3], log_likelihood float64[k, M]; unit theta / epsilon.
    """

    mean: Floats
    covariance: Floats
    log_likelihood: Floats

    def weights(self) -> Floats:
        """Return float64[k, M]: posterior probabilities of the models."""
        return mixture_weights(self.log_likelihood)

    def pack(self) -> bytes:
        """Return the little-endian bytes of the state of one stream."""
        upper = self.covariance[0][:, *np.triu_indices(3)]
        parts = (self.mean[0], upper, self.log_likelihood[0])
        return b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in parts)

    @classmethod
    def unpack(cls, data: bytes, models: int) -> "FilterState":
        """Return the state packed by ``pack``."""
        numbers = np.frombuffer(data, dtype="<f8").astype(np.float64)
        mean, upper, log_likelihood = np.split(numbers, (3 * models, 9 * models))
        covariance = np.zeros((models, 3, 3))
        rows, columns = np.triu_indices(3)
        covariance[:, rows, columns] = upper.reshape(models, 6)
        covariance[:, columns, rows] = upper.reshape(models, 6)
        return cls(mean.reshape(1, models, 3).copy(), covariance[None], log_likelihood.reshape(1, models).copy())


@dataclass(frozen=True, slots=True)
class Filtered:
    """What the filter says after a block: posterior mean and standard deviation of the block and of the running sum."""

    block: Floats
    running: Floats
    running_std: Floats


def mixture_weights(log_likelihood: Floats) -> Floats:
    """Return the softmax over the last axis."""
    weights = np.exp(log_likelihood - log_likelihood.max(axis=-1, keepdims=True))
    result: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return result


@dataclass(frozen=True)
class BlockFilter:
    """The Kalman form.  Privacy: post-processing of released block sums."""

    models: Models

    def start(self, streams: int) -> FilterState:
        """Return the prior of ``streams`` streams."""
        count = self.models.count
        mean = np.zeros((streams, count, 3))
        mean[:, :, 0] = self.models.mean
        covariance = np.zeros((streams, count, 3, 3))
        covariance[:, :, 0, 0] = self.models.level
        return FilterState(mean, covariance, np.zeros((streams, count)))

    def step(self, state: FilterState, block: Floats, noise: BlockNoise, *, opens_tree: bool) -> Filtered:
        """Take in the next released block sum of each stream, float64[k]; changes ``state`` in place.

        The state before the block: level m (a random walk), A (the noise the open tree's blocks share), S (running sum
        of the true blocks).  The block is x = m + W and is seen as z = x + A + D; S gains x.
        """
        P, mean = state.covariance, state.mean
        P[..., 0, 0] += self.models.drift
        if opens_tree:
            P[..., 1, :] = 0.0
            P[..., :, 1] = 0.0
            P[..., 1, 1] = noise.common if noise.blocks > 1 else 0.0
            mean[..., 1] = 0.0
        white = self.models.white
        own = noise.within if noise.blocks > 1 else noise.total
        with_level, with_common = P[..., 0, :].copy(), P[..., 1, :].copy()
        P[..., 2, 2] += 2 * with_level[..., 2] + with_level[..., 0] + white
        for other in (0, 1):
            P[..., 2, other] += with_level[..., other]
            P[..., other, 2] = P[..., 2, other]
        mean[..., 2] += mean[..., 0]
        seen = P[..., 0, :] + P[..., 1, :]
        seen[..., 2] += white
        variance = with_level[..., 0] + 2 * with_level[..., 1] + with_common[..., 1] + white + own
        innovation = block[:, None] - mean[..., 0] - mean[..., 1]
        gain = seen / variance[..., None]
        block_mean = mean[..., 0] + (with_level[..., 0] + with_level[..., 1] + white) / variance * innovation
        mean += gain * innovation[..., None]
        P -= seen[..., :, None] * seen[..., None, :] / variance[..., None, None]  # symmetric to the last bit
        state.log_likelihood += -0.5 * (innovation**2 / variance + np.log(variance))
        weights = state.weights()
        running = (weights * mean[..., 2]).sum(axis=-1)
        # About the mean, not E x^2 - (E x)^2: after many blocks the running sum's square has no digits left for it.
        spread = (weights * (P[..., 2, 2] + (mean[..., 2] - running[..., None]) ** 2)).sum(axis=-1)
        return Filtered((weights * block_mean).sum(axis=-1), running, np.sqrt(spread))


def posterior(
    models: Models, blocks: Floats, noise: list[BlockNoise], weights: Floats, known: np.ndarray
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation float64[q] of weighted sums of blocks, unit theta / epsilon.

    blocks float64[n]: released sums; noise: one entry per tree, in order; weights float64[q, n]; known int64[q]: how
    many blocks each answer may use (>= 1).  Dense form: S = prior covariance, L = chol(S + C), A = S L^-T, y = L^-1 z;
    the posterior after k blocks is sum_{j<k} A_j y_j and the variance w'Sw - sum_{j<k} (w'A_j)^2.
    """
    n = len(blocks)
    C = np.zeros((n, n))
    place = 0
    for tree in noise:
        size = min(tree.blocks, n - place)
        C[place : place + size, place : place + size] = tree.matrix()[:size, :size]
        place += size
    last = np.asarray(known) - 1
    rows = np.arange(len(weights))
    means, variances, evidence = [], [], []
    for model in range(models.count):
        S = models.covariance(model, n)
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


@dataclass(frozen=True)
class Deviations:
    """How far nodes of a lower layer stray from an equal share of their parent; averaged over variances like the
    blocks.

    ``scale`` float64[v] are the variances tried, unit (theta / epsilon)^2.  State: one log-likelihood per variance.
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
        """Return float64[..., v].

        Log-likelihood of deviations with sum of squares ``squares`` and ``freedom`` degrees.
        """
        variance = self.scale + np.asarray(noise, dtype=np.float64)[..., None]
        result: Floats = -0.5 * (
            np.asarray(freedom)[..., None] * np.log(variance) + np.asarray(squares)[..., None] / variance
        )
        return result

    def shrinkage(self, log_likelihood: Floats, noise: Floats | float) -> tuple[Floats, Floats]:
        """Return (factor on a released deviation, posterior variance per degree of freedom)."""
        p = mixture_weights(log_likelihood)
        variance = np.asarray(noise, dtype=np.float64)[..., None]
        ratio = self.scale / (self.scale + variance)
        return (p * ratio).sum(axis=-1), (p * ratio * variance).sum(axis=-1)
