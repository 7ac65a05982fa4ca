"""The open trees of many streams at once: leaves that a batch completes get their trees' noise and go through the filters.

    leaf sums of all streams, flat ──noise of the open trees──▶ released leaves ──▶ ``Releases``
                                                                     ├── block_filters.py: filtered sums
                                                                     └── tree_ends.py: the next tree's split and range

``TopsTable`` finds the leaves, those of one tree of each stream at a time: the next tree's clipping range is known only when the
tree before it is complete.  Every number is the one that the stream alone would release: the operations are element by element,
or along one stream.
"""

from collections.abc import Sequence

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.stream.addresses import AddressedNoise
from susurrus.mechanisms.stream.block_filters import filter_blocks
from susurrus.mechanisms.stream.constants import TopsConstants
from susurrus.mechanisms.stream.leaves import flat
from susurrus.mechanisms.stream.level_jumps import NONE
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.stream_state import StreamState
from susurrus.mechanisms.stream.tree_ends import close

_REMEMBERED = 4 << 20
"""Leaves whose noise is remembered at most: 32 MB."""


class TreeNoise:
    """The noise of open trees, drawn when a tree's first leaf is complete and remembered until the tree closes.

    What is forgotten is drawn again, with the same result: every draw has its address.
    """

    def __init__(self, mechanism: TopsConstants) -> None:
        self._mechanism = mechanism
        self._known: dict[bytes, tuple[int, Int64s]] = {}

    def of(
        self, states: Sequence[StreamState], addresses: Sequence[bytes], trees: list[int], noise: AddressedNoise
    ) -> Int64s:
        """Return int64[streams, leaves]: the noise of the leaves of each stream's open tree, in whole value units."""
        mechanism, known = self._mechanism, self._known
        found = np.empty((len(states), mechanism.base.leaves), dtype=np.int64)
        missing: dict[int, list[int]] = {}
        for place, (address, tree) in enumerate(zip(addresses, trees, strict=True)):
            drawn = known.get(address)
            if drawn is not None and drawn[0] == tree:
                found[place] = drawn[1]
            else:
                missing.setdefault(states[place].entry, []).append(place)
        for entry, places in missing.items():
            hierarchy = mechanism.menu[entry]
            number = np.array([trees[place] for place in places])
            width = np.array([states[place].theta - states[place].lower for place in places])
            raw = hierarchy.draw(noise, [addresses[p] for p in places], number, width, mechanism.epsilon)
            found[places] = hierarchy.rounded(raw)
            if (len(known) + len(places)) * mechanism.base.leaves > _REMEMBERED:
                known.clear()
            for place in places:
                known[addresses[place]] = trees[place], found[place].copy()
        return found


def release(
    mechanism: TopsConstants,
    states: Sequence[StreamState],
    addresses: Sequence[bytes],
    first: Int64s,
    counts: Int64s,
    sums: Int64s,
    noise: AddressedNoise,
    memory: TreeNoise,
) -> Releases:
    """Add the trees' noise to complete leaves of distinct streams and run the filters; the states move on.

    first: int64[streams], the number of each stream's first leaf.  counts: int64[streams], its leaves, at least 1 and all of one
    tree.  sums: int64[all leaves], clipped sums, stream by stream.
    """
    size, leaf = mechanism.base.leaves, mechanism.base.leaf
    trees, inside = np.divmod(first, size)
    begins = mechanism.holdout + flat(first, counts) * leaf
    drawn = memory.of(states, addresses, trees.tolist(), noise)
    values = sums + drawn.reshape(-1)[flat(np.arange(len(states)) * size + inside, counts)]
    released = _plain(mechanism, states, first, inside, counts, values, begins)
    if mechanism.adaptive:
        filter_blocks(mechanism, states, trees, inside, counts, values, released)
    closing = np.flatnonzero(inside + counts == size)
    if len(closing):
        some = [states[place] for place in closing.tolist()]
        of = [addresses[place] for place in closing.tolist()]
        close(mechanism, some, of, trees[closing], np.cumsum(counts)[closing] - 1, released, noise)
    return released


def _plain(
    mechanism: TopsConstants,
    states: Sequence[StreamState],
    first: Int64s,
    inside: Int64s,
    counts: Int64s,
    values: Int64s,
    begins: Int64s,
) -> Releases:
    """Return the rows with their plain columns, and move the running sums on."""
    prefix = mechanism.prefix_variances
    entry, theta, lower, before = np.array([(s.entry, s.theta, s.lower, s.running) for s in states], dtype=np.int64).T
    unit = np.array([(state.width / mechanism.epsilon) ** 2 for state in states])
    square = ((theta - lower) / mechanism.epsilon) ** 2
    complete = np.array([state.variance for state in states]) * unit
    ends = np.cumsum(counts)
    running = np.concatenate(([0], np.cumsum(values)))
    sums = running[1:] + np.repeat(before - running[ends - counts], counts)
    of_entry = np.repeat(entry, counts)
    within = prefix[of_entry, flat(inside + 1, counts)] * np.repeat(square, counts)
    rounding = flat(first + 1, counts) / 12
    for state, last in zip(states, sums[ends - 1].tolist(), strict=True):
        state.running = last
    return Releases(
        first=begins,
        last=begins + mechanism.base.leaf - 1,
        value=values,
        value_error=np.repeat(np.sqrt(prefix[entry, 1] * square + 1 / 12), counts),
        sum=sums,
        sum_error=np.sqrt(np.repeat(complete, counts) + within + rounding),
        layout=of_entry,
        theta=np.repeat(theta, counts),
        lower=np.repeat(lower, counts),
        filtered_sum=np.full(len(values), np.nan),
        filtered_sum_error=np.full(len(values), np.nan),
        fit=np.full(len(values), np.nan),
        jump_first=np.full(len(values), NONE),
        jump_last=np.full(len(values), NONE),
        **{name: np.full(len(values), np.nan) for name in ("clipped", "clipped_error", "truncated", "truncated_error")},
    )
