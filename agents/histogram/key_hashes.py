"""What bound's users know keys by, where no numbers of keys are needed: 32 bits of a keyed hash, remembered.

A user's key list holds hashes. Two keys with one hash are one key to the caps, in memory and in what is stored: a collision makes
that user's caps tighter and concerns no other user. The hashes are keyed, so no user can search for collisions.
"""

from hashlib import blake2b
from typing import Final

import numpy as np

from susurrus.mechanisms.histogram.user_table import Codes

MAX_HASHES: Final = 1 << 17
"""Keys whose hashes are remembered."""
MAX_HASHED_BYTES: Final = 1 << 23
"""Bytes of these keys."""


class KeyHashes:
    """The hashes of one pipeline."""

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret, person=b"susurrus-bound", digest_size=32).digest()
        self._known: dict[bytes, int] = {}
        self._bytes = 0

    def of(self, keys: list[bytes]) -> Codes:
        """uint32[n]: a hash for each key."""
        known = self._known
        codes = list(map(known.get, keys))
        for at in [at for at, code in enumerate(codes) if code is None]:
            # Eight bytes, of which four are used: versions before stored all of them.
            digest = blake2b(keys[at], digest_size=8, key=self._key).digest()
            codes[at] = known[keys[at]] = int.from_bytes(digest[:4], "little")
            self._bytes += len(keys[at])
        if len(known) > MAX_HASHES or self._bytes > MAX_HASHED_BYTES:
            self._known, self._bytes = {}, 0
        return np.array(codes, np.uint32)
