"""Findings of what a promise means that a reader may not expect, in sentences for an engineer and a lawyer alike.

`susurrus config check`, `explain`, `preflight` and the log of a worker's start show the same. The numbers come from the
configuration alone. All are warnings; none stops anything.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Final

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import Periods
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.mechanisms.windows import CalendarLength, TumblingWindows

LARGE_EPSILON: Final = 10.0
LARGE_DELTA: Final = 1e-5
MANY: Final = 30
"""Windows, reports or values of one user, for an example of what they cost together."""
ONE_CLOCK: Final = 1_000
"""Clocks that agree better than this, in ms, are one clock."""
_READABLE: Final = 30.0
_ENDLESS: Final = 10**9
"""What `Budget.windows_left` says at most."""
_warning: Final = partial(Finding, "promise", "warning")


def of_epsilon(field: str, epsilon: float) -> Iterator[Finding]:
    """Whether epsilon is large, and what it means in words. field: as ``section.name``."""
    if epsilon > LARGE_EPSILON:
        yield _warning(
            f"{field} = {epsilon:g}: the odds of any conclusion about one user may change by a factor of up to e^{epsilon:g}, "
            f"about {factor(epsilon)}. Someone who thought it an even chance that a user did something may then be wrong in only "
            f"1 of {factor(epsilon)} cases. Above {LARGE_EPSILON:g} this protects little",
            "lower it",
        )


def of_delta(field: str, delta: float, users: int | None) -> Iterator[Finding]:
    """Whether delta is large by itself, or for so many users."""
    if users is not None and delta > 1 / users:
        yield _warning(
            f"{field} = {delta:g}, {users:,} users: the promise may fail altogether with probability {delta:g} for each user, that "
            f"is for {delta * users:,.3g} of them",
            f"choose much less than one over the number of users, {1 / users:.2g}",
        )
    elif delta > LARGE_DELTA:
        yield _warning(
            f"{field} = {delta:g}: with this probability the promise may fail altogether for a user",
            f"choose {LARGE_DELTA:g} or less, and much less than one over the number of users",
        )


def of_windows(settings: Settings, promise: Guarantee) -> Iterator[Finding]:
    """What many windows cost a user who is active in all of them, and what stops the pipeline. promise: of one window."""
    windows_text = partial(_windows_text, settings)
    total, archived = settings.budget, _archived(settings)
    if total is None:
        windows = MANY if archived is None else min(MANY, archived)
        if windows < 2:
            return
        epsilon, delta, mu = cost(promise, windows)
        endless = "so nothing stops the pipeline" if archived is None else f"and the archive has {archived:,} windows"
        yield _warning(
            f"[budget] is not set, {endless}. A user who is active in {windows_text(windows)} is "
            f"protected by epsilon = {epsilon:.3g} at delta = {delta:.3g} (mu = {mu:.3g}), not by epsilon = {promise.epsilon:g}",
            "set [budget] to the total that you can answer for",
        )
        return
    budget = Budget(epsilon=total.epsilon, delta=total.delta)
    if total.per is not None:
        yield from _of_periods(Periods(budget, total.per), promise, settings.calendar.windows, archived)
        return
    fits = budget.windows_left(Spend(), promise)
    if fits >= _ENDLESS or (archived is not None and archived <= fits):
        return
    first = settings.start.first_window
    until = (
        ""
        if first is None
        else f" The window of {settings.window.instant_text(_later(settings, first, fits))} is the first that is not published."
    )
    yield _warning(
        f"budget.epsilon = {total.epsilon:g}, budget.delta = {total.delta:g}: the pipeline publishes {windows_text(fits)}, fewer "
        "if others charge the raw topic, and then no "
        f"more.{until} A user who is active in all of them is protected by this total, not by epsilon = {promise.epsilon:g}",
        "see what is left with `susurrus ledger show`",
    )


def _of_periods(
    periods: Periods, promise: Guarantee, windows: TumblingWindows, archived: int | None
) -> Iterator[Finding]:
    """Which windows are skipped, and what a year comes to."""
    touched, fits = periods.touched(windows.usual), periods.fitting(promise, windows.usual)
    budget, per = periods.budget, periods.length
    said = (
        f'budget.epsilon = {budget.epsilon:g}, budget.delta = {budget.delta:g}, budget.per = "{format_duration(per)}"'
    )
    most, epsilon, delta = periods.year(promise, windows)
    year = (
        f"In any 365d at most {most:,} windows are published. A user who is active in all of them is protected by epsilon = "
        f"{epsilon:.3g} at delta = {delta:.3g} over the year, and by the total in any {format_duration(per)}"
    )
    if fits < touched and (archived is None or archived > fits):
        yield _warning(
            f"{said}: {format_duration(per)} touch {touched:,} windows, and there is room for {fits:,}. So of every {touched:,} "
            f"windows {fits:,} {_are(fits)} published and {touched - fits:,} {_are(touched - fits)} skipped, more if others charge "
            f"the raw topic. {year}",
            "choose a larger total, a smaller privacy.epsilon or a longer window.length if no window should be skipped",
        )
    elif archived is None:
        yield _warning(
            f"{said}: has room for all {touched:,} windows that {format_duration(per)} touch, if no other pipeline charges the raw "
            f"topic. The total renews, so nothing stops the pipeline. {year}",
            "leave budget.per out for a total for life",
        )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def of_event_time(settings: Settings) -> Iterator[Finding]:
    """Whether a clock that is a little ahead of another one loses records."""
    source, ahead = settings.input, settings.clock.max_future
    if source.time_field is not None and ahead < ONE_CLOCK:
        yield _warning(
            f'clock.max_future = "{format_duration(ahead)}", input.time = "{source.time_text}": an event whose time is more than '
            "that beyond Kafka's stamp of its record is a dead letter (IN_FUTURE), and the clocks of two hosts differ by more "
            "every day",
            'use minutes, which cost no privacy; the default is "5m"',
        )


def of_units(section: str, unit: str, epsilon: float) -> Iterator[Finding]:
    """What many reports or values of one user cost. section: whose promise is for each of them. unit: what it is called."""
    yield _warning(
        f"{section}.epsilon = {epsilon:g}: is for each {unit} by itself, not for each user. {MANY} {unit}s of one user cost up to "
        f"epsilon = {MANY * epsilon:g} together. No [budget] counts them",
        f"limit how many {unit}s a user sends",
    )


def cost(promise: Guarantee, windows: int) -> tuple[float, float, float]:
    """(epsilon, delta, mu) of a user who is active in so many windows, at the sum of their deltas."""
    spend = Spend().plus(promise, windows)
    return spend.epsilon_total(windows * promise.delta), windows * promise.delta, spend.mu


def factor(epsilon: float) -> str:
    """e^epsilon as people read it: two digits that mean something, or a power of ten."""
    if epsilon > _READABLE:
        return f"10^{epsilon / math.log(10):.0f}"
    digits = 2 - math.ceil(epsilon / math.log(10))
    return f"{round(math.exp(epsilon), digits):,.0f}"


def _archived(settings: Settings) -> int | None:
    """How many windows an archive has; None where the clock is live."""
    until, first = settings.clock.until, settings.start.first_window
    if until is None:
        return None
    windows = settings.calendar.windows
    return 1 if first is None else max(1, windows.count(first, until))


def _windows_text(settings: Settings, number: int) -> str:
    """``30 windows (30d)``; of a calendar ``12 windows (1 month in UTC each)``."""
    length = settings.window.length
    one = "" if number == 1 else "s"
    span = (
        f"{settings.window.length_text} each"
        if isinstance(length, CalendarLength)
        else format_duration(number * length)
    )
    return f"{number:,} window{one} ({span})"


def _later(settings: Settings, first: int, number: int) -> int:
    """The start of the window that is so many later than one, in ms."""
    return settings.calendar.windows.later(first, number)
