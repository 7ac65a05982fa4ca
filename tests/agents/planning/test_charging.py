"""The charge of a command on a real broker: in the log before anything is shown, within the budget, and in nobody's way."""

from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.planning.charging import ChargingAccount, Extent
from susurrus.agents.runtime.budget import Charges, charge_of
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import BudgetExhausted, RetryableRefusal
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.topics import charges as codec
from tests.broker import Broker
from tests.pipeline import EPOCH, Pipeline, archive_topic, merged

WINDOW = WindowStart(807_235_200_000)


def costing(mu: float) -> Guarantee:
    return Guarantee(epsilon=0.5, delta=0.0, mu=mu, delta_gaussian=0.0, delta_selection=0.0)


def charged(pipeline: Pipeline) -> list[codec.Charge]:
    topic = pipeline.settings.topics.charges
    return [codec.decode(message.value()) for message in pipeline.broker.read_all(topic)]


@pytest.fixture
def pipeline(kafka: Broker, tmp_path: Path) -> Any:
    with Pipeline(kafka, tmp_path, archive_topic(kafka, 2)) as found:
        yield found


def test_a_charge_is_in_the_log_and_in_every_sum_but_is_no_window(pipeline: Pipeline) -> None:
    clients = clients_of(pipeline.settings, quiet=True)
    try:
        account = ChargingAccount(pipeline.settings, clients, "tune")
        assert account.spent().mu_squared == 0
        run = account.charge(WINDOW, costing(0.25))
        account.charge(WINDOW, costing(0.25))
        [first, second] = charged(pipeline)
        assert (first.pipeline, first.epoch, first.window, first.mu) == (
            f"{pipeline.settings.application}/tune",
            run,
            WINDOW,
            0.25,
        )
        assert first.epoch != second.epoch
        assert account.spent().mu_squared == pytest.approx(0.125)
        assert account.windows_left(costing(0.5)) is None
        # A pipeline's own view: the runs count towards what was spent, and not as charges for its windows.
        charges = Charges(pipeline.settings, clients)
        assert len(charges.read(complete=True)) == 2
        assert not charges.include(WINDOW, EPOCH)
        status = collect(pipeline_of(pipeline.settings))
        assert (status.charged, status.charged_all) == (0, 0)
    finally:
        clients.close()


def test_a_run_without_room_in_the_budget_is_refused_before_it_is_charged(pipeline: Pipeline) -> None:
    pipeline.data = merged(pipeline.data, {"budget": {"epsilon": 6.0, "delta": 1e-9}})
    clients = clients_of(pipeline.settings, quiet=True)
    try:
        account = ChargingAccount(pipeline.settings, clients, "tune")
        with pytest.raises(BudgetExhausted, match="nothing was charged: ask for a smaller --epsilon"):
            account.charge(WINDOW, costing(2.0))
        assert charged(pipeline) == []
        before, after = account.windows_left(costing(0.5)), account.windows_left(costing(0.5), after=costing(0.5))
        assert before is not None
        assert after == before - 1
        account.charge(WINDOW, costing(0.5))
        assert account.windows_left(costing(0.5)) == after
    finally:
        clients.close()


def test_a_window_that_has_no_room_left_is_refused_to_the_pipeline(pipeline: Pipeline) -> None:
    pipeline.data = merged(pipeline.data, {"budget": {"epsilon": 6.0, "delta": 1e-9}})
    settings, clients = pipeline.settings, clients_of(pipeline.settings, quiet=True)
    try:
        ChargingAccount(settings, clients, "tune").charge(WINDOW, costing(0.5))
        charges = Charges(settings, clients)
        for epoch, mu in (("small", 0.5), ("large", 0.9)):
            key, value = codec.encode(charge_of(settings, settings.input.topic, WINDOW, epoch, costing(mu)))
            producer = pipeline.broker.producer()
            producer.produce(charges.topic, value, key, partition=0)
            producer.flush(30)
        assert charges.include(WINDOW, "small")
        with pytest.raises(BudgetExhausted):
            charges.include(WINDOW, "large")
    finally:
        clients.close()


def test_of_two_runs_at_once_the_log_lets_the_first_through(pipeline: Pipeline) -> None:
    """The second one has checked before the first one charged; the order of the log decides."""
    pipeline.data = merged(pipeline.data, {"budget": {"epsilon": 6.0, "delta": 1e-9}})
    clients = clients_of(pipeline.settings, quiet=True)
    try:
        late, early = (ChargingAccount(pipeline.settings, clients, "tune") for _ in range(2))
        checked = late.check

        def check(guarantee: Guarantee, extent: Extent) -> None:
            checked(guarantee, extent)
            early.charge(WINDOW, costing(0.8))

        late.check = check  # type: ignore[method-assign]
        with pytest.raises(BudgetExhausted, match="another charge came first; this one counts, and nothing was shown"):
            late.charge(WINDOW, costing(0.8))
        assert len(charged(pipeline)) == 2
    finally:
        clients.close()


def test_without_the_log_of_charges_nothing_goes_on(pipeline: Pipeline) -> None:
    pipeline.data = merged(pipeline.data, {"topics": {"charges": "absent.charges"}})
    clients = clients_of(pipeline.settings, quiet=True)
    try:
        account = ChargingAccount(pipeline.settings, clients, "tune")
        for ask in (account.spent, lambda: account.charge(WINDOW, costing(0.1))):
            with pytest.raises(
                RetryableRefusal, match=r"absent\.charges does not exist: create it with `susurrus topics"
            ):
                ask()
    finally:
        clients.close()
