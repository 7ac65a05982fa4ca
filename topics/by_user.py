"""by-user: raw events, decoded and re-keyed by user; written by route, read by bound. Protection class: raw.

One Kafka record per (commit of route, by-user partition) holds a block of events as columns; ticks (tick.py) stand
between the blocks. Why blocks: docs/decisions/0001-packed-blocks.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.topics.packing import (
    MAX_COLUMNS,
    Int32s,
    Int64s,
    Kind,
    MalformedRecord,
    Reader,
    Writer,
    blobs_size,
    column_size,
)

VERSION = 1
_HEADER = 2 + 8 * 5  # kind, version, and five scalars


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByUserBlock:
    """Events of one source, as columns.

    source: raw partition. offset: int64[n], raw offsets. interval: int64[n], global trigger number g of each event.
    window: int64[n], start of its window in ms. user: int32[n], codes into users. users: distinct canonical JSON
    scalars. key: int32[n], codes into keys. keys: distinct canonical JSON. values: int64[n, V], clamped and in grid
    units.
    """

    source: int
    offset: Int64s
    interval: Int64s
    window: Int64s
    user: Int32s
    users: list[bytes]
    key: Int32s
    keys: list[bytes]
    values: Int64s

    def __len__(self) -> int:
        return int(self.offset.size)

    def take(self, rows: npt.NDArray[np.integer] | slice) -> "ByUserBlock":
        """The block of some of the rows, with only the users and keys they need."""
        user, users = _narrow(self.user[rows], self.users)
        key, keys = _narrow(self.key[rows], self.keys)
        return ByUserBlock(
            source=self.source,
            offset=self.offset[rows],
            interval=self.interval[rows],
            window=self.window[rows],
            user=user,
            users=users,
            key=key,
            keys=keys,
            values=self.values[rows],
        )


def _narrow(codes: Int32s, items: list[bytes]) -> tuple[Int32s, list[bytes]]:
    """Codes into the items they use, in the items' own order."""
    used = np.zeros(len(items), np.bool_)
    used[codes] = True
    if used.all():
        return codes, items
    renumbered = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return renumbered[codes], [items[i] for i in np.flatnonzero(used).tolist()]


def encode(block: ByUserBlock) -> bytes:
    """One record. Raises ValueError when the columns do not fit together."""
    n, columns = _check(block)
    writer = Writer(Kind.BLOCK, VERSION)
    for scalar in (block.source, n, columns, len(block.users), len(block.keys)):
        writer.scalar(scalar)
    for column in (block.offset, block.interval, block.window, block.user, block.key):
        writer.column(column)
    for index in range(columns):
        writer.column(block.values[:, index])
    writer.blobs(block.users)
    writer.blobs(block.keys)
    return writer.finish()


def decode(data: bytes) -> ByUserBlock:
    """Raises MalformedRecord. The arrays are fresh and writable."""
    reader = Reader(data, Kind.BLOCK, VERSION)
    source = reader.scalar()
    # Offsets are distinct, so they take at least a byte a row; a column takes nine bytes, a user or key one.
    n, columns = reader.count(), reader.count(bytes_each=9)
    n_users, n_keys = reader.count(), reader.count()
    if source < 0 or n_users > n or n_keys > n or columns > MAX_COLUMNS:
        raise MalformedRecord(f"block of source={source}, rows={n}, columns={columns}, users={n_users}, keys={n_keys}")
    offset, interval, window = reader.column(n), reader.column(n), reader.column(n)
    user, key = reader.codes(n, n_users), reader.codes(n, n_keys)
    values = np.empty((n, columns), np.int64)
    for index in range(columns):
        values[:, index] = reader.column(n)
    users, keys = reader.blobs(n_users), reader.blobs(n_keys)
    reader.finish()
    return ByUserBlock(
        source=source,
        offset=offset,
        interval=interval,
        window=window,
        user=user,
        users=users,
        key=key,
        keys=keys,
        values=values,
    )


def size(block: ByUserBlock) -> int:
    """len(encode(block)), at a fraction of the cost."""
    columns = [block.offset, block.interval, block.window, block.user, block.key, *block.values.T]
    return _HEADER + sum(map(column_size, columns)) + blobs_size(block.users) + blobs_size(block.keys)


def split(block: ByUserBlock, max_bytes: int) -> Iterator[ByUserBlock]:
    """The block in pieces whose records are at most max_bytes long, rows in order; nothing for an empty block.

    Raises ValueError when a single row is longer than that.
    """
    if not len(block):
        return
    if size(block) <= max_bytes:
        yield block
        return
    if len(block) == 1:
        raise ValueError(
            f"one event takes {size(block)} bytes, more than max_bytes={max_bytes}: raise max.message.bytes"
        )
    half = len(block) // 2
    yield from split(block.take(slice(0, half)), max_bytes)
    yield from split(block.take(slice(half, None)), max_bytes)


def _check(block: ByUserBlock) -> tuple[int, int]:
    n = len(block)
    columns = (block.offset, block.interval, block.window, block.user, block.key)
    if any(c.shape != (n,) for c in columns) or block.values.ndim != 2 or block.values.shape[0] != n:
        raise ValueError(f"columns of shapes {[c.shape for c in (*columns, block.values)]} do not make a block")
    for codes, items in ((block.user, block.users), (block.key, block.keys)):
        if n and (int(codes.min()) < 0 or int(codes.max()) >= len(items)):
            raise ValueError(f"codes point outside a list of {len(items)} items")
        if len(items) > n:
            raise ValueError(f"{len(items)} items for {n} rows: keep only those in use")
        if b"" in items:
            raise ValueError("a user or key is empty, which no JSON is")
    if n > 1 and int(block.offset.min()) == int(block.offset.max()):
        raise ValueError("the rows share one offset: offsets of a source are distinct")
    if block.values.shape[1] > MAX_COLUMNS:
        raise ValueError(f"columns={block.values.shape[1]} exceeds MAX_COLUMNS={MAX_COLUMNS}: use several pipelines")
    return n, int(block.values.shape[1])
