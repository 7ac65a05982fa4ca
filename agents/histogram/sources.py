"""How many sources count from which interval on: raw partitions for bound, by-user partitions for release.

The raw topic may grow. Source 0 of route notices (``Growth``) and says so in every tick it writes from then on; bound follows
what the ticks say (open_intervals.py). When a new source counts must not be anybody's record's doing:
docs/guarantees/membership.md.
"""

from collections.abc import Iterable

from susurrus.mechanisms.histogram.calendar import Calendar, Interval

Schedule = tuple[tuple[Interval, int], ...]
"""(interval, number of sources from that interval on), both ascending."""


class Sources:
    """The number of sources by interval."""

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


class Growth:
    """When source 0 looks for new partitions, and from which interval on it announces them.

    It looks once per interval, at a public instant: when the interval is over and ``margin`` ms more. An interval that
    was not over at the last
    look is never ticked by source 0, so no reader can have closed it; a partition that the last look did not show has no record
    of an interval that was over then. New partitions therefore count from the first interval behind the last look: no
    interval is closed
    without them, and none of their records is moved.
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
        """Take up a look made when ``interval`` was over; (first interval, number of sources) where the topic has grown."""
        grown = (Interval(self.looked + 1), partitions) if partitions > self.sources.schedule[-1][1] else None
        if grown is not None:
            self.sources.announce((grown,))
        self.looked = interval
        return grown
