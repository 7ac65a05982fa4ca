"""The open trees of many streams at once: leaves that a batch completes get their trees' noise and go through the filters.

    leaf sums of all streams, flat ──noise of the open trees──▶ released leaves ──blocks──▶ filters ──▶ ``Releases``
    trees that are complete ──released count, levels──▶ next range (growth.py) and next split (allocation.py)

``TopsTable`` finds the leaves, those of one tree of each stream at a time: the next tree's clipping range is known only when the
tree before it is complete.  Every number is the one that the stream alone would release: the operations are element by element,
or along one stream.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from susurrus.mechanisms.kalman import BlockBank, BlockBanks, Filtered, mixture_weights
from susurrus.mechanisms.stream.addresses import AddressedNoise, Floats, Ints
from susurrus.mechanisms.stream.allocation import Allocation, block_layer, block_noise
from susurrus.mechanisms.stream.growth import Growth, Seen, count_noise
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.leaves import flat
from susurrus.mechanisms.stream.level_jumps import NONE, OpenTree, suspected
from susurrus.mechanisms.stream.posterior import MOVE
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.stream_state import UNCOUNTED, StreamState

_REMEMBERED = 4 << 20
"""Leaves whose noise is remembered at most: 32 MB."""


class Constants(Protocol):
    """What is public of a pipeline's mechanism (``Tops``)."""

    @property
    def epsilon(self) -> float: ...
    @property
    def bound(self) -> int: ...
    @property
    def holdout(self) -> int: ...
    @property
    def adaptive(self) -> bool: ...
    @property
    def growth(self) -> Growth: ...
    @property
    def count_epsilon(self) -> float: ...
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
            width = np.array([states[place].theta - states[place].lower for place in places])
            raw = hierarchy.draw(noise, [addresses[p] for p in places], number, width, mechanism.epsilon)
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

    first: int64[streams], the number of each stream's first leaf.  counts: int64[streams], its leaves, at least 1 and all of one
    tree.  sums: int64[all leaves], clipped sums, stream by stream.
    """
    size, leaf, total = mechanism.base.leaves, mechanism.base.leaf, len(sums)
    trees, inside = np.divmod(first, size)
    begins = mechanism.holdout + flat(first, counts) * leaf
    drawn = memory.of(states, addresses, trees.tolist(), noise)
    values = sums + drawn.reshape(-1)[flat(np.arange(len(states)) * size + inside, counts)]
    released = _plain(mechanism, states, first, inside, counts, values, begins)
    if mechanism.adaptive:
        _filter(mechanism, states, trees, inside, counts, values, released)
    closing = np.flatnonzero(inside + counts == size)
    if len(closing):
        some = [states[place] for place in closing.tolist()]
        of = [addresses[place] for place in closing.tolist()]
        _close(mechanism, some, of, trees[closing], np.cumsum(counts)[closing] - 1, released, noise)
    return released


def _plain(
    mechanism: Constants,
    states: Sequence[StreamState],
    first: Ints,
    inside: Ints,
    counts: Ints,
    values: Ints,
    begins: Ints,
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
        jump_first=np.full(len(values), NONE),
        jump_last=np.full(len(values), NONE),
        clipped=np.full(len(values), np.nan),
        clipped_error=np.full(len(values), np.nan),
    )


def _close(
    mechanism: Constants,
    states: Sequence[StreamState],
    addresses: Sequence[bytes],
    trees: Ints,
    last: Ints,
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


def seen_of(mechanism: Constants, state: StreamState, clipped: float, clipped_error: float) -> Seen:
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
    counted = not np.isnan(clipped)
    return Seen(levels, max(error, noise) / span, clipped / values if counted else None, clipped_error / values)


def _filter(
    mechanism: Constants,
    states: Sequence[StreamState],
    trees: Ints,
    inside: Ints,
    counts: Ints,
    values: Ints,
    released: Releases,
) -> None:
    """Give complete blocks to the filters; keep the leaves of blocks that are open."""
    fanout = mechanism.base.fanout
    size = fanout ** block_layer(mechanism.base)
    waiting = np.array([len(state.open_leaves) for state in states])
    complete = (waiting + counts) // size
    ends = np.cumsum(counts)
    whole: list[Ints] = []
    for state, begin, end, blocks in zip(
        states, (ends - counts).tolist(), ends.tolist(), complete.tolist(), strict=True
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
    having = [states[place] for place in some.tolist()]
    entry = np.repeat([state.entry for state in having], blocks)
    unit = np.repeat([mechanism.epsilon / state.width for state in having], blocks)
    shift = np.repeat([state.first_lower * mechanism.base.leaf for state in having], blocks)
    square = np.repeat([state.ratio**2 for state in having], blocks)
    nodes = (np.concatenate(whole).reshape(-1, size) - shift[:, None]).astype(np.float64) * unit[:, None]
    evidence: list[Floats] = []
    subtrees = np.stack([hierarchy.subtree_variances() for hierarchy in mechanism.menu])
    for below, deviations in enumerate(mechanism.allocation.deviations):
        groups = nodes.reshape(len(nodes), -1, fanout)
        nodes = groups.sum(axis=-1)
        squares = ((groups - nodes[..., None] / fanout) ** 2).reshape(len(nodes), -1).sum(axis=-1)
        freedom = (fanout - 1) * nodes.shape[1]
        evidence.append(deviations.evidence(squares, freedom, subtrees[entry, below] * square))
    own, common = (
        np.array(of)[entry] * square
        for of in zip(*[(b.own, b.common) for b in map(block_noise, mechanism.menu)], strict=True)
    )
    first_block = (inside - waiting) // size
    moved = np.repeat([state.moved for state in having], blocks) * (MOVE * mechanism.allocation.models.level)
    for state, part in zip(having, np.split(nodes[:, 0], np.cumsum(blocks)[:-1]), strict=True):
        state.open_blocks = np.concatenate([state.open_blocks, part])
    order = [states[place] for place in by_blocks.tolist()]
    banks = BlockBanks([state.filter for state in order if state.filter is not None])
    gathered = np.stack([state.evidence for state in order])
    starts, numbers, most = base[by_blocks], first_block[by_blocks], complete[by_blocks]
    sums, errors = np.empty(len(nodes)), np.empty(len(nodes))
    jumps = np.full((2, len(nodes)), NONE)
    jumping = _Jumps(mechanism, order, trees[by_blocks])
    for block in range(int(most[0])):
        active = int(np.searchsorted(-most, -block))
        rows = starts[:active] + block
        for below, found in enumerate(evidence):
            gathered[:active, below] += found[rows]
        opens = numbers[:active] + block == 0
        sums[rows], errors[rows] = banks.step(
            nodes[rows, 0],
            own=own[rows],
            new_common=np.where(opens, common[rows], np.nan),
            jump=np.where(opens, moved[rows], 0.0),
        )
        for found_at, its_first, its_last, filtered in jumping.found(banks, numbers[:active] + block + 1):
            row = starts[found_at] + block
            jumps[:, row], sums[row], errors[row] = (its_first, its_last), filtered.sum, filtered.standard_error
    banks.give_back()
    jumping.settle()
    for state, its in zip(order, gathered, strict=True):
        state.evidence = its.copy()
    lasts = flat(np.zeros(len(some), dtype=np.int64), blocks) * size + np.repeat(size - 1 - waiting[some], blocks)
    at = np.repeat((ends - counts)[some], blocks) + lasts
    leaves_so_far = (released.last[at] + 1 - mechanism.holdout) // mechanism.base.leaf
    released.filtered_sum[at] = sums / unit + shift * leaves_so_far
    released.filtered_sum_error[at] = errors / unit
    tree_begins = mechanism.holdout + np.repeat(trees[some], blocks) * mechanism.base.values
    released.jump_first[at], released.jump_last[at] = np.where(
        jumps == NONE, NONE, tree_begins + jumps * (size * mechanism.base.leaf)
    )


def open_tree(mechanism: Constants, state: StreamState, blocks: int | None = None) -> OpenTree:
    """Return what the filter knows of a stream's open tree, up to so many blocks."""
    assert state.before is not None
    noise = block_noise(mechanism.menu[state.entry]).scaled(state.ratio**2)
    moved = MOVE * state.before.models.level * state.moved
    return OpenTree(state.before, state.open_blocks[:blocks], noise.own, noise.common, moved)


class _Jumps:
    """Seeks jumps of the levels of several streams, in the trees behind their first ones."""

    def __init__(self, mechanism: Constants, states: Sequence[StreamState], trees: Ints) -> None:
        self._mechanism, self._states, self._later = mechanism, states, trees > 0
        self._size = block_noise(mechanism.base).blocks
        self._settled: dict[int, BlockBank] = {}
        if not self._later.any():
            return
        self._blocks = np.zeros((len(states), self._size))
        for row, state in zip(self._blocks, states, strict=True):
            row[: len(state.open_blocks)] = state.open_blocks
        known = [open_tree(mechanism, state) for state in states]
        self._level, self._own, self._common = np.array([(k.before.level()[0], k.own, k.common) for k in known]).T

    def found(self, banks: BlockBanks, counts: Ints) -> Iterator[tuple[int, int, int, Filtered]]:
        """Yield (stream, first and last likely block of the jump, running sum) of the first streams, whose trees have so many blocks, that jump."""
        n = len(counts)
        if not self._later[:n].any():
            return
        doubtful = suspected(self._blocks[:n], counts, self._level[:n], self._own[:n], self._common[:n]) & self._later[:n]
        for at in np.flatnonzero(doubtful).tolist():
            known = open_tree(self._mechanism, self._states[at], int(counts[at]))
            best = known.jumped(banks.bank(at))
            if best is None:
                continue
            first, last, bank, filtered = best
            if counts[at] == self._size:
                self._settled[at] = bank
            yield at, first, last, filtered

    def settle(self) -> None:
        """Where a tree is complete and its level has jumped, the filter goes on from the jump."""
        for at, bank in self._settled.items():
            self._states[at].filter = bank
