"""The account of a raw topic against charging one window after the other, by dp-accounting and by hand."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dp_accounting
import msgspec
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st
from scipy.stats import norm

from susurrus.agents.config.settings import Settings
from susurrus.agents.operations.account import account_of
from susurrus.mechanisms.errors import BudgetExhausted
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import Periods
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.mechanisms.windows import FixedWindows
from susurrus.topics.charges import Charge
from tests.agents.released import DAY
from tests.agents.released import settings as base

NOW = 20_000 * DAY + DAY // 2
"""Noon."""
HOUR = DAY // 24


def charge(
    window: int, pipeline: str = "page-views", *, mu: float = 0.5, epoch: str = "ab", raw: str = "raw"
) -> Charge:
    return Charge(
        raw_topic=raw,
        window=window,
        pipeline=pipeline,
        epoch=epoch,
        epsilon=2.0,
        delta=2e-6,
        mu=mu,
        delta_selection=1e-6,
    )


def with_budget(epsilon: float = 8.0, delta: float = 1e-4, **sections: Any) -> Settings:
    promise = {"epsilon": 0.5, "delta": 1e-9, "strategy": "toeplitz"}  # a budget must allow one window
    return base(budget={"epsilon": epsilon, "delta": delta}, privacy=promise, **sections)


def days(count: int, pipeline: str = "page-views", **changes: Any) -> list[Charge]:
    """One charge for each of the last days, today's the last."""
    return [charge((20_000 - n) * DAY, pipeline, **changes) for n in reversed(range(count))]


def test_nothing_is_charged_yet() -> None:
    account = account_of([], with_budget(), NOW)
    assert (account.own.pipeline, account.own.windows, account.own.charges) == ("page-views", 0, 0)
    assert (account.spent, account.epsilon, account.share, account.series) == (Spend(), 0.0, 0.0, ())
    assert (
        account.windows_left is account.windows_left_at_pace is account.stop is None
    )  # what a window costs is unknown
    promise = Guarantee(epsilon=2.0, delta=2e-6, mu=0.5, delta_gaussian=1e-6, delta_selection=1e-6)
    known = account_of([], with_budget(), NOW, guarantee=promise)
    assert (
        known.windows_left
        == known.windows_left_at_pace
        == Budget(epsilon=8.0, delta=1e-4).windows_left(Spend(), promise)
    )
    assert known.stop == 20_000 * DAY + known.windows_left * DAY


def test_charges_of_other_raw_topics_are_left_out() -> None:
    both = [*days(3), charge(0, raw="elsewhere", mu=100.0)]
    assert account_of(both, with_budget(), NOW) == account_of(days(3), with_budget(), NOW)


def test_what_was_spent_is_what_dp_accounting_composes() -> None:
    charges = [*days(20, mu=0.7), *days(9, "visitors", mu=0.4)]
    account = account_of(charges, with_budget(9.0, 1e-4), NOW)
    oracle = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    oracle.compose(dp_accounting.GaussianDpEvent(1 / 0.7), 20)
    oracle.compose(dp_accounting.GaussianDpEvent(1 / 0.4), 9)
    assert account.delta_at_budget == pytest.approx(oracle.get_delta(9.0) + 29e-6, rel=1e-3)
    assert account.epsilon == pytest.approx(oracle.get_epsilon(1e-4 - 29e-6), rel=1e-3)
    own, other = account.pipelines
    assert (own.pipeline, own.windows, own.epsilon_sum, other.pipeline, other.windows) == (
        "page-views", 20, 40.0, "visitors", 9,
    )  # fmt: skip
    assert own.mu_squared == pytest.approx(20 * 0.49)
    assert account.spent.mu_squared == pytest.approx(20 * 0.49 + 9 * 0.16)


def test_the_share_is_windows_charged_of_windows_possible() -> None:
    """Where all windows cost the same; the continuous number of windows is solved by another root finder."""
    budget = Budget(epsilon=8.0, delta=1e-4)

    def delta(windows: float) -> float:
        mu = 0.5 * math.sqrt(windows)
        return float(norm.cdf(mu / 2 - 8 / mu) - math.exp(8) * norm.cdf(-mu / 2 - 8 / mu)) + windows * 1e-6

    from scipy.optimize import brentq

    possible = brentq(lambda windows: delta(windows) - budget.delta, 0.1, 1000)
    for charged in (1, 5, 10):
        account = account_of(days(charged), with_budget(), NOW)
        assert account.share == pytest.approx(charged / possible, rel=1e-6)
        assert account.windows_left == math.floor(possible) - charged
        assert account.stop == (20_001 + account.windows_left) * DAY


def test_a_spent_budget_says_which_window_was_refused() -> None:
    left = account_of(days(1), with_budget(), NOW).windows_left
    assert left is not None
    full = account_of(days(1 + left), with_budget(), NOW)
    assert (full.windows_left, full.windows_left_at_pace, full.stop) == (0, 0, 20_001 * DAY)
    assert full.share is not None
    assert 0.9 < full.share < 1
    over = account_of(days(2 + left), with_budget(), NOW)
    assert (over.own.beyond, over.windows_left, over.windows_left_at_pace, over.stop) == (1, 0, 0, 20_000 * DAY)
    assert over.share == 1.0
    assert over.delta_at_budget is not None
    assert over.delta_at_budget > 1e-4
    by_other = account_of([*days(1), charge(20_000 * DAY, "other", mu=9.0)], with_budget(), NOW)
    assert (by_other.own.beyond, by_other.pipelines[1].beyond) == (0, 1)
    assert (by_other.windows_left_at_pace, by_other.stop) == (0, 20_001 * DAY)


def test_without_a_budget_nothing_ends() -> None:
    account = account_of(days(30), base(), NOW)
    assert account.budget is account.share is account.stop is account.windows_left is account.mu_squared_max is None
    assert account.delta == pytest.approx(30 * 2e-6)
    assert account.epsilon == account.spent.epsilon_total(account.delta)
    assert account.own.beyond == 0


def test_others_that_go_on_shorten_it_and_others_that_ended_do_not() -> None:
    alone = account_of(days(3), with_budget(), NOW)
    hourly = [charge(20_000 * DAY + n * HOUR, "hourly", mu=0.1) for n in range(12)]
    active = account_of([*days(3), *hourly], with_budget(), NOW)
    ended = account_of([*[charge(w.window - 40 * DAY, "hourly", mu=0.1) for w in hourly], *days(3)], with_budget(), NOW)
    assert (active.pipelines[1].active, active.pipelines[1].every) == (True, HOUR)
    assert ended.pipelines[1].active is False
    assert alone.windows_left_at_pace is not None
    assert active.windows_left_at_pace is not None
    assert ended.windows_left_at_pace is not None
    assert active.windows_left_at_pace < ended.windows_left_at_pace < alone.windows_left_at_pace
    assert ended.windows_left == ended.windows_left_at_pace == active.windows_left
    assert alone.pace == pytest.approx(0.25)
    assert active.pace == pytest.approx(0.25 + 24 * 0.01)


def test_a_tuning_run_is_spent_and_is_no_window() -> None:
    account = account_of([charge(NOW, "page-views/tune", mu=0.3), *days(2)], with_budget(), NOW)
    own, tuning = account.pipelines
    assert (tuning.tuning, tuning.windows, tuning.charges, tuning.active, tuning.every) == (True, 0, 1, False, None)
    assert (own.tuning, own.windows) == (False, 2)
    assert account.spent.mu_squared == pytest.approx(2 * 0.25 + 0.09)
    assert account.pace == pytest.approx(0.25)


def test_epochs_and_the_recent_pace() -> None:
    """Yesterday is published by two epochs; one day of the first was never charged."""
    charges = [c for c in days(5, epoch="aa") if c.window != 19_997 * DAY]
    account = account_of(
        [*charges[:-1], charge(19_999 * DAY, epoch="bb"), charge(20_000 * DAY, epoch="bb")], base(), NOW
    )
    assert [(e.epoch, e.windows, e.first_window, e.last_window) for e in account.epochs] == [
        ("aa", 3, 19_996 * DAY, 19_999 * DAY),
        ("bb", 2, 19_999 * DAY, 20_000 * DAY),
    ]
    assert (account.own.epochs, account.own.recent, account.own.recent_due) == (2, 4, 4)  # today is not over
    assert account.own.next_window == 20_001 * DAY
    stalled = account_of(days(5), base(), NOW + 5 * DAY)
    assert (stalled.own.recent, stalled.own.recent_due) == (5, 9)
    assert stalled.own.pace == pytest.approx(5 / 9)
    assert stalled.own.calendar_pace == 1.0


def test_an_archive_has_a_time_of_its_own_and_an_end() -> None:
    archive: dict[str, Any] = {
        "clock": {"kind": "replay", "until": "1970-01-11T00:00:00Z"},
        "start": {"first_window": "1970-01-01T00:00:00Z"},
    }
    charges = [charge(n * DAY) for n in range(3)]
    enough = account_of(charges, with_budget(**archive), NOW)
    assert (enough.live, enough.stop, enough.windows_left_at_pace) == (False, None, None)  # seven more, and all fit
    assert enough.windows_left is not None
    assert enough.windows_left >= 7
    scarce = account_of(charges, with_budget(4.0, 1e-4, **archive), NOW)
    assert scarce.windows_left_at_pace == scarce.windows_left
    assert scarce.stop is not None
    assert scarce.stop == (3 + (scarce.windows_left or 0)) * DAY < 10 * DAY


def test_the_series_adds_up() -> None:
    account = account_of([*days(3), *days(2, "other", mu=1.0)], base(), NOW)
    assert account.series == ((19_998 * DAY, 0.25), (19_999 * DAY, 1.5), (20_000 * DAY, 2.75))
    assert account.series[-1][1] == pytest.approx(account.spent.mu_squared)


# ---- against charging one window after the other -------------------------------------------------------------------------

LENGTHS = st.sampled_from([HOUR, 6 * HOUR, DAY])


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Charge], dict[str, int]]:
    """Charges of one daily pipeline and up to two others, as running pipelines write them, and the length of their windows."""
    lengths = {"page-views": DAY, **{f"other-{n}": draw(LENGTHS) for n in range(draw(st.integers(0, 2)))}}
    charges = []
    for name, length in lengths.items():
        mu = draw(st.floats(0.05, 1.5))
        last = NOW - NOW % length
        charges += [charge(last - n * length, name, mu=mu) for n in range(draw(st.integers(2, 6)))]
    return sorted(charges, key=lambda c: c.window), lengths


def to_come(charges: Sequence[Charge], lengths: dict[str, int]) -> Iterator[tuple[int, list[Charge]]]:
    """Instant after instant, the windows that begin then."""
    newest = {c.pipeline: c for c in charges}
    following = {name: newest[name].window + length for name, length in lengths.items()}
    while True:
        at = min(following.values())
        names = [name for name, window in following.items() if window == at]
        for name in names:
            following[name] += lengths[name]
        yield at, [charge(at, name, mu=newest[name].mu) for name in names]


def promise(paid: Charge) -> Guarantee:
    return Guarantee(
        epsilon=paid.epsilon, delta=paid.delta, mu=paid.mu, delta_gaussian=1e-6, delta_selection=paid.delta_selection
    )


def brute_force(charges: Sequence[Charge], lengths: dict[str, int], budget: Budget) -> tuple[int, int, int]:
    """Windows of page-views that fit with the others and without them, and the first that does not."""
    spent, fits = Spend(), True
    for paid in charges:
        spent = spent.plus(promise(paid))
    before, at_pace, stop = spent, 0, 0
    for at, together in to_come(charges, lengths):
        for paid in together:
            spent = spent.plus(promise(paid))
        fits = fits and budget.allows(spent)
        if any(paid.pipeline == "page-views" for paid in together):
            if not fits:
                stop = at
                break
            at_pace += 1
    own = promise(next(c for c in charges if c.pipeline == "page-views"))
    alone = 0
    try:
        while True:
            before = budget.charge(before, own)
            alone += 1
    except BudgetExhausted:
        return at_pace, alone, stop


@tried(max_examples=60, deadline=None)
@given(histories(), st.floats(3.0, 12.0), st.sampled_from([1e-3, 1e-4, 5e-5]))
def test_windows_left_are_those_that_a_running_pipeline_charges(
    history: tuple[list[Charge], dict[str, int]], epsilon: float, delta: float
) -> None:
    charges, lengths = history
    budget = Budget(epsilon=epsilon, delta=delta)
    account = account_of(charges, with_budget(epsilon, delta), NOW)
    assert account.delta_at_budget == account.spent.delta_total(epsilon)
    assert account.mu_squared_max is not None
    if not budget.allows(account.spent):
        assert account.share == 1.0
        assert account.windows_left == account.windows_left_at_pace == 0
        spent, fitting = Spend(), 0
        for paid in charges:
            spent = spent.plus(promise(paid))
            fitting += budget.allows(spent)
        assert sum(row.beyond for row in account.pipelines) == len(charges) - fitting
        return
    at_pace, alone, stop = brute_force(charges, lengths, budget)
    assert (account.windows_left_at_pace, account.windows_left, account.stop) == (at_pace, alone, stop)
    assert account.share == pytest.approx(account.spent.mu_squared / account.mu_squared_max)
    assert 0 < account.share <= 1


# ---- as JSON -------------------------------------------------------------------------------------------------------------


def names(value: Any) -> Any:
    """The names in a JSON value, and no values."""
    if isinstance(value, dict):
        return {name: names(each) for name, each in value.items()}
    return [names(value[0])] if isinstance(value, list) and value else []


def test_the_names_of_the_json_stay() -> None:
    account = account_of([*days(3), *days(2, "other")], with_budget(), NOW)
    found = json.loads(json.dumps(account.as_json(), allow_nan=False))
    assert found["schema"] == 1
    row = {
        "pipeline": [], "own": [], "tuning": [], "active": [], "charges": [], "windows": [], "windows_beyond_budget": [],
        "epochs": [], "first_window": [], "last_window": [], "window_seconds": [],
        "windows_a_day": {"recent": [], "calendar": []}, "newest": {"epsilon": [], "delta": [], "mu": []},
        "mu_squared": [], "delta_selection": [], "epsilon_sum": [], "delta_sum": [],
    }  # fmt: skip
    assert names(found) == {
        "schema": [], "at": [], "raw_topic": [], "pipeline": [], "live": [],
        "budget": {"epsilon": [], "delta": []},
        "period": [],
        "spent": {
            "mu": [], "mu_squared": [], "delta_selection": [], "epsilon": [], "delta": [], "delta_at_budget_epsilon": [],
        },
        "after_30_windows": {"epsilon": [], "delta": []},
        "share_spent": [], "mu_squared_max": [], "windows_left": [], "windows_left_at_pace": [], "stop": [],
        "pipelines": [row],
        "epochs": [{"epoch": [], "windows": [], "first_window": [], "last_window": []}],
        "series": [{"window": [], "mu_squared": []}],
    }  # fmt: skip
    assert found["at"] == "2024-10-04T12:00:00Z"
    assert found["pipelines"][0]["last_window"] == "2024-10-04T00:00:00Z"
    assert found["series"][-1] == {"window": "2024-10-04T00:00:00Z", "mu_squared": account.series[-1][1]}


def test_json_has_null_for_what_is_unbounded_and_few_points_of_a_long_series() -> None:
    account = account_of(days(2000), with_budget(8.0, 1e-6), NOW)
    assert account.epsilon == math.inf  # the selection failures alone exceed the budget's delta
    found = json.loads(json.dumps(account.as_json(), allow_nan=False))
    assert found["spent"]["epsilon"] is None
    assert len(found["series"]) == 500
    assert len(account.series) == 2000
    stamps = [point["window"] for point in found["series"]]
    assert stamps == sorted(set(stamps))
    assert found["series"][-1]["mu_squared"] == account.series[-1][1]


def test_the_how_to_lists_every_name() -> None:
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "share-a-budget.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z_0-9]+)`", text))

    def every(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {name for each in value.values() for name in every(each)}
        return {name for each in value for name in every(each)} if isinstance(value, list) else set()

    assert every(account_of(days(3), with_budget(), NOW).as_json()) - documented == set()
    assert "reason" in documented


# ---- a budget that renews --------------------------------------------------------------------------------------------


def renewing(per: str = "30d", epsilon: float = 8.0, delta: float = 1e-4, **sections: Any) -> Settings:
    promise = {"epsilon": 0.5, "delta": 1e-9, "strategy": "toeplitz"}
    return base(budget={"epsilon": epsilon, "delta": delta, "per": per}, privacy=promise, **sections)


def of_day(number: int, pipeline: str = "page-views", *, mu: float = 0.5) -> Charge:
    """The charge of a window of one day, with its extent."""
    begin = (20_000 + number) * DAY
    return msgspec.structs.replace(charge(begin, pipeline, mu=mu), begin=begin, end=begin + DAY)


def begun_by_dp_accounting(days: Sequence[int], mu: float, epsilon: float) -> list[int]:
    """Greedily: those of the days of which no 31 in a row exceed the total."""
    accountant, most = PLDAccountant(), 0
    while float(accountant.get_delta(epsilon)) + most * 1e-6 <= 1e-4:
        most += 1
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    most -= 1
    begun: list[int] = []
    for number in days:
        if sum(number - 31 < one for one in begun) < most:
            begun.append(number)
    return begun


@pytest.mark.parametrize("present", [0, 5, 11, 12, 20, 30, 40, 100])
def test_the_next_window_without_room_and_the_next_with_room_are_those_of_a_pipeline_that_goes_on(present: int) -> None:
    mu = 0.55
    begun = begun_by_dp_accounting(range(-60, 200), mu, 8.0)
    assert 5 < sum(0 <= one < 31 for one in begun) < 25, "some fit, and some do not"
    charged = [of_day(one, mu=mu) for one in begun if one < present]
    account = account_of(charged, renewing(), (20_000 + present) * DAY + HOUR)
    period = account.period
    assert period is not None
    assert period.last == (20_000 + present) * DAY
    skipped = [one for one in range(present, 200) if one not in begun]
    assert account.stop == period.skips == (20_000 + skipped[0]) * DAY
    assert account.windows_left == account.windows_left_at_pace == skipped[0] - present
    resumes = next(one for one in begun if one > skipped[0])
    assert period.resumes == (20_000 + resumes) * DAY
    assert period.skipping is (skipped[0] == present)
    touched = [one for one in begun if present - 31 < one < present]
    assert period.spent.mu_squared == pytest.approx(len(touched) * mu**2)
    assert 0 <= (account.share or 0) <= 1
    assert account.own.beyond == 0
    assert period.year is not None
    year = [sum(first <= one < first + 60 for one in begun) for first in range(-60, 100)]
    assert max(year) <= Periods(Budget(epsilon=8.0, delta=1e-4), 30 * DAY).most_within(
        59 * DAY, _of(mu), FixedWindows(origin=0, length_ms=DAY)
    )


def _of(mu: float) -> Guarantee:
    return Guarantee(epsilon=2.0, delta=2e-6, mu=mu, delta_gaussian=1e-6, delta_selection=1e-6)


def test_others_take_their_part_of_a_period() -> None:
    alone = account_of([of_day(n) for n in range(-3, 1)], renewing(), NOW)
    both = account_of([of_day(n, name) for n in range(-3, 1) for name in ("page-views", "other")], renewing(), NOW)
    assert alone.period is not None
    assert both.period is not None
    assert both.period.spent.mu_squared == pytest.approx(2 * alone.period.spent.mu_squared)
    assert (both.period.left or 0) < (both.period.left_alone or 0) < (alone.period.left or 0)
    assert both.period.year is not None
    assert both.period.year.windows is None
    assert both.period.year.delta == pytest.approx(13e-4)


def test_with_room_for_all_nothing_is_ever_skipped() -> None:
    account = account_of([of_day(n, mu=0.01) for n in range(-40, 1)], renewing(), NOW)
    assert account.period is not None
    assert (account.stop, account.windows_left, account.period.skips, account.period.resumes) == (
        None,
        None,
        None,
        None,
    )
    assert account.period.year is not None
    assert account.period.year.windows == 366


def test_a_charge_without_an_extent_counts_in_every_period() -> None:
    """Of a version before there were any: nobody knows where its window ends."""
    account = account_of([charge(0, mu=1.0), of_day(0)], renewing(), NOW)
    assert account.period is not None
    assert account.period.spent.mu_squared == pytest.approx(1.25)


def test_the_json_of_a_period_has_names_that_the_how_to_lists() -> None:
    found = json.loads(json.dumps(account_of([of_day(0)], renewing(), NOW).as_json(), allow_nan=False))
    assert names(found["period"]) == {
        "seconds": [], "until": [], "epsilon": [], "mu_squared": [], "delta_selection": [], "worst_epsilon": [],
        "skips": [], "resumes": [], "year": {"windows": [], "epsilon": [], "delta": []},
    }  # fmt: skip
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "share-a-budget.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z_0-9]+)`", text))
    assert {*found["period"], *found["period"]["year"], "period"} <= documented
