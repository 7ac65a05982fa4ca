"""Private streams: the means of the newest pieces as a chart, and the newest rows with the running sum, each with its error."""

from collections import deque
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from susurrus.agents.display.chart import Chart, room
from susurrus.agents.display.drawing import GREY, NARROW, Z95
from susurrus.agents.display.view import Record, RowsView, cells, headed, heights, pair, scaled
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.frames import key_text
from susurrus.agents.stream.mechanism import mechanism_of
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics.histogram import Measured
from susurrus.topics.private_stream import StreamRow, decode_row
from susurrus.topics.spec import PRIVATE_STREAM

_KEPT: Final = 1_000
"""Rows of a stream that are kept to be shown."""
COLUMNS: Final = ("value", "sum", "filtered_sum")
_WIDE: Final = 100
_NAMED: Final = 5
"""How many other streams a message names."""


class _Place(NamedTuple):
    """One stream: partitions are streams of their own, even where the producers gave them one id."""

    partition: int
    stream: str


class StreamView(RowsView):
    """Shows one stream: the one that is named, or the first that was published. Exports have all. all_rows: keep all rows."""

    def __init__(self, settings: StreamSettings, *, stream: str | None, column: str | None, all_rows: bool) -> None:
        self._settings, self._wanted, self._column = settings, stream, column or COLUMNS[0]
        self._topic = settings.topic(PRIVATE_STREAM.name)
        self._mechanism = mechanism_of(settings.stream)
        self._json = reader_of(settings.output, settings.schemas[self._topic], settings.namespace)
        super().__init__(settings, self._topic)
        self._rows: deque[StreamRow] = deque(maxlen=_KEPT)
        self._shown: _Place | None = None
        self._all: dict[_Place, list[StreamRow]] | None = {} if all_rows else None
        self._streams: set[_Place] = set()
        self._epochs: dict[_Place, str] = {}

    def poll(self, seconds: float) -> None:
        """See `View.poll`."""
        for _, partition, _, value in self.read(seconds):
            self._take(partition, decode_row(self._json(value)))

    def _take(self, partition: int, row: StreamRow) -> None:
        place = _Place(partition, key_text(row.stream))
        begun_again = self._epochs.setdefault(place, row.epoch) != row.epoch  # rows of two epochs are never combined
        self._epochs[place] = row.epoch
        self._streams.add(place)
        if self._all is not None:
            rows = self._all.setdefault(place, [])
            if begun_again:
                rows.clear()
            rows.append(row)
        if self._shown is None and self._wanted in (None, place.stream):
            self._shown = place
        if place == self._shown:
            if begun_again:
                self._rows.clear()
            self._rows.append(row)

    @property
    def newest(self) -> StreamRow | None:
        """The newest row of the stream."""
        return self._rows[-1] if self._rows else None

    def picture(self, width: int, height: int | None) -> RenderableType:
        """Title, chart, the newest rows, and what they are."""
        rows = list(self._rows)
        chart_height, most = heights(height)
        drawn = self._chart(rows[-room(width) :]).lines(chart_height) if chart_height else []
        return Group(
            headed(self._settings.pipeline.name, self._topic, width),
            *([*drawn, Text("")] if drawn else []),
            _table(rows[-most:], width),
            self._caption(rows[-1]),
        )

    def _chart(self, rows: list[StreamRow]) -> Chart:
        shown = [_of(row, self._column) for row in rows]
        what = {"value": "Means of the newest pieces", "sum": "Running sum", "filtered_sum": "Running sum, filtered"}
        return Chart(
            title=f"{what[self._column]}, at their last positions",
            unit="",
            values=np.array([measured.estimate for measured in shown], np.float64),
            margins=Z95 * np.array([measured.std_error for measured in shown]),
            labels=[(point, f"{row.last:,}") for point, row in enumerate(rows) if point % 5 == 0],
            name="private",
        )

    def _caption(self, row: StreamRow) -> Text:
        others = len(self._streams) - 1
        parts = [f"stream {key_text(row.stream)}"]
        parts += [f"{others:,} more (--stream)"] if others else []
        parts += [row.method, f"threshold {row.theta:,.6g}", f"epsilon {row.epsilon:g} per value"]
        return Text(" · ".join(parts), style=GREY)

    def due(self, now: int) -> str:
        """Rows come with values, not with time."""
        mechanism, row = self._mechanism, self.newest
        leaf = mechanism.base.leaf if isinstance(mechanism, Tops) else 1
        values = "value" if leaf == 1 else f"{leaf:,} values"
        if row is not None:
            return f"the next row comes with the next {values} of the stream, behind position {row.last:,}"
        if self._streams:
            others = sorted({place.stream for place in self._streams})
            more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
            return f'--stream="{self._wanted}": nothing is released of it; released are: {", ".join(others[:_NAMED])}{more}'
        named = "a stream" if self._wanted is None else f'the stream "{self._wanted}"'
        return (
            f"nothing is released yet; the first row of {named} comes with its value {mechanism.holdout + leaf:,}, because the "
            f"first {mechanism.holdout:,} choose its threshold (stream.holdout)"
        )

    def records(self) -> list[Record]:
        """A record per row, stream after stream."""
        assert self._all is not None
        return [_record(row) for place in sorted(self._all) for row in self._all[place] if self._exports(place)]

    def _exports(self, place: _Place) -> bool:
        return self._wanted in (None, place.stream)


def _of(row: StreamRow, column: str) -> Measured:
    """What the chart shows of a row: the mean of its piece, or a running sum."""
    if column == "value":
        return scaled(row.value, row.last - row.first + 1)
    return (row.filtered_sum if column == "filtered_sum" else None) or row.sum


def _table(rows: list[StreamRow], width: int) -> Table:
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    table.add_column("positions", ratio=1, no_wrap=True)
    filtered = width >= NARROW and any(row.filtered_sum is not None for row in rows)
    sums = width >= _WIDE
    for name in ("mean", *(("sum",) if sums else ()), "running sum", *(("filtered",) if filtered else ())):
        justify: Literal["right"] = "right"
        table.add_column(name, justify=justify, no_wrap=True)
        table.add_column("± 95 %", justify=justify, no_wrap=True, style=GREY)
    for row in reversed(rows):
        shown = [_of(row, "value"), *([row.value] if sums else []), row.sum, *([row.filtered_sum] if filtered else [])]
        table.add_row(f"{row.first:,}-{row.last:,}", *(cell for measured in shown for cell in cells(measured)))
    return table


def _record(row: StreamRow) -> Record:
    stream: Any = row.stream
    return {
        "stream": stream,
        "first": row.first,
        "last": row.last,
        **pair("value", row.value),
        **pair("sum", row.sum),
        **pair("filtered_sum", row.filtered_sum),
        "fit": row.fit,
        "jump_first": row.jump_first,
        "jump_last": row.jump_last,
        "theta": row.theta,
        "lower": row.lower,
        **pair("clipped", row.clipped),
        **pair("truncated", row.truncated),
        "layout": row.layout,
        "method": row.method,
        "epsilon": row.epsilon,
        "epoch": row.epoch,
    }
