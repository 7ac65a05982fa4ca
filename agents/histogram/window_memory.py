"""What operators and readers see of a window's memory: how many keys it began with, kappa, and whether windows add up.

    release ──progress: remembered, persistence──▶ status, dashboard
            └─gauges_of──▶ metrics, the worker's page

All of it is public: a function of released rows (docs/guarantees/memory.md), or of the configuration.
"""

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.runtime.facts import NewestRelease
from susurrus.mechanisms.histogram import calibration, smoothing
from susurrus.topics.progress import Progress
from susurrus.topics.wire.timestamps import format_time


def gauges_of(said: Progress | None, evidence_windows: int | None) -> dict[str, float]:
    """Numbers of one release partition, by what metrics call them.

    said: the newest announcement of the partition, as far as it is known. evidence_windows: None where windows cannot add up.
    """
    found = {
        "remembered_keys": None if said is None else said.remembered,
        "persistence": None if said is None else said.persistence,
        "evidence_windows": evidence_windows,
    }
    return {name: value for name, value in found.items() if value is not None}


def possible_evidence(settings: HistogramSettings) -> int | None:
    """`keys.evidence_windows`, 1 where windows do not add up; None where they cannot."""
    return settings.evidence_windows if settings.measures_at_the_end else None


def as_json(settings: HistogramSettings, newest: NewestRelease | None) -> dict[str, str | float | None] | None:
    """For `susurrus status --json`; None where windows neither remember nor add up."""
    if not settings.remember and settings.evidence_windows == 1:
        return None
    memory = None if newest is None else newest.memory
    return {
        "window": None if memory is None else format_time(memory.window),
        "remembered_keys": None if memory is None else memory.remembered,
        "persistence": None if memory is None else memory.persistence,
        "evidence_windows": settings.evidence_windows,
    }


def sentence(settings: HistogramSettings, newest: NewestRelease | None) -> str:
    """The same in words; empty where windows neither remember nor add up, or nothing is released."""
    if newest is None:
        return ""
    parts = []
    if (memory := newest.memory) is not None:
        if memory.remembered is not None:
            some = (
                f"{memory.remembered:,} key{'' if memory.remembered == 1 else 's'}" if memory.remembered else "no key"
            )
            parts.append(f"The window {settings.window.instant_text(memory.window)} has {some} of the one before it")
        if memory.persistence is not None:
            parts.append(f"kappa is {memory.persistence:g}, the part of an earlier window that had lasted")
    if settings.evidence_windows > 1:
        parts.append(f"{'evidence' if parts else 'Evidence'} over {settings.evidence_windows} windows")
    return f"{'; '.join(parts)}." if parts else ""


def limits(settings: HistogramSettings) -> str:
    """From when on memory can do anything, before a pipeline runs; empty where windows do not remember."""
    if not settings.remember:
        return ""
    partitions = settings.topics.bounded_partitions
    where = "the partition" if partitions == 1 else f"one of the {partitions} partitions"
    text = (
        f"the first window of an epoch has nothing of windows before it; rows of {where} are drawn to the window before from "
        f"{smoothing.LEAST_ROWS} remembered keys there on"
    )
    if partitions > 1:
        text += f", so from about {smoothing.LEAST_ROWS * partitions:,} in all"
    if settings.measures_at_the_end:
        text += (
            f"; a window's last rows are calibrated from {calibration.LEAST_ROWS} rows of a kind on, and with fewer the budget "
            "that moves to the last trigger only costs"
        )
    return text


def present_limits(settings: HistogramSettings, newest: NewestRelease | None) -> str:
    """What keeps memory from doing anything just now; empty where nothing does, or nothing is known."""
    if not settings.remember:
        return ""
    if newest is None:
        return "Nothing is released yet, and the first window of an epoch has nothing of windows before it."
    remembered = None if newest.memory is None else newest.memory.remembered
    partitions = settings.topics.bounded_partitions
    if remembered == 0:
        return "Its rows are what it has measured itself, as in the first window of an epoch."
    if remembered is not None and remembered < smoothing.LEAST_ROWS * partitions:
        where = f"each of {partitions} partitions: in some or all of them" if partitions > 1 else "the partition:"
        return f"These are fewer than {smoothing.LEAST_ROWS} keys for {where} no row is drawn to the window before."
    return ""
