"""candidates: the released rows that may be among the first of all partitions; written by release, read by rank. Class: internal.

For pipelines with a ranking. One or more records per (interval, bounded partition) that publishes rows which meet the conditions,
and a tick per interval. All of it is in the public output already: a reader of this topic learns no more.
"""

from dataclasses import dataclass
from typing import Annotated

from susurrus.topics.wire.blocks import Block, BlockCodec, HeaderCount, IntColumn, Items, Scalar
from susurrus.topics.wire.packing import Int64s, Kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidatesBlock(Block):
    """Rows that one bounded partition published at one interval.

    partition: of bounded. interval: global trigger number g. window: int64[n], start in ms. rows: n rows as JSON, byte for byte
    those of `histogram` (histogram.py), by window in the order of the ranking.
    """

    partition: Annotated[int, Scalar(least=0)]
    interval: Annotated[int, Scalar()]
    window: Annotated[Int64s, IntColumn()]
    rows: Annotated[list[bytes], Items()]


_CODEC = BlockCodec(CandidatesBlock, Kind.BLOCK, (HeaderCount("rows"),))
encode, decode, split = _CODEC.encode, _CODEC.decode, _CODEC.split
