"""Follow the rolling view of a histogram: the last window's length at every trigger, as releases.py follows the windows.

rolling, progress ──RollingReader──▶ RollingRelease
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.assembly import OpenRelease, ReleasedPart
from susurrus.agents.histogram.estimates import Release, Rows, TopRelease
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.same_time import period_start
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.ranking import RowRanking
from susurrus.topics import rolling
from susurrus.topics.progress import Progress
from susurrus.topics.records.zones import local_text
from susurrus.topics.rolling import RollingColumns

ROLLING_INSTANTS: Final = ("period_start", "period_end", "counted_from", "counted_until")
"""The columns that its rows have beside those of a release, all instants."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RollingRelease(Release):
    """The last window's length until one trigger, by key: the current window so far, and the rest of the one before it.

    window_start, window_end, trigger: of the current window. counted_from, counted_until: int64[n], ms: what each row counts; the
    whole period where it has rows of everything. period_start: ms. Users are counted per window: who came in both counts twice.
    """

    counted_from: Int64s
    counted_until: Int64s
    period_start: int

    overlaps: ClassVar[bool] = True

    @property
    def period_end(self) -> int:
        """The first instant after the period, ms."""
        return self.trigger_time

    @property
    def final(self) -> bool:
        """Whether it is the current window's last one, whose period is that window."""
        return self.trigger_time == self.window_end

    @property
    def whole(self) -> Bools:
        """bool[n]: which rows count the whole period."""
        whole: Bools = (self.counted_from == self.period_start) & (self.counted_until == self.period_end)
        return whole

    def only_whole(self) -> Self:
        """The same with the rows that count the whole period, so that keys can be compared."""
        rows: Rows = np.flatnonzero(self.whole)
        return replace(
            self,
            keys=[self.keys[row] for row in rows.tolist()],
            columns={name: column.take(rows) for name, column in self.columns.items()},
            counted_from=self.counted_from[rows],
            counted_until=self.counted_until[rows],
        )

    def top(self, ranking: RowRanking | None = None) -> TopRelease:
        """Raises ConfigurationError: a ranking is one of a window."""
        raise ConfigurationError("top: the ranking is of windows", "use only_whole().largest(limit, column)")

    def __repr__(self) -> str:
        end = local_text(self.time_zone, self.period_end)
        return f"RollingRelease(period_end={end}, keys={len(self)}, whole={int(self.whole.sum())})"

    def head(self) -> dict[str, Any]:
        """As of a release, with the period in front."""
        period = {
            "period_start": local_text(self.time_zone, self.period_start),
            "period_end": local_text(self.time_zone, self.period_end),
        }
        return period | super().head()

    def _instants(self) -> dict[str, npt.NDArray[np.int64]]:
        period = {name: np.full(len(self), getattr(self, name), np.int64) for name in ("period_start", "period_end")}
        return {**period, **super()._instants(), "counted_from": self.counted_from, "counted_until": self.counted_until}

    def notes(self, rows: Sequence[int]) -> list[str] | None:
        """From when and until when a row counts, where that is not the whole period."""
        return [self._note(row) for row in rows]

    def _note(self, row: int) -> str:
        since, until = int(self.counted_from[row]), int(self.counted_until[row])
        said = [f"from {self._short(since)}"] if since != self.period_start else []
        said += [f"until {self._short(until)}"] if until != self.period_end else []
        return " ".join(said)

    def _short(self, instant: int) -> str:
        """An instant without its year and offset, which the caption has."""
        return local_text(self.time_zone, instant)[5:16].replace("T", " ")

    def caption(self, shown: int) -> str:
        """Which period, how many keys, and how many of them count less than it. shown: how many keys a table shows."""
        cut = f", {shown:,} shown" if shown < len(self) else ""
        less = len(self) - int(self.whole.sum())
        some = f", {less:,} of them count less" if less else ""
        since, until = (local_text(self.time_zone, instant) for instant in (self.period_start, self.period_end))
        return f"{since} to {until} · {len(self):,} keys{some}{cut}"


class RollingReader(ReleaseReader):
    """Follows the topics `rolling` and `progress`, as `ReleaseReader` does."""

    topic: ClassVar[str] = "rolling"

    def _announced(self, said: Progress) -> Progress | None:
        return None if said.rolling_rows is None else msgspec.structs.replace(said, rows=said.rolling_rows)

    def _decode(self, values: Sequence[bytes]) -> Iterator[ReleasedPart]:
        return rolling.decode_rows(values)

    def _made(self, whole: OpenRelease, parts: Sequence[ReleasedPart], order: list[int]) -> RollingRelease:
        release = super()._made(whole, parts, order)
        settings = self._settings
        calendar = settings.calendar
        window = calendar.window_at(release.window_start)
        found = [part for part in parts if isinstance(part, RollingColumns)]
        none = np.empty(0, np.int64)
        of = {each.name: getattr(release, each.name) for each in fields(Release)}
        return RollingRelease(
            **of,
            period_start=period_start(calendar, settings.window.time_zone, window, Trigger(release.trigger)),
            counted_from=np.concatenate([none, *(part.counted_from for part in found)])[order],
            counted_until=np.concatenate([none, *(part.counted_until for part in found)])[order],
        )
