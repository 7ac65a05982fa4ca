"""Why a histogram is empty or thin: records that do not count, and keys that too few users share.

waiting.py has what is not released yet. The numbers are exact, so they are for operators only.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from susurrus.agents.histogram.detectable import detectable_users
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.waiting import waiting
from susurrus.agents.runtime.facts import WORTH_TELLING, Facts, Finding, records
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.calendar import Interval, Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Strategy

FEW_ROWS: Final = 10
"""A release with fewer keys than this that were not declared is thin."""
_NEW_NAME: Final = "in a pipeline of a new name, because it changes what is published"


def findings(settings: HistogramSettings, strategy: Callable[[], Strategy[Any]], facts: Facts) -> Iterator[Finding]:
    """What keeps the result empty or thin, in any order. strategy: builds it, which takes its time."""
    yield from waiting(settings, facts)
    yield from _filtered(settings, facts)
    yield from _late(settings, facts)
    yield from _capped(settings, strategy, facts)
    yield from _hidden(settings, strategy, facts)


def _filtered(settings: HistogramSettings, facts: Facts) -> Iterator[Finding]:
    number = facts.known("route", "filtered")
    if facts.share(number) < WORTH_TELLING:
        return
    yield Finding(
        cause="filtered",
        what=f"input.where leaves out {facts.of_read(number)}.",
        number=number,
        share=facts.share(number),
        why=f"The condition is {settings.input.where}. A record for which it is false or null does not count.",
        action="if it leaves out more than it should, compare it with the fields of a record (a missing field is null), and "
        f"correct it {_NEW_NAME}",
    )


def _late(settings: HistogramSettings, facts: Facts) -> Iterator[Finding]:
    number = facts.known("route", "late")
    if facts.share(number) < WORTH_TELLING:
        return
    lateness = settings.window.allowed_lateness
    until = (
        f"until {format_duration(lateness)} (window.allowed_lateness) after its end" if lateness else "until its end"
    )
    appended = (
        "" if settings.clock.chosen.live else " Records appended to an archive that is being read count as late, too."
    )
    stamps = "" if settings.input.time == "kafka" else ", input.time and input.time_unit"
    yield Finding(
        cause="late",
        what=f"Too late for their window: {facts.of_read(number)}.",
        number=number,
        share=facts.share(number),
        why=f"A window takes records {until}. {settings.clock.chosen.closes(settings.clock)}{appended}",
        action=f"check the producers' clocks{stamps}; if records do come that late, set a longer window.allowed_lateness "
        f"{_NEW_NAME}",
    )


def _capped(settings: HistogramSettings, strategy: Callable[[], Strategy[Any]], facts: Facts) -> Iterator[Finding]:
    number = facts.known("route", "capped") + facts.known("bound", "capped")
    if facts.share(number) < WORTH_TELLING:
        return
    bounds = settings.bounds
    caps = [f"{bounds.max_records_per_user:,} records (bounds.max_records_per_user)"]
    if bounds.max_keys_per_user is not None:
        caps.append(f"{bounds.max_keys_per_user:,} keys (bounds.max_keys_per_user)")
    caps.append(f"{bounds.max_records_per_key:,} of each key (bounds.max_records_per_key)")
    yield Finding(
        cause="caps",
        what=f"The caps leave out {facts.of_read(number)}.",
        number=number,
        share=facts.share(number),
        why=f"Of one user and window {', '.join(caps[:-1])} and {caps[-1]} count, so that no user weighs more. Workers do not "
        f"count which cap it was. {_with_twice_the_cap(settings, strategy())}",
        action="weigh it with `susurrus plan` and `susurrus tune`, which choose C with little or no budget; change caps "
        + _NEW_NAME,
    )


def _with_twice_the_cap(settings: HistogramSettings, strategy: Strategy[Any]) -> str:
    """What twice the cap does to the noise of the first column."""
    grids = {column.name: column.grid for column in settings.measured_columns}
    more = 2 * settings.bounds.max_records_per_user
    try:
        other = build_strategy(replace(settings.plan(), max_records=more))
        now, then = (next(text for name, text in each.costs(grids) if name == "noise") for each in (strategy, other))
    except (ConfigurationError, StopIteration):
        return f"Twice the cap ({more:,}) is refused with these numbers."
    return f"The noise now: {now}. With max_records_per_user = {more:,}: {then}."


def _hidden(settings: HistogramSettings, strategy: Callable[[], Strategy[Any]], facts: Facts) -> Iterator[Finding]:
    """Keys that stay below the threshold, where releases are complete and have few rows."""
    triggers, rows, kept = (
        facts.known(*total) for total in (("release", "triggers"), ("release", "rows"), ("bound", "kept"))
    )
    partitions = len(facts.closed.get("release", {}))
    if not triggers or not partitions or not kept:
        return
    releases = triggers / partitions
    found = max(0.0, rows / releases - len(settings.declared_keys))
    if found >= FEW_ROWS:
        return
    declared = f", beside {len(settings.declared_keys):,} declared" if settings.declared_keys else ""
    what = f"A release has {found:.3g} keys on average that were found in the data{declared}."
    if not found:
        what = f"No key was found in the data in {_releases(releases)}{declared}."
    if not settings.keys.discover:
        yield Finding(
            cause="thresholds",
            what=what,
            number=rows,
            share=facts.share(kept),
            why="keys.discover = false: only declared keys are published.",
            action=f"declare more keys, or set keys.discover = true {_NEW_NAME}",
        )
        return
    yield Finding(
        cause="thresholds",
        what=what,
        number=rows,
        share=facts.share(kept),
        why=_appear(settings, strategy(), facts, kept),
        action="declare keys that are public knowledge (keys.declared), which are published at once; otherwise group by coarser "
        f"keys, use a longer window.length, fewer triggers or a larger epsilon, {_NEW_NAME}; `susurrus plan` shows what each "
        "would do",
    )


def _releases(number: float) -> str:
    """How many releases, where partitions may be at different ones."""
    return f"{number:,.0f} release{'' if round(number) == 1 else 's'}"


def _appear(settings: HistogramSettings, strategy: Strategy[Any], facts: Facts, kept: int) -> str:
    """From how many users on a key appears, by trigger, and where the newest window is."""
    last = settings.triggers
    try:
        users = {t: detectable_users(strategy, Trigger(t)) for t in sorted({1, (last + 1) // 2, last})}
    except ConfigurationError:  # the strategy has no model of this
        grids = {column.name: column.grid for column in settings.measured_columns}
        return next((f"Keys {text}." for name, text in strategy.costs(grids) if name == "new keys"), "")
    numbers = ", ".join(f"{number:,} at trigger {t}" for t, number in users.items())
    text = (
        f"Keys appear from about this many users on: {numbers} (of {last:,})."
        if last > 1
        else (f"Keys appear from about {users[1]:,} users on.")
    )
    closed = facts.last_closed("release")
    if closed is not None and last > 1:
        window = settings.calendar.window_at(settings.calendar.boundary(Interval(closed)) - 1)
        trigger = settings.calendar.trigger(window, Interval(closed))
        text += f" The newest release was trigger {min(trigger, last):,}."
    if kept < min(users.values()):
        text += f" Only {records(kept)} are counted at all, so no key can have that many users."
    if settings.keys.minimum_users:
        text += f" keys.minimum_users = {settings.keys.minimum_users:,} hides keys of fewer."
    return text
