"""``kind = "mean"``: the mean of a field, from a centred sum and a count."""

from collections.abc import Iterator, Sequence

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, ColumnOfField
from susurrus.agents.histogram.columns.centred import CentredSum, centre_of, half_range
from susurrus.agents.histogram.columns.count import Count
from susurrus.agents.histogram.columns.room import room_problems
from susurrus.agents.histogram.columns.sum import Sum
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.topics.wire.json_rows import Numbers


class Mean(ColumnOfField):
    """The mean of a field, c + U / N: both are noisy, so it is slightly biased for keys with few users."""

    kind = "mean"
    meaning = "of `field`, from a count and the sum of the values' distances from the middle of their range"
    additive = False
    divisor = 1
    post_processing = "the estimate is clamped to the same bounds, which costs nothing"

    def problems(self, records: int) -> Iterator[str]:
        """The range must hold a multiple of the grid, and the sums must fit 64 bits."""
        return room_problems(self.value, lambda: half_range(self.value), records)

    @property
    def centre(self) -> float | None:
        """The middle of the range; None where it is 0, and the sum is the field's own."""
        return centre_of(self.value) * self.value.grid or None

    def measured(self) -> tuple[ColumnKind, ...]:
        """A sum and a count, which may be those of other columns."""
        count = Count(name=f"{self.name}/count")
        if self.centre is None:
            return Sum(name=f"{self.name}/sum", field=self.field), count
        return CentredSum(name=f"{self.name}/centred", field=self.field), count

    def formula(self, measured: Sequence[str]) -> str:
        """C + U / N in words."""
        quotient = f"{measured[0]} ÷ {measured[1]}"
        return quotient if self.centre is None else f"{self.centre:g} + {quotient}"

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Clamped to the public bounds, which is post-processing, with the standard error of a ratio (delta method). A count below
        one is taken for one."""
        grid, centre = self.value.grid, self.centre or 0.0
        count = np.maximum(estimates[:, 1], 1).astype(np.float64)
        mean: Floats = centre + estimates[:, 0] * grid / count
        mean = np.clip(mean, self.value.lowest * grid, self.value.highest * grid)
        return mean, np.hypot(std_errors[:, 0] * grid, (mean - centre) * std_errors[:, 1]) / count
