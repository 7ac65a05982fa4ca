"""The series the stream demonstration protects: a made-up smart meter, or a file of the reader's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError

READINGS = 36_864
"""The number of readings of the made-up meter: 25.6 days, one a minute."""
MOST_VALUES = 90_000
"""The embedded broker forgets what is older in a partition."""


@dataclass(frozen=True)
class Series:
    """values float64[n] in [0, bound]; ``unit`` and ``name`` are for people. per_day: readings of a
    day, where the series has days."""

    name: str
    unit: str
    bound: float
    grid: float
    values: npt.NDArray[np.float64]
    per_day: int | None = None

    def piece(self, readings: int, points: int) -> int:
        """How many readings a point of a chart has: a quarter of a day, or a round number for about so many points."""
        if self.per_day is not None:
            return self.per_day // 4
        least = max(1, -(-readings // points))
        power = 10 ** (len(str(least)) - 1)
        return int(next(step * power for step in (1, 2, 5, 10) if step * power >= least))

    def span(self, readings: int) -> str:
        """So many readings in words."""
        if self.per_day is not None:
            return f"{readings * 24 // self.per_day} hours"
        return f"{readings:,} readings"

    def labels(self, starts: Sequence[int]) -> list[tuple[int, str]]:
        """(point, text) for the axis of a chart with a point at each of these readings: the days that begin, or the positions."""
        if self.per_day is None:
            return [(point, f"{start:,}") for point, start in enumerate(starts)]
        return [(n, f"day {start // self.per_day + 1}") for n, start in enumerate(starts) if start % self.per_day == 0]


def smart_meter(readings: int = READINGS, seed: int = 1) -> Series:
    """A household's power in watts: base load, mornings and evenings, weekends, a kettle or an oven now and then."""
    rng = np.random.default_rng(seed)
    minute = np.arange(readings)
    hour, day = minute / 60 % 24, minute // 1440
    daily = 260 * np.exp(-((hour - 7.5) ** 2) / 3) + 520 * np.exp(-((hour - 19.0) ** 2) / 6)
    level = 140 + daily * np.where(day % 7 >= 5, 1.5, 1.0)
    kettles = rng.random(readings) < 0.015 * (1 + daily / 200)
    watts = level * rng.gamma(6.0, 1 / 6, readings) + np.where(kettles, rng.uniform(900, 2600, readings), 0.0)
    return Series(
        "a household's smart meter (made up)", "W", 12_000.0, 10.0, np.round(np.minimum(watts, 12_000.0)), 1440
    )


def from_file(path: Path, bound: float) -> Series:
    """``values`` of an npz file, as many as the embedded broker holds. Raises ConfigurationError."""
    try:
        with np.load(path) as data:
            values = np.asarray(data["values"], dtype=np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise ConfigurationError(f"--data={path}: no npz file with an array `values` ({error}); give another") from None
    if values.ndim != 1 or len(values) < 4096 or not np.isfinite(values).all():
        raise ConfigurationError(f"--data={path}: needs at least 4096 finite values in one row; give another file")
    return Series(path.name, "", bound, max(bound / 4096, 1.0), np.clip(values[:MOST_VALUES], 0, bound))
