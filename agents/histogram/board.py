"""The board of a private histogram: windows, tables, curves, the next trigger and the budget."""

from collections.abc import Sequence
from typing import Any, Final

from susurrus.agents.display.board import BadQuestion, Board, Query, exact, whole
from susurrus.agents.display.keys import name_of, parts_of
from susurrus.agents.histogram.assembly import AnnouncedRelease
from susurrus.agents.histogram.due import Announced, next_due
from susurrus.agents.histogram.estimates import Release, ShownNumber, TopRelease
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.rolling_releases import RollingReader, RollingRelease
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.windows import Window, Windows
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.histogram.registry import STRATEGIES
from susurrus.topics.histogram import Measured
from susurrus.topics.progress import Progress

PAGE: Final = 25
MOST: Final = 200
"""Rows that one answer has at most."""
FIRST: Final = 12
"""Rows of the rolling view, by default."""
_SKIPPED: Final = 64
"""How many of the windows that are skipped are told, the newest."""
_SORTS: Final = ("estimate", "key", "interval")
_NUMBERS: Final[tuple[ShownNumber, ...]] = ("smoothed", "estimate", "direct")
"""Which number of a row is shown, by default the first."""


class HistogramBoard(Board):
    """Follows releases, announcements and charges."""

    settings: HistogramSettings

    def __init__(self, settings: HistogramSettings, guarantee: str, *, keep: int, curve_bytes: int) -> None:
        super().__init__(settings)
        self.windows = Windows(keep, curve_bytes)
        self.announced = Announced()
        self._keep = keep
        self._about = {
            "page": "histogram",
            "pipeline": settings.pipeline.name,
            "topic": settings.topic("histogram"),
            "guarantee": guarantee,
            "strategy": settings.choice.name,
            "why": settings.choice.reason,
            "fields": [*(("level",) if settings.input.grouping_sets else ()), *settings.input.key_names],
            "levels": list(settings.level_names),
            "columns": [
                {"name": column.name, "kind": column.kind, "interval": column.has_interval}
                for column in settings.published_columns
            ],
            "length": settings.calendar.windows.usual,
            "length_text": settings.window.length_text,
            "time_zone": settings.window.time_zone,
            "every_text": format_duration(settings.window.trigger_every),
            "of_triggers": settings.triggers,
            "ranking": None if settings.top is None else str(settings.top.ranking),
            "rolling": settings.window.rolling,
            "evidence_windows": settings.evidence_windows,
            "repeats": STRATEGIES[settings.choice.name].repeats,
        }
        self._tops: dict[int, TopRelease] = {}
        """The ranking of the newest trigger of each window, where there are rankings."""
        self._rolling: RollingRelease | None = None
        """The newest rolling view, where there is one."""

    def open(self, clients: Clients) -> None:
        """See `Board.open`. What is announced says which windows are the newest."""
        self._said = list[Progress]()
        reader = ReleaseReader(self.settings, since=self._since, heard=self._said.append)
        self._reader = self.opened.enter_context(reader)
        self._rolling_reader: RollingReader | None = None
        if self.settings.window.rolling:
            self._rolling_reader = self.opened.enter_context(RollingReader(self.settings, since=_newest_two))

    def _since(self, announced: list[AnnouncedRelease]) -> int | None:
        """The first trigger's time of the oldest window that is kept."""
        if not announced:
            return None
        window = self.settings.window
        return (
            max(each.window for each in announced)
            - (self._keep - 1) * self.settings.calendar.windows.lengths[-1]
            + window.trigger_every
        )

    @property
    def caught_up(self) -> bool:
        """See `Board.caught_up`."""
        return self._reader.caught_up and (self._rolling_reader is None or self._rolling_reader.caught_up)

    def poll(self, seconds: float) -> tuple[Sequence[Release], list[Progress]] | None:
        """See `Board.poll`: releases and announcements."""
        releases = self._reader.poll(seconds)
        if self._rolling_reader is not None:
            releases += self._rolling_reader.poll(0)
        said = self._said[:]
        self._said.clear()
        return (releases, said) if releases or said else None

    def take(self, news: Any) -> bool:
        """See `Board.take`."""
        releases, said = news
        changed = [self._add(release) for release in releases]
        changed += [self.announced.add(each) for each in said]
        return any(changed)

    def _add(self, release: Release) -> bool:
        if isinstance(release, RollingRelease):
            shown = self._rolling
            newer = shown is None or (shown.trigger_time, shown.epoch_number) < (
                release.trigger_time,
                release.epoch_number,
            )
            self._rolling = release if newer else shown
            return newer
        if not self.windows.add(release):
            return False
        if self.settings.top is not None:
            self._tops[release.window_start] = release.top(self.settings.top.ranking)
            self._tops = {start: top for start, top in self._tops.items() if self.windows.get(start) is not None}
        return True

    # ---- what the page asks ------------------------------------------------------------------------------------------

    def state(self, now: int) -> dict[str, Any]:
        """The windows that are kept, newest first, the newest announcement, and what is due."""
        newest, memory = self.announced.newest(), self.announced.memory()
        return {
            **self._about,
            "windows": [self._summary(window) for window in self.windows][::-1],
            "announced": None
            if newest is None
            else {
                "window": newest[0],
                "trigger": newest[1],
                "seen": self.announced.seen(),
                "of": self.announced.of_partitions,
            },
            "memory": None
            if memory is None
            else {"window": memory.window, "remembered": memory.remembered, "persistence": memory.persistence},
            "skipped": sorted(self.announced.skipped)[-_SKIPPED:],
            "numbers": self._offered(),
            "due": next_due(self.settings, self.announced, now),
        }

    def _offered(self) -> list[str]:
        """The numbers that rows of the windows have, the one that is shown by default first."""
        triggers = [trigger for window in self.windows for trigger in window.triggers.values()]
        has = {
            "smoothed": any(trigger.smoothed for trigger in triggers),
            "estimate": True,
            "direct": any(trigger.direct for trigger in triggers),
        }
        return [number for number, there in has.items() if there]

    def _summary(self, window: Window) -> dict[str, Any]:
        trigger = window.newest
        return {
            "start": window.start,
            "end": window.end,
            "trigger": trigger,
            "of_triggers": window.of_triggers,
            "final": window.final,
            "time": window.triggers[trigger].time,
            "keys": len(window.rows(trigger)),
            "new": int(window.new(trigger).sum()),
            "epoch": window.epoch[:8],
            "epoch_number": window.epoch_number,
            "strategy": window.strategy,
            "thinned": window.thinned,
        }

    def answer(self, question: str, query: Query) -> dict[str, Any]:
        """`table`, `curves`, `ranking` or `rolling`."""
        if question == "table":
            return self._table(query)
        if question == "curves":
            return self._curves(query)
        if question == "ranking":
            return self._ranking(query)
        if question == "rolling":
            return self._rolling_rows(query)
        raise BadQuestion("here are table, curves, ranking and rolling")

    def _window(self, query: Query) -> Window | None:
        start = whole(query, "window", None, low=-(1 << 62))
        found = self.windows.get(start)
        if found is None and start is not None:
            raise BadQuestion("window: is not kept here any more")
        return found

    def _column(self, query: Query) -> str:
        names = [column.name for column in self.settings.published_columns]
        name = query.get("column") or names[0]
        if name not in names:
            raise BadQuestion("column: is not published")
        return name

    def _number(self, query: Query) -> ShownNumber:
        number = query.get("number") or _NUMBERS[0]
        found = next((known for known in _NUMBERS if known == number), None)
        if found is None:
            raise BadQuestion(f"number: must be one of {', '.join(_NUMBERS)}")
        return found

    def _table(self, query: Query) -> dict[str, Any]:
        """One page of a window's newest trigger. Beside each row: the same key in other windows (``beside``: their starts)."""
        window, column, number = self._window(query), self._column(query), self._number(query)
        offset, limit = whole(query, "offset", 0, 0) or 0, whole(query, "limit", PAGE, 1, MOST)
        sort, descending = query.get("sort", "estimate"), query.get("order", "desc") != "asc"
        if sort not in _SORTS:
            raise BadQuestion(f"sort: must be one of {', '.join(_SORTS)}")
        if window is None:
            return {
                "rows": [],
                "found": 0,
                "keys": 0,
                "offset": 0,
                "window": None,
                "column": column,
                "largest": 0,
                "smoothed": 0,
            }
        trigger = window.newest
        everything = window.rows(trigger)
        new = window.new(trigger)
        rows = everything[new[everything]] if query.get("new") == "1" else everything
        if level := query.get("level"):
            if level not in self.settings.level_names:
                raise BadQuestion("level: is none of this pipeline")
            rows = window.of_level(rows, level)
        rows = window.search(rows, query.get("search", ""))
        rows = window.ordered(rows, trigger, sort, column, number, descending=descending)
        assert limit is not None
        offset = min(offset, max(0, (len(rows) - 1) // limit * limit))
        release = window.triggers[trigger]
        others = [found for found in map(self.windows.get, _starts(query.get("beside", ""))) if found is not None]
        shown = []
        for row in rows[offset : offset + limit].tolist():
            name = int(window.names[row])
            shown.append(
                {
                    "key": parts_of(window.keys[row]),
                    "name": f"{name:016x}",
                    "new": bool(new[row]),
                    "first": int(window.first[row]),
                    "values": {name: _numbers(release.measured(name, row, number)) for name in release.columns},
                    "smoothed": [name for name in release.columns if release.is_smoothed(name, row)],
                    "beside": {str(other.start): _newest(other, name, column, number) for other in others},
                }
            )
        top = release.highest(column, rows, number) if release.columns and len(rows) else 0.0
        smoothed = release.smoothed_rows.get(column)
        return {
            "window": window.start,
            "trigger": trigger,
            "column": column,
            "keys": len(everything),
            "found": len(rows),
            "offset": offset,
            "largest": top,
            "smoothed": 0 if smoothed is None else int(smoothed[rows].sum()),
            "rows": shown,
        }

    def _ranking(self, query: Query) -> dict[str, Any]:
        """The first rows of a window's newest trigger, as the topic `top` has them."""
        window = self._window(query)
        top = None if window is None else self._tops.get(window.start)
        if top is None:
            return {"ranking": self._about["ranking"], "rows": [], "window": None}
        column = top.columns[top.ranking.order_by]
        measured = [column.at(row) for row in range(len(top))]
        return {
            "ranking": str(top.ranking),
            "window": top.window_start,
            "trigger": top.trigger,
            "rows": [
                {"key": parts_of(key), "name": f"{name_of(key):016x}", "values": _numbers(of)}
                for key, of in zip(top.keys, measured, strict=True)
            ],
        }

    def _rolling_rows(self, query: Query) -> dict[str, Any]:
        """The largest rows of the newest rolling view, and from when and until when each counts."""
        name, limit, view = self._column(query), whole(query, "limit", FIRST, 1, MOST), self._rolling
        if view is None or not view.columns:
            return {"period": None, "column": name, "keys": 0, "whole": 0, "rows": []}
        view = view.showing(self._number(query))
        column = view.columns[name]
        measured = [(row, column.at(row)) for row in view.largest(limit, name)]
        return {
            "period": [view.period_start, view.period_end],
            "column": name,
            "keys": len(view),
            "whole": int(view.whole.sum()),
            "rows": [
                {
                    "key": parts_of(view.keys[row]),
                    "name": f"{name_of(view.keys[row]):016x}",
                    "values": _numbers(of),
                    "counted": [int(view.counted_from[row]), int(view.counted_until[row])],
                }
                for row, of in measured
            ],
        }

    def _curves(self, query: Query) -> dict[str, Any]:
        """One key over the triggers of some windows. key: its name in a table. windows: their starts."""
        column, shown = self._column(query), self._number(query)
        try:
            name = int(query.get("key", ""), 16)
        except ValueError:
            raise BadQuestion("key: is not the name of a key") from None
        starts = _starts(query.get("windows", ""))
        curves, key = [], None
        for window in filter(None, map(self.windows.get, starts)):
            number = window.number_of(name)
            points = [] if number is None else window.curve(number, column, shown)
            if number is not None:
                key = parts_of(window.keys[number])
            curves.append(
                {
                    "window": window.start,
                    "end": window.end,
                    "of_triggers": window.of_triggers,
                    "thinned": window.thinned,
                    "points": [[trigger, at, *_numbers(of)] for trigger, at, of, _ in points],
                    "smoothed": sum(smoothed for *_, smoothed in points),
                }
            )
        return {"column": column, "key": key, "curves": curves}


def _newest_two(announced: list[AnnouncedRelease]) -> int | None:
    """The time from which the newest view is read; of the newest one announced, rows may be missing."""
    return min(sorted({each.time for each in announced})[-2:], default=None)


def _starts(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",") if each][:MOST]
    except ValueError:
        raise BadQuestion("windows: must be whole numbers") from None


def _numbers(of: Measured) -> list[Any]:
    """[estimate, standard error], and the ends of the interval where they are published."""
    ends = [] if of.lower is None else [of.lower, of.upper]
    return [exact(of.estimate), of.std_error, *ends]


def _newest(window: Window, name: int, column: str, shown: ShownNumber) -> list[Any] | None:
    """The shown number of a key at a window's newest trigger; None where it is not among the released."""
    number, release = window.number_of(name), window.triggers[window.newest]
    if number is None or (release.present is not None and not release.present[number]):
        return None
    return _numbers(release.measured(column, number, shown))
