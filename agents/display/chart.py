"""A chart for a terminal: released values with their error bars, and the truth beside them where a demonstration knows it.

Every point has three cells: the released value with its error bar, the truth, a blank. So nothing hides anything. The
marks differ in shape: they can be told apart without colour, in a file and on paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.text import Text

from susurrus.agents.display.drawing import GREY
from susurrus.mechanisms.arrays import Floats

HEIGHT: Final = 14
_CELLS: Final = 3
_AXIS: Final = 9
"""Columns left of the points: the labels, a blank and the axis."""
_PRIVATE, _ERROR, _TRUE = "●", "│", "━"
_LABEL_EVERY: Final = 3


def room(width: int) -> int:
    """How many points fit a terminal of so many columns."""
    return max(10, (width - _AXIS) // _CELLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """values, margins float64[n]: the released values and the half-widths of their 95 % error bars. unit: of the values. labels:
    below the axis, (point, text) from left to right. true: float64[n], where it is known. name: of the released values."""

    title: str
    unit: str
    values: Floats
    margins: Floats
    labels: Sequence[tuple[int, str]]
    true: Floats | None = None
    name: str = "private"

    def lines(self, height: int = HEIGHT) -> list[Text]:
        """Title, legend, the points, the axis and its labels. Raises ValueError where there is no point."""
        low, step = self._scale(height)

        def rows(values: Floats) -> npt.NDArray[np.int64]:
            return np.clip(np.rint((values - low) / step), 0, height - 1).astype(np.int64)

        value, down, up = rows(self.values), rows(self.values - self.margins), rows(self.values + self.margins)
        true = None if self.true is None else rows(self.true)
        drawn = [Text(self.title, style="bold"), self._legend()]
        for row in range(height - 1, -1, -1):
            labelled = row % _LABEL_EVERY == 0
            line = Text()
            line.append(f"{_short(low + row * step):>7} ┤" if labelled else f"{'':7} │", GREY)
            for point in range(len(self.values)):
                if value[point] == row:
                    line.append(_PRIVATE, "bold cyan")
                else:
                    line.append(_ERROR if down[point] <= row <= up[point] else " ", "cyan")
                line.append(f"{_TRUE} " if true is not None and true[point] == row else "  ", "yellow")
            drawn.append(line)
        return [*drawn, *self._axis()]

    def _scale(self, height: int) -> tuple[float, float]:
        """(the value of the lowest row, what a row is worth), with round labels. A few wide error bars may leave the chart."""
        if not len(self.values):
            raise ValueError("a chart needs a point")
        shown = [self.values, *([] if self.true is None else [self.true])]
        low = min(0.0, *(float(array.min()) for array in shown))
        top = max(*(float(array.max()) for array in shown), float(np.quantile(self.values + self.margins, 0.95)))
        between = _round_up((top - low) * _LABEL_EVERY / (height - 1)) if top > low else 1.0
        if low < 0:  # the lowest label is round, too, so there may have to be room for one more
            between = _round_up((top - low) * _LABEL_EVERY / (height - 1 - _LABEL_EVERY))
        return float(np.floor(low / between)) * between, between / _LABEL_EVERY

    def _legend(self) -> Text:
        unit = f"in {self.unit}: " if self.unit else ""
        parts = [(unit, GREY), (_PRIVATE, "bold cyan"), (f" {self.name}   ", GREY), (_ERROR, "cyan")]
        parts.append((" its error bar (95 %)", GREY))
        if self.true is not None:
            parts += [("   ", ""), (_TRUE, "yellow"), (" true", GREY)]
        return Text.assemble(*parts)

    def _axis(self) -> list[Text]:
        """The line with a mark at each label, and the labels that do not overlap."""
        cells = len(self.values) * _CELLS
        marks, below = ["─"] * cells, [" "] * cells
        free = 0
        for point, text in self.labels:
            at = point * _CELLS
            if at < free or at + len(text) > cells:
                continue
            marks[at] = "┬"
            below[at : at + len(text)] = text
            free = at + len(text) + 2
        pad = " " * (_AXIS - 1)
        return [Text(f"{pad}└{''.join(marks)}", style=GREY), Text(f"{pad} {''.join(below).rstrip()}", style=GREY)]


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-9)))


def _short(value: float) -> str:
    """A label of at most seven characters."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}" if abs(value) < 1000 * limit else f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:.3g}"
