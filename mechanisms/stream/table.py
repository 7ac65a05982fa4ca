"""Many streams at once: the table of an agent's open streams, and one vectorised step over a batch of their values.

Most batches close no leaf of most streams.  Such streams only add clipped values to a partial sum: one pass does this for
all of them.  A stream that ends its holdout or closes a leaf is stepped on its own.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

from susurrus.mechanisms.stream.addresses import AddressedNoise, Ints
from susurrus.mechanisms.stream.pak import Pak, PakState
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.tops import StreamState, Tops

_HOT = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one stream released in a step.  row: of the table.  start: position of the stream's first value in the step."""

    row: int
    theta: int
    start: int
    releases: Releases


@dataclass
class TopsTable:
    """Open streams of one partition under ToPS.

    hot int64[rows, 3]: position, theta, partial sum, stored on every commit; cold: the rest, stored when it has
    changed. ``addresses`` are the streams' noise addresses; how streams are batched changes no released bit.
    """

    mechanism: Tops
    addresses: list[bytes] = field(default_factory=list)
    hot: Ints = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    cold: list[StreamState] = field(default_factory=list)

    def add(self, address: bytes, hot: bytes | None, cold: bytes | None) -> int:
        """Take in a stream, from its stored bytes or as new; return its row."""
        state = self.mechanism.start() if cold is None else StreamState.unpack(cold, self.mechanism)
        if len(self.cold) == len(self.hot):
            self.hot = np.concatenate([self.hot, np.zeros((max(64, len(self.hot)), 3), dtype=np.int64)])
        row = len(self.cold)
        self.hot[row] = (state.position, state.theta, state.partial) if hot is None else _HOT.unpack(hot)
        self.cold.append(state)
        self.addresses.append(address)
        return row

    def pack_hot(self, rows: Ints) -> list[bytes]:
        """Return the bytes of the fast-changing part, one per row."""
        return [_HOT.pack(*numbers) for numbers in self.hot[rows].tolist()]

    def pack_cold(self, row: int) -> bytes:
        """Return the bytes of the rest."""
        return self._state(row).pack()

    def step(self, rows: Ints, values: Ints, noise: AddressedNoise) -> tuple[list[Piece], Ints, list[int]]:
        """Take in values int64[n] of streams int64[n], in order.

        Return what was released, the rows touched, and the rows whose cold part has changed.
        """
        mechanism, leaf = self.mechanism, self.mechanism.base.leaf
        touched, starts, counts, ordered = _grouped(rows, values)
        position, theta = self.hot[touched, 0], self.hot[touched, 1]
        quiet = (theta > 0) & ((position - mechanism.holdout) % leaf + counts < leaf)
        clipped = np.clip(ordered, 0, np.repeat(np.maximum(theta, 0), counts))
        sums = np.add.reduceat(clipped, starts) if len(ordered) else np.zeros(0, dtype=np.int64)
        self.hot[touched[quiet], 0] += counts[quiet]
        self.hot[touched[quiet], 2] += sums[quiet]
        pieces, rest, opening = [], {}, []
        changed = touched[~quiet].tolist()
        collecting = (theta == 0) & (position + counts < mechanism.holdout)
        if collecting.any():
            ranks = mechanism.threshold.ranks(ordered)
            for index in np.flatnonzero(collecting).tolist():
                self.cold[int(touched[index])].held.append(ranks[starts[index] : starts[index] + counts[index]])
            self.hot[touched[collecting], 0] += counts[collecting]
            quiet |= collecting
        for index in np.flatnonzero(~quiet).tolist():
            row = int(touched[index])
            state = self._state(row)
            began = state.position
            mine = ordered[starts[index] : starts[index] + counts[index]]
            if not state.theta:
                mine = mechanism.collect(state, mine)
                if state.position == mechanism.holdout:
                    opening.append(row)
            rest[row] = (began, mine)
        if opening:
            mechanism.open([self.cold[row] for row in opening], noise, [self.addresses[row] for row in opening])
        for row, (began, mine) in rest.items():
            state = self.cold[row]
            if state.theta and len(mine):
                released = mechanism.advance(state, mine, noise, self.addresses[row])
                if len(released):
                    pieces.append(Piece(row, state.theta, began, released))
            self.hot[row] = (state.position, state.theta, state.partial)
        return pieces, touched, changed

    def _state(self, row: int) -> StreamState:
        state = self.cold[row]
        state.position, state.theta, state.partial = self.hot[row].tolist()
        return state


@dataclass
class PakTable:
    """Open streams of one partition under PAK, which releases after every value: each stream is stepped on its own."""

    mechanism: Pak
    addresses: list[bytes] = field(default_factory=list)
    states: list[PakState] = field(default_factory=list)

    def add(self, address: bytes, hot: bytes | None, cold: bytes | None) -> int:
        """Take in a stream; the hot part is everything but the held-out values."""
        self.states.append(self.mechanism.start() if hot is None else PakState.unpack(hot + (cold or b"")))
        self.addresses.append(address)
        return len(self.states) - 1

    def pack_hot(self, rows: Ints) -> list[bytes]:
        """Return the bytes of everything but the held-out values."""
        return [self.states[row].pack()[: PakState.HEAD_BYTES] for row in rows.tolist()]

    def pack_cold(self, row: int) -> bytes:
        """Return the bytes of the held-out values."""
        return self.states[row].pack()[PakState.HEAD_BYTES :]

    def step(self, rows: Ints, values: Ints, noise: AddressedNoise) -> tuple[list[Piece], Ints, list[int]]:
        """As ``TopsTable.step``."""
        touched, starts, counts, ordered = _grouped(rows, values)
        pieces, changed = [], []
        for row, start, count in zip(touched.tolist(), starts.tolist(), counts.tolist(), strict=True):
            state, mine = self.states[row], ordered[start : start + count]
            began = state.position
            if not state.theta:
                changed.append(row)
                mine = self.mechanism.collect(state, mine)
                if state.position == self.mechanism.holdout:
                    block = self.mechanism.open(state, noise, self.addresses[row])
                    pieces.append(Piece(row, state.theta, began, block))
            if state.theta and len(mine):
                released = self.mechanism.advance(state, mine, noise, self.addresses[row])
                pieces.append(Piece(row, state.theta, began, released))
        return pieces, touched, changed


Table = TopsTable | PakTable


def _grouped(rows: Ints, values: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (distinct rows, where each one's values start, how many it has, values int64[n] ordered by row)."""
    order = np.argsort(rows, kind="stable")
    return *np.unique(rows[order], return_index=True, return_counts=True), values[order]


def stream_address(partition: int, stream: bytes) -> bytes:
    """Return the noise address of a stream of one raw partition.

    The partition is part of it: the same id on two partitions is two streams with two states, and must not share noise.
    """
    return struct.pack("<I", partition) + stream
