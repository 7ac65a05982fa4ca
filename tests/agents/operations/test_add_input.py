"""Whether a budget that renews has room for a raw topic more, without a broker; adding one is in tests/chaos."""

from typing import Any

import pytest
from msgspec import structs

from susurrus.agents.operations import add_input as module
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.budget import charge_of
from susurrus.mechanisms.errors import BudgetExhausted
from susurrus.mechanisms.spend import Spend
from susurrus.topics import ledger
from susurrus.topics.charges import Charge
from tests.agents.charge_log import ChargeLog
from tests.agents.released import DAY, settings

TODAY = 20_000 * DAY
EPOCH = "ab" * 16


@pytest.fixture
def has_room(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says whether there is room at nine in the morning. windows: of this pipeline that any period has room for."""

    def has_room(
        charges: list[Charge], *, windows: int, lateness: str = "0s", skipped: tuple[int, ...] = (), first: int = 0
    ) -> bool:
        window = {"trigger_every": "6h", "allowed_lateness": lateness}
        promise = pipeline_of(settings(window=window)).per_window()
        assert promise is not None
        delta = windows * promise.delta
        epsilon = max(promise.epsilon, Spend().plus(promise, windows).epsilon_total(delta) + 1e-6)
        pipeline = pipeline_of(settings(window=window, budget={"epsilon": epsilon, "delta": delta, "per": "1d"}))
        log = ChargeLog([structs.replace(one, mu=promise.mu) for one in charges])
        monkeypatch.setattr(module.time, "time", lambda: (TODAY + 9 * 3_600_000) / 1000)
        records: list[ledger.LedgerRecord] = [
            ledger.Epoch(epoch=EPOCH, number=1, created=0),
            ledger.Start(first_window=first, origin="latest", topic_ids={}, sources=(), offsets={}),
            *(ledger.WindowDecision(window=start, begun=False, epoch=EPOCH) for start in skipped),
        ]
        clients: Any = log
        try:
            module._check_budget(pipeline, clients, ("raw", "added"), records)
        except BudgetExhausted:
            return False
        return True

    return has_room


def charge(window: int, topic: str = "raw", *, epoch: str = EPOCH, pipeline: str = "t.page-views") -> Charge:
    configured = settings()
    promise = pipeline_of(configured).per_window()
    assert promise is not None
    return structs.replace(charge_of(configured, topic, window, epoch, promise), pipeline=pipeline)


def test_the_window_of_the_present_is_one_release_on_all_topics(has_room: Any) -> None:
    assert has_room([], windows=1)
    assert has_room([charge(TODAY)], windows=1)
    assert not has_room([charge(TODAY), charge(TODAY, "added", pipeline="visitors")], windows=1)
    assert has_room([charge(TODAY), charge(TODAY, "added", pipeline="visitors")], windows=2)


def test_what_an_epoch_before_has_published_of_the_window_is_another_release(has_room: Any) -> None:
    twice = [charge(TODAY, epoch="cd" * 16), charge(TODAY)]
    assert not has_room(twice, windows=1)
    assert has_room(twice, windows=2)


PAID = [charge(TODAY - 2 * DAY, "added", pipeline=name) for name in ("visitors", "sales")]
"""By two other pipelines, the day before yesterday: a period of a day that touches yesterday may touch that, too."""


def test_a_window_that_waits_for_late_records_is_charged_on_the_new_topic_too(has_room: Any) -> None:
    charges = [*PAID, charge(TODAY - DAY), charge(TODAY)]
    assert has_room(charges, windows=2), "yesterday is over"
    assert not has_room(charges, windows=2, lateness="12h")
    assert has_room(charges, windows=3, lateness="12h")


def test_windows_that_are_skipped_or_before_the_first_are_not_charged(has_room: Any) -> None:
    assert has_room([*PAID, charge(TODAY)], windows=2, lateness="12h", skipped=(TODAY - DAY,))
    assert has_room([*PAID, charge(TODAY)], windows=2, lateness="12h", first=TODAY)
    assert not has_room([*PAID, charge(TODAY)], windows=2, lateness="12h")
