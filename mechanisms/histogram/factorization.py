"""Lower-triangular factorizations A = B C of the prefix sum, on a dyadic grid.

    increments x ──C──▶ + noise z ──B──▶ running totals with noise B z

C = (1 - x)^-gamma, quantised to multiples of 2^-bits with C[0] = 1; B = A C^-1 exactly, as a rational series. Because
C and z live on one grid, C x + z is the rounding of a continuous Gaussian release (docs/guarantees/toeplitz.md).

A column-normalized factorization is C E with B = A E^-1 C^-1: the diagonal E stretches later columns of C, which are shorter,
to the norm of the first one.
Sources: Fichtenberger, Henzinger, Upadhyay 2023 (gamma = 1/2); Dvijotham et al. 2024 for other exponents; Henzinger, Kalinin,
Upadhyay 2025 (arXiv 2509.14334) for normalized columns.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

FIXED = 192
"""Fractional bits of the fixed-point decoder."""
MIN_BITS, MAX_BITS = 8, 20
"""Fractional bits of C's coefficients."""
MAX_SCALE_BITS = 8
"""Fractional bits of the scales of normalized columns."""


@dataclass(frozen=True)
class Factorization:
    """One strategy matrix for T triggers.

    triggers T; exponent gamma; bits: fractional bits of C's coefficients; numerators: C's first column times 2^bits.
    scale_bits, column_scales: E_t times 2^scale_bits, t = 1..T, at least 1 and not decreasing; (): E is the identity.
    """

    triggers: int
    exponent: float
    bits: int
    numerators: tuple[int, ...]
    scale_bits: int = 0
    column_scales: tuple[int, ...] = ()

    @property
    def grid_bits(self) -> int:
        """Fractional bits of the grid on which C E x is, and the noise must be, for integer increments x."""
        return self.bits + self.scale_bits

    @cached_property
    def columns(self) -> npt.NDArray[np.int64]:
        """int64[T, T]: [s, t] = c_(s-t) E_t in units of 2^-grid_bits, 0 above the diagonal: what 1 at trigger t adds to row s."""
        c = np.array(self.numerators, np.int64)
        scales = np.array(self.column_scales or (1,) * self.triggers, np.int64)
        lag = np.arange(self.triggers)[:, None] - np.arange(self.triggers)[None, :]
        return np.where(lag >= 0, c[np.abs(lag)] * scales, 0)

    @cached_property
    def column_squares(self) -> tuple[Fraction, ...]:
        """Exact squared norm of column t = 1..T of C E: E_t^2 times the sum over k <= T - t of c_k^2. None exceeds the first."""
        squares = _column_squares(self.numerators, self.bits)
        if not self.column_scales:
            return squares
        one = 1 << (2 * self.scale_bits)
        return tuple(
            square * Fraction(scale * scale, one) for square, scale in zip(squares, self.column_scales, strict=True)
        )

    @property
    def col2(self) -> float:
        """Largest squared column norm (that of the first column), rounded up."""
        return round_up(self.column_squares[0])

    def normalized(self, scale_bits: int) -> "Factorization":
        """The same with columns of the first one's norm: E_t = floor(2^scale_bits |C e_1| / |C e_t|) / 2^scale_bits.

        Rounded down, so no column is longer than the first. This one itself, where all E_t are 1 on that grid.
        """
        squares, one = _column_squares(self.numerators, self.bits), 1 << (2 * scale_bits)
        scales = tuple(math.isqrt(math.floor(squares[0] * one / square)) for square in squares)
        if scales[-1] == 1 << scale_bits:
            return replace(self, scale_bits=0, column_scales=())
        return replace(self, scale_bits=scale_bits, column_scales=scales)

    @cached_property
    def decoder_fixed(self) -> tuple[int, ...]:
        """First column of A C^-1 times 2^FIXED, each within 2 T of the exact value (T <= 10^4; see `decoder_error`)."""
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
        """First column of A C^-1 as float64, each within 2^-52 of its exact value, relatively."""
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

    @cached_property
    def decoding(self) -> npt.NDArray[np.float64]:
        """float64[T, T]: [s, t] = entry of row t and column s of B, 0 below; its error is at most (T + 4) 2^-53 of `_majorant`'s.

        With d_t = 1 / E_t and b of A C^-1, summation by parts of sum_r d_r (C^-1)_(r-s) gives
        d_t b_(t-s) + sum over s <= r < t of (d_r - d_(r+1)) b_(r-s), in which nothing cancels as long as no b is negative.
        """
        return self._by_parts(self.decoder)

    @cached_property
    def _majorant(self) -> npt.NDArray[np.float64]:
        """The same with |b|: `decoding` itself where no b is negative, else no smaller than its absolute value."""
        return self.decoding if (self.decoder >= 0).all() else self._by_parts(np.abs(self.decoder))

    def _by_parts(self, b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        lag = np.arange(self.triggers)[None, :] - np.arange(self.triggers)[:, None]
        plain = np.where(lag >= 0, b[np.abs(lag)], 0.0)
        if not self.column_scales:
            return plain
        inverse = self._inverse_scales
        steps = np.array([float(first - second) for first, second in pairwise(inverse)])
        out: npt.NDArray[np.float64] = plain * np.array([float(each) for each in inverse])
        # One addition after the other, in the same order on every machine.
        out[:, 1:] += np.cumsum(plain[:, :-1] * steps, axis=1)
        return out

    @cached_property
    def _inverse_scales(self) -> tuple[Fraction, ...]:
        """d_t = 1 / E_t, not increasing."""
        return tuple(Fraction(1 << self.scale_bits, scale) for scale in self.column_scales)

    @cached_property
    def _steps_fixed(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(d_t, d_t - d_(t+1)) times 2^FIXED; errors below one unit."""
        fixed = [math.floor(each * (1 << FIXED)) for each in self._inverse_scales]
        return tuple(fixed), tuple(first - second for first, second in pairwise(fixed))

    def row_fixed(self, trigger: int) -> list[int]:
        """Entries 1..t of row t of B times 2^FIXED, each within `row_error` of the exact value.

        Where columns are scaled, asking for triggers in ascending order costs T additions each.
        """
        b = self.decoder_fixed
        if not self.column_scales:
            return list(b[trigger - 1 :: -1])
        inverse, steps = self._steps_fixed
        done, sums = self._last_row
        if done >= trigger:
            done, sums = 0, []
        for last in range(done, trigger - 1):  # r = last + 1, whose term enters the columns up to r
            step = steps[last]
            sums = [total + (step * b[last - s] >> FIXED) for s, total in enumerate([*sums, 0])]
        self.__dict__["_last_row"] = (trigger - 1, sums)  # one assignment: threads share a factorization
        return [total + (inverse[trigger - 1] * b[trigger - 1 - s] >> FIXED) for s, total in enumerate([*sums, 0])]

    @cached_property
    def _last_row(self) -> tuple[int, list[int]]:
        """(r, the sums of the first r steps for columns 1..r) of the row that was asked for last."""
        return 0, []

    @cached_property
    def row_error(self) -> int:
        """Rigorous bound, in units of 2^-FIXED, on the error of every entry of `row_fixed`.

        Each of at most T terms is off by a unit for its floor, by less than a unit of its step times |b|, and by the step times
        b's own error; the steps add up to at most 1.
        """
        if not self.column_scales:
            return self.decoder_error
        largest = (max(map(abs, self.decoder_fixed)) >> FIXED) + 1
        return self.decoder_error + (self.triggers + 1) * (largest + 2)

    def row_exact(self, trigger: int) -> tuple[list[int], int]:
        """(numerators of entries 1..t of row t of B, their denominator), exact; only ever needed for the rarest ties."""
        b, bits = self.decoder_exact, self.bits
        whole = [b[k] << (bits * (trigger - 1 - k)) for k in range(trigger)]  # b_k 2^(bits (t - 1))
        denominator = 1 << (bits * (trigger - 1))
        if not self.column_scales:
            return whole[::-1], denominator
        common = math.lcm(*self.column_scales[:trigger])
        inverse = [common // scale << self.scale_bits for scale in self.column_scales[:trigger]]
        steps = [*(first - second for first, second in pairwise(inverse)), inverse[-1]]
        rows = [sum(steps[r] * whole[r - s] for r in range(s, trigger)) for s in range(trigger)]
        return rows, denominator * common

    def describe(self) -> dict[str, float | int]:
        """Public constants. column_scale_bits: of E; only where columns are scaled."""
        scaled = {"column_scale_bits": self.scale_bits} if self.column_scales else {}
        return {"col2": self.col2, "exponent": self.exponent, "coefficient_bits": self.bits, **scaled}

    @cached_property
    def row2(self) -> npt.NDArray[np.float64]:
        """Squared norm of row t = 1..T of B: the variance of (B z)_t for unit noise. Rounded up by 1e-12."""
        if not self.column_scales:
            return np.cumsum(self.decoder**2) * (1 + 1e-12)
        return np.array([math.fsum(row) for row in (self.decoding.T**2).tolist()]) * (1 + 1e-12)

    def row_product(self, first: int, last: int) -> float:
        """Product of rows first <= last of B: the covariance of (B z)_first and (B z)_last for unit noise, correctly rounded but
        for the products."""
        rows = self.decoding
        return math.fsum((rows[:first, first - 1] * rows[:first, last - 1]).tolist())

    @cached_property
    def row1(self) -> npt.NDArray[np.float64]:
        """Sum of absolute values of row t = 1..T of B, rounded up by 1e-12."""
        if not self.column_scales:
            return np.cumsum(np.abs(self.decoder)) * (1 + 1e-12)
        return np.array([math.fsum(row) for row in self._majorant.T.tolist()]) * (1 + 1e-12)


def _column_squares(numerators: tuple[int, ...], bits: int) -> tuple[Fraction, ...]:
    """Of C: sum over k <= T - t of c_k^2, t = 1..T. Not increasing in t."""
    total, out = 0, []
    for numerator in numerators:
        total += numerator * numerator
        out.append(Fraction(total, 1 << (2 * bits)))
    return tuple(reversed(out))


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


def normalized_power(triggers: int, exponent: float, room: int) -> Factorization:
    """`power` with normalized columns, where coefficients and scales have ``room`` fractional bits together.

    A scale on 8 bits costs .1 % of what it gains, one on 4 bits a tenth. A coefficient needs 8 bits; beyond 12 it gains nothing
    that shows. Where there is no room for both, columns stay as they are.
    """
    scale_bits = max(0, min(MAX_SCALE_BITS, room // 2 - 2, room - MIN_BITS))
    bits = max(MIN_BITS, min(MAX_BITS, room - scale_bits))
    return _normalized(triggers, exponent, bits, scale_bits)


@lru_cache(maxsize=64)
def _normalized(triggers: int, exponent: float, bits: int, scale_bits: int) -> Factorization:
    return power(triggers, exponent, bits).normalized(scale_bits)
