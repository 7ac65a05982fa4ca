"""Draws the account of a raw topic for a terminal: what was spent and what is left, for `susurrus ledger show` and `status`."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from susurrus.agents.display.drawing import GREY
from susurrus.agents.operations.account import Account
from susurrus.agents.operations.charged import RECENT, PipelineAccount
from susurrus.agents.operations.period_account import PeriodAccount
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.spend import Budget
from susurrus.topics.records.zones import local_text

_DAY: Final = 86_400_000
_WIDE: Final = 100
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_TITLE: Final = 11
"""Columns of the names before the lines."""
_CHART: Final = 44
_SHORT: Final = 14
_SHOWN: Final = 5


def picture(account: Account, width: int) -> Group:
    """Everything, with as many columns as the width allows."""
    lines = Table.grid(padding=(0, 1))
    lines.add_column(style="bold", no_wrap=True, width=_TITLE)
    lines.add_column(overflow="fold")
    for name, line in _lines(account, min(_CHART, width - _TITLE - 21)):
        lines.add_row(name, line if isinstance(line, Text) else Text(line))  # as markup, a text would lose "[budget]"
    head = f" on raw topic {account.raw_topic}, {local_text(account.time_zone, account.at // 1000 * 1000)}"
    foot = (
        "What was spent is what a user spent who was active in every window. Nobody's activity is measured, so this is public. "
        "epsilon and mu are those of one window."
    )
    return Group(
        Text.assemble((account.pipeline, "bold"), head),
        lines,
        Text(""),
        _pipelines(account, width),
        Text(""),
        Text(foot, style=GREY),
    )


def headline(account: Account) -> Text:
    """One line for `susurrus status`."""
    if account.budget is None:
        return Text(f"no [budget] · {_loss(account)} spent" if account.spent.mu_squared else "no [budget]")
    if (period := account.period) is not None:
        return Text.assemble(
            "budget ",
            bar(account, _SHORT),
            f" {account.share or 0:.0%} of {_any(period)} spent{_until_skip(account, period)}",
        )
    left = account.windows_left_at_pace
    until = "" if account.stop is None or not left else f", until {_when(account.stop, account.time_zone)}"
    windows = "" if left is None else f" · {_windows(left)} left{until}"
    return Text.assemble("budget ", bar(account, _SHORT), f" {account.share or 0:.0%} spent", windows)


def bar(account: Account, width: int) -> Text:
    """The share of the budget: red where no window is left, yellow where less than a tenth is."""
    share = account.share or 0.0
    full = min(width, round(share * width))
    style = "red" if account.windows_left == 0 else "yellow" if share > 0.9 else "cyan"
    return Text.assemble(("█" * full, style), ("░" * (width - full), GREY))


def _lines(account: Account, chart: int) -> Iterator[tuple[str, Text | str]]:
    """(name, text) of each line before the table. chart: columns of a bar."""
    if (budget := account.budget) is None:
        yield "budget", "none, so nothing stops a pipeline on this topic; set [budget] in the configuration of each"
        yield "spent", _loss(account) if account.spent.mu_squared else "nothing yet"
        if (after := account.after(RECENT)) is not None:
            yield (
                f"{RECENT} more",
                f"windows of {account.pipeline} bring it to epsilon {after[0]:.3g} at delta {after[1]:.3g}",
            )
    elif (period := account.period) is not None:
        yield from _of_period(account, budget, period, chart)
    else:
        yield (
            "budget",
            f"epsilon {budget.epsilon:g} at delta {budget.delta:g}, for all pipelines on this topic together",
        )
        yield "spent", f"{_loss(account)} (delta {account.delta_at_budget:.3g} at epsilon {budget.epsilon:g})"
        yield "", Text.assemble(bar(account, chart), f" {account.share or 0:.1%} of the budget")
        yield from _burn_down(account, chart)
        yield "left", _left(account)
        if account.windows_left_at_pace not in (None, account.windows_left):
            yield "", f"{_windows(account.windows_left or 0)}, if no other pipeline charged this topic any more"
        yield "stop", _stop(account)
    yield "pace", _pace(account.own, renews=account.period is not None)
    if len(account.epochs) > 1:
        epochs = [
            f"{e.epoch[:8]} ({_windows(e.windows)} from {_when(e.first_window, account.time_zone)})"
            for e in account.epochs
        ]
        more = f" and {len(epochs) - _SHOWN} earlier ones" if len(epochs) > _SHOWN else ""
        yield "epochs", ", ".join(epochs[-_SHOWN:]) + more
    if beyond := [row for row in account.pipelines if row.beyond]:
        named = ", ".join(f"{row.beyond:,} of {row.pipeline}" for row in beyond)
        yield (
            "beyond",
            f"charges that exceed [budget]: {named}. They were refused, or made under another [budget]; they count",
        )


def _loss(account: Account) -> str:
    epsilon = f"{account.epsilon:.3g}" if account.epsilon < float("inf") else "unbounded"
    return f"epsilon {epsilon} at delta {account.delta:.3g}"


def _left(account: Account) -> str:
    """How many windows are left at this pace."""
    left, at_pace = account.windows_left, account.windows_left_at_pace
    if left is None:
        return "unknown, because no window of this pipeline was charged yet"
    if at_pace is None:
        return "enough for every window that is to come"
    if not at_pace:
        return "no window"
    others = "" if at_pace == left else ", if every pipeline goes on as it does"
    return f"{_windows(at_pace)} ({format_duration(at_pace * (account.own.every or 0))}){others}"


def _stop(account: Account) -> str:
    if account.stop is None:
        if account.windows_left is None:
            return "unknown"
        return "none: every window that is to come fits"
    if account.own.beyond:
        refused = _when(account.stop, account.time_zone)
        return f"the window of {refused} was refused: raise [budget] in the open, or stop the pipeline"
    away = account.stop - account.at
    far = f", in {format_duration(away // _unit(away) * _unit(away))}" if account.live and away > 0 else ""
    return f"the window of {_when(account.stop, account.time_zone)} is the first that will not be published{far}"


def _unit(milliseconds: int) -> int:
    """What a length of time is rounded to: days, hours or minutes."""
    return _DAY if milliseconds > 3 * _DAY else 3_600_000 if milliseconds > 10_800_000 else 60_000


def _of_period(account: Account, budget: Budget, period: PeriodAccount, chart: int) -> Iterator[tuple[str, Text | str]]:
    """The lines of a budget that renews."""
    per, last = format_duration(period.per), _when(period.last, account.time_zone)
    yield (
        "budget",
        f"epsilon {budget.epsilon:g} at delta {budget.delta:g} for any {per}, for all pipelines on this topic together",
    )
    yield (
        "period",
        f"{_epsilon(period.epsilon)} at delta {budget.delta:g} in the {per} up to the window of {last}",
    )
    yield "", Text.assemble(bar(account, chart), f" {account.share or 0:.1%} of the budget")
    yield "worst", f"{_epsilon(period.worst)} at delta {budget.delta:g} in any {per} so far"
    yield "spent", f"{_loss(account)} in all" if account.spent.mu_squared else "nothing yet"
    yield "left", _left_of_period(account, period)
    if account.windows_left_at_pace != account.windows_left:
        alone = "every window" if account.windows_left is None else _windows(account.windows_left)
        yield "", f"{alone}, if no other pipeline charged this topic any more"
    if (year := period.year) is not None:
        windows = "" if year.windows is None else f"{_windows(year.windows)} at most, "
        yield (
            "year",
            f"{windows}{_epsilon(year.epsilon)} at delta {year.delta:.3g} in any 365d, if it goes on like this",
        )


def _left_of_period(account: Account, period: PeriodAccount) -> str:
    if account.per_window is None:
        return "unknown, because no window of this pipeline was charged yet"
    if period.skips is None:
        return "enough for every window that is to come"
    again = (
        ""
        if period.resumes is None
        else f"; windows begin again with that of {_when(period.resumes, account.time_zone)}"
    )
    if period.skipping:
        return f"no room for the window of {_when(period.skips, account.time_zone)}, which is skipped{again}"
    return f"{_windows(period.left or 0)}; that of {_when(period.skips, account.time_zone)} is skipped{again}"


def _any(period: PeriodAccount) -> str:
    return f"[budget] per {format_duration(period.per)}"


def _until_skip(account: Account, period: PeriodAccount) -> str:
    if period.skips is None:
        return ""
    if period.skipping:
        return " · windows are skipped" + (
            "" if period.resumes is None else f" until {_when(period.resumes, account.time_zone)}"
        )
    return f" · {_windows(period.left or 0)} until one is skipped, {_when(period.skips, account.time_zone)}"


def _epsilon(epsilon: float) -> str:
    return f"epsilon {epsilon:.3g}" if epsilon < float("inf") else "epsilon unbounded"


def _pace(row: PipelineAccount, *, renews: bool) -> str:
    """How often the pipeline begins a window, and whether it was charged for each lately."""
    if not row.every:
        return "unknown"
    said, due = f"a window every {format_duration(row.every)}", row.recent_due
    if row.recent < due and renews:
        return f"{said}; of the last {due:,} that are over, {row.recent:,} were charged, and the others skipped or not begun yet"
    if row.recent < due:
        return f"{said}; of the last {due:,} that are over, {row.recent:,} were charged: `susurrus status` says why"
    return f"{said}; all of the last {due:,} that are over were charged" if due > 1 else said


def _burn_down(account: Account, width: int) -> Iterator[tuple[str, Text | str]]:
    """What is left of the budget over time, from the first window to the stop: what was, then what is to come."""
    limit, points, stop = account.mu_squared_max, account.series, account.stop
    if not limit or len(points) < 2 or stop is None or stop <= points[0][0]:
        return
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    end = max(stop, last)
    line = Text()
    at, done = 0, 0.0
    for column in range(width):
        moment = first + (end - first) * column / (width - 1)
        while at < len(points) and points[at][0] <= moment:
            at, done = at + 1, points[at][1]
        if moment <= last:
            spent, style = done, "cyan"
        else:
            spent, style = done + (limit - done) * (moment - last) / max(1, end - last), GREY
        left = max(0.0, 1 - spent / limit)
        line.append(_BLOCKS[min(len(_BLOCKS) - 1, int(left * len(_BLOCKS)))], style)
    dates = _when(first, account.time_zone).ljust(width - len(_when(end, account.time_zone))) + _when(
        end, account.time_zone
    )
    yield "burn-down", line
    yield "", Text(dates, style=GREY)


def _pipelines(account: Account, width: int) -> Table:
    """Who charges: one row for each pipeline."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    wide = width >= _WIDE
    names = ("pipeline", "windows", *(("first",) if wide else ()), "last", "a day", "epsilon", "mu", "of spent")
    for name in names:
        table.add_column(name, justify="left" if name in ("pipeline", "first", "last") else "right", no_wrap=True)
    table.columns[0].overflow = "ellipsis"
    for row in account.pipelines:
        table.add_row(*_cells(row, account, wide=wide))
    return table


def _cells(row: PipelineAccount, account: Account, *, wide: bool) -> Sequence[str | Text]:
    last = "-" if row.last_window is None else _when(row.last_window, account.time_zone)
    first = ["-" if row.first_window is None else _when(row.first_window, account.time_zone)] if wide else []
    pace = "ended" if not row.active else "-" if row.calendar_pace is None else _rate(row.calendar_pace)
    promise = (account.per_window if row.own else None) or row.newest
    cost = ("-", "-") if promise is None else (f"{promise.epsilon:g}", f"{promise.mu:.3g}")
    share = row.mu_squared / account.spent.mu_squared if account.spent.mu_squared else 0.0
    windows = f"{row.charges:,} run{'' if row.charges == 1 else 's'}" if row.tuning else f"{row.windows:,}"
    name = Text(row.pipeline, style="bold" if row.own else "")
    return name, windows, *first, last, "-" if row.tuning else pace, *cost, f"{share:.0%}"


def _rate(a_day: float) -> str:
    return f"{a_day:,.0f}" if a_day >= 100 else f"{a_day:.3g}"


def _windows(number: int) -> str:
    return f"{number:,} window{'' if number == 1 else 's'}"


def _when(stamp: int, time_zone: str | None) -> str:
    """A window by its start: the date alone where it begins at midnight, in UTC or on the clocks of the zone."""
    text = local_text(time_zone, stamp)
    return text[:10] if text[10:19] == "T00:00:00" else text
