"""The state of one stream under ToPS, and its bytes in the store."""

import struct
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.kalman import BlockBank, Models
from susurrus.mechanisms.stream.addresses import Floats, Ints

STATE_VERSION = 2
"""1 also held a smoother."""
MOST_HELD = 512
"""Held-out values kept as they came; more are kept as a histogram."""
_NO_INTS = np.zeros(0, dtype=np.int64)
_NO_FLOATS = np.zeros((0, 0))
_HEAD = struct.Struct("<BqqqqdBIIIIII")
_KINDS = ("<u4", "<u4", "<i8", "<f8")
"""Of the arrays behind the head and the held ranks: ranks, counts, open leaves, evidence.  The filter's bytes follow."""


def pack_held(position: int, held: bytes) -> bytes:
    """Return the bytes of a stream that has nothing but held ranks, as `StreamState.pack` does: most streams, mostly."""
    return _HEAD.pack(STATE_VERSION, position, 0, 0, 0, 0.0, 0, len(held) // 4, 0, 0, 0, 0, 0) + held


def unpack_held(data: bytes) -> bytes | None:
    """Return the held ranks of a stream that has nothing else, None for other streams."""
    if data[0] != STATE_VERSION or len(data) < _HEAD.size:
        return None
    _, _, theta, *_, ranks, leaves, rows, _, bank = _HEAD.unpack_from(data)
    return data[_HEAD.size :] if not (theta or ranks or leaves or rows or bank) else None


@dataclass(slots=True)
class StreamState:
    """One stream.  theta = 0: it still collects ``held`` (ranks as they came, little-endian uint32) and the sparse
    histogram ``ranks``, ``counts`` for Noisy Max.

    position: events seen.  partial: clipped sum of the open leaf.  running: released plain running sum.  variance: of
    the complete trees in it, unit (theta / epsilon)^2.  The open block's released leaves are ``open_leaves``.
    """

    position: int = 0
    theta: int = 0
    partial: int = 0
    running: int = 0
    variance: float = 0.0
    entry: int = 0
    held: bytes = b""
    ranks: Ints = field(default_factory=lambda: _NO_INTS)
    counts: Ints = field(default_factory=lambda: _NO_INTS)
    open_leaves: Ints = field(default_factory=lambda: _NO_INTS)
    evidence: Floats = field(default_factory=lambda: _NO_FLOATS)
    filter: BlockBank | None = None

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
        numbers = (self.position, self.theta, self.partial, self.running, self.variance, self.entry)
        bank = self.filter.pack() if self.filter is not None else b""
        sizes = (len(self.held) // 4, len(self.ranks), len(self.open_leaves), *self.evidence.shape, len(bank))
        arrays = (self.ranks, self.counts, self.open_leaves, self.evidence)
        parts = [array.astype(kind).tobytes() for array, kind in zip(arrays, _KINDS, strict=True)]
        return b"".join((_HEAD.pack(STATE_VERSION, *numbers, *sizes), self.held, *parts, bank))

    @classmethod
    def unpack(cls, data: bytes, models: Models) -> Self:
        """Return the state packed by ``pack``; models: of its filter.  Raises Refusal for another version."""
        if data[0] != STATE_VERSION:
            raise Refusal(
                f"stored state of a stream has version={data[0]}, not {STATE_VERSION}: run the version of Susurrus that wrote it, "
                "or start a new epoch (susurrus ledger new-epoch)"
            )
        (_, *numbers, waiting, ranks, leaves, rows, columns, bank) = _HEAD.unpack_from(data)
        state, place = cls(*numbers), _HEAD.size + 4 * waiting
        state.held = data[_HEAD.size : place]
        arrays = []
        for count, kind in zip((ranks, ranks, leaves, rows * columns), _KINDS, strict=True):
            arrays.append(np.frombuffer(data[place : place + count * int(kind[-1])], dtype=kind))
            place += arrays[-1].nbytes
        *integers, evidence = arrays
        state.ranks, state.counts, state.open_leaves = (array.astype(np.int64) for array in integers)
        state.evidence = evidence.astype(np.float64).reshape(rows, columns)
        if bank:
            state.filter = BlockBank.unpack(data[place:], models)
        return state
