"""Local privacy: the mean of each interval as a chart, and the newest intervals, plain and filtered, each with its error."""

from typing import ClassVar, Final, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from susurrus.agents.display.chart import Chart, room
from susurrus.agents.display.drawing import GREY, NARROW, Z95
from susurrus.agents.display.times import clock_time, until
from susurrus.agents.display.view import Record, RowsView, cells, headed, heights, pair, scaled
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.local.settings import LocalSettings
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.estimate import EstimateRow, decode
from susurrus.topics.histogram import Measured
from susurrus.topics.spec import ESTIMATE, THRESHOLD
from susurrus.topics.threshold import ThresholdRecord
from susurrus.topics.wire.packing import MalformedRecord

COLUMNS: Final = ("mean", "filtered_mean", "sum", "running_sum")
_WIDE: Final = 100


class LocalView(RowsView):
    """Shows one pipeline's estimates. Intervals are few, so the view keeps all of the newest epoch."""

    instants: ClassVar[tuple[str, ...]] = ("slot_start", "slot_end")

    def __init__(self, settings: LocalSettings, *, column: str | None) -> None:
        self._settings, self._column = settings, column or COLUMNS[0]
        self._topic, self._thresholds = settings.topic(ESTIMATE.name), settings.topic(THRESHOLD.name)
        self._json = reader_of(settings.output, settings.schemas[self._topic], settings.namespace)
        super().__init__(settings, self._topic, self._thresholds)
        self._rows: dict[str, EstimateRow] = {}
        self._threshold: ThresholdRecord | None = None

    def poll(self, seconds: float) -> None:
        """See `View.poll`."""
        for topic, _, key, value in self.read(seconds):
            if topic == self._topic:
                self._take(decode(self._json(value)))
            elif key == threshold_codec.CURRENT:
                self._take_threshold(value)

    def _take(self, row: EstimateRow) -> None:
        if self._rows and next(iter(self._rows.values())).epoch != row.epoch:
            self._rows.clear()  # rows of two epochs are never combined
        self._rows[row.interval_start] = row

    def _take_threshold(self, value: bytes) -> None:
        try:
            self._threshold = threshold_codec.decode(value)
        except MalformedRecord:
            return  # of a later version

    @property
    def newest(self) -> EstimateRow | None:
        """The newest interval."""
        return self._rows[max(self._rows)] if self._rows else None

    def picture(self, width: int, height: int | None) -> RenderableType:
        """Title, chart, the newest intervals, and what they are."""
        rows = [self._rows[start] for start in sorted(self._rows)]
        chart_height, most = heights(height)
        drawn = (
            self._chart(rows, room(width)).lines(chart_height) if chart_height and _shown(rows, self._column) else []
        )
        return Group(
            headed(self._settings.pipeline.name, self._topic, width),
            *([*drawn, Text("")] if drawn else []),
            _table(rows[-most:], width),
            self._caption(rows),
        )

    def _chart(self, rows: list[EstimateRow], points: int) -> Chart:
        shown = _shown(rows, self._column)[-points:]
        what = {
            "mean": "Mean of an interval's reports",
            "filtered_mean": "Mean of an interval's reports, filtered",
            "sum": "Sum of an interval's reports",
            "running_sum": "Running sum",
        }
        times = [row.interval_start[11:-1] for row, _ in shown]
        return Chart(
            title=f"{what[self._column]}, by its start (UTC)",
            unit="",
            values=np.array([measured.estimate for _, measured in shown], np.float64),
            margins=Z95 * np.array([measured.std_error for _, measured in shown]),
            labels=[(point, text) for point, text in enumerate(times) if point % 5 == 0],
        )

    def _caption(self, rows: list[EstimateRow]) -> Text:
        row = rows[-1]
        parts = [f"{len(rows):,} intervals", f"threshold {row.theta:,.6g} (version {row.threshold_version})"]
        parts += [f"epsilon {row.epsilon:g} per report"]
        return Text(" · ".join(parts), style=GREY)

    def due(self, now: int) -> str:
        """When the next interval is due."""
        local, row = self._settings.local, self.newest
        if row is None and self._threshold is None:
            return (
                f"nothing is released yet; the threshold comes with {local.holdout:,} reports (local.holdout), and estimates of "
                "the intervals after it"
            )
        # The first that is not over yet, or that reports may still come late to.
        start = (now - local.lateness) // local.interval * local.interval
        if row is not None:
            start = max(start, row.interval + local.interval)
        ends = start + local.interval
        by = ends + local.lateness
        first = "" if row is not None else "phase 2 has begun, and no interval is released yet; "
        return (
            f"{first}the interval that ends {clock_time(ends, now)} is due by {clock_time(by, now)} ({until(by, now)}), if it has "
            "reports"
        )

    def records(self) -> list[Record]:
        """A record per interval."""
        return [_record(self._rows[start]) for start in sorted(self._rows)]


def _shown(rows: list[EstimateRow], column: str) -> list[tuple[EstimateRow, Measured]]:
    """The intervals that have a column, and its values."""
    found = ((row, _of(row, column)) for row in rows)
    return [(row, measured) for row, measured in found if measured is not None]


def _of(row: EstimateRow, column: str) -> Measured | None:
    if column == "filtered_mean":
        return None if row.filtered_sum is None or not row.count else scaled(row.filtered_sum, row.count)
    if column == "sum":
        return row.sum
    return row.running_sum if column == "running_sum" else row.mean


def _table(rows: list[EstimateRow], width: int) -> Table:
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    table.add_column("interval", ratio=1, no_wrap=True)
    table.add_column("reports", justify="right", no_wrap=True)
    wide = width >= NARROW
    columns = {"mean": "mean", "filtered_mean": "filtered", **({"running_sum": "running sum"} if wide else {})}
    for name in columns.values():
        justify: Literal["right"] = "right"
        table.add_column(name, justify=justify, no_wrap=True)
        table.add_column("± 95 %", justify=justify, no_wrap=True, style=GREY)
    for row in reversed(rows):
        numbers = (cell for column in columns for cell in cells(_of(row, column)))
        table.add_row(row.interval_start if width >= _WIDE else row.interval_start[11:], f"{row.count:,}", *numbers)
    return table


def _record(row: EstimateRow) -> Record:
    return {
        "slot_start": row.interval_start,
        "slot_end": row.interval_end,
        "count": row.count,
        **pair("sum", row.sum),
        **pair("mean", row.mean),
        **pair("running_sum", row.running_sum),
        **pair("filtered_sum", row.filtered_sum),
        "threshold_version": row.threshold_version,
        "theta": row.theta,
        "epsilon": row.epsilon,
        "epoch": row.epoch,
    }
