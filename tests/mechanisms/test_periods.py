"""Budgets that renew, against every period there is, one by one; and what broken variants let through."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import accumulate

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from susurrus.agents.config.calendars import calendar_of
from susurrus.mechanisms.accounting import delta_gaussian, gaussian_mu
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import ChargedSpan, Periods, Rolling
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.mechanisms.windows import CalendarLength, FixedWindows

DAY = 86_400_000
BUDGET = Budget(epsilon=6.5, delta=1e-6)


def costing(mu: float, failures: float = 1e-9) -> Guarantee:
    return Guarantee(epsilon=6.0, delta=2e-9, mu=mu, delta_gaussian=1e-9, delta_selection=failures)


ONE = costing(0.9)
"""Two of it are within BUDGET, and three are not: `tests/agents/runtime/test_budget.py` asks dp-accounting."""


def day(number: int, guarantee: Guarantee = ONE, days: int = 1) -> ChargedSpan:
    return ChargedSpan(number * DAY, (number + days) * DAY, guarantee)


def held(spans: Iterable[ChargedSpan], begin: int, length: int) -> tuple[Fraction, Fraction]:
    """What the period [begin, begin + length) holds, in fractions."""
    touched = [span.guarantee for span in spans if span.begin < begin + length and span.end > begin]
    return (
        sum((Fraction(one.mu) ** 2 for one in touched), Fraction(0)),
        sum((Fraction(one.delta_selection) for one in touched), Fraction(0)),
    )


SPANS = st.lists(
    st.builds(
        lambda begin, length, mu, failures: ChargedSpan(begin, begin + length, costing(mu, failures)),
        st.integers(0, 40),
        st.integers(1, 9),
        st.sampled_from([0.3, 0.6, 0.9, 1.3]),
        st.sampled_from([0.0, 1e-9, 3e-7]),
    ),
    min_size=1,
    max_size=9,
)


@given(spans=SPANS, length=st.integers(1, 25), halves=st.booleans())
@tried(max_examples=300, deadline=None)
def test_no_period_holds_more_than_those_that_are_looked_at(
    spans: list[ChargedSpan], length: int, halves: bool
) -> None:
    """Every period at every half millisecond, in fractions; and each that is looked at is held by one of them."""
    double = [ChargedSpan(2 * span.begin, 2 * span.end, span.guarantee) for span in spans] if halves else spans
    length *= 2 if halves else 1
    found = [(Fraction(s.mu_squared), Fraction(s.delta_selection)) for _, s in Periods(BUDGET, length).spends(double)]
    everywhere = {held(double, begin, length) for begin in range(-length - 2, 110)}
    for squares, failures in everywhere:
        assert any(squares <= most and failures <= lost for most, lost in found)
    tight = 1 + Fraction(1, 10**12)
    for squares, failures in found if halves else ():
        assert any(squares <= most * tight and failures <= lost * tight for most, lost in everywhere)


@given(spans=SPANS, length=st.integers(1, 25))
@tried(max_examples=300, deadline=None)
def test_a_span_is_allowed_where_every_period_that_touches_it_is_within_the_budget(
    spans: list[ChargedSpan], length: int
) -> None:
    *before, more = spans
    touching = range(more.begin - length + 1, more.end)
    fits = all(
        delta_gaussian(math.sqrt(squares), BUDGET.epsilon) + float(failures) <= BUDGET.delta
        for squares, failures in (held(spans, begin, length) for begin in touching)
    )
    if Periods(BUDGET, length).allows(before, more) is not fits:
        # A period that is open at its beginning may touch more than one of whole milliseconds.
        doubled = [
            held([ChargedSpan(2 * s.begin, 2 * s.end, s.guarantee) for s in spans], at, 2 * length)
            for at in range(-60, 110)
        ]
        assert fits
        assert any(delta_gaussian(math.sqrt(s), BUDGET.epsilon) + float(f) > BUDGET.delta for s, f in doubled)


@given(spans=SPANS, more=SPANS, length=st.integers(1, 25))
@tried(max_examples=200, deadline=None)
def test_with_more_charges_less_is_allowed_and_their_order_means_nothing(
    spans: list[ChargedSpan], more: list[ChargedSpan], length: int
) -> None:
    periods, (*before, last) = Periods(BUDGET, length), spans
    allowed = periods.allows(before, last)
    assert periods.allows(before[::-1], last) is allowed
    assert not periods.allows([*before, *more], last) or allowed


def test_a_period_touches_one_window_more_than_it_is_long() -> None:
    """30 days that begin at noon touch 31 days. The window a whole period later touches none of the same."""
    periods = Periods(BUDGET, 30 * DAY)
    assert periods.touched(DAY) == 31
    assert not periods.allows([day(0), day(1)], day(30))
    assert periods.allows([day(0), day(1)], day(31))
    assert not periods.allows([day(0), day(2)], ChargedSpan(31 * DAY - 1, 32 * DAY, ONE)), (
        "it ends less than a period before"
    )


def test_a_window_of_the_past_is_judged_by_what_came_later_too() -> None:
    """An archive is read while a live pipeline runs on the same topic."""
    periods = Periods(BUDGET, 30 * DAY)
    assert not periods.allows([day(40), day(60)], day(50))
    assert periods.allows([day(40), day(90)], day(50)), "no period touches all three"


def test_the_windows_that_begin_against_another_library() -> None:
    """Greedily, for 100 days: dp-accounting composes every period of 30 days, and each window that is skipped."""
    periods, guarantee = Periods(Budget(epsilon=8.0, delta=1e-6), 30 * DAY), costing(0.5)
    begun: list[int] = []
    skipped: list[int] = []
    for number in range(100):
        fits = periods.allows([day(one, guarantee) for one in begun], day(number, guarantee))
        (begun if fits else skipped).append(number)

    def delta(windows: int) -> float:
        accountant = PLDAccountant()
        accountant.compose(GaussianDpEvent(1 / guarantee.mu), windows)
        return float(accountant.get_delta(8.0)) + windows * guarantee.delta_selection

    most = max(sum(first <= one < first + 31 for one in begun) for first in range(100))
    assert 2 <= most < 31
    assert delta(most) <= 1e-6 < delta(most + 1)
    assert skipped, "and those without room are left out"
    for number in skipped:
        assert sum(number - 31 < one < number for one in begun) == most


def calendar_periods(periods: Periods, spans: list[ChargedSpan], more: ChargedSpan) -> bool:
    """Planted defect: periods that begin every 30 days, instead of at every instant."""
    held = [span for span in spans if span.begin // periods.length == more.begin // periods.length]
    return periods.budget.allows(_total([*held, more]))


def whole_periods(periods: Periods, spans: list[ChargedSpan], more: ChargedSpan) -> bool:
    """Planted defect: 30 windows of a day instead of the 31 that 30 days touch."""
    held = [span for span in spans if more.begin - periods.length < span.begin]
    return periods.budget.allows(_total([*held, more]))


def only_before(periods: Periods, spans: list[ChargedSpan], more: ChargedSpan) -> bool:
    """Planted defect: only the period that ends with the window."""
    held = [span for span in spans if more.begin - periods.length < span.end and span.begin <= more.begin]
    return periods.budget.allows(_total([*held, more]))


def _total(spans: list[ChargedSpan]) -> Spend:
    *_, total = accumulate((span.guarantee for span in spans), Spend.plus, initial=Spend())
    return total


@pytest.mark.parametrize("rule", [calendar_periods, whole_periods, only_before, None])
def test_broken_rules_let_a_user_lose_more_than_the_total_in_some_period(
    rule: Callable[[Periods, list[ChargedSpan], ChargedSpan], bool] | None,
) -> None:
    periods = Periods(Budget(epsilon=8.0, delta=1e-6), 30 * DAY)
    guarantee = costing(gaussian_mu(8.0, 5e-7) / math.sqrt(28))
    spans: list[ChargedSpan] = []
    order = [*range(60, 80), *range(60), *range(80, 120)]  # an archive is read beside a pipeline that runs
    for number in order:
        more = day(number, guarantee)
        if periods.allows(spans, more) if rule is None else rule(periods, spans, more):
            spans.append(more)
    worst = periods.worst(spans)
    assert worst is not None
    assert periods.budget.allows(worst[1]) is (rule is None)
    assert len(spans) > 50


@given(length=st.integers(1, 60), every=st.integers(1, 20), most=st.integers(1, 12), duration=st.integers(1, 300))
@tried(max_examples=200, deadline=None)
def test_windows_of_one_length_are_counted_without_trying_them_out(
    length: int, every: int, most: int, duration: int
) -> None:
    guarantee = costing(gaussian_mu(8.0, 5e-7) / math.sqrt(most) * (1 - 1e-6), 0.0)
    periods = Periods(Budget(epsilon=8.0, delta=5e-7), length)
    windows = [ChargedSpan(n * every, (n + 1) * every, guarantee) for n in range(900 // every + 30)]
    rolling = Rolling(periods, ())
    begun = [window for window in windows if rolling.begins(window)]
    in_turn: list[ChargedSpan] = []
    for window in windows[:40]:
        if periods.allows(in_turn, window):
            in_turn.append(window)
    assert begun[: len(in_turn)] == in_turn, "what a forecast says comes true"
    assert periods.fitting(guarantee, every) == min(most, periods.touched(every))
    touched = [sum(w.begin < at + duration + 0.5 and w.end > at + 0.5 for w in begun) for at in range(550)]
    assert max(touched) <= periods.most_within(duration, guarantee, FixedWindows(origin=0, length_ms=every))


@pytest.mark.parametrize("length", list(CalendarLength))
def test_windows_of_a_calendar_are_judged_by_where_they_begin_and_end(length: CalendarLength) -> None:
    """In Berlin, where a day has 23 hours once a year. 720 hours may then touch 32 days."""
    windows = calendar_of(length, "Europe/Berlin", 0, 900_000, 0).windows
    guarantee = costing(gaussian_mu(8.0, 5e-7) / math.sqrt(7) * (1 - 1e-6), 0.0)
    per = {CalendarLength.DAY: 30 * DAY, CalendarLength.WEEK: 90 * DAY, CalendarLength.MONTH: 365 * DAY}[length]
    periods = Periods(Budget(epsilon=8.0, delta=5e-7), per)
    first = windows.of_time(1_735_689_600_000)
    spans = [ChargedSpan(windows.start(n), windows.start(n + 1), guarantee) for n in range(first, first + 400)]
    rolling = Rolling(periods, ())
    begun = [span for span in spans if rolling.begins(span)]
    assert begun[0] == spans[0]
    assert len(begun) < 350
    for last in begun:
        touched = [one for one in begun if one.begin <= last.begin and one.end > last.begin - per]
        assert len(touched) <= 7
    year = 365 * DAY
    most = max(
        sum(one.begin <= last.begin and one.end > last.begin - year for one in begun)
        for last in spans
        if last.begin >= year
    )
    assert most <= periods.most_within(year, guarantee, windows)


def test_tens_of_thousands_of_windows_are_summed_exactly() -> None:
    minutes = [ChargedSpan(n * 60_000, (n + 1) * 60_000, costing(0.001 + n * 1e-9, 1e-13)) for n in range(45_000)]
    periods = Periods(BUDGET, 30 * DAY)
    [(_, most)] = periods.spends(minutes)
    last = minutes[-43_201:]
    wanted = math.fsum(one.guarantee.mu**2 for one in last)
    assert wanted <= most.mu_squared <= wanted * (1 + 1e-12)
    assert most.delta_selection == pytest.approx(43_201e-13, rel=1e-12)
    assert periods.until(minutes, minutes[-1].begin) == most


def test_an_empty_span_is_no_span() -> None:
    with pytest.raises(ValueError, match="at least one millisecond"):
        ChargedSpan(5, 5, ONE)
