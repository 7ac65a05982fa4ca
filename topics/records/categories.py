"""Users and keys: JSON scalars to codes and canonical bytes.

Canonical bytes are what two spellings of the same scalar share: "a" and "\\u0061" are one user, 1 and 1.0 and 1e0 are
one, -0.0 is 0; 1, "1" and true are three. No Unicode normalisation. Strings are escaped only where JSON requires it,
integers are plain, other numbers have the shortest digits that read back the same. What only schemas know becomes text: bytes their
lower-case hexadecimal digits, two each, and dates 2026-01-31, as expressions write them.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime, time
from itertools import count
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import Int32s, Int64s

_ENCODER = msgspec.json.Encoder()
_FAST = ({str}, {int}, {str, int})
_EXACT = 2.0**53
"""The bound below which a float is the very integer that was written."""


class Categories:
    """Collects the distinct scalars of one column; codes count up in order of first occurrence.

    missing: the reason for null and for an absent scalar, which are one, unless nullable. limit: of canonical bytes. empty: the
    reason for the empty text, OK where it is a scalar like others.
    """

    def __init__(self, missing: Reason, *, nullable: bool, limit: int, empty: Reason = Reason.OK) -> None:
        self._missing = missing
        self._nullable = nullable
        self._empty = empty
        self.limit = limit
        self._codes: defaultdict[Any, int] = defaultdict(count().__next__)

    def add(self, column: Sequence[Any]) -> Int32s:
        """int32[len(column)]: codes so far, or minus the Reason."""
        if set(map(type, column)) in _FAST:  # none of these equals another of another type
            return np.fromiter(map(self._codes.__getitem__, column), np.int32, len(column))
        return np.fromiter(map(self._add, column), np.int32, len(column))

    def _add(self, scalar: Any) -> int:
        codes = self._codes
        kind = type(scalar)
        if kind is str or kind is int:
            return codes[scalar]
        if kind is bytes:
            return codes[scalar.hex()]
        if kind is date:
            return codes[scalar.isoformat()]
        if kind is bool:
            return codes[(scalar,)]  # True == 1 in a dict
        if kind is float:
            if not np.isfinite(scalar):
                return -Reason.NOT_FINITE
            if abs(scalar) >= _EXACT:
                # What was written is lost: 9007199254740993.0 reads as ...992, and one user would become two.
                return -Reason.INEXACT_NUMBER
            return codes[int(scalar) if scalar.is_integer() else scalar]
        if (scalar is None or scalar is UNSET) and self._nullable:  # many producers leave nulls out
            return codes[None]
        if scalar is None or scalar is UNSET:
            return -self._missing
        if kind is datetime or kind is time:
            return -Reason.TIME_NOT_A_KEY
        return -Reason.NOT_A_SCALAR if kind is list or kind is dict else -Reason.WRONG_TYPE

    def finish(self) -> tuple[list[bytes], Int32s]:
        """Canonical bytes by code, and an int32 for each of the Reason why a code is not to be used (0: it is)."""
        scalars = [x[0] if type(x) is tuple else x for x in self._codes]
        reasons = np.zeros(len(scalars), np.int32)
        if int in set(map(type, scalars)):
            for code, scalar in enumerate(scalars):
                if type(scalar) is int and not -(2**63) <= scalar < 2**64:
                    reasons[code], scalars[code] = Reason.INTEGER_TOO_LARGE, None
        canonical = _ENCODER.encode_lines(scalars).split(b"\n")[:-1]
        mark_too_large(canonical, self.limit, reasons)
        if self._empty and "" in self._codes:
            reasons[self._codes[""]] = self._empty
        return canonical, reasons


def mark_too_large(canonical: list[bytes], limit: int, reasons: Int32s) -> None:
    """Writes the reason at every item longer than the limit."""
    if canonical and max(map(len, canonical)) > limit:
        reasons[[len(x) > limit for x in canonical]] = Reason.TOO_LARGE


def combine(first: Int64s, second: Int32s, second_size: int) -> tuple[Int64s, Int32s, Int32s]:
    """Codes of pairs of codes >= 0: (codes int64[n], the first and the second code of each pair code)."""
    pairs = first * np.int64(second_size) + second
    codes, rows = renumber(pairs)
    return codes, first[rows].astype(np.int32), second[rows]


def renumber(codes: npt.NDArray[np.integer]) -> tuple[Int64s, Int64s]:
    """Codes 0, 1, … in order of first occurrence, and the row of that occurrence."""
    _, rows, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(rows)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return rank[inverse], rows[order]
