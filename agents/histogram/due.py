"""When the next trigger of a histogram is due: from the public calendar and what was announced, never from data."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from susurrus.agents.histogram.public_progress import memory_of
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.runtime.facts import WindowMemory
from susurrus.mechanisms.calendar import Interval, Trigger
from susurrus.topics.progress import Progress


@dataclass(slots=True)
class Announced:
    """Which partitions have announced which triggers, from the topic `progress`; of the newest epoch alone."""

    number: int = 0
    _newest: dict[int, Progress] = field(default_factory=dict)
    """The newest trigger of each partition."""
    of_partitions: int = 0
    skipped: set[int] = field(default_factory=set)
    """The starts of windows that are skipped, of the newest epoch."""

    def add(self, said: Progress) -> bool:
        """Take in one announcement; whether it says anything new."""
        if said.epoch_number < self.number:
            return False
        if said.epoch_number > self.number:
            self.number, self._newest, self.skipped = said.epoch_number, {}, set()
        self.of_partitions = said.of_partitions
        if said.skips:
            known = said.window in self.skipped
            self.skipped.add(said.window)
            return not known
        before = self._newest.get(said.partition)
        if before is not None and _place(before) >= _place(said):
            return False
        self._newest[said.partition] = said
        return True

    def skips(self, window: int) -> bool:
        """Whether a window (start in ms) is skipped."""
        return window in self.skipped

    def newest(self) -> tuple[int, int] | None:
        """(window start in ms, trigger) of the newest trigger that any partition has announced."""
        return max(map(_place, self._newest.values()), default=None)

    def seen(self) -> int:
        """How many partitions have announced the newest trigger."""
        newest = self.newest()
        return sum(_place(said) == newest for said in self._newest.values())

    def memory(self) -> WindowMemory | None:
        """What the newest window has from those before it; None where it has nothing of them, or nothing is announced."""
        newest = self.newest()
        said = [] if newest is None else [each for each in self._newest.values() if each.window == newest[0]]
        return memory_of(said) if said else None


def _place(said: Progress) -> tuple[int, int]:
    """(window start in ms, trigger)."""
    return said.window, said.trigger


def behind_skipped(settings: HistogramSettings, skipped: Collection[int], interval: Interval) -> Interval:
    """The first interval from this one on that closes a trigger of a window that is not skipped. skipped: starts in ms."""
    calendar = settings.calendar
    while skipped and all(calendar.window_start(window) in skipped for window in calendar.open_windows(interval)):
        interval = Interval(interval + 1)
    return interval


def next_due(settings: HistogramSettings, announced: Announced, now: int) -> Mapping[str, Any]:
    """What is due next. at: instant in ms; None where the clock does not tell. window: start in ms. now: ms.

    A trigger is published once its interval is closed: `closing_delay` after its end at the latest, if nothing holds it back.
    """
    calendar, until = settings.calendar, settings.clock.until
    newest = announced.newest()
    if newest is None:
        start, first = settings.start, calendar.window_at(now)
        if start.first_window is not None:
            first = calendar.window_at(start.first_window)
        interval = max(calendar.first_interval(first), calendar.interval_at(now))
        if not settings.clock.chosen.live:
            interval = calendar.first_interval(first)
    else:
        window, trigger = newest
        complete = announced.seen() >= announced.of_partitions
        interval = Interval(calendar.interval_of(calendar.window_at(window), Trigger(trigger)) + complete)
    interval = behind_skipped(settings, announced.skipped, interval)
    boundary = calendar.boundary(interval)
    of_window = calendar.window_start(calendar.oldest_open(interval))
    if not settings.clock.chosen.live:
        ended = until is not None and boundary > until
        return {"at": None, "archive": True, "ended": ended, "until": until, "window": of_window}
    return {"at": boundary + settings.closing_delay, "archive": False, "ended": False, "window": of_window}
