"""What the log of charges says that a pipeline has spent, for its metrics. It depends on configuration and calendar alone."""

from collections.abc import Sequence
from typing import NamedTuple

from susurrus.agents.config.settings import Settings
from susurrus.agents.runtime.budget import budget_of, guarantee_of, spend_of
from susurrus.topics.charges import Charge


class Spent(NamedTuple):
    """By one pipeline, in all epochs: windows, and sums over them. windows_left: of [budget], after what all pipelines on the raw
    topic were charged; None without one."""

    windows: int
    epsilon: float
    delta: float
    mu_squared: float
    windows_left: int | None


class Spending:
    """Adds charges up, once for every change of them."""

    def __init__(self, settings: Settings) -> None:
        self._pipeline = settings.pipeline.name
        self._budget = budget_of(settings)
        self._last: tuple[Sequence[Charge], Spent | None] = ((), None)

    def of(self, charges: Sequence[Charge]) -> Spent | None:
        """What was spent; None while the pipeline has no charge. charges: all on the raw topic, the same object if unchanged."""
        if charges is not self._last[0]:
            self._last = charges, self._sum(charges)
        return self._last[1]

    def _sum(self, charges: Sequence[Charge]) -> Spent | None:
        own = [charge for charge in charges if charge.pipeline == self._pipeline]
        if not own:
            return None
        left = None
        if self._budget is not None:
            left = self._budget.windows_left(spend_of(charges), guarantee_of(own[-1]))
        return Spent(
            windows=len(own),
            epsilon=sum(charge.epsilon for charge in own),
            delta=sum(charge.delta for charge in own),
            mu_squared=sum(charge.mu**2 for charge in own),
            windows_left=left,
        )
