"""Range sums over a stream released by ToPS, with standard errors: from released records and public constants alone.

``plain`` is unbiased for the clipped values where a range ends with a leaf; for a part of a leaf it uses the smoother's
guess.  Its standard error is the noise's.  ``filtered`` is the posterior mean under the averaged models of ``posterior``.
A range that ends in block k uses the blocks up to k only.  It is biased towards what the models expect, and its standard
error is the posterior's, widened.  Neither error includes what clipping at theta has cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.stream.allocation import Allocation, block_layer, block_noise, block_values
from susurrus.mechanisms.stream.constants import TopsConstants
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.level_jumps import NONE, jump_variances
from susurrus.mechanisms.stream.posterior import FIT_LIMIT, MOVE, posterior, spreads, widened
from susurrus.mechanisms.stream.smoothers import MEMORY, Smoother, guess_weights, guesses


@dataclass(frozen=True)
class ReleasedStream:
    """What ToPS published of one stream after its holdout.

    leaf_sums int64[n]: complete leaves in order, value grid.  trees: the hierarchy of every tree begun; theta, lower:
    int64[trees], its values are clipped to [lower, theta].  Positions count from the first value after the holdout.
    """

    epsilon: float
    leaf_sums: Int64s
    trees: Sequence[Hierarchy]
    theta: Int64s
    lower: Int64s
    jumps: Int64s
    fit: Floats
    smoother: Smoother = Smoother.MEAN

    @classmethod
    def of(
        cls,
        mechanism: TopsConstants,
        *,
        value: Int64s,
        layout: Int64s,
        theta: Int64s,
        lower: Int64s,
        fit: Floats,
        jump_first: Int64s,
        jump_last: Int64s,
    ) -> Self:
        """Return the stream of all its rows from the first on: columns of ``Releases``, int64[n] and float64[n]."""
        base, blocks = mechanism.base, ~np.isnan(fit)
        jumps = np.stack([jump_first, jump_last], axis=1)[blocks]
        return cls(
            epsilon=mechanism.epsilon,
            leaf_sums=value,
            trees=[mechanism.menu[entry] for entry in layout[:: base.leaves].tolist()],
            theta=theta[:: base.leaves],
            lower=lower[:: base.leaves],
            jumps=np.where(jumps == NONE, NONE, (jumps - mechanism.holdout) // block_values(base)),
            fit=fit[blocks],
            smoother=mechanism.smoother,
        )

    @property
    def leaf(self) -> int:
        """Values per leaf."""
        return self.trees[0].leaf

    @cached_property
    def _guesses(self) -> Floats:
        memory = MEMORY if self.smoother is Smoother.MOVING_AVERAGE else len(self.leaf_sums)
        return guesses(
            self.smoother, self.leaf * float(self.theta[0] + self.lower[0]) / 2, self.leaf_sums, memory=memory
        )

    def plain(self, first: Int64s, last: Int64s) -> tuple[Floats, Floats]:
        """Return estimates and standard errors float64[q] of the sums over positions [first, last), value grid."""
        prefix = np.concatenate(([0.0], np.cumsum(self.leaf_sums, dtype=np.float64)))
        n = len(self.leaf_sums)
        weights = np.zeros((len(first), n))
        estimate = np.zeros(len(first))
        for sign, ends in ((1.0, np.asarray(last)), (-1.0, np.asarray(first))):
            leaf, offset = np.divmod(np.minimum(ends, n * self.leaf), self.leaf)
            part = offset / self.leaf
            estimate += sign * (prefix[leaf] + part * self._guesses[np.minimum(leaf, n)])
            weights += sign * (np.arange(n) < leaf[:, None])
            for row in np.flatnonzero(offset):
                weights[row] += sign * part[row] * guess_weights(self.smoother, int(leaf[row]), n)
        return estimate, self._plain_error(weights)

    def _plain_error(self, weights: Floats) -> Floats:
        size = self.trees[0].leaves
        variance = (weights**2).sum(axis=1) / 12
        for number, (hierarchy, width) in enumerate(zip(self.trees, self.theta - self.lower, strict=True)):
            part = weights[:, number * size : (number + 1) * size]
            if part.shape[1] and np.any(part):
                padded = np.zeros((len(part), size))
                padded[:, : part.shape[1]] = part
                variance += hierarchy.variances(padded) * (width / self.epsilon) ** 2
        error: Floats = np.sqrt(variance)
        return error

    # --- filtered ---------------------------------------------------------------------------------------------------

    def filtered(self, first: Int64s, last: Int64s) -> tuple[Floats, Floats]:
        """Return estimates and standard errors float64[q] of the sums over positions [first, last), value grid.

        An answer uses the blocks up to the one its range ends in, and at most b + 1 trees: about a range limit of values
        at any length of the stream.  Ranges must begin within these trees and end within the released blocks.
        """
        first, last = np.asarray(first), np.asarray(last)
        size = block_values(self.trees[0])
        per_tree = block_noise(self.trees[0]).blocks
        released = len(self.leaf_sums) * self.leaf // size
        known = np.clip(-(-last // size), 1, released)
        open_tree = (known - 1) // per_tree
        start_tree = np.maximum(0, open_tree - self.trees[0].fanout)
        estimate, variance = np.zeros(len(first)), np.zeros(len(first))
        settled = self.jumps[per_tree - 1 :: per_tree]
        known_jumps = [
            tuple(
                sorted(
                    {*map(tuple, settled[begin:tree].tolist()), tuple(self.jumps[block - 1].tolist())} - {(NONE, NONE)}
                )
            )
            for begin, tree, block in zip(start_tree.tolist(), open_tree.tolist(), known.tolist(), strict=True)
        ]
        for start, jumps in sorted(set(zip(start_tree.tolist(), known_jumps, strict=True))):
            rows = np.flatnonzero(
                [each == (start, jumps) for each in zip(start_tree.tolist(), known_jumps, strict=True)]
            )
            estimate[rows], variance[rows] = self._from(start, jumps, first[rows], last[rows], known[rows])
        unit = float(self.theta[0] - self.lower[0]) / self.epsilon
        errors = widened(np.sqrt(variance) * unit, self._worst_fit(first, last))
        return estimate * unit + float(self.lower[0]) * (last - first), errors

    def fits(self, first: Int64s, last: Int64s) -> npt.NDArray[np.bool_]:
        """Return bool[q]: whether the filter's models fit in all blocks of each range [first, last).

        Where they do not, the filtered standard errors have been widened, and still rest on a model that is wrong.  Blocks
        between a jump and the row that first knew of it do not count, as far as it is known where the range ends.
        """
        return self._worst_fit(np.asarray(first), np.asarray(last)) <= FIT_LIMIT

    def _worst_fit(self, first: Int64s, last: Int64s) -> Floats:
        size, most, per_tree = block_values(self.trees[0]), len(self.fit), block_noise(self.trees[0]).blocks
        begin = np.minimum(first // size, most - 1)
        end = np.clip(-(-last // size), begin + 1, most)
        worst = np.empty(len(begin))
        for known in np.unique(end).tolist():
            rows, open_tree = np.flatnonzero(end == known), (known - 1) // per_tree * per_tree
            low = min(int(begin[rows].min()), open_tree)
            fit = np.concatenate([self._settled_fit[low:open_tree], self._explained_fit(open_tree, known)])
            worst[rows] = np.maximum.accumulate(fit[::-1])[::-1][begin[rows] - low]
        return worst

    @cached_property
    def _settled_fit(self) -> Floats:
        """The fit of the blocks of complete trees."""
        per_tree = block_noise(self.trees[0]).blocks
        trees = range(0, len(self.fit) - per_tree + 1, per_tree)
        return np.concatenate([np.empty(0), *(self._explained_fit(tree, tree + per_tree) for tree in trees)])

    def _explained_fit(self, begin: int, end: int) -> Floats:
        """The fit of the blocks of one tree: 0 between a jump that is known at the last of them and the row that first knew of
        it."""
        fit, first = self.fit[begin:end].copy(), int(self.jumps[end - 1, 0])
        if first != NONE:
            fit[first - begin :][self.jumps[first:end, 0] == NONE] = 0.0
        return fit

    @cached_property
    def _allocation(self) -> Allocation:
        return Allocation(self.trees[0], self.epsilon)

    def _from(
        self, start_tree: int, jumped: tuple[tuple[int, int], ...], first: Int64s, last: Int64s, known: Int64s
    ) -> tuple[Floats, Floats]:
        hierarchy = self.trees[0]
        size, per_tree = block_values(hierarchy), block_noise(hierarchy).blocks
        start, count = start_tree * per_tree, int(known.max())
        leaves = self.leaf_sums[start * size // self.leaf : count * size // self.leaf].astype(np.float64)
        width, lower = float(self.theta[0] - self.lower[0]), float(self.lower[0])
        nodes = [(leaves - lower * self.leaf) * (self.epsilon / width)]
        for _ in range(block_layer(hierarchy)):
            nodes.append(nodes[-1].reshape(-1, hierarchy.fanout).sum(axis=1))
        blocks = nodes[-1]
        left, right = (first - start * size) / size, (last - start * size) / size
        index = np.arange(len(blocks))
        weights = np.clip(right[:, None] - index, 0, 1) - np.clip(left[:, None] - index, 0, 1)
        used = slice(start_tree, -(-count // per_tree))
        trees, theta, lowers = self.trees[used], self.theta[used], self.lower[used]
        squares = ((theta - lowers) / width) ** 2
        noise = [block_noise(tree).scaled(square) for tree, square in zip(trees, squares.tolist(), strict=True)]
        local = known - start
        moved = (np.diff(theta, prepend=theta[0]) != 0) | (np.diff(lowers, prepend=lowers[0]) != 0)
        level = self._allocation.models.level
        jumps = np.zeros(len(trees) * per_tree)
        jumps[::per_tree] = moved * (MOVE * level)
        for begin, end in jumped:
            jumps += jump_variances(len(jumps), begin - start, end - start, level)
        mean, std = posterior(self._allocation.models, blocks, noise, weights, local, jumps=jumps[: len(blocks)])
        variance = std**2
        for layer, deviations in enumerate(self._allocation.deviations):
            parents = nodes[layer + 1]
            deviation = nodes[layer].reshape(-1, hierarchy.fanout) - parents[:, None] / hierarchy.fanout
            within = squares * [tree.subtree_variances()[layer] for tree in trees]
            own = np.repeat(within, len(parents) // len(blocks) * per_tree)
            own = own[: len(parents)]
            evidence = deviations.evidence((deviation**2).sum(axis=1), hierarchy.fanout - 1, own)
            per_block = evidence.reshape(len(blocks), -1, evidence.shape[-1]).sum(axis=1)
            gathered = np.cumsum(per_block, axis=0)[local - 1]
            for sign, ends in ((1.0, last), (-1.0, first)):
                place = (ends - start * size) / (self.leaf * hierarchy.fanout**layer)
                part, independent, walk = _within_parent(deviation, place)
                parent = np.minimum((place // hierarchy.fanout).astype(np.int64), len(parents) - 1)
                factor, left_over = deviations.shrinkage(gathered, own[parent] * independent, walk)
                mean = mean + sign * factor * part
                variance = variance + left_over
        return mean, variance


def _within_parent(deviation: Floats, place: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the sum of deviations from the parent's start up to ``place`` nodes, and its two ``spreads``."""
    fanout = deviation.shape[1]
    node = np.minimum(np.floor(place).astype(np.int64), deviation.size)
    fraction = place - node
    padded = np.concatenate([deviation.reshape(-1), [0.0]])
    inside = node % fanout
    running = np.concatenate([np.zeros((len(deviation), 1)), np.cumsum(deviation, axis=1)[:, :-1]], axis=1).reshape(-1)
    before = np.concatenate([running, [0.0]])[node]
    return before + fraction * padded[node], *spreads(fanout, inside + fraction)
