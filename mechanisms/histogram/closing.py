"""The default strategy: a stream that looks for keys that are not public yet, and one more look at the end (`closing`).

    every trigger   ranked weights on unpublished keys (ranked.py), values within a ledger (value_ledger.py)
    last trigger    users' whole lists, measured once ──last_look.py, a joint test with the stream's filter──▶ more keys
                    the rows of all partitions ──last_rows.py──▶ estimates without the selection's bias

A stream of T releases pays for each of them, a single release pays once. So a share of the budget is kept for the last
trigger: users put weight on those of their keys that are still not public, and measure the public ones again.
Argument and the price: docs/guarantees/closing.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.bounding import MAX_LISTED_KEYS, Bounding
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.histogram.closing_parameters import ClosingParameters
from susurrus.mechanisms.histogram.factored import Design, Factored, Values, budget_of, counts_users, value_mechanisms
from susurrus.mechanisms.histogram.last_look import LastLook
from susurrus.mechanisms.histogram.last_rows import LastRows
from susurrus.mechanisms.histogram.plan import Column, Constants, Plan
from susurrus.mechanisms.histogram.ranked import SELECTION, Ranking
from susurrus.mechanisms.histogram.shares import ledger_weights, measured_weight
from susurrus.mechanisms.histogram.states import FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments, Step
from susurrus.mechanisms.histogram.user_lists import ListWeights
from susurrus.mechanisms.histogram.value_ledger import ValueLedger
from susurrus.mechanisms.noise import WindowNoise

LOOK_DELTA = 0.5
"""The last look's share of delta's part for selection; the stream has the rest."""

_Measures = tuple[tuple[Values | Cells, ...], tuple[int, ...]]


class Closing(Factored):
    """Selection and values of a stream, and two measurements at the last trigger: four shares of one budget.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove, for outputs that steer what is measured next.
    """

    name = "closing"
    summary = (
        "selection by ranked weights, for keys that are not published yet only, and one more measurement at a window's "
        "last trigger; for windows of two triggers or more, with a column that counts users"
    )
    feedback = True
    ranked_by = "ranked_keys"
    shared_by = "discovery_share"
    look: LastLook | None = None
    """What the last trigger measures, None where it is like any other."""
    rows: LastRows | None = None
    """The evidence that calibrates that trigger's rows, and the calibration; None where `look` is."""

    Parameters = ClosingParameters

    def __init__(self, plan: Plan) -> None:
        parameters = plan.parameters_as(ClosingParameters)
        self.counting = tuple(index for index, column in enumerate(plan.columns) if counts_users(column, plan))
        if parameters.last_look and not self.counting:
            raise ConfigurationError(
                'strategy="closing": measures users, and no column counts them; add a column of kind "users" '
                "(or count at max_records_per_key=1), or leave the last look out (unknown_share=0, public_share=0)"
            )
        budget = budget_of(plan)
        look_delta = budget.delta_selection * LOOK_DELTA if parameters.last_look else 0.0
        super().__init__(plan, budget, self._stream(plan, parameters, budget, budget.delta_selection - look_delta))
        if not parameters.last_look:
            return
        self.refined = self.counting
        self.look_at(ListWeights(keys=parameters.keys, max_keys=MAX_LISTED_KEYS, column=self.counting[0]))

    def look_at(self, lists: ListWeights) -> None:
        """Measure these lists at the last trigger, with what the stream leaves of the budget."""
        parameters, mu2 = self.plan.parameters_as(ClosingParameters), self.guarantee.mu**2
        weights = self.bounding.weights
        assert self.selector is not None  # `Ranking` refuses plans without discovery
        assert weights is not None  # ranked
        look = LastLook(
            self.plan,
            lists,
            self.selector,
            self._selection_mechanism,
            rank_weights=weights,
            unknown_cost=mu2 * parameters.unknown_share,
            public_cost=mu2 * parameters.public_share,
            delta=self.guarantee.delta_selection * LOOK_DELTA,
            filter_weight=parameters.filter_weight,
        )
        std = float(self.values[self.source[self.counting[0]]].std[-1])
        self.lists, self.look = lists, look
        self.rows = LastRows(columns=self.counting, variance=std * std, public_sigma=look.public_sigma)

    def describe(self) -> dict[str, Any]:
        """Return what the stream says, and the last look's constants where there is one."""
        return super().describe() | ({} if self.look is None else {"closing": self.look.describe()})

    @classmethod
    def looks_back(cls, parameters: Constants) -> bool:
        """Where it has a last look."""
        return isinstance(parameters, ClosingParameters) and parameters.last_look

    @classmethod
    def longest(cls, triggers: int, max_records: int) -> int:
        """The most records that the ledger keeps of a user: a record costs at least 1 / |C e_1|^2 of one at the first trigger.

        |C e_1|^2 <= 1 + sum over k < T of 1 / (pi k) <= 1 + (1 + ln T) / pi, and less than 1/2 more on the coarsest grid.
        """
        return math.ceil(max_records * (1.5 + (1 + math.log(triggers)) / math.pi))

    def _stream(self, plan: Plan, parameters: ClosingParameters, budget: Guarantee, delta: float) -> Design:
        """Selection and values of all triggers. A user can have the dearest ranks and the dearest values at once."""
        mu2 = budget.mu**2
        ranking = Ranking(plan, parameters)
        measured, counting = ledger_weights(plan)

        def measures(share: float, like: Sequence[Values | Cells] = ()) -> _Measures:
            def cost(inverse: float) -> float:
                return mu2 * share / inverse / plan.max_records * (1 - 1e-12)

            # Columns are not normalized: the ledger spends what later ones are shorter.
            return value_mechanisms(
                plan,
                users_cost=cost(_inverse_of_users(plan)) if counting else None,
                column_cost=lambda column: cost(_inverse_of(column, plan)),
                like=like,
            )

        # The ledger follows the coefficients' grids, and these the noise. Bounding must be the same whatever kappa is.
        like = measures(ClosingParameters().value_share)[0] if parameters.persistence else ()
        values, source = measures(parameters.value_share, like)
        ledger = ValueLedger(
            [value.factorization for value in values],
            capacity=plan.max_records,
            measured=measured,
            counting=counting,
        )
        if ledger.most_records > MAX_LISTED_KEYS:
            raise ConfigurationError(
                f"max_records={plan.max_records}: lets a user keep {ledger.most_records} records, and lists end at "
                f"{MAX_LISTED_KEYS}; lower it, or use another strategy"
            )
        bounding = Bounding(
            max_records=plan.max_records,
            max_records_per_key=plan.max_records_per_key,
            weights=ranking.bounding_weights,
            lag=parameters.lag,
            ledger=ledger,
            whole_lists=True,
        )
        return Design(
            bounding=bounding,
            selector=ranking.selector(plan, cost=mu2 * parameters.discovery_share * (1 - 1e-12), delta_selection=delta),
            selection_mechanism=SELECTION,
            values=values,
            source=source,
            notes={
                **ranking.notes(),
                "mu": budget.mu,
                "shares": {
                    "selection": parameters.discovery_share,
                    "values": parameters.value_share,
                    "unknown": parameters.unknown_share,
                    "public": parameters.public_share,
                },
                "most_records": ledger.most_records,
            },
        )

    @classmethod
    def shares(cls, plan: Plan) -> tuple[float, ...]:
        """By the ledger's integers, and by weight among the columns that do not count users."""
        return tuple(
            1 / (_inverse_of_users(plan) if counts_users(column, plan) else _inverse_of(column, plan))
            for column in plan.columns
        )

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
        look, lists = self.look, increments.lists
        if look is None or self.rows is None or trigger != self.plan.triggers:
            return super().step(trigger, keys, states, increments, noise, declared)
        if lists is None:
            raise ValueError(f"trigger={trigger}: the last trigger measures the users' lists, and none are given")
        before = states.selected | declared
        statistics = look.statistics(keys, before, states, increments, lists, noise)
        found = look.found(before, lists, statistics, increments.past)
        step = super().step(trigger, keys, states, increments, noise, declared | found)
        again = look.again(keys, lists, noise, step.published)
        pooled = self.rows.pooled(step, before, statistics=statistics, again=again, unit=lists.unit)
        return replace(step, pooled_rows=pooled, closing=look.closing_rows(lists, statistics))

    @property
    def evidence_windows(self) -> int:
        """The plan's, where there is a last look."""
        return 1 if self.look is None else self.plan.evidence_windows

    def unbrought(self, keys: Sequence[bytes], noise: WindowNoise) -> Floats:
        return super().unbrought(keys, noise) if self.look is None else self.look.unbrought(keys, noise)

    def closing_constants(self, keys: Sequence[bytes]) -> tuple[Floats, Floats]:
        """Those of the last look, the same for every key."""
        if self.look is None:
            return super().closing_constants(keys)
        return np.full(len(keys), self.look.height), np.full(len(keys), self.look.variance)

    def calibrate(
        self, estimates: Int64s, std_errors: Floats, evidence: Int64s, pooled: Int64s
    ) -> tuple[Int64s, Floats]:
        """Calibrate the columns that count users, by `LastRows`; others keep the step's pair."""
        if self.rows is None:
            return super().calibrate(estimates, std_errors, evidence, pooled)
        return self.rows.calibrated(estimates, std_errors, evidence, pooled)

    def appearing(self, rng: np.random.Generator, keys: int) -> Floats:
        """Decide by the tests of the stream, and at the last trigger by the joint test of it and the lists."""
        look = self.look
        if look is None:
            return super().appearing(rng, keys)
        normals = rng.standard_normal((keys, self.plan.triggers))
        rates = look.selector.least_multiples(self.first_weights, normals)
        rates[:, -1] = np.minimum(rates[:, -1], look.appearing(self.first_weights, normals, rng))
        return rates

    def costs(self, grids: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        yield from super().costs(grids)
        if self.look is None:
            return
        steady = float(self.first_weights.mean())
        yield (
            "at the end",
            f"keys still missing appear from about {self.look.level / (1 + self.look.filter_weight * steady):,.0f} users on, if "
            "they come steadily and each has no other such key",
        )
        test = self.look.test
        for scale in test.scales[1:]:
            users = test.level(scale, self.look.height, self.look.variance) / (1 + self.look.filter_weight * steady)
            yield (
                f"over {scale} windows",
                f"keys that none of them publishes appear from about {users:,.0f} users in each on, if the same holds",
            )


def _inverse_of_users(plan: Plan) -> float:
    """By what the values' budget is divided for the number of users."""
    measured, counting = ledger_weights(plan)
    return float(Fraction(measured + counting, counting))


def _inverse_of(column: Column, plan: Plan) -> float:
    """The same for another column."""
    measured, counting = ledger_weights(plan)
    return float(Fraction(measured + counting, measured) * measured_weight(plan) / Fraction(column.weight))
