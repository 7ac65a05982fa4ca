"""Released histograms for a terminal, as tables of any width; agents/display/drawing.py draws numbers and bars."""

from rich.table import Table
from rich.text import Text

from susurrus.agents.display.drawing import GREY, NARROW, bar, margin, upper
from susurrus.agents.frames import key_text, number
from susurrus.agents.histogram.estimates import Release


def histogram_table(release: Release, *, width: int, limit: int, column: str | None = None) -> Table:
    """The largest ``limit`` rows. Narrow terminals lose the bars first, then the further columns."""
    names = release.names(column)[: None if width >= NARROW else 1]
    rows = release.largest(max(1, limit), names[0])
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    table.add_column("key", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("± 95 %", justify="right", no_wrap=True, style=GREY)
    notes = release.notes(rows) if width >= NARROW else None
    if notes is not None:
        table.add_column("counted", no_wrap=True, style=GREY)
    bars = 0
    if width >= NARROW:
        bars = min(40, max(10, width // 4 - 8 * (len(names) - 1)))
        table.add_column("", width=bars, no_wrap=True)
    leading = [release.columns[names[0]].at(row) for row in rows]
    largest = max(map(upper, leading), default=0.0)
    for place, (row, leads) in enumerate(zip(rows, leading, strict=True)):
        cells: list[Text | str] = [Text(key_text(release.shown_keys[row]))]
        for name in names:
            measured = release.columns[name].at(row)
            cells += [number(measured.estimate), margin(measured)]
        if notes is not None:
            cells.append(notes[place])
        if bars:
            cells.append(bar(leads, largest, bars))
        table.add_row(*cells)
    return table
