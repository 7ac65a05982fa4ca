r"""The clipping threshold theta by Noisy Max (ToPS section 3.3), released from the first m values of a stream.

A value above theta is clipped to theta.  A large theta costs noise, a small one costs the cut-off mass.  The score of a
candidate is

.. math:: q_\theta = -\text{slope}\cdot\theta - |\{i \le m : v_i > \theta\}|,\qquad
          \text{slope} = \frac{m}{20\,r\,\epsilon}\sqrt{2(b-1)\log_b(r)^3}

The paper prints the second term as minus the number of values *at most* theta, whose maximum is always theta = 1; the
sign here is the one its argument and its authors' program use.  20 r is (r / 3) * 60: a third of the range limit is the
mean length of a range, and 60 is the paper's tuned constant.

The cost slope * theta is in grid units: the same values in cents and in euros get thresholds of different quantiles.  The
default charges log_slope * ln(theta) instead, which does not depend on the unit.  Both costs are equal at the margin where
theta = log_slope / slope.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.addresses import GRID, GRID_BITS, AddressedNoise, address

LOG_COST = 42.0
"""The logarithmic cost is the paper's slope times this many grid units.  Chosen on synthetic series (`benchmarks/series.py`)."""
LEAST_LOG_SLOPE = 4.0
"""The least slope of a cost, in units of 1 / epsilon, the scale of the noise: with a smaller cost, noise alone would choose
theta."""
CANDIDATE_RATIO = 1.1
"""Between neighbouring candidates of the geometric grid."""


def squared_error_slope(*, holdout: int, range_limit: int, epsilon: float, fanout: int) -> float:
    """Return the cost in held-out values of one unit of theta: ToPS section 3.3 with c = 60."""
    log_range = math.log(range_limit, fanout)
    return holdout / (20 * range_limit * epsilon) * math.sqrt(2 * (fanout - 1) * log_range**3)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMax:
    """Report-noisy-max over public candidates.

    Privacy: pure ``epsilon`` for the held-out values, neighbours replace one of them.  Replacing one value moves all
    scores in one direction by at most 1 (the query is monotone), so noise of scale 1 / epsilon suffices, two-sided
    (Laplace, the paper) or one-sided (exponential, ``one_sided``); proofs in docs/guarantees/tops.md.
    Shape: values int64[m] in [0, bound] -> theta int in 1..bound.  Unit: value grid.
    Raises: ConfigurationError if a public constant cannot be right.
    """

    bound: int
    epsilon: float
    slope: float
    candidates: tuple[int, ...]
    one_sided: bool = False
    log_slope: float = 0.0

    def __post_init__(self) -> None:
        if self.bound < 1:
            raise ConfigurationError(f"bound={self.bound}: a public upper bound of at least 1 grid unit is needed")
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise ConfigurationError(f"epsilon={self.epsilon}: give a positive finite privacy parameter")
        for name in ("slope", "log_slope"):
            cost = getattr(self, name)
            if not (cost >= 0 and math.isfinite(cost)):
                raise ConfigurationError(
                    f"{name}={cost}: must be finite and not negative; check holdout and range_limit"
                )
        grid = np.asarray(self.candidates, dtype=np.int64)
        if not len(grid) or grid[0] < 1 or grid[-1] > self.bound or np.any(np.diff(grid) <= 0):
            raise ConfigurationError(f"candidates={len(grid)}: must increase within 1..bound={self.bound}")
        if self.bound * max(self.slope, 1.0) * GRID + self.log_slope * 64 * GRID >= 2**62:
            raise ConfigurationError(f"bound={self.bound}: scores would overflow; use a coarser grid for the values")

    @classmethod
    def of(
        cls,
        *,
        bound: int,
        epsilon: float,
        share: float = 1.0,
        holdout: int,
        range_limit: int,
        fanout: int,
        adaptive: bool = True,
    ) -> Self:
        """Return ToPS's threshold.  epsilon: of the stream; share: how much of it the threshold spends.

        Not adaptive, as published: every integer 1..bound, Laplace noise, the paper's slope.  Adaptive: a geometric grid of
        candidates, exponential noise, the logarithmic cost.  Fewer candidates and one-sided noise both lower the largest
        noise among the losers.  All of these are public choices.
        """
        slope = squared_error_slope(holdout=holdout, range_limit=range_limit, epsilon=epsilon, fanout=fanout)
        if not adaptive:
            return cls(bound=bound, epsilon=epsilon * share, slope=slope, candidates=tuple(range(1, bound + 1)))
        steps = math.ceil(math.log(bound) / math.log(CANDIDATE_RATIO)) + 1
        grid = np.unique(np.rint(np.geomspace(1, bound, steps)).astype(np.int64))
        log_slope = max(LOG_COST * slope, LEAST_LOG_SLOPE / (epsilon * share))
        return cls(
            bound=bound,
            epsilon=epsilon * share,
            slope=0.0,
            candidates=tuple(grid.tolist()),
            one_sided=True,
            log_slope=log_slope,
        )

    def ranks(self, values: Int64s) -> Int64s:
        """Return int64[n]: how many candidates lie below each value.  Nothing else is kept of a value."""
        clamped = np.clip(np.asarray(values, dtype=np.int64), 0, self.bound)
        return np.searchsorted(np.asarray(self.candidates, dtype=np.int64), clamped, side="left").astype(np.int64)

    def count(self, values: Int64s) -> Int64s:
        """Return int64[len(candidates) + 1]: how many values lie above exactly i candidates.  Adds up over batches."""
        return np.bincount(self.ranks(values), minlength=len(self.candidates) + 1).astype(np.int64)

    def scores(self, counts: Int64s) -> Int64s:
        """Return int64[..., len(candidates)]: scores in 2^-8 units from ``count``.  Not private: internal."""
        above = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1][..., 1:]
        thetas = np.asarray(self.candidates, dtype=np.float64)
        cost = np.rint((thetas * self.slope + np.log(thetas) * self.log_slope) * GRID).astype(np.int64)
        scores: Int64s = -(above << GRID_BITS) - cost
        return scores

    def release(self, counts: Int64s, noise: AddressedNoise, streams: Sequence[bytes]) -> Int64s:
        """Return int64[k]: the released theta of each stream, from int64[k, candidates + 1] counts.

        The noise of candidate i is the draw at index i of address ("tops/threshold", stream).  Noise is on the grid of
        the scores, so the comparison is exact; equal scores go to the smaller candidate.
        """
        labels = noise.labels("tops/threshold", [address(stream) for stream in streams])
        drawn = noise.laplace(labels, 0, len(self.candidates) - 1, scale=1 / self.epsilon, bits=GRID_BITS)
        if self.one_sided:
            drawn = np.abs(drawn)  # |Laplace(s)| is exponential with mean s
        best = np.argmax(self.scores(counts) + drawn, axis=-1)
        released: Int64s = np.asarray(self.candidates, dtype=np.int64)[best]
        return released
