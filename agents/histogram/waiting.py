"""What of a histogram is not released yet, and why: no trigger is due, a tick is missing, or records are still unread.

A tick is a partition's word that it has closed an interval. Bound waits for those of all raw partitions, release for those of all
by-user partitions (runtime/ticks.py), because any of them may still bring a record of any user, and so of any key.
"""

from collections.abc import Iterator
from typing import Final

from susurrus.agents.finding import Finding
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.runtime.facts import Facts, records
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.calendar import Calendar, Interval

_STAGES: Final = ("route", "bound", "release")
_AT_WORK: Final = 15_000
"""How long, in ms, a release may take before it is called overdue: tasks report every few seconds, too."""
_SHOWN: Final = 6


def waiting(settings: HistogramSettings, facts: Facts) -> Iterator[Finding]:
    """Yields at most one finding: what holds the next release back, where it is due, or where there has been none."""
    if facts.first_window is None or not facts.closed.get("release"):
        return
    calendar = settings.calendar
    first = calendar.first_interval(calendar.window_at(facts.first_window))
    # A partition that was stopped does not say what it has closed, but what it has published says so.
    said = (facts.last_closed("release"), None if facts.newest is None else facts.newest.interval)
    closed = max((interval for interval in said if interval is not None), default=None)
    following = Interval(max(first, first if closed is None else closed + 1))
    number = _waiting_records(facts)
    due_at = calendar.boundary(following) + settings.closing_delay
    if settings.clock.chosen.live:
        if facts.now < due_at + _AT_WORK:
            if facts.nothing_published and (number or not facts.known("release", "triggers")):
                yield _not_due(settings, facts, due_at, number)
            return
    elif following > _last_of_archive(settings, calendar):
        return
    yield _overdue(settings, facts, following, number)


def _waiting_records(facts: Facts) -> int:
    """Records that are read and in no release: those of open intervals, and where there was no release, all that are kept."""
    route = facts.known("route", "in", "-capped", "-late", "-filtered", "-skipped", "-dead_letter")
    taken = 0 if not facts.known("release", "triggers") else facts.known("bound", "kept")
    return max(0, route - facts.known("bound", "capped") - taken)


def _last_of_archive(settings: HistogramSettings, calendar: Calendar) -> int:
    until = settings.clock.until
    assert until is not None  # an archive's clock requires it
    return calendar.interval_at(until - 1) + calendar.late_intervals


def _not_due(settings: HistogramSettings, facts: Facts, due_at: int, number: int) -> Finding:
    wait = max(0, due_at - facts.now)
    when = (
        f"due in {format_duration(-(-wait // 1000) * 1000)}, at {settings.window.instant_text(due_at)}"
        if wait
        else "due now"
    )
    said = (
        "Nothing has been published, and the next release is"
        if facts.known("release", "triggers")
        else ("No release is due yet: the first is")
    )
    pad = settings.window.publication_pad
    padded = f" window.publication_pad = {format_duration(pad)} delays every release." if pad else ""
    return Finding(
        subject="not-due",
        level="warning",
        waits=True,
        text=f"{said} {when}. {_has_been_read(number)}",
        number=number,
        share=facts.share(number),
        why=f"Releases are window.trigger_every = {format_duration(settings.window.trigger_every)} apart. "
        f"{settings.clock.chosen.closes(settings.clock)}{padded}",
        action="wait for it; a shorter window.trigger_every publishes sooner, with more noise, and takes a new epoch or name",
    )


def _has_been_read(number: int) -> str:
    return f"{records(number)} wait{'s' if number == 1 else ''} for it." if number else "No record waits for it."


def _overdue(settings: HistogramSettings, facts: Facts, interval: Interval, number: int) -> Finding:
    """What keeps an interval open that should be closed."""
    boundary = settings.window.instant_text(settings.calendar.boundary(interval))
    for stage in _STAGES:
        behind = [p for p, closed in sorted(facts.closed.get(stage, {}).items()) if closed is None or closed < interval]
        if behind:
            break
    held = {p: facts.held[stage][p] for p in behind if p in facts.held.get(stage, {})}
    places = f"{stage} {', '.join(map(str, behind[:_SHOWN]))}" + (" and others" if len(behind) > _SHOWN else "")
    # Nothing is left to read where the archive is at its end, so records that wait are counted only while some are unread.
    unread = (facts.unread or 0) if stage == "route" else 0
    number += unread
    if held:
        reasons = "; ".join(dict.fromkeys(f"{stage} {p}: {reason}" for p, reason in held.items()))
        return Finding(
            subject="missing-tick",
            level="warning",
            text=f"The release of {boundary} waits for {places}. {_has_been_read(number)}",
            number=number,
            share=facts.share(number),
            why=f"{reasons}. A release needs the word (the tick) of every partition that it has all records of the interval, "
            "because each may bring users of any key.",
            action="bring that partition back, as the message about it says; nothing is lost meanwhile",
        )
    if unread:
        return Finding(
            subject="unread",
            level="warning",
            waits=True,
            text=f"The release of {boundary} waits until {places} has read up to it. {records(unread)} {_is(unread)} still unread.",
            number=number,
            share=facts.share(number),
            why=settings.clock.chosen.closes(settings.clock),
            action="wait; more workers read faster, up to one for each partition",
        )
    return Finding(
        subject="clock",
        level="warning",
        waits=True,
        text=f"The release of {boundary} is overdue: {places} has not closed its interval. {_has_been_read(number)}",
        number=number,
        share=facts.share(number),
        why=f"{settings.clock.chosen.closes(settings.clock)} Nothing reports a fault.",
        action="look again in a minute; if it stays, look for a producer's open transaction (`susurrus preflight`) and at the "
        "worker's log",
    )


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
