"""Released histograms for a terminal: estimates, 95 % error bars as numbers and as bars, in any width.

A bar is solid up to the lower end of the error bar and shaded up to its upper end: what is solid is as good as certain.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from susurrus.agents.histogram.reader import Snapshot
from susurrus.topics.histogram import Measured, Row

Z95: Final = 1.96
"""Half-width of a 95 % error bar in standard errors; the noise is normal but for its rounding."""
NARROW: Final = 70


def key_text(key: Any) -> str:
    """A key as a person reads it: texts without quotes, composite keys joined; control characters never reach the
    terminal."""
    parts = key if isinstance(key, list) else [key]
    texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
    return " · ".join("".join(c if c.isprintable() else "�" for c in text) for text in texts)


def number(value: float) -> str:
    """A number with thousands separators and no more digits than mean something."""
    if isinstance(value, int) or abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def margin(measured: Measured) -> str:
    """The 95 % half-width, in whole numbers where the estimate is one."""
    half = Z95 * measured.std_error
    return number(math.ceil(half) if isinstance(measured.estimate, int) else half)


def bar(measured: Measured, largest: float, width: int) -> Text:
    """Solid to estimate - 1.96 standard errors, shaded to estimate + 1.96 standard errors; ``largest`` fills the
    width."""
    scale = width / largest if largest > 0 else 0.0
    low = round(max(0.0, measured.estimate - Z95 * measured.std_error) * scale)
    high = round(max(0.0, measured.estimate + Z95 * measured.std_error) * scale)
    solid, shaded = min(low, width), max(0, min(high, width) - min(low, width))
    return Text.assemble(("█" * solid, "cyan"), ("░" * shaded, "bright_black"))


def ranked(snapshot: Snapshot, column: str | None = None) -> list[Row]:
    """Rows by the estimate of a column (the first by default), largest first; ties by key."""
    return sorted(snapshot.rows, key=lambda row: (-_of(row, column).estimate, json.dumps(row.key)))


def _of(row: Row, column: str | None) -> Measured:
    return row.values[column] if column in row.values else next(iter(row.values.values()))


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
        table.add_column("± 95 %", justify="right", no_wrap=True, style="bright_black")
    bars = 0
    if names and width >= NARROW:
        bars = min(40, max(10, width // 4 - 8 * (len(names) - 1)))
        table.add_column("", width=bars, no_wrap=True)
    largest = max((_upper(_of(row, first)) for row in rows), default=0.0)
    for row in rows:
        cells: list[Text | str] = [Text(key_text(row.key))]
        for name in names:
            cells += [number(row.values[name].estimate), margin(row.values[name])]
        if bars:
            cells.append(bar(_of(row, first), largest, bars))
        table.add_row(*cells)
    return table


def _upper(measured: Measured) -> float:
    return measured.estimate + Z95 * measured.std_error


def caption(snapshot: Snapshot, shown: int) -> Text:
    """Which window, how far, how many keys."""
    keys = len(snapshot.rows)
    state = "final" if snapshot.final else f"trigger {snapshot.trigger} of {snapshot.of_triggers}"
    parts: Sequence[str] = (
        f"window {snapshot.window_start}",
        state,
        f"{keys:,} keys published" + (f", {shown} shown" if shown < keys else ""),
    )
    return Text(" · ".join(parts), style="bright_black")
