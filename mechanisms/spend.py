"""The privacy spent on one user, and the refusal to spend more than the total.

The unit of one histogram is (user, window). A user who is active in several windows, or whose records feed several
pipelines or epochs, is exposed to all of them: Gaussian shifts add in squares, selection failures add. Charge before
anything is published. Argument: docs/guarantees/composition.md.
"""

import math
from dataclasses import dataclass

from susurrus.mechanisms.accounting import delta_gaussian
from susurrus.mechanisms.errors import BudgetExhausted, ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee


@dataclass(frozen=True, slots=True)
class Spend:
    """A composition of histogram mechanisms: mu_squared = sum of mu^2, delta_selection = sum of selection failures."""

    mu_squared: float = 0.0
    delta_selection: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.mu_squared < math.inf and 0 <= self.delta_selection < math.inf):
            raise ValueError(
                f"mu_squared={self.mu_squared}, delta_selection={self.delta_selection}: must be finite, >= 0"
            )

    @property
    def mu(self) -> float:
        """Parameter of the equivalent single Gaussian mechanism."""
        return math.sqrt(self.mu_squared)

    def plus(self, guarantee: Guarantee, times: int = 1) -> "Spend":
        """This and `times` further mechanisms of the given guarantee, on data that may include the same user."""
        if times < 0:
            raise ValueError(f"times={times}: must not be negative")
        # Rounded up: 2^-50 is more than the two roundings of this line.
        return Spend(
            (self.mu_squared + times * guarantee.mu**2) * (1 + 2.0**-50),
            (self.delta_selection + times * guarantee.delta_selection) * (1 + 2.0**-50),
        )

    def delta_total(self, epsilon: float) -> float:
        """delta at epsilon: delta_G(mu, epsilon) + the selection failures, at most 1."""
        return min(1.0, delta_gaussian(self.mu, epsilon) + self.delta_selection)

    def epsilon_total(self, delta: float) -> float:
        """The smallest epsilon (to 1e-6, rounded up) with delta_total(epsilon) <= delta; inf if there is none."""
        if self.delta_total(0.0) <= delta:
            return 0.0
        if self.delta_selection >= delta:
            return math.inf
        low, high = 0.0, 1.0
        while self.delta_total(high) > delta:
            low, high = high, 2 * high
            if high > 1e9:
                return math.inf
        while high - low > 1e-6 * min(1.0, high):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta_total(middle) <= delta else (middle, high)
        return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A lifetime total (epsilon, delta) for a user who is active in every window of every pipeline charged to it."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and 0 < self.delta < 1):
            raise ConfigurationError(
                f"budget: epsilon={self.epsilon}, delta={self.delta}: need epsilon > 0 and 0 < delta < 1; set both"
            )

    def allows(self, spend: Spend) -> bool:
        """Whether a spend is within the total."""
        return spend.delta_total(self.epsilon) <= self.delta

    def charge(self, spent: Spend, guarantee: Guarantee, times: int = 1) -> Spend:
        """The new spend. Raises BudgetExhausted, and nothing is charged, if it would exceed the total."""
        after = spent.plus(guarantee, times)
        if not self.allows(after):
            raise BudgetExhausted(
                f"budget: epsilon={self.epsilon:g}, delta={self.delta:g} would be exceeded, since the next window "
                f"brings delta to {after.delta_total(self.epsilon):.3g} at this epsilon; nothing of it was published",
                "raise [budget] in the open, or stop the pipeline",
            )
        return after

    def windows_left(self, spent: Spend, guarantee: Guarantee) -> int:
        """How many more windows of this guarantee fit; at most 10^9."""
        low, high = 0, 1
        while high < 10**9 and self.allows(spent.plus(guarantee, high)):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.allows(spent.plus(guarantee, middle)) else (low, middle)
        return low
