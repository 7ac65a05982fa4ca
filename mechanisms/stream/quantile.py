r"""PAK's threshold: a quantile of the first m values, released with smooth sensitivity (NDSS 2019, section IV).

.. math:: x_{(P)},\ P = \lceil(1-\lambda p)m\rceil + 1;\qquad
          SS = \max_{0\le i\le P\le j\le m+1,\ i<j} (x_{(j)}-x_{(i)})\,e^{-b(j-i-1)};\qquad
          \tau = x_{(P)} + \frac{\kappa\,SS}{a}(\mathrm{Lap}(1)+Q)

Ranks are 1-based and ascending, x_(i) = 0 for i <= 0 and B for i > m.  Corrections to the paper:

- All indices out of range are clamped.  The paper adds a single 0 and a single B.
- A Gaussian with a = epsilon / sqrt(ln 1/delta) is not differentially private, so the noise is Laplace.
- "LS at distance k" means the largest local sensitivity *within* distance k.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.addresses import AddressedNoise, address


def unit_laplace(words: npt.NDArray[np.uint64]) -> float:
    """Return Laplace(1) from uint64[2]: one sign bit and u = (2k + 1) / 2^129 with 53 bits of relative precision."""
    high, low = int(words[0]), int(words[1])
    k = ((high & ((1 << 63) - 1)) << 64) | low
    magnitude = -math.log((2 * k + 1) / (1 << 128))
    return -magnitude if high >> 63 else magnitude


def quantile_rank(holdout: int, tail: float) -> int:
    """Return P = ceil((1 - tail) m) + 1, the fixed rank released; ``tail`` is lambda * p.

    Raises ConfigurationError if tail * m < 1.
    """
    if not 0 < tail < 1 or tail * holdout < 1:
        raise ConfigurationError(
            f"tail={tail} holdout={holdout}: need tail * holdout >= 1; hold out more values or raise the tail"
        )
    return min(math.ceil((1 - tail) * holdout) + 1, holdout)


def smooth_sensitivity(values: Int64s, rank: int, smoothness: float, bound: int) -> float:
    """Return the smooth sensitivity of the rank-th order statistic, in O(m log m).

    For every lower end i the best upper end j*(i) does not decrease with i, so the pairs are searched by halving: the
    middle i first, then each half within the range of j that the middle leaves to it.  All middles of a level are
    searched at once.  ``values`` int64[m] need not be sorted.
    """
    m = len(values)
    x = np.concatenate(([0], np.sort(np.clip(values, 0, bound)), [bound])).astype(np.float64)
    reach = _reach(x, rank, smoothness, bound)
    low, high = max(0, rank - reach), min(m + 1, rank + reach)
    tasks = np.array([[low, rank, rank, high]], dtype=np.int64)
    best = 0.0
    while len(tasks):
        i_low, i_high, j_low, j_high = tasks.T
        i = (i_low + i_high) // 2
        start = np.maximum(j_low, np.maximum(rank, i + 1))
        j_high = np.maximum(j_high, start)
        length = j_high - start + 1
        owner = np.repeat(np.arange(len(tasks)), length)
        offsets = np.concatenate(([0], np.cumsum(length)[:-1]))
        j = np.arange(int(length.sum())) - np.repeat(offsets - start, length)
        score = (x[j] - x[i[owner]]) * np.exp(-smoothness * (j - i[owner] - 1))
        top = np.maximum.reduceat(score, offsets)
        best = max(best, float(top.max()))
        hit = score == top[owner]
        first = np.minimum.reduceat(np.where(hit, j, m + 1), offsets)
        last = np.maximum.reduceat(np.where(hit, j, 0), offsets)
        left = np.stack([i_low, i - 1, j_low, last], axis=1)
        right = np.stack([i + 1, i_high, first, j_high], axis=1)
        tasks = np.concatenate([left, right])
        tasks = tasks[tasks[:, 0] <= tasks[:, 1]]
    return best


def _reach(x: Floats, rank: int, smoothness: float, bound: int) -> int:
    """Return how far from the rank a maximising pair can lie: beyond it bound * exp(-b k) is less than an attained score."""
    attained = max(float(x[min(rank + 1, len(x) - 1)] - x[rank]), float(x[rank] - x[rank - 1]))
    span = np.arange(len(x))
    ends = (x[np.minimum(rank + span, len(x) - 1)] - x[np.maximum(rank - span, 0)]) * np.exp(
        -smoothness * (2 * span - 1.0)
    )
    attained = max(attained, float(ends[1:].max(initial=0.0)))
    if attained <= 0 or smoothness <= 0:
        return len(x)
    return min(len(x), math.ceil(math.log(max(bound / attained, 1.0)) / smoothness) + 2)


def textbook_smoothness(epsilon: float, delta: float) -> float:
    """Return b = epsilon / (2 ln(2 / delta)): Nissim, Raskhodnikova, Smith (STOC 2007), the default.

    Correction: for large epsilon (from 11.3 on at delta = 2^-20) this b is too large for delta, so it is never more than
    ``exact_smoothness``.
    """
    b = epsilon / (2 * math.log(2 / delta))
    return b if b <= epsilon / 2 and dilation_delta(epsilon, b) <= delta else exact_smoothness(epsilon, delta)


def dilation_delta(epsilon: float, smoothness: float) -> float:
    """Return the exact delta of Laplace noise SS * Lap(1) / (epsilon / 2) when SS is b-smooth.

    delta' = (1 - e^-b) exp(-(epsilon/2 + b) / (e^b - 1)): dilate first, then slide; proof in docs/guarantees/pak.md.
    """
    growth = math.expm1(smoothness)
    return -math.expm1(-smoothness) * math.exp(-(epsilon / 2 + smoothness) / growth)


def exact_smoothness(epsilon: float, delta: float) -> float:
    """Return the largest b <= epsilon / 2 whose exact delta is at most ``delta``, of the multiples of epsilon / 2^29.

    delta' increases with b.  On a lattice the last bits of exp, in which CPUs differ, do not change b.
    """
    low, high, unit = 0, 1 << 28, epsilon / (1 << 29)
    if dilation_delta(epsilon, high * unit) <= delta:
        return high * unit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if dilation_delta(epsilon, middle * unit) <= delta else (low, middle)
    return low * unit


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothQuantile:
    """PAK's private threshold from m held-out values.

    Privacy: (epsilon, delta), neighbours replace one held-out value.  ``beta_tail`` is the probability that tau falls
    below the true quantile.  kappa * SS bounds the local sensitivity of the shifted quantile (PAK eq. 11, 12; the paper
    prints it for the quantile only).  exact: use the largest smoothness b that ``delta`` allows, not the textbook's.
    Published: theta = min(bound, max(1, rint(inflation * tau))), post-processing.  Unit: value grid.
    Raises: ConfigurationError if (e^b - 1) Q / a >= 1, decided from public numbers only.
    """

    bound: int
    epsilon: float
    delta: float
    holdout: int
    tail: float
    beta_tail: float = 0.006
    inflation: float = 1.0
    exact: bool = False

    def __post_init__(self) -> None:
        if self.bound < 1:
            raise ConfigurationError(f"bound={self.bound}: a public upper bound of at least 1 grid unit is needed")
        if not (self.epsilon > 0 and 0 < self.delta < 1):
            raise ConfigurationError(f"epsilon={self.epsilon} delta={self.delta}: need epsilon > 0 and 0 < delta < 1")
        if not 0 < self.beta_tail < 0.5:
            raise ConfigurationError(f"beta_tail={self.beta_tail}: choose a failure probability between 0 and 0.5")
        quantile_rank(self.holdout, self.tail)
        if self.inflation <= 0:
            raise ConfigurationError(f"inflation={self.inflation}: the factor r on tau must be positive")
        if math.expm1(self.smoothness) * self.offset >= self.scale_divisor:
            raise ConfigurationError(
                f"epsilon={self.epsilon} delta={self.delta} beta_tail={self.beta_tail}: "
                "(e^b-1) Q >= a, so kappa is unbounded; raise beta_tail or delta"
            )

    @property
    def rank(self) -> int:
        """Rank of the quantile among the holdout values, from 1 (P)."""
        return quantile_rank(self.holdout, self.tail)

    @property
    def smoothness(self) -> float:
        """Smoothness of the sensitivity bound (b)."""
        return (exact_smoothness if self.exact else textbook_smoothness)(self.epsilon, self.delta)

    @property
    def scale_divisor(self) -> float:
        """What divides the noise's scale (a)."""
        return self.epsilon / 2

    @property
    def offset(self) -> float:
        """Q = G^-1(1 - beta_tail) of Laplace(1)."""
        return -math.log(2 * self.beta_tail)

    @property
    def kappa(self) -> float:
        """1 / (1 - (e^b - 1) Q / a)."""
        return 1 / (1 - math.expm1(self.smoothness) * self.offset / self.scale_divisor)

    def tau(self, values: Int64s, noise: AddressedNoise, stream: bytes) -> float:
        """Return tau from the held-out values int64[m].  The single draw is at address ("pak/threshold/2", stream).

        Version 2: the parameters are others than those of version 1, and the same draw must not serve both.

        The scale depends on the data, so a draw on a coarse grid would show the scale in its digits: the unit draw is a
        float64 of 53 significant bits, and only the rounded theta is published (docs/guarantees/pak.md, resolution).
        """
        if len(values) != self.holdout:
            raise ConfigurationError(
                f"values={len(values)} holdout={self.holdout}: release after exactly holdout values"
            )
        clipped = np.clip(np.asarray(values, dtype=np.int64), 0, self.bound)
        quantile = int(np.partition(clipped, self.rank - 1)[self.rank - 1])
        spread = smooth_sensitivity(clipped, self.rank, self.smoothness, self.bound)
        labels = noise.labels("pak/threshold/2", [address(stream)])
        unit = unit_laplace(noise.bits(labels, 0, 0)[0, 0])
        return quantile + self.kappa * spread / self.scale_divisor * (unit + self.offset)

    def release(self, values: Int64s, noise: AddressedNoise, streams: Sequence[bytes]) -> Int64s:
        """Return int64[k] thetas for int64[k, m] values."""
        taus = [self.tau(row, noise, stream) for row, stream in zip(values, streams, strict=True)]
        return np.clip(np.rint(self.inflation * np.array(taus)), 1, self.bound).astype(np.int64)
