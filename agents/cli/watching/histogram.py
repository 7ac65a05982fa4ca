"""Histograms: the newest complete trigger as a table, and when the next one is due by the public calendar."""

from typing import ClassVar

from rich.console import Group, RenderableType

from susurrus.agents.cli import export
from susurrus.agents.cli.export import Record
from susurrus.agents.cli.tables import caption, histogram_table
from susurrus.agents.cli.watching.times import ago, clock_time, until
from susurrus.agents.cli.watching.view import View, headed
from susurrus.agents.histogram.reader import HistogramReader, Snapshot
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.topics.wire.timestamps import format_time, parse_time

_PATIENCE = 10_000
"""ms after which a trigger that is due is called late: the workers' commits take some seconds."""


class HistogramView(View):
    """Shows one window, or the newest that has results. window: its start in ms."""

    instants: ClassVar[tuple[str, ...]] = export.INSTANTS

    def __init__(self, settings: HistogramSettings, *, window: WindowStart | None, column: str | None) -> None:
        self._settings, self._calendar, self._window = settings, settings.calendar, window
        self._column = column
        self._reader = HistogramReader(settings, window=window)
        self._awaited: Interval | None = None

    def poll(self, seconds: float) -> bool:
        """See `View.poll`."""
        return self._reader.poll(seconds)

    @property
    def caught_up(self) -> bool:
        """See `View.caught_up`."""
        return self._reader.caught_up

    @property
    def newest(self) -> Snapshot | None:
        """The newest complete trigger."""
        return self._reader.snapshot()

    @property
    def begun(self) -> bool:
        """Whether anything of the window was read."""
        return bool(self._reader.windows)

    def picture(self, width: int, height: int | None) -> RenderableType:
        """Title, as many rows as fit, and what they are."""
        snapshot = self.newest
        assert snapshot is not None
        rows = len(snapshot.rows) if height is None else min(max(3, height - 3), len(snapshot.rows))
        title = headed(self._settings.pipeline.name, self._settings.topic("histogram"), width)
        table = histogram_table(snapshot, width=width, limit=rows, column=self._column)
        return Group(title, table, caption(snapshot, rows))

    def due(self, now: int) -> str:
        """When the next trigger is due."""
        snapshot, calendar = self.newest, self._calendar
        clock, window = self._settings.clock, self._settings.window
        if snapshot is not None and snapshot.final and self._window is not None:
            return "this was the window's last trigger; nothing more comes"
        interval = self._next(snapshot, now)
        newest = WindowIndex(interval // calendar.intervals_per_window)
        if self._window is not None:
            newest = calendar.window_at(self._window)
            if snapshot is None and interval > calendar.last_interval(newest):
                return f"nothing is released of the window {format_time(self._window)}; --window takes the start of another"
        trigger = calendar.trigger(newest, interval)
        named = f"trigger {trigger} of {calendar.triggers} of the window {format_time(calendar.window_start(newest))}"
        first = "" if snapshot is not None else "nothing is released yet; "
        if not clock.chosen.live:
            return f"{first}{self._of_archive(snapshot, named)}"
        closes = calendar.boundary(interval)
        by = closes + max(clock.idle_grace, window.publication_pad)
        if now > by + _PATIENCE:
            return f"{first}{named} was due {ago(by, now)}; `susurrus status` says what holds it up"
        return f"{first}{named} ends {clock_time(closes, now)}, and is due by {clock_time(by, now)} ({until(by, now)})"

    def _next(self, snapshot: Snapshot | None, now: int) -> Interval:
        """The interval whose end is the next trigger. Before anything is released, the first that can come, and it stays that."""
        calendar = self._calendar
        if snapshot is not None:
            shown = calendar.window_at(parse_time(snapshot.window_start))
            return Interval(calendar.first_interval(shown) + snapshot.trigger)
        if self._awaited is None:
            grace = max(self._settings.clock.idle_grace, self._settings.window.publication_pad)
            begins = [calendar.interval_at(now - grace)]
            if (first := self._settings.start.first_window) is not None:
                begins.append(calendar.first_interval(calendar.window_at(first)))
            if self._window is not None:
                begins.append(calendar.first_interval(calendar.window_at(self._window)))
            self._awaited = max(begins)
        return self._awaited

    def _of_archive(self, snapshot: Snapshot | None, named: str) -> str:
        """No wall clock decides when an archive's triggers come."""
        until_ = self._settings.clock.until
        assert until_ is not None  # the clock's own check
        if (
            snapshot is not None
            and snapshot.final
            and parse_time(snapshot.window_start) + self._calendar.window >= until_
        ):
            return "this was the archive's last trigger; nothing more comes"
        if snapshot is None:
            return f"triggers come as fast as the archive is read, up to {format_time(until_)}"
        return f"{named} comes as soon as the archive is read that far; it ends {format_time(until_)}"

    @staticmethod
    def columns(settings: HistogramSettings) -> list[str]:
        """What --column may name."""
        return [published.column.name for published in settings.layout.published]

    def records(self) -> list[Record]:
        """A record per key."""
        snapshot = self.newest
        assert snapshot is not None
        return export.records(snapshot, self._settings.input.key_names, self._settings.window.trigger_every)

    def close(self) -> None:
        """See `View.close`."""
        self._reader.close()
