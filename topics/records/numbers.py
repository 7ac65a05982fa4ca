"""Values of raw events: JSON numbers to integers, column by column. times.py has the event times.

Values are put on the public grid here, once, so that everything behind is exact integer arithmetic.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import Int64s

Reasons = npt.NDArray[np.uint8]

MAX_STEPS: Final = 2**53
"""The bound of a field has fewer steps of its grid, so that float64 holds each of them."""


def steps_within(bound: float, grid: float) -> int:
    """floor(bound / grid), where 0.7 / 0.1 is 7: a quotient within 1e-9 of an integer was meant to be that."""
    quotient = bound / grid
    nearest = round(quotient)
    return nearest if abs(quotient - nearest) <= 1e-9 * max(1.0, quotient) else math.floor(quotient)


def first_step(lower: float, grid: float) -> int:
    """ceil(lower / grid), with the same care."""
    return -steps_within(-lower, grid) if lower < 0 else math.ceil(lower / grid - 1e-9 * max(1.0, lower / grid))


def steps_of_field(bound: float, grid: float) -> int:
    """The same for a field of a raw record. Raises ValueError unless 1 <= steps < 2^53."""
    if not (0 < grid < math.inf and 0 < bound < math.inf and 1 <= bound / grid < MAX_STEPS):
        raise ValueError(f"bound={bound}, grid={grid}: need 0 < grid <= bound < grid * 2^53")
    return steps_within(bound, grid)


def measure(
    column: Sequence[Any], *, grid: float, low: int, high: int, any_integer: bool = False
) -> tuple[Int64s, Reasons]:
    """clamp(rint(x / grid), low, high) as int64[n], and a Reason per row (0: good; the value of a bad row is 0).

    any_integer: integers outside 64 bits are clamped like any other number, instead of refused.
    """
    numbers, reasons = numbers_of(column, any_integer=any_integer)
    return on_grid(numbers, grid, low, high), reasons


def bucket_of(numbers: npt.NDArray[np.float64], inner: npt.NDArray[np.float64]) -> Int64s:
    """The number of borders below each number. inner: ascending. A number that is equal to a border is in the bucket below it."""
    return np.searchsorted(inner, numbers, side="left").astype(np.int64)


def numbers_of(column: Sequence[Any], *, any_integer: bool = False) -> tuple[npt.NDArray[np.float64], Reasons]:
    """Finite float64[n], and a Reason per row (0: good; the number of a bad row is 0). any_integer: as in `measure`."""
    types = set(map(type, column))
    if types <= {int, float}:
        try:
            numbers = np.fromiter(column, np.float64, len(column))
        except OverflowError:
            pass
        else:
            # An integer outside 64 bits shows as a float of at least 2^63; the slow path tells it from a float.
            limit = 2.0**63 if int in types and not any_integer else np.inf
            if not numbers.size or np.abs(numbers).max() < limit:
                return numbers, np.zeros(len(column), np.uint8)
    if any_integer:
        column = [_as_float(x) if type(x) is int else x for x in column]
    reasons = np.fromiter(map(_value_reason, column), np.uint8, len(column))
    good = [0.0 if reason else float(x) for x, reason in zip(column, reasons, strict=True)]
    return np.array(good, np.float64), reasons


def on_grid(numbers: npt.NDArray[np.float64], grid: float, low: int, high: int) -> Int64s:
    """clamp(rint(x / grid), low, high) of finite numbers."""
    with np.errstate(over="ignore"):  # 1e308 / 1e-3 is infinite and is clamped like any other
        return np.clip(np.rint(numbers / grid), low, high).astype(np.int64)


def _as_float(integer: int) -> float:
    try:
        return float(integer)
    except OverflowError:
        return 1e308 if integer > 0 else -1e308


def _value_reason(value: Any) -> Reason:
    kind = type(value)
    if kind is int:
        return Reason.OK if -(2**63) <= value < 2**64 else Reason.INTEGER_TOO_LARGE
    if kind is float:
        return Reason.OK if np.isfinite(value) else Reason.NOT_FINITE
    if value is None or value is UNSET:
        return Reason.MISSING_VALUE
    return Reason.NOT_A_SCALAR if kind is list or kind is dict else Reason.VALUE_NOT_A_NUMBER
