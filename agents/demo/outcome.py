"""The private histogram of the demonstration beside the truth: error bars, what was kept, what was missed, what is
promised.

Only a demonstration may show the true counts. The error bars speak of the noise; what the cap on urls per host leaves
out is told apart.
"""

from collections import Counter
from dataclasses import dataclass

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.tables import NARROW, Z95, bar, key_text, margin, number, ranked
from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.histogram.reader import Snapshot
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics.histogram import Measured, Row

GREY = "bright_black"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the comparison says. true: hosts per url; capped: after the cap, which is what the noise was added to."""

    published: int
    urls: int
    covered: int
    mean_error: float
    missed: str
    missed_true: int
    all_above: int
    dropped: float


def compare(snapshot: Snapshot, true: Counter[str], capped: Counter[str]) -> Outcome:
    """Compare a released histogram with the exact one, key by key."""
    values = {row.key: _value(row) for row in snapshot.rows}
    covered = sum(abs(v.estimate - capped[url]) <= Z95 * v.std_error for url, v in values.items())
    error = sum(abs(v.estimate - true[url]) for url, v in values.items()) / max(1, len(values))
    missed = next(((url, count) for url, count in true.most_common() if url not in values), ("", 0))
    return Outcome(
        published=len(values),
        urls=len(true),
        covered=covered,
        mean_error=error,
        missed=missed[0],
        missed_true=missed[1],
        all_above=missed[1] + 1,
        dropped=1 - capped.total() / max(1, true.total()),
    )


def picture(snapshot: Snapshot, log: WebLog, settings: HistogramSettings, *, rows: int, width: int) -> Group:
    """The whole result as one renderable."""
    limit = settings.bounds.max_records_per_user
    true, capped = log.true_counts(), log.true_counts(limit)
    found = compare(snapshot, true, capped)
    shown = ranked(snapshot)[:rows]
    return Group(
        _table(shown, true, width),
        _below(found.published - len(shown), width),
        *_findings(found, limit, snapshot),
        Text(""),
        _promise(settings),
    )


def _table(rows: list[Row], true: Counter[str], width: int) -> Table:
    table = Table(expand=True, box=None, pad_edge=False, header_style="bold")
    table.add_column("url", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("true", justify="right", no_wrap=True)
    table.add_column("private", justify="right", no_wrap=True, style="cyan")
    table.add_column("± 95 %", justify="right", no_wrap=True, style=GREY)
    bars = min(36, width // 3) if width >= NARROW else 0
    if bars:
        table.add_column("", width=bars, no_wrap=True)
    largest = max((max(true[row.key], _value(row).estimate + Z95 * _value(row).std_error) for row in rows), default=1)
    for row in rows:
        value = _value(row)
        cells: list[str | Text] = [
            Text(key_text(row.key)),
            number(true[row.key]),
            number(value.estimate),
            margin(value),
        ]
        if bars:
            cells.append(_marked(value, true[row.key], largest, bars))
        table.add_row(*cells)
    return table


def _below(more: int, width: int) -> Text:
    parts = [f"… and {more} more"] if more > 0 else []
    if width >= NARROW:
        parts.append("█ up to the error bar, ░ the error bar, ┃ the truth")
    return Text("   ".join(parts), style=GREY)


def _marked(value: Measured, true: int, largest: float, width: int) -> Text:
    """The bar with a mark at the true count."""
    drawn = bar(value, largest, width)
    drawn.pad_right(width - len(drawn))
    at = min(width - 1, round(true / largest * width))
    return Text.assemble(drawn[:at], ("┃", "bold yellow"), drawn[at + 1 :])


def _findings(found: Outcome, limit: int, snapshot: Snapshot) -> list[Text]:
    kept = (
        f"{found.published:,} of {found.urls:,} urls, after trigger {snapshot.trigger} of {snapshot.of_triggers}; "
        f"every url with {found.all_above:,} hosts or more is among them."
    )
    missed = (
        f"the others, too rare to hide a host in; the largest is {key_text(found.missed)} with "
        f"{found.missed_true:,} hosts."
    )
    error = (
        f"{found.mean_error:.1f} hosts on average; {found.covered} of {found.published} error bars hold the exact "
        f"count of what was kept; a host counts for its first {limit} urls, so {found.dropped:.1%} is left out."
    )
    named = (("Kept    ", kept), ("Missed  ", missed if found.missed else "none."), ("Error   ", error))
    return [Text.assemble((name, "bold"), text) for name, text in named]


def _promise(settings: HistogramSettings) -> Panel:
    sentence = build_strategy(settings.plan()).guarantee.sentence()
    body = Text.assemble(
        sentence,
        "\n",
        ("Here a user is a host, and the window is the day. The demo made its own secret for the noise; a real ", GREY),
        ("pipeline is given one and keeps it, for whoever has it can take the noise away.", GREY),
    )
    return Panel(body, title="[bold]The guarantee[/bold]", title_align="left", border_style="green", padding=(0, 1))


def _value(row: Row) -> Measured:
    return next(iter(row.values.values()))
