"""The public calendar: which window and which trigger a time stamp belongs to.

Windows tumble over event time, intervals (trigger intervals) over the clock's time. Both count from one public origin, so a
record's place is a function of its own stamps and of nothing else (docs/guarantees/membership.md). Pure integer arithmetic in
milliseconds since the Unix epoch; used by the route, bound and release agents.

A window has two numbers, its index and its first millisecond. Noise and charges are addressed by a window, so a mix-up of
the two would draw noise twice or leave a window uncharged. Each number has its own type, and mypy refuses the wrong one. The
types cost nothing at run time. Columns (arrays) and records of a topic hold plain integers; the code that reads one names its type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NewType

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.errors import ConfigurationError

WindowIndex = NewType("WindowIndex", int)
"""Number of a window: 0 is the window that begins at the calendar's origin."""
WindowStart = NewType("WindowStart", int)
"""First millisecond of a window, since the Unix epoch."""
Interval = NewType("Interval", int)
"""Number g of a trigger interval: 0 is the one that begins at the calendar's origin."""
Trigger = NewType("Trigger", int)
"""Number t of a window's trigger, 1..T."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Windows of ``window`` ms closed by triggers every ``trigger_every`` ms; all fields in milliseconds.

    An interval g covers the stamps in [origin + g * trigger_every, origin + (g + 1) * trigger_every); its boundary is its end.
    Raises ConfigurationError where trigger_every does not divide window.
    """

    origin: int
    window: int
    trigger_every: int
    allowed_lateness: int = 0

    def __post_init__(self) -> None:
        if self.trigger_every <= 0 or self.window <= 0 or self.window % self.trigger_every:
            raise ConfigurationError(
                f"window={self.window} ms is no multiple of trigger_every={self.trigger_every} ms: "
                "choose window.trigger_every so that it divides window.length"
            )
        if self.allowed_lateness < 0:
            raise ConfigurationError(f"allowed_lateness={self.allowed_lateness} ms is negative: use 0 or more")

    @property
    def intervals_per_window(self) -> int:
        """Intervals between a window's start and its end."""
        return self.window // self.trigger_every

    @property
    def triggers(self) -> int:
        """T: results released per window, those for late records included."""
        return -(-(self.window + self.allowed_lateness) // self.trigger_every)

    def interval(self, stamp: Int64s) -> Int64s:
        """Intervals of stamps: int64[n] ms -> int64[n]."""
        return (stamp - self.origin) // self.trigger_every

    def interval_at(self, stamp: int) -> Interval:
        """The interval of one stamp in ms."""
        return Interval((stamp - self.origin) // self.trigger_every)

    def window_of(self, event_time: Int64s) -> Int64s:
        """Windows of event times: int64[n] ms -> int64[n]."""
        return (event_time - self.origin) // self.window

    def window_at(self, event_time: int) -> WindowIndex:
        """The window of one event time in ms."""
        return WindowIndex((event_time - self.origin) // self.window)

    def boundary(self, interval: Interval) -> int:
        """The public instant (ms) that ends an interval."""
        return self.origin + (interval + 1) * self.trigger_every

    def window_start(self, window: WindowIndex) -> WindowStart:
        """The window's first millisecond."""
        return WindowStart(self.origin + window * self.window)

    def first_interval(self, window: WindowIndex) -> Interval:
        """g0: the interval that closes a window's trigger 1."""
        return Interval(window * self.intervals_per_window)

    def last_interval(self, window: WindowIndex) -> Interval:
        """The interval that closes a window's last trigger."""
        return self.interval_of(window, Trigger(self.triggers))

    def interval_of(self, window: WindowIndex, trigger: Trigger) -> Interval:
        """The interval that closes a trigger of a window: g0 + t - 1."""
        return Interval(self.first_interval(window) + trigger - 1)

    def trigger(self, window: WindowIndex, interval: Interval) -> Trigger:
        """t = max(1, g - g0 + 1); beyond ``triggers`` the record is late."""
        return Trigger(max(1, interval - self.first_interval(window) + 1))

    def oldest_open(self, interval: Interval) -> WindowIndex:
        """The first of the windows that release something when this interval closes, or the next to do so."""
        return WindowIndex(-(-(interval + 1 - self.triggers) // self.intervals_per_window))

    def open_windows(self, interval: Interval) -> Iterator[WindowIndex]:
        """The windows that release something when this interval closes, in order."""
        return map(WindowIndex, range(self.oldest_open(interval), interval // self.intervals_per_window + 1))
