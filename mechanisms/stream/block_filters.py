"""Released leaves of many streams go through their filters, block by block.

    released leaves ──sums of b^k leaves──▶ blocks ──▶ ``BlockBanks`` ──▶ filtered running sum, its error, fit
                                              └──▶ level_jumps.py, if one is suspected ──▶ the same, and where the level jumped

Privacy: post-processing.  Every number is the one that the stream alone would have.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from susurrus.mechanisms.kalman import BlockBanks
from susurrus.mechanisms.stream.addresses import Floats, Ints
from susurrus.mechanisms.stream.allocation import block_layer, block_noise
from susurrus.mechanisms.stream.constants import Constants
from susurrus.mechanisms.stream.leaves import flat
from susurrus.mechanisms.stream.level_jumps import NONE, Jump, OpenTree, suspected
from susurrus.mechanisms.stream.posterior import FIT_MEMORY, MOVE, widened
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.stream_state import StreamState


def filter_blocks(
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
    sums, errors, fits = np.empty(len(nodes)), np.empty(len(nodes)), np.empty(len(nodes))
    fit = np.array([state.fit for state in order])
    jumps = np.full((2, len(nodes)), NONE)
    jumping = _Jumps(mechanism, order, trees[by_blocks])
    for block in range(int(most[0])):
        active = int(np.searchsorted(-most, -block))
        rows = starts[:active] + block
        for below, found in enumerate(evidence):
            gathered[:active, below] += found[rows]
        opens = numbers[:active] + block == 0
        sums[rows], errors[rows], surprises = banks.step(
            nodes[rows, 0],
            own=own[rows],
            new_common=np.where(opens, common[rows], np.nan),
            jump=np.where(opens, moved[rows], 0.0),
        )
        fits[rows] = fit[:active] = fit[:active] + (surprises - fit[:active]) / FIT_MEMORY
        for found_at, jump in jumping.found(banks, numbers[:active] + block + 1):
            row = starts[found_at] + block
            jumps[:, row], fits[row] = (jump.first, jump.last), jump.fit
            sums[row], errors[row] = jump.filtered.sum, jump.filtered.standard_error
    banks.give_back()
    for settled, jump in jumping.settled.items():
        # The tree is complete: the filter goes on from the jump.
        order[settled].filter, fit[settled] = jump.bank, jump.fit
    for state, its, fitting in zip(order, gathered, fit.tolist(), strict=True):
        state.evidence, state.fit = its.copy(), fitting
    lasts = flat(np.zeros(len(some), dtype=np.int64), blocks) * size + np.repeat(size - 1 - waiting[some], blocks)
    at = np.repeat((ends - counts)[some], blocks) + lasts
    leaves_so_far = (released.last[at] + 1 - mechanism.holdout) // mechanism.base.leaf
    released.filtered_sum[at] = sums / unit + shift * leaves_so_far
    released.filtered_sum_error[at] = widened(errors, fits) / unit
    released.fit[at] = fits
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
        self.settled: dict[int, Jump] = {}
        if not self._later.any():
            return
        self._blocks = np.zeros((len(states), self._size))
        for row, state in zip(self._blocks, states, strict=True):
            row[: len(state.open_blocks)] = state.open_blocks
        known = [open_tree(mechanism, state) for state in states]
        self._level, self._own, self._common = np.array([(k.before.level()[0], k.own, k.common) for k in known]).T

    def found(self, banks: BlockBanks, counts: Ints) -> Iterator[tuple[int, Jump]]:
        """Yield the streams whose level has jumped; those whose tree is complete are in ``settled``, too.

        counts: int64[n], the blocks of the first n streams' open trees.
        """
        n = len(counts)
        if not self._later[:n].any():
            return
        doubtful = (
            suspected(self._blocks[:n], counts, self._level[:n], self._own[:n], self._common[:n]) & self._later[:n]
        )
        for at in np.flatnonzero(doubtful).tolist():
            known = open_tree(self._mechanism, self._states[at], int(counts[at]))
            jump = known.jumped(banks.bank(at))
            if jump is None:
                continue
            if counts[at] == self._size:
                self.settled[at] = jump
            yield at, jump
