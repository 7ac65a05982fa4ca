"""The default strategy: a stream that looks for keys that are not public yet, and one more look at the end (`closing`).

    every trigger   ranked weights on unpublished keys (ranked.py), values within a ledger (value_ledger.py)
    last trigger    users' whole lists, measured once (user_lists.py) ──joint test with the stream's filter──▶ more keys
                    the rows of all partitions ──last_rows.py──▶ estimates without the selection's bias

A stream of T releases pays for each of them, a single release pays once. So a share of the budget is kept for the last
trigger: users put weight on those of their keys that are still not public, and measure the public ones again.
Argument and the price: docs/guarantees/closing.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram import last_rows
from susurrus.mechanisms.histogram.bounding import MAX_LISTED_KEYS, WEIGHT_ONE, Bounding
from susurrus.mechanisms.histogram.factored import Design, Factored, budget_of, counts_users, value_mechanisms
from susurrus.mechanisms.histogram.last_rows import LastRows, evidence
from susurrus.mechanisms.histogram.plan import Plan, constant
from susurrus.mechanisms.histogram.ranked import MAX_RANKED_KEYS, SELECTION, RankedParameters, Ranking
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.states import FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments, PooledRows, Step
from susurrus.mechanisms.histogram.user_lists import WEIGHT_CONSTANTS, ListSums, ListWeights
from susurrus.mechanisms.histogram.value_ledger import ValueLedger
from susurrus.mechanisms.noise import WindowNoise, grid_units

UNKNOWN, PUBLIC = "closing/unknown", "closing/public"
BITS = 20
"""Weights and noise share the grid 2^-20 of `WEIGHT_ONE`."""
DECAY = 0.7
"""Each rank's weight is so much of the one before, unless `prior` says otherwise."""
FILTER_SIGNAL = 0.66
"""What a user of a key is taken to add to the stream's filter, relative to the closing statistic. Two measurements are best added
with weights in proportion to signal over variance."""
CONSTANTS = (*WEIGHT_CONSTANTS, *last_rows.CONSTANTS, FILTER_SIGNAL, MAX_LISTED_KEYS)
"""What no parameter changes, for the digest of a plan."""

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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

    @dataclass(frozen=True, kw_only=True)
    class Parameters(RankedParameters):
        """Parameters of strategy `closing`. The four shares are of the squared Gaussian budget; the values have the rest.

        It has a ledger in place of a cap: see `bounds.max_records_per_user`.
        """

        ranked_keys: int = constant(
            10,
            "Keys per user, of those not published yet and in order of first occurrence, that carry weight in the "
            "selection.",
            ge=1,
            le=MAX_RANKED_KEYS,
        )
        discovery_share: float = constant(
            0.4, "Share of the squared Gaussian budget for selection before the last trigger and at it.", gt=0, lt=1
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
            "Keys per user, of those still not published and in order of first occurrence, that are measured at the last "
            "trigger. At least `ranked_keys`.",
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

        def default_prior(self, rank: int) -> float:
            """DECAY^i."""
            return DECAY**rank

        def published(self) -> dict[str, Any]:
            """What no parameter changes is covered, too."""
            return super().published() | {"constants": CONSTANTS}

    def __init__(self, plan: Plan) -> None:
        parameters = plan.parameters_as(Closing.Parameters)
        self.counting = tuple(index for index, column in enumerate(plan.columns) if counts_users(column, plan))
        if parameters.last_look and not self.counting:
            raise ConfigurationError(
                'strategy="closing": measures users, and no column counts them; add a column of kind "users" '
                "(or count at max_records_per_key=1), or leave the last look out (unknown_share=0, public_share=0)"
            )
        budget = budget_of(plan)
        self._closing_delta = budget.delta_selection * 0.5 if parameters.last_look else 0.0
        self._stream_delta = budget.delta_selection - self._closing_delta
        super().__init__(plan, budget, self._stream(plan, parameters, budget))
        if not parameters.last_look:
            return
        self.refined = self.counting
        self.lists = ListWeights(keys=parameters.keys, max_keys=MAX_LISTED_KEYS, column=self.counting[0])
        self._measure_lists(parameters, budget.mu**2)
        self._test(parameters)
        suffix = "/" + plan.digest().hex()
        self._unknown_mechanism, self._public_mechanism = UNKNOWN + suffix, PUBLIC + suffix

    @classmethod
    def longest(cls, triggers: int, max_records: int) -> int:
        """The most records that the ledger keeps of a user: a record costs at least 1 / |C e_1|^2 of one at the first trigger.

        |C e_1|^2 <= 1 + sum over k < T of 1 / (pi k) <= 1 + (1 + ln T) / pi, and less than 1/2 more on the coarsest grid.
        """
        return math.ceil(max_records * (1.5 + (1 + math.log(triggers)) / math.pi))

    def _stream(self, plan: Plan, parameters: Parameters, budget: Guarantee) -> Design:
        """Selection and values of all triggers. A user can have the dearest ranks and the dearest values at once."""
        mu2 = budget.mu**2
        ranking = Ranking(plan, parameters)
        measured = len(plan.columns) - len(self.counting)
        counting = int(bool(self.counting))
        cost = mu2 * parameters.value_share / (measured + counting) / plan.max_records * (1 - 1e-12)
        values, source = value_mechanisms(plan, users_cost=cost if counting else None, column_cost=cost)
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
            selector=ranking.selector(
                plan, cost=mu2 * parameters.discovery_share * (1 - 1e-12), delta_selection=self._stream_delta
            ),
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

    def _measure_lists(self, parameters: Parameters, mu2: float) -> None:
        """The noise of the two measurements, in units of weight; rounded up like every sigma."""
        lists, one = self._lists, float(WEIGHT_ONE)
        self.unknown_sigma = math.sqrt(lists.unknown_square / (mu2 * parameters.unknown_share)) / one * (1 + 1e-9)
        self.public_sigma = math.sqrt(lists.public_square / (mu2 * parameters.public_share)) / one * (1 + 1e-9)
        grid_units(self.unknown_sigma, BITS)
        grid_units(self.public_sigma, BITS)

    def _test(self, parameters: Parameters) -> None:
        """The joint test: closing statistic + filter_weight * matched filter >= level, for every key alike."""
        selector = self._selector
        weight = parameters.filter_weight
        if weight is None:
            ratio = self.unknown_sigma / float(selector.matched_std[-1])
            weight = FILTER_SIGNAL * ratio * ratio
        self.filter_weight = weight
        self.quantile = tail_quantile(self._closing_delta / self._lists.keys)
        height = self.plan.minimum_users + 1 + weight * float(selector.matched_height[-1])
        std = math.hypot(self.unknown_sigma, weight * float(selector.matched_std[-1]))
        # The noise of both is rounded to a grid, and the sum is formed in float64.
        slack = 2.0 ** -(BITS + 1) + weight * float(selector.matched_slack[-1])
        self.level = (height + self.quantile * std + slack) * (1 + 1e-9)
        self._notes["closing"] = {
            "keys": self._lists.keys,
            "unknown_sigma": self.unknown_sigma,
            "public_sigma": self.public_sigma,
            "unknown_square": self._lists.unknown_square / WEIGHT_ONE**2,
            "public_square": self._lists.public_square / WEIGHT_ONE**2,
            "filter_weight": weight,
            "filter_height": float(selector.matched_height[-1]),
            "filter_std": float(selector.matched_std[-1]),
            "threshold": self.level,
            "quantile": self.quantile,
        }

    @property
    def _lists(self) -> ListWeights:
        assert self.lists is not None  # what asks for them is there with the last look only
        return self.lists

    @property
    def _selector(self) -> Selector:
        assert self.selector is not None  # `Ranking` refuses plans without discovery
        return self.selector

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
        if self.lists is None or trigger != self.plan.triggers:
            return super().step(trigger, keys, states, increments, noise, declared)
        lists = increments.lists
        if lists is None:
            raise ValueError(f"trigger={trigger}: the last trigger measures the users' lists, and none are given")
        before = states.selected | declared
        statistics = self._statistics(keys, before, states, increments, lists, noise)
        found = ~before & (lists.users > self.plan.minimum_users)
        found &= statistics[:, 0] + self.filter_weight * statistics[:, 1] >= self.level
        step = super().step(trigger, keys, states, increments, noise, declared | found)
        again = self._again(keys, lists, noise, step.published)
        # Which measurement a row uses follows from what was published before; the noise is there with and without users.
        new, known = step.published & ~before, step.published & (lists.unit > 0)
        told = evidence(
            direct=step.estimates[:, self.counting[0]], new=new, statistics=statistics, again=again, unit=lists.unit
        )
        rows = np.flatnonzero(new | known)
        return replace(step, pooled_rows=PooledRows(index=rows, evidence=told[rows]))

    def _again(
        self, keys: Sequence[bytes], lists: ListSums, noise: WindowNoise, published: npt.NDArray[np.bool_]
    ) -> Int64:
        """int64[k], in units of 2^-20: the second measurement of the published keys that were public to it; else 0."""
        rows = np.flatnonzero(published & (lists.unit > 0))
        out = np.zeros(len(keys), np.int64)
        out[rows] = lists.public_weight[rows] + self._drawn(
            self._public_mechanism, self.public_sigma, keys, rows, noise
        )
        return out

    def _statistics(
        self,
        keys: Sequence[bytes],
        public: npt.NDArray[np.bool_],
        states: FactoredStates,
        increments: Increments,
        lists: ListSums,
        noise: WindowNoise,
    ) -> Floats:
        """float64[k, 2]: closing statistic and matched filter of the keys with an open gate; their noise is there in any case."""
        minimum = self.plan.minimum_users
        rows = np.flatnonzero(~public & ((lists.users > minimum) | (states.users + increments.users > minimum)))
        statistics = np.zeros((len(keys), 2))
        drawn = self._drawn(self._unknown_mechanism, self.unknown_sigma, keys, rows, noise)
        statistics[rows, 0] = (lists.weight[rows] + drawn) / WEIGHT_ONE
        labels = noise.labels(self._selection_mechanism, [keys[i] for i in rows.tolist()])
        history = states.history.plus(self.plan.triggers, np.where(public, 0, increments.weight)).take(rows)
        statistics[rows, 1] = self._selector.matched(self.plan.triggers, labels, history, noise)
        return statistics

    def calibrate(self, estimates: Int64, std_errors: Floats, evidence: Int64, pooled: Int64) -> tuple[Int64, Floats]:
        """Columns that count users, by `LastRows`; others keep the step's pair."""
        estimates, std_errors = estimates.copy(), std_errors.copy()
        std = float(self.values[self.source[self.counting[0]]].std[-1])
        rows = LastRows(variance=std * std, public_sigma=self.public_sigma)
        for places, calibrated, errors in rows.calibrated(evidence, pooled):
            for column in self.counting:
                estimates[places, column], std_errors[places, column] = calibrated, errors
        return estimates, std_errors

    def _drawn(
        self, mechanism: str, sigma: float, keys: Sequence[bytes], rows: npt.NDArray[np.intp], noise: WindowNoise
    ) -> Int64:
        """int64[rows]: the noise of the last trigger, in units of 2^-20."""
        labels = noise.labels(mechanism, [keys[i] for i in rows.tolist()])
        last = self.plan.triggers
        drawn: Int64 = noise.normal(labels, last, last, sigma=sigma, bits=BITS)[:, 0]
        return drawn

    def appearing(self, rng: np.random.Generator, keys: int) -> Floats:
        """Decides by the tests of the stream, and at the last trigger by the joint test of it and the lists."""
        if self.lists is None:
            return super().appearing(rng, keys)
        triggers, selector, weights = self.plan.triggers, self._selector, self.first_weights
        normals = rng.standard_normal((keys, triggers))
        rates = selector.least_multiples(weights, normals)
        gain, noise = selector.matched_linear(weights, normals)
        noise = self.filter_weight * noise + self.unknown_sigma * rng.standard_normal(keys)
        rates[:, -1] = np.minimum(rates[:, -1], (self.level - noise) / (triggers + self.filter_weight * gain))
        return rates

    def costs(self, grids: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        yield from super().costs(grids)
        if self.lists is None:
            return
        assert self.bounding.weights is not None
        steady = float(self.bounding.weights[0].mean()) / WEIGHT_ONE
        yield (
            "at the end",
            f"keys still missing appear from about {self.level / (1 + self.filter_weight * steady):,.0f} users on, if they come "
            "steadily and each has no other such key",
        )
