"""How the demonstrations draw: private estimates beside the truth, what was found, what is promised."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from susurrus.agents.display.drawing import GREY, NARROW, bar, margin, upper
from susurrus.agents.display.panels import framed
from susurrus.agents.frames import number
from susurrus.topics.histogram import Measured


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of a comparison. before, after: further cells in front of and behind the numbers."""

    label: str
    true: float
    private: Measured
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def comparison(
    rows: Sequence[Compared],
    width: int,
    *,
    label: str,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> list[Table | Text]:
    """A table with bars that are marked at the truth, where the terminal is wide enough, and its legend."""
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    table.add_column(label, ratio=1, no_wrap=True, overflow="ellipsis")
    for name in (*before, "true"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("private", justify="right", no_wrap=True, style="cyan")
    table.add_column("± 95 %", justify="right", no_wrap=True, style=GREY)
    for name in after:
        table.add_column(name, justify="right", no_wrap=True)
    bars = min(36, width // 3) if width >= NARROW else 0
    if bars:
        table.add_column("", width=bars, no_wrap=True)
    largest = max((max(row.true, upper(row.private)) for row in rows), default=1)
    for row in rows:
        numbers = (number(row.true), number(row.private.estimate), margin(row.private))
        cells: list[str | Text] = [Text(row.label), *row.before, *numbers, *row.after]
        if bars:
            cells.append(_marked(row, largest, bars))
        table.add_row(*cells)
    legend = Text("█ up to the error bar, ░ the error bar, ┃ the truth", style=GREY)
    return [table, legend] if bars else [table]


def _marked(row: Compared, largest: float, width: int) -> Text:
    """The bar with a mark at the truth."""
    drawn = bar(row.private, largest, width)
    drawn.pad_right(width - len(drawn))
    at = min(width - 1, round(row.true / largest * width))
    return Text.assemble(drawn[:at], ("┃", "bold yellow"), drawn[at + 1 :])


def findings(**said: str) -> list[Text]:
    """Sentences behind their names, one line each."""
    width = max(map(len, said)) + 1
    return [Text.assemble((name.capitalize().ljust(width), "bold"), text) for name, text in said.items()]


def promise(sentence: str, remark: str = "") -> list[Text | Panel]:
    """The guarantee in a frame, after an empty line."""
    body = Text.assemble(sentence, *(("\n", (remark, GREY)) if remark else ()))
    return [Text(""), framed(body, "[bold]The guarantee[/bold]", "green")]
