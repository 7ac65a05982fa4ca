"""The open trees of many streams at once: leaves that a batch completes get their trees' noise and go through the filters.

    leaf sums of all streams, flat ──noise of the open trees──▶ released leaves ──blocks──▶ filters ──▶ ``Releases``

``TopsTable`` finds the leaves.  Here the work goes in rounds: in each, every stream that has leaves left takes them up to
the end of its open tree, all in one pass; a tree that closes decides on the split of the next, so that comes a round later.
Every number is the one that the stream alone would release: the operations are element by element, or along one stream.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from susurrus.mechanisms.kalman import BlockBanks, mixture_weights
from susurrus.mechanisms.stream.addresses import AddressedNoise, Floats, Ints
from susurrus.mechanisms.stream.allocation import Allocation, block_layer, block_noise
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.leaves import flat
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.stream_state import StreamState

_REMEMBERED = 4 << 20
"""Leaves whose noise is remembered at most: 32 MB."""


class Constants(Protocol):
    """What is public of a pipeline's mechanism (``Tops``)."""

    @property
    def epsilon(self) -> float: ...
    @property
    def holdout(self) -> int: ...
    @property
    def adaptive(self) -> bool: ...
    @property
    def base(self) -> Hierarchy: ...
    @property
    def allocation(self) -> Allocation: ...
    @property
    def menu(self) -> tuple[Hierarchy, ...]: ...
    @property
    def prefix_variances(self) -> Floats: ...


class TreeNoise:
    """The noise of open trees, drawn when a tree's first leaf is complete and remembered until the tree closes.

    What is forgotten is drawn again, with the same result: every draw has its address.
    """

    def __init__(self, mechanism: Constants) -> None:
        self._mechanism = mechanism
        self._known: dict[bytes, tuple[int, Ints]] = {}

    def of(
        self, states: Sequence[StreamState], addresses: Sequence[bytes], trees: list[int], noise: AddressedNoise
    ) -> Ints:
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
            theta = np.array([states[place].theta for place in places])
            raw = hierarchy.draw(noise, [addresses[p] for p in places], number, theta, mechanism.epsilon)
            found[places] = hierarchy.rounded(raw)
            if (len(known) + len(places)) * mechanism.base.leaves > _REMEMBERED:
                known.clear()
            for place in places:
                known[addresses[place]] = trees[place], found[place].copy()
        return found


def release(
    mechanism: Constants,
    states: Sequence[StreamState],
    addresses: Sequence[bytes],
    first: Ints,
    counts: Ints,
    sums: Ints,
    noise: AddressedNoise,
    memory: TreeNoise,
) -> Releases:
    """Add the trees' noise to complete leaves of distinct streams and run the filters; the states move on.

    first: int64[streams], the number of each stream's first leaf.  counts: int64[streams], its leaves (at least 1).
    sums: int64[all leaves], clipped sums, stream by stream.
    """
    size, leaf, total = mechanism.base.leaves, mechanism.base.leaf, len(sums)
    starts = np.cumsum(counts) - counts
    begins = mechanism.holdout + flat(first, counts) * leaf
    released = Releases(
        first=begins,
        last=begins + leaf - 1,
        value=np.empty(total, dtype=np.int64),
        value_error=np.empty(total),
        sum=np.empty(total, dtype=np.int64),
        sum_error=np.empty(total),
        layout=np.empty(total, dtype=np.int64),
        filtered_sum=np.full(total, np.nan),
        filtered_sum_error=np.full(total, np.nan),
    )
    done, open_ = np.zeros(len(states), dtype=np.int64), np.arange(len(states))
    while len(open_):
        some = [states[place] for place in open_.tolist()]
        trees, inside = np.divmod(first[open_] + done[open_], size)
        taken = np.minimum(size - inside, counts[open_] - done[open_])
        drawn = memory.of(some, [addresses[place] for place in open_.tolist()], trees.tolist(), noise)
        where = flat(starts[open_] + done[open_], taken)
        values = sums[where] + drawn.reshape(-1)[flat(np.arange(len(some)) * size + inside, taken)]
        _sum_up(mechanism, some, first[open_] + done[open_], inside, taken, where, values, released)
        if mechanism.adaptive:
            _filter(mechanism, some, inside, taken, where, values, released)
        for place in np.flatnonzero(inside + taken == size).tolist():
            _close(mechanism, some[place])
        done[open_] += taken
        open_ = open_[done[open_] < counts[open_]]
    return released


def _sum_up(
    mechanism: Constants,
    states: Sequence[StreamState],
    first: Ints,
    inside: Ints,
    taken: Ints,
    where: Ints,
    values: Ints,
    released: Releases,
) -> None:
    """Write the plain columns of the rows ``where``, and move the running sums on."""
    prefix = mechanism.prefix_variances
    entry = np.array([state.entry for state in states])
    square = np.array([(state.theta / mechanism.epsilon) ** 2 for state in states])
    before = np.array([state.running for state in states], dtype=np.int64)
    variance = np.array([state.variance for state in states])
    ends = np.cumsum(taken)
    running = np.concatenate(([0], np.cumsum(values)))
    sums = running[1:] + np.repeat(before - running[ends - taken], taken)
    of_entry, of_square = np.repeat(entry, taken), np.repeat(square, taken)
    within = prefix[of_entry, flat(inside + 1, taken)]
    released.value[where] = values
    released.value_error[where] = np.repeat(np.sqrt(prefix[entry, 1] * square + 1 / 12), taken)
    released.sum[where] = sums
    rounding = flat(first + 1, taken) / 12
    released.sum_error[where] = np.sqrt((np.repeat(variance, taken) + within) * of_square + rounding)
    released.layout[where] = of_entry
    for state, last in zip(states, sums[ends - 1].tolist(), strict=True):
        state.running = last


def _close(mechanism: Constants, state: StreamState) -> None:
    """A tree is complete: its variance stays in the running sum, and the filter chooses the next tree's split."""
    state.variance += float(mechanism.prefix_variances[state.entry, -1])
    if state.filter is not None:
        weights = [mixture_weights(row) for row in state.evidence]
        state.entry = mechanism.allocation.choose(state.filter.weights(), weights)


def _filter(
    mechanism: Constants,
    states: Sequence[StreamState],
    inside: Ints,
    taken: Ints,
    where: Ints,
    values: Ints,
    released: Releases,
) -> None:
    """Give complete blocks to the filters; keep the leaves of blocks that are open."""
    fanout = mechanism.base.fanout
    size = fanout ** block_layer(mechanism.base)
    waiting = np.array([len(state.open_leaves) for state in states])
    complete = (waiting + taken) // size
    ends = np.cumsum(taken)
    whole: list[Ints] = []
    for state, begin, end, blocks in zip(
        states, (ends - taken).tolist(), ends.tolist(), complete.tolist(), strict=True
    ):
        leaves = np.concatenate([state.open_leaves, values[begin:end]])
        if blocks:
            whole.append(leaves[: blocks * size])
            leaves = leaves[blocks * size :]
        state.open_leaves = leaves
    if not whole:
        return
    some = np.flatnonzero(complete)
    # The streams with most blocks come first, so that those with a block left are always the first ones.
    by_blocks = some[np.argsort(-complete[some], kind="stable")]
    blocks = complete[some]
    place_of = np.cumsum(blocks) - blocks
    base = np.empty(len(states), dtype=np.int64)
    base[some] = place_of
    entry = np.repeat([states[place].entry for place in some.tolist()], blocks)
    unit = np.array([mechanism.epsilon / states[place].theta for place in some.tolist()])
    nodes = np.concatenate(whole).reshape(-1, size).astype(np.float64) * np.repeat(unit, blocks)[:, None]
    evidence: list[Floats] = []
    subtrees = np.stack([hierarchy.subtree_variances() for hierarchy in mechanism.menu])
    for below, deviations in enumerate(mechanism.allocation.deviations):
        groups = nodes.reshape(len(nodes), -1, fanout)
        nodes = groups.sum(axis=-1)
        squares = ((groups - nodes[..., None] / fanout) ** 2).reshape(len(nodes), -1).sum(axis=-1)
        freedom = (fanout - 1) * nodes.shape[1]
        evidence.append(deviations.evidence(squares, freedom, subtrees[entry, below]))
    own, common = (
        np.array(of)[entry] for of in zip(*[(b.own, b.common) for b in map(block_noise, mechanism.menu)], strict=True)
    )
    first_block = (inside - waiting) // size
    order = [states[place] for place in by_blocks.tolist()]
    banks = BlockBanks([state.filter for state in order if state.filter is not None])
    gathered = np.stack([state.evidence for state in order])
    starts, numbers, counts = base[by_blocks], first_block[by_blocks], complete[by_blocks]
    sums, errors = np.empty(len(nodes)), np.empty(len(nodes))
    for block in range(int(counts[0])):
        active = int(np.searchsorted(-counts, -block))
        rows = starts[:active] + block
        for below, found in enumerate(evidence):
            gathered[:active, below] += found[rows]
        opens = np.where(numbers[:active] + block == 0, common[rows], np.nan)
        sums[rows], errors[rows] = banks.step(nodes[rows, 0], own=own[rows], new_common=opens)
    banks.give_back()
    for state, its in zip(order, gathered, strict=True):
        state.evidence = its.copy()
    lasts = flat(np.zeros(len(some), dtype=np.int64), blocks) * size + np.repeat(size - 1 - waiting[some], blocks)
    at = where[np.repeat((ends - taken)[some], blocks) + lasts]
    unit = np.repeat(unit, blocks)
    released.filtered_sum[at] = sums / unit
    released.filtered_sum_error[at] = errors / unit
