"""When a budget ends, if every pipeline that charges it goes on as its calendar says (agents/operations/account.py).

A running pipeline charges each of its windows once, in order, whether or not anyone was there. So what will have been charged at an
instant is known in advance, and the end of the budget is found exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.mechanisms.windows import TumblingWindows

_HALVINGS = 60
_ENDLESS = 1e18
"""mu^2: no budget that anyone writes holds so much."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What one pipeline goes on to charge: one `guarantee` for each window of its calendar, from the first (its start in ms)."""

    guarantee: Guarantee
    first: int
    calendar: TumblingWindows

    @property
    def every(self) -> int:
        """From one window to the next, in ms: mostly so long."""
        return self.calendar.usual

    def windows(self, until: int) -> int:
        """How many of the windows begin at or before an instant (ms)."""
        return self.calendar.count(self.first, until + 1)


def first_overdraft(budget: Budget, spent: Spend, rates: Sequence[Rate], horizon: int) -> int | None:
    """The start (ms) of the first window that does not fit, at most `horizon`; None if the budget lasts until then.

    Of windows that begin at the same instant, all must fit.
    """

    def fits(until: int) -> bool:
        after = spent
        for rate in rates:
            after = after.plus(rate.guarantee, rate.windows(until))
        return budget.allows(after)

    if not rates or fits(horizon):
        return None
    low, high = min(rate.first for rate in rates) - 1, horizon
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return high


def mu_squared_max(budget: Budget, spent: Spend, rates: Sequence[Rate]) -> float:
    """The sum of mu^2 at which the budget ends, where mu^2 and selection failures go on to grow in the proportion of the rates.

    Without rates they grow as they did. If more than the budget is spent, it is where the budget ended in that proportion.
    """
    if not budget.allows(spent):
        return spent.mu_squared * _largest_share(budget, Spend(), spent)
    per_ms = Spend(
        sum(rate.guarantee.mu**2 / rate.every for rate in rates),
        sum(rate.guarantee.delta_selection / rate.every for rate in rates),
    )
    growth = next((each for each in (per_ms, spent) if each.mu_squared > 0), Spend(1.0))
    unit = Spend(1.0, growth.delta_selection / growth.mu_squared)
    most = 1.0
    while most < _ENDLESS and budget.allows(_after(spent, unit, most)):
        most *= 2
    return spent.mu_squared + most * _largest_share(budget, spent, Spend(most, most * unit.delta_selection))


def _after(spent: Spend, growth: Spend, times: float) -> Spend:
    return Spend(spent.mu_squared + times * growth.mu_squared, spent.delta_selection + times * growth.delta_selection)


def _largest_share(budget: Budget, spent: Spend, growth: Spend) -> float:
    """The largest share, 0 to 1, of the growth that fits."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if budget.allows(_after(spent, growth, middle)) else (low, middle)
    return low
