"""Which partition a user (of by-user) or a key (of bounded) belongs to: a hash of our own, pinned for good.

The clients' default partitioners differ between languages and versions; a changed placement would split a user's caps
over two partitions, so the function is part of the format (test vectors in tests/topics/wire/test_partitioner.py).
"""

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

from susurrus.topics.compiled import compiled
from susurrus.topics.wire.packing import Int32s


def partition(values: Sequence[bytes], partitions: int) -> Int32s:
    """int32[len(values)]: partition of each value, its placement modulo the number of partitions."""
    return of_placements(placements(values), partitions)


def of_placements(placed: npt.NDArray[np.uint32], partitions: int) -> Int32s:
    """The same of values whose placements are known."""
    if partitions < 1:
        raise ValueError(f"partitions={partitions} must be >= 1")
    return (placed % np.uint32(partitions)).astype(np.int32)


def placements(values: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """uint32[len(values)]: CRC-32 (ITU-T V.42) of the bytes, finalised as in MurmurHash3.

    crc32 is linear: its low bits alone spread poorly over a power of two. Meant for distinct values: some 0.1 us each, and 0.02 us
    in the compiled loop.
    """
    if compiled is not None:
        return np.frombuffer(compiled.placements(list(values)), np.uint32)
    return _placements(values)


def _placements(values: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """The definition."""
    mixed = np.fromiter(map(crc32, values), np.uint32, len(values))
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed
