"""Addresses of the noise of real-valued streams: which draw belongs to which node of which stream.

Every draw of ToPS and PAK has an address (mechanism, stream id, numbers), so a replay repeats it and no two different
measurements share one.  The keyed source is ``susurrus.mechanisms.noise.WindowNoise``.  This file names the part of it
that the mechanisms use, and builds the key bytes.
"""

import struct
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s

Labels = npt.NDArray[np.uint8]

GRID_BITS = 8
"""Noise of nodes and scores lies on the grid 2^-8 of one value unit; published numbers are rounded to whole units."""
GRID = 1 << GRID_BITS


class AddressedNoise(Protocol):
    """The part of ``WindowNoise`` that streams need."""

    def labels(self, mechanism: str, keys: Sequence[bytes]) -> Labels:
        """Return uint8[k, 16] labels, one per key; equal inputs give equal labels, different inputs different ones."""
        ...

    def bits(self, labels: Labels, first: int, last: int) -> npt.NDArray[np.uint64]:
        """Return uint64[k, last-first+1, 2]: 128 pseudorandom bits for each label and index."""
        ...

    def laplace(self, labels: Labels, first: int, last: int, *, scale: float | Floats, bits: int) -> Int64s:
        """Return int64[k, last-first+1]: Laplace(scale) rounded to the grid 2^-bits, in its units, at each index.

        scale: of all draws, or float64[k], one for each label.
        """
        ...


def whole(drawn: Int64s) -> Int64s:
    """Return noise in units of the grid as whole value units, halves up."""
    result: Int64s = (drawn + (1 << (GRID_BITS - 1))) >> GRID_BITS
    return result


def address(stream: bytes, *numbers: int) -> bytes:
    """Return the key bytes of a draw: the numbers at fixed width after the whole stream id.

    Fixed-width numbers at the end make the encoding injective for a given count of numbers, and the count is fixed per
    mechanism name.
    """
    return stream + struct.pack(f"<{len(numbers)}Q", *numbers)
