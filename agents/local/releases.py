"""Estimates of local reports as a reader gets them: the intervals that became visible together are one release.

Ranges over intervals: reader.py.
"""

from dataclasses import dataclass
from typing import Any

from susurrus.agents.frames import Frame, Tabular, measured_columns, measured_texts, number, shown_of, text_table
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.runtime.rows import RowReader, Start
from susurrus.topics.estimate import EstimateRow, decode
from susurrus.topics.spec import ESTIMATE
from susurrus.topics.wire.timestamps import parse_time


@dataclass(frozen=True, repr=False)
class LocalRelease(Tabular):
    """Estimates by interval, in the order of time. docs/topl.md says what the columns are."""

    rows: tuple[EstimateRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"LocalRelease(rows={len(self)})"

    def head(self) -> dict[str, Any]:
        """Nothing: each row has an interval of its own."""
        return {}

    def frame(self, confidence: float = 0.95) -> Frame:
        """A row per interval; NaN where there is no mean or filtered sum."""
        instants = ("interval_start", "interval_end")
        columns: dict[str, Any] = {name: [parse_time(getattr(row, name)) for row in self.rows] for name in instants}
        columns["count"] = [row.count for row in self.rows]
        for name in ("sum", "mean", "running_sum", "filtered_sum"):
            columns |= measured_columns(name, [getattr(row, name) for row in self.rows], confidence)
        for name in ("threshold_version", "theta", "epsilon", "epoch"):
            columns[name] = [getattr(row, name) for row in self.rows]
        return Frame(columns, frozenset(instants))

    def table(self, limit: int = 20, *, confidence: float = 0.95, width: int | None = None) -> str:
        """The newest intervals, with error bars."""
        shown = self.rows[-limit:] if limit > 0 else ()
        labels = {"interval": [row.interval_start for row in shown]}
        numbers = [("count", [number(row.count) for row in shown])]
        for name in ("sum", "mean", "filtered_sum"):
            numbers += measured_texts(name, [getattr(row, name) for row in shown], confidence)
        return text_table(f"{len(self):,} intervals{shown_of(len(shown), len(self))}", labels, numbers, width)


def local_releases(settings: LocalSettings, start: Start) -> RowReader[EstimateRow, LocalRelease]:
    """Returns a reader of one pipeline's estimates. Raises ConfigurationError where the topic is missing."""
    return RowReader(settings, settings.topic(ESTIMATE.name), decode, LocalRelease, start)
