"""Prefix sums from a binary tree of noisy nodes, each block estimated from everything below it (bottom-up Honaker).

Where it sits: DP-SQLP's two trees, one per round of key selection and one per published key, are instances of this
file; `dp_sqlp` adds users, thresholds and releases. Nothing here knows about data: an estimate is linear in the nodes,
so a released prefix is the true prefix plus `prefix_noise`.

A tree over leaves 1..n holds the complete dyadic blocks only: node (level, end) sums the 2^level leaves that end at
leaf `end`, 2^level | end. Nodes are numbered in post-order, i.e. by (end, level), from 0. So the nodes of the first t
leaves are the numbers 0..nodes(t)-1 for every t: a longer tree only appends, and an address never depends on n.

Source: Honaker, "Efficient use of differentially private binary trees" (2015), the estimate that uses the past only;
DP-SQLP (Zhang et al., VLDB 2024), appendix D. Our correction: a leaf lies in n.bit_length() complete blocks, not
ceil(log2 n), which is one short for every power of two and would give n = 1 no noise at all.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats


def levels(leaves: int) -> int:
    """Number of nodes that can contain one leaf: the squared L2 (and the L1) sensitivity of the node sums to it."""
    return leaves.bit_length()


def nodes(leaves: int) -> int:
    """Number of complete dyadic blocks within leaves 1..leaves."""
    return 2 * leaves - leaves.bit_count()


def node_number(level: int, end: int) -> int:
    """Post-order number of the block of 2^level leaves ending at leaf `end`."""
    return nodes(end - 1) + level


def block_variance(level: int) -> Fraction:
    """Variance of the estimate of a block of 2^level leaves, in units of one node's: 2^level / (2^(level+1) - 1).

    It solves 1/e_l = 1 + 1/(2 e_(l-1)), e_0 = 1: the inverse-variance mean of the node itself and its two children.
    """
    return Fraction(2**level, 2 ** (level + 1) - 1)


def prefix_variance(leaf: int) -> Fraction:
    """Variance of the estimate of the sum of leaves 1..leaf, in units of one node's."""
    return sum((block_variance(level) for level in range(leaf.bit_length()) if leaf >> level & 1), Fraction(0))


def prefix_std(leaves: int) -> Floats:
    """float64[leaves]: standard deviation of the estimated prefixes 1..leaves, in units of one node's."""
    return np.sqrt(np.array([float(prefix_variance(leaf)) for leaf in range(1, leaves + 1)], dtype=np.float64))


def _estimate_blocks(noise: npt.NDArray[np.int64] | Floats, leaves: int) -> list[Floats]:
    """Per level, float64[k, leaves >> level]: the Honaker estimate of every complete block of that level."""
    starts = np.array([nodes(end - 1) for end in range(1, leaves + 1)], dtype=np.int64)
    estimates = [noise[:, starts].astype(np.float64)]
    for level in range(1, levels(leaves)):
        own = noise[:, starts[(1 << level) - 1 :: 1 << level] + level].astype(np.float64)
        below = estimates[-1]
        count = own.shape[1]
        weight = float(block_variance(level))
        estimates.append(own * weight + (below[:, 0 : 2 * count : 2] + below[:, 1 : 2 * count : 2]) * (1 - weight))
    return estimates


def prefix_noise(noise: npt.NDArray[np.int64], leaves: int) -> Floats:
    """The noise of every estimated prefix.

    `noise`: int64[k, nodes(leaves)] or more columns, the nodes' noise by number, in any unit. Returns
    float64[k, leaves] in the same unit; its error against `prefix_noise_exact` is below `relative_error(leaves)` times
    the largest |node|.
    Every output is a fixed sequence of float64 additions and multiplications per row, so it does not depend on k.
    """
    estimates = _estimate_blocks(noise, leaves)
    prefix = np.zeros((noise.shape[0], leaves + 1), dtype=np.float64)
    for level in range(levels(leaves) - 1, -1, -1):
        ends = np.arange(1 << level, leaves + 1, 2 << level)  # leaves whose lowest set bit is 2^level
        prefix[:, ends] = prefix[:, ends - (1 << level)] + estimates[level][:, 0::2]
    return prefix[:, 1:]


def last_prefix_noise(noise: npt.NDArray[np.int64], leaf: int) -> Floats:
    """float64[k]: column `leaf` of `prefix_noise`, bit for bit, without the others."""
    estimates = _estimate_blocks(noise, leaf)
    total = np.zeros(noise.shape[0], dtype=np.float64)
    end = 0
    for level in range(levels(leaf) - 1, -1, -1):
        if leaf >> level & 1:
            end += 1 << level
            total = total + estimates[level][:, (end >> level) - 1]
    return total


def prefix_noise_exact(noise: npt.NDArray[np.int64], leaf: int) -> Fraction:
    """The noise of prefix `leaf` for one row of integer node noises int64[nodes(leaf)], without rounding."""

    def block(level: int, end: int) -> Fraction:
        own = Fraction(int(noise[node_number(level, end)]))
        if level == 0:
            return own
        weight = block_variance(level)
        return own * weight + (block(level - 1, end - (1 << (level - 1))) + block(level - 1, end)) * (1 - weight)

    total, end = Fraction(0), 0
    for level in range(levels(leaf) - 1, -1, -1):
        if leaf >> level & 1:
            end += 1 << level
            total += block(level, end)
    return total


def weight_bound(leaves: int) -> float:
    """Bound on the sum of the absolute weights that nodes have in any estimated prefix of 1..leaves.

    The weights of a block's estimate are positive and sum to s_l = e_l + 2 (1 - e_l) s_(l-1) = (l + 1) e_l, s_0 = 1,
    at most (l + 2) / 2; a prefix has at most one block of each level below L = levels(leaves): L (L + 3) / 4 in all.
    """
    L = levels(leaves)
    return L * (L + 3) / 4


def relative_error(leaves: int) -> float:
    """Bound on |prefix_noise - prefix_noise_exact| as a multiple of the largest |node|.

    Every node passes through at most 4 roundings a level within its block and one a level in the prefix.
    """
    return weight_bound(leaves) * 5 * (levels(leaves) + 1) * 2.0**-52
