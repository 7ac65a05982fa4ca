"""What the ledger says of a pipeline that has begun, as far as it decides what becomes of a raw record.

ledger ──begun_of──▶ Begun ──▶ a kind's decisions (decisions.py): the first window, where each source begins, what is closed

A worker reports a source's next offset and its last closed interval together. A record from that offset on comes to a worker that
has closed at least this interval. Of the records before it nothing is known: they may have come in time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from susurrus.mechanisms.calendar import Interval
from susurrus.topics import ledger as codec
from susurrus.topics.sources import SourceMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """first_window: its start in ms. created: when the epoch began, in ms. sources: which raw partitions are read. starts: the
    first offset that is read, of sources that do not begin at 0. joined: the first interval of sources that came later. closed:
    (next offset, last interval that is closed there) of each source that has reported both."""

    first_window: int
    created: int = 0
    sources: SourceMap
    starts: Mapping[int, int]
    joined: Mapping[int, int]
    closed: Mapping[int, tuple[int, int]]

    def is_before_start(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a record lies before the place where the epoch begins to read its partition."""
        source = self.sources.number(topic, partition)
        return source is not None and offset < self.starts.get(source, 0)

    def closed_at(self, topic: str, partition: int, offset: int) -> Interval | None:
        """An interval that is closed for certain when a worker takes this record; None where none is known."""
        source = self.sources.number(topic, partition)
        if source is None:
            return None
        known = [self.joined[source] - 1] if source in self.joined else []
        reported = self.closed.get(source)
        if reported is not None and offset >= reported[0]:
            known.append(reported[1])
        return Interval(max(known)) if known else None


def begun_of(records: Iterable[codec.LedgerRecord], stage: str) -> Begun | None:
    """What a ledger's records say; None where no epoch has begun. stage: the name of the one that reads the raw topics."""
    records = list(records)
    start = next((record for record in records if isinstance(record, codec.Start)), None)
    sources = codec.sources_of(records)
    if start is None or sources is None:
        return None
    epoch = next((record for record in records if isinstance(record, codec.Epoch)), None)
    starts, joined, closed = dict(start.offsets), dict[int, int](), dict[int, tuple[int, int]]()
    announced = [record for record in records if isinstance(record, codec.SourcesRecord)]
    for one in sorted(announced, key=lambda one: one.number, reverse=True):  # the first that has a source counts
        starts |= {source: offset for source, offset in one.offsets.items() if source not in start.offsets}
        joined |= dict.fromkeys(range(len(SourceMap(start.sources)), one.number), one.from_interval)
    for record in records:
        if isinstance(record, codec.Status) and record.stage == stage and record.interval is not None:
            closed[record.partition] = max(record.position, record.next), record.interval
    return Begun(
        first_window=start.first_window,
        created=0 if epoch is None else epoch.created,
        sources=sources,
        starts=starts,
        joined=joined,
        closed=closed,
    )
