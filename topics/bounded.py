"""bounded: exact increments per key after every user was bounded; written by bound, read by release. Class: internal.

One Kafka record per (close of a trigger, bounded partition) holds the increments as columns; no user id is left in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.topics.packing import MAX_COLUMNS, Int64s, Kind, MalformedRecord, Reader, Writer, blobs_size, column_size

VERSION, VERSION_WITH_LISTS = 1, 2
LIST_COLUMNS = 3
_HEADER = 2 + 8 * 4  # kind, version, and four scalars


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundedBlock:
    """Increments of one trigger interval from one by-user partition, as columns.

    partition: of by-user. interval: global trigger number g. window: int64[n], start in ms. keys: n canonical JSON keys,
    distinct within a window. users: int64[n], users new to the key. weight: int64[n], their selection weight in 2^-20
    units. sums: int64[n, columns], what each measured column gains. lists: at a window's last trigger, int64[n, 3], what the users'
    lists add: users, weight, weight on public keys (mechanisms/histogram/user_lists.py), where the strategy needs them; else None.
    """

    partition: int
    interval: int
    window: Int64s
    keys: list[bytes]
    users: Int64s
    weight: Int64s
    sums: Int64s
    lists: Int64s | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: npt.NDArray[np.integer] | slice) -> "BoundedBlock":
        """The block of some of the rows."""
        keys = self.keys[rows] if isinstance(rows, slice) else [self.keys[i] for i in rows.tolist()]
        return BoundedBlock(
            partition=self.partition,
            interval=self.interval,
            window=self.window[rows],
            keys=keys,
            users=self.users[rows],
            weight=self.weight[rows],
            sums=self.sums[rows],
            lists=None if self.lists is None else self.lists[rows],
        )


def encode(block: BoundedBlock) -> bytes:
    """One record. Raises ValueError when the columns do not fit together."""
    n = len(block)
    columns = (block.window, block.users, block.weight)
    if any(c.shape != (n,) for c in columns) or block.sums.ndim != 2 or block.sums.shape[0] != n:
        raise ValueError(
            f"{n} keys and columns of shapes {[c.shape for c in (*columns, block.sums)]} do not make a block"
        )
    if block.sums.shape[1] > MAX_COLUMNS:
        raise ValueError(f"columns={block.sums.shape[1]} exceeds MAX_COLUMNS={MAX_COLUMNS}: use several pipelines")
    if b"" in block.keys:
        raise ValueError("a key is empty, which no JSON is")
    if block.lists is not None and block.lists.shape != (n, LIST_COLUMNS):
        raise ValueError(f"{n} keys and lists of shape {block.lists.shape} do not make a block")
    writer = Writer(Kind.BLOCK, VERSION if block.lists is None else VERSION_WITH_LISTS)
    for scalar in (block.partition, block.interval, n, block.sums.shape[1]):
        writer.scalar(scalar)
    for column in (*columns, *block.sums.T, *_list_columns(block)):
        writer.column(column)
    writer.blobs(block.keys)
    return writer.finish()


def decode(data: bytes) -> BoundedBlock:
    """Raises MalformedRecord. The arrays are fresh and writable."""
    reader = Reader(data, Kind.BLOCK, VERSION, VERSION_WITH_LISTS)
    partition, interval = reader.scalar(), reader.scalar()
    n, columns = reader.count(), reader.count(bytes_each=9)  # a key is at least one byte, a column nine
    if partition < 0 or columns > MAX_COLUMNS:
        raise MalformedRecord(f"block of partition={partition}, columns={columns}")
    window, users, weight = reader.column(n), reader.column(n), reader.column(n)
    sums = np.empty((n, columns), np.int64)
    for index in range(columns):
        sums[:, index] = reader.column(n)
    lists = None
    if reader.version == VERSION_WITH_LISTS:
        lists = np.stack([reader.column(n) for _ in range(LIST_COLUMNS)], axis=1)
    keys = reader.blobs(n)
    reader.finish()
    return BoundedBlock(
        partition=partition,
        interval=interval,
        window=window,
        keys=keys,
        users=users,
        weight=weight,
        sums=sums,
        lists=lists,
    )


def size(block: BoundedBlock) -> int:
    """len(encode(block)), at a fraction of the cost."""
    return (
        _HEADER
        + sum(map(column_size, (block.window, block.users, block.weight, *block.sums.T, *_list_columns(block))))
        + blobs_size(block.keys)
    )


def _list_columns(block: BoundedBlock) -> tuple[Int64s, ...]:
    return () if block.lists is None else tuple(block.lists.T)


def split(block: BoundedBlock, max_bytes: int) -> Iterator[BoundedBlock]:
    """The block in pieces whose records are at most max_bytes long, rows in order; nothing for an empty block.

    Raises ValueError when a single row is longer than that.
    """
    if not len(block):
        return
    if size(block) <= max_bytes:
        yield block
        return
    if len(block) == 1:
        raise ValueError(f"one key takes {size(block)} bytes, more than max_bytes={max_bytes}: raise max.message.bytes")
    half = len(block) // 2
    yield from split(block.take(slice(0, half)), max_bytes)
    yield from split(block.take(slice(half, None)), max_bytes)
