"""The interface of a private histogram: public constants in, one vectorised step per trigger out.

    Plan ──build_strategy──▶ Strategy          bound: Strategy.bounding.close(...)   (a user's caps and weights)
    (plan.py)  (registry.py)                   release: Strategy.step(...)           (one trigger of one chunk of keys)

A strategy is pure. Its only randomness is the addressed noise of `noise.py`, so the same inputs give the same bytes,
however the keys are divided into chunks and however often a trigger is replayed.

To add one: a file beside this one with a subclass of `Strategy`, and its line in registry.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.evidence_memory import ClosingRows, PastRows
from susurrus.mechanisms.histogram.plan import Constants, Plan
from susurrus.mechanisms.histogram.user_lists import ListSums, ListWeights
from susurrus.mechanisms.noise import WindowNoise


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """What one trigger adds to each key, aligned with the keys of a step; zeros for keys that are only due.

    users   int64[k]           users who bring this key for the first time in the window with selection weight > 0
    weight  int64[k]           the sum of their selection weights, in units of 2^-20
    sums    int64[k, columns]  count: kept records; users: first-time users; sum: sum of clamped grid integers
    lists   at the last trigger of a strategy with `Strategy.lists`, else None
    past    there, what earlier windows measured of the keys, for plans with `evidence_windows`; None: no window before this one
            is in play for any of them
    """

    users: npt.NDArray[np.int64]
    weight: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    lists: ListSums | None = None
    past: PastRows | None = None

    def take(self, index: npt.NDArray[np.intp]) -> "Increments":
        """The keys at these positions, in this order."""
        return Increments(
            users=self.users[index],
            weight=self.weight[index],
            sums=self.sums[index],
            lists=None if self.lists is None else self.lists.take(index),
            past=None if self.past is None else self.past.take(index),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRows:
    """Rows of a step that are calibrated together with those of the other partitions.

    index     intp[f]      their keys' places in the step, ascending
    evidence  int64[f, e]  what `Strategy.calibrate` needs of each, published keys' rows of the private release and no more
    """

    index: npt.NDArray[np.intp]
    evidence: npt.NDArray[np.int64]


class KeyStates(Protocol):
    """States of k keys, a structure of arrays owned by a strategy."""

    @property
    def selected(self) -> npt.NDArray[np.bool_]: ...

    def __len__(self) -> int: ...

    def take(self, index: npt.NDArray[np.intp]) -> Self: ...

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self: ...


States = TypeVar("States", bound=KeyStates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[States]):
    """The outcome of one trigger, aligned with the keys given.

    states      new states
    changed     bool[k]              False: the stored bytes are still right and need no write
    due         int32[k]             when to look at the key again without new data: 0 at every trigger (published
                                     keys), t' > trigger at t', T + 1 never
    published   bool[k]
    estimates   int64[k, columns]    grid units; zero where not published
    std_errors  float64[k, columns]  of the estimates after rounding, grid units
    pooled_rows at the last trigger of a strategy with `Strategy.refined` columns, else None
    closing     at the last trigger of a plan with `evidence_windows` above 1, else None
    """

    states: States
    changed: npt.NDArray[np.bool_]
    due: npt.NDArray[np.int32]
    published: npt.NDArray[np.bool_]
    estimates: npt.NDArray[np.int64]
    std_errors: npt.NDArray[np.float64]
    pooled_rows: PooledRows | None = None
    closing: ClosingRows | None = None


class Strategy(ABC, Generic[States]):
    """A private continual histogram over one window.

    The constructor takes a `Plan` whose parameters are of the class's `Parameters`, and solves for all noise scales. It raises
    ConfigurationError where the plan's numbers cannot be met.
    """

    name: ClassVar[str]
    """What the configuration, the registry and the published rows call the strategy."""
    summary: ClassVar[str]
    """One line for the operator who chooses a strategy."""
    Parameters: ClassVar[type[Constants]] = Constants
    """The constants of this strategy alone: a frozen dataclass, the section `[privacy.<name>]` of the configuration."""
    feedback: bool = False
    """Whether bounding must know which keys are public: `Bounding.lag` is set, and the pipeline brings them there."""
    ranked_by: ClassVar[str] = ""
    """The parameter that says how many of a user's keys are ranked, and takes the place of `Plan.max_keys`; "": that cap holds."""
    shared_by: ClassVar[str] = ""
    """The parameter that takes the place of `Plan.selection_share`, which must then be left as it is; "": that share holds."""

    repeats: ClassVar[bool] = True
    """Whether a release has a row of every key that its window has published before."""

    plan: Plan
    guarantee: Guarantee
    bounding: Bounding
    """The caps. A strategy of several levels has none of its own: each of `by_level` has."""
    lists: ListWeights | None = None
    """What weighs the users' lists at the last trigger; None: they are not measured. Needs the feedback, too."""
    refined: tuple[int, ...] = ()
    """The columns that `calibrate` changes, and no other. Where there are any, the rows of the last trigger are calibrated with all
    of their kind, from all partitions, before they are published: `Step.pooled_rows`. Needs the feedback, too."""

    @abstractmethod
    def __init__(self, plan: Plan) -> None: ...

    @property
    def by_level(self) -> "tuple[Strategy[Any], ...]":
        """The strategies that bound users by themselves, in the order of the levels: one, unless there are several groupings."""
        return (self,)

    @property
    def lag(self) -> int | None:
        """Triggers after which bounding knows what was published (`Bounding.lag`); None where it need not know."""
        return self.bounding.lag

    @property
    def measures_lists(self) -> bool:
        """Whether users' lists are measured at the last trigger."""
        return self.lists is not None

    @property
    def evidence_windows(self) -> int:
        """How many windows' closing rows add up; 1: every window decides by its own. Needs `measures_lists`."""
        return 1

    def row_units(self, keys: Sequence[bytes], estimates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[n]: `ListWeights.row_units` of these published rows, estimates int64[n, columns]; with `measures_lists` only."""
        assert self.lists is not None
        return self.lists.row_units(estimates)

    @abstractmethod
    def empty(self, size: int) -> States:
        """States of `size` keys never seen."""

    @abstractmethod
    def unpack(self, rows: Sequence[bytes]) -> States:
        """States from the store. Raises ValueError for bytes that `pack` did not write."""

    @abstractmethod
    def pack(self, states: States) -> list[bytes]:
        """One byte string per key: fixed little-endian layout, first byte the layout version."""

    @abstractmethod
    def step(
        self,
        trigger: Trigger,
        keys: Sequence[bytes],
        states: States,
        increments: Increments,
        noise: WindowNoise,
        declared: npt.NDArray[np.bool_],
    ) -> Step[States]:
        """One trigger (1..T) of one chunk. Every key that is touched, due or published belongs in exactly one chunk."""

    @classmethod
    def looks_back(cls, parameters: Constants) -> bool:
        """Whether a strategy of these parameters has `lists`; nothing is solved for."""
        return False

    @classmethod
    def longest(cls, triggers: int, max_records: int) -> int:
        """Return an upper bound of the records that are kept of one user in a window; it is known before the strategy is built."""
        return max_records

    @classmethod
    def unit_variances(cls, plan: Plan) -> tuple[float, ...]:
        """What the variance of each column's noise is if a record adds at most 1 to it, up to a factor that all have in common.

        It follows from the plan's constants; nothing is solved for. By default the inverse of the share.
        """
        return tuple(1 / share for share in cls.shares(plan))

    @classmethod
    def shares(cls, plan: Plan) -> tuple[float, ...]:
        """The part of the values' squared budget that each column's mechanism has; columns of one mechanism have the same.

        It follows from the plan's constants; nothing is solved for. By default equal parts, whatever the weights.
        """
        return (1 / len(plan.columns),) * len(plan.columns)

    def unbrought(self, keys: Sequence[bytes], noise: WindowNoise) -> Floats:
        """float64[k]: the window's closing rows of keys that nobody brought; with `evidence_windows` above 1 only.

        They are the noise that the rows would have in any case, by the same addresses.
        """
        raise NotImplementedError(f"strategy={self.name} does not add up windows")

    def closing_constants(self, keys: Sequence[bytes]) -> tuple[Floats, Floats]:
        """(heights, variances), float64[k] each, of closing rows as in `PastRows`; with `evidence_windows` above 1 only."""
        raise NotImplementedError(f"strategy={self.name} does not add up windows")

    def calibrate(
        self,
        estimates: npt.NDArray[np.int64],
        std_errors: npt.NDArray[np.float64],
        evidence: npt.NDArray[np.int64],
        pooled: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """(estimates, std_errors), [f, columns] each, given those of the step's pooled rows and their evidence int64[f, e].

        pooled: int64[n, e], the evidence of all pooled rows of the window, of all partitions, in any order. The step's own pair is
        the *direct* one, of the row's own measurements alone.
        """
        raise NotImplementedError(f"strategy={self.name} does not need pooled rows")

    def appearing(self, rng: np.random.Generator, keys: int) -> npt.NDArray[np.float64]:
        """float64[keys, T]: users per trigger from which a key passes what selects at each trigger; for forecasts.

        Each key is brought by as many new users at every trigger, by each before any other key. Its noise is drawn from `rng`, and
        never from the addressed noise: a forecast must say nothing about what will be published. inf: never. More than
        `minimum_users` users are needed in any case, and are left to the caller.
        Raises ConfigurationError where the strategy has no such model.
        """
        raise ConfigurationError(f"strategy={self.name}: cannot forecast which keys appear; choose another strategy")

    def standard_errors(self) -> npt.NDArray[np.float64]:
        """float64[T, columns]: of a published row's own measurements at each trigger, in grid units; for forecasts.

        What is pooled at the last trigger may be more exact. Raises ConfigurationError where the strategy cannot say.
        """
        raise ConfigurationError(f"strategy={self.name}: cannot forecast its standard errors; choose another strategy")

    def covariance(self, first: Trigger, last: Trigger) -> npt.NDArray[np.float64]:
        """float64[columns]: of the noise of a key's own measurements at two triggers of a window, first <= last, in squared grid
        units and before rows are rounded.

        Raises ConfigurationError for a strategy whose rows do not follow every trigger.
        """
        raise ConfigurationError(
            f"strategy={self.name}: a row stays as it was until its key is released again, so two rows have no difference that "
            "means a time; choose another strategy"
        )

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Public parameters from which a reader can recompute the guarantee."""

    @abstractmethod
    def costs(self, grids: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        """What the promise costs, in plain words: (subject, sentence) of the noise and of how many users make a key appear.

        grids: what one unit of each column is.
        """


def half_width(std: float, grid: float) -> str:
    """Half of the 95 % interval of a column with this standard error in grid units, for `Strategy.costs`."""
    number = 1.96 * std * grid
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
