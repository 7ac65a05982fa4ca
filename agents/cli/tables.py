"""Released histograms for a terminal, as tables of any width; agents/operations/drawing.py draws numbers and bars."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from susurrus.agents.histogram.reader import Snapshot
from susurrus.agents.operations.drawing import GREY, NARROW, bar, key_text, margin, number, ranked, upper, value_of


def histogram_table(snapshot: Snapshot, *, width: int, limit: int, column: str | None = None) -> Table:
    """The largest ``limit`` rows. Narrow terminals lose the bars first, then the further columns."""
    rows = ranked(snapshot, column)[: max(1, limit)]
    names = list(rows[0].values) if rows else []
    first = column if column in names else (names[0] if names else None)
    names.sort(key=lambda name: name != first)
    if width < NARROW:
        names = names[:1]
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    table.add_column("key", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("± 95 %", justify="right", no_wrap=True, style=GREY)
    bars = 0
    if names and width >= NARROW:
        bars = min(40, max(10, width // 4 - 8 * (len(names) - 1)))
        table.add_column("", width=bars, no_wrap=True)
    largest = max((upper(value_of(row, first)) for row in rows), default=0.0)
    for row in rows:
        cells: list[Text | str] = [Text(key_text(row.key))]
        for name in names:
            cells += [number(row.values[name].estimate), margin(row.values[name])]
        if bars:
            cells.append(bar(value_of(row, first), largest, bars))
        table.add_row(*cells)
    return table


def caption(snapshot: Snapshot, shown: int) -> Text:
    """Which window, how far, how many keys."""
    keys = len(snapshot.rows)
    state = "final" if snapshot.final else f"trigger {snapshot.trigger} of {snapshot.of_triggers}"
    parts: Sequence[str] = (
        f"window {snapshot.window_start}",
        state,
        f"{keys:,} keys published" + (f", {shown} shown" if shown < keys else ""),
    )
    return Text(" · ".join(parts), style=GREY)
