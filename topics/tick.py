"""tick: the record in the log that closes trigger intervals; the same in by-user and in bounded.

route writes tick (r, g) for source r, a raw partition, to every partition of by-user; bound writes tick (p, g) for
source p, a by-user partition, to every partition of bounded. A reader has closed g when it holds tick >= g from every
source.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from susurrus.topics.wire.blocks import BlockRecord, Bytes, Codec, HeaderCount, Pairs, Scalar
from susurrus.topics.wire.packing import Kind

DIGEST_SIZE = 32


@dataclass(frozen=True, slots=True)
class Tick(BlockRecord):
    """Every trigger interval with number <= interval is closed for that source.

    source: raw partition (in by-user) or by-user partition (in bounded). interval: int64, global trigger number g.
    records: how many records, ticks not among them, this source has written to this very partition before; a reader
    that has another number refuses. config_digest: 32 bytes; a reader with another configuration refuses. sources: only
    in the ticks of by-user's source 0, pairs (first interval, number of sources from it on), both ascending: the number in
    force, and announced changes that a reader may not have read yet. So a reader that closes an interval up to
    ``interval`` knows the number that holds for it.
    """

    source: Annotated[int, Scalar(least=0)]
    interval: Annotated[int, Scalar()]
    records: Annotated[int, Scalar(least=0)]
    config_digest: Annotated[bytes, Bytes(DIGEST_SIZE)]
    sources: Annotated[tuple[tuple[int, int], ...], Pairs("sources")] = ()


def _impossible(tick: Tick) -> str | None:
    ascending = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(tick.sources))
    if ascending and all(number >= 1 for _, number in tick.sources):
        return None
    return f"sources={tick.sources}: must be ascending from >= 1"


# A constant column costs nine bytes at any height, so a decoder needs a bound.
_CODEC = Codec(
    Tick,
    Kind.TICK,
    (HeaderCount("sources", bytes_each=0, most=1_000),),
    version=2,
    body=("sources", "config_digest"),
    impossible=_impossible,
)
encode, decode = _CODEC.encode, _CODEC.decode
