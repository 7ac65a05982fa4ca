"""The interface of a private histogram: public constants in, one vectorised step per trigger out.

    Plan ──build_strategy──▶ Strategy          bound: Strategy.bounding.close(...)   (a user's caps and weights)
                                               release: Strategy.step(...)           (one trigger of one chunk of keys)

A strategy is pure. Its only randomness is the addressed noise of `noise.py`, so the same inputs give the same bytes,
however the keys are divided into chunks and however often a trigger is replayed.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.noise import WindowNoise

SCHEME_VERSION = 1
"""Goes into every digest and every noise label: a change of any formula must raise it."""

MAX_TRIGGERS = 2_048
MAX_BOUND = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One measured column. MEAN is derived by the caller from a sum and a count column, at no privacy cost.

    `bound` is L in integer grid units: the absolute value of one record is at most `bound` (count, users: 1).
    """

    name: str
    kind: Literal["count", "users", "sum"]
    bound: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every public constant of a histogram. None may be fitted to the data it protects.

    triggers                 T, releases per window
    max_records              C, records kept per user and window ("weighted", "adaptive": the cap for values)
    max_records_per_key      m, records kept per user, window and key
    max_keys                 optional cap on distinct keys; "weighted" and "adaptive": number of ranked keys for selection
                             (default 32 and 8)
    minimum_users            a key is published only if strictly more than this many distinct users brought it
    discover                 False: only declared keys are published, nothing is selected, all of delta is Gaussian
    gaussian_delta_fraction  share of delta for the Gaussian part; the rest pays for selection
    selection_share          share of mu^2 for selection where selection and values are measured separately
    gamma, prior             "weighted", "adaptive", "closing": exponent of the selection strategy; decreasing weights by rank
                             ("weighted": S_i, P(a user has > i keys))
    lag                      "adaptive", "closing": triggers from a key's publication until it counts as public
    closing_unknown_share    "closing" only: share of mu^2 for keys still not public at the last trigger
    closing_public_share     "closing" only: share of mu^2 for measuring the public keys again
    closing_keys             "closing" only: keys of a user, of those still not public, that are measured at the last trigger

    Raises ConfigurationError, naming the field.
    """

    strategy: Literal["toeplitz", "weighted", "adaptive", "closing", "dp-sqlp"]
    triggers: int
    epsilon: float
    delta: float
    columns: tuple[Column, ...]
    max_records: int
    max_records_per_key: int = 1
    max_keys: int | None = None
    minimum_users: int = 0
    discover: bool = True
    gaussian_delta_fraction: float = 0.5
    selection_share: float = 0.5
    gamma: float = 0.65
    prior: tuple[float, ...] | None = None
    lag: int = 1
    closing_unknown_share: float = 0.3
    closing_public_share: float = 0.1
    closing_keys: int = 16

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_columns()
        prior = self.prior
        if prior is not None and (
            not prior or not all(math.isfinite(p) and p > 0 for p in prior) or any(b > a for a, b in pairwise(prior))
        ):
            raise ConfigurationError("prior: must be positive and not increasing; give P(a user has more than i keys)")

    def _check_numbers(self) -> None:
        def require(good: bool, field: str, rule: str) -> None:
            if not good:
                raise ConfigurationError(f"{field}={getattr(self, field)!r}: {rule}")

        require(
            self.strategy in ("toeplitz", "weighted", "adaptive", "closing", "dp-sqlp"),
            "strategy",
            "choose toeplitz, weighted, adaptive, closing or dp-sqlp",
        )
        require(0 < self.triggers <= MAX_TRIGGERS, "triggers", f"use 1 to {MAX_TRIGGERS} triggers per window")
        # Below, float64 cancels in the Gaussian's delta by more than the slack that is taken off.
        require(math.isfinite(self.epsilon) and self.epsilon >= 1e-4, "epsilon", "must be a number of at least 1e-4")
        require(math.isfinite(self.delta) and 1e-30 <= self.delta < 1, "delta", "must be from 1e-30 to below 1")
        require(1 <= self.max_records <= 1 << 20, "max_records", "keep 1 to 2^20 records per user and window")
        require(1 <= self.max_records_per_key <= self.max_records, "max_records_per_key", "must be 1 to max_records")
        require(self.max_keys is None or 1 <= self.max_keys <= 1 << 20, "max_keys", "must be 1 to 2^20, or left out")
        require(0 <= self.minimum_users < 1 << 31, "minimum_users", "must be 0 or a positive integer")
        require(1 <= self.lag <= MAX_TRIGGERS, "lag", f"use 1 to {MAX_TRIGGERS} triggers")
        require(1 <= self.closing_keys <= 1 << 20, "closing_keys", "must be 1 to 2^20")
        shares = ("selection_share", "closing_unknown_share", "closing_public_share")
        for field in ("gaussian_delta_fraction", "gamma", *shares):
            require(0 < getattr(self, field) < 1, field, "must be strictly between 0 and 1")

    def _check_columns(self) -> None:
        if not self.columns:
            raise ConfigurationError("columns=(): measure at least one column")
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise ConfigurationError(f"columns: names {names} repeat; rename one")
        for column in self.columns:
            if column.kind not in ("count", "users", "sum"):
                raise ConfigurationError(f"columns.{column.name}.kind={column.kind!r}: choose count, users or sum")
            if not 1 <= column.bound <= (MAX_BOUND if column.kind == "sum" else 1):
                raise ConfigurationError(
                    f"columns.{column.name}.bound={column.bound}: must be 1 for count and users, 1 to 2^24 grid units "
                    f"for sum; choose a coarser grid"
                )

    def digest(self) -> bytes:
        """32 bytes that change with any public constant: blake2b over canonical JSON and the scheme version."""
        constants = asdict(self)
        # What means nothing elsewhere stays out, and pipelines older than it go on.
        if self.strategy not in ("adaptive", "closing"):
            del constants["lag"]
        if self.strategy == "closing":
            from susurrus.mechanisms.histogram.closing import LAW

            constants["closing_law"] = LAW
        else:
            for field in ("closing_unknown_share", "closing_public_share", "closing_keys"):
                del constants[field]
        fields = json.dumps([SCHEME_VERSION, constants], sort_keys=True, separators=(",", ":"), allow_nan=False)
        return blake2b(fields.encode(), digest_size=32, person=b"susurrus-plan").digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSums:
    """What the users' lists add to each key at the last trigger, aligned with the keys of a step; "closing" only.

    users          int64[k]  users with weight on the key, where it was not public
    weight         int64[k]  the sum of their weights, in units of 2^-20
    public_weight  int64[k]  the sum of all users' weights, where it was public
    unit           int64[k]  0 where the key was not public; else a short list's weight on it
    """

    users: npt.NDArray[np.int64]
    weight: npt.NDArray[np.int64]
    public_weight: npt.NDArray[np.int64]
    unit: npt.NDArray[np.int64]

    @classmethod
    def of(cls, sums: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]) -> Self:
        """sums: int64[k, 3], as `ListWeights.add_up` orders them."""
        return cls(users=sums[:, 0], weight=sums[:, 1], public_weight=sums[:, 2], unit=unit)

    def take(self, index: npt.NDArray[np.intp]) -> Self:
        """The same for some of the keys."""
        return replace(
            self,
            users=self.users[index],
            weight=self.weight[index],
            public_weight=self.public_weight[index],
            unit=self.unit[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """What one trigger adds to each key, aligned with the keys of a step; zeros for keys that are only due.

    users   int64[k]           users who bring this key for the first time in the window with selection weight > 0
    weight  int64[k]           the sum of their selection weights, in units of 2^-20
    sums    int64[k, columns]  count: kept records; users: first-time users; sum: sum of clamped grid integers
    lists   at the last trigger of "closing", else None
    """

    users: npt.NDArray[np.int64]
    weight: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    lists: ListSums | None = None


class KeyStates(Protocol):
    """States of k keys, a structure of arrays owned by a strategy."""

    @property
    def selected(self) -> npt.NDArray[np.bool_]: ...

    def __len__(self) -> int: ...

    def take(self, index: npt.NDArray[np.intp]) -> Self: ...

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The outcome of one trigger, aligned with the keys given.

    states      new states
    changed     bool[k]              False: the stored bytes are still right and need no write
    due         int32[k]             when to look at the key again without new data: 0 at every trigger (published
                                     keys), t' > trigger at t', T + 1 never
    published   bool[k]
    estimates   int64[k, columns]    grid units; zero where not published
    std_errors  float64[k, columns]  of the estimates after rounding, grid units
    """

    states: Any
    changed: npt.NDArray[np.bool_]
    due: npt.NDArray[np.int32]
    published: npt.NDArray[np.bool_]
    estimates: npt.NDArray[np.int64]
    std_errors: npt.NDArray[np.float64]


class Strategy(Protocol):
    """A private continual histogram over one window."""

    plan: Plan
    guarantee: Guarantee
    bounding: Bounding
    lists: Any
    """What weighs the users' lists at the last trigger (`closing.ListWeights`); None where nothing does."""

    def empty(self, size: int) -> Any:
        """States of `size` keys never seen."""

    def unpack(self, rows: Sequence[bytes]) -> Any:
        """States from the store. Raises ValueError for bytes that `pack` did not write."""

    def pack(self, states: Any) -> list[bytes]:
        """One byte string per key: fixed little-endian layout, first byte the layout version."""

    def step(
        self,
        trigger: int,
        keys: Sequence[bytes],
        states: Any,
        increments: Increments,
        noise: WindowNoise,
        declared: npt.NDArray[np.bool_],
    ) -> Step:
        """One trigger (1..T) of one chunk. Every key that is touched, due or published belongs in exactly one chunk."""

    def describe(self) -> dict[str, Any]:
        """Public parameters from which a reader can recompute the guarantee."""


def build_strategy(plan: Plan) -> Strategy:
    """The mechanism a plan asks for. Raises ConfigurationError if its numbers cannot be met."""
    if plan.strategy == "toeplitz":
        from susurrus.mechanisms.histogram.toeplitz import Toeplitz

        return Toeplitz(plan)
    if plan.strategy == "weighted":
        from susurrus.mechanisms.histogram.weighted import Weighted

        return Weighted(plan)
    if plan.strategy == "adaptive":
        from susurrus.mechanisms.histogram.adaptive import Adaptive

        return Adaptive(plan)
    if plan.strategy == "closing":
        from susurrus.mechanisms.histogram.closing import Closing

        return Closing(plan)
    from susurrus.mechanisms.histogram.dp_sqlp import DpSqlp

    return DpSqlp(plan)
