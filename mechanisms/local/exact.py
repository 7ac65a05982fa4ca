"""Probabilities as integers over 2**64, rounded so that the ratio bound e**epsilon holds exactly.

A probability held in a double can exceed its bound in the last place; an integer compared with a 64-bit word cannot.
"""

import math
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from susurrus.mechanisms.errors import ConfigurationError

MAXIMUM_EPSILON = 16.0
MINIMUM_EPSILON = 2.0**-10
_CONTEXT = Context(prec=60, rounding=ROUND_FLOOR)


def check_epsilon(epsilon: float) -> float:
    """`epsilon` if it is a usable per-report budget, else ConfigurationError."""
    if not (math.isfinite(epsilon) and MINIMUM_EPSILON <= epsilon <= MAXIMUM_EPSILON):
        raise ConfigurationError(
            f"epsilon={epsilon!r} is outside [{MINIMUM_EPSILON}, {MAXIMUM_EPSILON}]: "
            "set the per-report epsilon of local privacy to a number in that range"
        )
    return float(epsilon)


def exp_below(epsilon: float) -> Fraction:
    """A rational number at most e**epsilon, and within 1e-50 of it relatively."""
    value = _CONTEXT.exp(Decimal(epsilon))  # correctly rounded to 60 digits: half a unit in the last place away
    return Fraction(value) * (1 - Fraction(1, 10**55))
