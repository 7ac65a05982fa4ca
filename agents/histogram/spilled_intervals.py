"""Blocks of open intervals that did not fit in memory: part of the stage's state until their interval closes. Beside
open_intervals.py.

Used by bound and release alike. A spill moves everything that waits into the store, so that the commit it is part of may claim all
that was read; state key ``o`` interval sequence -> one block. ``sequence`` keeps the blocks of an interval in log order.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from susurrus.agents.histogram.state_keys import ordered
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.histogram.calendar import Interval

B = TypeVar("B")

_SPILLED = b"o"


class SpilledIntervals(Generic[B]):
    """Which intervals have blocks in the store, as of the commits so far."""

    def __init__(
        self, store: Store, *, encode: Callable[[B], bytes], decode: Callable[[bytes], B], meta: dict[str, Any] | None
    ) -> None:
        """``meta``: of the last commit, as ``to_meta`` wrote it; None before the first."""
        self._store = store
        self._encode = encode
        self._decode = decode
        spilled = {} if meta is None else meta["spilled"]
        self._blocks = {Interval(int(interval)): int(number) for interval, number in spilled.items()}
        self._sequence = 0 if meta is None else int(meta["spills"])

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def next_with_rows(self, ready: Interval) -> Interval | None:
        """The earliest spilled interval that may be closed."""
        return min((interval for interval in self._blocks if interval <= ready), default=None)

    def to_meta(self) -> dict[str, Any]:
        """The part that a commit carries."""
        return {"spilled": dict(self._blocks), "spills": self._sequence}

    def spill(self, waiting: Iterable[tuple[Interval, list[B]]]) -> list[tuple[bytes, bytes]]:
        """What to put into the store for blocks that leave memory, by interval and in log order."""
        puts = []
        for interval, blocks in waiting:
            for block in blocks:
                puts.append((_SPILLED + ordered(interval) + ordered(self._sequence), self._encode(block)))
                self._sequence += 1
            self._blocks[interval] = self._blocks.get(interval, 0) + len(blocks)
        return puts

    def take(self, interval: Interval) -> tuple[list[B], list[tuple[bytes, bytes]]]:
        """The blocks of an interval that closes, in log order, and the range of keys to drop with that commit."""
        if self._blocks.pop(interval, None) is None:
            return [], []
        start = _SPILLED + ordered(interval)
        end = prefix_end(start)
        return [self._decode(value) for _, value in self._store.scan(start, end)], [(start, end)]
