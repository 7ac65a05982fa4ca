"""published-keys: which keys are published since when; written by release, read by every bound. Class: internal.

For strategies that need the published keys. One or more records per (interval, bounded partition), also for an interval that
publishes nothing. The last of them says that the interval is complete, and how many keys of each open window are published by
then, so that a reader knows when it lacks some. Where the strategy needs the users' lists, the interval that a window's last
trigger looks back at also carries the unit of every key published by then, a function of its estimate. All of it is in the public
output already: a reader of this topic learns no more.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from susurrus.topics.packing import Int64s, Kind, MalformedRecord, Reader, Writer, as_column, blobs_size, column_size
from susurrus.topics.tick import DIGEST_SIZE

VERSION, VERSION_WITH_UNITS = 1, 2
EPOCH_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedKeysBlock:
    """Keys that one bounded partition published for the first time at one interval.

    partition: of bounded. interval: global trigger number g. config_digest, epoch: 32 and 16 bytes; a reader with others refuses.
    last: whether the interval is complete with this record. window: int64[n], start in ms. keys: n canonical JSON keys.
    totals: of the last record, window start in ms -> keys of that window published up to this interval; else empty.
    units: int64[n], what a user's record weighs on the key at the window's last trigger, 0 where that is not told yet; or None. A
    key that has one may have been published before.
    """

    partition: int
    interval: int
    config_digest: bytes
    epoch: bytes
    last: bool
    window: Int64s
    keys: list[bytes]
    totals: dict[int, int]
    units: Int64s | None = None

    def __len__(self) -> int:
        return len(self.keys)


def encode(block: PublishedKeysBlock) -> bytes:
    """One record. Raises ValueError when the columns do not fit together."""
    n = len(block)
    if block.window.shape != (n,) or b"" in block.keys:
        raise ValueError(f"{n} keys and windows of shape {block.window.shape} do not make a block")
    if len(block.config_digest) != DIGEST_SIZE or len(block.epoch) != EPOCH_SIZE:
        raise ValueError(f"digest and epoch must be of {DIGEST_SIZE} and {EPOCH_SIZE} bytes")
    if block.partition < 0 or (block.totals and not block.last):
        raise ValueError(f"partition={block.partition}: must be >= 0, and only the last record has totals")
    if block.units is not None and block.units.shape != (n,):
        raise ValueError(f"{n} keys and units of shape {block.units.shape} do not make a block")
    writer = Writer(Kind.BLOCK, VERSION if block.units is None else VERSION_WITH_UNITS)
    for scalar in (block.partition, block.interval, int(block.last), n, len(block.totals)):
        writer.scalar(scalar)
    writer.raw(block.config_digest)
    writer.raw(block.epoch)
    writer.column(block.window)
    writer.blobs(block.keys)
    if block.units is not None:
        writer.column(block.units)
    writer.column(as_column(block.totals.keys()))
    writer.column(as_column(block.totals.values()))
    return writer.finish()


def decode(data: bytes) -> PublishedKeysBlock:
    """Raises MalformedRecord."""
    reader = Reader(data, Kind.BLOCK, VERSION, VERSION_WITH_UNITS)
    partition, interval, last = reader.scalar(), reader.scalar(), reader.scalar()
    # A column of equal values takes no bytes a row: of the windows open at one interval there are few.
    n, windows = reader.count(), reader.count(bytes_each=0)
    if partition < 0 or last not in (0, 1) or not 0 <= windows <= 1 << 16:
        raise MalformedRecord(f"block of partition={partition}, last={last}, windows={windows}")
    digest, epoch = reader.raw(DIGEST_SIZE), reader.raw(EPOCH_SIZE)
    window = reader.column(n)
    keys = reader.blobs(n)
    units = reader.column(n) if reader.version == VERSION_WITH_UNITS else None
    starts, numbers = reader.column(windows), reader.column(windows)
    reader.finish()
    return PublishedKeysBlock(
        partition=partition,
        interval=interval,
        config_digest=digest,
        epoch=epoch,
        last=bool(last),
        window=window,
        keys=keys,
        totals=dict(zip(starts.tolist(), numbers.tolist(), strict=True)),
        units=units,
    )


def split(block: PublishedKeysBlock, max_bytes: int) -> Iterator[PublishedKeysBlock]:
    """The block in pieces whose records are about max_bytes long at most, keys in order; only the last piece is last."""
    size = column_size(block.window) + blobs_size(block.keys) + 8 * (0 if block.units is None else len(block))
    if len(block) > 1 and size > max_bytes:
        half = len(block) // 2
        units = (None, None) if block.units is None else (block.units[:half], block.units[half:])
        first = replace(
            block, last=False, totals={}, window=block.window[:half], keys=block.keys[:half], units=units[0]
        )
        yield from split(first, max_bytes)
        yield from split(replace(block, window=block.window[half:], keys=block.keys[half:], units=units[1]), max_bytes)
        return
    yield block


def block_of(
    partition: int,
    interval: int,
    config_digest: bytes,
    epoch: bytes,
    news: dict[int, list[bytes]],
    totals: dict[int, int],
    units: dict[int, dict[bytes, int]] | None = None,
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
        totals=totals,
        units=column,
    )
