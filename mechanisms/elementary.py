"""The exponential, the logarithm and sums, with the same bits on every machine.

C libraries and vector units round exp and log differently, and numpy chooses the order of a sum by the processor. Here each is made
of steps that IEEE 754 rounds in one way only: +, -, *, /, scaling by powers of two, in an order that is written down. So what
is fitted with them is the same in a replay on another machine. They are as exact as floats need (a few units of the last place).
"""

import math

import numpy as np

from susurrus.mechanisms.arrays import Floats

LEAST_EXPONENT = -300.0
"""`exponential` takes what is below for it. Numbers so small count for nothing, and products with them stay normal floats."""
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
"""The first 32 bits of ln 2: a product with a whole number of 20 bits is exact."""
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_TAYLOR = tuple(1 / math.factorial(n) for n in range(13, -1, -1))
_ODD = tuple(1 / n for n in range(21, 0, -2))


def exponential(exponents: Floats) -> Floats:
    """exp(x) for x <= 700, of any shape; exp(LEAST_EXPONENT) for smaller ones.

    x = k ln 2 + r with |r| <= ln 2 / 2, so exp(x) = 2^k exp(r), by Taylor's sum up to r^13 / 13!.
    """
    exponents = np.maximum(exponents, LEAST_EXPONENT)
    whole = np.rint(exponents * (1 / (_LN2_HIGH + _LN2_LOW)))
    rest = (exponents - whole * _LN2_HIGH) - whole * _LN2_LOW
    result = np.full_like(rest, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        result *= rest
        result += coefficient
    return np.asarray(np.ldexp(result, whole.astype(np.int32)), np.float64)


def logarithm(numbers: Floats) -> Floats:
    """ln(x) for normal floats x > 0, of any shape.

    x = 2^k f with sqrt(1/2) <= f < sqrt(2) or so, and ln f = 2 artanh(s), s = (f - 1) / (f + 1), by the sum up to s^21 / 21.
    """
    fraction, power = np.frexp(numbers)
    low = fraction < 0.7071067811865476
    fraction, power = np.where(low, 2 * fraction, fraction), power - low
    odd = (fraction - 1) / (fraction + 1)
    square = odd * odd
    result = np.full_like(square, _ODD[0])
    for coefficient in _ODD[1:]:
        result *= square
        result += coefficient
    return np.asarray((2 * odd * result + power * _LN2_LOW) + power * _LN2_HIGH, np.float64)


def total(numbers: Floats) -> float:
    """The sum of float64[n] from the first to the last; 0 of none."""
    return float(np.add.accumulate(numbers)[-1]) if len(numbers) else 0.0


def totals(numbers: Floats) -> list[float]:
    """`total` of each row of float64[k, n], n > 0."""
    found: list[float] = np.add.accumulate(numbers, axis=1)[:, -1].tolist()
    return found
