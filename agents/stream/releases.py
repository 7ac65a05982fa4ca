"""Rows of private streams as a reader gets them: those that became visible together are one release.

Ranges need all rows of a stream from its first on: reader.py.
"""

from dataclasses import dataclass
from typing import Any

from susurrus.agents.frames import Frame, Tabular, key_text, measured_columns, measured_texts, shown_of, text_table
from susurrus.agents.runtime.rows import RowReader, Start
from susurrus.agents.stream.settings import StreamSettings
from susurrus.topics.private_stream import StreamRow, decode_row
from susurrus.topics.spec import PRIVATE_STREAM


@dataclass(frozen=True, repr=False)
class StreamRelease(Tabular):
    """Released pieces, in the order of their partitions. docs/streams.md says what `value`, `sum` and `filtered_sum` are."""

    rows: tuple[StreamRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"StreamRelease(rows={len(self)})"

    def head(self) -> dict[str, Any]:
        """Nothing: rows of several streams have little in common."""
        return {}

    def frame(self, confidence: float = 0.95) -> Frame:
        """A row per piece; NaN where there is no filtered sum."""
        columns: dict[str, Any] = {
            name: [getattr(row, name) for row in self.rows] for name in ("stream", "first", "last")
        }
        columns |= measured_columns("value", [row.value for row in self.rows], confidence)
        columns |= measured_columns("sum", [row.sum for row in self.rows], confidence)
        columns |= measured_columns("filtered_sum", [row.filtered_sum for row in self.rows], confidence)
        for name in ("clipped", "truncated"):
            columns |= measured_columns(name, [getattr(row, name) for row in self.rows], confidence)
        for name in ("fit", "jump_first", "jump_last", "theta", "lower", "layout", "method", "epsilon", "epoch"):
            columns[name] = [getattr(row, name) for row in self.rows]
        return Frame(columns)

    def table(self, limit: int = 20, *, confidence: float = 0.95, width: int | None = None) -> str:
        """The newest rows, with error bars."""
        shown = self.rows[-limit:] if limit > 0 else ()
        labels = {"stream": [key_text(row.stream) for row in shown]}
        numbers = [("positions", [f"{row.first}–{row.last}" for row in shown])]
        for name in ("value", "sum", "filtered_sum"):
            numbers += measured_texts(name, [getattr(row, name) for row in shown], confidence)
        return text_table(f"{len(self):,} rows{shown_of(len(shown), len(self))}", labels, numbers, width)


def stream_releases(settings: StreamSettings, start: Start) -> RowReader[StreamRow, StreamRelease]:
    """Returns a reader of one pipeline's rows. Raises ConfigurationError where the topic is missing."""
    return RowReader(settings, settings.topic(PRIVATE_STREAM.name), decode_row, StreamRelease, start)
