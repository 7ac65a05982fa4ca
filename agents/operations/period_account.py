"""What a budget that renews holds in its period, which window is the next without room, and what a year comes to.

Part of the account (account.py): public, from the log of charges, the configuration and the calendar alone.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from susurrus.agents.operations.forecast import Rate, mu_squared_max
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import ChargedSpan, Periods, Rolling
from susurrus.mechanisms.spend import Spend
from susurrus.mechanisms.windows import TumblingWindows
from susurrus.topics.wire.timestamps import format_time

_MOST_WINDOWS: Final = 50_000
"""A forecast looks at no more windows; each costs some microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """What any 365 days come to at most. windows: of this pipeline; None where others charge, too. epsilon: at delta, which is the
    budget's for each period that a year has."""

    windows: int | None
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAccount:
    """Of one pipeline's raw topics. Lengths and instants in ms.

    per: length of the period. last: its last instant is the first of the next window. spent: what was charged for windows that it
    touches. epsilon: of that, at the budget's delta. share: of the budget, 0 to 1. worst: the largest epsilon of any period so far.
    left: windows of this pipeline that begin before one is skipped, if every pipeline goes on as it does; left_alone: if no other
    one charges any more; None for all that are to come. skips: the first one that has no room. resumes: the first one after it that
    has. Both None where there is none, or nobody knows. year: of the time to come.
    """

    per: int
    last: int
    spent: Spend
    epsilon: float
    share: float
    worst: float
    left: int | None = None
    left_alone: int | None = None
    skips: int | None = None
    resumes: int | None = None
    year: Year | None = None

    @property
    def skipping(self) -> bool:
        """Whether the next window has no room."""
        return self.skips == self.last

    def as_json(self) -> dict[str, Any]:
        """By name, as docs/how-to/share-a-budget.md has them."""
        year = self.year
        return {
            "seconds": self.per / 1000,
            "until": format_time(self.last),
            "epsilon": _finite(self.epsilon),
            "mu_squared": self.spent.mu_squared,
            "delta_selection": self.spent.delta_selection,
            "worst_epsilon": _finite(self.worst),
            "skips": None if self.skips is None else format_time(self.skips),
            "resumes": None if self.resumes is None else format_time(self.resumes),
            "year": None
            if year is None
            else {"windows": year.windows, "epsilon": _finite(year.epsilon), "delta": year.delta},
        }


def period_account(
    periods: Periods,
    spans: Sequence[ChargedSpan],
    next_window: int,
    own: Rate | None,
    others: Sequence[Rate],
    until: int | None,
) -> PeriodAccount:
    """spans: all that was charged. next_window: start of this pipeline's next one. own, others: what goes on to be charged; own is
    None where its cost is unknown. until: where an archive ends; no window begins from there on."""
    budget = periods.budget
    spent, worst = periods.until(spans, next_window), periods.worst(spans)
    rates = [rate for rate in (own, *others) if rate is not None]
    limit = mu_squared_max(budget, spent, rates)
    known: dict[str, Any] = {
        "per": periods.length,
        "last": next_window,
        "spent": spent,
        "epsilon": spent.epsilon_total(budget.delta),
        "share": min(1.0, spent.mu_squared / limit) if limit else 1.0,
        "worst": 0.0 if worst is None else worst[1].epsilon_total(budget.delta),
    }
    if own is None:
        return PeriodAccount(**known)
    left, skips, resumes = _outlook(periods, spans, own, others, until)
    return PeriodAccount(
        **known,
        left=left,
        left_alone=_outlook(periods, spans, own, (), until)[0],
        skips=skips,
        resumes=resumes,
        year=year_of(periods, own.guarantee, own.calendar, alone=not others),
    )


def year_of(periods: Periods, guarantee: Guarantee, windows: TumblingWindows, *, alone: bool = True) -> Year:
    """What 365 days come to, of windows that follow each other. Of several pipelines together: of as many
    periods as a year has, none holds more than the total; as one would hold it where all of them go on in proportion to this
    one."""
    if alone:
        most, epsilon, delta = periods.year(guarantee, windows)
        return Year(windows=most, epsilon=epsilon, delta=delta)
    number, delta = periods.in_a_year, periods.delta_of_year
    rate = Rate(guarantee, 0, windows)
    squares = mu_squared_max(periods.budget, Spend(), [rate])
    failures = squares / guarantee.mu**2 * guarantee.delta_selection if guarantee.mu else 0.0
    return Year(windows=None, epsilon=Spend(number * squares, number * failures).epsilon_total(delta), delta=delta)


def _outlook(
    periods: Periods, spans: Iterable[ChargedSpan], own: Rate, others: Sequence[Rate], until: int | None
) -> tuple[int | None, int | None, int | None]:
    """(own windows before the first that is skipped, its start, the start of the next one that begins)."""
    rolling, begun, skips = Rolling(periods, spans), 0, None
    horizon = own.first + 2 * periods.length + 2 * own.every
    windows = heapq.merge(
        *(_windows(rate, rate is own, horizon) for rate in (own, *others)), key=lambda each: each[0].begin
    )
    for span, is_own in islice(windows, _MOST_WINDOWS):
        if until is not None and span.begin >= until:
            break
        begins = rolling.begins(span)
        if not is_own:
            continue
        if skips is None:
            begun, skips = (begun + 1, None) if begins else (begun, span.begin)
        elif begins:
            return begun, skips, span.begin
    return (None if skips is None else begun), skips, None


def _windows(rate: Rate, is_own: bool, horizon: int) -> Iterator[tuple[ChargedSpan, bool]]:
    begin = rate.first
    while begin < horizon and (end := rate.calendar.later(begin, 1)) > begin:
        yield ChargedSpan(begin, end, rate.guarantee), is_own
        begin = end


def _finite(number: float) -> float | None:
    return number if number < float("inf") else None
