"""How many sources count from which slot on: raw partitions for bound, by-user partitions for release.

The raw topic may grow. Source 0 of route notices (``Growth``) and says so in every tick it writes from then on; bound follows
what the ticks say (open_slots.py). When a new source counts must not be anybody's record's doing: docs/guarantees/membership.md.
"""

from collections.abc import Iterable

from susurrus.mechanisms.calendar import Calendar

Schedule = tuple[tuple[int, int], ...]
"""(slot, number of sources from that slot on), both ascending."""


class Sources:
    """The number of sources by slot."""

    def __init__(self, schedule: Iterable[tuple[int, int]]) -> None:
        self._schedule = [(int(slot), int(number)) for slot, number in schedule]

    @property
    def schedule(self) -> Schedule:
        """What has been announced, and the number in force before that."""
        return tuple(self._schedule)

    def number(self, slot: int) -> int:
        """How many sources count for a slot."""
        return next((number for start, number in reversed(self._schedule) if start <= slot), self._schedule[0][1])

    def announce(self, schedule: Schedule) -> None:
        """Take up what is new; the same announcement comes with many ticks."""
        for slot, number in schedule:
            if number > self._schedule[-1][1]:
                self._schedule = [*(entry for entry in self._schedule if entry[0] < slot), (slot, number)]

    def prune(self, closed: int) -> None:
        """Forget what only slots up to ``closed`` needed."""
        later = [entry for entry in self._schedule if entry[0] > closed + 1]
        self._schedule = [(closed + 1, self.number(closed + 1)), *later]


class Growth:
    """When source 0 looks for new partitions, and from which slot on it announces them.

    It looks once per slot, at a public instant: when the slot is over and ``margin`` ms more. A slot that was not over at the last
    look is never ticked by source 0, so no reader can have closed it; a partition that the last look did not show has no record
    of a slot that was over then. New partitions therefore count from the first slot behind the last look: no slot is closed
    without them, and none of their records is moved.
    """

    def __init__(self, calendar: Calendar, *, margin: int, looked: int, sources: Schedule) -> None:
        self.looked = looked
        """The last slot that was over at the last look; no later one may be ticked by source 0."""
        self.sources = Sources(sources)
        self._calendar = calendar
        self._margin = margin

    def due(self, now: int) -> int | None:
        """The slot for which it is time to look at wall-clock ``now`` (ms), if it is time."""
        over = self._calendar.slot_at(now - self._margin) - 1
        return over if over > self.looked else None

    def saw(self, partitions: int, slot: int) -> tuple[int, int] | None:
        """Take up a look made when ``slot`` was over; (first slot, number of sources) where the topic has grown."""
        grown = (self.looked + 1, partitions) if partitions > self.sources.schedule[-1][1] else None
        if grown is not None:
            self.sources.announce((grown,))
        self.looked = slot
        return grown
