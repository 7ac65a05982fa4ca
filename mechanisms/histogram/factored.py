"""What the factorization strategies share: one step of selection and values over a chunk of keys.

    increments ──▶ totals ──▶ candidates (gate open, skip index reached) ──Selector──▶ newly selected
    selected or declared ──Values──▶ estimates n_t + RN((B z)_t), standard errors

toeplitz.py and weighted.py only decide the constants: noise scales, weights, caps, guarantee.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.factorization import Factorization
from susurrus.mechanisms.histogram.rounding import Decoder
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.states import UNKNOWN, FactoredStates, segments
from susurrus.mechanisms.histogram.strategy import Increments, Plan, Step
from susurrus.mechanisms.noise import WindowNoise, grid_units


class Values:
    """One Gaussian mechanism over integer increments, published as integers with their standard error."""

    def __init__(self, mechanism: str, factorization: Factorization, sigma: float) -> None:
        self.mechanism = mechanism
        self.factorization = factorization
        self.sigma = sigma
        grid_units(sigma, factorization.bits)
        self.decoder = Decoder(factorization, noise_bits=factorization.bits)
        # Rounding to an integer adds at most a uniform error: variance 1/12.
        self.std = np.sqrt(sigma**2 * factorization.row2 + 1 / 12)

    def noise(self, trigger: int, address: str, keys: Sequence[bytes], noise: WindowNoise) -> npt.NDArray[np.int64]:
        """RN((B z)_t) per key, remembered for all triggers of the window while there is memory."""
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
            z = noise.normal(labels, 1, last, sigma=self.sigma, bits=self.factorization.bits)
            drawn = self.decoder.rounded(z, 1 if remember else trigger, last)
            out[index] = drawn[:, trigger - 1 if remember else 0]
            if remember:
                memory.add(some, drawn)
        return out

    def describe(self) -> dict[str, float | int]:
        """Public constants; std in grid units of the column."""
        return {
            "sigma": self.sigma,
            "col2": self.factorization.col2,
            "exponent": self.factorization.exponent,
            "coefficient_bits": self.factorization.bits,
            "std_first": float(self.std[0]),
            "std_last": float(self.std[-1]),
        }


class Factored:
    """A strategy made of at most one Selector and one Values per group of columns.

    Privacy: `guarantee`, for one user in one window; neighbours add or remove a user's records of the window.
    """

    lists: Any = None

    def __init__(
        self,
        plan: Plan,
        *,
        guarantee: Guarantee,
        bounding: Bounding,
        selector: Selector | None,
        selection_mechanism: str,
        values: Sequence[Values],
        source: Sequence[int],
        notes: Mapping[str, Any],
    ) -> None:
        """source: for each column the index of its mechanism in `values`; columns that share one share its noise."""
        self.plan = plan
        self.guarantee = guarantee
        self.bounding = bounding
        self.selector = selector
        self.values = tuple(values)
        self.source = tuple(source)
        self._notes = dict(notes)
        # The digest of the plan in the address: one draw can never serve two noise scales.
        suffix = "/" + plan.digest().hex()
        self._selection_mechanism = selection_mechanism + suffix
        self._value_mechanisms = [value.mechanism + suffix for value in self.values]

    def empty(self, size: int) -> FactoredStates:
        """States of keys never seen."""
        return FactoredStates.empty(size, len(self.plan.columns))

    def unpack(self, rows: Sequence[bytes]) -> FactoredStates:
        """States from the store."""
        return FactoredStates.unpack(rows, len(self.plan.columns))

    def pack(self, states: FactoredStates) -> list[bytes]:
        """States for the store."""
        return states.pack()

    def step(
        self,
        trigger: int,
        keys: Sequence[bytes],
        states: FactoredStates,
        increments: Increments,
        noise: WindowNoise,
        declared: npt.NDArray[np.bool_],
    ) -> Step:
        """One trigger of one chunk: see `Strategy.step`. Raises ValueError for a trigger outside 1..T."""
        if not 1 <= trigger <= self.plan.triggers:
            raise ValueError(f"trigger={trigger}: must be 1 to {self.plan.triggers}")
        size = len(keys)
        sums = states.sums + increments.sums
        public = states.selected | declared
        due = np.where(public, 0, self.plan.triggers + 1).astype(np.int32)
        if self.selector is None:
            after = _hidden(states, public, sums)
            changed = public & (~states.selected | (increments.sums != 0).any(axis=1))
        else:
            open_ = _append(states, trigger, increments, ~public)
            need = open_.need.copy()
            candidates = np.flatnonzero(
                ~public & (open_.users > self.plan.minimum_users) & ((need == UNKNOWN) | (open_.total >= need))
            )
            labels = noise.labels(self._selection_mechanism, [keys[i] for i in candidates.tolist()])
            indptr, entries = segments(open_.indptr, candidates)
            outcome = self.selector.evaluate(
                trigger, labels, open_.total[candidates], indptr, open_.when[entries], open_.weight[entries], noise
            )
            need[candidates] = outcome.need
            due[candidates] = np.where(outcome.selected, 0, outcome.due)
            public = public.copy()
            public[candidates] |= outcome.selected
            again = self._select_again(trigger, keys, public, increments, noise)
            public |= again
            due[again] = 0
            after = _close(open_, public, need, sums)
            changed = (
                (after.selected != states.selected)
                | (after.need != states.need)
                | (~public & ((increments.weight != 0) | (increments.users != 0)))
                | (increments.sums != 0).any(axis=1)
            )
        shown = np.flatnonzero(public)
        estimates = np.zeros((size, len(self.source)), np.int64)
        std_errors = np.zeros((size, len(self.source)), np.float64)
        shown_keys = [keys[i] for i in shown.tolist()]
        for index in sorted(set(self.source)):
            value = self.values[index]
            drawn = value.noise(trigger, self._value_mechanisms[index], shown_keys, noise)
            for column in (c for c, source in enumerate(self.source) if source == index):
                estimates[shown, column] = sums[shown, column] + drawn
                std_errors[shown, column] = value.std[trigger - 1]
        self._refine(trigger, keys, shown, increments, noise, estimates, std_errors)
        return Step(
            states=after, changed=changed, due=due, published=public, estimates=estimates, std_errors=std_errors
        )

    def _select_again(
        self,
        trigger: int,
        keys: Sequence[bytes],
        public: npt.NDArray[np.bool_],
        increments: Increments,
        noise: WindowNoise,
    ) -> npt.NDArray[np.bool_]:
        """bool[k]: keys that something else than the stream's tests selects now; `closing` knows more."""
        return np.zeros(len(keys), np.bool_)

    def _refine(
        self,
        trigger: int,
        keys: Sequence[bytes],
        shown: npt.NDArray[np.intp],
        increments: Increments,
        noise: WindowNoise,
        estimates: npt.NDArray[np.int64],
        std_errors: npt.NDArray[np.float64],
    ) -> None:
        """Improve the rows at ``shown`` in place by what else was measured; `closing` does."""

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


def _append(
    states: FactoredStates, trigger: int, increments: Increments, hidden: npt.NDArray[np.bool_]
) -> FactoredStates:
    """Totals and histories with this trigger's weight added, for keys not public; sums are left alone."""
    added = hidden & (increments.weight != 0)
    counts = np.diff(states.indptr)
    indptr = np.zeros(len(states) + 1, np.int64)
    np.cumsum(counts + added, out=indptr[1:])
    when = np.empty(int(indptr[-1]), np.int32)
    weight = np.empty(int(indptr[-1]), np.int64)
    old = np.arange(len(states.when)) + np.repeat(indptr[:-1] - states.indptr[:-1], counts)
    when[old], weight[old] = states.when, states.weight
    new = indptr[1:][added] - 1
    when[new], weight[new] = trigger, increments.weight[added]
    return FactoredStates(
        selected=states.selected,
        users=states.users + np.where(hidden, increments.users, 0),
        total=states.total + np.where(hidden, increments.weight, 0),
        need=states.need,
        sums=states.sums,
        indptr=indptr,
        when=when,
        weight=weight,
    )


def _close(
    states: FactoredStates, public: npt.NDArray[np.bool_], need: npt.NDArray[np.int64], sums: npt.NDArray[np.int64]
) -> FactoredStates:
    """Public keys keep their running totals only."""
    counts = np.diff(states.indptr)
    stay = np.repeat(~public, counts)
    indptr = np.zeros(len(states) + 1, np.int64)
    np.cumsum(np.where(public, 0, counts), out=indptr[1:])
    return FactoredStates(
        selected=public,
        users=np.where(public, 0, states.users),
        total=np.where(public, 0, states.total),
        need=np.where(public, 0, need),
        sums=sums,
        indptr=indptr,
        when=states.when[stay],
        weight=states.weight[stay],
    )


def _hidden(states: FactoredStates, public: npt.NDArray[np.bool_], sums: npt.NDArray[np.int64]) -> FactoredStates:
    """Without discovery nothing is remembered about keys that can never be published."""
    kept = FactoredStates.empty(len(states), sums.shape[1])
    kept.sums[public] = sums[public]
    kept.need[public] = 0
    kept.selected[public] = True
    return kept
