"""From grid noise to the integer that is published: RN((B z)_t), the rounding of an exact rational number.

    z int64 on the grid 2^-noise_bits ──float64 matmul, error bound──▶ integer
                                      └─within the bound of a half-integer──▶ exact integers

A running total n_t is an integer, so n_t + RN((B z)_t) = RN((B y)_t): a function of the private release y = C x + z and
of nothing else. Since near-ties are recomputed exactly, the order in which a BLAS adds does not matter, and neither do
chunks or machines. RN(v) = floor(v + 1/2).
"""

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.factorization import FIXED, Factorization


class Decoder:
    """RN(2^fraction_bits (B z)_t) for one factorization."""

    def __init__(self, factorization: Factorization, *, noise_bits: int, fraction_bits: int = 0) -> None:
        self.factorization = factorization
        self.noise_bits = noise_bits
        self.fraction_bits = fraction_bits
        self._matrix = factorization.decoding
        # 2 (T + 4) rounding errors of 2^-53 relative to sum |b| |z|: b itself, products, additions, and some to spare.
        self._error = factorization.row1 * ((factorization.triggers + 4) * 2.0**-51)

    def rounded(self, z: npt.NDArray[np.int64], first: int, last: int) -> npt.NDArray[np.int64]:
        """int64[k, last - first + 1] for triggers first..last, from z int64[k, last] of triggers 1..last."""
        scale = 2.0 ** (self.fraction_bits - self.noise_bits)
        noise = z.astype(np.float64)
        value = noise @ self._matrix[:last, first - 1 : last]
        value *= scale
        nearest = np.rint(value)
        out = nearest.astype(np.int64)
        value -= nearest
        np.abs(value, out=value)
        largest = max(noise.max(initial=0.0), -noise.min(initial=0.0))
        ties = np.argwhere(value >= 0.5 - self._error[first - 1 : last] * (largest * scale) - 2.0**-51)
        for row, column in ties[np.argsort(ties[:, 1], kind="stable")].tolist():
            out[row, column] = self.exactly(z[row].tolist(), first + column)
        return out

    def exactly(self, z: list[int], trigger: int) -> int:
        """The same for one trigger, in integers: fixed point first, the full rational if that cannot decide."""
        value = sum(map(int.__mul__, self.factorization.row_fixed(trigger), z))
        error = self.factorization.row_error * sum(map(abs, z[:trigger]))
        shift = FIXED + self.noise_bits - self.fraction_bits
        low, high = round_shift(value - error, shift), round_shift(value + error, shift)
        return low if low == high else self.rationally(z, trigger)

    def rationally(self, z: list[int], trigger: int) -> int:
        """Rounds without any approximation."""
        row, denominator = self.factorization.row_exact(trigger)
        value = sum(map(int.__mul__, row, z)) << (self.fraction_bits + 1)
        denominator <<= self.noise_bits
        return (value + denominator) // (2 * denominator)


def round_shift(value: int, shift: int) -> int:
    """floor(value / 2^shift + 1/2)."""
    if shift <= 0:
        return value << -shift
    return (value + (1 << (shift - 1))) >> shift
