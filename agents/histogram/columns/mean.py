"""``kind = "mean"``: the mean of a field, from a sum and a count."""

from collections.abc import Iterator

import numpy as np

from susurrus.agents.histogram.columns.base import ColumnKind, ColumnOfField
from susurrus.agents.histogram.columns.count import Count
from susurrus.agents.histogram.columns.sum import Sum
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.topics.wire.json_rows import Numbers


class Mean(ColumnOfField):
    """The mean of a field: a noisy sum over a noisy count, so slightly biased for keys with few users."""

    kind = "mean"
    meaning = "of `field`, from a sum and a count"
    divisor = 1
    post_processing = "the estimate is clamped to the same bounds, which costs nothing"

    def problems(self, records: int) -> Iterator[str]:
        """The problems of a mean are those of its sum."""
        return self.measured()[0].problems(records)

    def measured(self) -> tuple[ColumnKind, ...]:
        """A sum and a count, which may be those of other columns."""
        return Sum(name=f"{self.name}/sum", field=self.field), Count(name=f"{self.name}/count")

    def publish(self, estimates: Int64s, std_errors: Floats) -> tuple[Numbers, Floats]:
        """Clamped to the public bounds, which is post-processing, with the standard error of a ratio (delta method). A count below
        one is taken for one."""
        total, _ = self.measured()
        count = np.maximum(estimates[:, 1], 1).astype(np.float64)
        lowest, highest = self.value.lowest * total.grid, self.value.highest * total.grid
        mean: Floats = np.clip(estimates[:, 0] * total.grid / count, lowest, highest).astype(np.float64)
        return mean, np.hypot(std_errors[:, 0] * total.grid, mean * std_errors[:, 1]) / count
