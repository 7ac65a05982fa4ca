"""Blocks of the intervals that are not closed yet, for bound and release: in memory, and in the state where they were too many.

An interval is closed when every source has ticked it (runtime/ticks.py). Its blocks wait until then, with their input offsets: the
position that a commit may claim is the smallest offset that still waits, and a crash reads from there again. Blocks of a closed
interval that are read again are dropped, for they were counted.

If more waits than memory should hold, a spill moves everything that waits into the state, so that the commit it is part of may
claim all that was read. State key: ``o`` interval sequence -> one block. The sequence keeps an interval's blocks in log order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.calendar import Interval
from susurrus.topics.wire.blocks import Block

B = TypeVar("B")

_SPILLED = b"o"
_ORDERED_OFFSET = 1 << 63
_WAITING_BYTES = 128 << 20
"""Encoded bytes of waiting blocks per partition; a row may hold two strings of input.max_key_bytes."""
_ROWS_OF_A_BLOCK = 8
"""A block takes as much memory as so many rows, beside its own: 0.9 kB with one row, where a further row takes 0.1 kB (its
objects and arrays; the record has 85 bytes). Small windows make small blocks."""
_MANY_BLOCKS = 16_384
"""With so many blocks in memory, 15 to 40 MB, what can be closed is closed before more is read."""


def ordered(number: int) -> bytes:
    """An int64 as 8 bytes of a state key: RocksDB sorts them as the numbers are sorted."""
    return (number + _ORDERED_OFFSET).to_bytes(8, "big")


def _spilled_range(interval: Interval) -> tuple[bytes, bytes]:
    start = _SPILLED + ordered(interval)
    return start, prefix_end(start)


@dataclass(frozen=True, slots=True)
class IntervalRows:
    """Rows [start, stop) of a block that has those of several intervals. They become a block of their own when they are asked for:
    of an archive one block may have those of thousands of intervals, and a block takes a kilobyte beside its rows."""

    block: Block
    start: int
    stop: int

    def taken(self) -> Any:
        """The rows as a block."""
        return self.block.take(slice(self.start, self.stop))


@dataclass(slots=True)
class _Waiting(Generic[B]):
    """Blocks of one interval in memory, in log order. first: the input offset that the first of them came from."""

    first: Offset
    blocks: list[B | IntervalRows] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class OpenIntervals(Generic[B]):
    """The open intervals of one input partition; ``closed`` is the last interval that was closed."""

    def __init__(
        self,
        store: Store,
        *,
        encode: Callable[[B], bytes],
        decode: Callable[[bytes], B],
        meta: dict[str, Any],
    ) -> None:
        """meta: of the last commit, with ``closed`` and what ``to_meta`` wrote."""
        self._store = store
        self._encode, self._decode = encode, decode
        self._waiting: dict[Interval, _Waiting[B]] = {}
        self._spilled = {Interval(int(interval)): int(number) for interval, number in meta["spilled"].items()}
        self._sequence = int(meta["spills"])
        self.closed = Interval(int(meta["closed"]))
        self.rows = 0
        """Rows in memory."""
        self._blocks = 0
        """Blocks in memory."""
        self.size = 0
        """Encoded bytes of the blocks in memory."""

    def to_meta(self) -> dict[str, Any]:
        """What the next owner needs to find the spilled blocks."""
        return {"spilled": dict(self._spilled), "spills": self._sequence}

    # ---- input -------------------------------------------------------------------------------------------------------

    def add(self, interval: Interval, block: B | IntervalRows, rows: int, offset: Offset, size: int = 0) -> None:
        """A block of one interval waits until the interval closes; one of a closed interval was counted before a crash.

        Blocks come in the order of the log: none has a smaller offset than the one before.
        """
        if interval <= self.closed:
            return
        if (waiting := self._waiting.get(interval)) is None:
            waiting = self._waiting[interval] = _Waiting(offset)
        waiting.blocks.append(block)
        waiting.rows += rows
        waiting.size += size
        self._blocks += 1
        self.rows += rows
        self.size += size

    def position(self, taken: Offset) -> Offset:
        """The input offset a successor must read from when everything below ``taken`` was read."""
        return min((waiting.first for waiting in self._waiting.values()), default=taken)

    # ---- closing -----------------------------------------------------------------------------------------------------

    def next_with_rows(self, ready: Interval) -> Interval | None:
        """The earliest interval, up to ``ready``, that has blocks."""
        return min((interval for interval in [*self._waiting, *self._spilled] if interval <= ready), default=None)

    def in_memory(self, interval: Interval) -> list[B] | None:
        """Blocks of an interval, in log order; None where some are in the state, which takes reading."""
        return None if interval in self._spilled else self._in_memory(interval)

    def _in_memory(self, interval: Interval) -> list[B]:
        waiting = self._waiting.get(interval)
        return [] if waiting is None else [b.taken() if isinstance(b, IntervalRows) else b for b in waiting.blocks]

    def blocks(self, interval: Interval) -> list[B]:
        """Blocks in log order of an interval that is about to close. Changes nothing."""
        blocks: list[B] = []
        if interval in self._spilled:
            blocks = [self._decode(value) for _, value in self._store.scan(*_spilled_range(interval))]
        return blocks + self._in_memory(interval)

    def close(self, interval: Interval) -> list[tuple[bytes, bytes]]:
        """Everything up to ``interval`` is closed and its blocks go; the ranges of state keys to drop."""
        for number in [number for number in self._waiting if number <= interval]:
            gone = self._waiting.pop(number)
            self._blocks -= len(gone.blocks)
            self.rows -= gone.rows
            self.size -= gone.size
        drops = [_spilled_range(number) for number in sorted(self._spilled) if number <= interval]
        self._spilled = {number: blocks for number, blocks in self._spilled.items() if number > interval}
        self.closed = interval
        return drops

    # ---- memory ------------------------------------------------------------------------------------------------------

    @property
    def spilled(self) -> bool:
        """Whether any blocks are in the state."""
        return bool(self._spilled)

    def outgrows(self, rows: int) -> bool:
        """Whether more waits than memory should hold: that many rows, or fewer with long users and keys, or in small blocks."""
        return self.rows + _ROWS_OF_A_BLOCK * self._blocks > rows or self.size > _WAITING_BYTES

    @property
    def crowded(self) -> bool:
        """Whether so many blocks are in memory that no more should be read before what can be closed is closed."""
        return self._blocks >= _MANY_BLOCKS

    def spill(self) -> list[tuple[bytes, bytes]]:
        """What to put into the state for all blocks in memory, which are gone from there then."""
        puts = []
        for interval in sorted(self._waiting):
            blocks = self._in_memory(interval)
            for block in blocks:
                puts.append((_SPILLED + ordered(interval) + ordered(self._sequence), self._encode(block)))
                self._sequence += 1
            self._spilled[interval] = self._spilled.get(interval, 0) + len(blocks)
        self._waiting.clear()
        self.rows = self.size = self._blocks = 0
        return puts
