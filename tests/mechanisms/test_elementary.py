"""exp, log and sums: as exact as floats need, and with bits that are written down."""

import hashlib
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.elementary import LEAST_EXPONENT, exponential, logarithm, total

_CLOSE = 4 * 2.0**-52


@given(st.floats(LEAST_EXPONENT, 700))
def test_exponential_is_exact_to_a_few_units_of_the_last_place(exponent: float) -> None:
    with mpmath.workprec(120):
        expected = mpmath.exp(mpmath.mpf(exponent))
        assert abs(exponential(np.array([exponent]))[0] / expected - 1) <= _CLOSE


@given(st.floats(1e-300, 1e300))
def test_logarithm_is_exact_to_a_few_units_of_the_last_place(number: float) -> None:
    with mpmath.workprec(120):
        expected = mpmath.log(mpmath.mpf(number))
        error = abs(logarithm(np.array([number]))[0] - expected)
        # Near 1, s is rounded relative to itself, so the logarithm is, too.
        assert error <= _CLOSE * max(abs(expected), mpmath.mpf(2) ** -52)


def test_what_is_smaller_still_is_a_normal_number() -> None:
    small = exponential(np.array([-1e9, -1e300, LEAST_EXPONENT]))
    assert len(set(small.tolist())) == 1
    assert small[0] * 2.0**-500 > np.finfo(np.float64).tiny


def test_sums_go_from_the_first_to_the_last() -> None:
    numbers = np.random.default_rng(1).normal(0, 1e3, 10_000) * 10.0 ** np.random.default_rng(2).integers(-9, 9, 10_000)
    expected = 0.0
    for number in numbers.tolist():
        expected += number
    assert total(numbers) == expected
    assert total(numbers) != math.fsum(numbers.tolist()), "or the order would not matter"
    assert total(numbers[:0]) == 0


@pytest.mark.parametrize("shape", [(4096,), (4, 1024), (1024, 4)])
def test_bits_are_the_same_everywhere(shape: tuple[int, ...]) -> None:
    """Whatever the shape, the processor and its vector units. Whole numbers over a power of two are exact inputs."""
    exponents = (np.arange(4096) - 3000) * 0.0625
    numbers = (np.arange(4096) * 977 + 1) * 2.0**-7
    found = [exponential(exponents.reshape(shape)).ravel(), logarithm(numbers.reshape(shape)).ravel()]
    assert [hashlib.sha256(each.astype("<f8").tobytes()).hexdigest()[:16] for each in found] == [
        "2dce0fefcc331bcf",
        "b042c92fa0872f0d",
    ]
