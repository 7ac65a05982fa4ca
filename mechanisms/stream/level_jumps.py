r"""Jumps of a stream's level: from which block of the open tree on the filter forgets the level before.

The filter's models know steady levels and steady drift.  After a single jump of a steady level they average too little for
long, or, right behind it, too much.  So every block of the open tree is tried as the first one behind a jump.  The one that
fits the tree's released blocks best is taken if the evidence rises by ``GAIN``, in units of the natural logarithm; the tree's
last block settles it.  In the stream's first tree none is sought.

Where the jump was is uncertain.  The blocks whose evidence is within ``DOUBT`` of the best one's are taken as equally likely.
A jump of variance V at one of k places has the prior covariance of k independent jumps of variance V / k.  The filter uses
these: the Gaussian prior with the same second moments.

A jump that is known is no misfit: the fit from then on is that of the models with the jump, begun anew with the tree.

Privacy: post-processing of released block sums, as the filter itself.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.kalman import BlockBank, BlockBanks, Filtered
from susurrus.mechanisms.stream.posterior import FIT_MEMORY

GAIN = 8.0
"""Least logarithm of the evidence's ratio.  Chosen on synthetic series (`benchmarks/series.py`)."""
DOUBT = 3.0
"""How far the logarithm of a place's evidence may lie below that of the best one.  Chosen on the same series."""
NONE = -1
"""Stands for the block of a jump where there is none."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A level that jumps before one of the open tree's blocks first..last; with it: the bank behind the last block, the running
    sum, and how the models fit."""

    first: int
    last: int
    bank: BlockBank
    filtered: Filtered
    fit: float


@dataclass(frozen=True, slots=True)
class OpenTree:
    """What the filter knows of a tree: its bank before it, the released blocks so far, float64[k], own and common variance of
    their noise, and the variance that a moved clipping range adds to the level before the first block."""

    before: BlockBank
    blocks: Floats
    own: float
    common: float
    moved: float

    def replay(self, jumps: Floats) -> tuple[BlockBanks, Floats, Floats, Floats]:
        """Return the banks behind the last block, the running sums, their errors and the fits.

        jumps: float64[n, blocks], variances.
        """
        banks = BlockBanks([self.before] * len(jumps))
        sums, errors, fits = np.zeros(len(jumps)), np.zeros(len(jumps)), np.ones(len(jumps))
        for place, block in enumerate(self.blocks.tolist()):
            sums, errors, surprises = banks.step(
                np.full(len(jumps), block),
                own=np.full(len(jumps), self.own),
                new_common=np.full(len(jumps), np.nan if place else self.common),
                jump=jumps[:, place] + (0.0 if place else self.moved),
            )
            fits = fits + (surprises - fits) / FIT_MEMORY
        return banks, sums, errors, fits

    def current(self) -> BlockBank:
        """Return the bank behind the last block, without a jump."""
        return self.replay(np.zeros((1, len(self.blocks))))[0].bank(0)

    def jumped(self, without: BlockBank) -> Jump | None:
        """Return the likely jump, None if none gains enough.  without: the bank behind the last block without a jump."""
        count, level = len(self.blocks), self.before.models.level
        evidence = self.replay(np.eye(count) * level)[0].evidence()
        best = evidence.max()
        if not best > without.evidence() + GAIN:
            return None
        likely = np.flatnonzero(evidence > best - DOUBT)
        first, last = int(likely[0]), int(likely[-1])
        banks, sums, errors, fits = self.replay(jump_variances(count, first, last, level)[None])
        return Jump(first, last, banks.bank(0), Filtered(float(sums[0]), float(errors[0])), float(fits[0]))


def jump_variances(count: int, first: int, last: int, level: float) -> Floats:
    """Return float64[count]: the variance of the level's jump before each of so many blocks."""
    result = np.zeros(count)
    result[first : last + 1] = level / (last + 1 - first)
    return result


def suspected(
    blocks: Floats, counts: npt.NDArray[np.int64], level: Floats, own: Floats, common: Floats
) -> npt.NDArray[np.bool_]:
    """Return bool[n]: whether a jump could gain enough, by a bound that is cheap.

    blocks float64[n, b], of which the first counts[n] are released.  level: before the tree.  The mean of the blocks from any
    one on must lie so far from the level that even without any other uncertainty a jump to it would gain ``GAIN``.
    """
    known = np.arange(blocks.shape[1]) < counts[:, None]
    distances = np.where(known, blocks - level[:, None], 0.0)[:, ::-1]
    number = np.maximum(known[:, ::-1].cumsum(axis=1), 1)
    variance = own[:, None] / number + common[:, None]
    squares = (distances.cumsum(axis=1) / number) ** 2 / variance
    result: npt.NDArray[np.bool_] = squares.max(axis=1) > 2 * GAIN
    return result
