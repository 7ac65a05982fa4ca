"""Strategy "dp-sqlp": the algorithms of DP-SQLP (Zhang et al., VLDB 2024) with the gaps in its accounting closed.

    bounded increments ──tree of users, one per key and round──▶ release? ──tree of values, one per key──▶ estimate

Kept for comparison and for readers of the paper. What each algorithm became:

1 user bounding        `bounding.Bounding`: C records a user and window, m per key.
2 key selection        per key a round: users since the last release in a fresh binary tree with T leaves; the key is
                       released when the noisy count reaches minimum_users + 1 + τ_i, i triggers into the round, and a
                       new round starts with the next trigger. A user can be in up to C rounds.
3 empty keys           the noise of a whole round is known in advance, so the trigger at which an untouched key will be
                       released is computed once (`due`); equal to testing every key at every trigger.
4 value release        what was gathered since the last release enters a binary tree over the window's triggers, of
                       sensitivity C·L; a key's row is published when it is released, and stays as it was until then.

Corrected (docs/guarantees/dp-sqlp.md has the proof): τ holds for all T triggers of a round at once; the failure
probability is charged C times; exact Gaussian DP composes the rounds; T.bit_length() tree levels; the threshold is on
minimum_users + 1. Every estimate of a tree is bottom-up Honaker (`tree.py`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import gaussian_mu, tail_quantile
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram import tree
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.per_key import PerKey
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.shares import inverse_share
from susurrus.mechanisms.histogram.strategy import Increments, Step, Strategy, half_width
from susurrus.mechanisms.noise import WindowNoise, grid_units

GRID = 1 << 20
LAYOUT = 1
SELECTION_DELTA = 2 / 3
"""Share of delta for key selection, as in the paper; half of epsilon goes to each of selection and values."""
NODES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlpStates(PerKey):
    """States of k keys.

    origin int32: trigger of the last release, 0 before the first; due int32: trigger of the next release without new
    users, T + 1 for none; users int64: distinct users of the current round; need int64: no release of this round is
    possible below so many users, 0 while unknown; pending, released int64[k, columns]: sums since, up to the release.
    """

    origin: npt.NDArray[np.int32]
    due: npt.NDArray[np.int32]
    users: npt.NDArray[np.int64]
    need: npt.NDArray[np.int64]
    pending: npt.NDArray[np.int64]
    released: npt.NDArray[np.int64]

    @property
    def selected(self) -> npt.NDArray[np.bool_]:
        """Keys released at least once."""
        return self.origin > 0


class DpSqlp(Strategy[SqlpStates]):
    """DP-SQLP behind the `Strategy` interface.

    Privacy: (plan.epsilon, plan.delta) for all records of one user in one window, neighbours add or remove.
    Raises ConfigurationError where a plan asks for what these algorithms do not offer.
    """

    name = "dp-sqlp"
    summary = "the paper's binary tree, for comparison"
    repeats = False

    def __init__(self, plan: Plan) -> None:
        T = plan.triggers
        if plan.width > len(plan.columns):
            raise ConfigurationError(
                'strategy="dp-sqlp": has no counts by bucket, which quantiles need; use closing or toeplitz'
            )
        self.plan = plan
        self.bounding = Bounding(
            max_records=plan.max_records, max_records_per_key=plan.max_records_per_key, max_keys=plan.max_keys
        )
        self.rounds = min(plan.max_records, plan.max_keys or plan.max_records)
        values_mu, selection_mu, self.beta = self._shares()
        levels = tree.levels(T)
        # Each column has a tree of its own, also where several count users.
        total = sum((Fraction(column.weight) for column in plan.columns), Fraction(0))
        share = [values_mu / math.sqrt(inverse_share(column, total)) for column in plan.columns]
        self.value_sigma = [
            plan.max_records * column.bound * math.sqrt(levels) / mu
            for column, mu in zip(plan.columns, share, strict=True)
        ]
        self.value_bits = [min(20, 39 - math.ceil(math.log2(sigma))) for sigma in self.value_sigma]
        self.selection_sigma = math.sqrt(self.rounds * levels) / selection_mu if plan.discover else math.inf
        for sigma, bits in zip(self.value_sigma, self.value_bits, strict=True):
            grid_units(sigma, bits)
        if plan.discover:
            grid_units(self.selection_sigma, GRID.bit_length() - 1)
        self.prefix_std = tree.prefix_std(T)
        self.thresholds = self._thresholds() if plan.discover else np.empty(0, np.int64)
        delta_selection = self.rounds * self.beta
        self.guarantee = Guarantee(
            epsilon=plan.epsilon,
            delta=plan.delta,
            mu=math.hypot(values_mu, selection_mu),
            delta_gaussian=plan.delta - delta_selection,
            delta_selection=delta_selection,
        )
        self.stride = tree.nodes(T)
        # The digest of the plan in the address: one draw can never serve two noise scales.
        self._select = f"dp-sqlp.select/{plan.digest().hex()}"
        self._values = [f"dp-sqlp.value.{column.name}/{plan.digest().hex()}" for column in plan.columns]

    def _shares(self) -> tuple[float, float, float]:
        """(mu of the values, mu of the selection, beta: failure probability of a user's one round)."""
        plan = self.plan
        if not plan.discover:
            return gaussian_mu(plan.epsilon, plan.delta), 0.0, 0.0
        selection = plan.delta * SELECTION_DELTA
        gaussian = plan.gaussian_delta_fraction * selection
        values_mu = gaussian_mu(plan.epsilon / 2, plan.delta - selection)
        return values_mu, gaussian_mu(plan.epsilon / 2, gaussian), (selection - gaussian) / self.rounds

    def _thresholds(self) -> npt.NDArray[np.int64]:
        """int64[T], 2^-20 units: the bound the noisy count of a round must reach in the i-th trigger of the round.

        minimum_users + 1 + τ_i, P(any of N_1..N_T >= τ_i) <= beta by the union bound. Half the weight bound pays for
        the rounding of the nodes to the grid, which is off by at most half a unit each.
        """
        T = self.plan.triggers
        z = max(0.0, tail_quantile(self.beta / T))
        tau = z * self.selection_sigma * self.prefix_std * GRID + tree.weight_bound(T) / 2
        return (np.ceil(tau * (1 + 1e-12)) + (self.plan.minimum_users + 1) * GRID).astype(np.int64)

    @classmethod
    def shares(cls, plan: Plan) -> tuple[float, ...]:
        """By weight, a tree for each column."""
        total = sum((Fraction(column.weight) for column in plan.columns), Fraction(0))
        return tuple(1 / inverse_share(column, total) for column in plan.columns)

    def empty(self, size: int) -> SqlpStates:
        columns = len(self.plan.columns)
        return SqlpStates(
            origin=np.zeros(size, np.int32),
            due=np.full(size, self.plan.triggers + 1, np.int32),
            users=np.zeros(size, np.int64),
            need=np.zeros(size, np.int64),
            pending=np.zeros((size, columns), np.int64),
            released=np.zeros((size, columns), np.int64),
        )

    @property
    def _layout(self) -> np.dtype[np.void]:
        columns = (len(self.plan.columns),)
        sums = [("pending", "<i8", columns), ("released", "<i8", columns)]
        return np.dtype([("layout", "u1"), ("origin", "<i4"), ("due", "<i4"), ("users", "<i8"), ("need", "<i8"), *sums])

    def pack(self, states: SqlpStates) -> list[bytes]:
        """One byte string per key: a packed little-endian record, first byte the layout version."""
        layout = self._layout
        records = np.zeros(len(states), layout)
        records["layout"] = LAYOUT
        for name in SqlpStates.__slots__:
            records[name] = getattr(states, name)
        data, size = records.tobytes(), layout.itemsize
        return [data[start : start + size] for start in range(0, len(data), size)]

    def unpack(self, rows: Sequence[bytes]) -> SqlpStates:
        """The inverse of `pack`. Raises ValueError for bytes that `pack` did not write."""
        layout = self._layout
        if any(len(row) != layout.itemsize or row[0] != LAYOUT for row in rows):
            raise ValueError(f"state of layout {LAYOUT} and {layout.itemsize} bytes expected")
        records = np.frombuffer(b"".join(rows), layout)
        return SqlpStates(**{name: records[name].copy() for name in SqlpStates.__slots__})

    def step(
        self,
        trigger: Trigger,
        keys: Sequence[bytes],
        states: SqlpStates,
        increments: Increments,
        noise: WindowNoise,
        declared: npt.NDArray[np.bool_],
    ) -> Step[SqlpStates]:
        """One trigger of one chunk of keys; see `Strategy.step`. Published are the keys released at this trigger."""
        T = self.plan.triggers
        if not 1 <= trigger <= T:
            raise ValueError(f"trigger={trigger}: must be 1 to {T}")
        after = SqlpStates(
            origin=states.origin.copy(),
            due=states.due.copy(),
            users=states.users + increments.users,
            need=states.need.copy(),
            pending=states.pending + increments.sums,
            released=states.released.copy(),
        )
        if self.plan.discover:
            # Only keys whose users changed or whose round is new can have another due trigger.
            looked_at = (increments.users > 0) | (states.need == 0)
            possible = looked_at & (after.users > self.plan.minimum_users) & (after.users >= states.need)
            self._predict(trigger, keys, after, np.flatnonzero(possible & ~declared), noise)
        release = declared | (after.due == trigger)
        after.released[release] += after.pending[release]
        estimates, errors = self._estimate(trigger, keys, after.released, release, noise)
        after.origin[release] = trigger
        after.need[release] = after.users[release] = after.pending[release] = 0
        after.due[release] = T + 1
        news = increments.users.astype(np.bool_) | increments.sums.any(axis=1)
        return Step(
            states=after,
            changed=release | news | (after.need != states.need) | (after.due != states.due),
            due=np.where(declared, 0, after.due).astype(np.int32),
            published=release,
            estimates=estimates,
            std_errors=errors,
        )

    def _predict(
        self,
        trigger: int,
        keys: Sequence[bytes],
        states: SqlpStates,
        possible: npt.NDArray[np.intp],
        noise: WindowNoise,
    ) -> None:
        """Algorithm 3, in place: `due` becomes the first trigger >= this one that would release the key, and `need`.

        possible: rows with as many users as any remaining threshold of their round minus its noise can ask for.
        """
        for start, rows in self._batches(possible, states.origin):
            length, now = self.plan.triggers - start, trigger - start
            labels = noise.labels(self._select, [keys[row] for row in rows])
            first = start * self.stride
            nodes = noise.normal(labels, first, first + tree.nodes(length) - 1, sigma=self.selection_sigma)
            prefix = tree.prefix_noise(nodes, length)
            margin = self.thresholds[now - 1 : length] - prefix[:, now - 1 :]
            have = states.users[rows].astype(np.float64) * GRID
            tolerance = tree.relative_error(length) * float(np.abs(nodes).max(initial=0)) + 1e-2
            hit = have[:, None] >= margin
            for row, column in np.argwhere(np.abs(have[:, None] - margin) <= tolerance):
                exact = int(states.users[rows[row]]) * GRID + tree.prefix_noise_exact(nodes[row], now + int(column))
                hit[row, column] = exact >= int(self.thresholds[now - 1 + column])
            states.due[rows] = np.where(hit.any(axis=1), trigger + hit.argmax(axis=1), self.plan.triggers + 1)
            lowest = np.ceil((margin.min(axis=1) - tolerance) / GRID).astype(np.int64)
            states.need[rows] = np.maximum(lowest, 1)

    def _batches(
        self, rows: npt.NDArray[np.intp], origin: npt.NDArray[np.int32]
    ) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """(origin, rows of that origin) in pieces whose noise fits into memory."""
        starts = origin[rows]
        piece = max(1, NODES_AT_ONCE // self.stride)
        for start in np.unique(starts):
            same = rows[starts == start]
            for first in range(0, len(same), piece):
                yield int(start), same[first : first + piece]

    def _estimate(
        self,
        trigger: int,
        keys: Sequence[bytes],
        released: npt.NDArray[np.int64],
        release: npt.NDArray[np.bool_],
        noise: WindowNoise,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Algorithm 4: the released sums plus the nearest integer to the value tree's noise, and its standard error."""
        estimates = np.zeros_like(released)
        errors = np.zeros(released.shape, dtype=np.float64)
        rows = np.flatnonzero(release)
        piece = max(1, NODES_AT_ONCE // tree.nodes(trigger))
        for column, (sigma, bits) in enumerate(zip(self.value_sigma, self.value_bits, strict=True)):
            for first in range(0, len(rows), piece):
                some = rows[first : first + piece]
                labels = noise.labels(self._values[column], [keys[row] for row in some])
                nodes = noise.normal(labels, 0, tree.nodes(trigger) - 1, sigma=sigma, bits=bits)
                estimates[some, column] = released[some, column] + nearest_prefix(nodes, trigger, bits)
            errors[rows, column] = math.sqrt((sigma * self.prefix_std[trigger - 1]) ** 2 + 1 / 12)
        return estimates, errors

    def standard_errors(self) -> npt.NDArray[np.float64]:
        """The standard errors of the value tree; a row that is not released again keeps the one of its trigger."""
        return np.sqrt(np.outer(self.prefix_std, self.value_sigma) ** 2 + 1 / 12)

    def appearing(self, rng: np.random.Generator, keys: int) -> npt.NDArray[np.float64]:
        """Decides by the thresholds of a key's first round; see `Strategy.appearing`."""
        T = self.plan.triggers
        if not self.plan.discover:
            return np.full((keys, T), np.inf)
        nodes = np.rint(rng.standard_normal((keys, tree.nodes(T))) * self.selection_sigma * GRID).astype(np.int64)
        return (self.thresholds - tree.prefix_noise(nodes, T)) / GRID / np.arange(1, T + 1)

    def describe(self) -> dict[str, Any]:
        """Public parameters from which a reader can recompute the guarantee."""
        T = self.plan.triggers
        found: dict[str, Any] = {
            "strategy": self.name,
            "triggers": T,
            "tree_levels": tree.levels(T),
            "rounds_per_user": self.rounds,
            "mu": self.guarantee.mu,
            "delta_selection": self.guarantee.delta_selection,
            "sigma": {c.name: s for c, s in zip(self.plan.columns, self.value_sigma, strict=True)},
            "std_last": {
                c.name: s * float(self.prefix_std[T - 1])
                for c, s in zip(self.plan.columns, self.value_sigma, strict=True)
            },
        }
        if self.plan.discover:
            tau = self.thresholds / GRID
            found["sigma_selection"] = self.selection_sigma
            found["thresholds"] = {"min": float(tau.min()), "mean": float(tau.mean()), "last": float(tau[-1])}
        return found

    def costs(self, grids: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        for column, sigma in zip(self.plan.columns, self.value_sigma, strict=True):
            half = half_width(sigma * float(self.prefix_std[-1]), grids[column.name])
            yield "noise", f"± {half} on {column.name} at the last trigger (95 %)"
        if self.plan.discover:
            tau = self.thresholds / GRID
            yield "new keys", f"appear from about {tau.min():,.0f} to {tau.mean():,.0f} users on"


def nearest_prefix(nodes: npt.NDArray[np.int64], leaf: int, bits: int) -> npt.NDArray[np.int64]:
    """int64[k]: the exact prefix noise at `leaf`, nodes in units of 2^-bits, to the nearest integer (half to even).

    Fast in float64, and again with fractions for rows closer to a half-integer than the float path is exact.
    """
    value = tree.last_prefix_noise(nodes, leaf) * 2.0**-bits
    rounded = np.rint(value).astype(np.int64)
    tolerance = tree.relative_error(leaf) * float(np.abs(nodes).max(initial=0)) * 2.0**-bits + 1e-9
    for row in np.flatnonzero(np.abs(np.abs(value - rounded) - 0.5) <= tolerance):
        rounded[row] = round(tree.prefix_noise_exact(nodes[row], leaf) / Fraction(1 << bits))
    return rounded
