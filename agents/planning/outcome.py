"""The numbers of a forecast: what one strategy does with the windows at hand, and how far that depends on the noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from susurrus.agents.planning.volumes import Volumes


@dataclass(frozen=True, slots=True)
class Spread:
    """A number that depends on the noise: its mean over the runs, and its standard deviation among them (0 for one run)."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        found = np.array([value for value in values if not np.isnan(value)], np.float64)
        if not len(found):
            return cls(float("nan"), 0.0)
        return cls(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnErrors:
    """One published column at one trigger, in its own unit.

    l1: the sum over all keys of |published - true|, where an unpublished key counts with its whole value; relative: l1 over the sum
    of the true values. Both are missing (nan) for means. published: the mean of |published - true| over published keys.
    std_error: the median of what the published rows say.
    """

    l1: Spread
    relative: Spread
    published: Spread
    std_error: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTrigger:
    """keys: published by then. covered: the share of all records whose keys are published."""

    trigger: int
    keys: Spread
    covered: Spread
    columns: Mapping[str, ColumnErrors]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """Keys with `least` to `most` users (None: no limit) at the end of a window. error: of the first column, published keys."""

    least: int
    most: int | None
    keys: float
    found: Spread
    error: Spread
    relative: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOutcome:
    """What a strategy does with the data at hand. Numbers are per window.

    kept: the share of records within the caps. users_over: the share of users that lose records. clamped: by field, (share of
    records outside of the bounds, share of the sum of absolute values that the clamps take away).
    """

    triggers: list[AtTrigger]
    sizes: list[SizeClass]
    records: float
    users: float
    keys: float
    kept: float
    users_over: float
    clamped: Mapping[str, tuple[float, float]]
    volumes: Volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyForecast:
    """refused: why a strategy cannot run with these settings; then the rest is empty.

    triggers: which. std_errors: by column that is measured itself, of its own measurements at these triggers. appears: by
    probability, the users of a key at these triggers; empty where nothing is discovered. about: subject and sentence of what is to
    be known of the published columns. outcome: where there are data.
    """

    name: str
    summary: str
    refused: str | None = None
    triggers: list[int] = field(default_factory=list)
    std_errors: Mapping[str, list[float]] = field(default_factory=dict)
    appears: Mapping[float, list[int]] = field(default_factory=dict)
    about: Sequence[tuple[str, str]] = ()
    outcome: StrategyOutcome | None = None
