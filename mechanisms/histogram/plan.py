"""The public constants of a histogram: those that every strategy has, and those of the chosen one.

A constant says its limits and its meaning once, in the metadata of its field. The checks below, the section of the
configuration, its reference page, its JSON schema and the digest all follow from there.

How epsilon gets from the configuration file to the noise:

    agents/histogram/privacy.py   `UserPromise` reads `[privacy] epsilon` and the section of the strategy
    agents/histogram/settings.py  `HistogramSettings.plan` puts both into a `Plan`
    agents/histogram/pipeline.py  `HistogramSettings.strategy` gives the plan to `build_strategy` (registry.py)
    the strategy's own file       its constructor solves for all noise scales. In a factored strategy, `budget_of` (factored.py)
                                  turns epsilon and delta into mu; mu^2 is then shared out among the mechanisms, and
                                  `value_mechanisms` (factored.py) and `Ranking` (ranked.py) turn shares into sigmas
    factored.py, selection.py     `Values` and `Selector` keep the sigma of one mechanism each
    mechanisms/noise.py           `WindowNoise.normal` draws noise of that sigma when release calls `Strategy.step`

The strategy's `guarantee` holds epsilon, too. The ledger charges it, and `susurrus config check` prints it.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, Literal, Self, TypeVar

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.cells import MAX_BUCKETS

MECHANISM_VERSION = 2
"""Goes into every digest and so into every noise label: a change of any formula must raise it."""

MAX_TRIGGERS = 2_048
MAX_BOUND = 1 << 24
"""Largest bound of a sum, in grid units."""
MIN_WEIGHT = 0.01
MAX_WEIGHT = 100.0

MAX_LEVELS = 26
"""Groupings of one plan: a key names its level by one letter."""
EVIDENCE_WINDOWS = (1, 2, 4)
"""How many windows may add up."""
SHARE_SLACK = 1e-12
"""By how much the levels' parts may add up to more than 1, for rounding. Each level's mu^2 is lowered by more than that."""

_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": ("above", lambda value, limit: value > limit),
    "ge": ("at least", lambda value, limit: value >= limit),
    "lt": ("below", lambda value, limit: value < limit),
    "le": ("at most", lambda value, limit: value <= limit),
}

OwnConstants = TypeVar("OwnConstants", bound="Constants")


def constant(default: Any, description: str, **limits: float) -> Any:
    """A field of `Constants`. limits: any of gt, ge, lt, le, as pydantic names them."""
    return field(default=default, metadata={"description": description, **limits})


def places_of(widths: Iterable[int]) -> tuple[slice, ...]:
    """Where parts of these widths stand, one behind the other."""
    return tuple(slice(first, last) for first, last in pairwise(accumulate(widths, initial=0)))


@dataclass(frozen=True, kw_only=True)
class Constants:
    """No parameters. A strategy without any uses this class as it is; others extend it by fields made with `constant`."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError where a number is outside of its limits, naming the field."""
        for each in fields(self):
            limits = {name: limit for name, limit in each.metadata.items() if name in _LIMITS}
            value = getattr(self, each.name)
            if not limits or (value is None and each.default is None):
                continue
            if not math.isfinite(value) or not all(_LIMITS[name][1](value, limit) for name, limit in limits.items()):
                rule = " and ".join(f"{_LIMITS[name][0]} {limit:g}" for name, limit in limits.items())
                raise ConfigurationError(f"{each.name}={value!r}: must be {rule}")

    def published(self) -> dict[str, Any]:
        """What a digest covers, as JSON values by name. A default that is computed enters by its value."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def within(self, max_records: int) -> Self:
        """The same where a user has at most so many keys that all count: a level's parameters. Most do not depend on it."""
        return self

    def at_persistence(self, persistence: int) -> Self:
        """The same for a window before which so many tenths of the output had lasted (persistence.py). Most do not depend on it."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One measured column. MEAN is derived by the caller from a sum and a count column, at no privacy cost.

    `bound` is L in integer grid units: the absolute value of one record is at most `bound` (count, users, cells: 1).
    `buckets` is B, of cells: a record adds to one of B counts, and B cumulative counts are released. Others have 1.
    `weight` moves budget between columns: docs/guarantees/shares.md.
    """

    name: str
    kind: Literal["count", "users", "sum", "cells"]
    bound: int = 1
    buckets: int = 1
    weight: float = 1.0

    def counts_users(self, max_records_per_key: int) -> bool:
        """Whether the column is the number of distinct users: kept records are, where a user keeps one per key."""
        return self.kind == "users" or (self.kind == "count" and max_records_per_key == 1)

    def published(self) -> dict[str, Any]:
        """What a digest covers, as JSON values by name. The default weight is that of plans without weights."""
        constants = asdict(self)
        if self.kind != "cells":
            del constants["buckets"]
        if self.weight == 1:
            del constants["weight"]
        return constants


@dataclass(frozen=True, kw_only=True)
class Level(Constants):
    """One level of a plan with several groupings: its caps, what runs there, and its part of the budget.

    name: in published rows. strategy, parameters: as in `Plan`. The other fields say what they mean themselves.
    """

    name: str
    strategy: str
    parameters: Constants
    max_records: int = field(metadata={"description": "C_l, records kept per user and window.", "ge": 1, "le": 1 << 20})
    max_records_per_key: int = constant(1, "m_l, records kept per user, window and key.", ge=1, le=1 << 20)
    discover: bool = constant(True, "False: only declared keys are published at this level.")
    share: float = field(metadata={"description": "s_l, part of mu^2.", "gt": 0, "le": 1})

    def at_persistence(self, persistence: int) -> Self:
        """By its parameters."""
        return replace(self, parameters=self.parameters.at_persistence(persistence))

    def published(self) -> dict[str, Any]:
        """The parameters are constants themselves."""
        return super().published() | {"parameters": self.parameters.published()}


@dataclass(frozen=True, kw_only=True)
class LevelPart(Constants):
    """What one level's plan has of the budget that epsilon and delta buy for all levels together.

    level: its name. selects: whether any of the levels selects keys, so that delta is divided.
    """

    level: str
    selects: bool
    share: float = field(metadata={"description": "Part of mu^2.", "gt": 0, "le": 1})
    selection: float = field(metadata={"description": "Part of delta's share for selection.", "ge": 0, "le": 1})


@dataclass(frozen=True, kw_only=True)
class Plan(Constants):
    """Every public constant of a histogram. None may be fitted to the data it protects.

    strategy    its name in the registry
    parameters  the constants of that strategy alone, of its class `Parameters`
    columns     what is measured
    levels      the groupings, where there are several: each has caps, strategy and parameters of its own, in place of the plan's
    part        in a plan of one level: what it has of the budget of all

    The other fields say what they mean themselves. Raises ConfigurationError, naming the field.
    """

    strategy: str
    parameters: Constants
    columns: tuple[Column, ...]
    triggers: int = field(metadata={"description": "T, releases per window.", "ge": 1, "le": MAX_TRIGGERS})
    # Below, float64 cancels in the Gaussian's delta by more than the slack that is taken off.
    epsilon: float = field(metadata={"description": "Privacy loss per user and window.", "ge": 1e-4})
    delta: float = field(
        metadata={"description": "Probability with which the loss may exceed epsilon.", "ge": 1e-30, "lt": 1}
    )
    max_records: int = field(metadata={"description": "C, records kept per user and window.", "ge": 1, "le": 1 << 20})
    max_records_per_key: int = constant(1, "m, records kept per user, window and key.", ge=1, le=1 << 20)
    max_keys: int | None = constant(
        None, "Optional cap on a user's distinct keys, for strategies that do not rank them.", ge=1, le=1 << 20
    )
    minimum_users: int = constant(
        0, "A key is published only if more than this many distinct users brought it.", ge=0, lt=1 << 31
    )
    evidence_windows: int = constant(
        1, "Windows whose measurements of an unpublished key add up at the last trigger: 1, 2 or 4.", ge=1, le=4
    )
    discover: bool = constant(
        True, "False: only declared keys are published, nothing is selected, and all of delta is Gaussian."
    )
    gaussian_delta_fraction: float = constant(
        0.5, "Share of delta for the Gaussian noise; the rest pays for the selection of keys.", gt=0, lt=1
    )
    selection_share: float = constant(
        0.5, "Share of the squared Gaussian budget for selection where it is measured separately.", gt=0, lt=1
    )

    levels: tuple[Level, ...] = ()
    part: LevelPart | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_levels()
        if self.evidence_windows not in EVIDENCE_WINDOWS:
            raise ConfigurationError(
                f"evidence_windows={self.evidence_windows}: must be one of {', '.join(map(str, EVIDENCE_WINDOWS))}"
            )
        if self.max_records_per_key > self.max_records:
            raise ConfigurationError(
                f"max_records_per_key={self.max_records_per_key}: must be at most max_records={self.max_records}"
            )
        if not self.columns:
            raise ConfigurationError("columns=(): measure at least one column")
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ConfigurationError(f"columns: names {names} repeat; rename one")
        for column in self.columns:
            if column.kind not in ("count", "users", "sum", "cells"):
                raise ConfigurationError(
                    f"columns.{column.name}.kind={column.kind!r}: choose count, users, sum or cells"
                )
            if not 1 <= column.bound <= (MAX_BOUND if column.kind == "sum" else 1):
                raise ConfigurationError(
                    f"columns.{column.name}.bound={column.bound}: must be 1 for count and users, 1 to 2^24 grid units "
                    f"for sum; choose a coarser grid"
                )
            if not MIN_WEIGHT <= column.weight <= MAX_WEIGHT:
                raise ConfigurationError(
                    f"columns.{column.name}.weight={column.weight}: must be {MIN_WEIGHT:g} to {MAX_WEIGHT:g}; only ratios matter"
                )
            if not (2 <= column.buckets <= MAX_BUCKETS if column.kind == "cells" else column.buckets == 1):
                raise ConfigurationError(
                    f"columns.{column.name}.buckets={column.buckets}: must be 2 to {MAX_BUCKETS} for cells, 1 for others"
                )
        kinds = [column.kind == "cells" for column in self.columns]
        if kinds != sorted(kinds):
            raise ConfigurationError("columns: cells come after all others; change their order")

    @property
    def width(self) -> int:
        """How many numbers a key has: one for each column, and B for cells."""
        return sum(column.buckets for column in self.columns)

    @property
    def places(self) -> tuple[slice, ...]:
        """Where the numbers of each column stand in a key's row. Columns before the cells have their own index."""
        return places_of(column.buckets for column in self.columns)

    def _check_levels(self) -> None:
        if not self.levels:
            return
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ConfigurationError(f"levels: names {names} repeat; rename one")
        if len(names) > MAX_LEVELS:
            raise ConfigurationError(f"levels: there are {len(names)}; use at most {MAX_LEVELS}")
        if self.part is not None:
            raise ConfigurationError(f"level {self.part.level!r}: a level has no levels; leave them out")
        total = math.fsum(level.share for level in self.levels)
        if total > 1 + SHARE_SLACK:
            raise ConfigurationError(
                f"levels: their shares add up to {total:g}; lower one, they are parts of one budget"
            )

    @property
    def selects(self) -> bool:
        """Whether keys are selected at all, at any level: then delta is divided."""
        return any(level.discover for level in self.levels) if self.levels else self.discover

    def level_plans(self) -> "tuple[Plan, ...]":
        """The plan of each level, whose budget is its part of this one's."""
        selecting = sum(level.discover for level in self.levels)
        return tuple(
            replace(
                self,
                levels=(),
                strategy=level.strategy,
                parameters=level.parameters,
                max_records=level.max_records,
                max_records_per_key=level.max_records_per_key,
                discover=level.discover,
                part=LevelPart(
                    level=level.name,
                    share=level.share,
                    selection=1 / selecting if level.discover else 0.0,
                    selects=self.selects,
                ),
            )
            for level in self.levels
        )

    def at_persistence(self, persistence: int) -> Self:
        """The plan of a window whose kappa is so many tenths: this plan for 0, and where no shares follow it.

        Only shares differ. epsilon, delta, mu, delta_selection and every constant of bounding are the same for each kappa, so a
        window's promise and charge are, too. Digests differ, and with them the addresses of noise. All levels follow one kappa.
        """
        levels = tuple(level.at_persistence(persistence) for level in self.levels)
        return replace(self, parameters=self.parameters.at_persistence(persistence), levels=levels)

    @property
    def counting(self) -> int | None:
        """The first column that counts users; None where none does."""
        return next((at for at, each in enumerate(self.columns) if each.counts_users(self.max_records_per_key)), None)

    @property
    def follows_persistence(self) -> bool:
        """Whether a window's plan may depend on what had lasted before it, at any level."""
        if self.levels:
            return any(level.at_persistence(1) != level for level in self.levels)
        return self.parameters.at_persistence(1) != self.parameters

    def parameters_as(self, kind: type[OwnConstants]) -> OwnConstants:
        """The parameters, of the class that a strategy needs. Raises ConfigurationError where they are another's."""
        if not isinstance(self.parameters, kind):
            raise ConfigurationError(
                f"parameters={self.parameters!r}: strategy={self.strategy} needs {kind.__qualname__}; give those"
            )
        return self.parameters

    def published(self) -> dict[str, Any]:
        """The same for the columns and the parameters, which are constants themselves."""
        columns = [column.published() for column in self.columns]
        found = super().published() | {"columns": columns, "parameters": self.parameters.published()}
        # A plan without levels has the digest that it had before there were any.
        del found["levels"], found["part"]
        if self.evidence_windows == 1:
            del found["evidence_windows"]  # the same, before windows added up
        if self.levels:
            found["levels"] = [level.published() for level in self.levels]
        if self.part is not None:
            found["part"] = self.part.published()
        return found

    def digest(self) -> bytes:
        """32 bytes that change with any public constant: blake2b over canonical JSON and the mechanism's version."""
        constants = json.dumps(
            [MECHANISM_VERSION, self.published()], sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        return blake2b(constants.encode(), digest_size=32, person=b"susurrus-plan").digest()
