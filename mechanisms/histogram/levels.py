"""Several groupings of the same records: one mechanism per level, and one budget for all of them.

    keys of a step ──level_of──▶ keys of each level ──the level's own strategy──▶ one step, in the order of the keys

A level's strategy knows nothing of the others. It has the level's caps and the level's part of mu^2 and of delta for selection.
A user's squared shifts at the levels add up, and so do the failures of their gates. Argument: docs/guarantees/grouping-sets.md.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.evidence_memory import ClosingRows
from susurrus.mechanisms.histogram.factored import Factored, budget_of
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.states import FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments, PooledRows, Step, Strategy
from susurrus.mechanisms.noise import WindowNoise

FIRST_LETTER = ord("a")
"""A key of level number i is the JSON array that begins with the i-th letter: ["a",...], ["b",...]."""


def level_of(keys: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """intp[k]: the level of each key. Raises ValueError for a key that names none."""
    found = np.frombuffer(b"".join([key[:3] for key in keys]), np.uint8)
    if len(found) != 3 * len(keys):
        raise ValueError("a key is too short to name its level; it was written by another configuration")
    return found[2::3].astype(np.intp) - FIRST_LETTER


def default_shares(records: Sequence[int], given: Sequence[float | None]) -> tuple[float, ...]:
    """The part of mu^2 of each level: as given, and for the others what is left, in proportion to sqrt(C_l).

    records: C_l. Public numbers only. Raises ConfigurationError where the given parts are no division of the whole.
    """
    fixed = math.fsum(share for share in given if share is not None)
    open_ = [math.sqrt(most) for most, share in zip(records, given, strict=True) if share is None]
    if open_ and fixed >= 1:
        raise ConfigurationError(
            f"levels: the given shares add up to {fixed:g}, and nothing is left; lower one of them"
        )
    if not open_ and abs(fixed - 1) > 1e-9:
        raise ConfigurationError(
            f"levels: the shares add up to {fixed:g}; they must add up to 1, or leave one of them out"
        )
    left = (1 - fixed) / math.fsum(open_) if open_ else 0.0
    scale = 1.0 if open_ else 1 / fixed
    return tuple(
        left * math.sqrt(most) if share is None else share * scale for most, share in zip(records, given, strict=True)
    )


class Levels(Strategy[FactoredStates]):
    """The strategies of all levels as one.

    Privacy: (epsilon, delta) per (user, window) for all levels together, neighbours add or remove; see `guarantee`.
    """

    name = "levels"
    summary = "several groupings, each with a strategy of its own"

    def __init__(self, plan: Plan, build: Callable[[Plan], Strategy[Any]]) -> None:
        """Build the strategy of each level with `build_strategy`. Raises ConfigurationError that names the level."""
        self.plan = plan
        self.guarantee = budget_of(plan)
        built = []
        for level in plan.level_plans():
            assert level.part is not None
            try:
                built.append(_factored(build(level)))
            except ConfigurationError as problem:
                raise ConfigurationError(f'level "{level.part.level}": {problem}') from None
        self.levels: tuple[Factored, ...] = tuple(built)
        self.refined = tuple(sorted({column for level in built for column in level.refined}))
        self.feedback = any(level.feedback for level in built)

    @property
    def by_level(self) -> "tuple[Strategy[Any], ...]":
        """The strategies of the levels, in their order."""
        return self.levels

    @property
    def lag(self) -> int | None:
        """The same for all levels that need it: a parameter of the strategy."""
        return next((level.lag for level in self.levels if level.lag is not None), None)

    @property
    def measures_lists(self) -> bool:
        """Whether any level does."""
        return any(level.measures_lists for level in self.levels)

    @property
    def evidence_windows(self) -> int:
        """The same for all levels that add up windows."""
        return max(level.evidence_windows for level in self.levels)

    def empty(self, size: int) -> FactoredStates:
        # The levels measure the same columns, so their states have one form.
        return self.levels[0].empty(size)

    def unpack(self, rows: Sequence[bytes]) -> FactoredStates:
        return self.levels[0].unpack(rows)

    def pack(self, states: FactoredStates) -> list[bytes]:
        return self.levels[0].pack(states)

    def step(
        self,
        trigger: Trigger,
        keys: Sequence[bytes],
        states: FactoredStates,
        increments: Increments,
        noise: WindowNoise,
        declared: npt.NDArray[np.bool_],
    ) -> Step[FactoredStates]:
        """The steps of the levels, in the order of the keys: see `Strategy.step`. Evidence begins with the row's level."""
        places = list(self._places(keys))
        if not places:
            return self.levels[0].step(trigger, keys, states, increments, noise, declared)
        steps = [
            self.levels[level].step(
                trigger,
                [keys[i] for i in index.tolist()],
                states.take(index),
                increments.take(index),
                noise,
                declared[index],
            )
            for level, index in places
        ]
        back = np.empty(len(keys), np.intp)
        back[np.concatenate([index for _, index in places])] = np.arange(len(keys))
        return Step(
            states=FactoredStates.concatenate([step.states for step in steps]).take(back),
            changed=np.concatenate([step.changed for step in steps])[back],
            due=np.concatenate([step.due for step in steps])[back],
            published=np.concatenate([step.published for step in steps])[back],
            estimates=np.concatenate([step.estimates for step in steps])[back],
            std_errors=np.concatenate([step.std_errors for step in steps])[back],
            pooled_rows=_pooled(
                [(level, index, step.pooled_rows) for (level, index), step in zip(places, steps, strict=True)]
            ),
            closing=self._closing(trigger, [(len(step.published), step.closing) for step in steps], back),
        )

    def _closing(
        self, trigger: Trigger, parts: list[tuple[int, ClosingRows | None]], back: npt.NDArray[np.intp]
    ) -> ClosingRows | None:
        """The closing rows of the keys of all levels. Those of a level that measures no lists were not weighed, also where no other
        level has a key in this step.

        parts: by level, the number of its keys and their rows. back: where each key's row is among them.
        """
        if self.evidence_windows == 1 or trigger != self.plan.triggers:
            return None
        whole = [ClosingRows.none(size) if rows is None else rows for size, rows in parts]
        return ClosingRows.concatenate(whole).take(back)

    def unbrought(self, keys: Sequence[bytes], noise: WindowNoise) -> Floats:
        """By the level of each key; 0 at levels that do not add up windows, where no key is weighed."""
        found = np.zeros(len(keys))
        for level, index in self._places(keys):
            if self.levels[level].evidence_windows > 1:
                found[index] = self.levels[level].unbrought([keys[i] for i in index.tolist()], noise)
        return found

    def closing_constants(self, keys: Sequence[bytes]) -> tuple[Floats, Floats]:
        """By the level of each key, as `unbrought`."""
        heights, variances = np.zeros(len(keys)), np.zeros(len(keys))
        for level, index in self._places(keys):
            if self.levels[level].evidence_windows > 1:
                heights[index], variances[index] = self.levels[level].closing_constants(
                    [keys[i] for i in index.tolist()]
                )
        return heights, variances

    def calibrate(
        self, estimates: Int64s, std_errors: Floats, evidence: Int64s, pooled: Int64s
    ) -> tuple[Int64s, Floats]:
        """Rows of each level with all rows of this level."""
        estimates, std_errors = estimates.copy(), std_errors.copy()
        for number in np.unique(evidence[:, 0]).tolist():
            rows = np.flatnonzero(evidence[:, 0] == number)
            others = pooled[pooled[:, 0] == number]
            estimates[rows], std_errors[rows] = self.levels[number].calibrate(
                estimates[rows], std_errors[rows], evidence[rows, 1:], others[:, 1:]
            )
        return estimates, std_errors

    def row_units(self, keys: Sequence[bytes], estimates: Int64s) -> Int64s:
        """By the levels that measure lists. Keys of the others have some unit, which nobody uses: every published key has one."""
        units = np.full(len(keys), WEIGHT_ONE, np.int64)
        for level, index in self._places(keys):
            if self.levels[level].measures_lists:
                units[index] = self.levels[level].row_units([keys[i] for i in index.tolist()], estimates[index])
        return units

    def _places(self, keys: Sequence[bytes]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """Each level that has some of the keys, and where these stand."""
        number = level_of(keys)
        if len(number) and not 0 <= number.min() <= number.max() < len(self.levels):
            raise ValueError("a key names a level that there is not; it was written by another configuration")
        for level in np.unique(number).tolist():
            yield level, np.flatnonzero(number == level)

    def describe(self) -> dict[str, Any]:
        """The whole guarantee, and what each level says of itself."""
        return {
            "strategy": self.plan.strategy,
            "triggers": self.plan.triggers,
            "plan": self.plan.digest().hex(),
            "guarantee": self.guarantee.to_dict(),
            "levels": {
                level.name: {"share": level.share, **built.describe()}
                for level, built in zip(self.plan.levels, self.levels, strict=True)
            },
        }

    def costs(self, grids: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        """What each level costs, with the level's name and part in front."""
        for level, built in zip(self.plan.levels, self.levels, strict=True):
            yield "level", f"{level.name}: {level.share:.1%} of the squared Gaussian budget"
            for subject, sentence in built.costs(grids):
                yield subject, f"{level.name}: {sentence}"


def _factored(built: Strategy[Any]) -> Factored:
    if not isinstance(built, Factored):
        raise ConfigurationError(
            f'strategy="{built.plan.strategy}": does not go with several groupings; leave it out, and the default runs'
        )
    return built


def _pooled(parts: list[tuple[int, npt.NDArray[np.intp], PooledRows | None]]) -> PooledRows | None:
    """The rows that levels pool, as rows of the whole step; None where no level pools any."""
    index, evidence = [], []
    for level, places, rows in parts:
        if rows is not None:
            index.append(places[rows.index])
            evidence.append(np.insert(rows.evidence, 0, level, axis=1))
    if not index:
        return None
    found = np.concatenate(index)
    order = np.argsort(found)
    return PooledRows(index=found[order], evidence=np.concatenate(evidence)[order])
