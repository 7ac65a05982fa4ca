"""The section `[stream]`: private real-valued streams."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from susurrus.agents.types.section import Delta, Epsilon, Positive, PositiveFloat, Section


class StreamSection(Section):
    """Private real-valued streams, with a promise per event."""

    method: Literal["tops", "tops-paper", "pak"] = "tops"
    """`tops`: ToPS with filter and adaptive split. `tops-paper`: as published. `pak`: a running sum after every value."""
    value: str = "value"
    """Field with the value, a dotted path."""
    stream: str | None = None
    """Field with the stream id; without it the Kafka key of a record is the id of its stream."""
    bound: PositiveFloat
    """Values are clamped to [0, bound]. Public: choose it without looking at the data."""
    grid: PositiveFloat | None = None
    """Values are rounded to multiples of it; by default bound / 4096."""
    epsilon: Epsilon
    """Privacy loss per event."""
    delta: Delta | None = None
    """`pak` only; 2^-20 by default. `tops` has none."""
    holdout: Positive = 65_536
    """m: values read for the threshold before the first release."""
    range_limit: Annotated[int, Field(ge=2, le=2**32)] = 1 << 20
    """`tops`: the longest range of values whose sum a reader needs."""
    fanout: Annotated[int, Field(ge=2, le=256)] = 16
    """`tops`: children per node of the hierarchy."""
    smoothing: Annotated[int, Field(ge=0, le=16)] | None = None
    """`tops`: released pieces hold fanout^smoothing values; by default chosen from epsilon and range_limit."""
    smoother: Literal["recent", "mean", "median", "moving-average", "exponential"] = "mean"
    """`tops`: how a value is guessed before its piece is released."""
    growth: bool = True
    """`tops`: let the clipping range of the next released tree follow the level of the trees before."""
    lower_clip: bool | None = None
    """`tops`: clip values from below, too, if they lie far from 0; by default if holdout * epsilon is at least 4096."""
    horizon: Annotated[int, Field(ge=2, le=2**40)] | None = None
    """`pak`: n, values per stream for which the noise is planned; longer streams begin a new tree."""
    tail_start: Annotated[float, Field(gt=0, lt=0.5)] = 0.005
    """`pak`: the share of values beyond which their distribution is taken to decay at least exponentially; public."""
    secret_file: Path | None = None
    """File with the noise secret, as privacy.secret_file of a histogram; without it SUSURRUS_SECRET is read."""
