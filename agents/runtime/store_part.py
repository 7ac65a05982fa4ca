"""What only reads a store, and a part of a store that is read as if it were all of it.

Whoever reads through a `StorePart` says its names without the prefix. A commit writes them with it.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol


class ReadStore(Protocol):
    """Reading, as `Store` has it."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of keys, None where there is none."""

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Names from ``start`` up to, not including, ``end``, with their values, in order."""


class StorePart:
    """The names of a store that begin with a prefix, without it."""

    def __init__(self, store: ReadStore, prefix: bytes) -> None:
        self._store, self._prefix = store, prefix

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """As `Store.get`."""
        return self._store.get([self._prefix + key for key in keys])

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As `Store.scan`."""
        cut = len(self._prefix)
        for name, value in self._store.scan(self._prefix + start, self._prefix + end):
            yield name[cut:], value
