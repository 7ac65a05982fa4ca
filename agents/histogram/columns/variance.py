"""``kind = "variance"`` and ``"stddev"``: how far a field's values are from their mean, from three measured columns."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, ColumnOfField
from susurrus.agents.histogram.columns.centred import centre_of, half_range
from susurrus.agents.histogram.columns.mean import Mean
from susurrus.agents.histogram.columns.square import CentredSquare, largest_deviation
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.topics.wire.json_rows import Numbers

_DEVIATIONS: Final = 10
"""What is said of the error takes the range to be so many standard deviations wide, with the mean in its middle."""
_CONFIDENT: Final = 1.96


class Variance(ColumnOfField):
    """The variance of the kept records of a key (of the population), Q / N + h - (U / N)^2: all three are noisy."""

    kind = "variance"
    meaning = "of `field`, over the kept records (`VAR_POP`); needs many of them"
    additive = False
    post_processing = "the estimate is cut to what the bounds allow, which costs nothing"
    purpose = (
        "to be known within ± 100 % (95 %) at a window's last trigger, if the range is 10 standard deviations wide and the mean is "
        "in its middle; a quarter of that if it is 5 wide"
    )

    def problems(self, records: int) -> Iterator[str]:
        """Those of a mean, and of the squares."""
        problem = next(Mean(name=self.name, field=self.field).problems(records), None)
        yield from self._square.problems(records) if problem is None else (problem,)

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return centre_of(self.value) * self.value.grid

    def measured(self) -> tuple[ColumnKind, ...]:
        """Squares, and what a mean measures."""
        return self._square, *Mean(name=self.name, field=self.field).measured()

    def formula(self, measured: Sequence[str]) -> str:
        """The variance in words."""
        square, total, count = measured
        return f"{square} ÷ {count} + {self._middle:g} - ({total} ÷ {count})²"

    def least_records(self, std_errors: Floats) -> float:
        """With n records, the 95 % interval of a variance reaches 1.96 e / n to both sides (delta method). That is the variance
        itself at n = 1.96 e / variance."""
        variance = (2 * largest_deviation(self.value) / _DEVIATIONS) ** 2
        noise = self._noise(np.array([variance - self._middle]), np.zeros(1), std_errors[None])
        return _CONFIDENT * float(noise[0]) / variance

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Cut to [0, (range / 2)^2], which is post-processing, with the error of the delta method. A count below one is taken for
        one."""
        square, most = self._square, half_range(self.value) * self.value.grid
        count = np.maximum(estimates[:, 2], 1).astype(np.float64)
        squares = estimates[:, 0] * square.grid / count
        distance = estimates[:, 1] * self.value.grid / count
        variance: Floats = np.clip(squares + self._middle - distance**2, 0.0, largest_deviation(self.value) ** 2)
        # Errors are those at possible values: a mean square and a mean distance outside of the range would enlarge them.
        squares = np.clip(squares, -self._middle, square.bound * square.grid)
        return variance, self._noise(squares, np.clip(distance, -most, most), std_errors) / count

    @property
    def _square(self) -> CentredSquare:
        return CentredSquare(name=f"{self.name}/square", field=self.field)

    @property
    def _middle(self) -> float:
        """h in the square of the field's unit."""
        return self._square.middle * self._square.grid

    def _noise(self, squares: Floats, distance: Floats, std_errors: Floats) -> Floats:
        """The error times the count. squares: Q / N, less h. distance: U / N."""
        by_square = std_errors[:, 0] * self._square.grid
        by_sum = 2 * distance * std_errors[:, 1] * self.value.grid
        by_count = (squares - 2 * distance**2) * std_errors[:, 2]
        noise: Floats = np.sqrt(by_square**2 + by_sum**2 + by_count**2)
        return noise


class StandardDeviation(Variance):
    """The square root of the variance."""

    kind = "stddev"
    meaning = "standard deviation of `field`, over the kept records (`STDDEV_POP`); needs many of them"
    purpose = (
        "to be known within ± 50 % (95 %) at a window's last trigger, if the range is 10 standard deviations wide and the mean is "
        "in its middle; a quarter of that if it is 5 wide"
    )

    def formula(self, measured: Sequence[str]) -> str:
        """The standard deviation in words."""
        return f"√({super().formula(measured)})"

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """The delta method divides the variance's error by twice the root; near 0 the error is at most the root of that error."""
        variance, error = super().publish(estimates, std_errors)
        root = np.sqrt(variance)
        # Where the root is smaller than this, the quotient would be larger than the most.
        least = np.sqrt(error) / 2
        return root, error / (2 * np.maximum(root, np.maximum(least, np.finfo(np.float64).tiny)))
