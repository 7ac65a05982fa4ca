"""What was charged to a raw topic, by which pipelines, and when `[budget]` ends: for `susurrus ledger show`, status, metrics and
dashboards.

Everything here is public. The account depends on the log of charges, the configuration, the calendar and the clock, and on no
record of any user. Every window is charged to every user, whether or not the user was there (docs/guarantees/composition.md).
"""

import math
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from msgspec import structs

from susurrus.agents.config.settings import Settings
from susurrus.agents.operations.charged import DAY, RECENT, EpochAccount, PipelineAccount, epochs_of, row_of
from susurrus.agents.operations.forecast import Rate, first_overdraft, mu_squared_max
from susurrus.agents.operations.period_account import PeriodAccount, period_account
from susurrus.agents.runtime.budget import budget_of, charged_once, guarantee_of, periods_of, spans_of
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import Periods
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.topics.charges import Charge, pays_for_window, seen_by
from susurrus.topics.wire.timestamps import LATEST, format_time

SCHEMA: Final = 1
"""The version of what `Account.as_json` returns."""
_MOST_POINTS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a user has spent who was active in every window of every pipeline on any of the raw topics, and what is left.
    Instants in ms.

    pipelines: this one first, then the others by name. spent: by all of them. delta: the budget's, or without one the sum over the
    charges; epsilon: of `spent` at this delta, infinite where the selection failures alone exceed it. per_window: what this
    pipeline's next window costs, None where that is unknown. live: whether the clock is the wall's; an archive has its own time.
    series: (start of a window, mu^2 of all charges for windows up to it).

    The other fields are None without a budget. Where it renews (`period`), share, windows_left, windows_left_at_pace and stop
    are about the period that ends with the next window: stop is the first window that is skipped. delta_at_budget: of `spent`
    at the budget's epsilon. mu_squared_max: the sum of mu^2 at which the budget ends if all pipelines go on as they do. share:
    of the budget, 0 to 1: mu^2 spent over mu_squared_max. Where all windows cost the same, that is windows charged over windows
    possible. windows_left: this pipeline's windows that fit if no other one charges. windows_left_at_pace: those that fit if
    every active pipeline charges each of its windows. stop: the start of the first window after those. The last two are None if
    the budget never ends. time_zone: on whose clocks this pipeline's windows are days, weeks or months.
    """

    raw_topic: str
    pipeline: str
    at: int
    live: bool
    pipelines: tuple[PipelineAccount, ...]
    epochs: tuple[EpochAccount, ...]
    spent: Spend
    per_window: Guarantee | None
    delta: float
    epsilon: float
    budget: Budget | None = None
    delta_at_budget: float | None = None
    mu_squared_max: float | None = None
    share: float | None = None
    windows_left: int | None = None
    windows_left_at_pace: int | None = None
    stop: int | None = None
    time_zone: str | None = None
    period: PeriodAccount | None = None
    series: tuple[tuple[int, float], ...] = field(default=(), repr=False)

    @property
    def own(self) -> PipelineAccount:
        """This pipeline's row."""
        return self.pipelines[0]

    @property
    def pace(self) -> float:
        """mu^2 that all active pipelines charge in a day, by their calendars."""
        return sum((rate.guarantee.mu**2 * DAY / rate.every for rate in _rates(self.pipelines, self.per_window)), 0.0)

    def after(self, windows: int) -> tuple[float, float] | None:
        """(epsilon, delta) after so many further windows of this pipeline alone: at the budget's delta, or without one at the sum
        over all of them. None where the cost of a window is unknown."""
        if self.per_window is None:
            return None
        delta = self.delta if self.budget is not None else self.delta + windows * self.per_window.delta
        return self.spent.plus(self.per_window, windows).epsilon_total(delta), delta

    def as_json(self) -> dict[str, Any]:
        """The account as JSON has it: names that stay, instants as RFC 3339 text in UTC, null for what is unknown or infinite.

        docs/how-to/share-a-budget.md lists the names. Of a long series, 500 points.
        """
        spent, more = self.spent, self.after(RECENT)
        return {
            "schema": SCHEMA,
            "at": format_time(self.at),
            "raw_topic": self.raw_topic,
            "pipeline": self.pipeline,
            "live": self.live,
            "budget": None if self.budget is None else {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "period": None if self.period is None else self.period.as_json(),
            "spent": {
                "mu": spent.mu,
                "mu_squared": spent.mu_squared,
                "delta_selection": spent.delta_selection,
                "epsilon": _finite(self.epsilon),
                "delta": self.delta,
                "delta_at_budget_epsilon": self.delta_at_budget,
            },
            f"after_{RECENT}_windows": None if more is None else {"epsilon": _finite(more[0]), "delta": more[1]},
            "share_spent": self.share,
            "mu_squared_max": self.mu_squared_max,
            "windows_left": self.windows_left,
            "windows_left_at_pace": self.windows_left_at_pace,
            "stop": _instant(self.stop),
            "pipelines": [_row(row) for row in self.pipelines],
            "epochs": [
                {
                    "epoch": epoch.epoch,
                    "windows": epoch.windows,
                    "first_window": format_time(epoch.first_window),
                    "last_window": format_time(epoch.last_window),
                }
                for epoch in self.epochs
            ],
            "series": [{"window": format_time(window), "mu_squared": total} for window, total in _thin(self.series)],
        }


def _row(row: PipelineAccount) -> dict[str, Any]:
    newest = row.newest
    return {
        "pipeline": row.pipeline,
        "own": row.own,
        "tuning": row.tuning,
        "active": row.active,
        "charges": row.charges,
        "windows": row.windows,
        "windows_beyond_budget": row.beyond,
        "epochs": row.epochs,
        "first_window": _instant(row.first_window),
        "last_window": _instant(row.last_window),
        "window_seconds": None if row.every is None else row.every / 1000,
        "windows_a_day": {"recent": row.pace, "calendar": row.calendar_pace},
        "newest": None if newest is None else {"epsilon": newest.epsilon, "delta": newest.delta, "mu": newest.mu},
        "mu_squared": row.mu_squared,
        "delta_selection": row.delta_selection,
        "epsilon_sum": row.epsilon_sum,
        "delta_sum": row.delta_sum,
    }


def _instant(stamp: int | None) -> str | None:
    return None if stamp is None else format_time(stamp)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _thin(series: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Keeps at most _MOST_POINTS of the points, the first and the last among them."""
    if len(series) <= _MOST_POINTS:
        return series
    return [series[round(n * (len(series) - 1) / (_MOST_POINTS - 1))] for n in range(_MOST_POINTS)]


def account_of(
    charges: Iterable[Charge],
    settings: Settings,
    now: int,
    *,
    guarantee: Guarantee | None = None,
    raw_topics: Sequence[str] | None = None,
) -> Account:
    """The account of a pipeline's raw topics, from public data only: configuration, calendar, the log of charges, the time.

    charges: in the order of the log; those on other raw topics are left out. now: ms since 1970. guarantee: what this pipeline's
    next window costs; by default what its newest did. raw_topics: of the pipeline; by default those that the settings name.
    """
    raw_topics = settings.input.listed if raw_topics is None else raw_topics
    prefix = settings.pipeline.prefix
    charges = [
        structs.replace(charge, pipeline=seen_by(prefix, charge.pipeline))
        for charge in charged_once(charges, raw_topics)
    ]
    name, budget = settings.pipeline.name, budget_of(settings)
    groups: dict[str, list[Charge]] = {name: []}
    for charge in charges:
        groups.setdefault(charge.pipeline, []).append(charge)
    if guarantee is None and groups[name]:
        guarantee = guarantee_of(groups[name][-1])
    sums = list(accumulate(map(guarantee_of, charges), Spend.plus, initial=Spend()))
    periods = periods_of(settings)
    for_life = None if periods is not None else budget
    spent, beyond = sums[-1], [] if for_life is None else charges[_fitting(sums, for_life) :]
    refused = Counter(charge.pipeline for charge in beyond)
    live = settings.clock.until is None
    present = now if live else max((c.window for c in charges if pays_for_window(c)), default=now)
    rows = [row_of(each, found, settings, present, beyond=refused[each]) for each, found in groups.items()]
    rows = [rows[0], *sorted(rows[1:], key=lambda row: row.pipeline)]
    first_refused = next((charge.window for charge in beyond if charge.pipeline == name), None)
    delta = sum(charge.delta for charge in charges) if for_life is None else for_life.delta
    known = Account(
        raw_topic=", ".join(raw_topics),
        pipeline=name,
        at=now,
        live=live,
        pipelines=tuple(rows),
        epochs=tuple(epochs_of(groups[name])),
        spent=spent,
        per_window=guarantee,
        delta=delta,
        epsilon=spent.epsilon_total(delta),
        budget=budget,
        time_zone=settings.window.time_zone,
        series=tuple(_series(charges)),
    )
    if budget is None:
        return known
    if periods is not None:
        return _with_period(known, periods, charges, settings, present)
    return _with_outlook(known, budget, first_refused, settings.clock.until)


def _with_period(
    known: Account, periods: Periods, charges: Sequence[Charge], settings: Settings, present: int
) -> Account:
    """The account with what depends on a budget that renews. Windows that are skipped are not charged: the next is not before the
    one of the present."""
    own, calendar = known.own, settings.calendar
    current = calendar.window_start(calendar.window_at(present)) if known.live else own.next_window or present
    following = max(own.next_window or current, current)
    mine = None
    if known.per_window is not None and own.calendar is not None:
        mine = Rate(known.per_window, following, own.calendar)
    others = [replace(rate, first=_not_before(rate, current)) for rate in _rates(known.pipelines[1:], None)]
    period = period_account(periods, spans_of(charges), following, mine, others, settings.clock.until)
    return replace(
        known,
        delta_at_budget=period.spent.delta_total(periods.budget.epsilon),
        share=period.share,
        windows_left=period.left_alone,
        windows_left_at_pace=period.left,
        stop=period.skips,
        period=period,
    )


def _not_before(rate: Rate, present: int) -> int:
    """The start of a rate's first window from an instant on."""
    return (
        rate.first
        if rate.first >= present
        else rate.calendar.later(rate.first, rate.calendar.count(rate.first, present))
    )


def _with_outlook(known: Account, budget: Budget, refused: int | None, until: int | None) -> Account:
    """The account with what depends on the budget. refused: this pipeline's first window that did not fit. until: where the archive
    ends."""
    own, spent, rates = known.own, known.spent, _rates(known.pipelines, known.per_window)
    limit = mu_squared_max(budget, spent, rates)
    left = at_pace = stop = None
    if known.per_window is not None and own.next_window is not None and own.calendar is not None:
        left = budget.windows_left(spent, known.per_window)
        if refused is not None:
            at_pace, stop = 0, refused
        elif until is not None and own.next_window >= until:
            pass  # the archive has no further window
        elif (end := first_overdraft(budget, spent, rates, LATEST if until is None else until - 1)) is not None:
            at_pace = own.calendar.count(own.next_window, end)
            stop = own.calendar.later(own.next_window, at_pace)
    return replace(
        known,
        delta_at_budget=spent.delta_total(budget.epsilon),
        mu_squared_max=limit,
        share=min(1.0, spent.mu_squared / limit) if limit else 1.0,
        windows_left=left,
        windows_left_at_pace=at_pace,
        stop=stop,
    )


def _rates(rows: Sequence[PipelineAccount], per_window: Guarantee | None) -> list[Rate]:
    """What every active pipeline goes on to charge. per_window: of this pipeline."""
    rates = []
    for row in rows:
        guarantee = per_window if row.own else row.newest
        if row.active and guarantee is not None and row.next_window is not None and row.calendar is not None:
            rates.append(Rate(guarantee, row.next_window, row.calendar))
    return rates


def _series(charges: Sequence[Charge]) -> Iterator[tuple[int, float]]:
    by_window: dict[int, float] = defaultdict(float)
    for charge in charges:
        by_window[charge.window] += charge.mu**2
    yield from zip(sorted(by_window), accumulate(by_window[window] for window in sorted(by_window)), strict=True)


def _fitting(sums: Sequence[Spend], budget: Budget) -> int:
    """How many charges fit. sums: after 0, 1, … charges; they only grow."""
    return bisect(sums, False, key=lambda spend: not budget.allows(spend)) - 1


def without_windows(settings: Settings, reason: str) -> dict[str, Any]:
    """The JSON for a pipeline whose promise is not about windows: no pipelines, and why."""
    return {
        "schema": SCHEMA,
        "raw_topic": settings.input.called,
        "pipeline": settings.pipeline.name,
        "pipelines": [],
        "reason": reason,
    }
