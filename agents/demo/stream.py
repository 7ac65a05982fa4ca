"""The demonstration of private streams: a meter's readings in, a private stream out, and the truth beside it as a plot."""

import json
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.console import Group
from rich.text import Text

from susurrus.agents.demo.machinery import Run
from susurrus.agents.demo.meter import Series
from susurrus.agents.demo.picture import findings, promise
from susurrus.agents.operations.drawing import GREY, Z95
from susurrus.agents.stream.mechanism import grid_of, mechanism_of, promise_of
from susurrus.agents.stream.reader import released_stream
from susurrus.agents.stream.sections import StreamSection
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics import private_stream
from susurrus.topics.private_stream import StreamRow

HEIGHT: Final = 14
Floats = npt.NDArray[np.float64]

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

    def play(self, run: Run) -> Group:
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
    """The plot, what it says, and the promise."""
    mechanism, grid = _tops(stream), grid_of(stream)
    released = released_stream(rows, stream)
    columns = max(20, min(width - 10, 110))
    edges = np.linspace(0, len(rows) * mechanism.base.leaf, columns + 1).astype(np.int64)
    length = np.diff(edges)
    private, error = (column * grid / length for column in released.filtered(edges[:-1], edges[1:]))
    # The filter's bars rest on a model of the series; the plain sums' rest on the noise alone, and can be checked.
    plain, plain_error = (column * grid / length for column in released.plain(edges[:-1], edges[1:]))
    after = series.values[mechanism.holdout :][: edges[-1]]
    true = np.add.reduceat(after, edges[:-1]) / length
    theta, total = rows[0].theta, rows[-1].sum
    inside = int((np.abs(plain - true) <= Z95 * plain_error).sum())
    cut = np.maximum(after - theta, 0).sum() / max(after.sum(), 1e-9)
    legend = (
        ("● ", "cyan"), ("private   ", GREY), ("░ ", "cyan"), ("the filter's error bar   ", GREY), ("┼ ", "yellow"), ("true", GREY)
    )  # fmt: skip
    return Group(
        *plot(true, private, Z95 * error),
        Text.assemble(*legend),
        *findings(
            columns=f"{int(length[0]):,} readings each; the private mean (filtered) is {_off(private, true):.1%} off on average.",
            plain=f"sums without the filter are {_off(plain, true):.1%} off; {inside} of {columns} of their error bars (95 %) "
            "hold the truth.",
            total=f"private {total.estimate:,.0f} ± {Z95 * total.std_error:,.0f}, true {after.sum():,.0f} {series.unit}",
            threshold=f"{theta:,.0f} {series.unit} of a public bound of {series.bound:,.0f}: clipping leaves out {cut:.2%}.",
        ),
        *promise(promise_of(stream).sentence()),
    )


def _off(private: Floats, true: Floats) -> float:
    return float((np.abs(private - true) / np.maximum(true, 1e-9)).mean())


def plot(true: Floats, private: Floats, margin: Floats) -> list[Text]:
    """Lines of a plot, HEIGHT rows high, one column per value."""
    top = float(max(true.max(), np.quantile(private + margin, 0.95)))
    low = float(min(0.0, true.min()))
    scale = (HEIGHT - 1) / max(top - low, 1e-9)

    def row_of(values: Floats) -> npt.NDArray[np.int64]:
        return np.clip(np.rint((values - low) * scale), 0, HEIGHT - 1).astype(np.int64)

    at_true, at_private = row_of(true), row_of(private)
    down, up = row_of(private - margin), row_of(private + margin)
    lines = []
    for height in range(HEIGHT - 1, -1, -1):
        line = Text(f"{low + height / scale:8,.0f} ", style=GREY)
        for i in range(len(true)):
            if at_private[i] == height:
                line.append("●", "bold cyan" if at_true[i] != height else "bold green")
            elif at_true[i] == height:
                line.append("┼", "yellow")
            else:
                line.append("░" if down[i] <= height <= up[i] else " ", "cyan")
        lines.append(line)
    return lines
