"""Why a histogram is empty or thin: records that do not count, and keys that too few users share.

waiting.py has what is not released yet. The numbers are exact, so they are for operators only.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from susurrus.agents.finding import Finding
from susurrus.agents.histogram.detectable import detectable_users
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.waiting import waiting
from susurrus.agents.runtime.facts import WORTH_TELLING, Facts, records
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Strategy

FEW_ROWS: Final = 10
"""A release with fewer keys than this that were not declared is thin."""
_CHANGE: Final = "which takes a new epoch or pipeline name"


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
        subject="filtered",
        level="warning",
        text=f"input.where leaves out {facts.of_read(number)}.",
        number=number,
        share=facts.share(number),
        why=f"The condition is {settings.input.where}. A record for which it is false or null does not count.",
        action="if it leaves out more than it should, compare it with the fields of a record (a missing field is null, upper and "
        f"lower case of a name matter, names stand in double quotes and texts in single ones), and correct it, {_CHANGE}; "
        "`susurrus try` finds names that no record has",
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
    stamps = "" if settings.input.time_field is None else ", input.time and input.time_unit"
    yield Finding(
        subject="late",
        level="warning",
        text=f"Too late for their window: {facts.of_read(number)}.",
        number=number,
        share=facts.share(number),
        why=f"A window takes records {until}. {settings.clock.chosen.closes(settings.clock)}{appended}",
        action=f"check the producers' clocks{stamps}; if records do come that late, set a longer window.allowed_lateness, "
        f"{_CHANGE}",
    )


def _capped(settings: HistogramSettings, strategy: Callable[[], Strategy[Any]], facts: Facts) -> Iterator[Finding]:
    number = facts.known("route", "capped") + facts.known("bound", "capped")
    if facts.share(number) < WORTH_TELLING:
        return
    if settings.grouping:
        why = "Workers count a record as left out if no level keeps it, and not which cap it was."
    else:
        why = f"Workers do not count which cap it was. {_with_twice_the_cap(settings, strategy())}"
    yield Finding(
        subject="caps",
        level="warning",
        text=f"The caps leave out {facts.of_read(number)}.",
        number=number,
        share=facts.share(number),
        why=f"Of one user and window {_caps(settings)} count, so that no user weighs more. {why}",
        action="weigh it with `susurrus plan` and `susurrus tune`, which help to choose the caps; change "
        f"them in the file, {_CHANGE}",
    )


def _caps(settings: HistogramSettings) -> str:
    """What counts of one user, by level where there are several."""
    if levels := settings.grouping:
        return "; ".join(
            f"{level.max_records:,} records at level {level.name}, {level.max_records_per_key:,} of each key"
            for level in levels
        )
    bounds = settings.bounds
    caps = [f"{bounds.max_records_per_user:,} records (bounds.max_records_per_user)"]
    if bounds.max_keys_per_user is not None:
        caps.append(f"{bounds.max_keys_per_user:,} keys (bounds.max_keys_per_user)")
    return f"{', '.join(caps)} and {bounds.max_records_per_key:,} of each key (bounds.max_records_per_key)"


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
    """Keys that stay below the threshold, where the newest release has few rows."""
    kept, found = facts.known("bound", "kept"), _found_keys(settings, facts)
    if settings.total or not kept or found is None:
        return
    newest = "The newest release" + (
        f", trigger {facts.newest.trigger:,} of {facts.newest.of_triggers:,}," if facts.newest else ""
    )
    keys = "no key that was" if found == 0 else "1 key that was" if found == 1 else f"{found:,} keys that were"
    declared = f", beside {len(settings.declared_keys):,} declared" if settings.declared_keys else ""
    what = f"{newest} has {keys} found in the data{declared}."
    if not settings.discover:
        yield Finding(
            subject="thresholds",
            level="warning",
            text=what,
            number=found,
            share=facts.share(kept),
            why="keys.discover = false: only declared keys are published.",
            action=f"declare more keys, or set keys.discover = true, {_CHANGE}",
        )
        return
    yield Finding(
        subject="thresholds",
        level="warning",
        text=what,
        number=found,
        share=facts.share(kept),
        why=_appear(settings, strategy(), kept),
        action="declare keys that are public knowledge (keys.declared), which are published at once; otherwise group by coarser "
        f"keys, use a longer window.length, fewer triggers or a larger epsilon, {_CHANGE}; `susurrus plan` shows what each "
        "would do",
    )


def _found_keys(settings: HistogramSettings, facts: Facts) -> int | None:
    """How many keys of the newest release were not declared; None where it is not thin, or where there is no release."""
    triggers, partitions = facts.known("release", "triggers"), len(facts.closed.get("release", {}))
    if not triggers or not partitions:
        return None
    average = facts.known("release", "rows") * partitions / triggers
    rows = int(average) if facts.newest is None else facts.newest.rows
    found = max(0, rows - len(settings.declared_keys))
    # A window's first releases are always thin, and its last one says what there is.
    last = facts.newest is None or facts.newest.trigger == facts.newest.of_triggers
    thin = found < FEW_ROWS and (last or average - len(settings.declared_keys) < FEW_ROWS)
    return found if thin else None


def _appear(settings: HistogramSettings, strategy: Strategy[Any], kept: int) -> str:
    """For each trigger the number of users from which on a key appears, by level where there are several."""
    if len(strategy.by_level) > 1:
        names = zip(settings.level_names, strategy.by_level, strict=True)
        parts = [f"{name}: {_appear_at(settings, level, kept)}" for name, level in names if level.plan.discover]
        return " ".join(parts)
    return _appear_at(settings, strategy, kept)


def _appear_at(settings: HistogramSettings, strategy: Strategy[Any], kept: int) -> str:
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
    if settings.follows_persistence:
        text += " The more of the window before lasted, the fewer users a key needs at the last trigger, and the more before it."
    if kept < min(users.values()):
        text += f" Only {records(kept)} are counted at all, so no key can have that many users."
    if settings.evidence_windows > 1:
        text += " At a window's end keys of fewer users appear, too, if they come in several windows (keys.evidence_windows)."
    if settings.keys.minimum_users:
        text += f" keys.minimum_users = {settings.keys.minimum_users:,} hides keys of no more users than that."
    return text
