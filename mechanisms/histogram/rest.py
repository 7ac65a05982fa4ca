"""The rest of a window: what came after one of its triggers, from rows that are published already.

    row of trigger t, row of trigger E ──┐
    the estimate of E that is published ─┴──▶ n_E - n_t, with its error ──▶ rolling views (agents/histogram/rolling.py)

With q_t and q_E the rows of the key's own measurements, and e the published estimate of the end, whose error is s:

    R = e - q_t + beta (q_E - e),    beta = cov(noise of q_t, noise of q_E) / var(noise of q_E)

Where nothing was calibrated, e = q_E and R is the difference q_E - q_t. Where e is calibrated, its noise is not that of q_E, so
the noise of q_t does not cancel in e - q_t; beta (q_E - e) brings back what cancels. docs/guarantees/rolling.md has the argument.
Post-processing of published rows and public constants, so it costs no privacy. Numbers are in a column's grid units.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.histogram.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOfWindow:
    """The constants of what came after some triggers, until one end.

    triggers: int64[t], ascending, the ones that rows may begin with. variances: float64[t, columns], of the noise of their rows.
    covariances: float64[t, columns], with the noise of the end. end: float64[columns], the variance of that.
    """

    triggers: Int64s
    variances: Floats
    covariances: Floats
    end: Floats

    @classmethod
    def of(cls, strategy: Strategy[Any], triggers: Int64s, end: Trigger) -> Self:
        """The constants of a strategy. triggers: int64[n], before the end, in any order.

        Raises ConfigurationError for a strategy whose rows do not follow every trigger.
        """
        found = np.unique(triggers)
        shape = (len(found), strategy.plan.width)
        each = [Trigger(trigger) for trigger in found.tolist()]
        return cls(
            triggers=found,
            variances=np.array([strategy.covariance(trigger, trigger) for trigger in each]).reshape(shape),
            covariances=np.array([strategy.covariance(trigger, end) for trigger in each]).reshape(shape),
            end=strategy.covariance(end, end),
        )

    def rows(
        self, since: Int64s, early: Int64s, late: Int64s, estimates: Int64s, std_errors: Floats
    ) -> tuple[Int64s, Floats]:
        """(estimates, variances), [n, columns] each, of what came after the trigger ``since``, int64[n], of each row.

        early, late: int64[n, columns], the own measurements of `since` and of the end. estimates, std_errors: [n, columns], what is
        published of the end; late and its error where nothing is calibrated.
        """
        at = np.searchsorted(self.triggers, since)
        covariance = self.covariances[at]
        beta = covariance / self.end
        found = estimates - early + np.rint(beta * (late - estimates)).astype(np.int64)
        # Three roundings beside the one in std_errors: of early (1), of late (beta), which may be in `estimates` as well (at most
        # 2 beta (1 - beta)), and that of the sum itself (1), each of variance 1/12.
        rounding = (2 + beta * (2 - beta)) / 12
        variances = (1 - beta) ** 2 * std_errors**2 + (self.variances[at] - beta * covariance) + rounding
        return found, np.asarray(variances, np.float64)


def factors(strategy: Strategy[Any], triggers: int, end_error: float = 1.0) -> npt.NDArray[np.float64]:
    """float64[triggers - 1, columns]: standard error of a rolling row at each trigger but the last, relative to a window's last.

    The window so far and the rest of the one before it, both without a calibrated row. triggers: of a window before its end.
    end_error: of the estimate of the earlier window's end, relative to its own measurements. Rounding is left out.
    """
    last = Trigger(triggers)
    early = np.arange(1, triggers)
    rest = RestOfWindow.of(strategy, early, last)
    beta = rest.covariances / rest.end
    of_rest = (1 - beta) ** 2 * end_error**2 * rest.end + rest.variances - beta * rest.covariances
    return np.asarray(np.sqrt((rest.variances + of_rest) / rest.end), np.float64)


def costs(strategy: Strategy[Any], triggers: int) -> str:
    """What a rolling view costs, in plain words. triggers: of a window before its end."""
    found = factors(strategy, triggers)[:, 0]
    calibrated = ", less where the window before has calibrated rows" if strategy.refined else ""
    return (
        f"from published rows, at no cost: its standard error is {found.min():.2f} to {found.max():.2f} times that of a window's "
        f"last row{calibrated}; users are counted per window, so who comes in both counts twice"
    )
