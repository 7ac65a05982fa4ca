"""lasting rows: how many rows of a window that ends are of keys that were public when it began; written by release, read by every
release.

Class: internal. Part of the topic published-keys, for pipelines that remember keys and whose shares follow how much lasted
(mechanisms/histogram/persistence.py). One record per (window, bounded partition), in the transaction that publishes the window's
last rows, before the record that completes the interval. Its numbers are functions of output.
"""

from dataclasses import dataclass
from typing import Annotated

from susurrus.topics.tick import DIGEST_SIZE
from susurrus.topics.wire.blocks import BlockRecord, Bytes, Codec, Scalar
from susurrus.topics.wire.packing import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingRows(BlockRecord):
    """Numbers of one bounded partition.

    partition: of bounded. interval: global trigger number g, the window's last. window: start in ms. rows: last rows that are
    large enough to count. known: those among them whose keys were declared or remembered when the window began. Of a window that
    is skipped: the numbers of the one before. config_digest, epoch: 32 and 16 bytes; a reader with others refuses.
    """

    partition: Annotated[int, Scalar(least=0)]
    interval: Annotated[int, Scalar()]
    window: Annotated[int, Scalar()]
    known: Annotated[int, Scalar(least=0)]
    rows: Annotated[int, Scalar(least=0)]
    config_digest: Annotated[bytes, Bytes(DIGEST_SIZE)]
    epoch: Annotated[bytes, Bytes(16)]


def _impossible(record: LastingRows) -> str | None:
    return f"known={record.known}: is more than rows={record.rows}" if record.known > record.rows else None


_CODEC = Codec(LastingRows, Kind.LASTING, impossible=_impossible)
encode, decode = _CODEC.encode, _CODEC.decode
