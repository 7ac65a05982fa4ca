"""Many streams at once: the table of an agent's open streams, and one vectorised step over a batch of their values.

    values of a batch ──by stream──▶ holdouts    collect ranks, release theta where they are complete
                                 └──▶ leaves      clip, add up; complete ones get noise and filters (open_trees.py)

What a stream releases does not depend on the batches, nor on the streams beside it.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.stream.addresses import AddressedNoise
from susurrus.mechanisms.stream.leaves import closed, flat
from susurrus.mechanisms.stream.open_trees import TreeNoise, release
from susurrus.mechanisms.stream.pak import Pak, PakState
from susurrus.mechanisms.stream.releases import Releases, joined
from susurrus.mechanisms.stream.stream_state import MOST_HELD, UNCOUNTED, StreamState, pack_held, unpack_held
from susurrus.mechanisms.stream.tops import Tops

_HOT = struct.Struct("<qqqqq")
_COLUMNS = _HOT.size // 8
_THETA = 1
"""Column of the hot numbers."""
_NO_INTS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """What a step over a batch did.

    releases: n rows, stream by stream.  rows: int64[n], their rows in the table.  events: int64[n], the places in the batch of
    the values that completed them.  touched, changed: rows whose hot part, and whose cold part, is new.
    """

    releases: Releases
    rows: Int64s
    events: Int64s
    touched: Int64s
    changed: Int64s


@dataclass
class TopsTable:
    """Open streams of one partition under ToPS.

    hot int64[rows, 5]: position, theta, lower, partial sum, clipped values, stored on every commit; cold: the rest, stored
    when it has changed. ``addresses`` are the streams' noise addresses; how streams are batched changes no released bit.
    """

    mechanism: Tops
    addresses: list[bytes] = field(default_factory=list)
    hot: Int64s = field(default_factory=lambda: np.zeros((0, _COLUMNS), dtype=np.int64))
    held: list[bytes] = field(default_factory=list)
    """For each row the ranks that a stream without a state has collected (`StreamState.held`)."""
    states: dict[int, StreamState] = field(default_factory=dict)
    """For each row the state of a stream whose holdout is long or complete."""

    def __post_init__(self) -> None:
        self._noise = TreeNoise(self.mechanism)

    def add(self, address: bytes, hot: bytes | None, cold: bytes | None) -> int:
        """Take in a stream, from its stored bytes (both parts of them) or as new; return its row."""
        row = len(self.addresses)
        if row == len(self.hot):
            more = np.zeros((max(64, len(self.hot)), _COLUMNS), dtype=np.int64)
            more[:, -1] = UNCOUNTED
            self.hot = np.concatenate([self.hot, more])
        self.addresses.append(address)
        held = b"" if cold is None else unpack_held(cold)
        if held is None and cold is not None:
            self.states[row] = self.mechanism.unpack(cold)
        self.held.append(held or b"")
        if hot is not None:
            self.hot[row] = _HOT.unpack(hot)
        return row

    def pack_hot(self, rows: Int64s) -> list[bytes]:
        """Return the bytes of the fast-changing part, one per row."""
        data = self.hot[rows].astype("<i8").tobytes()
        return [data[begin : begin + _HOT.size] for begin in range(0, len(data), _HOT.size)]

    def pack_cold(self, row: int) -> bytes:
        """Return the bytes of the rest."""
        position = int(self.hot[row, 0])
        if row in self.states or position > MOST_HELD:
            return self._state(row).pack()
        return pack_held(position, self.held[row])

    def step(self, rows: Int64s, values: Int64s, noise: AddressedNoise) -> StreamStep:
        """Take in values int64[n] of streams int64[n], in order."""
        touched, begins, counts, order = _grouped(rows, len(self.addresses))
        ordered, ends = values[order], begins + counts
        collecting = self.hot[touched, _THETA] == 0
        if collecting.any():
            begins[collecting] = self._collect(
                touched[collecting], begins[collecting], ends[collecting], ordered, noise
            )
        parts = []
        # A pass takes every stream's values up to the end of its open tree: the next tree's range is not known before.
        open_ = np.flatnonzero(begins < ends)
        while len(open_):
            parts.append(self._pass(touched[open_], begins, ends, open_, ordered, noise))
            open_ = open_[begins[open_] < ends[open_]]
        releases = joined([part[0] for part in parts])
        owners, places = (np.concatenate([_NO_INTS, *(part[at] for part in parts)]) for at in (1, 2))
        changed = np.union1d(touched[collecting], owners)
        if len(parts) > 1:
            by_stream = np.argsort(owners, kind="stable")
            releases, owners, places = releases.taken(by_stream), owners[by_stream], places[by_stream]
        return StreamStep(releases, owners, order[places - 1], touched, changed)

    def _pass(
        self, rows: Int64s, begins: Int64s, ends: Int64s, at: Int64s, ordered: Int64s, noise: AddressedNoise
    ) -> tuple[Releases, Int64s, Int64s]:
        """Take values of distinct streams up to the ends of their open trees; ``begins[at]`` moves behind them.

        Return the releases, their rows in the table, and the places behind the values that completed them.
        """
        mechanism, base = self.mechanism, self.mechanism.base
        position, theta, lower, partial, clipped = self.hot[rows].T
        since = np.where(theta, position - mechanism.holdout, 0)
        taken = np.minimum(ends[at] - begins[at], base.values - since % base.values)
        where = flat(begins[at], taken)
        values = ordered if len(where) == len(ordered) else ordered[where]
        own_ends = np.cumsum(taken)
        leaves = closed(
            np.clip(values, np.repeat(lower, taken), np.repeat(theta, taken)),
            begins=own_ends - taken,
            ends=own_ends,
            offsets=since % base.leaf,
            partials=partial,
            leaf=base.leaf,
        )
        self.hot[rows, 0] += taken
        self.hot[rows, 3] = leaves.partials
        counting = np.flatnonzero(clipped != UNCOUNTED)
        if len(counting):
            above = np.concatenate(([0], np.cumsum(np.minimum(values, mechanism.bound) > np.repeat(theta, taken))))
            found = above[own_ends[counting]] - above[(own_ends - taken)[counting]]
            self.hot[rows[counting], 4] += found
        begins[at] += taken
        closing = np.flatnonzero(leaves.counts)
        its, number = rows[closing], leaves.counts[closing]
        if not len(its):
            return joined([]), _NO_INTS, _NO_INTS
        states = [self._state(row) for row in its.tolist()]
        addresses = [self.addresses[row] for row in its.tolist()]
        first = since[closing] // base.leaf
        released = release(mechanism, states, addresses, first, number, leaves.sums, noise, self._noise)
        complete = np.flatnonzero((first + number) % base.leaves == 0)
        for row, state in zip(its[complete].tolist(), [states[place] for place in complete.tolist()], strict=True):
            self.hot[row, _THETA:] = state.theta, state.lower, state.partial, state.clipped
        return released, np.repeat(its, number), where[leaves.ends - 1] + 1

    def _collect(self, rows: Int64s, begins: Int64s, ends: Int64s, ordered: Int64s, noise: AddressedNoise) -> Int64s:
        """Take the values of holdouts; return where the values behind them begin.  Complete holdouts release theta."""
        mechanism = self.mechanism
        heads = np.minimum(ends - begins, mechanism.holdout - self.hot[rows, 0])
        ranks = mechanism.threshold.ranks(ordered[flat(begins, heads)]).astype("<u4").tobytes()
        place = 0
        for row, size in zip(rows.tolist(), (4 * heads).tolist(), strict=True):
            some, place = ranks[place : place + size], place + size
            if row in self.states:
                self.states[row].held += some
            else:
                self.held[row] += some
        self.hot[rows, 0] += heads
        opening = rows[self.hot[rows, 0] == mechanism.holdout].tolist()
        if opening:
            states = [self._state(row) for row in opening]
            mechanism.open(states, noise, [self.addresses[row] for row in opening])
            self.hot[opening, _THETA:] = [(s.theta, s.lower, s.partial, s.clipped) for s in states]
        behind: Int64s = begins + heads
        return behind

    def _state(self, row: int) -> StreamState:
        state = self.states.get(row)
        if state is None:
            state = self.states[row] = StreamState(held=self.held[row])
            self.held[row] = b""
        state.position, state.theta, state.lower, state.partial, state.clipped = self.hot[row].tolist()
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

    def pack_hot(self, rows: Int64s) -> list[bytes]:
        """Return the bytes of everything but the held-out values."""
        return [self.states[row].pack()[: PakState.HEAD_BYTES] for row in rows.tolist()]

    def pack_cold(self, row: int) -> bytes:
        """Return the bytes of the held-out values."""
        return self.states[row].pack()[PakState.HEAD_BYTES :]

    def step(self, rows: Int64s, values: Int64s, noise: AddressedNoise) -> StreamStep:
        """Does what ``TopsTable.step`` does."""
        touched, starts, counts, order = _grouped(rows, len(self.states))
        ordered = values[order]
        parts: list[tuple[int, int, Releases]] = []
        changed = []
        for row, start, count in zip(touched.tolist(), starts.tolist(), counts.tolist(), strict=True):
            state, mine = self.states[row], ordered[start : start + count]
            before = start - state.position
            if not state.theta:
                changed.append(row)
                mine = self.mechanism.collect(state, mine)
                if state.position == self.mechanism.holdout:
                    block = self.mechanism.open(state, noise, self.addresses[row])
                    parts.append((row, before, block))
            if state.theta and len(mine):
                released = self.mechanism.advance(state, mine, noise, self.addresses[row])
                parts.append((row, before, released))
        of_part = np.array([part[:2] for part in parts], dtype=np.int64).reshape(-1, 2)
        sizes = np.array([len(part[2]) for part in parts], dtype=np.int64)
        owners, shift = np.repeat(of_part, sizes, axis=0).T
        releases = joined([part[2] for part in parts])
        return StreamStep(releases, owners, order[releases.last + shift], touched, np.array(changed, dtype=np.int64))


Table = TopsTable | PakTable


def _grouped(rows: Int64s, count: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return (distinct rows, where each one's values start, how many it has, int64[n] that orders values by row).

    count: rows of the table.
    """
    # Sixteen bits are sorted by digits, ten times as fast.
    order = np.argsort(rows.astype(np.uint16) if count <= 1 << 16 else rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(rows) else _NO_INTS
    return ordered[starts], starts, np.diff(starts, append=len(rows)), order


def stream_address(partition: int, stream: bytes) -> bytes:
    """Return the noise address of a stream of one raw partition.

    The partition is part of it: the same id on two partitions is two streams with two states, and must not share noise.
    """
    return struct.pack("<I", partition) + stream
