"""tick: the record in the log that closes trigger intervals; the same in by-user and in bounded.

route writes tick (r, g) for source r, a raw partition, to every partition of by-user; bound writes tick (p, g) for
source p, a by-user partition, to every partition of bounded. A reader has closed g when it holds tick >= g from every
source.
"""

from dataclasses import dataclass

from susurrus.topics.packing import Kind, MalformedRecord, Reader, Writer

VERSION = 1
DIGEST_SIZE = 32


@dataclass(frozen=True, slots=True)
class Tick:
    """Every trigger interval with number <= slot is closed for that source.

    source: raw partition (in by-user) or by-user partition (in bounded). slot: int64, global trigger number g.
    config_digest: 32 bytes; a reader with another configuration refuses. sources: in source 0's ticks, the number of
    sources from slot + 1 on; else None.
    """

    source: int
    slot: int
    config_digest: bytes
    sources: int | None = None


def encode(tick: Tick) -> bytes:
    """58 bytes. Raises ValueError for a digest of the wrong size or negative numbers of sources."""
    if len(tick.config_digest) != DIGEST_SIZE:
        raise ValueError(f"config_digest has {len(tick.config_digest)} bytes, not {DIGEST_SIZE}")
    if tick.source < 0 or (tick.sources is not None and tick.sources < 1):
        raise ValueError(f"source={tick.source}, sources={tick.sources}: must be >= 0 and >= 1")
    writer = Writer(Kind.TICK, VERSION)
    writer.scalar(tick.source)
    writer.scalar(tick.slot)
    writer.scalar(-1 if tick.sources is None else tick.sources)
    writer.raw(tick.config_digest)
    return writer.finish()


def decode(data: bytes) -> Tick:
    """Raises MalformedRecord."""
    reader = Reader(data, Kind.TICK, VERSION)
    source, slot, sources = reader.scalar(), reader.scalar(), reader.scalar()
    digest = reader.raw(DIGEST_SIZE)
    reader.finish()
    if source < 0 or (sources != -1 and sources < 1):
        raise MalformedRecord(f"tick of source={source}, sources={sources}")
    return Tick(source, slot, digest, None if sources == -1 else sources)
