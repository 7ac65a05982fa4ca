"""Blocks of open slots that did not fit in memory: part of the stage's state until their slot closes. Beside open_slots.py.

Used by bound and release alike. A spill moves everything that waits into the store, so that the commit it is part of may claim all
that was read; state key ``o`` slot sequence -> one block. ``sequence`` keeps the blocks of a slot in log order.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from susurrus.agents.histogram.state_keys import ordered
from susurrus.agents.store import Store, prefix_end

B = TypeVar("B")

_SPILLED = b"o"


class SpilledSlots(Generic[B]):
    """Which slots have blocks in the store, as of the commits so far."""

    def __init__(
        self, store: Store, *, encode: Callable[[B], bytes], decode: Callable[[bytes], B], meta: dict[str, Any] | None
    ) -> None:
        """``meta``: of the last commit, as ``to_meta`` wrote it; None before the first."""
        self._store = store
        self._encode = encode
        self._decode = decode
        spilled = {} if meta is None else meta["spilled"]
        self._blocks = {int(slot): int(number) for slot, number in spilled.items()}
        self._sequence = 0 if meta is None else int(meta["spills"])

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def next_with_rows(self, ready: int) -> int | None:
        """The earliest spilled slot that may be closed."""
        return min((slot for slot in self._blocks if slot <= ready), default=None)

    def to_meta(self) -> dict[str, Any]:
        """The part that a commit carries."""
        return {"spilled": dict(self._blocks), "spills": self._sequence}

    def spill(self, waiting: Iterable[tuple[int, list[B]]]) -> list[tuple[bytes, bytes]]:
        """What to put into the store for blocks that leave memory, by slot and in log order."""
        puts = []
        for slot, blocks in waiting:
            for block in blocks:
                puts.append((_SPILLED + ordered(slot) + ordered(self._sequence), self._encode(block)))
                self._sequence += 1
            self._blocks[slot] = self._blocks.get(slot, 0) + len(blocks)
        return puts

    def take(self, slot: int) -> tuple[list[B], list[tuple[bytes, bytes]]]:
        """The blocks of a slot that closes, in log order, and the range of keys to drop with that commit."""
        if self._blocks.pop(slot, None) is None:
            return [], []
        start = _SPILLED + ordered(slot)
        end = prefix_end(start)
        return [self._decode(value) for _, value in self._store.scan(start, end)], [(start, end)]
