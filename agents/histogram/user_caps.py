"""What bound stores of a user in a window where memory does not hold all: its keys, and how many records of each were kept.

    without a ledger    entry ...
    with one            header, entry ..., spent ...

Entries are in the order in which the keys came, one per key; the header says what the ledger holds and how many entries follow.
What the ledger needs to know of single keys (`spent`) is there for keys with kept records only. A row has 16 bytes per key at
most, so the longest list (`MAX_LISTED_KEYS`) takes one megabyte.

Versions 3 and 4 of the state had such a row for every user, with 64 bits per key. They are still read.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.per_key import offsets
from susurrus.mechanisms.histogram.user_table import Lists, spends

ENTRY = np.dtype([("code", "<u4"), ("count", "<u4")])
ENTRY_BEFORE = np.dtype([("code", "<u8"), ("count", "<u4")])
"""The entry of earlier versions. Today's code is the lower half."""
_HEADER = np.dtype([("charged", "<u8"), ("entries", "<u4")])
_SPENT = np.dtype("<u4")
_UNRANKED = np.uint32(1 << 31)
"""Flag in an entry's count: the key was public when the user brought it first."""

Bytes = Sequence[bytes]


class CapsLayout:
    """How the rows are laid out that hold what `Bounding` has to remember.

    version: of the stage's state; before: the version whose rows are read as well. They differ with and without a ledger.
    """

    def __init__(self, bounding: Bounding) -> None:
        ledger = bounding.ledger
        self._ledger = ledger is not None
        self.version, self.before = (6, 4) if self._ledger else (5, 3)
        self._spends = spends(bounding)
        if ledger is not None and ledger.measured > 0:
            # One key's share of the ledger is measured * spent^2, at most 2^42 units.
            assert math.isqrt(ledger.limit // ledger.measured) < 1 << 32

    def unpack(self, rows: Bytes, *, before: bool = False) -> Lists:
        """The lists of rows. before: they were written by the version before."""
        entry = ENTRY_BEFORE if before else ENTRY
        lengths, bodies, charged, tails = self._parts(rows, entry)
        entries = np.frombuffer(b"".join(bodies), entry)
        count = (entries["count"] & ~_UNRANKED).astype(np.int32)
        spent = count.astype(np.int64)
        if self._spends:
            spent[count > 0] = np.frombuffer(b"".join(tails), _SPENT)
        lists = Lists(
            indptr=offsets(lengths),
            code=(entries["code"] & np.uint64(0xFFFFFFFF)).astype(np.uint32) if before else entries["code"].copy(),
            count=count,
            unranked=(entries["count"] & _UNRANKED) != 0,
            spent=spent,
            charged=charged,
        )
        if before:
            _tell_apart(lists)
        return lists

    def _parts(
        self, rows: Bytes, entry: "np.dtype[np.void]"
    ) -> tuple[npt.NDArray[np.int64], Bytes, npt.NDArray[np.int64], Bytes]:
        """(entries per row, their bytes, charged per row, the bytes behind the entries)."""
        if not self._ledger:
            lengths = np.array(list(map(len, rows)), np.int64) // entry.itemsize
            return lengths, rows, np.zeros(len(rows), np.int64), ()
        size = _HEADER.itemsize
        headers = np.frombuffer(b"".join([row[:size] for row in rows]), _HEADER)
        lengths = headers["entries"].astype(np.int64)
        charged = headers["charged"].astype(np.int64)
        ends = (size + lengths * entry.itemsize).tolist()
        bodies = [row[size:end] for row, end in zip(rows, ends, strict=True)]
        return lengths, bodies, charged, [row[end:] for row, end in zip(rows, ends, strict=True)]

    def pack(self, lists: Lists) -> list[bytes]:
        """The row of each user."""
        entries = np.empty(len(lists.code), ENTRY)
        entries["code"] = lists.code
        entries["count"] = lists.count.astype(np.uint32) | np.where(lists.unranked, _UNRANKED, np.uint32(0))
        rows = _pieces(entries, lists.indptr)
        if self._ledger:
            headers = np.empty(len(rows), _HEADER)
            headers["charged"], headers["entries"] = lists.charged, np.diff(lists.indptr)
            rows = list(map(bytes.__add__, _pieces(headers, np.arange(len(rows) + 1)), rows))
        if self._spends:
            kept = lists.count > 0
            tails = _pieces(lists.spent[kept].astype(_SPENT), offsets(kept.astype(np.int64))[lists.indptr])
            rows = list(map(bytes.__add__, rows, tails))
        return rows


def _pieces(items: npt.NDArray[np.generic], indptr: npt.NDArray[np.int64]) -> list[bytes]:
    """The bytes of items indptr[i] to indptr[i + 1], for each i."""
    body, bounds = items.tobytes(), (indptr * items.dtype.itemsize).tolist()
    return [body[start:end] for start, end in pairwise(bounds)]


def _tell_apart(lists: Lists) -> None:
    """Where two keys of one user have the same code since codes are shorter, give one of them another, in place.

    Both entries still count against the caps on records and on keys, and keep their ranks. The entry that keeps the code has the
    larger count of the two: so neither key can get beyond the records per key.
    """
    owner = np.repeat(np.arange(len(lists.indptr) - 1), np.diff(lists.indptr))
    pairs = owner << 32 | lists.code.astype(np.int64)
    order = np.argsort(pairs, kind="stable")
    for at in np.flatnonzero(np.diff(pairs[order]) == 0).tolist():
        first, second = order[at], order[at + 1]
        of_user = slice(*lists.indptr[owner[first] : owner[first] + 2])
        first = of_user.start + int(np.flatnonzero(lists.code[of_user] == lists.code[second])[0])
        for column in (lists.count, lists.spent):
            larger, smaller = max(column[first], column[second]), min(column[first], column[second])
            column[first], column[second] = larger, smaller
        taken = set(lists.code[of_user].tolist())
        code = int(lists.code[second])
        while code in taken:
            code = (code + 1) % (1 << 32)
        lists.code[second] = code
