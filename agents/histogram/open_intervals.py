"""The rule that closes an interval, used by bound and by release: an interval is closed when every source has ticked it.

    by-user:  sources are raw partitions     bounded:  sources are by-user partitions

Blocks of intervals that are not closed wait here, in memory. Their input offsets are kept, for the position a commit may claim is
the smallest offset that still waits: a crash then reads them again. Blocks of an already closed interval that are read again are
dropped, they were counted; ticks behind the claimed position are not part of the commit, or a successor would close intervals whose
blocks it has yet to read. If more waits than memory should hold, the stage spills it into its state.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from susurrus.agents.histogram.sources import Schedule, Sources
from susurrus.agents.kafka.offset import Offset
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.calendar import Interval
from susurrus.topics.tick import Tick

B = TypeVar("B")

_WAITING_BYTES = 128 << 20
"""Encoded bytes of waiting blocks per partition; a row may hold two strings of input.max_key_bytes."""


class TickVector:
    """What the sources have closed, and how many sources there are from which interval on."""

    def __init__(self, ticks: dict[int, Interval], sources: Schedule) -> None:
        self.ticks = ticks
        self.sources = Sources(sources)

    def apply(self, tick: Tick) -> None:
        """Take up one tick; source 0's also carries how many sources count from which interval on."""
        interval = Interval(tick.interval)
        self.ticks[tick.source] = max(interval, self.ticks.get(tick.source, interval))
        self.sources.announce(tick.sources)

    def ready(self, closed: Interval) -> Interval:
        """The last interval, at least ``closed``, that every source it counts for has ticked."""
        ready, schedule = closed, self.sources.schedule
        for index, (_, number) in enumerate(schedule):
            last = Interval(schedule[index + 1][0] - 1) if index + 1 < len(schedule) else None
            if last is not None and last <= ready:
                continue
            reached = min(self.ticks.get(source, ready) for source in range(number))
            ready = max(ready, reached if last is None else min(reached, last))
            if last is None or ready < last:
                break
        return ready


@dataclass(slots=True)
class Waiting(Generic[B]):
    """Blocks of one interval, with the input offset each came from; in log order."""

    blocks: list[B] = field(default_factory=list)
    offsets: list[Offset] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class OpenIntervals(Generic[B]):
    """Tick vector and waiting blocks of one input partition; ``closed`` is the last interval that was closed."""

    def __init__(
        self, *, config_digest: bytes, closed: Interval, ticks: dict[int, Interval], sources: Schedule
    ) -> None:
        self._digest = config_digest
        self._live = TickVector(dict(ticks), sources)
        self._base = TickVector(dict(ticks), sources)
        self._recent: deque[tuple[Offset, Tick]] = deque()
        self.closed = closed
        self.rows = 0
        self.size = 0
        self._waiting: dict[Interval, Waiting[B]] = defaultdict(Waiting)

    @classmethod
    def fresh(cls, *, config_digest: bytes, closed: Interval, sources: int) -> "OpenIntervals[B]":
        """Before the first window."""
        return cls(config_digest=config_digest, closed=closed, ticks={}, sources=((Interval(closed + 1), sources),))

    @classmethod
    def from_meta(cls, meta: dict[str, Any], *, config_digest: bytes) -> "OpenIntervals[B]":
        """As of the last commit; blocks are read again or restored from the spill."""
        return cls(
            config_digest=config_digest,
            closed=Interval(int(meta["closed"])),
            ticks={int(source): Interval(int(interval)) for source, interval in meta["ticks"].items()},
            sources=tuple(meta["sources"]),
        )

    def to_meta(self, position: Offset) -> dict[str, Any]:
        """The part that a commit carries: ticks below its position only."""
        while self._recent and self._recent[0][0] < position:
            self._base.apply(self._recent.popleft()[1])
        self._base.sources.prune(self.closed)
        return {"closed": self.closed, "ticks": dict(self._base.ticks), "sources": self._base.sources.schedule}

    # ---- input -------------------------------------------------------------------------------------------------------

    def tick(self, tick: Tick, offset: Offset) -> None:
        """A source has closed everything up to ``tick.interval``."""
        if tick.config_digest != self._digest:
            raise Refusal(
                f"source={tick.source} closed interval={tick.interval} under another configuration: run every worker with the same "
                "configuration"
            )
        self._live.apply(tick)
        self._recent.append((offset, tick))

    def add(self, interval: Interval, block: B, rows: int, offset: Offset, size: int = 0) -> None:
        """A block of one interval waits until the interval closes; one of a closed interval was counted before a crash."""
        if interval <= self.closed:
            return
        waiting = self._waiting[interval]
        waiting.blocks.append(block)
        waiting.offsets.append(offset)
        waiting.rows += rows
        waiting.size += size
        self.rows += rows
        self.size += size

    # ---- closing -----------------------------------------------------------------------------------------------------

    def outgrows(self, rows: int) -> bool:
        """Whether more waits than memory should hold: that many rows, or fewer with long users and keys."""
        return self.rows > rows or self.size > _WAITING_BYTES

    @property
    def ready(self) -> Interval:
        """The last interval that every source it counts for has ticked."""
        return self._live.ready(self.closed)

    def next_with_rows(self, ready: Interval) -> Interval | None:
        """The earliest waiting interval that may be closed."""
        return min((interval for interval in self._waiting if interval <= ready), default=None)

    def peek(self, interval: Interval) -> list[B]:
        """The blocks of an interval, in log order."""
        return self._waiting[interval].blocks if interval in self._waiting else []

    def close(self, interval: Interval) -> None:
        """Everything up to ``interval`` is closed; its blocks go."""
        for number in [number for number in self._waiting if number <= interval]:
            gone = self._waiting.pop(number)
            self.rows -= gone.rows
            self.size -= gone.size
        self.closed = interval
        self._live.sources.prune(interval)

    def take_all(self) -> list[tuple[Interval, list[B]]]:
        """Everything that waits, by interval, for a spill; it is gone from memory then."""
        blocks = [(interval, self._waiting[interval].blocks) for interval in sorted(self._waiting)]
        self._waiting.clear()
        self.rows = self.size = 0
        return blocks

    def position(self, taken: Offset) -> Offset:
        """The input offset a successor must read from when everything below ``taken`` was read."""
        return min((offset for waiting in self._waiting.values() for offset in waiting.offsets), default=taken)

    def stall(self, stage: str = "source") -> str | None:
        """Which source holds the next interval back. stage: what the sources are partitions of."""
        ticks, closed = self._live.ticks, self.closed
        behind = [s for s in range(self._live.sources.number(Interval(closed + 1))) if ticks.get(s, closed) <= closed]
        if not behind or max(ticks.values(), default=closed) <= closed:
            return None
        return f"interval={closed + 1} waits for {stage} {', '.join(map(str, behind[:8]))}: see what status says of {stage}"
