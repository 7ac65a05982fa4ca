"""Released leaves of many streams go through their filters, block by block.

    released leaves ──complete_blocks.py──▶ blocks ──▶ ``BlockBanks`` ──▶ filtered running sum, its error, fit
                                              └──▶ level_jumps.py, if one is suspected ──▶ the same, and where the level jumped

Privacy: post-processing.  Every number is the one that the stream alone would have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.kalman import BlockBanks
from susurrus.mechanisms.stream.allocation import block_noise, block_values
from susurrus.mechanisms.stream.complete_blocks import CompleteBlocks, MeasuredBlocks, completed, measured
from susurrus.mechanisms.stream.constants import TopsConstants
from susurrus.mechanisms.stream.level_jumps import NONE, Jump, OpenTree, suspected
from susurrus.mechanisms.stream.posterior import FIT_MEMORY, MOVE, widened
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.stream_state import StreamState


def filter_blocks(
    mechanism: TopsConstants,
    states: Sequence[StreamState],
    trees: Int64s,
    inside: Int64s,
    counts: Int64s,
    values: Int64s,
    released: Releases,
) -> None:
    """Give complete blocks to the filters; keep the leaves of blocks that are open.  The arguments are those of ``completed``."""
    base = mechanism.base
    blocks = completed(block_values(base) // base.leaf, states, trees, inside, counts, values)
    if blocks is None:
        return
    taken = measured(mechanism, blocks)
    filtered = _filtered(mechanism, blocks, taken)
    at = blocks.rows
    leaves_so_far = (released.last[at] + 1 - mechanism.holdout) // base.leaf
    released.filtered_sum[at] = filtered.sums / taken.unit + taken.shift * leaves_so_far
    released.filtered_sum_error[at] = widened(filtered.errors, filtered.fits) / taken.unit
    released.fit[at] = filtered.fits
    tree_begins = mechanism.holdout + np.repeat(blocks.trees, blocks.counts) * base.values
    released.jump_first[at], released.jump_last[at] = np.where(
        filtered.jumps == NONE, NONE, tree_begins + filtered.jumps * block_values(base)
    )


@dataclass(frozen=True, slots=True)
class FilteredBlocks:
    """What the filters say behind each of m blocks, in their unit.

    sums, errors, fits: float64[m], the running sum, its posterior standard deviation, and how the models fit.  jumps: int64[2, m],
    the first and last block of the open tree before which the level may have jumped, NONE without a jump.
    """

    sums: Floats
    errors: Floats
    fits: Floats
    jumps: Int64s


def _filtered(mechanism: TopsConstants, blocks: CompleteBlocks, taken: MeasuredBlocks) -> FilteredBlocks:
    """Run the streams' filters over their blocks, one block of each stream a step; the states move on."""
    states, begins = blocks.states, blocks.begins
    for state, part in zip(states, np.split(taken.sums, begins[1:]), strict=True):
        state.open_blocks = np.concatenate([state.open_blocks, part])
    banks = BlockBanks([state.filter for state in states if state.filter is not None])
    evidence = np.stack([state.evidence for state in states])
    fit = np.array([state.fit for state in states])
    jumping = _Jumps(mechanism, states, blocks.trees)
    sums, errors, fits = np.empty((3, len(taken.sums)))
    jumps = np.full((2, len(taken.sums)), NONE)
    for step in range(int(blocks.counts[0])):
        # Streams with a block left are the first ones: ``now`` is one block of each.
        now = begins[: np.count_nonzero(blocks.counts > step)] + step
        active = slice(len(now))
        evidence[active] += taken.evidence[now]
        sums[now], errors[now], surprises = banks.step(
            taken.sums[now], own=taken.own[now], new_common=taken.common[now], jump=taken.jump[now]
        )
        fit[active] += (surprises - fit[active]) / FIT_MEMORY
        fits[now] = fit[active]
        for place, jump in jumping.found(banks, blocks.numbers[now] + 1):
            block = now[place]
            jumps[:, block], fits[block] = (jump.first, jump.last), jump.fit
            sums[block], errors[block] = jump.filtered.sum, jump.filtered.standard_error
    banks.give_back()
    for place, jump in jumping.settled.items():
        # The tree is complete: the filter goes on from the jump.
        states[place].filter, fit[place] = jump.bank, jump.fit
    for state, its, fitting in zip(states, evidence, fit.tolist(), strict=True):
        state.evidence, state.fit = its.copy(), fitting
    return FilteredBlocks(sums, errors, fits, jumps)


def open_tree(mechanism: TopsConstants, state: StreamState, blocks: int | None = None) -> OpenTree:
    """Return what the filter knows of a stream's open tree, up to so many blocks."""
    assert state.before is not None
    noise = block_noise(mechanism.menu[state.entry]).scaled(state.ratio**2)
    moved = MOVE * state.before.models.level * state.moved
    return OpenTree(state.before, state.open_blocks[:blocks], noise.own, noise.common, moved)


class _Jumps:
    """Seeks jumps of the levels of several streams, in the trees behind their first ones."""

    def __init__(self, mechanism: TopsConstants, states: Sequence[StreamState], trees: Int64s) -> None:
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

    def found(self, banks: BlockBanks, counts: Int64s) -> Iterator[tuple[int, Jump]]:
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
