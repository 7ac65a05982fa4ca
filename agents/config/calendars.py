"""The calendar of a `[window]`: lengths, time zone and triggers as `Calendar` needs them.

Calendar windows are those of the years 1970 to 2099. A window must begin at a trigger. A few zones have moved their clocks by other
than whole hours, long ago or once. Where that was before FITS_FROM, windows before it do not exist, and all later ones do.
"""

import functools
from typing import Final

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.windows import CalendarLength, CalendarWindows, FixedWindows, aligned_since
from susurrus.topics.records.zones import Zone

FITS_FROM: Final = 1_735_689_600_000
"""2025-01-01T00:00:00Z: from here on, at the latest, every calendar window must begin at a trigger."""


@functools.cache
def starts_of(length: CalendarLength, time_zone: str) -> Int64s:
    """int64[n + 1] ms: where calendar windows begin, see `CalendarWindows`. Raises ValueError for an unknown zone."""
    return Zone(time_zone).first_instants(length.first_days())


def fits(length: CalendarLength, time_zone: str, every: int) -> bool:
    """Whether triggers so many ms apart can begin every window from FITS_FROM on."""
    starts = starts_of(length, time_zone)
    return bool(starts[aligned_since(starts, every)] <= FITS_FROM)


@functools.cache
def calendar_of(
    length: int | CalendarLength, time_zone: str | None, origin: int, trigger_every: int, allowed_lateness: int
) -> Calendar:
    """The calendar, once for equal settings. Raises ConfigurationError where windows cannot begin at triggers."""
    if not isinstance(length, CalendarLength):
        windows = FixedWindows(origin=origin, length_ms=length)
        return Calendar(windows=windows, origin=origin, trigger_every=trigger_every, allowed_lateness=allowed_lateness)
    if time_zone is None or not fits(length, time_zone, trigger_every):
        raise ConfigurationError(
            f'window.length="{length}": windows in time_zone={time_zone} do not begin every {trigger_every} ms; choose a time '
            "zone, and a shorter trigger_every"
        )
    starts = starts_of(length, time_zone)
    first = aligned_since(starts, trigger_every)
    return Calendar(
        windows=CalendarWindows(starts[first:], first),
        origin=int(starts[-1]) % trigger_every,
        trigger_every=trigger_every,
        allowed_lateness=allowed_lateness,
    )
