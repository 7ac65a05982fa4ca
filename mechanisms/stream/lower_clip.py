r"""The lower clip: where values sit far from 0, a second Noisy Max finds below which value almost none lie.

Values are then clipped to [lower, theta], and the noise is that of theta - lower instead of theta.  The choice is made from
the same held-out values as theta, after it, with an epsilon of its own:

.. math:: q_l = -|\{i \le m : v_i \le l\}| - \text{log\_slope}\cdot\ln\frac{\theta - l}{\theta},\qquad q_0 = 0

The exchange rate between held-out values and the logarithm of the width is that of theta (threshold.py).
Source: our addition; ToPS clips at 0.  docs/guarantees/tops.md has the proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.stream.addresses import GRID, GRID_BITS, AddressedNoise, address
from susurrus.mechanisms.stream.threshold import NoisyMax

FRACTIONS = (1 / 2, 5 / 8, 3 / 4, 7 / 8)
"""The candidates beside 0: the largest candidates of theta that are at most these fractions of the chosen one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerClip:
    """Report-noisy-max for the lower clip, given theta.

    Privacy: pure ``epsilon`` for the held-out values, neighbours replace one of them, for every theta.  Replacing one value
    moves all scores in one direction by at most 1, so one-sided noise of mean 1 / epsilon suffices.
    Shape: counts int64[k, candidates + 1] of ``NoisyMax.count`` and its choices int64[k] -> int64[k].  Unit: value grid.
    """

    threshold: NoisyMax
    epsilon: float

    def candidates(self, theta: Int64s) -> Int64s:
        """Return int64[k, 5]: the values that are tried for each theta, from 0 upwards; some may be equal."""
        grid = np.concatenate(([0], np.asarray(self.threshold.candidates, dtype=np.int64)))
        limits = np.outer(theta, (0, *FRACTIONS))
        found: Int64s = grid[np.searchsorted(grid, limits, side="right") - 1]
        return found

    def scores(self, counts: Int64s, theta: Int64s) -> Int64s:
        """Return int64[k, 5]: scores in 2^-8 units.  Not private: internal."""
        tried = self.candidates(theta)
        # A value above exactly i candidates is at most candidate i, and above all before it.
        at_most = np.cumsum(counts, axis=-1)
        grid = np.asarray(self.threshold.candidates, dtype=np.int64)
        place = np.searchsorted(grid, tried)
        below = np.where(tried > 0, np.take_along_axis(at_most, np.minimum(place, len(grid)), axis=-1), 0)
        gain = -np.log1p(-tried / theta[:, None]) * (self.threshold.log_slope * GRID)
        scores: Int64s = np.rint(gain).astype(np.int64) - (below << GRID_BITS)
        return scores

    def release(self, counts: Int64s, theta: Int64s, noise: AddressedNoise, streams: Sequence[bytes]) -> Int64s:
        """Return int64[k]: the released lower clip of each stream, below its theta.

        The noise of candidate i is the draw at index i of address ("tops/lower", stream), on the grid of the scores; equal
        scores go to the smaller candidate.
        """
        labels = noise.labels("tops/lower", [address(stream) for stream in streams])
        drawn = np.abs(noise.laplace(labels, 0, len(FRACTIONS), scale=1 / self.epsilon, bits=GRID_BITS))
        best = np.argmax(self.scores(counts, theta) + drawn, axis=-1)
        released: Int64s = self.candidates(theta)[np.arange(len(theta)), best]
        return released
