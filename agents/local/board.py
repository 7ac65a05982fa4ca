"""The board of local privacy: sums and means of every time interval with bands, and the answers to range queries."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from susurrus.agents.display.board import BadQuestion, Board, Query, whole
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.local.reader import filtered_sum, range_sum
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.types.durations import format_duration
from susurrus.topics import estimate as codec
from susurrus.topics.estimate import EstimateRow
from susurrus.topics.histogram import Measured

BINS: Final = 240
"""Points of a series. Where there are more intervals, several are one point, without the filter's answer."""
KEEP: Final = 200_000
"""Newest intervals that are kept: 139 days of minutes."""


class EstimatesBoard(Board):
    """Follows `estimate`."""

    settings: LocalSettings

    def __init__(self, settings: LocalSettings, guarantee: str) -> None:
        super().__init__(settings)
        self._read = self.reader("estimate")
        self._rows: list[EstimateRow] = []
        self._starts: list[int] = []
        self._about = {
            "page": "estimates",
            "pipeline": settings.pipeline.name,
            "topic": settings.topic("estimate"),
            "guarantee": guarantee,
            "strategy": "ToPL",
            "why": None,
            "interval": settings.local.interval,
            "interval_text": format_duration(settings.local.interval),
            "filtered": True,
        }

    def open(self, clients: Clients) -> None:
        """See `Board.open`."""
        self._follower = self.follower(clients, "estimate")

    @property
    def caught_up(self) -> bool:
        """See `Board.caught_up`."""
        return self._follower.caught_up

    def poll(self, seconds: float) -> list[EstimateRow]:
        """See `Board.poll`: rows."""
        values = (message.value() for message in self._follower.read(seconds))
        return [codec.decode(self._read(bytes(value))) for value in values if value is not None]

    def take(self, news: Sequence[EstimateRow]) -> bool:
        """See `Board.take`. A row of another epoch starts over, for the reports are others."""
        before = len(self._rows)
        for row in news:
            if self._rows and row.epoch != self._rows[-1].epoch:
                self._rows, self._starts, before = [], [], -1
            at = bisect_left(self._starts, row.interval)
            if at == len(self._starts) or self._starts[at] != row.interval:
                self._starts.insert(at, row.interval)
                self._rows.insert(at, row)
        del self._rows[:-KEEP], self._starts[:-KEEP]
        return len(self._rows) != before

    def state(self, now: int) -> dict[str, Any]:
        """The newest interval, and when the next one is due at the latest."""
        newest = self._rows[-1] if self._rows else None
        every, lateness = self.settings.local.interval, self.settings.local.lateness
        following = now // every * every if newest is None else newest.interval + every
        return {
            **self._about,
            "intervals": len(self._rows),
            "first": self._starts[0] if self._starts else None,
            "newest": None
            if newest is None
            else {"start": newest.interval, "reports": newest.count, "theta": newest.theta},
            "due": None if newest is None else {"at": following + every + lateness, "archive": False, "ended": False},
        }

    def answer(self, question: str, query: Query) -> dict[str, Any]:
        """`series` or `range`."""
        if question == "series":
            return self._series(query)
        if question == "range":
            return self._range(query)
        raise BadQuestion("here are series and range")

    def _chosen(self, query: Query) -> tuple[int, int, int, int]:
        """The bounds in ms, and the rows between them."""
        if not self._rows:
            raise BadQuestion("nothing is published yet")
        end = self._starts[-1] + self.settings.local.interval
        first = whole(query, "from", self._starts[0])
        last = whole(query, "to", end)
        assert first is not None
        assert last is not None
        low, high = bisect_left(self._starts, first), bisect_left(self._starts, last)
        if low >= high:
            raise BadQuestion("from, to: no interval begins between them")
        return first, last, low, high

    def _series(self, query: Query) -> dict[str, Any]:
        """Means per report: [start, end, reports, plain, its error, filtered, its error]."""
        _, _, low, high = self._chosen(query)
        every, step = self.settings.local.interval, -(-(high - low) // BINS)
        points = []
        for at in range(low, high, step):
            rows = self._rows[at : min(at + step, high)]
            found = range_sum(rows, rows[0].interval, rows[-1].interval + 1)
            plain = [found.mean, found.mean_standard_error]
            filtered = _mean(rows[0].filtered_sum, rows[0].count) if step == 1 else [None, None]
            points.append([rows[0].interval, rows[-1].interval + every, found.count, *plain, *filtered])
        return {"theta": self._rows[high - 1].theta, "intervals_a_point": step, "points": points}

    def _range(self, query: Query) -> dict[str, Any]:
        """The sum over the intervals that begin in a range, and the mean per report."""
        first, last, low, high = self._chosen(query)
        plain, filtered = range_sum(self._rows, first, last), filtered_sum(self._rows, first, last)
        return {
            "from": self._starts[low],
            "to": self._starts[high - 1] + self.settings.local.interval,
            "reports": plain.count,
            "plain": [plain.sum, plain.standard_error],
            "filtered": [filtered.sum, filtered.standard_error],
        }


def _mean(measured: Measured | None, count: int) -> list[float | None]:
    if measured is None or not count:
        return [None, None]
    return [measured.estimate / count, measured.std_error / count]
