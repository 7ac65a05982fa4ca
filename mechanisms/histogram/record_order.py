"""In which order the records count that one user brings to one trigger: by a keyed hash of user, window and key.

    bound, route, plan:  hashes of users and keys, by record ──RecordOrder.priorities──▶ uint32 per record; the smaller comes first

Records of one key have one priority, and come in the order of the log. Argument: docs/guarantees/bounding.md, "Order".
"""

from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.sorting import in_order_of

Hashes = npt.NDArray[np.uint32]

_ROUNDS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
"""Shift and multiplier, of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014)."""
_HALF: Final = np.uint64(32)


class RecordOrder:
    """The order of one pipeline's records within their triggers.

    Privacy: a record's priority is a function of its own user, window and key, of the secret and of nothing else. So the caps that
    follow it remain functions of one user's records, for every secret: docs/guarantees/bounding.md. The secret is there for utility
    alone: without it nobody can choose which keys the caps spare.
    """

    def __init__(self, secret: bytes) -> None:
        """secret: of any length. In a plan or a benchmark it may be public."""
        self._key = blake2b(secret, person=b"susurrus-order", digest_size=32).digest()

    def priorities(self, window: int, user: Hashes, key: Hashes) -> Hashes:
        """uint32[n]: of two records of one user, window and trigger the one with the smaller number comes first.

        window: its index in the calendar. user, key: uint32[n], hashes of the records' users and keys, the same wherever the
        records are ordered; they need no secret. Two keys of a user have equal numbers with probability 2^-32.
        """
        of_window = blake2b(window.to_bytes(8, "little", signed=True), key=self._key, digest_size=16).digest()
        mixed = user.astype(np.uint64)
        mixed <<= _HALF
        mixed |= key
        # A permutation of 64 bits with a secret word before each round. Of a product, the upper half depends on all bits.
        for word, (shift, multiplier) in zip(np.frombuffer(of_window, "<u8"), _ROUNDS, strict=True):
            mixed ^= word
            mixed ^= mixed >> shift
            mixed *= multiplier
        return (mixed >> _HALF).astype(np.uint32)


def in_order(user: npt.NDArray[np.integer], priority: Hashes) -> npt.NDArray[np.intp]:
    """intp[n]: rows by user, those of a user by priority, those of equal priority as they are given. user: not negative."""
    return in_order_of(user, priority)
