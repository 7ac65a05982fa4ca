"""evidence: the rows of a window's last trigger before they are calibrated; written by release, read by every release.

Class: internal. Part of the topic published-keys, for strategies that calibrate rows with those of all partitions. One or more
records per (window, bounded partition), also where there are no rows. They hold no keys, only measurements. Each says how
many rows there are in all, so that a reader knows when it lacks some, and the last one that these are all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from susurrus.topics.tick import DIGEST_SIZE
from susurrus.topics.wire.blocks import Block, Bytes, Codec, HeaderCount, Scalar, Table
from susurrus.topics.wire.packing import MAX_COLUMNS, Int64s, Kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvidenceBlock(Block):
    """Rows of one bounded partition.

    partition: of bounded. interval: global trigger number g, the window's last. window: start in ms. last: whether these are all
    rows with this record. total: rows of all records. config_digest, epoch: 32 and 16 bytes; a reader with others refuses.
    evidence: int64[n, e], as the strategy's `calibrate` takes them.
    """

    partition: Annotated[int, Scalar(least=0)]
    interval: Annotated[int, Scalar()]
    window: Annotated[int, Scalar()]
    last: Annotated[bool, Scalar(0, 1, make=bool)]
    total: Annotated[int, Scalar(least=0)]
    config_digest: Annotated[bytes, Bytes(DIGEST_SIZE)]
    epoch: Annotated[bytes, Bytes(16)]
    evidence: Annotated[Int64s, Table()]


def _impossible(block: EvidenceBlock) -> str | None:
    rows = len(block)
    return f"total={block.total}: is less than the record's rows={rows}" if rows > block.total else None


_MOST_ROWS = 1 << 20
"""The most rows of one record. Rows that are all alike take no bytes each, so a decoder needs a bound."""
_COUNTS = (HeaderCount("rows", bytes_each=0, most=_MOST_ROWS), HeaderCount("columns", bytes_each=9, most=MAX_COLUMNS))
_CODEC = Codec(EvidenceBlock, Kind.EVIDENCE, _COUNTS, impossible=_impossible)
encode, decode = _CODEC.encode, _CODEC.decode


def split(block: EvidenceBlock, max_bytes: int) -> Iterator[EvidenceBlock]:
    """The block in pieces whose records are at most max_bytes long, rows in order; only the last piece is last."""
    if len(block) > _MOST_ROWS or (len(block) > 1 and _CODEC.size(block) > max_bytes):
        half = len(block) // 2
        yield from split(replace(block.take(slice(0, half)), last=False), max_bytes)
        yield from split(block.take(slice(half, None)), max_bytes)
        return
    yield block
