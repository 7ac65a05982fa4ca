"""tick: the record in the log that closes trigger intervals; the same in by-user and in bounded.

route writes tick (r, g) for source r, a raw partition, to every partition of by-user; bound writes tick (p, g) for
source p, a by-user partition, to every partition of bounded. A reader has closed g when it holds tick >= g from every
source.
"""

from dataclasses import dataclass
from itertools import pairwise

from susurrus.topics.packing import Kind, MalformedRecord, Reader, Writer, as_column

VERSION = 2
DIGEST_SIZE = 32
_MAX_ANNOUNCED = 1_000
"""A constant column costs nine bytes whatever its height, so a decoder needs a bound."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Every trigger interval with number <= interval is closed for that source.

    source: raw partition (in by-user) or by-user partition (in bounded). interval: int64, global trigger number g.
    records: how many
    records, ticks not among them, this source has written to this very partition before; a reader that has another number refuses.
    config_digest: 32 bytes; a reader with another configuration refuses. sources: in the ticks of by-user's source 0, (first
    interval, number of sources from it on), both ascending: what holds, and what was announced and may not have been read yet. A
    reader that closes an interval up to ``interval`` has read here what holds for it.
    """

    source: int
    interval: int
    records: int
    config_digest: bytes
    sources: tuple[tuple[int, int], ...] = ()


def encode(tick: Tick) -> bytes:
    """76 bytes or more. Raises ValueError for a digest of the wrong size, or numbers that cannot be."""
    if len(tick.config_digest) != DIGEST_SIZE:
        raise ValueError(f"config_digest has {len(tick.config_digest)} bytes, not {DIGEST_SIZE}")
    if not _possible(tick):
        raise ValueError(
            f"source={tick.source}, records={tick.records}, sources={tick.sources}: must be >= 0, >= 0 and ascending from >= 1"
        )
    writer = Writer(Kind.TICK, VERSION)
    writer.scalar(tick.source)
    writer.scalar(tick.interval)
    writer.scalar(tick.records)
    writer.scalar(len(tick.sources))
    writer.column(as_column([interval for interval, _ in tick.sources]))
    writer.column(as_column([number for _, number in tick.sources]))
    writer.raw(tick.config_digest)
    return writer.finish()


def decode(data: bytes) -> Tick:
    """Raises MalformedRecord."""
    reader = Reader(data, Kind.TICK, VERSION)
    source, interval, records, announced = (reader.scalar() for _ in range(4))
    if not 0 <= announced <= _MAX_ANNOUNCED:
        raise MalformedRecord(f"tick with announced={announced}")
    intervals, numbers = reader.column(announced).tolist(), reader.column(announced).tolist()
    digest = reader.raw(DIGEST_SIZE)
    reader.finish()
    tick = Tick(source, interval, records, digest, tuple(zip(intervals, numbers, strict=True)))
    if not _possible(tick):
        raise MalformedRecord(f"tick of source={source}, records={records}, sources={tick.sources}")
    return tick


def _possible(tick: Tick) -> bool:
    ascending = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(tick.sources))
    return (
        tick.source >= 0
        and tick.records >= 0
        and len(tick.sources) <= _MAX_ANNOUNCED
        and ascending
        and all(n >= 1 for _, n in tick.sources)
    )
