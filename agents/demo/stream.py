"""The demonstration of private streams: a meter's readings in, a private stream out, and the truth beside it as a chart."""

import json
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from rich.console import Group
from rich.text import Text

from susurrus.agents.demo.machinery import DemoRun
from susurrus.agents.demo.meter import Series
from susurrus.agents.demo.picture import findings, promise
from susurrus.agents.display.chart import Chart, room
from susurrus.agents.display.drawing import Z95
from susurrus.agents.stream.mechanism import grid_of, mechanism_of, promise_of
from susurrus.agents.stream.reader import released_stream
from susurrus.agents.stream.sections import StreamSection
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics import private_stream
from susurrus.topics.private_stream import StreamRow

_SECTIONS: Final = """\
[input]
topic = "meter-readings"

[start]
from = "earliest"
first_window = "1970-01-01T00:00:00Z"

[stream]
value = "reading"
bound = {bound}
grid = {grid}
epsilon = {epsilon}
holdout = 4096
range_limit = 65536
secret_file = "secret"
"""


class StreamDemo:
    """How much was it, when?"""

    kind = "stream"

    def __init__(self, series: Series, *, epsilon: float) -> None:
        self._series = series
        self.sections = _SECTIONS.format(bound=series.bound, grid=series.grid, epsilon=epsilon)
        self.title = (
            f"[bold]{series.name}[/bold]: {len(series.values):,} readings as a Kafka topic.\nHow much was it, when? The "
            "published stream of sums hides the value of any one reading."
        )

    def play(self, run: DemoRun) -> Group:
        """Produce the readings, and wait for the last sum that the worker can make of them."""
        stream, readings = StreamSettings.of(run.settings).stream, self._series.values.tolist()
        records = [
            (json.dumps({"reading": reading}).encode(), "meter-1", 0, 60_000 * minute)
            for minute, reading in enumerate(readings, start=1)
        ]
        run.produce("raw readings produced", records)
        run.start_worker()
        rows, mechanism = run.rows("private-stream", private_stream.decode_row), _tops(stream)
        wanted = (len(readings) - mechanism.holdout) // mechanism.base.leaf
        run.wait("private sums released", wanted, lambda: len(rows()))
        return picture(rows(), self._series, stream, width=run.width)


def _tops(stream: StreamSection) -> Tops:
    mechanism = mechanism_of(stream)
    assert isinstance(mechanism, Tops)
    return mechanism


def picture(rows: list[StreamRow], series: Series, stream: StreamSection, *, width: int) -> Group:
    """The chart of the stream's end, what all of the stream says, and the promise."""
    found = ReadingPieces.of(rows, series, stream, points=room(width))
    shown = min(len(found.true), room(width))
    theta, total = np.array([row.theta for row in rows]), rows[-1].sum
    low, high = (f"{each:,.0f}" for each in (theta.min(), theta.max()))
    thresholds = low if low == high else f"{low} to {high}"
    inside = int((np.abs(found.private - found.true) <= Z95 * found.error).sum())
    of_reading = np.repeat(theta, _tops(stream).base.leaf)
    cut = np.maximum(found.readings - of_reading, 0).sum() / max(found.readings.sum(), 1e-9)
    most = f"the last {shown:,} of {len(found.true):,}" if shown < len(found.true) else f"all {shown:,}"
    chart = Chart(
        title=f"Mean of {series.span(found.length)} each, {most}",
        unit=series.unit,
        values=found.private[-shown:],
        margins=Z95 * found.error[-shown:],
        true=found.true[-shown:],
        labels=series.labels(found.starts[-shown:].tolist()),
    )
    return Group(
        *chart.lines(),
        Text(""),
        *findings(
            error=f"{_off(found.private, found.true):.1%} on average of {len(found.true):,} means of {found.length:,} readings; "
            f"{inside} of their error bars hold the truth.",
            filter=f"the causal filter brings that to {_off(found.filtered, found.true):.1%}; its error bars rest on a model of "
            "the series.",
            total=f"private {total.estimate:,.0f} ± {Z95 * total.std_error:,.0f}, true {found.readings.sum():,.0f} {series.unit}",
            threshold=f"{thresholds} {series.unit} of a public bound of {series.bound:,.0f}: clipping leaves out {cut:.2%}.",
        ),
        *promise(promise_of(stream).sentence()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPieces:
    """The released readings in pieces of equal length. length: readings of a piece. starts int64[n]: the positions in the series of
    their first. true, private, error, filtered float64[n]: means, and the standard errors of the private ones."""

    length: int
    starts: npt.NDArray[np.int64]
    true: Floats
    private: Floats
    error: Floats
    filtered: Floats
    readings: Floats
    """All that were released, in order."""

    @classmethod
    def of(cls, rows: list[StreamRow], series: Series, stream: StreamSection, *, points: int) -> Self:
        """The pieces of all rows. points: about how many pieces, where the series has no days."""
        mechanism, grid = _tops(stream), grid_of(stream)
        released, holdout = released_stream(rows, stream), mechanism.holdout
        after = series.values[holdout:][: len(rows) * mechanism.base.leaf]
        length = series.piece(len(after), points)
        edges = np.arange(-holdout % length, len(after) + 1, length)  # whole pieces from the series' first reading on
        first, last = edges[:-1], edges[1:]
        private, error = (column * grid / length for column in released.plain(first, last))
        return cls(
            length=length,
            starts=holdout + first,
            true=after[edges[0] : edges[-1]].reshape(-1, length).mean(axis=1),
            private=private,
            error=error,
            filtered=released.filtered(first, last)[0] * grid / length,
            readings=after,
        )


def _off(private: Floats, true: Floats) -> float:
    return float((np.abs(private - true) / np.maximum(true, 1e-9)).mean())
