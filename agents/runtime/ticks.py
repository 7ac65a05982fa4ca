"""The ticks between two stages, for every kind: what a source has closed and written, and how much of it has arrived.

A source is a partition of the stage before. A tick says up to which interval the source has closed, and how many records it
has written to this very partition. So a stage that closes an interval has all of its records.
Two things can go wrong, and both are refused:
- Kafka loses records that it had acknowledged (seen once: docs/known-limits.md);
- the source's changelog is an older copy, so the source writes again what it had written.
Route's blocks also carry raw offsets. Each raw partition takes them once and in order, so a repetition shows at once.

Records that are read again after a restart are no repetition. A commit carries what came before the position it claims, and
nothing behind that: otherwise a successor would close intervals before it has read their blocks.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from susurrus.agents.finding import Finding, waits
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Output
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.tick import Tick, encode

Schedule = tuple[tuple[Interval, int], ...]
"""(interval, number of sources from that interval on), both ascending."""


class Written:
    """How many records one source has written to each partition of one topic, ticks not among them."""

    def __init__(self, source: int, topic: str, known: Sequence[int], *, config_digest: bytes) -> None:
        """known: by partition, what ``to_meta`` of the last commit said; zeros at the beginning."""
        self._source = source
        self._topic = topic
        self._records = list(known)
        self._digest = config_digest

    def count(self, outputs: Iterable[Output]) -> None:
        """Add up the records that this commit writes to the topic."""
        for output in outputs:
            self._records[output.partition] += len(output.messages)

    def ticks(self, interval: Interval, sources: Schedule = ()) -> list[Output]:
        """The tick of an interval for every partition, behind all that was counted."""
        return [
            Output(
                self._topic,
                partition,
                [{"value": encode(Tick(self._source, interval, records, self._digest, sources))}],
            )
            for partition, records in enumerate(self._records)
        ]

    def to_meta(self) -> list[int]:
        """The part that a commit carries."""
        return list(self._records)


class Sources:
    """How many sources count from which interval on: raw partitions for bound, by-user partitions for release.

    The raw topic may grow. Source 0 of route notices that (histogram/growth.py) and says so in every tick it writes from then
    on. From when on a new source counts must not depend on any user's record: docs/guarantees/membership.md.
    """

    def __init__(self, schedule: Iterable[tuple[int, int]]) -> None:
        self._schedule = [(Interval(int(interval)), int(number)) for interval, number in schedule]

    @property
    def schedule(self) -> Schedule:
        """What has been announced, and the number in force before that."""
        return tuple(self._schedule)

    def number(self, interval: Interval) -> int:
        """How many sources count for an interval."""
        return next((number for start, number in reversed(self._schedule) if start <= interval), self._schedule[0][1])

    def announce(self, schedule: Iterable[tuple[int, int]]) -> None:
        """Take up what is new; the same announcement comes with many ticks."""
        for interval, number in schedule:
            if number > self._schedule[-1][1]:
                earlier = [entry for entry in self._schedule if entry[0] < interval]
                self._schedule = [*earlier, (Interval(interval), number)]

    def prune(self, closed: Interval) -> None:
        """Forget what only intervals up to ``closed`` needed."""
        first = Interval(closed + 1)
        self._schedule = [(first, self.number(first)), *(entry for entry in self._schedule if entry[0] > first)]


class TickVector:
    """What the sources have closed, and how many sources there are from which interval on."""

    def __init__(self, ticks: Mapping[int, int], sources: Iterable[tuple[int, int]]) -> None:
        self.ticks = {int(source): Interval(int(interval)) for source, interval in ticks.items()}
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


class Incoming:
    """What each source has ticked and how much of it has come, now and as of the position that a commit may claim."""

    def __init__(
        self,
        place: str,
        *,
        config_digest: bytes,
        way_out: str,
        ticks: Mapping[int, int],
        sources: Iterable[tuple[int, int]],
        received: Mapping[int, Sequence[int]],
    ) -> None:
        """place: what a refusal calls the input. way_out: for the operator.

        ticks, sources, received: what ``claim`` of the last commit left. received: source -> records, and highest raw offset.
        """
        self._place = place
        self._digest = config_digest
        self._way_out = way_out
        self.now = TickVector(ticks, sources)
        self._claimed = TickVector(ticks, sources)
        self._received = {int(source): (int(records), int(last)) for source, (records, last) in received.items()}
        self._came = dict(self._received)
        self._recent: deque[tuple[Offset, Tick | tuple[int, tuple[int, int]]]] = deque()

    def record(self, source: int, offset: Offset, raw: tuple[int, int] | None = None) -> None:
        """A record at input offset ``offset``. raw: the first and the last raw offset it brings, where it has any.

        Raises Refusal for raw offsets that came before.
        """
        records, last = self._came.get(source, (0, -1))
        if raw is not None:
            if raw[0] <= last:
                raise Refusal(
                    f"{self._place} offset={offset}: source={source} brings raw offsets from {raw[0]} on, but has "
                    f"come up to {last} before, so the changelog of route is an older copy, and records would count "
                    "twice",
                    f"restore it as it was at the last commit, or {self._way_out}",
                )
            last = raw[1]
        self._came[source] = records + 1, last
        self._recent.append((offset, (source, self._came[source])))

    def tick(self, tick: Tick, offset: Offset) -> None:
        """A tick at input offset ``offset``: its source has closed everything up to ``tick.interval``.

        Raises Refusal for a tick of another configuration, and where another number of records came than it says.
        """
        if tick.config_digest != self._digest:
            raise Refusal(
                f"source={tick.source} closed interval={tick.interval} under another configuration",
                "run every worker with the same configuration",
            )
        self._compare(tick, offset)
        self.now.apply(tick)
        self._recent.append((offset, tick))

    def _compare(self, tick: Tick, offset: Offset) -> None:
        records, _ = self._came.get(tick.source, (0, -1))
        if records == tick.records:
            return
        found = f"{self._place} offset={offset}: source={tick.source} says records={tick.records}, and records={records} came"
        if records < tick.records:
            raise Refusal(
                f"{found}, so Kafka has lost what it had acknowledged",
                f"restore the topic as it was, or {self._way_out}",
            )
        raise Refusal(
            f"{found}, so the source's changelog is an older copy, and its records would count twice",
            f"restore it as it was at the last commit, or {self._way_out}",
        )

    def stall(self, closed: Interval, stage: str) -> Finding | None:
        """Which sources hold the next interval back, where others are further. stage: what the sources are partitions of."""
        ticks = self.now.ticks
        sources = range(self.now.sources.number(Interval(closed + 1)))
        behind = [source for source in sources if ticks.get(source, closed) <= closed]
        if not behind or max(ticks.values(), default=closed) <= closed:
            return None
        return waits(
            stage,
            f"interval={closed + 1} waits for {stage} {', '.join(map(str, behind[:8]))}",
            f"see what status says of {stage}",
        )

    def claim(
        self, position: Offset, closed: Interval
    ) -> tuple[dict[int, Interval], Schedule, dict[int, tuple[int, int]]]:
        """(ticks, sources, received) that a commit carries, which claims ``position``: of what came below it only."""
        while self._recent and self._recent[0][0] < position:
            _, entry = self._recent.popleft()
            if isinstance(entry, Tick):
                self._claimed.apply(entry)
            else:
                source, state = entry
                self._received[source] = state
        for vector in (self.now, self._claimed):
            vector.sources.prune(closed)
        return dict(self._claimed.ticks), self._claimed.sources.schedule, dict(self._received)
