"""The state of one stream under ToPS, and its bytes in the store."""

import struct
from dataclasses import astuple, dataclass, field
from typing import Self

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.kalman import BlockBank, Models
from susurrus.mechanisms.stream.growth import Followed

STATE_VERSION = 3
"""1 also held a smoother; 2 had one theta for the stream's life."""
UNCOUNTED = -1
"""Stands for the number of clipped values where they are not counted."""
MOST_HELD = 512
"""Held-out values kept as they came; more are kept as a histogram."""
_NO_INTS = np.zeros(0, dtype=np.int64)
_NO_FLOATS = np.zeros(0)
_HEAD = struct.Struct("<BqqqqqqdBqqBddddddB")
_SIZES = struct.Struct("<IIIIIII")
_KINDS = ("<u4", "<u4", "<i8", "<f8", "<f8")
"""The types of the arrays behind the head and the held ranks: ranks, counts, open leaves, open blocks, evidence.  The filter's
follow."""


def pack_held(position: int, held: bytes) -> bytes:
    """Return the bytes of a stream that has nothing but held ranks, as `StreamState.pack` does: most streams, mostly."""
    return (
        _START[:1] + position.to_bytes(8, "little") + _START[9:] + _SIZES.pack(len(held) // 4, 0, 0, 0, 0, 0, 0) + held
    )


def unpack_held(data: bytes) -> bytes | None:
    """Return the held ranks of a stream that has nothing else, None for other streams."""
    place = _HEAD.size + _SIZES.size
    if data[0] != STATE_VERSION or len(data) < place:
        return None
    _, _, theta, *_ = _HEAD.unpack_from(data)
    _, *more = _SIZES.unpack_from(data, _HEAD.size)
    return data[place:] if not (theta or any(more)) else None


@dataclass(slots=True)
class StreamState:
    """One stream.  theta = 0: it still collects ``held`` (ranks as they came, little-endian uint32) and the sparse
    histogram ``ranks``, ``counts`` for Noisy Max.

    theta, lower: values of the open tree are clipped to [lower, theta]; first_theta, first_lower: those of the first tree;
    moved: they differ from those of the tree before.  fit: of the filter's models, as released.
    position: events seen.  partial: clipped sum of the open leaf.  clipped: values of the open tree above theta, UNCOUNTED
    where they are not counted.  running: released plain running sum.  variance: of the complete trees in it, unit
    (width / epsilon)^2, width = first_theta - first_lower.  The open block's released leaves are ``open_leaves``; the open
    tree's released blocks, shifted to first_lower and in units of width / epsilon, are ``open_blocks``.  before: the filter
    before the open tree; ``filter`` behind its last block, without a jump, which follows from it and is not stored.
    """

    position: int = 0
    theta: int = 0
    lower: int = 0
    partial: int = 0
    clipped: int = UNCOUNTED
    running: int = 0
    variance: float = 0.0
    entry: int = 0
    first_theta: int = 0
    first_lower: int = 0
    moved: bool = False
    fit: float = 1.0
    followed: Followed = field(default_factory=Followed)
    held: bytes = b""
    ranks: Int64s = field(default_factory=lambda: _NO_INTS)
    counts: Int64s = field(default_factory=lambda: _NO_INTS)
    open_leaves: Int64s = field(default_factory=lambda: _NO_INTS)
    open_blocks: Floats = field(default_factory=lambda: _NO_FLOATS)
    evidence: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    before: BlockBank | None = None
    filter: BlockBank | None = None

    @property
    def width(self) -> int:
        """The width of the first tree's range: the unit of the filter, with epsilon."""
        return self.first_theta - self.first_lower

    @property
    def ratio(self) -> float:
        """The open tree's range over the first one's."""
        return (self.theta - self.lower) / self.width

    def fold(self) -> None:
        """Merge the held ranks: up to MOST_HELD as they came, more as a histogram.  The result depends on no batch."""
        if self.held and self.position > MOST_HELD:
            ranks, counts = np.unique(np.frombuffer(self.held, "<u4").astype(np.int64), return_counts=True)
            merged, inverse = np.unique(np.concatenate([self.ranks, ranks]), return_inverse=True)
            total = np.zeros(len(merged), dtype=np.int64)
            np.add.at(total, inverse, np.concatenate([self.counts, counts]))
            self.held, self.ranks, self.counts = b"", merged, total

    def pack(self) -> bytes:
        """Return the little-endian bytes of the state."""
        self.fold()
        bank = self.before.pack() if self.before is not None else b""
        arrays = (self.ranks, self.counts, self.open_leaves, self.open_blocks, self.evidence)
        counts = (len(self.ranks), len(self.open_leaves), len(self.open_blocks), *self.evidence.shape)
        sizes = _SIZES.pack(len(self.held) // 4, *counts, len(bank))
        parts = [array.astype(kind).tobytes() for array, kind in zip(arrays, _KINDS, strict=True)]
        return b"".join((self._head(), sizes, self.held, *parts, bank))

    def _head(self) -> bytes:
        numbers = (
            self.position,
            self.theta,
            self.lower,
            self.partial,
            self.clipped,
            self.running,
            self.variance,
            self.entry,
        )
        firsts = (self.first_theta, self.first_lower, self.moved, self.fit)
        return _HEAD.pack(STATE_VERSION, *numbers, *firsts, *astuple(self.followed))

    @classmethod
    def unpack(cls, data: bytes, models: Models) -> Self:
        """Return the state packed by ``pack``, without ``filter``; models: of its filter.  Raises Refusal for another version."""
        if data[0] != STATE_VERSION:
            raise Refusal(
                f"stored state of a stream has version={data[0]}, not {STATE_VERSION}",
                "run the version of Susurrus that wrote it, or start a new epoch (susurrus ledger new-epoch)",
            )
        _, *numbers = _HEAD.unpack_from(data)
        state = cls(*numbers[:10])
        state.moved, state.fit = bool(numbers[10]), numbers[11]
        state.followed = Followed(*numbers[12:-1])
        state.followed.fallen = bool(numbers[-1])
        held, ranks, leaves, blocks, rows, columns, bank = _SIZES.unpack_from(data, _HEAD.size)
        begin = _HEAD.size + _SIZES.size
        place = begin + 4 * held
        state.held = data[begin:place]
        arrays = []
        for count, kind in zip((ranks, ranks, leaves, blocks, rows * columns), _KINDS, strict=True):
            arrays.append(np.frombuffer(data[place : place + count * int(kind[-1])], dtype=kind))
            place += arrays[-1].nbytes
        *integers, blocks_, evidence = arrays
        state.open_blocks = blocks_.astype(np.float64)
        state.ranks, state.counts, state.open_leaves = (array.astype(np.int64) for array in integers)
        state.evidence = evidence.astype(np.float64).reshape(rows, columns)
        if bank:
            state.before = BlockBank.unpack(data[place:], models)
        return state


_START = StreamState()._head()
"""The state of a stream never seen."""
