"""What surrounds the stages, for days of 23 and 25 hours: guarantee, digest, membership, what is due, new epochs, the account."""

from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from susurrus.agents.config import settings as settings_module
from susurrus.agents.histogram.due import Announced, next_due
from susurrus.agents.histogram.membership import Membership
from susurrus.agents.histogram.new_beginning import HistogramBeginning
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.operations.account import account_of
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.planning.window_sample import window_named
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics.charges import Charge
from susurrus.topics.progress import Progress
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.zones import zone_names
from tests.agents.released import EPOCHS, settings
from tests.agents.stages import services_of
from tests.mechanisms.histogram.test_guarantee import knapsack, without_knapsack

HOUR, DAY = 3_600_000, 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")


def at(day: str, hours: float = 0) -> int:
    """Midnight in Berlin, and so many real hours later, in ms."""
    return round((datetime.fromisoformat(day).replace(tzinfo=BERLIN).timestamp() + hours * 3600) * 1000)


SHORT, LONG = at("2026-03-29"), at("2026-10-25")
AFTER_SHORT, AFTER_LONG = at("2026-03-30"), at("2026-10-26")


def days(zone: str = "Europe/Berlin", **sections: Any) -> HistogramSettings:
    window = {"length": "1 day", "time_zone": zone, "trigger_every": "1h"} | sections.pop("window", {})
    promise = {"epsilon": 6.0, "delta": 1e-9} | sections.pop("privacy", {})
    return HistogramSettings.of(settings(window=window, privacy=promise, **sections))


# ---- the guarantee -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
def test_the_costliest_user_of_a_day_of_any_length_costs_what_the_guarantee_says(strategy: str) -> None:
    """In exact fractions, for the strategy that the stages take for the window."""
    found = services_of(days(privacy={"strategy": strategy}, bounds={"max_records_per_user": 3}))
    calendar, costs = found.calendar, {}
    for start, hours in ((SHORT, 23), (SHORT - DAY, 24), (LONG, 25)):
        window = calendar.window_at(start)
        chosen: Any = found.strategy_of(window)
        assert chosen.plan.triggers == calendar.triggers_of(window) == hours
        assert found.guarantee_of(window) == found.strategy.guarantee
        costs[hours] = without_knapsack(chosen) if strategy == "closing" else knapsack(chosen)
        limit = Fraction(chosen.guarantee.mu) ** 2
        assert limit * (1 - Fraction(3, 100)) <= costs[hours] <= limit
    # The planted defect: the noise of a usual day for a long one.
    usual, longer = found.strategy_of(calendar.window_at(SHORT - DAY)), found.strategy_of(calendar.window_at(LONG))
    assert usual.values[0].sigma < longer.values[0].sigma  # type: ignore[attr-defined]


def test_a_day_has_no_trigger_that_its_mechanism_was_not_made_for() -> None:
    """The planted defect: the mechanism of a usual day at the last trigger of a long one."""
    found = services_of(days(privacy={"strategy": "toeplitz"}))
    window = found.calendar.window_at(LONG)
    nothing = np.zeros(1, np.int64)
    increments = Increments(users=nothing, weight=nothing, sums=np.zeros((1, 1), np.int64))
    noise = NoiseSource(bytes(32), epoch=b"e", config=bytes(32), pipeline="p").window(window)
    last = found.calendar.trigger(window, found.calendar.last_interval(window))
    for strategy, fits in ((found.strategy_of(window), True), (found.strategy, False)):
        try:
            strategy.step(last, [b"k"], strategy.empty(1), increments, noise, np.ones(1, np.bool_))
        except (IndexError, ValueError):
            assert not fits
        else:
            assert fits


def test_no_two_days_of_any_zone_have_one_number() -> None:
    """Noise, state and caps are addressed by it. The planted defect, a day's number by 24 hours, gives two days the same noise."""
    wrong = 0
    for zone in sorted(zone_names())[::20]:
        calendar = days(zone, window={"trigger_every": "1m"}).calendar
        first = calendar.window_at(at("2025-01-01"))
        numbers = [w for w in range(first, first + 2_000) if calendar.triggers_of(WindowIndex(w))]
        starts = [calendar.window_start(WindowIndex(w)) for w in numbers]
        assert sorted(set(starts)) == starts
        assert calendar.window_of(np.array(starts)).tolist() == numbers
        wrong += len({start // DAY for start in starts}) < len(starts)
    assert wrong > 0


@pytest.mark.statistical
def test_the_numbers_of_days_address_noise_of_their_own() -> None:
    """Two days in London around the change, which begin within one day of UTC: their noise is as different as that of any two.

    The planted defect, a number by 24 hours, would give them the same noise, but for a second defence: the address of noise has the
    digest of the plan in it, and days of two lengths have two plans.
    """
    zone = ZoneInfo("Europe/London")
    one, other = (round(datetime(2026, 3, day, tzinfo=zone).timestamp() * 1000) for day in (29, 30))
    assert one // DAY == other // DAY
    found = services_of(days("Europe/London", privacy={"strategy": "toeplitz"}))
    source = NoiseSource(bytes(32), epoch=b"e", config=bytes(32), pipeline="p")
    numbers = {start: found.calendar.window_at(start) for start in (one, other)}

    def noise(number: int, strategy: Any) -> Any:
        keys = [b"%d" % key for key in range(4_000)]
        nothing = np.zeros(len(keys), np.int64)
        increments = Increments(users=nothing, weight=nothing, sums=np.zeros((len(keys), 1), np.int64))
        declared, window = np.ones(len(keys), np.bool_), source.window(WindowIndex(number))
        step = strategy.step(1, keys, strategy.empty(len(keys)), increments, window, declared)
        return step.estimates[:, 0].astype(np.float64)

    def correlation(number: Any, strategy: Any) -> float:
        return float(np.corrcoef([noise(number(start), strategy(start)) for start in (one, other)])[0, 1])

    assert abs(correlation(numbers.get, lambda start: found.strategy)) < 0.1
    assert correlation(lambda start: start // DAY, lambda start: found.strategy) > 0.99
    assert abs(correlation(lambda start: start // DAY, lambda start: found.strategy_of(numbers[start]))) < 0.1


def test_the_digest_covers_zone_rules_and_every_number_of_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(**sections: Any) -> bytes:
        return pipeline_of(days(**sections)).digest()

    ours = digest()
    assert ours == digest()
    others = [
        digest(zone="Europe/Paris"),
        digest(window={"length": "1 week"}),
        digest(window={"allowed_lateness": "1h"}),
        digest(window={"trigger_every": "30m"}),
        pipeline_of(
            settings(window={"length": "24h", "trigger_every": "1h"}, privacy={"epsilon": 6.0, "delta": 1e-9})
        ).digest(),
    ]
    assert len({ours, *others}) == 6
    fields = days().published_fields()
    assert (fields["window.length"], fields["window.time_zone"]) == ("1 day", "Europe/Berlin")
    assert {"window.time_zone", "window.time_zone.rules"}.isdisjoint(settings().published_fields())
    assert [plan.triggers for plan in days(keys={"remember": 0}).plans()] == [23, 24, 25]
    assert {plan.triggers for plan in days().plans()} == {23, 24, 25}

    class Changed(settings_module.Zone):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.rules = "0" * 32

    monkeypatch.setattr(settings_module, "Zone", Changed)
    assert digest() != ours


# ---- membership ----------------------------------------------------------------------------------------------------------


def test_a_record_is_in_the_day_that_its_clocks_showed_and_late_behind_that_days_own_last_trigger() -> None:
    configured = days(input={"topic": "raw", "user": "u", "key": ["k"], "time": "t"}, window={"allowed_lateness": "2h"})
    calendar = configured.calendar
    rules = Membership(configured, calendar.window_at(SHORT))
    rows = [
        # (event time, stamp, window, late)
        (SHORT, SHORT, SHORT, False),
        (AFTER_SHORT - 1, AFTER_SHORT - 1, SHORT, False),
        (AFTER_SHORT, AFTER_SHORT, AFTER_SHORT, False),
        (SHORT, AFTER_SHORT + 2 * HOUR - 1, SHORT, False),
        (SHORT, AFTER_SHORT + 2 * HOUR, SHORT, True),
        (LONG, LONG + 24 * HOUR, LONG, False),
        (LONG + 24 * HOUR, LONG + 24 * HOUR, LONG, False),  # the 25th hour
        (LONG, AFTER_LONG + 2 * HOUR - 1, LONG, False),
        (LONG, AFTER_LONG + 2 * HOUR, LONG, True),
    ]
    times, stamps = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    no, reason = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.uint8)
    found = rules.decide(reason, times, stamps=stamps, interval=calendar.interval(stamps), otherwise=no, too_far=no)
    assert set(map(Reason, reason.tolist())) == {Reason.OK}
    assert [calendar.window_start(WindowIndex(w)) for w in found.window.tolist()] == [row[2] for row in rows]
    assert found.late.tolist() == [row[3] for row in rows]
    before = rules.decide(
        reason,
        np.array([SHORT - 1]),
        stamps=np.array([SHORT]),
        interval=calendar.interval(np.array([SHORT])),
        otherwise=no[:1],
        too_far=no[:1],
    )
    assert Reason(reason[0]) == Reason.BEFORE_FIRST_WINDOW
    assert len(before.window) == 1


# ---- what operators see --------------------------------------------------------------------------------------------------


def said(window: int, trigger: int, of: int) -> Progress:
    return Progress(
        window=window, trigger=trigger, of_triggers=of, partition=0, of_partitions=1, rows=0, epoch=EPOCHS[1], epoch_number=1
    )  # fmt: skip


@pytest.mark.parametrize(("start", "hours"), [(SHORT, 23), (LONG, 25)])
def test_the_next_trigger_is_due_by_the_days_own_clock(start: int, hours: int) -> None:
    configured = days(clock={"kind": "producer"})
    for last, due, window in ((hours - 1, hours, start), (hours, hours + 1, start + hours * HOUR)):
        announced = Announced()
        announced.add(said(start, last, hours))
        found = next_due(configured, announced, 0)
        assert (found["at"], found["window"]) == (start + due * HOUR + 60_000, window)


@pytest.mark.parametrize(("start", "after"), [(SHORT, AFTER_SHORT), (LONG, AFTER_LONG)])
def test_a_new_epoch_begins_with_a_day(start: int, after: int) -> None:
    configured = days(clock={"kind": "producer"})
    promise: Any = pipeline_of(configured).per_window()

    def begins(wanted: Any, newest: int | None = None) -> int:
        return HistogramBeginning(configured, promise, wanted, None).at(after - 1, newest)[0]

    assert (begins("current"), begins("next"), begins("next", start)) == (start, after, after)
    assert begins(after) == after
    assert begins("next", after) == after + 24 * HOUR
    with pytest.raises(Exception, match="is not the start of a window"):
        begins(start + HOUR)


def test_windows_have_the_names_of_their_days() -> None:
    live = days(clock={"kind": "producer"})
    assert window_named(live, "2026-10-25", 0, None) == LONG
    assert window_named(live, "last", AFTER_LONG + HOUR, None) == LONG
    assert (
        window_named(live, "last", AFTER_LONG + 30_000, None) == LONG - DAY
    )  # of which the last release is not out yet
    assert window_named(live, "current", AFTER_LONG - 1, None) == LONG


def charge(window: int) -> Charge:
    return Charge(
        raw_topic="raw", window=window, pipeline="page-views", epoch="ab", epsilon=0.5, delta=1e-9, mu=0.5,
        delta_selection=1e-10,
    )  # fmt: skip


def test_the_account_counts_days_over_both_changes() -> None:
    """Against a walk from day to day."""
    configured = days(clock={"kind": "producer"}, budget={"epsilon": 60.0, "delta": 1e-4})
    first = datetime(2026, 3, 20, tzinfo=BERLIN)
    every = [round((first + timedelta(days=n)).timestamp() * 1000) for n in range(2_000)]
    account = account_of(map(charge, every[:15]), configured, every[14] + HOUR)
    assert (account.own.next_window, account.own.recent, account.own.recent_due) == (every[15], 14, 14)
    assert account.windows_left is not None
    assert account.stop is not None
    assert account.stop > LONG  # past the change in autumn
    assert account.stop == every[15 + account.windows_left]
    assert account.windows_left_at_pace == account.windows_left
