"""Lower-triangular Toeplitz factorizations A = B C of the prefix sum, on a dyadic grid.

    increments x ──C──▶ + noise z ──B──▶ running totals with noise B z

C = (1 - x)^-gamma, quantised to multiples of 2^-bits with C[0] = 1; B = A C^-1 exactly, as a rational series. Because
C and z live on one grid, C x + z is the rounding of a continuous Gaussian release (docs/guarantees/toeplitz.md).
Sources: Fichtenberger, Henzinger, Upadhyay 2023 (gamma = 1/2); Dvijotham et al. 2024 for other exponents.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

FIXED = 192
"""Fractional bits of the fixed-point decoder."""


@dataclass(frozen=True)
class Factorization:
    """One strategy matrix for T triggers.

    triggers T; exponent gamma; bits: fractional bits of C's coefficients; numerators: C's first column times 2^bits.
    """

    triggers: int
    exponent: float
    bits: int
    numerators: tuple[int, ...]

    @cached_property
    def column_squares(self) -> tuple[Fraction, ...]:
        """Exact squared norm of column t = 1..T of C: sum over k <= T - t of c_k^2. Not increasing in t."""
        total, out = 0, []
        for numerator in self.numerators:
            total += numerator * numerator
            out.append(Fraction(total, 1 << (2 * self.bits)))
        return tuple(reversed(out))

    @property
    def col2(self) -> float:
        """Largest squared column norm (that of the first column), rounded up."""
        return round_up(self.column_squares[0])

    @cached_property
    def decoder_fixed(self) -> tuple[int, ...]:
        """First column of B times 2^FIXED, each within 2 T of the exact value (T <= 10^4; see `decoder_error`)."""
        one, bits, c = 1 << FIXED, self.bits, self.numerators
        inverse = [one]
        for k in range(1, self.triggers):
            total = sum(map(int.__mul__, c[1 : k + 1], reversed(inverse)))
            inverse.append(-(total >> bits))
        running, out = 0, []
        for value in inverse:
            running += value
            out.append(running)
        return tuple(out)

    @cached_property
    def decoder_error(self) -> int:
        """Rigorous bound, in units of 2^-FIXED, on the error of every entry of `decoder_fixed`.

        The computed inverse w satisfies c * w = 1 + r with 0 <= r_k < 1 unit, so exact inverse - w = -w_exact * r, and
        the error of a partial sum is at most T times the largest partial sum of |w_exact|. That is bounded by the
        computed one plus its own error; the loop closes because the bound is far below one.
        """
        total = sum(abs(b - a) for a, b in zip((0, *self.decoder_fixed), self.decoder_fixed, strict=False))
        return 2 * self.triggers * ((total >> FIXED) + 2)

    @cached_property
    def decoder(self) -> npt.NDArray[np.float64]:
        """First column of B as float64, each within 2^-52 of its exact value, relatively."""
        return np.array([float(Fraction(value, 1 << FIXED)) for value in self.decoder_fixed])

    @cached_property
    def decoder_exact(self) -> tuple[int, ...]:
        """b_k * 2^(bits k), exact integers; only ever needed for the rarest ties."""
        bits, c = self.bits, self.numerators
        inverse = [1]
        for k in range(1, self.triggers):
            # w_k 2^(bits k) = -sum_j c_j 2^bits w_(k-j) 2^(bits (k-j)) 2^(bits (j-1))
            inverse.append(-sum(c[j] * inverse[k - j] << (bits * (j - 1)) for j in range(1, k + 1)))
        running = 0
        out: list[int] = []
        for value in inverse:
            running = (running << bits if out else 0) + value
            out.append(running)
        return tuple(out)

    def describe(self) -> dict[str, float | int]:
        """Public constants."""
        return {"col2": self.col2, "exponent": self.exponent, "coefficient_bits": self.bits}

    @cached_property
    def row2(self) -> npt.NDArray[np.float64]:
        """Squared norm of row t = 1..T of B: the variance of (B z)_t for unit noise. Rounded up by 1e-12."""
        return np.cumsum(self.decoder**2) * (1 + 1e-12)

    def row_product(self, first: int, last: int) -> float:
        """Product of rows first <= last of B: the covariance of (B z)_first and (B z)_last for unit noise, correctly rounded but
        for the products."""
        b = self.decoder
        return math.fsum((b[:first] * b[last - first : last]).tolist())

    @cached_property
    def row1(self) -> npt.NDArray[np.float64]:
        """Sum of absolute values of row t = 1..T of B, rounded up by 1e-12."""
        return np.cumsum(np.abs(self.decoder)) * (1 + 1e-12)


def round_up(value: Fraction) -> float:
    """The smallest float64 not below an exact fraction."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


@lru_cache(maxsize=64)
def power(triggers: int, exponent: float, bits: int) -> Factorization:
    """C = (1 - x)^-exponent: c_0 = 1, c_k = c_(k-1) (k - 1 + exponent) / k, rounded so that partial sums stay close.

    Rounding carries its remainder to the next coefficient: on a coarse grid the partial sums, which are what a
    decoder inverts, stay within one unit. A coefficient is never negative.
    """
    numerators, coefficient, wanted, given = [1 << bits], 1.0, 0.0, 0
    for k in range(1, triggers):
        coefficient *= (k - 1 + exponent) / k
        wanted += coefficient * 2.0**bits
        numerators.append(max(0, round(wanted - given)))
        given += numerators[-1]
    return Factorization(triggers, exponent, bits, tuple(numerators))
