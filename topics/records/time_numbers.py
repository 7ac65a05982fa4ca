"""Event times that are numbers, or digits in texts: floor to the millisecond, also before 1970, as Kafka's stamps are cut.

A float is the last millisecond that is not after it, where a millisecond counts as the float nearest to it: 0.001 s is none, and
1790834400.123 shall keep its digits. Texts and decimals are exact.
"""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from susurrus.topics.records.numbers import Reasons
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import Int64s
from susurrus.topics.wire.timestamps import EARLIEST, LATEST

NumberUnit = Literal["s", "ms", "us", "ns", "d"]
TimeUnit = Literal["s", "ms", "us", "ns", "d", "iso"]

_MILLISECONDS: Final[dict[str, tuple[int, int]]] = {
    "s": (1_000, 1),
    "ms": (1, 1),
    "us": (1, 1_000),
    "ns": (1, 1_000_000),
    "d": (86_400_000, 1),
}
"""What a unit is in milliseconds: numerator and denominator."""
_NUMBER = re.compile(r"([+-]?)([0-9]{1,40})(?:\.([0-9]{1,40}))?(?:[eE]([+-]?[0-9]{1,2}))?", re.ASCII)
_MOST_DIGITS = 40


def stamps_of(unit: NumberUnit) -> tuple[int, int]:
    """The first and last integer of 64 bits that is an instant of the years 1 to 9999."""
    numerator, denominator = _MILLISECONDS[unit]
    first, last = -(-EARLIEST * denominator // numerator), ((LATEST + 1) * denominator - 1) // numerator
    return max(first, -(2**63)), min(last, 2**63 - 1)


def parts_of(unit: NumberUnit) -> tuple[int, int]:
    """What a unit is in milliseconds: numerator and denominator."""
    return _MILLISECONDS[unit]


def integer_times(stamps: Int64s, unit: NumberUnit) -> tuple[Int64s, Reasons]:
    """Milliseconds since 1970, int64[n], and a Reason per row (0: good; the time of a bad row is 0)."""
    first, last = stamps_of(unit)
    inside = (stamps >= first) & (stamps <= last)
    numerator, denominator = _MILLISECONDS[unit]
    times = np.where(inside, stamps, 0) * numerator // denominator
    return times, np.where(inside, Reason.OK, Reason.BAD_TIME).astype(np.uint8)


def float_times(stamps: npt.NDArray[np.float64], unit: NumberUnit) -> tuple[Int64s, Reasons]:
    """The same of floats."""
    numerator, denominator = _MILLISECONDS[unit]
    inside = (stamps >= -(2.0**63)) & (stamps < 2.0**63)  # false for NaN
    stamps = np.where(inside, stamps, 0.0)
    # The nearest millisecond or the one before it. The way back says which: it rounds once, as a reader of digits does.
    times = np.rint(stamps * numerator if numerator > 1 else stamps / denominator)
    after = (times / numerator if numerator > 1 else times * denominator) > stamps
    times -= after
    inside &= (times >= EARLIEST) & (times <= LATEST)
    return np.where(inside, times, 0.0).astype(np.int64), np.where(inside, Reason.OK, Reason.BAD_TIME).astype(np.uint8)


def text_time(text: str, unit: NumberUnit) -> tuple[int, Reason]:
    """The same of the digits in a text, such as "1790834400.123", "-1" or "1.790834400123E9", exactly."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return 0, Reason.TIME_NOT_A_NUMBER
    sign, whole, fraction, exponent = found.groups()
    fraction = fraction or ""
    number = int(whole + fraction)
    return _exact(-number if sign == "-" else number, int(exponent or 0) - len(fraction), unit)


def decimal_time(stamp: Decimal, unit: NumberUnit) -> tuple[int, Reason]:
    """The same of a decimal of a schema."""
    sign, digits, exponent = stamp.as_tuple()
    if not isinstance(exponent, int) or len(digits) > _MOST_DIGITS or abs(exponent) > _MOST_DIGITS:
        return 0, Reason.BAD_TIME
    number = int("".join(map(str, digits)) or "0")
    return _exact(-number if sign else number, exponent, unit)


def _exact(number: int, exponent: int, unit: NumberUnit) -> tuple[int, Reason]:
    """Of number * 10^exponent."""
    numerator, denominator = _MILLISECONDS[unit]
    time = number * numerator * 10 ** max(exponent, 0) // (denominator * 10 ** max(-exponent, 0))
    return (time, Reason.OK) if EARLIEST <= time <= LATEST else (0, Reason.BAD_TIME)


def digit_times(texts: Sequence[str], unit: NumberUnit) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """The texts of one length that have up to 19 digits, and the point where the first one has it; all at once.

    int64[n], and bool[n]: which rows are done, as `text_time` does them. The others are 0.
    """
    n, length = len(texts), len(texts[0])
    times, done = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    joined = "".join(texts)
    point = texts[0].find(".")
    places = [place for place in range(length) if place != point]
    if not joined.isascii() or not 1 <= len(places) <= 19 or point in (0, length - 1):
        return times, done
    table = np.frombuffer(joined.encode(), np.uint8).reshape(n, length).T
    done[:] = True if point < 0 else table[point] == ord(".")
    number = np.zeros(n, np.uint64)  # 19 digits fit
    for place in places:
        digit = table[place] - np.uint8(ord("0"))
        done &= digit <= 9
        number = number * np.uint64(10) + digit
    numerator, denominator = _MILLISECONDS[unit]
    denominator *= 1 if point < 0 else 10 ** (length - point - 1)
    common = math.gcd(numerator, denominator)
    numerator, denominator = numerator // common, denominator // common
    done &= number <= np.uint64(2**63 // numerator)
    times = (np.where(done, number, 0) * np.uint64(numerator) // np.uint64(denominator)).astype(np.int64)
    done &= (times >= 0) & (times <= LATEST)
    return np.where(done, times, 0), done
