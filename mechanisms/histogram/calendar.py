"""The public calendar: which window and which trigger a time stamp belongs to.

Windows tumble over event time, intervals (trigger intervals) over the clock's time; both count from one public origin, so that a
record's place is a function of its own stamps and of nothing else (docs/guarantees/membership.md). Pure integer arithmetic in
milliseconds since the Unix epoch; used by the route, bound and release agents.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError

Int64 = npt.NDArray[np.int64]


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

    def interval(self, stamp: Int64) -> Int64:
        """Intervals of stamps: int64[n] ms -> int64[n]."""
        return (stamp - self.origin) // self.trigger_every

    def interval_at(self, stamp: int) -> int:
        """The interval of one stamp in ms."""
        return (stamp - self.origin) // self.trigger_every

    def window_of(self, event_time: Int64) -> Int64:
        """Windows of event times: int64[n] ms -> int64[n]."""
        return (event_time - self.origin) // self.window

    def window_at(self, event_time: int) -> int:
        """The window of one event time in ms."""
        return (event_time - self.origin) // self.window

    def boundary(self, interval: int) -> int:
        """The public instant (ms) that ends an interval."""
        return self.origin + (interval + 1) * self.trigger_every

    def window_start(self, window: int) -> int:
        """The window's first millisecond."""
        return self.origin + window * self.window

    def first_interval(self, window: int) -> int:
        """g0: the interval that closes a window's trigger 1."""
        return window * self.intervals_per_window

    def last_interval(self, window: int) -> int:
        """The interval that closes a window's last trigger."""
        return self.first_interval(window) + self.triggers - 1

    def trigger(self, window: int, interval: int) -> int:
        """t = max(1, g - g0 + 1); beyond ``triggers`` the record is late."""
        return max(1, interval - self.first_interval(window) + 1)

    def open_windows(self, interval: int) -> range:
        """The windows that release something when this interval closes."""
        return range(
            -(-(interval + 1 - self.triggers) // self.intervals_per_window), interval // self.intervals_per_window + 1
        )
