"""PAK: smooth-sensitivity threshold, then a binary tree of running sums.

Source: Perrier, Asghar, Kaafar, NDSS 2019, Mechanism 1.

    values 1..m ──SmoothQuantile (epsilon_1, delta)──▶ theta       their clipped sum + Lap(theta / epsilon_2) = initial
    block values m+1.. ──clip──▶ binary tree, Lap(theta levels / epsilon) per node ──▶ running sum after every value

Corrections to the paper: the initial block's sum is clipped at theta (unclipped, its sensitivity is B and not tau); the
tree's noise uses the published theta = r tau, not tau; n leaves need n.bit_length() levels ("log2 n" is one too few at
powers of two).  A stream longer than the planned horizon begins a new tree on fresh addresses.

Privacy: (epsilon, delta), event level: neighbours replace the value of one event at a public position.  An event is
either among the first m, where (epsilon_1, delta) and (epsilon_2, 0) compose, or in exactly one tree, (epsilon, 0).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.errors import ConfigurationError, Refusal
from susurrus.mechanisms.stream.addresses import GRID_BITS, AddressedNoise, address, whole
from susurrus.mechanisms.stream.quantile import SmoothQuantile
from susurrus.mechanisms.stream.releases import Releases, joined

STATE_VERSION = 1
_HEAD = struct.Struct("<Bqqqqq")
_Floating = npt.NDArray[np.floating[Any]]


@dataclass
class PakState:
    """One stream.  theta = 0: collecting ``values``.  exact: clipped sum of the open tree, not private.

    base: released sum of everything before the open tree; variance: of its noise, unit theta^2.
    """

    position: int = 0
    theta: int = 0
    exact: int = 0
    base: int = 0
    base_variance: float = 0.0
    values: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    HEAD_BYTES: ClassVar[int] = _HEAD.size + 8
    """Bytes before the held-out values."""

    def pack(self) -> bytes:
        """Return the little-endian bytes of the state."""
        head = _HEAD.pack(STATE_VERSION, self.position, self.theta, self.exact, self.base, len(self.values))
        return head + struct.pack("<d", self.base_variance) + self.values.astype("<i8").tobytes()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the state packed by ``pack``.  Raises Refusal for another version."""
        version, position, theta, exact, base, count = _HEAD.unpack_from(data)
        if version != STATE_VERSION:
            raise Refusal(
                f"stored state of a stream has version={version}, not {STATE_VERSION}",
                "run the version of Susurrus that wrote it, or start a new epoch (susurrus ledger new-epoch)",
            )
        (variance,) = struct.unpack_from("<d", data, _HEAD.size)
        values = np.frombuffer(data, dtype="<i8", count=count, offset=_HEAD.size + 8).astype(np.int64)
        return cls(position, theta, exact, base, variance, values)


def tree_noise(
    noise: AddressedNoise, stream: bytes, tree: int, first: int, last: int, levels: int, scale: float
) -> Int64s:
    """Return int64[last - first + 1]: summed node noise of the prefixes first..last (1-based), grid 2^-8.

    The prefix of i leaves is the disjoint union of one node per set bit l of i: node (i >> l) - 1 of level l.
    Address: ("pak/node", stream, tree, level), index = node within the level.
    """
    i = np.arange(first, last + 1)
    total = np.zeros(len(i), dtype=np.int64)
    for level in range(levels):
        used = (i >> level) & 1 == 1
        if not used.any():
            continue
        nodes = (i[used] >> level) - 1
        label = noise.labels("pak/node", [address(stream, tree, level)])
        drawn = noise.laplace(label, int(nodes[0]), int(nodes[-1]), scale=scale, bits=GRID_BITS)[0]
        total[used] += drawn[nodes - nodes[0]]
    return total


def set_bits(numbers: Int64s) -> Int64s:
    """Return how many bits are set in each number."""
    return np.bitwise_count(numbers.astype(np.uint64)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pak:
    """The mechanism for streams of one pipeline; all fields are public constants.

    threshold: at epsilon_1 = threshold.epsilon.  horizon: n, values per stream for which the tree is sized, holdout
    included.  Raises: ConfigurationError.
    """

    threshold: SmoothQuantile
    epsilon: float
    horizon: int

    def __post_init__(self) -> None:
        if not 0 < self.threshold.epsilon < self.epsilon:
            raise ConfigurationError(
                f"epsilon={self.epsilon} epsilon_1={self.threshold.epsilon}: the threshold takes a part of epsilon, "
                "the initial block the rest"
            )
        if self.horizon <= self.holdout:
            raise ConfigurationError(f"horizon={self.horizon} holdout={self.holdout}: the horizon must be longer")

    @property
    def holdout(self) -> int:
        """Values of the first part, from which theta is released (m)."""
        return self.threshold.holdout

    @property
    def leaves(self) -> int:
        """Values per tree."""
        return self.horizon - self.holdout

    @property
    def levels(self) -> int:
        """Nodes that one value enters at most."""
        return self.leaves.bit_length()

    def start(self) -> PakState:
        """Return the state of a stream never seen."""
        return PakState()

    def collect(self, state: PakState, values: Int64s) -> Int64s:
        """Take in values until the holdout is complete; return the rest."""
        head = values[: max(0, self.holdout - state.position)]
        if len(head):
            state.values = np.concatenate([state.values, np.clip(head, 0, self.threshold.bound)])
            state.position += len(head)
        return values[len(head) :]

    def open(self, state: PakState, noise: AddressedNoise, stream: bytes) -> Releases:
        """Release theta and the initial block's sum of a stream that has collected m values.

        The block's draw is at address ("pak/block/2", stream), of version 2 as the threshold's is.
        """
        theta = int(self.threshold.release(state.values[None], noise, [stream])[0])
        scale = theta / (self.epsilon - self.threshold.epsilon)
        drawn = noise.laplace(noise.labels("pak/block/2", [address(stream)]), 0, 0, scale=scale, bits=GRID_BITS)
        state.base = int(np.minimum(state.values, theta).sum()) + int(whole(drawn[0, 0]))
        state.base_variance = 2 * (scale / theta) ** 2
        state.theta = theta
        state.values = np.zeros(0, dtype=np.int64)
        variance = np.array([state.base_variance])
        block = np.array([0]), np.array([self.holdout - 1])
        return _rows(*block, np.array([0, state.base]), (variance, variance), theta)

    def advance(self, state: PakState, values: Int64s, noise: AddressedNoise, stream: bytes) -> Releases:
        """Take in values after theta; return the running sum after each, which does not depend on the batches."""
        clipped = np.clip(values, 0, state.theta)
        scale = state.theta * self.levels / self.epsilon
        node = 2 * (self.levels / self.epsilon) ** 2
        parts, done = [], 0
        while done < len(clipped):
            tree, inside = divmod(state.position - self.holdout, self.leaves)
            count = min(self.leaves - inside, len(clipped) - done)
            exact = state.exact + np.concatenate(([0], np.cumsum(clipped[done : done + count])))
            prefix = np.arange(inside, inside + count + 1)
            drawn = tree_noise(noise, stream, tree, max(inside, 1), inside + count, self.levels, scale)
            if not inside:
                drawn = np.concatenate(([0], drawn))
            running = state.base + exact + whole(drawn)
            variances = state.base_variance + set_bits(prefix) * node
            # The next prefix has one node more, and lacks the nodes of its trailing zeros.
            changed = 1 + np.log2(prefix[1:] & -prefix[1:]).astype(np.int64)
            positions = state.position + np.arange(count)
            steps = node * changed.astype(np.float64)
            parts.append(_rows(positions, positions, running, (steps, variances[1:]), state.theta))
            state.exact = int(exact[-1])
            if inside + count == self.leaves:
                state.base, state.exact = int(running[-1]), 0
                state.base_variance = float(variances[-1])
            state.position += count
            done += count
        return joined(parts)


def _rows(first: Int64s, last: Int64s, running: Int64s, variances: Sequence[_Floating], theta: int) -> Releases:
    """Return n rows from int64[n + 1] running sums: before the rows, and after each.

    variances: float64[n] each, of the noise in a row's step and in its running sum, unit theta^2.
    """
    value_error, sum_error = (np.sqrt(variance * theta**2 + 1 / 12) for variance in variances)
    missing, none = np.full(len(first), np.nan), np.zeros(len(first), dtype=np.int64)
    return Releases(
        first=first,
        last=last,
        value=np.diff(running),
        value_error=value_error,
        sum=running[1:],
        sum_error=sum_error,
        layout=none,
        theta=none + theta,
        lower=none,
        filtered_sum=missing,
        filtered_sum_error=missing,
        fit=missing,
        jump_first=none - 1,
        jump_last=none - 1,
        clipped=missing,
        clipped_error=missing,
        truncated=missing,
        truncated_error=missing,
    )
