"""What bound stores of a user in a window: the keys it brought and how many records of each were kept.

A row of the state is a list of entries, one per key, in order of first occurrence.
"""

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.bounding import UserKeys

ENTRY = np.dtype([("hash", "<u8"), ("count", "<u4")])
_UNRANKED = np.uint32(1 << 31)
"""Flag in an entry's count: the key was public when the user brought it first."""


def unpack(rows: list[bytes | None], hashes: npt.NDArray[np.uint64]) -> tuple[UserKeys, npt.NDArray[np.uint64]]:
    """Stored caps as columns. Keys in ``hashes``, sorted, get their place there as a code; entry i of others has code -1 - i."""
    present = [row or b"" for row in rows]
    lengths = np.array(list(map(len, present)), np.int64) // ENTRY.itemsize
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    entries = np.frombuffer(b"".join(present), ENTRY)
    # A user's kept records are those of its keys together.
    count = entries["count"] & ~_UNRANKED
    counted = np.concatenate(([0], np.cumsum(count, dtype=np.int64)))
    kept = counted[indptr[1:]] - counted[indptr[:-1]]
    stored = np.ascontiguousarray(entries["hash"])
    at = np.minimum(np.searchsorted(hashes, stored), len(hashes) - 1)
    code = np.where(hashes[at] == stored, at, -1 - np.arange(len(entries))).astype(np.int32)
    state = UserKeys(
        indptr=indptr,
        key=code,
        count=count.astype(np.int32),
        unranked=(entries["count"] & _UNRANKED) != 0,
        kept=kept,
    )
    return state, stored


def pack(
    state_keys: list[bytes],
    changed: npt.NDArray[np.intp],
    state: UserKeys,
    hashes: npt.NDArray[np.uint64],
    batch_keys: int,
) -> list[tuple[bytes, bytes]]:
    """Rows to store of the changed users; ``hashes``: of the batch's keys, then of the entries that codes -1 - i point to."""
    entries = np.empty(len(state.key), ENTRY)
    entries["hash"] = hashes[np.where(state.key >= 0, state.key, batch_keys - 1 - state.key)]
    entries["count"] = state.count.astype(np.uint32) | np.where(state.unranked, _UNRANKED, np.uint32(0))
    body = entries.tobytes()
    bounds = state.indptr * ENTRY.itemsize
    if len(changed) < len(state_keys):
        state_keys = [state_keys[i] for i in changed.tolist()]
    ranges = zip(bounds[changed].tolist(), bounds[changed + 1].tolist(), strict=True)
    return [(key, body[start:end]) for key, (start, end) in zip(state_keys, ranges, strict=True)]
