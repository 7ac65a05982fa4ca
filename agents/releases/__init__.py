"""Read what a pipeline publishes, in three lines:

    from susurrus.releases import releases

    for release in releases("pipeline.toml"):
        print(release.table())

Only complete releases are returned, in order, read_committed. docs/reading.md has more examples, docs/sums.md what may be added.
"""

import time
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.estimates import Combined, Estimates, Release, TopRelease, add_windows
from susurrus.agents.histogram.rolling_releases import RollingRelease
from susurrus.agents.local.releases import LocalRelease
from susurrus.agents.operations.brokers import reach
from susurrus.agents.pipelines import load_settings, pipeline_of
from susurrus.agents.runtime.rows import ReleaseSource, Start
from susurrus.agents.stream.releases import StreamRelease
from susurrus.agents.types.durations import parse_instant
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError

__all__ = [
    "Combined",
    "Estimates",
    "LocalRelease",
    "Release",
    "RollingRelease",
    "StreamRelease",
    "TopRelease",
    "add_windows",
    "load_settings",
    "releases",
]

_POLL_SECONDS = 1.0


def releases(
    config: str | Path | Settings | None = None,
    *,
    sql: str | Path | None = None,
    start: Start = "start",
    window: str | date | int | None = None,
    final: bool = False,
    rolling: bool = False,
    follow: bool = True,
    timeout: float | None = None,
) -> Iterator[Any]:
    """The releases of a pipeline, oldest first: `Release` of a histogram, `StreamRelease`, or `LocalRelease` of local reports.

    config: a TOML file, or settings; without it, the environment has everything. sql: a statement that says what is published.
    start: "start" begins with the oldest release that the topics hold, "now" with the next one. window: the start of the one window
    to read, as a date, an instant or ms; the iteration then ends with the last release of this window, or at once where it is
    skipped (`budget.per`). final: only the last release of each window. rolling: the rolling view of a histogram,
    `RollingRelease`, instead of its windows. follow: whether to wait for later releases; otherwise the iteration ends with what was
    released when it began. timeout: so many seconds without a release end it, too.

    What is read begins with this call, not with the first release that is asked for. Raises ConfigurationError where the
    configuration is wrong, a topic is missing or no broker can be reached, SusurrusError where Kafka refuses to go on.
    """
    if isinstance(config, Settings):
        if sql is not None:
            raise ConfigurationError("sql: settings are complete; give a file beside it, or leave it out")
        settings = config
    else:
        settings = load_settings(None if config is None else Path(config), sql=None if sql is None else Path(sql))
    if start not in ("start", "now"):
        raise ConfigurationError(f'start="{start}": use "start" or "now"')
    start_of_window = None if window is None else _window(settings, window)
    reach(settings)
    try:
        source = pipeline_of(settings).releases(start=start, window=start_of_window, final=final, rolling=rolling)
    except KafkaException as error:
        raise _told(settings, error) from error
    return _read(settings, source, once=start_of_window, follow=follow, timeout=timeout)


def _read(
    settings: Settings, source: ReleaseSource, *, once: WindowStart | None, follow: bool, timeout: float | None
) -> Iterator[Any]:
    """once: the window whose final release ends it, or that it is skipped."""
    heard = time.monotonic()
    try:
        while True:
            left = _POLL_SECONDS if timeout is None else heard + timeout - time.monotonic()
            try:
                found = source.poll(max(0.0, min(_POLL_SECONDS, left)))
            except KafkaException as error:
                raise _told(settings, error) from error
            for release in found:
                yield release
                if once is not None and getattr(release, "final", False):
                    return
            if once is not None and source.caught_up and source.skips(once):
                return
            if found:
                heard = time.monotonic()
            if (not found and left <= 0) or (not follow and source.caught_up):
                return
    finally:
        source.close()


def _window(settings: Settings, window: str | date | int) -> WindowStart:
    """Raises ConfigurationError where no window starts there."""
    try:
        is_date = isinstance(window, date) and not isinstance(window, datetime)
        instant = (
            settings.window.instant_of(str(window)) if isinstance(window, str) or is_date else parse_instant(window)
        )
        calendar = settings.calendar
        begin = calendar.window_start(calendar.window_at(instant))
        shown = settings.window.instant_text(begin)
    except ValueError as error:
        raise ConfigurationError(f'window="{window}": {error}') from None
    if begin != instant:
        raise ConfigurationError(f'window="{window}": no window starts then; use "{shown}", or see window.origin')
    return begin


def _told(settings: Settings, error: KafkaException) -> SusurrusError:
    """What Kafka says, and what to do."""
    reason = error.args[0]
    return SusurrusError(
        f"kafka: {reason.str()} ({reason.name()}); see whether the brokers run, the topics {settings.application}.* exist, and "
        "this user may read the public ones (`susurrus acls --reader`)"
    )
