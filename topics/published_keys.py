"""published-keys: which keys are published since when; written by release, read by every bound. Class: internal.

For strategies that need the published keys. One or more records per (interval, bounded partition), also for an interval that
publishes nothing. The last of them says that the interval is complete, and how many keys of each open window are published by
then, so that a reader knows when it lacks some. Where the strategy needs the users' lists, the interval that a window's last
trigger looks back at also carries the unit of every key published by then, a function of its estimate. All of it is in the public
output already: a reader of this topic learns no more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import numpy as np

from susurrus.topics.tick import DIGEST_SIZE
from susurrus.topics.wire.blocks import Block, Bytes, Codec, HeaderCount, IntColumn, Items, Pairs, Scalar
from susurrus.topics.wire.packing import Int64s, Kind, as_column, blobs_size, column_size

Start = TypeVar("Start", bound=int)
"""The start of a window in ms, in the caller's own type."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedKeysBlock(Block):
    """Keys that one bounded partition published for the first time at one interval.

    partition: of bounded. interval: global trigger number g. last: whether the interval is complete with this record.
    config_digest, epoch: 32 and 16 bytes; a reader with others refuses. window: int64[n], start in ms. keys: n canonical
    JSON keys. units: int64[n], what a user's record weighs on the key at the window's last trigger, 0 where that is not
    known yet; or None. A key that has one may have been published before. totals: of the last record, window start in
    ms -> keys of that window published up to this interval; else empty.
    """

    partition: Annotated[int, Scalar(least=0)]
    interval: Annotated[int, Scalar()]
    last: Annotated[bool, Scalar(0, 1, make=bool)]
    config_digest: Annotated[bytes, Bytes(DIGEST_SIZE)]
    epoch: Annotated[bytes, Bytes(16)]
    window: Annotated[Int64s, IntColumn()]
    keys: Annotated[list[bytes], Items()]
    units: Annotated[Int64s | None, IntColumn(since=2)] = None
    totals: Annotated[dict[int, int], Pairs("windows", make=dict)]


def _impossible(block: PublishedKeysBlock) -> str | None:
    return "last=False: totals must be in the last record only" if block.totals and not block.last else None


# A column of equal values takes no bytes a row: of the windows open at one interval there are few.
_COUNTS = (HeaderCount("rows"), HeaderCount("windows", bytes_each=0, most=1 << 16))
_CODEC = Codec(PublishedKeysBlock, Kind.BLOCK, _COUNTS, impossible=_impossible)
encode, decode = _CODEC.encode, _CODEC.decode


def split(block: PublishedKeysBlock, max_bytes: int) -> Iterator[PublishedKeysBlock]:
    """The block in pieces whose records are about max_bytes long at most, keys in order; only the last piece is last."""
    size = column_size(block.window) + blobs_size(block.keys) + 8 * (0 if block.units is None else len(block))
    if len(block) > 1 and size > max_bytes:
        half = len(block) // 2
        yield from split(replace(block.take(slice(0, half)), last=False, totals={}), max_bytes)
        yield from split(block.take(slice(half, None)), max_bytes)
        return
    yield block


def block_of(
    partition: int,
    interval: int,
    config_digest: bytes,
    epoch: bytes,
    news: Mapping[Start, list[bytes]],
    totals: Mapping[Start, int],
    units: Mapping[Start, Mapping[bytes, int]] | None = None,
) -> PublishedKeysBlock:
    """The whole block of one interval; news: window start in ms -> keys published for the first time.

    units: window start in ms -> unit by key, of the windows that tell them at this interval.
    """
    column = None
    if units:
        news = {start: list(dict.fromkeys([*keys, *units.get(start, ())])) for start, keys in news.items()}
        column = as_column(units.get(start, {}).get(key, 0) for start, keys in news.items() for key in keys)
    return PublishedKeysBlock(
        partition=partition,
        interval=interval,
        config_digest=config_digest,
        epoch=epoch,
        last=True,
        window=np.repeat(as_column(news.keys()), as_column(map(len, news.values()))),
        keys=[key for keys in news.values() for key in keys],
        totals=dict(totals.items()),
        units=column,
    )
