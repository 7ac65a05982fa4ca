"""Composition over windows, pipelines and epochs, against dp-accounting; and the refusal."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution

from susurrus.mechanisms.accounting import delta_gaussian, gaussian_mu
from susurrus.mechanisms.errors import BudgetExhausted, ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.spend import Budget, Spend


def guarantee(epsilon: float = 1.0, delta: float = 1e-7) -> Guarantee:
    mu = gaussian_mu(epsilon, delta / 2)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        delta_gaussian=delta_gaussian(mu, epsilon),
        delta_selection=delta / 2,
    )


def test_shifts_add_in_squares_and_failures_add() -> None:
    spend = Spend()
    for _ in range(9):
        spend = spend.plus(guarantee())
    assert spend.mu == pytest.approx(3 * guarantee().mu, rel=1e-12)
    assert spend.delta_selection == pytest.approx(4.5e-7, rel=1e-12)
    assert Spend().plus(guarantee(), 9).mu == pytest.approx(spend.mu, rel=1e-12)


@pytest.mark.parametrize("windows", [1, 4, 16])
def test_a_user_in_several_windows_against_privacy_loss_distributions(windows: int) -> None:
    one = guarantee()
    loss = privacy_loss_distribution.from_gaussian_mechanism(1 / one.mu, value_discretization_interval=1e-4)
    composed = loss.self_compose(windows)
    spend = Spend().plus(one, windows)
    for epsilon in (1.0, 3.0):
        gaussian = spend.delta_total(epsilon) - spend.delta_selection
        assert gaussian == pytest.approx(composed.get_delta_for_epsilon(epsilon), rel=0.02, abs=1e-14)


def test_epsilon_total_inverts_delta_total() -> None:
    spend = Spend().plus(guarantee(), 5)
    epsilon = spend.epsilon_total(1e-6)
    assert spend.delta_total(epsilon) <= 1e-6 < spend.delta_total(epsilon * (1 - 1e-4))
    assert spend.epsilon_total(spend.delta_selection / 2) == math.inf
    assert Spend().epsilon_total(1e-9) == 0.0


def test_rounding_is_against_us() -> None:
    spend = Spend()
    for _ in range(1000):
        spend = spend.plus(guarantee())
    assert spend.mu_squared >= math.fsum([guarantee().mu ** 2] * 1000)
    assert spend.delta_selection >= math.fsum([guarantee().delta_selection] * 1000)


class TestBudget:
    BUDGET = Budget(epsilon=5.0, delta=1e-6)

    def test_charges_until_the_total_and_then_refuses(self) -> None:
        spent, windows = Spend(), self.BUDGET.windows_left(Spend(), guarantee())
        assert windows > 3
        for _ in range(windows):
            spent = self.BUDGET.charge(spent, guarantee())
            assert spent.delta_total(self.BUDGET.epsilon) <= self.BUDGET.delta
        assert self.BUDGET.windows_left(spent, guarantee()) == 0
        before = spent
        with pytest.raises(BudgetExhausted, match="nothing of it was published"):
            self.BUDGET.charge(spent, guarantee())
        assert spent is before

    def test_a_batch_of_windows_is_all_or_nothing(self) -> None:
        windows = self.BUDGET.windows_left(Spend(), guarantee())
        with pytest.raises(BudgetExhausted):
            self.BUDGET.charge(Spend(), guarantee(), windows + 1)
        assert self.BUDGET.charge(Spend(), guarantee(), windows) == Spend().plus(guarantee(), windows)

    def test_pipelines_share_one_total(self) -> None:
        spent = self.BUDGET.charge(Spend(), guarantee(2.0))
        assert self.BUDGET.windows_left(spent, guarantee()) < self.BUDGET.windows_left(Spend(), guarantee())

    def test_an_epoch_more_is_a_charge_more(self) -> None:
        """The same window again with fresh noise: mu * sqrt(2), twice the failures."""
        spent = self.BUDGET.charge(self.BUDGET.charge(Spend(), guarantee()), guarantee())
        assert spent.mu == pytest.approx(guarantee().mu * math.sqrt(2), rel=1e-12)

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (math.nan, 0.1)])
    def test_impossible_totals_are_refused(self, epsilon: float, delta: float) -> None:
        with pytest.raises(ConfigurationError, match="budget"):
            Budget(epsilon=epsilon, delta=delta)


@pytest.mark.parametrize("bad", [(-1.0, 0.0), (0.0, -1.0), (math.nan, 0.0), (math.inf, 0.0)])
def test_spends_are_numbers(bad: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="mu_squared"):
        Spend(*bad)


def test_negative_times_are_refused() -> None:
    with pytest.raises(ValueError, match="times"):
        Spend().plus(guarantee(), -1)
