"""ToPS: threshold, hierarchy, smoother (Wang et al., CCS 2021, Algorithm 1).  table.py steps many streams through it.

    values 1..m ──NoisyMax──▶ theta        values m+1.. ──clip──▶ leaves ──Hierarchy──▶ released leaf sums ──▶ filter
                                ▲                                                                               │
                                └──────────────────────── Growth, once per tree ◀───────────────────────────────┘

``adaptive=False`` is the published algorithm with its errors corrected: Algorithm 1 with smoothing, where leaves are sums
of b^s values and h - s layers remain.  The default adds one-sided noise and a cost without unit for theta, a lower clip, an
adaptive split of epsilon over the layers, the causal filter, and a clipping range that follows the level from tree to tree.
docs/guarantees/tops.md and tops-filter.md have the arguments.

Privacy: pure epsilon, event level: neighbours replace the value of one event at a public position of one stream.  The first
range depends on the first m values only, each later value lies in one tree only, and a tree's range is a function of what
was released before it, so the parts compose in parallel.  A tree whose clipped values are counted spends a part of its epsilon
on the count.  There is no guarantee for a user with several events.  Within a tree the stream must not react to its own
published sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.kalman import BlockBank
from susurrus.mechanisms.stream.addresses import AddressedNoise
from susurrus.mechanisms.stream.allocation import Allocation
from susurrus.mechanisms.stream.block_filters import open_tree
from susurrus.mechanisms.stream.growth import Growth
from susurrus.mechanisms.stream.hierarchy import Hierarchy, choose_smoothing
from susurrus.mechanisms.stream.lower_clip import LowerClip
from susurrus.mechanisms.stream.smoothers import Smoother
from susurrus.mechanisms.stream.stream_state import StreamState
from susurrus.mechanisms.stream.threshold import NoisyMax

LOWER_SHARE = 5 / 32
"""The share of the threshold's epsilon for the lower clip.  Exact in binary."""
LOWER_FROM = 4096
"""A lower clip is sought by default from so many held-out values times epsilon: with less, its noise costs what it gains."""
_NO_INTS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Tops:
    """The mechanism for streams of one pipeline; all fields are public constants.

    holdout: m, the values that theta is chosen from.  adaptive: filter and adaptive split.  lower_clip: None for a range from 0.
    The epsilons of threshold and lower_clip are together at most ``epsilon``.
    """

    threshold: NoisyMax
    lower_clip: LowerClip | None
    growth: Growth
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
        growth: Growth | None = None,
        lower_share: float | None = None,
    ) -> Self:
        """Return ToPS with the causal filter, the adaptive split and a range that follows; as published if not adaptive.

        bound: values are clamped to [0, bound], value grid units.  range_limit: r, the longest range that queries are
        tuned for.  smoothing: s, chosen by default.  growth: its rules, ``Growth(share=0)`` for none.  lower_share: of the
        threshold's epsilon for the lower clip, 0 for none, LOWER_SHARE by default if the holdout is large enough.
        Raises ConfigurationError.
        """
        if not 1 <= holdout < 2**32:
            raise ConfigurationError(f"holdout={holdout}: between 1 and 2^32 values are needed for the threshold")
        if smoothing is None:
            smoothing = choose_smoothing(range_limit=range_limit, epsilon=epsilon, fanout=fanout)
        base = Hierarchy.uniform(range_limit=range_limit, smoothing=smoothing, fanout=fanout)
        if lower_share is None:
            lower_share = LOWER_SHARE if holdout * epsilon >= LOWER_FROM else 0.0
        if not adaptive:
            growth, lower_share = Growth(share=0.0), 0.0
        threshold = NoisyMax.of(
            bound=bound,
            epsilon=epsilon,
            share=1 - lower_share,
            holdout=holdout,
            range_limit=range_limit,
            fanout=fanout,
            adaptive=adaptive,
        )
        lower_clip = LowerClip(threshold=threshold, epsilon=epsilon * lower_share) if lower_share else None
        return cls(threshold, lower_clip, growth or Growth(), epsilon, holdout, base, smoother, adaptive)

    @property
    def bound(self) -> int:
        """Values are clamped to [0, bound]."""
        return self.threshold.bound

    @property
    def count_epsilon(self) -> float:
        """The epsilon of the count of a tree's clipped values."""
        return self.epsilon * self.growth.share

    @cached_property
    def allocation(self) -> Allocation:
        """Menu and models."""
        return Allocation(self.base, self.epsilon)

    @cached_property
    def menu(self) -> tuple[Hierarchy, ...]:
        """The hierarchies a tree may use: those of the allocation, then the same for trees that also count."""
        if not self.adaptive:
            return (self.base,)
        counting = [hierarchy.reduced(self.growth.share) for hierarchy in self.allocation.menu if self.growth.share]
        return (*self.allocation.menu, *counting)

    @cached_property
    def prefix_variances(self) -> Floats:
        """float64[menu, leaves + 1]: of each hierarchy of the menu."""
        return np.stack([hierarchy.prefix_variances() for hierarchy in self.menu])

    def unpack(self, data: bytes) -> StreamState:
        """Return the state that ``StreamState.pack`` has written.  Raises Refusal for another version."""
        state = StreamState.unpack(data, self.allocation.models)
        if state.before is not None:
            state.filter = open_tree(self, state).current()
        return state

    def histogram(self, state: StreamState) -> Int64s:
        """Return the ``NoisyMax.count`` of the collected values, int64[candidates + 1]."""
        result = np.zeros(len(self.threshold.candidates) + 1, dtype=np.int64)
        result[state.ranks] = state.counts
        result += np.bincount(np.frombuffer(state.held, "<u4").astype(np.int64), minlength=len(result))
        return result

    def open(self, states: Sequence[StreamState], noise: AddressedNoise, streams: Sequence[bytes]) -> None:
        """Release the first range of streams that have collected m values.  Charges epsilon to those values."""
        counts = np.stack([self.histogram(state) for state in states])
        thetas = self.threshold.release(counts, noise, streams)
        lowers = np.zeros_like(thetas)
        if self.lower_clip is not None:
            lowers = self.lower_clip.release(counts, thetas, noise, streams)
        for state, theta, lower in zip(states, thetas.tolist(), lowers.tolist(), strict=True):
            state.theta, state.lower = state.first_theta, state.first_lower = theta, lower
            state.held, state.ranks, state.counts = b"", _NO_INTS, _NO_INTS
            if self.adaptive:
                state.entry = self.allocation.first
                state.before = BlockBank(self.allocation.models)
                state.filter = BlockBank(self.allocation.models)
                layers = self.allocation.deviations
                state.evidence = np.zeros((len(layers), len(layers[0].scale) if layers else 0))
            if self.growth.share:  # the first tree counts: nothing is known of what theta cuts off
                state.entry, state.clipped = state.entry + len(self.allocation.menu), 0
