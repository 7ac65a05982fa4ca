"""The strategy that looks once more at the end: `adaptive`, and one measurement of whole lists at the last trigger.

A stream of T releases pays for each of them, a single release pays once. So a share of the budget is kept for the last
trigger: users put weight on those of their keys that are still not public, which finds keys with half as many users as the stream
needs, and measure the public ones again (user_lists.py). Rows of the last trigger are means of both measurements, by inverse
variance. Argument and the price: docs/guarantees/closing.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.adaptive import Adaptive
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.factored import Factored, budget_of, counts_users
from susurrus.mechanisms.histogram.plan import Plan, constant
from susurrus.mechanisms.histogram.ranked import MAX_RANKED_KEYS, ranked_design
from susurrus.mechanisms.histogram.states import FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments, Need, Step
from susurrus.mechanisms.histogram.user_lists import WEIGHT_CONSTANTS, ListSums, ListWeights
from susurrus.mechanisms.noise import WindowNoise, grid_units

UNKNOWN, PUBLIC = "closing/unknown", "closing/public"
BITS = 20
"""Weights and noise share the grid 2^-20 of `WEIGHT_ONE`."""
BIAS_DEVIATIONS = 3.0
"""The closing estimate counts less where it is further below the stream's than so many standard deviations of the difference."""
CONSTANTS = (*WEIGHT_CONSTANTS, BIAS_DEVIATIONS)
"""What no parameter changes, for the digest of a plan."""


class Closing(Factored):
    """`Adaptive` with the budget shared out among the stream and two measurements at the last trigger.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove, for outputs that steer what is measured next.
    """

    name = "closing"
    summary = (
        "selection by ranked weights, for keys that are not published yet only, and one more measurement at a window's "
        "last trigger"
    )
    needs = frozenset({Need.PUBLISHED_KEYS, Need.USER_LISTS})
    ranked_by = "ranked_keys"
    lists: ListWeights

    @dataclass(frozen=True, kw_only=True)
    class Parameters(Adaptive.Parameters):
        """Parameters of strategy `closing`: those of `adaptive`, and of the measurement at a window's last trigger. What that
        measurement leaves of the budget is shared out by `privacy.selection_share`."""

        unknown_share: float = constant(
            0.3,
            "Share of the squared Gaussian budget for keys that are still not published before the last trigger. More "
            "finds more keys at the end of a window, and fewer before.",
            gt=0,
            lt=1,
        )
        public_share: float = constant(
            0.1, "Share of the squared Gaussian budget for measuring the published keys once more.", gt=0, lt=1
        )
        keys: int = constant(
            16,
            "Keys per user, of those still not published and in order of first occurrence, that are measured at the last "
            "trigger.",
            ge=1,
            le=MAX_RANKED_KEYS,
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.unknown_share + self.public_share >= 1:
                raise ConfigurationError(
                    f"unknown_share={self.unknown_share}, public_share={self.public_share}: together they must be below 1, "
                    "the rest is the stream's"
                )

        def published(self) -> dict[str, Any]:
            """What no parameter changes is covered, too."""
            return super().published() | {"constants": CONSTANTS}

    def __init__(self, plan: Plan) -> None:
        parameters = plan.parameters_as(Closing.Parameters)
        self.counting = tuple(index for index, column in enumerate(plan.columns) if counts_users(column, plan))
        if not self.counting:
            raise ConfigurationError(
                'strategy="closing": measures users, and no column counts them; add a column of kind "users" '
                "(or count at max_records_per_key=1)"
            )
        budget = budget_of(plan)
        mu2 = budget.mu**2
        design = ranked_design(
            plan,
            parameters,
            mu_square=mu2 * (1 - (parameters.unknown_share + parameters.public_share)),
            delta_selection=budget.delta_selection * 0.5,
            lag=parameters.lag,
        )
        super().__init__(plan, budget, design)
        self.lists = lists = ListWeights(keys=parameters.keys, max_keys=plan.max_records, column=self.counting[0])
        one = float(WEIGHT_ONE)
        # In units of weight; rounded up like every sigma.
        self.unknown_sigma = math.sqrt(lists.unknown_square / (mu2 * parameters.unknown_share)) / one * (1 + 1e-9)
        self.public_sigma = math.sqrt(lists.public_square / (mu2 * parameters.public_share)) / one * (1 + 1e-9)
        grid_units(self.unknown_sigma, BITS)
        grid_units(self.public_sigma, BITS)
        beta = budget.delta_selection * 0.5 / lists.keys
        self.quantile = tail_quantile(beta)
        # stat + rounded noise >= level + 1/2 unit implies that stat + noise >= level.
        self.level = plan.minimum_users + 1 + self.quantile * self.unknown_sigma * (1 + 1e-12)
        self._threshold = math.ceil(self.level * one * (1 + 1e-15) + 0.5)
        suffix = "/" + plan.digest().hex()
        self._unknown_mechanism, self._public_mechanism = UNKNOWN + suffix, PUBLIC + suffix
        cost = lists.unknown_square / self.unknown_sigma**2 + lists.public_square / self.public_sigma**2
        self._notes["mu"] = math.sqrt(self._notes["mu"] ** 2 + cost / one**2)
        self._notes["closing"] = {
            "unknown_share": parameters.unknown_share,
            "public_share": parameters.public_share,
            "keys": lists.keys,
            "unknown_sigma": self.unknown_sigma,
            "public_sigma": self.public_sigma,
            "unknown_square": lists.unknown_square / one**2,
            "public_square": lists.public_square / one**2,
            "threshold": self.level,
            "quantile": self.quantile,
        }

    def step(
        self,
        trigger: Trigger,
        keys: Sequence[bytes],
        states: FactoredStates,
        increments: Increments,
        noise: WindowNoise,
        declared: npt.NDArray[np.bool_],
    ) -> Step[FactoredStates]:
        """The stream's, and at the last trigger what the lists find and refine; see `Strategy.step`.

        A key that the lists find is public in this step like a declared one, even if the stream's tests do not select it.
        """
        if trigger != self.plan.triggers:
            return super().step(trigger, keys, states, increments, noise, declared)
        lists = increments.lists
        if lists is None:
            raise ValueError(f"trigger={trigger}: the last trigger measures the users' lists, and none are given")
        found = self._found(keys, states.selected | declared, lists, noise)
        step = super().step(trigger, keys, states, increments, noise, declared | found)
        self._refine(keys, lists, noise, step)
        return step

    def _found(
        self, keys: Sequence[bytes], public: npt.NDArray[np.bool_], lists: ListSums, noise: WindowNoise
    ) -> npt.NDArray[np.bool_]:
        """bool[k]: keys that the lists select."""
        found = np.zeros(len(keys), np.bool_)
        candidates = np.flatnonzero(~public & (lists.users > self.plan.minimum_users))
        drawn = self._drawn(self._unknown_mechanism, self.unknown_sigma, keys, candidates, noise)
        found[candidates] = lists.weight[candidates] + drawn >= self._threshold
        return found

    def _refine(self, keys: Sequence[bytes], lists: ListSums, noise: WindowNoise, step: Step[FactoredStates]) -> None:
        """Make the step's rows, in place, means of the stream's estimates and the lists'."""
        estimates, std_errors = step.estimates, step.std_errors
        shown = np.flatnonzero(step.published)
        # Which measurement a row uses follows from what was published before; the noise is there with and without users.
        unknown, public = shown[lists.unit[shown] == 0], shown[lists.unit[shown] > 0]
        for rows, mechanism, sigma, weight, unit in (
            (unknown, self._unknown_mechanism, self.unknown_sigma, lists.weight, np.full(len(keys), WEIGHT_ONE)),
            (public, self._public_mechanism, self.public_sigma, lists.public_weight, lists.unit),
        ):
            drawn = self._drawn(mechanism, sigma, keys, rows, noise)
            again = (weight[rows] + drawn) / unit[rows]
            variance = (sigma * WEIGHT_ONE / unit[rows]) ** 2
            for column in self.counting:
                estimate, stream = estimates[rows, column], std_errors[rows, column] ** 2
                # Long lists count for less than they are. What is short by more than noise explains is taken for that; both
                # estimates are public, and so is the result of the comparison.
                short = np.maximum(estimate - again, 0)
                bias = np.maximum(short**2 - BIAS_DEVIATIONS**2 * (stream + variance), 0)
                share = stream / (stream + variance + bias)
                estimates[rows, column] = np.rint(estimate * (1 - share) + again * share).astype(np.int64)
                std_errors[rows, column] = np.sqrt((1 - share) ** 2 * stream + share**2 * variance + 1 / 12)

    def _drawn(
        self, mechanism: str, sigma: float, keys: Sequence[bytes], rows: npt.NDArray[np.intp], noise: WindowNoise
    ) -> npt.NDArray[np.int64]:
        """int64[rows]: the noise of the last trigger, in units of 2^-20."""
        labels = noise.labels(mechanism, [keys[i] for i in rows.tolist()])
        last = self.plan.triggers
        drawn: npt.NDArray[np.int64] = noise.normal(labels, last, last, sigma=sigma, bits=BITS)[:, 0]
        return drawn

    def costs(self, grids: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        yield from super().costs(grids)
        yield (
            "at the end",
            f"keys still missing appear from about {self.level:,.0f} users on, if each has two such keys at most",
        )
