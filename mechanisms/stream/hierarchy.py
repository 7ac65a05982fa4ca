r"""Noise of range-sum hierarchies: fan-out b, shares of epsilon per layer, online consistency.

Source: ToPS section 4 and appendix C.  A stream is cut into leaves of b^s values, b leaves make a node, and so on.  A
*tree* is one top node with everything under it.  ToPS's hierarchy for a range limit r is a forest of b such trees.  Their
top nodes have no parent, so trees are independent.  An infinite stream is a sequence of trees, each with its own noise
addresses.

Every node of layer l (1 = leaves) is measured with noise Lap(theta / (epsilon share_l)).  Algorithm 1 of the paper
omits theta from the scale.  Consistency makes each node equal the sum of its children by least squares.  Least squares
are linear in the measurements, and a leaf is published as its own sum plus the consistent noise.  So the noise can be
made consistent before any value has arrived: the online algorithm equals the offline one (Theorem C.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.addresses import GRID, GRID_BITS, AddressedNoise, address


def choose_smoothing(*, range_limit: int, epsilon: float, fanout: int = 16, for_mean: bool = False) -> int:
    """Return s, leaves of b^s values: argmin (b-1)(log_b r - s)^3 2/epsilon^2 + b^(2s)/36 (ToPS section 4.3).

    The last term is the paper's: every guessed value has a constant bias of theta/3, which suits the smoother "recent".
    for_mean: for the smoothers "mean" and "median" it is b^s/18 + (2 b^s/r) b^(2s)/36.  On level data a mean has no
    constant bias: single values deviate, and b^s/2 independent deviations of theta/3 have variance b^s theta^2/18.  Only
    the first leaf is guessed blindly, and 2 b^s/r is the chance that a range ends there.

    All terms carry theta^2, which cancels, so s depends on no data.  s = h would leave no layer and is excluded.
    """

    def cost(s: int) -> float:
        leaf = float(fanout**s)
        bias = leaf / 18 + 2 * leaf / range_limit * leaf**2 / 36 if for_mean else leaf**2 / 36
        return (fanout - 1) * (math.log(range_limit, fanout) - s) ** 3 * 2 / epsilon**2 + bias

    return min(range(tree_height(range_limit, fanout)), key=cost)


def tree_height(range_limit: int, fanout: int) -> int:
    """Return h, the least with b^h >= r: layers of the forest without smoothing."""
    height = 1
    while fanout**height < range_limit:
        height += 1
    return height


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """One tree of the forest: ``layers`` layers over leaves of ``leaf`` values.

    Privacy: every value lies in one leaf and so in one node per layer; replacing it moves each by at most theta, so the
    nodes together are pure epsilon * sum(shares) for values clipped to [0, theta].  Consistent noise uses draws of
    nodes that are not complete yet: the guarantee is for streams that do not react to the published values within a
    tree.
    Shape: raw noise of k trees is a list of int64[k, b^(layers-1)], ..., int64[k, 1], leaves first, in 2^-8 units.
    Raises: ConfigurationError for shares that are not positive or exceed 1 together.
    """

    fanout: int
    layers: int
    leaf: int
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.fanout < 2 or self.layers < 1 or self.leaf < 1:
            raise ConfigurationError(
                f"fanout={self.fanout} layers={self.layers} leaf={self.leaf}: need >= 2, >= 1, >= 1"
            )
        if (
            len(self.shares) != self.layers
            or min(self.shares) <= 0
            or sum(map(Fraction, self.shares)) > 1 + Fraction(1, 2**50)
        ):
            raise ConfigurationError(f"shares={self.shares}: need one positive share per layer, together at most 1")

    @classmethod
    def uniform(cls, *, range_limit: int, smoothing: int, fanout: int = 16) -> "Hierarchy":
        """Return ToPS's hierarchy: h - s layers with equal shares."""
        height = tree_height(range_limit, fanout)
        if not 0 <= smoothing < height:
            raise ConfigurationError(
                f"smoothing={smoothing}: must lie in 0..{height - 1} for range_limit={range_limit}"
            )
        layers = height - smoothing
        return cls(fanout=fanout, layers=layers, leaf=fanout**smoothing, shares=(1 / layers,) * layers)

    def reduced(self, share: float) -> "Hierarchy":
        """Return the hierarchy that leaves this share of epsilon unspent: exactly, for short binary fractions."""
        shares = tuple(each * (1 - share) for each in self.shares)
        return Hierarchy(fanout=self.fanout, layers=self.layers, leaf=self.leaf, shares=shares)

    @property
    def leaves(self) -> int:
        """Leaves per tree."""
        return int(self.fanout ** (self.layers - 1))

    @property
    def values(self) -> int:
        """Values per tree."""
        return self.leaf * self.leaves

    def subtree_variances(self) -> Floats:
        """Return float64[layers]: variance of a node estimated from its own subtree, unit (theta / epsilon)^2.

        v_1 = 2/share_1^2, and v_l combines the node's own measurement with the sum of its b children.
        """
        own = [2 / share**2 for share in self.shares]
        variances = [own[0]]
        for variance in own[1:]:
            children = self.fanout * variances[-1]
            variances.append(variance * children / (variance + children))
        return np.array(variances)

    def draw(
        self, noise: AddressedNoise, streams: Sequence[bytes], tree: int | Int64s, theta: int | Int64s, epsilon: float
    ) -> list[Int64s]:
        """Return the raw noise of one tree of each stream, layer by layer: int64[streams, nodes of the layer].

        tree, theta: the same for all streams, or int64[streams].
        Address: ("tops/node", stream, tree, layer), index = node within the layer.
        """
        raw = []
        trees = np.broadcast_to(tree, len(streams)).tolist()
        for layer, share in enumerate(self.shares):
            labels = noise.labels("tops/node", [address(*of, layer) for of in zip(streams, trees, strict=True)])
            scale = theta / (epsilon * share)
            raw.append(
                noise.laplace(labels, 0, self.fanout ** (self.layers - 1 - layer) - 1, scale=scale, bits=GRID_BITS)
            )
        return raw

    def upward_weights(self) -> list[Fraction]:
        """Return for layers 2.. the exact weight of a node's own measurement against the sum of its children."""
        own = [2 / Fraction(share) ** 2 for share in self.shares]
        subtree, weights = own[0], []
        for variance in own[1:]:
            children = self.fanout * subtree
            weights.append(children / (children + variance))
            subtree = variance * children / (children + variance)
        return weights

    def consistent(self, raw: Sequence[Int64s | Floats]) -> Floats:
        """Return float64[k, leaves], unit as raw: consistent noise of the leaves.

        Upwards every node becomes the weighted mean of its own measurement and the sum of its children; downwards
        N_child = up_child + (N_parent - sum up) / b.  For equal shares the upward weight is (b^l - b^(l-1)) / (b^l - 1),
        as in the paper's appendix C.
        """
        up = [np.asarray(raw[0], dtype=np.float64)]
        for own, weight in zip(raw[1:], self.upward_weights(), strict=True):
            w = float(weight)
            up.append(w * own + (1 - w) * self._group(up[-1]).sum(axis=-1))
        level = up[-1]
        for below in reversed(up[:-1]):
            groups = self._group(below)
            level = (groups + ((level - groups.sum(axis=-1)) / self.fanout)[..., None]).reshape(below.shape)
        return level

    def rounded(self, raw: Sequence[Int64s]) -> Int64s:
        """Return int64[k, leaves]: floor(exact consistent noise + 1/2), in whole value units.

        A published leaf is its integer sum n plus this integer; n + floor(N + 1/2) = floor(n + N + 1/2) is a function
        of the noisy nodes alone.  The float64 result decides, except within its error bound of a tie.  There the tree is
        computed in exact fractions.
        """
        noise = self.consistent(raw) / GRID
        rounded = np.floor(noise + 0.5)
        largest = max(float(np.max(np.abs(layer), initial=0)) for layer in raw) / GRID
        tolerance = 1e-13 * (1 + largest) * self.fanout * self.layers
        doubtful = np.argwhere(np.abs(noise - np.floor(noise) - 0.5) <= tolerance)
        result = rounded.astype(np.int64)
        for tree in np.unique(doubtful[:, 0]):
            exact = self.exact([layer[tree] for layer in raw])
            for leaf in doubtful[doubtful[:, 0] == tree, 1]:
                result[tree, leaf] = math.floor(exact[leaf] + Fraction(1, 2))
        return result

    def exact(self, raw: Sequence[Int64s]) -> list[Fraction]:
        """Return one tree's consistent leaf noise in value units, in exact arithmetic.  Slow: for ties and for tests."""
        up = [[Fraction(int(draw), GRID) for draw in raw[0]]]
        b = self.fanout
        for own, weight in zip(raw[1:], self.upward_weights(), strict=True):
            below = up[-1]
            sums = [sum(below[i * b : (i + 1) * b], Fraction(0)) for i in range(len(own))]
            up.append([weight * Fraction(int(o), GRID) + (1 - weight) * c for o, c in zip(own, sums, strict=True)])
        level = up[-1]
        for below in reversed(up[:-1]):
            shift = [(node - sum(below[i * b : (i + 1) * b], Fraction(0))) / b for i, node in enumerate(level)]
            level = [value + shift[i // b] for i, value in enumerate(below)]
        return level

    def prefix_variances(self) -> Floats:
        """Return float64[leaves + 1]: variance of the sum of a tree's first k leaf noises, unit (theta / epsilon)^2."""
        k = np.arange(self.leaves + 1, dtype=np.float64)
        variances = self.subtree_variances()
        total = variances[-1] * (k / self.leaves) ** 2
        for layer, variance in enumerate(variances[:-1]):
            inside = k / self.fanout**layer % self.fanout
            whole = np.floor(inside)
            total += variance * (whole + (inside - whole) ** 2 - inside**2 / self.fanout)
        return np.asarray(total)

    def variances(self, weights: Floats) -> Floats:
        """Return float64[q]: variances of weighted sums float64[q, leaves] of one tree's consistent leaf noises.

        Consistent noise is exchangeable among siblings: a node's noise is its parent's / b plus a deviation of variance
        v_l (1 - 1/b), and the deviations of siblings sum to 0.  So the layers contribute separately.
        Unit (theta / epsilon)^2.
        """
        level = np.asarray(weights, dtype=np.float64)
        total = np.zeros(len(level))
        variances = self.subtree_variances()
        for variance in variances[:-1]:
            groups = self._group(level)
            sums = groups.sum(axis=-1)
            total += variance * ((groups**2).sum(axis=(-1, -2)) - (sums**2).sum(axis=-1) / self.fanout)
            level = sums / self.fanout
        return np.asarray(total + variances[-1] * level[:, 0] ** 2)

    def _group(self, nodes: Floats) -> Floats:
        return nodes.reshape(*nodes.shape[:-1], -1, self.fanout)
