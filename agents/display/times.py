"""Instants and durations as a person at a terminal reads them."""

from susurrus.agents.types.durations import format_duration
from susurrus.topics.records.zones import local_text


def clock_time(instant: int, now: int, time_zone: str | None = None) -> str:
    """The time of day, by default in UTC, with the date where it is another day than ``now`` (both ms since 1970)."""
    text = local_text(time_zone, instant // 1000 * 1000)
    return text[11:] if text[:10] == local_text(time_zone, now)[:10] else text


def until(instant: int, now: int) -> str:
    """How long it is until then, in whole seconds: "in 1m 5s"."""
    left = (instant - now) // 1000
    return f"in {format_duration(left * 1000)}" if left > 0 else "now"


def ago(instant: int, now: int) -> str:
    """How long ago it was, in whole seconds."""
    return f"{format_duration(max(0, now - instant) // 1000 * 1000)} ago"
