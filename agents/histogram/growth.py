"""Growth of the raw topic: when source 0 of route looks for new partitions, and from which interval on they count."""

from susurrus.agents.runtime.ticks import Schedule, Sources
from susurrus.mechanisms.calendar import Calendar, Interval


class TopicGrowth:
    """When source 0 looks for new partitions, and from which interval on it announces them.

    It looks once per interval, at a public instant: ``margin`` ms after the interval's end.
    - Source 0 never ticks an interval that was not over at the last look. So no reader can have closed it.
    - A partition that the last look did not show has no record of an interval that was over then.
    New partitions therefore count from the first interval behind the last look. No interval is closed without them, and none of
    their records is moved.
    """

    def __init__(self, calendar: Calendar, *, margin: int, looked: Interval, sources: Schedule) -> None:
        self.looked = looked
        """The last interval that was over at the last look; no later one may be ticked by source 0."""
        self.sources = Sources(sources)
        self._calendar = calendar
        self._margin = margin

    def due(self, now: int) -> Interval | None:
        """The interval for which it is time to look at wall-clock ``now`` (ms), if it is time."""
        over = Interval(self._calendar.interval_at(now - self._margin) - 1)
        return over if over > self.looked else None

    def saw(self, partitions: int, interval: Interval) -> tuple[Interval, int] | None:
        """Note a look made when ``interval`` was over. Returns (first interval, number of sources) where the topic has grown."""
        grown = (Interval(self.looked + 1), partitions) if partitions > self.sources.schedule[-1][1] else None
        if grown is not None:
            self.sources.announce((grown,))
        self.looked = interval
        return grown
