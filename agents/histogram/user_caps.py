"""What bound stores of a user in a window: the keys it brought and how many records of each were kept.

    without a ledger    entry ...
    with one            header, entry ..., spent ...

Entries are in order of first occurrence, one per key; the header says what the ledger holds and how many entries follow. What the
ledger needs to know of single keys (`spent`) is there for keys with kept records only: so a whole list fits into a Kafka record.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import MAX_LISTED_KEYS, Bounding, UserKeys
from susurrus.mechanisms.histogram.per_key import offsets

ENTRY = np.dtype([("hash", "<u8"), ("count", "<u4")])
_HEADER = np.dtype([("charged", "<u8"), ("entries", "<u4")])
_SPENT = np.dtype("<u4")
_MAX_ROW_BYTES = 900_000
"""As `Services.max_record_bytes`, which holds for a changelog's records, too."""
_UNRANKED = np.uint32(1 << 31)
"""Flag in an entry's count: the key was public when the user brought it first."""

Bytes = Sequence[bytes]
Hashes = npt.NDArray[np.uint64]


class CapsLayout:
    """How the rows are laid out that hold what `Bounding` has to remember.

    version: of the stage's state. It rose for strategies with a ledger only; what the others store is as it was.
    Raises ConfigurationError where a user of a ledger could bring about a row that is too long for a Kafka record.
    """

    def __init__(self, bounding: Bounding) -> None:
        ledger = bounding.ledger
        self._ledger = ledger is not None
        self.version = 4 if self._ledger else 3
        # A key whose one record is kept admits no other; and where users alone are counted, a kept record is all that matters.
        self._spends = ledger is not None and ledger.measured > 0 and bounding.max_records_per_key > 1
        if ledger is not None and ledger.measured > 0:
            # One key's share of the ledger is measured * spent^2, at most 2^42 units.
            assert math.isqrt(ledger.limit // ledger.measured) < 1 << 32
        if ledger is not None:
            tail = ledger.most_records * _SPENT.itemsize if self._spends else 0
            longest = _HEADER.itemsize + MAX_LISTED_KEYS * ENTRY.itemsize + tail
            if longest > _MAX_ROW_BYTES:
                raise ConfigurationError(
                    f"bounds.max_records_per_user = {ledger.capacity}: what is remembered of one user may take {longest} bytes, "
                    f"and a record has {_MAX_ROW_BYTES}; lower it, or set bounds.max_records_per_key = 1"
                )

    def entries(self, rows: Bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]:
        """(int64[rows + 1], entries): those of row i are from indptr[i] to indptr[i + 1]. A row may be empty."""
        lengths, bodies, _, _ = self._parts(rows)
        return offsets(lengths), np.frombuffer(b"".join(bodies), ENTRY)

    def _parts(self, rows: Bytes) -> tuple[npt.NDArray[np.int64], Bytes, npt.NDArray[np.int64], Bytes]:
        """(entries per row, their bytes, charged per row, the bytes behind the entries)."""
        if not self._ledger:
            lengths = np.array(list(map(len, rows)), np.int64) // ENTRY.itemsize
            return lengths, rows, np.zeros(len(rows), np.int64), ()
        size = _HEADER.itemsize
        nothing = bytes(size)
        headers = np.frombuffer(b"".join([row[:size] or nothing for row in rows]), _HEADER)
        lengths = headers["entries"].astype(np.int64)
        charged = headers["charged"].astype(np.int64)
        if not self._spends:
            return lengths, [row[size:] for row in rows], charged, ()
        ends = (size + lengths * ENTRY.itemsize).tolist()
        bodies = [row[size:end] for row, end in zip(rows, ends, strict=True)]
        return lengths, bodies, charged, [row[end:] for row, end in zip(rows, ends, strict=True)]

    def unpack(self, rows: Sequence[bytes | None], hashes: Hashes) -> tuple[UserKeys, Hashes]:
        """Stored caps as columns, and the hash of each entry.

        Keys in ``hashes``, sorted, get their place there as a code; entry i of others has code -1 - i.
        """
        lengths, bodies, charged, tails = self._parts([row or b"" for row in rows])
        indptr = offsets(lengths)
        entries = np.frombuffer(b"".join(bodies), ENTRY)
        # A user's kept records are those of its keys together.
        count = entries["count"] & ~_UNRANKED
        counted = offsets(count.astype(np.int64))
        spent = count.astype(np.int64)
        if self._spends:
            spent[count > 0] = np.frombuffer(b"".join(tails), _SPENT)
        stored = np.ascontiguousarray(entries["hash"])
        at = np.minimum(np.searchsorted(hashes, stored), len(hashes) - 1)
        code = np.where(hashes[at] == stored, at, -1 - np.arange(len(entries))).astype(np.int32)
        state = UserKeys(
            indptr=indptr,
            key=code,
            count=count.astype(np.int32),
            unranked=(entries["count"] & _UNRANKED) != 0,
            kept=counted[indptr[1:]] - counted[indptr[:-1]],
            spent=spent,
            charged=charged,
        )
        return state, stored

    def pack(
        self,
        state_keys: list[bytes],
        changed: npt.NDArray[np.intp],
        state: UserKeys,
        hashes: Hashes,
        batch_keys: int,
    ) -> list[tuple[bytes, bytes]]:
        """Rows to store of the changed users; ``hashes``: of the batch's keys, then of the entries that codes -1 - i point to."""
        entries = np.empty(len(state.key), ENTRY)
        entries["hash"] = hashes[np.where(state.key >= 0, state.key, batch_keys - 1 - state.key)]
        entries["count"] = state.count.astype(np.uint32) | np.where(state.unranked, _UNRANKED, np.uint32(0))
        if len(changed) < len(state_keys):
            state_keys = [state_keys[i] for i in changed.tolist()]
        rows = _pieces(entries, state.indptr, changed)
        if self._ledger:
            headers = np.empty(len(changed), _HEADER)
            headers["charged"] = state.charged[changed]
            headers["entries"] = np.diff(state.indptr)[changed]
            rows = list(
                map(bytes.__add__, _pieces(headers, np.arange(len(changed) + 1), np.arange(len(changed))), rows)
            )
        if self._spends:
            kept = state.count > 0
            tails = _pieces(state.spent[kept].astype(_SPENT), offsets(kept.astype(np.int64))[state.indptr], changed)
            rows = list(map(bytes.__add__, rows, tails))
        return list(zip(state_keys, rows, strict=True))


def _pieces(items: npt.NDArray[np.generic], indptr: npt.NDArray[np.int64], which: npt.NDArray[np.intp]) -> list[bytes]:
    """The bytes of items indptr[i] to indptr[i + 1], for each i in ``which``."""
    body, bounds = items.tobytes(), indptr * items.dtype.itemsize
    return [body[start:end] for start, end in zip(bounds[which].tolist(), bounds[which + 1].tolist(), strict=True)]
