"""Released histograms for a terminal, as tables of any width; agents/display/drawing.py draws numbers and bars."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from susurrus.agents.display.drawing import GREY, NARROW, bar, margin, upper
from susurrus.agents.frames import key_text, number
from susurrus.agents.histogram.estimates import Release

_KEY: Final = 20
"""Characters that keys have at least beside several columns; more on a wide terminal."""
_BETWEEN: Final = 2
"""Characters between two columns."""
_LEAST_BAR: Final = 10


def histogram_table(release: Release, *, width: int, limit: int, column: str | None = None) -> Table:
    """The largest ``limit`` rows. Narrow terminals lose the bars first, then the further columns; the caption says how many."""
    every = release.names(column)
    rows = release.largest(max(1, limit), every[0])
    notes = release.notes(rows) if width >= NARROW else None
    cells = {name: _cells(release, name, rows) for name in every}
    room = width - max(_KEY, width // 5)
    if notes is not None:
        room -= _BETWEEN + max(map(len, ("counted", *notes)))
    names, room = _fitting(cells, room) if width >= NARROW else (every[:1], 0)
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    table.add_column("key", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in names:
        _, (heading, *_) = cells[name]
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column(heading, justify="right", no_wrap=True, style=GREY)
    if notes is not None:
        table.add_column("counted", no_wrap=True, style=GREY)
    bars = min(40, max(_LEAST_BAR, width // 4 - 8 * (len(names) - 1)), room - _BETWEEN)
    if bars >= _LEAST_BAR:
        table.add_column("", width=bars, no_wrap=True)
    leading = [release.columns[names[0]].at(row) for row in rows]
    largest = max(map(upper, leading), default=0.0)
    for place, (row, leads) in enumerate(zip(rows, leading, strict=True)):
        shown: list[Text | str] = [Text(key_text(release.shown_keys[row]))]
        shown += [texts[place + 1] for name in names for texts in cells[name]]
        if notes is not None:
            shown.append(notes[place])
        if bars >= _LEAST_BAR:
            shown.append(bar(leads, largest, bars))
        table.add_row(*shown)
    if more := len(every) - len(names):
        table.caption = f"{more} more {'column' if more == 1 else 'columns'}: --column shows one first"
        table.caption_style, table.caption_justify = GREY, "left"
    return table


def _cells(release: Release, name: str, rows: Sequence[int]) -> tuple[list[str], list[str]]:
    """The texts of a column and those of its error bars, headings first."""
    column = release.columns[name]
    measured = [column.at(row) for row in rows]
    heading = "± 95 %" if column.interval is None else "95 %"
    return [name, *(number(each.estimate) for each in measured)], [heading, *map(margin, measured)]


def _fitting(cells: Mapping[str, tuple[list[str], list[str]]], room: int) -> tuple[list[str], int]:
    """The columns that fit, at least one, and the room that they leave."""
    names = list[str]()
    for name, texts in cells.items():
        needed = sum(_BETWEEN + max(map(len, each)) for each in texts)
        if names and needed > room:
            break
        names.append(name)
        room -= needed
    return names, room
