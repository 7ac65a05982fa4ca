"""What the factorization strategies share: one step of selection and values over a chunk of keys.

    increments ──▶ totals ──▶ candidates (gate open, skip index reached) ──Selector──▶ newly selected
    selected or declared ──Values──▶ estimates n_t + RN((B z)_t), standard errors

A strategy's own file only decides the constants: noise scales, weights, caps, guarantee.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import delta_gaussian, gaussian_mu
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, Bounding
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.histogram.factorization import (
    MAX_BITS,
    MIN_BITS,
    Factorization,
    normalized_power,
    power,
)
from susurrus.mechanisms.histogram.plan import SHARE_SLACK, Column, Plan
from susurrus.mechanisms.histogram.rounding import Decoder
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.sparse import pack_counts, unpack_counts
from susurrus.mechanisms.histogram.states import UNKNOWN, FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments, Step, Strategy, half_width
from susurrus.mechanisms.noise import WindowNoise, grid_units

NOISE_BITS = 34
"""sigma in grid units is below 2^34 where it can be: on finer grids draws are slow, because more of them are near a tie."""
USERS = "users"
"""The mechanism that counts distinct users."""


class Values:
    """One Gaussian mechanism over integer increments, published as integers with their standard error."""

    def __init__(self, mechanism: str, factorization: Factorization, sigma: float) -> None:
        self.mechanism = mechanism
        self.factorization = factorization
        self.sigma = sigma
        grid_units(sigma, factorization.grid_bits)
        self.decoder = Decoder(factorization, noise_bits=factorization.grid_bits)
        # Rounding to an integer adds at most a uniform error: variance 1/12.
        self.std = np.sqrt(sigma**2 * factorization.row2 + 1 / 12)

    def covariance(self, first: Trigger, last: Trigger) -> npt.NDArray[np.float64]:
        """float64[1]: of the noises of two triggers, without rounding."""
        return np.array([self.sigma**2 * self.factorization.row_product(first, last)])

    def totals(self, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[k, 1]: what is published of int64[k, 1] running totals, but for the noise."""
        return sums

    def noise(self, trigger: int, address: str, keys: Sequence[bytes], noise: WindowNoise) -> npt.NDArray[np.int64]:
        """int64[k, 1]: RN((B z)_t) per key, remembered for all triggers of the window while there is memory."""
        memory = noise.memory(address, self.factorization.triggers)
        found = memory.find(keys)
        missing = np.flatnonzero(found < 0)
        out = np.empty(len(keys), np.int64)
        out[found >= 0] = memory.table[found[found >= 0], trigger - 1]
        rows = max(1, (1 << 19) // self.factorization.triggers)
        for begin in range(0, len(missing), rows):
            index = missing[begin : begin + rows]
            some = [keys[i] for i in index.tolist()]
            labels = noise.labels(address, some)
            remember = len(some) <= memory.room()
            last = self.factorization.triggers if remember else trigger
            z = noise.normal(labels, 1, last, sigma=self.sigma, bits=self.factorization.grid_bits)
            drawn = self.decoder.rounded(z, 1 if remember else trigger, last)
            out[index] = drawn[:, trigger - 1 if remember else 0]
            if remember:
                memory.add(some, drawn)
        return out[:, None]

    def describe(self) -> dict[str, float | int]:
        """Public constants; std in grid units of the column."""
        return {
            "sigma": self.sigma,
            **self.factorization.describe(),
            "std_first": float(self.std[0]),
            "std_last": float(self.std[-1]),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The mechanisms of one plan, with their noise scales.

    source: for each column the index of its mechanism in `values`; columns that share one share its noise.
    notes: public numbers that `Strategy.describe` adds.
    """

    bounding: Bounding
    selector: Selector | None
    selection_mechanism: str
    values: tuple[Values | Cells, ...]
    source: tuple[int, ...]
    notes: dict[str, Any] = field(default_factory=dict)


class Factored(Strategy[FactoredStates]):
    """A strategy made of at most one Selector and one Values per group of columns.

    Privacy: `guarantee`, for one user in one window; neighbours add or remove a user's records of the window.
    """

    def __init__(self, plan: Plan, guarantee: Guarantee, design: Design) -> None:
        """design: what costs at most the guarantee's mu and delta_selection."""
        self.plan = plan
        self.guarantee = guarantee
        self.bounding = design.bounding
        self.selector = design.selector
        self.values = design.values
        self.source = design.source
        self._notes = dict(design.notes)
        self._cells = sum(column.buckets for column in plan.columns if column.kind == "cells")
        # The digest of the plan in the address: one draw can never serve two noise scales.
        suffix = "/" + plan.digest().hex()
        self._selection_mechanism = design.selection_mechanism + suffix
        self._value_mechanisms = [value.mechanism + suffix for value in self.values]

    def empty(self, size: int) -> FactoredStates:
        return FactoredStates.empty(size, self.plan.width)

    def unpack(self, rows: Sequence[bytes]) -> FactoredStates:
        if not self._cells:
            return FactoredStates.unpack(rows, self.plan.width)
        counts, rest = unpack_counts(rows, self._cells)
        states = FactoredStates.unpack(rest, self.plan.width - self._cells)
        return replace(states, sums=np.concatenate((states.sums, counts), axis=1))

    def pack(self, states: FactoredStates) -> list[bytes]:
        if not self._cells:
            return states.pack()
        plain = self.plan.width - self._cells
        rest = replace(states, sums=np.ascontiguousarray(states.sums[:, :plain])).pack()
        return pack_counts(states.sums[:, plain:], rest)

    def step(
        self,
        trigger: Trigger,
        keys: Sequence[bytes],
        states: FactoredStates,
        increments: Increments,
        noise: WindowNoise,
        declared: npt.NDArray[np.bool_],
    ) -> Step[FactoredStates]:
        """One trigger of one chunk: see `Strategy.step`. Raises ValueError for a trigger outside 1..T."""
        if not 1 <= trigger <= self.plan.triggers:
            raise ValueError(f"trigger={trigger}: must be 1 to {self.plan.triggers}")
        sums = states.sums + increments.sums
        public = states.selected | declared
        due = np.where(public, 0, self.plan.triggers + 1).astype(np.int32)
        if self.selector is None:
            after = _hidden(states, public, sums)
            changed = public & (~states.selected | (increments.sums != 0).any(axis=1))
        elif states.selected.all():
            # Public keys keep their running totals only.
            after = replace(states, sums=sums)
            changed = (increments.sums != 0).any(axis=1)
        else:
            history = states.history.plus(trigger, np.where(public, 0, increments.weight))
            users, need = states.users + np.where(public, 0, increments.users), states.need.copy()
            reached = (need == UNKNOWN) | (history.totals() >= need)
            candidates = np.flatnonzero(~public & (users > self.plan.minimum_users) & reached)
            labels = noise.labels(self._selection_mechanism, [keys[i] for i in candidates.tolist()])
            outcome = self.selector.evaluate(trigger, labels, history.take(candidates), noise)
            need[candidates] = outcome.need
            due[candidates] = np.where(outcome.selected, 0, outcome.due)
            public[candidates] |= outcome.selected
            # Public keys keep their running totals only.
            after = FactoredStates(
                selected=public,
                users=np.where(public, 0, users),
                need=np.where(public, 0, need),
                sums=sums,
                history=history.without(public),
            )
            changed = (
                (after.selected != states.selected)
                | (after.need != states.need)
                | (~public & ((increments.weight != 0) | (increments.users != 0)))
                | (increments.sums != 0).any(axis=1)
            )
        estimates, std_errors = self._estimate(trigger, keys, sums, public, noise)
        return Step(
            states=after, changed=changed, due=due, published=public, estimates=estimates, std_errors=std_errors
        )

    def _estimate(
        self,
        trigger: int,
        keys: Sequence[bytes],
        sums: npt.NDArray[np.int64],
        public: npt.NDArray[np.bool_],
        noise: WindowNoise,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """(estimates, standard errors) of the public keys, [k, width] each; zeros for the others."""
        estimates, std_errors = np.zeros_like(sums), np.zeros(sums.shape, np.float64)
        shown = np.flatnonzero(public)
        shown_keys = [keys[i] for i in shown.tolist()]
        places = self.plan.places
        for index in sorted(set(self.source)):
            value = self.values[index]
            drawn = value.noise(trigger, self._value_mechanisms[index], shown_keys, noise)
            for place in (place for place, source in zip(places, self.source, strict=True) if source == index):
                estimates[shown, place] = value.totals(sums[shown, place]) + drawn
                std_errors[shown, place] = value.std[trigger - 1]
        return estimates, std_errors

    def standard_errors(self) -> npt.NDArray[np.float64]:
        """The standard errors of the mechanism that measures each column."""
        return np.column_stack([self.values[index].std for index in self.source])

    def covariance(self, first: Trigger, last: Trigger) -> npt.NDArray[np.float64]:
        """The covariances of the mechanism that measures each column."""
        return np.concatenate([self.values[index].covariance(first, last) for index in self.source])

    def appearing(self, rng: np.random.Generator, keys: int) -> npt.NDArray[np.float64]:
        """Decides by the tests of the selector; see `Strategy.appearing`."""
        triggers = self.plan.triggers
        if self.selector is None:
            return np.full((keys, triggers), np.inf)
        return self.selector.least_multiples(self.first_weights, rng.standard_normal((keys, triggers)))

    @property
    def first_weights(self) -> npt.NDArray[np.float64]:
        """float64[T]: what a key weighs that is a user's first one, by the trigger at which it comes."""
        weights = self.bounding.weights
        return np.ones(self.plan.triggers) if weights is None else weights[0] / WEIGHT_ONE

    def describe(self) -> dict[str, Any]:
        """Everything needed to recompute the guarantee and the standard errors; all of it public."""
        plan = self.plan
        return {
            "strategy": plan.strategy,
            "triggers": plan.triggers,
            "plan": plan.digest().hex(),
            "guarantee": self.guarantee.to_dict(),
            "max_records": plan.max_records,
            "max_records_per_key": plan.max_records_per_key,
            "max_keys": plan.max_keys,
            "minimum_users": plan.minimum_users,
            "selection": None if self.selector is None else self.selector.describe(),
            "values": {value.mechanism: value.describe() for value in self.values},
            "columns": {
                column.name: self.values[index].mechanism
                for column, index in zip(plan.columns, self.source, strict=True)
            },
            **self._notes,
        }

    def costs(self, grids: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        for column, index in zip(self.plan.columns, self.source, strict=True):
            std, grid = self.values[index].std, grids[column.name]
            what = column.name if column.kind != "cells" else f"the records of {column.name} up to any border"
            yield (
                "noise",
                f"± {half_width(float(std[0].max()), grid)} on {what} at a window's first trigger, "
                f"± {half_width(float(std[-1].max()), grid)} at its last (95 %)",
            )
        if self.selector is None:
            return  # nothing but declared keys
        first = self.selector.level[0]
        weights = self.bounding.weights
        if weights is None:
            yield (
                "new keys",
                f"appear from about {first:,.0f} users on at the first trigger, "
                f"{self.selector.matched_level[-1]:,.0f} (who came steadily) to {self.selector.level[-1]:,.0f} at the last",
            )
        else:
            yield (
                "new keys",
                f"appear from about {first / weights[0, 0] * WEIGHT_ONE:,.0f} users on at the first trigger, if it is the "
                "first key of each" + ("" if self.bounding.lag is None else " that is not published yet"),
            )


def counts_users(column: Column, plan: Plan) -> bool:
    """Whether a column is the number of distinct users: then it costs nothing beside the selection statistic."""
    return column.counts_users(plan.max_records_per_key)


def budget_of(plan: Plan) -> Guarantee:
    """What a plan's epsilon and delta pay for: `mu` for all Gaussian noise together, `delta_selection` for all thresholds.

    delta = delta_G(mu, epsilon) + delta_selection. The latter is the sum of beta over a user's keys; 0 without discovery.
    Of a plan that is a level of another: its part of both.
    """
    part = plan.part
    selects = plan.selects if part is None else part.selects
    gaussian = plan.delta * plan.gaussian_delta_fraction if selects else plan.delta
    mu, delta_selection = gaussian_mu(plan.epsilon, gaussian), (plan.delta - gaussian) * (1 - 1e-12)
    if part is not None:
        mu *= math.sqrt(part.share) * (1 - SHARE_SLACK)
        delta_selection *= part.selection
    return Guarantee(
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=mu,
        delta_gaussian=delta_gaussian(mu, plan.epsilon),
        delta_selection=delta_selection,
    )


def value_mechanisms(
    plan: Plan,
    *,
    users_cost: float | None,
    column_cost: Callable[[Column], float],
    like: Sequence[Values | Cells] = (),
    normalized: bool = False,
) -> tuple[tuple[Values | Cells, ...], tuple[int, ...]]:
    """(values, source) of a `Design`: one mechanism for all columns that count users, and one for each other column.

    users_cost: of mu^2, for one record in the number of users; None: nothing counts them. column_cost: for one record of
    the largest size in each other column. normalized: whether a record costs that at every trigger; otherwise at the first one,
    and less the later it comes, which a `ValueLedger` can spend. like: mechanisms of the same columns, whose grids of coefficients
    are taken over where columns are not normalized.
    """
    grids: list[int | None] = [each.factorization.bits for each in like] or [None] * (1 + len(plan.columns))
    values: list[Values | Cells] = []
    if users_cost is not None:
        values.append(_value_mechanism(USERS, plan.triggers, 1, users_cost, grids[0], normalized))
    source = []
    for column in plan.columns:
        if counts_users(column, plan):
            source.append(0)
        else:
            source.append(len(values))
            values.append(_mechanism_of(column, plan.triggers, column_cost(column), grids[len(values)], normalized))
    return tuple(values), tuple(source)


def _mechanism_of(column: Column, triggers: int, cost: float, bits: int | None, normalized: bool) -> Values | Cells:
    name = "column/" + column.name
    if column.kind == "cells":
        return Cells(name, triggers=triggers, buckets=column.buckets, cost=cost, bits=bits, normalized=normalized)
    return _value_mechanism(name, triggers, column.bound, cost, bits, normalized)


def _value_mechanism(name: str, triggers: int, bound: int, cost: float, bits: int | None, normalized: bool) -> Values:
    """The mechanism whose noise makes one record of size `bound` cost `cost` of mu^2: sigma^2 = bound^2 col2 / cost.

    bits: fractional bits of the coefficients; None: those that fit the noise.
    """
    factorization = power(triggers, 0.5, MAX_BITS)
    sigma = _sigma(factorization, bound, cost)
    if normalized:
        factorization = normalized_power(triggers, 0.5, NOISE_BITS - math.ceil(math.log2(sigma)))
    else:
        factorization = power(triggers, 0.5, coefficient_bits(sigma) if bits is None else bits)
    return Values(name, factorization, _sigma(factorization, bound, cost) * (1 + 1e-12))


def _sigma(factorization: Factorization, bound: int, cost: float) -> float:
    return bound * math.sqrt(factorization.col2 / cost)


def coefficient_bits(sigma: float) -> int:
    """Fractional bits of C and z: as fine as 2^-20, coarser for large noise so that draws stay below 2^34 or so."""
    return max(MIN_BITS, min(MAX_BITS, 30 - math.ceil(math.log2(sigma))))


def _hidden(states: FactoredStates, public: npt.NDArray[np.bool_], sums: npt.NDArray[np.int64]) -> FactoredStates:
    """Without discovery nothing is remembered about keys that can never be published."""
    kept = FactoredStates.empty(len(states), sums.shape[1])
    kept.sums[public] = sums[public]
    kept.need[public] = 0
    kept.selected[public] = True
    return kept
