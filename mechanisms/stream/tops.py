"""ToPS: threshold, hierarchy, smoother, as one state machine per stream (Wang et al., CCS 2021, Algorithm 1).

    values 1..m ──NoisyMax──▶ theta        values m+1.. ──clip──▶ leaves ──Hierarchy──▶ released leaf sums ──▶ filter

``adaptive=False`` is the published algorithm with its errors corrected: Algorithm 1 with smoothing, where leaves are sums
of b^s values and h - s layers remain.  The default adds one-sided noise on a geometric grid for theta, an adaptive split
of epsilon over the layers, and the causal filter.  docs/guarantees/tops.md and tops-filter.md have the arguments.

Privacy: pure epsilon, event level: neighbours replace the value of one event at a public position of one stream.  theta
depends on the first m values only and each later value lies in one tree only, so the parts compose in parallel.  There
is no guarantee for a user with several events.  Within a tree the stream must not react to its own published sums.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from susurrus.mechanisms.errors import ConfigurationError, Refusal
from susurrus.mechanisms.kalman import BlockBank
from susurrus.mechanisms.stream.addresses import AddressedNoise, Floats, Ints
from susurrus.mechanisms.stream.allocation import Allocation
from susurrus.mechanisms.stream.hierarchy import Hierarchy, choose_smoothing
from susurrus.mechanisms.stream.leaves import closed
from susurrus.mechanisms.stream.open_trees import TreeNoise, release
from susurrus.mechanisms.stream.releases import Releases, joined
from susurrus.mechanisms.stream.smoothers import Smoother
from susurrus.mechanisms.stream.threshold import NoisyMax

STATE_VERSION = 2
"""1 also held a smoother."""
MOST_HELD = 512
"""Held-out values kept as they came; more are kept as a histogram."""
_NO_INTS = np.zeros(0, dtype=np.int64)
_NO_FLOATS = np.zeros((0, 0))
_HEAD = struct.Struct("<BqqqqdBIIIIII")
_KINDS = ("<u4", "<u4", "<i8", "<f8")
"""Of the arrays behind the head and the held ranks: ranks, counts, open leaves, evidence.  The filter's bytes follow."""


@dataclass(slots=True)
class StreamState:
    """One stream.  theta = 0: it still collects ``held`` (ranks as they came, little-endian uint32) and the sparse
    histogram ``ranks``, ``counts`` for Noisy Max.

    position: events seen.  partial: clipped sum of the open leaf.  running: released plain running sum.  variance: of
    the complete trees in it, unit (theta / epsilon)^2.  The open block's released leaves are ``open_leaves``.
    """

    position: int = 0
    theta: int = 0
    partial: int = 0
    running: int = 0
    variance: float = 0.0
    entry: int = 0
    held: bytes = b""
    ranks: Ints = field(default_factory=lambda: _NO_INTS)
    counts: Ints = field(default_factory=lambda: _NO_INTS)
    open_leaves: Ints = field(default_factory=lambda: _NO_INTS)
    evidence: Floats = field(default_factory=lambda: _NO_FLOATS)
    filter: BlockBank | None = None

    def fold(self) -> None:
        """Merge the held ranks: up to MOST_HELD as they came, more as a histogram.  The result depends on no batch."""
        if self.held and self.position > MOST_HELD:
            ranks, counts = np.unique(np.frombuffer(self.held, "<u4").astype(np.int64), return_counts=True)
            merged, inverse = np.unique(np.concatenate([self.ranks, ranks]), return_inverse=True)
            total = np.zeros(len(merged), dtype=np.int64)
            np.add.at(total, inverse, np.concatenate([self.counts, counts]))
            self.held, self.ranks, self.counts = b"", merged, total

    def pack(self) -> bytes:
        """Return the little-endian bytes of the state."""
        self.fold()
        numbers = (self.position, self.theta, self.partial, self.running, self.variance, self.entry)
        if not self.theta and not len(self.ranks):  # most streams of most pipelines
            return _HEAD.pack(STATE_VERSION, *numbers, len(self.held) // 4, 0, 0, *self.evidence.shape, 0) + self.held
        bank = self.filter.pack() if self.filter is not None else b""
        sizes = (len(self.held) // 4, len(self.ranks), len(self.open_leaves), *self.evidence.shape, len(bank))
        arrays = (self.ranks, self.counts, self.open_leaves, self.evidence)
        parts = [array.astype(kind).tobytes() for array, kind in zip(arrays, _KINDS, strict=True)]
        return b"".join((_HEAD.pack(STATE_VERSION, *numbers, *sizes), self.held, *parts, bank))

    @classmethod
    def unpack(cls, data: bytes, mechanism: "Tops") -> Self:
        """Return the state packed by ``pack``.  Raises Refusal for another version."""
        if data[0] != STATE_VERSION:
            raise Refusal(
                f"stored state of a stream has version={data[0]}, not {STATE_VERSION}: run the version of Susurrus that wrote it, "
                "or start a new epoch (susurrus ledger new-epoch)"
            )
        (_, *numbers, waiting, ranks, leaves, rows, columns, bank) = _HEAD.unpack_from(data)
        state, place = cls(*numbers), _HEAD.size + 4 * waiting
        state.held = data[_HEAD.size : place]
        arrays = []
        for count, kind in zip((ranks, ranks, leaves, rows * columns), _KINDS, strict=True):
            arrays.append(np.frombuffer(data[place : place + count * int(kind[-1])], dtype=kind))
            place += arrays[-1].nbytes
        *integers, evidence = arrays
        state.ranks, state.counts, state.open_leaves = (array.astype(np.int64) for array in integers)
        state.evidence = evidence.astype(np.float64).reshape(rows, columns)
        if bank:
            state.filter = BlockBank.unpack(data[place:], mechanism.allocation.models)
        return state


@dataclass(frozen=True)
class Tops:
    """The mechanism for streams of one pipeline; all fields are public constants.

    holdout: m, the values that theta is chosen from.  adaptive: filter and adaptive split.
    """

    threshold: NoisyMax
    epsilon: float
    holdout: int
    base: Hierarchy
    smoother: Smoother
    adaptive: bool

    @classmethod
    def of(
        cls,
        *,
        bound: int,
        epsilon: float,
        holdout: int,
        range_limit: int,
        fanout: int = 16,
        smoothing: int | None = None,
        smoother: Smoother = Smoother.MEAN,
        adaptive: bool = True,
    ) -> Self:
        """Return ToPS with the causal filter, the adaptive split and its own threshold; as published if not adaptive.

        bound: values are clamped to [0, bound], value grid units.  range_limit: r, the longest range that queries are
        tuned for.  smoothing: s, chosen by default.  Raises ConfigurationError.
        """
        if not 1 <= holdout < 2**32:
            raise ConfigurationError(f"holdout={holdout}: between 1 and 2^32 values are needed for the threshold")
        if smoothing is None:
            smoothing = choose_smoothing(range_limit=range_limit, epsilon=epsilon, fanout=fanout)
        base = Hierarchy.uniform(range_limit=range_limit, smoothing=smoothing, fanout=fanout)
        threshold = NoisyMax.of(
            bound=bound, epsilon=epsilon, holdout=holdout, range_limit=range_limit, fanout=fanout, adaptive=adaptive
        )
        return cls(threshold, epsilon, holdout, base, smoother, adaptive)

    @cached_property
    def allocation(self) -> Allocation:
        """Menu and models."""
        return Allocation(self.base, self.epsilon)

    @cached_property
    def menu(self) -> tuple[Hierarchy, ...]:
        """The hierarchies a tree may use."""
        return self.allocation.menu if self.adaptive else (self.base,)

    @cached_property
    def prefix_variances(self) -> Floats:
        """float64[menu, leaves + 1]: of each hierarchy of the menu."""
        return np.stack([hierarchy.prefix_variances() for hierarchy in self.menu])

    # --- phase 1 ------------------------------------------------------------------------------------------------------

    def start(self) -> StreamState:
        """Return the state of a stream never seen."""
        return StreamState()

    def collect(self, state: StreamState, values: Ints) -> Ints:
        """Take in values until the holdout is complete; return the rest, int64[<= n]."""
        head = values[: max(0, self.holdout - state.position)]
        if len(head):
            state.held += self.threshold.ranks(head).astype("<u4").tobytes()
            state.position += len(head)
        return values[len(head) :]

    def histogram(self, state: StreamState) -> Ints:
        """Return the ``NoisyMax.count`` of the collected values, int64[candidates + 1]."""
        result = np.zeros(len(self.threshold.candidates) + 1, dtype=np.int64)
        result[state.ranks] = state.counts
        result += np.bincount(np.frombuffer(state.held, "<u4").astype(np.int64), minlength=len(result))
        return result

    def open(self, states: Sequence[StreamState], noise: AddressedNoise, streams: Sequence[bytes]) -> None:
        """Release theta of streams that have collected m values.  Charges epsilon to those values."""
        counts = np.stack([self.histogram(state) for state in states])
        thetas = self.threshold.release(counts, noise, streams)
        for state, theta in zip(states, thetas.tolist(), strict=True):
            state.theta = theta
            state.held, state.ranks, state.counts = b"", _NO_INTS, _NO_INTS
            if self.adaptive:
                state.entry = self.allocation.first
                state.filter = BlockBank(self.allocation.models)
                layers = self.allocation.deviations
                state.evidence = np.zeros((len(layers), len(layers[0].scale) if layers else 0))

    # --- phase 2 ------------------------------------------------------------------------------------------------------

    def advance(self, state: StreamState, values: Ints, noise: AddressedNoise, stream: bytes) -> Releases:
        """Take in values after theta; return the leaves that they complete, which do not depend on the batches."""
        leaves = closed(
            np.clip(values, 0, state.theta),
            begins=np.array([0]),
            ends=np.array([len(values)]),
            offsets=np.array([(state.position - self.holdout) % self.base.leaf]),
            partials=np.array([state.partial]),
            leaf=self.base.leaf,
        )
        first = (state.position - self.holdout) // self.base.leaf
        state.position += len(values)
        [state.partial] = leaves.partials.tolist()
        if not len(leaves.sums):
            return joined([])
        memory = TreeNoise(self)
        return release(self, [state], [stream], np.array([first]), leaves.counts, leaves.sums, noise, memory)
