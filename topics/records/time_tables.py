"""Texts of event times that are spelt alike, all at once: what time_spellings.py finds in each, by columns of characters."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from susurrus.topics.records.time_spellings import month, offset
from susurrus.topics.wire.packing import Int64s
from susurrus.topics.wire.timestamps import EARLIEST, LATEST, first_days

_DIGITS: Final = "YmdHMSf"
_FIXED: Final = {"b", "z"}


def alike(found: re.Match[str], texts: Sequence[str]) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Milliseconds, int64[n], of texts as long as that of a match, which is an instant; bool[n]: which rows are done.

    A row is done where it differs from the match in the digits of year, month, day, time and fraction only: then the same
    expression matches it at the same places, because no expression has a digit of its own there. All are local if the match
    is. The others, and what is unusual or no instant, are 0 and left to `milliseconds`.
    """
    n, length = len(texts), len(found.string)
    nothing = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    said = {letter: text for letter, text in found.groupdict().items() if text is not None}
    spans = {letter: found.span(letter) for letter in _DIGITS if letter in said}
    joined = "".join(texts)
    if not joined.isascii() or said.keys() - spans.keys() - _FIXED or "Y" not in spans:
        return nothing
    if not all(said[letter].isdigit() for letter in spans):
        return nothing
    table = np.frombuffer(joined.encode(), np.uint8).reshape(n, length).T
    wanted = found.string.encode()
    moving = {place for span in spans.values() for place in range(*span)}
    done = np.ones(n, np.bool_)
    for place in range(length):
        done &= table[place] - np.uint8(ord("0")) <= 9 if place in moving else table[place] == wanted[place]

    def number(letter: str, most: int = length) -> Int64s:
        value = np.zeros(n, np.int64)
        first, end = spans.get(letter, (0, 0))
        for place in range(first, min(end, first + most)):
            value = value * 10 + (table[place] - np.int64(ord("0")))
        return np.where(done, value, 0)

    months, days = number("m") if "m" in spans else np.full(n, month(said)), number("d")
    years, hours, minutes, seconds = (number(letter) for letter in "YHMS")
    done &= (years >= 1) & (months >= 1) & (months <= 12) & (hours <= 23) & (minutes <= 59) & (seconds <= 59)
    since = np.where(done, (years - 1970) * 12 + months - 1, 0)
    first, after = first_days(since), first_days(since + 1)
    done &= (days >= 1) & (days <= after - first)
    fraction = number("f", 3) * 10 ** max(0, 3 - len(said.get("f", "")))
    times = (((first + days - 1) * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + fraction
    if "z" in said:
        times -= offset(said["z"])
    done &= (times >= EARLIEST) & (times <= LATEST)
    return np.where(done, times, 0), done
