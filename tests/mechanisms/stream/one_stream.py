"""ToPS of a single stream, as it is defined: what a table of streams (`TopsTable`) must release for each of them."""

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.stream.addresses import AddressedNoise
from susurrus.mechanisms.stream.leaves import closed
from susurrus.mechanisms.stream.open_trees import TreeNoise, release
from susurrus.mechanisms.stream.releases import Releases, joined
from susurrus.mechanisms.stream.stream_state import UNCOUNTED, StreamState
from susurrus.mechanisms.stream.tops import Tops


def collect(mechanism: Tops, state: StreamState, values: Int64s) -> Int64s:
    """Take in values until the holdout is complete; return the rest, int64[<= n]."""
    head = values[: max(0, mechanism.holdout - state.position)]
    if len(head):
        state.held += mechanism.threshold.ranks(head).astype("<u4").tobytes()
        state.position += len(head)
    return values[len(head) :]


def advance(mechanism: Tops, state: StreamState, values: Int64s, noise: AddressedNoise, stream: bytes) -> Releases:
    """Take in values after theta; return the leaves that they complete, which do not depend on the batches."""
    memory, parts, base = TreeNoise(mechanism), [], mechanism.base
    while len(values):
        leaf, inside = divmod(state.position - mechanism.holdout, base.leaf)
        now, values = np.split(values, [base.values - (state.position - mechanism.holdout) % base.values])
        leaves = closed(
            np.clip(now, state.lower, state.theta),
            begins=np.array([0]),
            ends=np.array([len(now)]),
            offsets=np.array([inside]),
            partials=np.array([state.partial]),
            leaf=base.leaf,
        )
        if state.clipped != UNCOUNTED:
            state.clipped += int((np.minimum(now, mechanism.bound) > state.theta).sum())
        state.position += len(now)
        [state.partial] = leaves.partials.tolist()
        if len(leaves.sums):
            first = np.array([leaf])
            parts.append(release(mechanism, [state], [stream], first, leaves.counts, leaves.sums, noise, memory))
    return joined(parts)


def whole(mechanism: Tops, values: Int64s, noise: AddressedNoise, stream: bytes) -> tuple[StreamState, Releases]:
    """Take in a stream from its first value on, behind its holdout; return its state and all that it releases."""
    state = StreamState()
    rest = collect(mechanism, state, values)
    mechanism.open([state], noise, [stream])
    return state, advance(mechanism, state, rest, noise, stream)
