"""Closing rows of several windows, added up for keys that none of these windows has published: part of the last look.

closing row of this window ──────────┐
those of up to 3 windows before it ──┴─EvidenceTest─▶ found: for some scale s, the sum of the rows of s windows reaches
                                                      the sum of their heights + z_s sqrt(the sum of their variances)

A *closing row* is S + lambda M, what the last look of a window measures of a key. It is there for every key that is not public,
whether somebody brought the key or not. Argument: docs/guarantees/evidence.md.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.arrays import Bools, Floats, Int64s
from susurrus.mechanisms.histogram.per_key import PerKey

SCALES: Final = {1: (1,), 2: (1, 2), 4: (1, 2, 4)}
"""By `evidence_windows`: the numbers of windows that are added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRows(PerKey):
    """Closing rows of the windows before, aligned with the keys of a step: column 0 is the window before this one.

    values     float64[k, p]  the row, in users; whatever it is where the window is not in play
    heights    float64[k, p]  what the row may hold while no gate is open, in users
    variances  float64[k, p]  of the row's noise
    in_play    bool[k, p]     whether the window is added up: it measured the key, and neither it nor a later one published the
                              key or had it public
    opened     bool[k, p]     whether more than minimum_users users weighed the key
    """

    values: Floats
    heights: Floats
    variances: Floats
    in_play: Bools
    opened: Bools

    @classmethod
    def none(cls, size: int, windows: int) -> Self:
        """Keys without a window in play."""
        values, heights, variances = np.zeros((3, size, windows))
        in_play, opened = np.zeros((2, size, windows), np.bool_)
        return cls(values=values, heights=heights, variances=variances, in_play=in_play, opened=opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRows(PerKey):
    """What the last trigger of a window measured of the keys of a step; for later windows, and for nobody else.

    values  float64[k]  the closing row, in users; 0 where it was not needed
    users   int64[k]    who weighed the key; 0: nobody, and the row is what `Strategy.unbrought` says
    opened  bool[k]     whether these are more than minimum_users
    """

    values: Floats
    users: Int64s
    opened: Bools

    @classmethod
    def none(cls, size: int) -> Self:
        """Keys that nobody weighed."""
        return cls(values=np.zeros(size), users=np.zeros(size, np.int64), opened=np.zeros(size, np.bool_))


class EvidenceTest:
    """The joint test of the last look over one or more windows.

    Privacy: a key at its boundary in a window fails each of the s tests of scale s that look at the window with probability at most
    beta / (scales s), so all of them with at most beta; neighbours add or remove all records of one user in one window.
    """

    def __init__(self, windows: int, beta: float) -> None:
        """windows: 1, 2 or 4. beta: of one key in one window."""
        self.scales = SCALES[windows]
        self.quantiles = tuple(tail_quantile(beta / (len(self.scales) * scale)) for scale in self.scales)

    def found(
        self,
        passes_alone: Bools,
        values: Floats,
        opened: Bools,
        past: PastRows,
        *,
        height: float,
        variance: float,
    ) -> Bools:
        """Return bool[k]: which keys are found at some scale.

        passes_alone: bool[k], by the window's own row, gate included, which is scale 1. values, opened: as in `ClosingRows`, of
        keys that are not public. height, variance: of the window's own rows, as in `PastRows`.
        """
        found = passes_alone.copy()
        for scale, quantile in zip(self.scales[1:], self.quantiles[1:], strict=True):
            total, heights = values.copy(), np.full(len(values), height)
            variances, gate = np.full(len(values), variance), opened.copy()
            # One window after the other: sums in float64 are the same whatever the keys of the step are.
            for window in range(min(scale - 1, past.values.shape[1])):
                plays = past.in_play[:, window]
                total += np.where(plays, past.values[:, window], 0.0)
                heights += np.where(plays, past.heights[:, window], 0.0)
                variances += np.where(plays, past.variances[:, window], 0.0)
                gate |= plays & past.opened[:, window]
            found |= gate & (total >= (heights + quantile * np.sqrt(variances)) * (1 + 1e-9))
        return found

    def level(self, scale: int, height: float, variance: float) -> float:
        """What the mean of `scale` closing rows must reach, if all of them have this height and variance."""
        quantile: float = self.quantiles[self.scales.index(scale)]
        return height + quantile * float(np.sqrt(variance / scale))
