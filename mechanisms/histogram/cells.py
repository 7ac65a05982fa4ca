"""Counts of values by bucket, released at every trigger as cumulative counts: what quantiles are computed from.

    one record ──▶ one bucket of its key ──C_time ⊗ C_bucket──▶ + noise ──B_time ⊗ B_bucket──▶ F_1..F_B of each trigger

F_j is the number of records in the first j buckets so far. A prefix sum over triggers and a prefix sum over buckets are the same
problem twice, so the same Toeplitz factors solve both: a record costs col_time * col_bucket, and F_j has the noise
row_time * row_bucket,j. Argument: docs/guarantees/quantiles.md.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.histogram.factorization import (
    FIXED,
    MIN_BITS,
    Factorization,
    normalized_power,
    power,
    round_up,
)
from susurrus.mechanisms.histogram.rounding import round_shift
from susurrus.mechanisms.noise import WindowNoise, grid_units

MAX_BUCKETS: Final = 256
EXPONENTS: Final = (0.0, 0.25, 0.35, 0.5)
"""Of C_bucket = (1 - x)^-exponent. 0 measures every bucket by itself."""
BUCKET_BITS: Final = 12
"""Fractional bits of C_bucket's coefficients. They are the same at every scale of noise, so covariances follow from B alone."""
_TIME_BITS: Final = 16
_NOISE_BITS: Final = 34
"""As `factored.NOISE_BITS`."""
_DRAWS_AT_ONCE: Final = 1 << 19


class Cells:
    """One Gaussian mechanism over the buckets of a column, published as B cumulative counts with their standard errors.

    Privacy: records of one user move the release by at most sum over records of |C_time e_t| |C_bucket e_i| / sigma, whatever their
    buckets and triggers. One record at the first trigger in the first bucket costs ``cost`` of mu^2, and no other costs more.
    Neighbours add or remove a user's records of the window.
    """

    def __init__(
        self,
        mechanism: str,
        *,
        triggers: int,
        buckets: int,
        cost: float,
        bits: int | None = None,
        normalized: bool = False,
    ) -> None:
        """cost: of mu^2, for one record. bits: fractional bits of C_time's coefficients; None: those that fit the noise.
        normalized: whether C_time has columns of one norm, on grids that fit the noise: a record costs that whenever it comes.

        Raises ConfigurationError where the noise does not fit its grid.
        """
        self.mechanism = mechanism
        self.over_buckets = _of_buckets(buckets, bucket_exponent(buckets))
        # sigma changes little with the bits
        room = _NOISE_BITS - BUCKET_BITS - math.ceil(math.log2(self._sigma(power(triggers, 0.5, _TIME_BITS), cost)))
        fitted = max(MIN_BITS, min(_TIME_BITS, room)) if bits is None else bits
        self.factorization = normalized_power(triggers, 0.5, room) if normalized else power(triggers, 0.5, fitted)
        self.sigma = self._sigma(self.factorization, cost)
        self.noise_bits = self.factorization.grid_bits + self.over_buckets.grid_bits
        grid_units(self.sigma, self.noise_bits)
        self._of_time, self._of_buckets = self.factorization.decoding, self.over_buckets.decoding
        # Rounding to an integer adds at most a uniform error: variance 1/12.
        self.std: Floats = np.sqrt(np.outer(self.sigma**2 * self.factorization.row2, self.over_buckets.row2) + 1 / 12)
        """float64[T, B]: of the cumulative counts at each trigger."""
        # 2 (T + B + 8) rounding errors of 2^-53 relative to sum |b| |b| |z|: both b, products and additions of both contractions.
        self._error = np.outer(self.factorization.row1, self.over_buckets.row1) * ((triggers + buckets + 8) * 2.0**-51)

    def _sigma(self, of_time: Factorization, cost: float) -> float:
        square = of_time.column_squares[0] * self.over_buckets.column_squares[0]
        return math.sqrt(round_up(square) / cost) * (1 + 1e-12)

    @property
    def buckets(self) -> int:
        """B."""
        return self.over_buckets.triggers

    def covariance(self, first: Trigger, last: Trigger) -> Floats:
        """float64[B]: of the noises of each cumulative count at two triggers, without rounding."""
        return self.sigma**2 * self.factorization.row_product(first, last) * self.over_buckets.row2

    def totals(self, sums: Int64s) -> Int64s:
        """int64[k, B]: the cumulative counts of int64[k, B] counts."""
        return np.cumsum(sums, axis=1)

    def noise(self, trigger: int, address: str, keys: Sequence[bytes], noise: WindowNoise) -> Int64s:
        """int64[k, B]: RN((B z)_t) per key, remembered for all triggers of the window while there is memory.

        The draw of trigger t and bucket j has the index (t - 1) B + j, both from 1 on. A key without records has its noise, too.
        """
        triggers, buckets = self.factorization.triggers, self.buckets
        memory = noise.memory(address, triggers * buckets)
        found = memory.find(keys)
        missing = np.flatnonzero(found < 0)
        out = np.empty((len(keys), buckets), np.int64)
        place = slice((trigger - 1) * buckets, trigger * buckets)
        out[found >= 0] = memory.table[found[found >= 0], place]
        rows = max(1, _DRAWS_AT_ONCE // (triggers * buckets))
        for begin in range(0, len(missing), rows):
            index = missing[begin : begin + rows]
            some = [keys[i] for i in index.tolist()]
            remember = len(some) <= memory.room()
            last = triggers if remember else trigger
            labels = noise.labels(address, some)
            z = noise.normal(labels, 1, last * buckets, sigma=self.sigma, bits=self.noise_bits)
            drawn = self.rounded(z.reshape(len(some), last, buckets), 1 if remember else trigger, last)
            out[index] = drawn[:, -1] if not remember else drawn[:, trigger - 1]
            if remember:
                memory.add(some, drawn.reshape(len(some), -1))
        return out

    def rounded(self, z: Int64s, first: int, last: int) -> Int64s:
        """int64[k, last - first + 1, B]: RN of the decoded noise of triggers first..last, from z int64[k, last, B].

        Float64 decides where its error bound is clear of a half-integer, exact integers otherwise. So neither the order in which a
        BLAS adds nor the machine changes a result.
        """
        scale = 2.0**-self.noise_bits
        noise = z.astype(np.float64)
        by_time = np.einsum("ksb,st->ktb", noise, self._of_time[:last, first - 1 : last], optimize=True)
        value = (by_time @ self._of_buckets) * scale
        nearest = np.rint(value)
        out: Int64s = nearest.astype(np.int64)
        largest = max(noise.max(initial=0.0), -noise.min(initial=0.0)) * scale
        near = np.abs(value - nearest) >= 0.5 - self._error[first - 1 : last] * largest - 2.0**-51
        ties = np.argwhere(near)
        for row, at, bucket in ties[np.argsort(ties[:, 1], kind="stable")].tolist():
            out[row, at, bucket] = self.exactly(z[row].tolist(), first + at, bucket + 1)
        return out

    def exactly(self, z: list[list[int]], trigger: int, bucket: int) -> int:
        """The same for one trigger and cumulative count, in integers: fixed point first, then the full rational."""
        time, over = self.factorization, self.over_buckets
        size = max(abs(each) for row in z[:trigger] for each in row[:bucket]) if trigger else 0
        of_time, of_buckets = time.row_fixed(trigger), over.row_fixed(bucket)
        value = sum(b * sum(map(int.__mul__, of_buckets, row)) for b, row in zip(of_time, z, strict=False))
        # |b b' - f f'| <= |f| e' + |f'| e + e e' for fixed-point values f, f' with errors e, e'.
        first, second = sum(map(abs, of_time)), sum(map(abs, of_buckets))
        e, f = time.row_error, over.row_error
        error = size * (first * bucket * f + second * trigger * e + trigger * bucket * e * f)
        shift = 2 * FIXED + self.noise_bits
        low, high = round_shift(value - error, shift), round_shift(value + error, shift)
        return low if low == high else self.rationally(z, trigger, bucket)

    def rationally(self, z: list[list[int]], trigger: int, bucket: int) -> int:
        """Rounds without any approximation."""
        of_time, denominator = self.factorization.row_exact(trigger)
        of_buckets, by_bucket = self.over_buckets.row_exact(bucket)
        value = sum(b * sum(map(int.__mul__, of_buckets, row)) for b, row in zip(of_time, z, strict=False))
        denominator *= by_bucket << self.noise_bits
        return (2 * value + denominator) // (2 * denominator)

    def describe(self) -> dict[str, float | int]:
        """Public constants; std in records, of the noisiest cumulative count."""
        return {
            "sigma": self.sigma,
            **self.factorization.describe(),
            "buckets": self.buckets,
            "bucket_col2": self.over_buckets.col2,
            "bucket_exponent": self.over_buckets.exponent,
            "std_first": float(self.std[0].max()),
            "std_last": float(self.std[-1].max()),
        }


def covariances(buckets: int) -> Floats:
    """float64[B, B]: of the cumulative counts' noise, up to the factor sigma^2 row_time^2, which all have in common.

    It depends on the number of buckets alone.
    """
    return _covariances(_of_buckets(buckets, bucket_exponent(buckets)))


@lru_cache(maxsize=64)
def bucket_exponent(buckets: int) -> float:
    """Which of EXPONENTS has the least noise on a median: sd of F_j - F_B / 2 at unit cost, on average over the borders j < B.

    A rule of public constants. 0 for few buckets, 0.35 for most numbers of them.
    """

    def noise(exponent: float) -> float:
        factorization = _of_buckets(buckets, exponent)
        return float(np.sqrt(factorization.col2 * rank_variances(_covariances(factorization), 0.5)).mean())

    return min(EXPONENTS, key=noise) if buckets > 1 else 0.0


def rank_variances(covariance: Floats, share: float) -> Floats:
    """float64[B - 1]: of F_j - share * F_B at the inner borders, from float64[B, B] covariances of F."""
    inner = np.arange(len(covariance) - 1)
    variance: Floats = covariance[inner, inner] + share * share * covariance[-1, -1] - 2 * share * covariance[inner, -1]
    return variance


def _of_buckets(buckets: int, exponent: float) -> Factorization:
    return power(buckets, exponent, BUCKET_BITS)


def _covariances(factorization: Factorization) -> Floats:
    """B B': each entry is the one before it on the diagonal, and one product more. So every machine rounds it alike."""
    b, covariance = factorization.decoder, np.zeros((factorization.triggers, factorization.triggers))
    for j in range(len(b)):
        covariance[j] = b[j] * b
        if j:
            covariance[j, 1:] += covariance[j - 1, :-1]
    return covariance
