"""The section `[privacy]` of a histogram: the promise, and the strategy with its parameters."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from susurrus.agents.config.sections import Delta, Epsilon, PositiveFloat, Section


class WeightedSettings(Section):
    """Parameters of strategy `weighted`."""

    gamma: Annotated[float, Field(gt=0, lt=1)] = 0.65
    """Exponent of the selection strategy."""
    ranked_keys: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Keys per user, in order of first occurrence, that carry weight in the selection."""
    prior: tuple[PositiveFloat, ...] | None = None
    """Decreasing weights by rank, from public knowledge; by default the strategy's own."""


class AdaptiveSettings(Section):
    """Parameters of strategy `adaptive`."""

    gamma: Annotated[float, Field(gt=0, lt=1)] = 0.65
    """Exponent of the selection strategy."""
    ranked_keys: Annotated[int, Field(ge=1, le=65_536)] = 8
    """Keys per user, of those not published yet and in order of first occurrence, that carry weight in the selection."""
    prior: tuple[PositiveFloat, ...] | None = None
    """Decreasing weights by rank, from public knowledge; by default each is 0.6 of the one before."""
    lag: Annotated[int, Field(ge=1, le=1024)] = 1
    """Triggers from a key's publication until its records need no selection. Bounding waits for what was published so
    many triggers before: more than 1 lets the stages work further apart, and finds fewer keys."""


class ClosingSettings(AdaptiveSettings):
    """Parameters of strategy `closing`: those of `adaptive`, and of the measurement at a window's last trigger."""

    unknown_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Share of the squared Gaussian budget for keys that are still not published before the last trigger. More finds more
    keys at the end of a window, and fewer before."""
    public_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the squared Gaussian budget for measuring the published keys once more."""
    keys: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Keys per user, of those still not published and in order of first occurrence, that are measured at the last trigger."""


class PrivacySettings(Section):
    """The promise, per user and window, under adding or removing all of one user's records in one window."""

    epsilon: Epsilon
    """Privacy loss per user and window."""
    delta: Delta
    """Probability with which the loss may exceed epsilon; far below one over the number of users."""
    strategy: Literal["toeplitz", "weighted", "adaptive", "closing", "dp-sqlp"] = "toeplitz"
    """`toeplitz`: one mechanism for selection and values. `weighted`: separate selection by ranked weights. `adaptive`:
    the same, with weights for keys that are not published yet only. `closing`: the same, and one more measurement at a
    window's last trigger. `dp-sqlp`: the paper's binary tree, for comparison."""
    gaussian_delta_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of delta for the Gaussian noise; the rest pays for the selection of keys."""
    selection_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the squared Gaussian budget for selection where it is measured separately. With strategy `closing`: of what
    the measurement at the last trigger leaves."""
    weighted: WeightedSettings = WeightedSettings()
    """Parameters of strategy `weighted`."""
    adaptive: AdaptiveSettings = AdaptiveSettings()
    """Parameters of strategy `adaptive`."""
    closing: ClosingSettings = ClosingSettings()
    """Parameters of strategy `closing`."""
    secret_file: Path | None = None
    """File with the noise secret (hexadecimal, base64 or raw, at least 32 bytes), the same for all workers; a relative
    path starts at the configuration file. Without it: the variable SUSURRUS_SECRET."""

    @property
    def by_rank(self) -> WeightedSettings | AdaptiveSettings | None:
        """The section of a strategy that ranks a user's keys."""
        sections: dict[str, WeightedSettings | AdaptiveSettings] = {
            "weighted": self.weighted,
            "adaptive": self.adaptive,
            "closing": self.closing,
        }
        return sections.get(self.strategy)
