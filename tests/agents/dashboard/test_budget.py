"""The burn-down is the composition of the charges, and only those on the pipeline's raw topic."""

import math
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution
from msgspec import structs

from susurrus.agents.dashboard.budget import BudgetFeed, Withdrawn, burn_down
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.topics import charges
from susurrus.topics.charges import Charge
from tests.agents.dashboard.published import charge
from tests.agents.released import DAY, WINDOW, settings


def made(count: int, **fields: Any) -> list[Charge]:
    of = settings()
    return [charges.decode(charge(of, WINDOW + day * DAY, **fields)[1]) for day in range(count)]


def feed(**sections: Any) -> BudgetFeed:
    of = HistogramSettings.of(settings(**sections))
    return BudgetFeed(of, HistogramPipeline(of).strategy.guarantee)


def test_the_burn_down_agrees_with_another_accountant() -> None:
    """Gaussian mechanisms compose in squares; the accountant of dp-accounting composes them numerically."""
    points = burn_down(made(5), delta=1e-6)
    for number, (window, epsilon) in enumerate(points, start=1):
        assert window == WINDOW + (number - 1) * DAY
        gaussian = privacy_loss_distribution.from_gaussian_mechanism(1 / 0.5, value_discretization_interval=1e-3)
        wanted = gaussian.self_compose(number).get_epsilon_for_delta(1e-6 - number * 1e-10)
        assert epsilon is not None
        assert math.isclose(epsilon, wanted, rel_tol=5e-3)


def test_a_long_burn_down_has_few_points_and_ends_with_the_newest_window() -> None:
    points = burn_down(made(1000), delta=1e-5)
    assert len(points) <= 120
    assert points[-1][0] == WINDOW + 999 * DAY
    spent = [epsilon for _, epsilon in points if epsilon is not None]
    assert spent == sorted(spent)


def test_two_charges_on_one_window_are_one_point() -> None:
    both = [*made(2), *made(2, pipeline="other")]
    assert [window for window, _ in burn_down(both, 1e-6)] == [WINDOW, WINDOW + DAY]
    assert burn_down(both, 1e-6)[0][1] == pytest.approx(burn_down(made(2), 1e-6)[1][1], rel=1e-3)


def test_where_failures_of_the_selection_exceed_delta_there_is_no_epsilon() -> None:
    assert burn_down(made(2), delta=1.5e-10)[1][1] is None


def test_the_state_has_what_is_left() -> None:
    found = feed(budget={"epsilon": 12.0, "delta": 1e-6})
    assert found.state(WINDOW) is None
    assert found.take(made(3))
    assert not found.take(made(3))  # the first with a key counts
    state = found.state(WINDOW + 3 * DAY)
    assert state is not None
    assert state["total"] == {"epsilon": 12.0, "delta": 1e-6}
    assert state["epsilon"] == pytest.approx(state["points"][-1][1], rel=1e-5)
    assert 0 < state["share"] < 1
    assert state["windows_left"] > 0
    assert state["stop"] is not None
    assert state["pipelines"] == [{"name": "page-views", "windows": 3, "charges": 3}]


def test_without_a_budget_nothing_limits_it() -> None:
    found = feed()
    found.take(made(3))
    state = found.state(WINDOW)
    assert state is not None
    assert (state["total"], state["share"], state["stop"]) == (None, None, None)


def with_extents(count: int) -> list[Charge]:
    return [structs.replace(one, begin=one.window, end=one.window + DAY) for one in made(count)]


def test_a_budget_that_renews_is_shown_by_period() -> None:
    """Mu is 0.5 a window. Five days touch six of them, however many there were."""
    found = feed(budget={"epsilon": 12.0, "delta": 1e-6, "per": "5d"})
    assert found.take(with_extents(40))
    state = found.state(WINDOW + 39 * DAY)
    assert state is not None
    assert state["period"]["text"] == "5d"
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(1 / 0.5, value_discretization_interval=1e-3)
    wanted = gaussian.self_compose(6).get_epsilon_for_delta(1e-6 - 6e-10)
    assert [point[1] for point in state["points"][-34:]] == [pytest.approx(wanted, rel=5e-3)] * 34
    assert state["points"][0][1] < state["points"][1][1] < state["points"][5][1] == state["points"][6][1]
    assert state["epsilon"] > wanted, "all windows together are more"
    assert state["period"]["until"] == WINDOW + 40 * DAY


def test_a_charge_that_is_withdrawn_goes() -> None:
    found = feed(budget={"epsilon": 12.0, "delta": 1e-6, "per": "5d"})
    assert found.take(with_extents(3))
    gone = charges.encode(with_extents(3)[1])[0]
    assert found.take([Withdrawn(gone)])
    assert not found.take([Withdrawn(gone)])
    state = found.state(WINDOW)
    assert state is not None
    assert [point[0] for point in state["points"]] == [WINDOW, WINDOW + 2 * DAY]
