"""Growth of the raw topics: when source 0 of route looks for new partitions and topics, and from which interval on they count."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from susurrus.agents.runtime.ticks import Schedule, Sources
from susurrus.mechanisms.calendar import Calendar, Interval
from susurrus.topics.sources import SourceMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What source 0 announces: all sources from an interval on. topics: those that are new. offsets: the first to read of their
    partitions, by the number of the source; new partitions of known topics are read from 0."""

    first: Interval
    sources: SourceMap
    topics: tuple[str, ...] = ()
    offsets: Mapping[int, int] = field(default_factory=dict)


class TopicGrowth:
    """When source 0 looks for new partitions and topics, and from which interval on it announces them.

    It looks once per interval, at a public instant: ``margin`` ms after the interval's end.
    - Source 0 never ticks an interval that was not over at the last look. So no reader can have closed it.
    - A partition that the last look did not show has no record of an interval that was over then.
    New partitions therefore count from the first interval behind the last look. No interval is closed without them, and none of
    their records is moved.
    - A topic that an operator has added has records of any age. Its log is cut at the look that finds it, and it counts from
    the first interval that was not over then.
    """

    def __init__(
        self, calendar: Calendar, *, margin: int, looked: Interval, schedule: Schedule, sources: SourceMap
    ) -> None:
        self.looked = looked
        """The last interval that was over at the last look; no later one may be ticked by source 0."""
        self.schedule = Sources(schedule)
        """How many sources count from which interval on."""
        self.sources = sources
        """All of them, the announced ones included."""
        self._calendar = calendar
        self._margin = margin

    def due(self, now: int) -> Interval | None:
        """The interval for which it is time to look at wall-clock ``now`` (ms), if it is time."""
        over = Interval(self._calendar.interval_at(now - self._margin) - 1)
        return over if over > self.looked else None

    def saw(
        self,
        partitions: Mapping[str, int],
        interval: Interval,
        added: Mapping[str, int] | None = None,
        end_of: Callable[[str, int], int] = lambda topic, partition: 0,
    ) -> list[Grown]:
        """Note a look made when ``interval`` was over. Returns what is to be announced.

        partitions: of every known topic. added: of topics that an operator has added. end_of: where the log of their partitions
        ends now; what it raises leaves the look undone.
        """
        sources = self.sources
        for topic, number in partitions.items():
            sources = sources.grown(topic, number)
        found = [Grown(first=Interval(self.looked + 1), sources=sources)] if len(sources) > len(self.sources) else []
        offsets: dict[int, int] = {}
        for topic, number in (added or {}).items():
            offsets |= {len(sources) + partition: end_of(topic, partition) for partition in range(number)}
            sources = sources.grown(topic, number)
        if offsets:
            topics = tuple(added or ())
            found.append(Grown(first=Interval(interval + 1), sources=sources, topics=topics, offsets=offsets))
        self.schedule.announce((grown.first, len(grown.sources)) for grown in found)
        self.sources, self.looked = sources, interval
        return found
