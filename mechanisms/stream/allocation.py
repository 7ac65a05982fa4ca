"""Adaptive split of epsilon over the layers of a tree, chosen per tree from released numbers by the filter's posterior.

For level data it is best to measure large nodes well; data that move need every layer.  The menu is public, and each
entry spends the whole epsilon.  So the composition is that of one adaptively chosen pure-epsilon mechanism per tree, on
disjoint values.
"""

import threading
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.linalg import solve_triangular

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.kalman import Models
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.posterior import BlockNoise, Deviations, block_models

RATIOS = (1.0, 1.5, 2.4, 4.0)
"""Each menu entry gives a layer this many times the share of the layer below; 1.0 is ToPS's equal split.  Steeper
entries gain little for long ranges, and short ones lose much."""
LEAF_SHARE = 0.2
"""The share of the leaves in further entries, one for each ratio that gives them more: for streams that move, but not within a
block."""
FIRST = 2
"""Menu entry of the first tree, before anything is known."""
SURPRISE = 0.01
"""Probability that the next tree's level moves as much as any model allows, whatever the posterior says.  A split that measures
the blocks of steady data hardly at all would find a jump only when the tree is complete.  Chosen on synthetic series."""
_TREES = 4
_QUERIES = 48


def menu(base: Hierarchy) -> tuple[Hierarchy, ...]:
    """Return the hierarchies to choose from: geometric shares, leaves smallest, and the same with fewer shares for leaves."""
    if base.layers == 1:
        return (base,)
    splits: list[Floats] = [ratio ** np.arange(base.layers, dtype=np.float64) for ratio in RATIOS]
    splits = [shares / shares.sum() for shares in splits]
    if base.layers > 2:
        much = [shares for shares in splits if shares[0] > LEAF_SHARE]
        splits += [np.append(LEAF_SHARE, (1 - LEAF_SHARE) * s[1:] / s[1:].sum()) for s in much]
    return tuple(_hierarchy(base, shares) for shares in splits)


def _hierarchy(base: Hierarchy, shares: Floats) -> Hierarchy:
    """A hierarchy of exact shares, which together are at most 1."""
    exact = tuple(float(share) for share in np.floor(shares * 2**40) / 2**40)
    return Hierarchy(fanout=base.fanout, layers=base.layers, leaf=base.leaf, shares=exact)


def block_layer(hierarchy: Hierarchy) -> int:
    """Return the 0-based layer whose nodes the filter treats as blocks: the one below the top, b blocks a tree."""
    return max(0, hierarchy.layers - 2)


def block_noise(hierarchy: Hierarchy) -> BlockNoise:
    """Return the covariance of a tree's released block sums."""
    variances = hierarchy.subtree_variances()
    if hierarchy.layers == 1:
        return BlockNoise(1, float(variances[0]), float(variances[0]))
    return BlockNoise(hierarchy.fanout, float(variances[-2]), float(variances[-1]))


def block_values(hierarchy: Hierarchy) -> int:
    """Return the values per block."""
    return int(hierarchy.leaf * hierarchy.fanout ** block_layer(hierarchy))


@dataclass(frozen=True)
class Allocation:
    """Chooses the menu entry with the least expected variance of a random range under the current posterior."""

    base: Hierarchy
    epsilon: float

    @cached_property
    def menu(self) -> tuple[Hierarchy, ...]:
        """The public menu."""
        return menu(self.base)

    @property
    def first(self) -> int:
        """Entry of the first tree."""
        return min(FIRST, len(self.menu) - 1)

    @cached_property
    def models(self) -> Models:
        """Block models of the filter."""
        return block_models(block_values(self.base), self.epsilon)

    @cached_property
    def _agile(self) -> int:
        """The model with the largest drift and nothing else."""
        return int(np.argmax(np.where(self.models.white == 0, self.models.drift, -1)))

    @cached_property
    def deviations(self) -> tuple[Deviations, ...]:
        """Models of the layers below the blocks, leaves first."""
        return tuple(
            Deviations.for_node(self.base.leaf * self.base.fanout**layer, self.epsilon)
            for layer in range(block_layer(self.base))
        )

    @property
    def block_costs(self) -> Floats:
        """float64[menu, models]: mean posterior variance of 48 fixed ranges over four trees."""
        with _once:
            return _block_costs(self)

    @cached_property
    def deviation_costs(self) -> list[Floats]:
        """Per layer below the blocks float64[menu, variances]: two ends, b / 6 of a parent's contrast each.

        Deviations count as independent here, although the filter takes them for a walk: the splits that a walk asks for
        measure leaves better, and cost long ranges more than they give short ones.
        """
        result = []
        for layer, deviations in enumerate(self.deviations):
            noise = np.array([hierarchy.subtree_variances()[layer] for hierarchy in self.menu])[:, None]
            shrunk = deviations.scale * noise / (deviations.scale + noise)
            result.append(self.base.fanout / 3 * shrunk)
        return result

    def choose(self, weights: Floats, deviation_weights: list[Floats]) -> int:
        """Return the next tree's menu entry from probabilities of models float64[models] and variances float64[v]."""
        expected = (1 - SURPRISE) * weights
        expected[self._agile] += SURPRISE
        cost = self.block_costs @ expected
        for costs, p in zip(self.deviation_costs, deviation_weights, strict=True):
            cost = cost + costs @ p
        return int(np.argmin(cost))


_once = threading.Lock()


@lru_cache(maxsize=16)
def _block_costs(allocation: Allocation) -> Floats:
    """A function of public parameters. It takes a second, and every task of a worker has the same ones."""
    hierarchies, models = allocation.menu, allocation.models
    blocks = _TREES * block_noise(allocation.base).blocks
    ends = np.sort(np.random.Generator(np.random.PCG64(0)).uniform(0, blocks, (_QUERIES, 2)), axis=1)
    index = np.arange(blocks)
    weights = np.clip(ends[:, 1:] - index, 0, 1) - np.clip(ends[:, :1] - index, 0, 1)
    costs = np.empty((len(hierarchies), models.count))
    for model in range(models.count):
        S = models.covariance(model, blocks)
        prior = np.einsum("qi,ij,qj->q", weights, S, weights, optimize=True)
        for entry, hierarchy in enumerate(hierarchies):
            noise = np.kron(np.eye(_TREES), block_noise(hierarchy).matrix())
            L = np.linalg.cholesky(S + noise)
            projected = solve_triangular(L, S @ weights.T, lower=True, check_finite=False)
            costs[entry, model] = (prior - (projected**2).sum(axis=0)).mean()
    costs.flags.writeable = False
    return costs
