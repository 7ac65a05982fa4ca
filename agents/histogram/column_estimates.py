"""One column of a release as a reader has it: up to three numbers for each row, and which of them is shown.

    values.<column> of rows ──joined (releases.py)──▶ Estimates ──▶ Release (estimates.py), tables, boards

docs/reading.md says which number is for what.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from susurrus.agents.frames import Column, with_interval
from susurrus.mechanisms.arrays import Bools, Floats
from susurrus.topics.histogram import Measured
from susurrus.topics.wire.json_rows import Numbers

Rows = npt.NDArray[np.intp]

ShownNumber = Literal["smoothed", "estimate", "direct"]
"""Which number of a row is shown: the smoothed one; the estimate; or that of the row's own stream alone. A row that has not got the
number shows its estimate."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """One column of a release.

    estimate: int64[n] or float64[n]. std_error: float64[n]. direct: both from the rows' own stream alone, where the estimate
    uses more than that: at a window's last trigger, with a strategy that calibrates. additive: whether its numbers add up over
    keys; False also where the configuration has no such column. divisor: of a mean, the published column by which it is
    divided, if any. centre: of a mean, the number from which its values' distances were measured.
    """

    estimate: Numbers
    std_error: Floats
    direct: tuple[Numbers, Floats] | None = None
    additive: bool = True
    divisor: str | None = None
    centre: float = 0.0
    interval: tuple[Floats, Floats] | None = None
    """float64[n] each, the ends of the 95 % interval, where that is not the normal distribution's: of quantiles."""
    smoothed: tuple[Numbers, Floats] | None = None
    """n each, both with rows of earlier windows, where some row has them; the other rows have their estimate here."""
    smoothed_rows: Bools | None = None
    """bool[n], which rows those are; None without any."""
    number: ShownNumber = "smoothed"
    """What `shown` has."""

    @property
    def shown(self) -> tuple[Numbers, Floats]:
        """The numbers to show and their standard errors."""
        if self.number == "direct":
            return self.independent
        if self.number == "smoothed" and self.smoothed is not None:
            return self.smoothed
        return self.estimate, self.std_error

    @property
    def independent(self) -> tuple[Numbers, Floats]:
        """Estimates and standard errors whose noise is independent from row to row: what differences use."""
        return self.direct or (self.estimate, self.std_error)

    @property
    def summands(self) -> tuple[Numbers, Floats]:
        """What sums over keys add, and the errors they take it to have (docs/decisions/0049-sums-over-shown-rows.md).

        The row's own stream at a window's last trigger. Before it, the smoothed number where a row has one: it decided that the row
        is shown, with the row's noise in it, so that of the rows that are shown the own streams are too high. Errors are those of
        the own streams in both cases, because errors of smoothed rows have parts in common.
        """
        own, errors = self.independent
        if self.direct is not None or self.smoothed is None:
            return own, errors
        return self.smoothed[0], errors

    def take(self, rows: Rows) -> "Estimates":
        """Some rows, in this order."""

        def of(pair: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
            return None if pair is None else (pair[0][rows], pair[1][rows])

        some = None if self.smoothed_rows is None else self.smoothed_rows[rows]
        has_some = some is not None and bool(some.any())
        return replace(
            self,
            estimate=self.estimate[rows],
            std_error=self.std_error[rows],
            direct=of(self.direct),
            interval=of(self.interval),
            smoothed=of(self.smoothed) if has_some else None,
            smoothed_rows=some if has_some else None,
        )

    def at(self, row: int) -> Measured:
        """The shown number of one row and its standard error, as Python's own numbers."""
        estimate, error = self.shown
        ends = (None, None) if self.interval is None else (self.interval[0][row].item(), self.interval[1][row].item())
        return Measured(estimate[row].item(), error[row].item(), *ends)

    def named(self, name: str, confidence: float | None) -> dict[str, Column]:
        """The columns of a table: the shown number by the column's name, with its error and the ends of its interval, then each
        of the others that there is. A row without a smoothed number has None or NaN there. confidence: None for no intervals."""
        estimate, error = self.shown
        found: dict[str, Column]
        if self.interval is not None:
            # It has one confidence, 95 %.
            ends = {f"{name}_lower": self.interval[0], f"{name}_upper": self.interval[1]}
            found = {name: estimate, f"{name}_std_error": error, **ends}
        elif confidence is None:
            found = {name: estimate, f"{name}_std_error": error}
        else:
            found = dict(with_interval(name, estimate, error, confidence))
        if self.smoothed is not None or estimate is not self.estimate:
            found |= {f"{name}_estimate": self.estimate, f"{name}_estimate_std_error": self.std_error}
        if self.smoothed is not None:
            some = np.ones(len(self.estimate), np.bool_) if self.smoothed_rows is None else self.smoothed_rows
            numbers = self.smoothed[0].astype(object)  # a column of integers stays one, with gaps
            numbers[~some] = None
            found |= {f"{name}_smoothed": numbers.tolist()}
            found |= {f"{name}_smoothed_std_error": np.where(some, self.smoothed[1], np.nan)}
        if self.direct is not None:
            found |= {f"{name}_direct": self.direct[0], f"{name}_direct_std_error": self.direct[1]}
        return found
