"""ToPS: threshold, hierarchy, smoother, as one state machine per stream (Wang et al., CCS 2021, Algorithm 1).

    values 1..m ──NoisyMax──▶ theta        values m+1.. ──clip──▶ leaves ──Hierarchy──▶ released leaf sums ──▶ filter

``adaptive=False`` is the published algorithm with its errors corrected: Algorithm 1 with smoothing, where leaves are sums
of b^s values and h - s layers remain.  The default adds one-sided noise on a geometric grid for theta, an adaptive split
of epsilon over the layers, and the causal filter.  docs/guarantees/tops.md and tops-filter.md have the arguments.

Privacy: pure epsilon, event level: neighbours replace the value of one event at a public position of one stream.  theta
depends on the first m values only and each later value lies in one tree only, so the parts compose in parallel.  There
is no guarantee for a user with several events.  Within a tree the stream must not react to its own published sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.kalman import BlockBank
from susurrus.mechanisms.stream.addresses import AddressedNoise, Floats, Ints
from susurrus.mechanisms.stream.allocation import Allocation
from susurrus.mechanisms.stream.hierarchy import Hierarchy, choose_smoothing
from susurrus.mechanisms.stream.leaves import closed
from susurrus.mechanisms.stream.open_trees import TreeNoise, release
from susurrus.mechanisms.stream.releases import Releases, joined
from susurrus.mechanisms.stream.smoothers import Smoother
from susurrus.mechanisms.stream.stream_state import StreamState
from susurrus.mechanisms.stream.threshold import NoisyMax

_NO_INTS = np.zeros(0, dtype=np.int64)


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
