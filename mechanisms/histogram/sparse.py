"""Counts by bucket in the store: of each key only those that are not zero, in front of the rest of its state.

layout u8, entries u16, (place u16, count i64) per entry, then what the other columns have (states.py)
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.histogram.per_key import offsets

LAYOUT: Final = 2
"""First byte of a state with counts by bucket."""
_HEAD: Final = np.dtype([("layout", "u1"), ("entries", "<u2")])
_ENTRY: Final = np.dtype([("place", "<u2"), ("count", "<i8")])


def pack_counts(counts: Int64s, rest: Sequence[bytes]) -> list[bytes]:
    """One byte string per key: int64[k, w] counts without the zeros, then its ``rest``."""
    key, place = np.nonzero(counts)
    number = np.bincount(key, minlength=len(counts))
    entries = np.empty(len(key), _ENTRY)
    entries["place"], entries["count"] = place, counts[key, place]
    heads = np.empty(len(counts), _HEAD)
    heads["layout"], heads["entries"] = LAYOUT, number
    data, front, ends = entries.tobytes(), heads.tobytes(), offsets(number * _ENTRY.itemsize).tolist()
    size = _HEAD.itemsize
    return [front[i * size : (i + 1) * size] + data[ends[i] : ends[i + 1]] + of_key for i, of_key in enumerate(rest)]


def unpack_counts(rows: Sequence[bytes], width: int) -> tuple[Int64s, list[bytes]]:
    """(int64[k, width] counts, the rest of each row): the inverse of `pack_counts`. Raises ValueError for anything else."""
    size = _HEAD.itemsize
    try:
        heads = np.frombuffer(b"".join(row[:size] for row in rows), _HEAD)
    except ValueError:
        heads = np.empty(0, _HEAD)
    number = heads["entries"].astype(np.int64)
    ends = (size + number * _ENTRY.itemsize).tolist()
    if len(heads) != len(rows) or (heads["layout"] != LAYOUT).any() or any(map(_short, rows, ends)):
        raise ValueError("stored state has an unknown layout; it was written by another version or configuration")
    entries = np.frombuffer(b"".join(row[size:end] for row, end in zip(rows, ends, strict=True)), _ENTRY)
    place = entries["place"]
    if len(place) and int(place.max()) >= width:
        raise ValueError("stored state has more buckets; it was written by another configuration")
    counts = np.zeros((len(rows), width), np.int64)
    counts[np.repeat(np.arange(len(rows)), number), place] = entries["count"]
    return counts, [row[end:] for row, end in zip(rows, ends, strict=True)]


def _short(row: bytes, end: int) -> bool:
    return len(row) < end
