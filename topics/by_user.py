"""by-user: raw events, decoded and re-keyed by user; written by route, read by bound. Protection class: raw.

One Kafka record per (commit of route, by-user partition) holds a block of events as columns; ticks (tick.py) stand
between the blocks. Why blocks: docs/decisions/0001-packed-blocks.md.
"""

from dataclasses import dataclass
from typing import Annotated

from susurrus.topics.blocks import Block, BlockCodec, Codes, Column, Count, Items, Scalar, Table
from susurrus.topics.packing import MAX_COLUMNS, Int32s, Int64s, Kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByUserBlock(Block):
    """Events of one source, as columns.

    source: raw partition. offset: raw offsets, distinct. interval: global trigger number g of each event. window: start
    of its window in ms. user, key: codes into users and keys, which are distinct canonical JSON. values: int64[n, V],
    clamped and in grid units.
    """

    source: Annotated[int, Scalar(least=0)]
    offset: Annotated[Int64s, Column(varied=True)]
    interval: Annotated[Int64s, Column()]
    window: Annotated[Int64s, Column()]
    user: Annotated[Int32s, Codes(into="users")]
    key: Annotated[Int32s, Codes(into="keys")]
    values: Annotated[Int64s, Table()]
    users: Annotated[list[bytes], Items("users")]
    keys: Annotated[list[bytes], Items("keys")]


# Offsets are distinct, so they take at least a byte a row; a column takes nine bytes, a user or key one.
_CODEC = BlockCodec(
    ByUserBlock,
    Kind.BLOCK,
    (
        Count("rows"),
        Count("columns", bytes_each=9, most=MAX_COLUMNS),
        Count("users", most="rows"),
        Count("keys", most="rows"),
    ),
)
encode, decode, size, split = _CODEC.encode, _CODEC.decode, _CODEC.size, _CODEC.split
