"""Which trigger of a window is at the time of another one's: what a rolling view counts from.

Windows of one length have the same trigger numbers at the same times. Days, weeks and months on the clocks of a country do not:
they differ in length, and clocks change. There it is the trigger at the same time of the clocks, so many days after the window's
first date.
"""

from datetime import datetime, time, timedelta
from typing import Final

import numpy as np

from susurrus.mechanisms.calendar import Calendar, Trigger, WindowIndex
from susurrus.topics.records.zones import zone_of

_EPOCH: Final = datetime(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)


def triggers_to_end(calendar: Calendar, window: WindowIndex) -> int:
    """How many triggers a window has until its end, without those for late records."""
    return calendar.first_interval(calendar.following(window)) - calendar.first_interval(window)


def same_time_before(calendar: Calendar, time_zone: str | None, window: WindowIndex, trigger: Trigger) -> Trigger:
    """The trigger of the window before at the time of this trigger, which is not behind its window's end.

    Of a time that clocks showed twice, the first; of one that they skipped, the same time after the change. Between two triggers,
    the earlier one. At the end of a window, and where the window before had no such date, it is that window's end.
    """
    if time_zone is None:
        return trigger
    before = calendar.preceding(window)
    end = triggers_to_end(calendar, before)
    if trigger == triggers_to_end(calendar, window):
        return Trigger(end)
    zone = zone_of(time_zone)

    def clock(instant: int) -> datetime:
        return zone.local(instant).replace(tzinfo=None)

    start = calendar.window_start(before)
    first, first_before = (
        datetime.combine(clock(instant).date(), time()) for instant in (calendar.window_start(window), start)
    )
    wanted = first_before + (clock(calendar.boundary(calendar.interval_of(window, trigger))) - first)
    local = np.array([(wanted - _EPOCH) // _MILLISECOND], np.int64)
    passed = (int(zone.to_utc(local)[0]) - start) // calendar.trigger_every
    return Trigger(min(max(passed, 1), end))


def period_start(calendar: Calendar, time_zone: str | None, window: WindowIndex, trigger: Trigger) -> int:
    """The first instant, in ms, of what a rolling view counts at a trigger up to the window's end."""
    since = same_time_before(calendar, time_zone, window, trigger)
    return calendar.window_start(calendar.preceding(window)) + since * calendar.trigger_every
