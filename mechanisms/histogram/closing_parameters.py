"""What a pipeline may set of strategy `closing`: four shares of one budget, how many keys are ranked and measured, and the priors.

    [privacy.closing] ──▶ ClosingParameters ──plan──▶ closing.py; within a plan's caps, and for shares that follow the output
                          (persistence.py)

All of it is public and part of the digest, as are the constants here, which nobody can set.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram import last_rows
from susurrus.mechanisms.histogram.bounding import MAX_LISTED_KEYS
from susurrus.mechanisms.histogram.last_look import FILTER_SIGNAL
from susurrus.mechanisms.histogram.persistence import SHARES, persistence_with
from susurrus.mechanisms.histogram.plan import constant
from susurrus.mechanisms.histogram.ranked import MAX_RANKED_KEYS, RankedParameters
from susurrus.mechanisms.histogram.user_lists import WEIGHT_CONSTANTS

DECAY = 0.7
"""Each rank's weight is so much of the one before, unless `prior` says otherwise."""
CONSTANTS = (*WEIGHT_CONSTANTS, *last_rows.CONSTANTS, FILTER_SIGNAL, MAX_LISTED_KEYS)
"""What no parameter changes, for the digest of a plan."""


@dataclass(frozen=True, kw_only=True)
class ClosingParameters(RankedParameters):
    """Parameters of strategy `closing`. The four shares are of the squared Gaussian budget; the values have the rest.

    It has a ledger in place of a cap: see `bounds.max_records_per_user`.
    """

    ranked_keys: int = constant(
        10,
        "Keys per user, the first of those not published yet, that carry weight in the selection. Which of one trigger come "
        "first, a keyed hash decides.",
        ge=1,
        le=MAX_RANKED_KEYS,
    )
    discovery_share: float = constant(
        0.4,
        "Share of the squared Gaussian budget for selection before the last trigger and at it. Where keys are remembered and "
        "all three shares are the defaults, a window's shares follow how much of the window before had lasted "
        "(docs/strategies.md).",
        gt=0,
        lt=1,
    )
    unknown_share: float = constant(
        0.13,
        "Share of the squared Gaussian budget for keys that are still not published before the last trigger. More "
        "finds more keys at the end of a window, and fewer before. 0, with `public_share` = 0: the last trigger is like any "
        "other, and the stream has the whole budget.",
        ge=0,
        lt=1,
    )
    public_share: float = constant(
        0.05,
        "Share of the squared Gaussian budget for measuring the published keys once more. 0 where `unknown_share` is 0.",
        ge=0,
        lt=1,
    )
    keys: int = constant(
        16,
        "Keys per user, the first of those still not published, that are measured at the last trigger. At least `ranked_keys`.",
        ge=1,
        le=MAX_RANKED_KEYS,
    )
    filter_weight: float | None = constant(
        None,
        "Weight of what the stream knows of a key, beside the users' lists, in the test at the last trigger. By default "
        "0.66 times the ratio of the variances of both, which is 0.7 for 100 triggers.",
        ge=0,
        le=100,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discovery_share + self.unknown_share + self.public_share >= 1:
            raise ConfigurationError(
                f"discovery_share={self.discovery_share}, unknown_share={self.unknown_share}, "
                f"public_share={self.public_share}: together they must be below 1, the rest is the values'"
            )
        if (self.unknown_share == 0) != (self.public_share == 0):
            raise ConfigurationError(
                f"unknown_share={self.unknown_share}, public_share={self.public_share}: are both 0, which leaves the last "
                "look out, or both above 0; change one of them"
            )
        if not self.last_look:
            for name in ("keys", "filter_weight"):
                if (value := getattr(self, name)) != type(self).__dataclass_fields__[name].default:
                    raise ConfigurationError(
                        f"{name}={value}: has no meaning with unknown_share=0, which leaves the last look out; delete it"
                    )
        elif self.keys < self.ranked_keys:
            raise ConfigurationError(
                f"keys={self.keys}: must be at least ranked_keys={self.ranked_keys}, so that a key with a rank is "
                "measured at the last trigger, too"
            )

    @property
    def last_look(self) -> bool:
        """Whether the users' lists are measured at the last trigger."""
        return self.unknown_share > 0

    @property
    def value_share(self) -> float:
        """What the other shares leave."""
        return 1 - (self.discovery_share + self.unknown_share + self.public_share)

    @property
    def persistence(self) -> int | None:
        """kappa in tenths of the plan with these shares; None where the shares are others than those of the eleven plans."""
        return persistence_with(self.discovery_share, self.unknown_share, self.public_share)

    def at_persistence(self, persistence: int) -> Self:
        """With the shares that follow, where the default ones are given."""
        if self.persistence != 0:
            return self
        shares = SHARES[persistence]
        return replace(
            self,
            discovery_share=float(shares.discovery),
            unknown_share=float(shares.unknown),
            public_share=float(shares.public),
        )

    def default_prior(self, rank: int) -> float:
        """DECAY^i."""
        return DECAY**rank

    def within(self, max_records: int) -> Self:
        """No more keys are ranked or measured than a user has: ranks that nobody takes would cost budget."""
        keys = min(self.keys, max_records) if self.last_look else self.keys
        return replace(self, ranked_keys=min(self.ranked_keys, max_records), keys=keys)

    def published(self) -> dict[str, Any]:
        """What no parameter changes is covered, too."""
        return super().published() | {"constants": CONSTANTS}
