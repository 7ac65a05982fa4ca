"""What follows from a complete tree: its count is released, and its released numbers choose the next tree's split and range.

    released blocks, the filter's level, the noisy count ──▶ growth.py ──▶ theta, lower, whether to count
    the filter's posterior ──▶ allocation.py ──▶ the split of epsilon

``open_trees`` calls this when the last leaf of a tree has been released, before any value of the next tree is clipped.
"""

from collections.abc import Sequence

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.kalman import BlockBank, mixture_weights
from susurrus.mechanisms.stream.addresses import AddressedNoise
from susurrus.mechanisms.stream.constants import TopsConstants
from susurrus.mechanisms.stream.growth import Seen, count_noise, truncation
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.stream_state import UNCOUNTED, StreamState


def close(
    mechanism: TopsConstants,
    states: Sequence[StreamState],
    addresses: Sequence[bytes],
    trees: Int64s,
    last: Int64s,
    released: Releases,
    noise: AddressedNoise,
) -> None:
    """Trees are complete: their variance stays in the running sums, and what they released chooses the next split and range.

    last: int64[streams], their last rows.
    """
    for state in states:
        state.variance += float(mechanism.prefix_variances[state.entry, -1]) * state.ratio**2
    if not mechanism.adaptive:
        return
    counting = np.array([state.clipped != UNCOUNTED for state in states])
    if counting.any():
        some = np.flatnonzero(counting)
        drawn = count_noise(noise, [addresses[p] for p in some.tolist()], trees[some], mechanism.count_epsilon)
        exact = np.array([states[place].clipped for place in some.tolist()])
        released.clipped[last[some]] = exact + drawn
        released.clipped_error[last[some]] = (2 / mechanism.count_epsilon**2 + 1 / 12) ** 0.5
    for state, row, first in zip(states, last.tolist(), (trees == 0).tolist(), strict=True):
        assert state.filter is not None
        seen = seen_of(mechanism, state, released.clipped[row], released.clipped_error[row])
        if seen.clipped is not None:
            cut = truncated(mechanism, state, seen)
            released.truncated[row], released.truncated_error[row] = cut
        weights = [mixture_weights(each) for each in state.evidence]
        state.entry = mechanism.allocation.choose(state.filter.weights(), weights)
        if mechanism.growth.share and mechanism.growth.follow(state.followed, seen, first=first):
            state.entry, state.clipped = state.entry + len(mechanism.allocation.menu), 0
        else:
            state.clipped = UNCOUNTED
        lower = 0 if state.followed.fallen else state.first_lower
        theta = min(mechanism.bound, state.first_lower + round(state.width * state.followed.factor))
        state.moved = (theta, lower) != (state.theta, state.lower)
        state.theta, state.lower = theta, lower
        state.open_blocks, state.before = np.zeros(0), BlockBank(state.filter.models, state.filter.numbers.copy())


def seen_of(mechanism: TopsConstants, state: StreamState, clipped: float, clipped_error: float) -> Seen:
    """Return what the rules of growth see of a complete tree."""
    assert state.filter is not None
    blocks, values = state.open_blocks, mechanism.base.values
    span = values / len(blocks) * mechanism.epsilon  # of a block whose values all lie at theta
    level, error = state.filter.level()
    half = max(1, len(blocks) // 2)
    halves = float(blocks[:half].mean()), float(blocks[-half:].mean())
    leaves = mechanism.base.leaves * half // len(blocks)
    noise = float(mechanism.prefix_variances[state.entry, leaves]) ** 0.5 / half * state.ratio
    levels = tuple(each / span for each in (level, *halves))
    counted, mean = not np.isnan(clipped), float(blocks.mean()) / span
    return Seen(levels, max(error, noise) / span, mean, clipped / values if counted else None, clipped_error / values)


def truncated(mechanism: TopsConstants, state: StreamState, seen: Seen) -> tuple[float, float]:
    """Return the estimated sum that theta has cut off from a complete tree, and its error from the count's noise."""
    values, width = mechanism.base.values, float(state.theta - state.lower)
    mean = seen.mean * state.width - (state.lower - state.first_lower)
    assert seen.clipped is not None
    shares = seen.clipped, seen.clipped - seen.clipped_error, seen.clipped + seen.clipped_error
    middle, low, high = (values * truncation(mean, width, share) for share in shares)
    return middle, max(high - middle, middle - low)
