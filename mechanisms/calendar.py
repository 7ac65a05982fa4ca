"""The public calendar: which window and which trigger a time stamp belongs to.

Windows tumble over event time (windows.py), intervals (trigger intervals) over the clock's time. A window begins where an interval
does. A record's place is a function of its own stamps and of nothing else (docs/guarantees/membership.md). Pure integer arithmetic
in milliseconds since the Unix epoch; used by the route, bound and release agents.

A window has two numbers, its index and its first millisecond. Noise and charges are addressed by a window, so a mix-up of
the two would draw noise twice or leave a window uncharged. Each number has its own type, and mypy refuses the wrong one. The
types cost nothing at run time. Columns (arrays) and records of a topic hold plain integers; the code that reads one names its type.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NewType

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.windows import TumblingWindows

WindowIndex = NewType("WindowIndex", int)
"""Number of a window, from `TumblingWindows`."""
WindowStart = NewType("WindowStart", int)
"""First millisecond of a window, since the Unix epoch."""
Interval = NewType("Interval", int)
"""Number g of a trigger interval: 0 is the one that begins at the calendar's origin."""
Trigger = NewType("Trigger", int)
"""Number t of a window's trigger, 1..T. T is that of its window: windows differ in length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Windows closed by triggers every ``trigger_every`` ms.

    origin: ms, an instant at which an interval begins, and so every window does. An interval g covers the stamps in
    [origin + g * trigger_every, origin + (g + 1) * trigger_every); its boundary is its end.
    Raises ConfigurationError where trigger_every does not divide all lengths of windows.
    """

    windows: TumblingWindows
    origin: int
    trigger_every: int
    allowed_lateness: int = 0
    all_triggers: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Every T that a window may have, from the smallest: results released per window, those for late records included."""

    def __post_init__(self) -> None:
        every, late = self.trigger_every, self.allowed_lateness
        if off := next((length for length in self.windows.lengths if every <= 0 or length % every), None):
            raise ConfigurationError(
                f"window={off} ms is no multiple of trigger_every={every} ms: "
                "choose window.trigger_every so that it divides window.length"
            )
        if late < 0:
            raise ConfigurationError(f"allowed_lateness={late} ms is negative: use 0 or more")
        found = tuple(-(-(length + late) // every) for length in self.windows.lengths)
        object.__setattr__(self, "all_triggers", found)

    @property
    def triggers(self) -> int:
        """The largest T. That of one window is `triggers_of`."""
        return self.all_triggers[-1]

    @property
    def late_intervals(self) -> int:
        """Intervals after a window's end in which it may still release something."""
        return -(-self.allowed_lateness // self.trigger_every)

    # ---- intervals ---------------------------------------------------------------------------------------------------

    def interval(self, stamp: Int64s) -> Int64s:
        """Intervals of stamps: int64[n] ms -> int64[n]."""
        return (stamp - self.origin) // self.trigger_every

    def interval_at(self, stamp: int) -> Interval:
        """The interval of one stamp in ms."""
        return Interval((stamp - self.origin) // self.trigger_every)

    def boundary(self, interval: Interval) -> int:
        """The public instant (ms) that ends an interval."""
        return self.origin + (interval + 1) * self.trigger_every

    # ---- windows -----------------------------------------------------------------------------------------------------

    def window_of(self, event_time: Int64s) -> Int64s:
        """Windows of event times: int64[n] ms -> int64[n]."""
        return self.windows.of_times(event_time)

    def window_at(self, event_time: int) -> WindowIndex:
        """The window of one event time in ms."""
        return WindowIndex(self.windows.of_time(event_time))

    def window_start(self, window: WindowIndex) -> WindowStart:
        """The window's first millisecond."""
        return WindowStart(self.windows.start(window))

    def window_end(self, window: WindowIndex) -> int:
        """The first millisecond after the window."""
        return self.windows.start(window + 1)

    def end_of(self, start: WindowStart) -> int:
        """The first millisecond after the window that begins then."""
        return self.window_end(self.window_at(start))

    def following(self, window: WindowIndex) -> WindowIndex:
        """The next window."""
        return WindowIndex(self.windows.following(window))

    def preceding(self, window: WindowIndex) -> WindowIndex:
        """The window before."""
        return WindowIndex(self.windows.preceding(window))

    # ---- triggers ----------------------------------------------------------------------------------------------------

    def triggers_of(self, window: WindowIndex) -> int:
        """T of a window; 0 for an index that has none."""
        length = self.windows.length(window)
        return -(-(length + self.allowed_lateness) // self.trigger_every) if length else 0

    def first_intervals(self, windows: Int64s) -> Int64s:
        """g0 of windows: int64[n] -> int64[n]."""
        return self.interval(self.windows.starts(windows))

    def last_intervals(self, windows: Int64s) -> Int64s:
        """The intervals that close windows' last triggers: int64[n] -> int64[n]."""
        return self.interval(self.windows.starts(windows + 1) + (self.allowed_lateness - 1))

    def first_interval(self, window: WindowIndex) -> Interval:
        """g0: the interval that closes a window's trigger 1."""
        return self.interval_at(self.windows.start(window))

    def last_interval(self, window: WindowIndex) -> Interval:
        """The interval that closes a window's last trigger."""
        return self.interval_at(self.windows.start(window + 1) + self.allowed_lateness - 1)

    def interval_of(self, window: WindowIndex, trigger: Trigger) -> Interval:
        """The interval that closes a trigger of a window: g0 + t - 1."""
        return Interval(self.first_interval(window) + trigger - 1)

    def trigger(self, window: WindowIndex, interval: Interval) -> Trigger:
        """t = max(1, g - g0 + 1); beyond `triggers_of` the record is late."""
        return Trigger(max(1, interval - self.first_interval(window) + 1))

    def oldest_open(self, interval: Interval) -> WindowIndex:
        """The first of the windows that release something when this interval closes, or the next to do so."""
        # The first whose end, and the lateness after it, lies behind the interval's start.
        return self.window_at(self.boundary(Interval(interval - 1)) - self.allowed_lateness)

    def open_windows(self, interval: Interval) -> Iterator[WindowIndex]:
        """The windows that release something when this interval closes, in order."""
        newest = self.window_at(self.boundary(Interval(interval - 1)))
        found = map(WindowIndex, range(self.oldest_open(interval), newest + 1))
        return (window for window in found if self.windows.length(window))
