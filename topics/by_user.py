"""by-user: raw events, decoded and re-keyed by user; written by route, read by bound. Protection class: raw.

One Kafka record per (commit of route, by-user partition) holds a block of events as columns; ticks (tick.py) stand
between the blocks. Why blocks: docs/decisions/0001-packed-blocks.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from susurrus.topics.compiled import compiled
from susurrus.topics.wire.blocks import Block, BlockCodec, Codes, HeaderCount, IntColumn, Items, Scalar, Table
from susurrus.topics.wire.packing import MAX_COLUMNS, Int32s, Int64s, Kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByUserBlock(Block):
    """Events of one source, as columns.

    source: raw partition. offset: raw offsets, distinct. interval: global trigger number g of each event. window: start
    of its window in ms. user, key: codes into users and keys, which are distinct canonical JSON. values: int64[n, V],
    clamped and in grid units. users: decoded as `BlobColumns`, for they are many and are mostly known already.
    """

    source: Annotated[int, Scalar(least=0)]
    offset: Annotated[Int64s, IntColumn(varied=True)]
    interval: Annotated[Int64s, IntColumn()]
    window: Annotated[Int64s, IntColumn()]
    user: Annotated[Int32s, Codes(into="users")]
    key: Annotated[Int32s, Codes(into="keys")]
    values: Annotated[Int64s, Table()]
    users: Annotated[Sequence[bytes], Items("users", columns=True)]
    keys: Annotated[list[bytes], Items("keys")]


# Offsets are distinct, so they take at least a byte a row; a column takes nine bytes, a user or key one.
_CODEC = BlockCodec(
    ByUserBlock,
    Kind.BLOCK,
    (
        HeaderCount("rows"),
        HeaderCount("columns", bytes_each=9, most=MAX_COLUMNS),
        HeaderCount("users", most="rows"),
        HeaderCount("keys", most="rows"),
    ),
)
encode, decode, size, split = _CODEC.encode, _CODEC.decode, _CODEC.size, _CODEC.split


def by_partition(
    block: ByUserBlock, rows: npt.NDArray[np.intp], partitions: Int32s, max_bytes: int
) -> list[tuple[int, list[bytes]]]:
    """Rows of a block as encoded blocks of at most max_bytes, by the partition of their users: (partition, blocks), in order.

    partitions: int32 for each user. Raises ValueError as `encode` and `split`.
    """
    if compiled is not None and block.values.shape[1] <= MAX_COLUMNS and block.source >= 0:
        try:
            return _packed(block, rows, partitions, max_bytes)
        except ValueError:
            pass  # what is wrong is said below
    found = []
    target = partitions[block.user[rows]]
    for number in np.unique(target).tolist():
        pieces = split(block.take(rows[target == number]), max_bytes)
        found.append((number, [encode(piece) for piece in pieces]))
    return found


def _packed(
    block: ByUserBlock, rows: npt.NDArray[np.intp], partitions: Int32s, max_bytes: int
) -> list[tuple[int, list[bytes]]]:
    """The same, compiled. Offsets are distinct where a decoder took them from record batches."""
    columns = [column.astype(np.int64, copy=False).tobytes() for column in (block.offset, block.interval, block.window)]
    packed: list[tuple[int, list[bytes]]] = compiled.pack_by_user(
        block.source,
        columns,
        block.user.tobytes(),
        list(block.users),
        block.key.tobytes(),
        block.keys,
        [column.tobytes() for column in block.values.T],
        rows.astype(np.int64, copy=False).tobytes(),
        partitions.tobytes(),
        max_bytes,
    )
    return packed
