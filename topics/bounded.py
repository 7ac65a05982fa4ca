"""bounded: exact increments per key after every user was bounded; written by bound, read by release. Class: internal.

One Kafka record per (close of a trigger, bounded partition) holds the increments as columns; no user id is left in it.
"""

from dataclasses import dataclass
from typing import Annotated

from susurrus.topics.wire.blocks import Block, BlockCodec, HeaderCount, IntColumn, Items, Scalar, Table
from susurrus.topics.wire.packing import Int64s, Kind

MAX_NUMBERS = 4096
"""What a key has at most: one number for each column, and one for each bucket of a column with buckets. One that is the same for
all keys costs nine bytes at any height, so a decoder needs a bound."""
LIST_COLUMNS = 3
"""Users, weight, and weight on public keys."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundedBlock(Block):
    """Increments of one trigger interval from one by-user partition, as columns.

    partition: of by-user. interval: global trigger number g. window: start in ms. users: users new to the key. weight:
    their selection weight in 2^-20 units. sums: int64[n, columns], what each measured column or bucket gains. lists: at a
    window's last trigger, where the strategy needs the users' lists: int64[n, 3], what they add: users, weight, weight on
    public keys (mechanisms/histogram/user_lists.py); else None. keys: canonical JSON, distinct within a window.
    """

    partition: Annotated[int, Scalar(least=0)]
    interval: Annotated[int, Scalar()]
    window: Annotated[Int64s, IntColumn()]
    users: Annotated[Int64s, IntColumn()]
    weight: Annotated[Int64s, IntColumn()]
    sums: Annotated[Int64s, Table()]
    lists: Annotated[Int64s | None, Table(width=LIST_COLUMNS, since=2)] = None
    keys: Annotated[list[bytes], Items()]


# A key takes at least one byte, a column nine.
_CODEC = BlockCodec(
    BoundedBlock, Kind.BLOCK, (HeaderCount("rows"), HeaderCount("columns", bytes_each=9, most=MAX_NUMBERS))
)
encode, decode, size, split = _CODEC.encode, _CODEC.decode, _CODEC.size, _CODEC.split
