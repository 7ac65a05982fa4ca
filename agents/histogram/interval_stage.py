"""What bound, release and rank share: blocks wait for their interval, sources tick, and a closed interval makes a commit."""

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from susurrus.agents.finding import Finding
from susurrus.agents.histogram.intervals import OpenIntervals
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Incoming
from susurrus.mechanisms.calendar import Interval, WindowIndex
from susurrus.topics import tick as tick_codec
from susurrus.topics.wire.packing import Kind, kind_of

B = TypeVar("B")


class IntervalStage(Stage, Generic[B]):
    """One partition of a topic whose records are blocks and ticks."""

    input: ClassVar[str]
    """Name of the topic that is read."""
    source: ClassVar[str]
    """Name of the stage that writes it; the input's sources are partitions of that stage."""

    def __init__(
        self, services: Services, partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        """Ticks and spilled blocks are in the meta record and the store; other blocks that waited are read again."""
        super().__init__(services, partition, store, meta, position)
        self._calendar = services.calendar
        self._first_interval = _first_interval(services)
        self._max_rows = services.settings.worker.max_open_records
        self._incoming = Incoming(
            f"topic={services.topic(self.input)} partition={partition}",
            config_digest=services.config_digest,
            way_out=services.ledger.way_out,
            ticks=meta["ticks"],
            sources=meta["sources"],
            received=meta["received"],
        )
        self._intervals: OpenIntervals[B] = OpenIntervals(store, encode=self.encode, decode=self.decode, meta=meta)
        self._waiting: Finding | None = None
        """What the next interval waits for, apart from ticks."""

    @staticmethod
    @abstractmethod
    def encode(block: B) -> bytes:
        """A block as a record, for a spill."""

    @staticmethod
    @abstractmethod
    def decode(data: bytes) -> B:
        """The block of a record. Raises MalformedRecord."""

    @abstractmethod
    def take_block(self, block: B, offset: Offset, size: int) -> None:
        """Hand a block of ``size`` encoded bytes to ``_incoming`` and to ``_intervals``."""

    @staticmethod
    @abstractmethod
    def first_sources(services: Any) -> int:
        """Return how many sources there are at the first window."""

    # ---- input -------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, services: Any, partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """No interval of the first window is closed, and the log is read from where the epoch begins."""
        first = _first_interval(services)
        meta = {
            "closed": Interval(first - 1),
            "ticks": {},
            "sources": ((first, cls.first_sources(services)),),
            "spilled": {},
            "spills": 0,
            "received": {},
        }
        # Records are deleted from the input only behind commits: a log that begins later is refused.
        return meta, services.ledger.begins(services.topic(cls.input), partition)

    def take(self, batch: Batch) -> None:
        """Blocks wait for their interval; ticks are noted."""
        for record in batch.records:
            if kind_of(record.value) is Kind.TICK:
                self._incoming.tick(tick_codec.decode(record.value), record.offset)
            else:
                self.take_block(self.decode(record.value), record.offset, len(record.value))
        self._taken = batch.end
        self.crowded = self._intervals.crowded

    # ---- output ------------------------------------------------------------------------------------------------------

    @property
    def _ready(self) -> Interval:
        """The last interval that every source it counts for has closed."""
        return self._incoming.now.ready(self._intervals.closed)

    def _following(self, ready: Interval) -> tuple[Interval, list[WindowIndex]]:
        """The next interval to close, and the pipeline's windows that are open in it. Before the first window, intervals without
        rows are closed at once. ready: the last that may be closed."""
        interval = Interval(self._intervals.closed + 1)
        windows = [w for w in self._calendar.open_windows(interval) if w >= self.services.ledger.first_window]
        if not windows and self._intervals.next_with_rows(ready) is None and not self._intervals.spilled:
            interval = min(ready, max(interval, Interval(self._first_interval - 1)))
        return interval, windows

    def _meta(self, position: Offset) -> dict[str, Any]:
        closed = self._intervals.closed
        ticks, sources, received = self._incoming.claim(position, closed)
        return {
            "closed": closed,
            "ticks": ticks,
            "sources": sources,
            **self._intervals.to_meta(),
            "received": received,
        }

    def _claim(self) -> tuple[Offset, dict[str, Any]]:
        """Position and meta record of a commit that is made now."""
        position = self._intervals.position(self._taken)
        return position, self._meta(position)

    def _spill(self) -> Commit:
        puts = self._intervals.spill()
        return Commit(*self._claim(), puts=puts)

    def stall(self, now: int) -> Finding | None:
        """What the next interval waits for."""
        return self._waiting or self._incoming.stall(self._intervals.closed, self.source)

    def report(self) -> dict[str, Any]:
        """Counters and the last closed interval."""
        return {**super().report(), "interval": self._intervals.closed}


def _first_interval(services: Services) -> Interval:
    """The first interval that publishes anything."""
    return services.calendar.first_interval(services.ledger.first_window)
