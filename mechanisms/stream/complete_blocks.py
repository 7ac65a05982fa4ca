"""The blocks of many streams' trees that released leaves complete, and what the filter takes of them.

Every number is the one that the stream alone would have: operations are element by element, or along one block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.stream.allocation import block_noise
from susurrus.mechanisms.stream.constants import TopsConstants
from susurrus.mechanisms.stream.leaves import flat
from susurrus.mechanisms.stream.posterior import MOVE
from susurrus.mechanisms.stream.stream_state import StreamState


@dataclass(frozen=True, slots=True)
class CompleteBlocks:
    """The m blocks that n streams complete: one stream's after the other's, those of the stream with the most blocks first.

    By stream: states; trees: int64[n], the number of its open tree; counts: int64[n], its blocks, at least 1, never rising.
    By block: leaves: int64[m, leaves of a block], released sums; numbers: int64[m], the block's number in its tree; rows:
    int64[m], the row of the batch's releases that completes it.
    """

    states: list[StreamState]
    trees: Int64s
    counts: Int64s
    leaves: Int64s
    numbers: Int64s
    rows: Int64s

    @property
    def begins(self) -> Int64s:
        """int64[n]: the place of each stream's first block."""
        return np.cumsum(self.counts) - self.counts


def completed(
    leaves: int, states: Sequence[StreamState], trees: Int64s, inside: Int64s, counts: Int64s, values: Int64s
) -> CompleteBlocks | None:
    """Return the blocks of so many leaves that streams complete, None without any; the states keep the leaves behind them.

    trees, inside: int64[streams], the first leaf's tree and its number there.  counts: int64[streams], released leaves, all of
    one tree.  values: int64[all leaves], stream by stream.
    """
    waiting = np.array([len(state.open_leaves) for state in states])
    blocks = (waiting + counts) // leaves
    ends = np.cumsum(counts)
    begins, whole = ends - counts, []
    for state, begin, end, behind in zip(
        states, begins.tolist(), ends.tolist(), (blocks * leaves).tolist(), strict=True
    ):
        known = np.concatenate([state.open_leaves, values[begin:end]])
        whole.append(known[:behind])
        state.open_leaves = known[behind:]
    most_first = np.argsort(-blocks, kind="stable")[: np.count_nonzero(blocks)]
    if not len(most_first):
        return None
    places, of_each = most_first.tolist(), blocks[most_first]
    ordinals = flat(np.ones(len(places), dtype=np.int64), of_each)
    return CompleteBlocks(
        states=[states[place] for place in places],
        trees=trees[most_first],
        counts=of_each,
        leaves=np.concatenate([whole[place] for place in places]).reshape(-1, leaves),
        numbers=flat(((inside - waiting) // leaves)[most_first], of_each),
        rows=ordinals * leaves - 1 + np.repeat((begins - waiting)[most_first], of_each),
    )


@dataclass(frozen=True, slots=True)
class MeasuredBlocks:
    """Complete blocks as the filter takes them, above the first tree's lower clip and in units of its width / epsilon.

    sums: float64[m].  own: float64[m], variance of a block's own noise.  common: float64[m], that of the noise which its tree's
    blocks share, nan where the block does not open a tree.  jump: float64[m], the variance that a moved clipping range adds to
    the level before the block.  evidence: float64[m, layers below the blocks, variances], log-likelihoods of deviations.
    unit: float64[m], filter units per value.  shift: int64[m], the lower clip of a leaf, in values.
    """

    sums: Floats
    own: Floats
    common: Floats
    jump: Floats
    evidence: Floats
    unit: Floats
    shift: Int64s


def measured(mechanism: TopsConstants, blocks: CompleteBlocks) -> MeasuredBlocks:
    """Return the blocks as the filter takes them: sums of their leaves, and the layers' deviations on the way up."""
    menu, allocation, fanout = mechanism.menu, mechanism.allocation, mechanism.base.fanout
    of_streams = [
        (s.entry, mechanism.epsilon / s.width, s.first_lower * mechanism.base.leaf, s.ratio**2, s.moved)
        for s in blocks.states
    ]
    entry, unit, shift, square, moved = (np.repeat(each, blocks.counts) for each in zip(*of_streams, strict=True))
    nodes = (blocks.leaves - shift[:, None]).astype(np.float64) * unit[:, None]
    subtrees = np.stack([hierarchy.subtree_variances() for hierarchy in menu])
    evidence = np.empty((len(nodes), *blocks.states[0].evidence.shape))
    for layer, deviations in enumerate(allocation.deviations):
        siblings = nodes.reshape(len(nodes), -1, fanout)
        nodes = siblings.sum(axis=-1)
        squares = ((siblings - nodes[..., None] / fanout) ** 2).reshape(len(nodes), -1).sum(axis=-1)
        freedom = (fanout - 1) * nodes.shape[1]
        evidence[:, layer] = deviations.evidence(squares, freedom, subtrees[entry, layer] * square)
    noise = [block_noise(hierarchy) for hierarchy in menu]
    opens = blocks.numbers == 0
    return MeasuredBlocks(
        sums=nodes[:, 0],
        own=np.array([of.own for of in noise])[entry] * square,
        common=np.where(opens, np.array([of.common for of in noise])[entry] * square, np.nan),
        jump=np.where(opens, moved * (MOVE * allocation.models.level), 0.0),
        evidence=evidence,
        unit=unit,
        shift=shift,
    )
