"""The section `[local]`: reports perturbed by the clients."""

from typing import Annotated, Literal

from pydantic import Field

from susurrus.agents.config.durations import Duration
from susurrus.agents.config.sections import Epsilon, Positive, PositiveFloat, Section


class LocalSettings(Section):
    """Pipeline kind `local`: reports perturbed by the clients, event-level."""

    bound: PositiveFloat
    """Values are clamped to [0, bound] by the client."""
    epsilon: Epsilon
    """Privacy loss per report."""
    holdout: Positive = 65_536
    """m: reports of phase 1 read for the threshold."""
    interval: Annotated[Duration, Field(ge=1, alias="slot")] = 60_000
    """Length of the time intervals for which sums are published."""
    lateness: Duration = 30_000
    """An interval is published this long after its end; reports that come later go to the dead-letter topic."""
    scale: Literal["log", "linear"] = "log"
    """Domain of the phase 1 reports; `log` also resolves values far below the bound. The clients' must be the same."""
    horizon: Positive = 1 << 20
    """Reports expected under one threshold: more of them make truncation matter more than noise."""
    refresh: Annotated[Duration, Field(ge=1)] | None = None
    """Choose a new threshold this often, from fresh phase 1 reports; needs `phase1_share`. By default the first one
    stays."""
    phase1_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the reports that stay phase 1 once there is a threshold; they are missing from the sums' count."""
