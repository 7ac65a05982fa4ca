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
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeVar

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.cells import MAX_BUCKETS

MECHANISM_VERSION = 1
"""Goes into every digest and so into every noise label: a change of any formula must raise it."""

MAX_TRIGGERS = 2_048
MAX_BOUND = 1 << 24
"""Largest bound of a sum, in grid units."""
MIN_WEIGHT = 0.01
MAX_WEIGHT = 100.0

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
class Plan(Constants):
    """Every public constant of a histogram. None may be fitted to the data it protects.

    strategy    its name in the registry
    parameters  the constants of that strategy alone, of its class `Parameters`
    columns     what is measured

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
    discover: bool = constant(
        True, "False: only declared keys are published, nothing is selected, and all of delta is Gaussian."
    )
    gaussian_delta_fraction: float = constant(
        0.5, "Share of delta for the Gaussian noise; the rest pays for the selection of keys.", gt=0, lt=1
    )
    selection_share: float = constant(
        0.5, "Share of the squared Gaussian budget for selection where it is measured separately.", gt=0, lt=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
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
        ends = list(accumulate((column.buckets for column in self.columns), initial=0))
        return tuple(slice(first, last) for first, last in pairwise(ends))

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
        return super().published() | {"columns": columns, "parameters": self.parameters.published()}

    def digest(self) -> bytes:
        """32 bytes that change with any public constant: blake2b over canonical JSON and the mechanism's version."""
        constants = json.dumps(
            [MECHANISM_VERSION, self.published()], sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        return blake2b(constants.encode(), digest_size=32, person=b"susurrus-plan").digest()
