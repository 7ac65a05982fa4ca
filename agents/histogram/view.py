"""Histograms: the newest complete trigger as a table, and when the next one is due by the public calendar."""

import time
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text

from susurrus.agents.display.drawing import GREY
from susurrus.agents.display.times import ago, clock_time, until
from susurrus.agents.display.view import Record, View, headed
from susurrus.agents.histogram.assembly import AnnouncedRelease
from susurrus.agents.histogram.due import behind_skipped
from susurrus.agents.histogram.estimates import Release, ShownNumber
from susurrus.agents.histogram.releases import ReleaseReader, newest_rows, recency
from susurrus.agents.histogram.rolling_releases import ROLLING_INSTANTS, RollingReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.terminal_table import histogram_table
from susurrus.mechanisms.calendar import Interval, WindowStart
from susurrus.mechanisms.histogram.registry import STRATEGIES

_PATIENCE = 10_000
"""ms after which a trigger that is due is called late: the workers' commits take some seconds."""


class HistogramView(View):
    """Shows one window, or the newest that has results. window: its start in ms. level: the one level to show, of several. top: the
    ranking only. number: which one of each row is shown.

    It begins with the two newest releases: the newest one may still lack rows.
    """

    instants: ClassVar[tuple[str, ...]] = ("window_start", "window_end", "trigger_time")
    reader: ClassVar[type[ReleaseReader]] = ReleaseReader

    def __init__(
        self,
        settings: HistogramSettings,
        *,
        window: WindowStart | None,
        column: str | None,
        level: str | None = None,
        top: bool = False,
        number: ShownNumber = "smoothed",
    ) -> None:
        self._settings, self._calendar, self._window = settings, settings.calendar, window
        self._column, self._level, self._top, self._number = column, level, top, number
        self._repeats = STRATEGIES[settings.choice.name].repeats
        self._reader = self.reader(
            settings, wanted=lambda start, trigger, of_triggers: window in (None, start), since=self._begin
        )
        self._releases: list[Release] = []
        """The newest one, and those before it in its window that may have rows which it has not."""
        self._awaited: Interval | None = None

    def _begin(self, announced: list[AnnouncedRelease]) -> int | None:
        """The time of the first release to read."""
        of_window = [each for each in announced if self._window in (None, each.window)]
        newest = sorted(of_window, key=recency)[-2:]
        first = self._settings.window.trigger_every
        if not newest:
            return None if self._window is None else self._window + first
        return min(each.time if self._repeats else each.window + first for each in newest)

    def poll(self, seconds: float) -> None:
        """See `View.poll`. Where nothing more can come of the one window, it only waits."""
        if self.over:
            time.sleep(seconds)
            return
        for read in self._reader.poll(seconds):
            release = read if self._level is None or read.row_levels is None else read.level(self._level)
            shown = self._releases[-1] if self._releases else None
            if shown is None or _place(shown) < _place(release):
                together = not self._repeats and shown is not None and _place(shown)[:2] == _place(release)[:2]
                self._releases = [*self._releases, release] if together else [release]

    @property
    def caught_up(self) -> bool:
        """See `View.caught_up`."""
        return self._reader.caught_up

    @property
    def progress(self) -> tuple[int, int]:
        """See `View.progress`."""
        return self._reader.progress

    @property
    def newest(self) -> Release | None:
        """The newest complete trigger."""
        if len(self._releases) > 1:
            self._releases = [newest_rows(self._releases)]
        return self._releases[0] if self._releases else None

    @property
    def _shown(self) -> Release:
        release = self.newest
        assert release is not None
        release = release.showing(self._number)
        return release.top() if self._top else release

    @property
    def over(self) -> bool:
        """See `View.over`."""
        if self._window is None or not self.caught_up:
            return False
        return self._releases[-1].final if self._releases else self._reader.skips(self._window)

    def picture(self, width: int, height: int | None) -> RenderableType:
        """Title, as many rows as fit, and what they are."""
        release = self._shown
        rows = len(release) if height is None else min(max(3, height - 3), len(release))
        topic = self._settings.topic("top" if self._top else self._reader.topic)
        of_rows = " · ".join(
            filter(None, (topic, release.numbers_shown))
        )  # the line below the table is full on 80 columns
        title = headed(self._settings.pipeline.name, of_rows, width)
        table = histogram_table(release, width=width, limit=rows, column=self._column)
        said = " · ".join(map(str, filter(None, (release.caption(rows), table.caption))))
        table.caption = None  # in the same line, for every line more takes one from the rows
        return Group(title, table, Text(said, style=GREY))

    def due(self, now: int) -> str:
        """When the next trigger is due."""
        release, calendar = self.newest, self._calendar
        clock, shown, zone = self._settings.clock, self._settings.window.instant_text, self._settings.window.time_zone
        if self._window is not None and self._reader.skips(self._window):
            return f"the window {shown(self._window)} is skipped: [budget] had no room for it, and nothing of it is published"
        if self.over:
            return "this was the window's last trigger; nothing more comes"
        if release is None and (announced := self._reader.newest) is not None:
            return _unreadable(announced, shown(announced.window))
        skipped = self._reader.skipped
        interval = behind_skipped(self._settings, skipped, self._next(release, now))
        newest = calendar.window_at(calendar.boundary(interval) - 1)
        if self._window is not None:
            newest = calendar.window_at(self._window)
            if release is None and interval > calendar.last_interval(newest):
                return f"nothing is released of the window {shown(self._window)}; --window takes the start of another"
        trigger = calendar.trigger(newest, interval)
        named = (
            f"trigger {trigger} of {calendar.triggers_of(newest)} of the window {shown(calendar.window_start(newest))}"
        )
        first = "" if release is not None else "nothing is released yet; "
        if lately := [start for start in skipped if release is None or start > release.window_start]:
            first += f"{_windows(lately, shown(max(lately)))} skipped, for [budget] had no room; "
        if not clock.chosen.live:
            return f"{first}{self._of_archive(release, named)}"
        closes = calendar.boundary(interval)
        by = closes + self._settings.closing_delay
        if now > by + _PATIENCE:
            return f"{first}{named} was due {ago(by, now)}; `susurrus status` says what holds it up"
        return f"{first}{named} ends {clock_time(closes, now, zone)}, and is due by {clock_time(by, now, zone)} ({until(by, now)})"

    def _next(self, release: Release | None, now: int) -> Interval:
        """The interval whose end is the next trigger. Before anything is released, the first that can come, and it stays that."""
        calendar = self._calendar
        if release is not None:
            shown = calendar.window_at(release.window_start)
            return Interval(calendar.first_interval(shown) + release.trigger)
        if self._awaited is None:
            begins = [calendar.interval_at(now - self._settings.closing_delay)]
            if (first := self._settings.start.first_window) is not None:
                begins.append(calendar.first_interval(calendar.window_at(first)))
            if self._window is not None:
                begins.append(calendar.first_interval(calendar.window_at(self._window)))
            self._awaited = max(begins)
        return self._awaited

    def _of_archive(self, release: Release | None, named: str) -> str:
        """No wall clock decides when an archive's triggers come."""
        until_ = self._settings.clock.until
        assert until_ is not None  # the clock's own check
        if release is not None and release.final and release.window_end >= until_:
            return "this was the archive's last trigger; nothing more comes"
        if release is None:
            return f"triggers come as fast as the archive is read, up to {self._settings.window.instant_text(until_)}"
        return f"{named} comes as soon as the archive is read that far; it ends {self._settings.window.instant_text(until_)}"

    def records(self) -> list[Record]:
        """A record per key."""
        return self._shown.exported().rows()

    def close(self) -> None:
        """See `View.close`."""
        self._reader.close()


def _windows(skipped: list[int], newest: str) -> str:
    """newest: the last of them."""
    return f"the window {newest} is" if len(skipped) == 1 else f"{len(skipped):,} windows up to {newest} are"


class RollingHistogramView(HistogramView):
    """The same of the rolling view."""

    instants = (*ROLLING_INSTANTS, *HistogramView.instants)
    reader = RollingReader


def _place(release: Release) -> tuple[int, int, int]:
    """What orders releases as readers see them."""
    return release.window_start, release.epoch_number, release.trigger


def _unreadable(announced: AnnouncedRelease, window: str) -> str:
    return (
        f"trigger {announced.name.trigger} of the window {window} is announced, but not all of its rows can be read: "
        'retention has deleted some, or a transaction is still open (docs/operations.md, "A transaction that hangs")'
    )
