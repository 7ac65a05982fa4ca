"""What the tests of `closing` share: plans, the last trigger of chosen keys, and its joint test from the definition.

Nothing here uses `Selector.matched` or the numbers that the strategy derives from it: the filter is written out in fractions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.factored import Factored
from susurrus.mechanisms.histogram.per_key import Histories, offsets
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.states import FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments, Step
from susurrus.mechanisms.histogram.user_lists import ListSums, ListWeights
from susurrus.mechanisms.noise import NoiseSource, WindowNoise

VISITS = Column(name="visits", kind="count")
USERS = Column(name="users", kind="users")
PAID = Column(name="paid", kind="sum", bound=50)
ONE = 1 << 20

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def plan(columns: tuple[Column, ...] = (VISITS,), **changes: Any) -> Plan:
    """A small one."""
    fields: dict[str, Any] = {"triggers": 3, "epsilon": 2.0, "delta": 1e-6, "max_records": 8} | changes
    return plan_of(strategy="closing", columns=columns, **fields)


def closing(columns: tuple[Column, ...] = (VISITS,), **changes: Any) -> Any:
    return build_strategy(plan(columns, **changes))


def window(name: str = "p") -> WindowNoise:
    return NoiseSource(b"c" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def names(size: int) -> list[bytes]:
    return [b"%d" % i for i in range(size)]


def drawn(strategy: Any, name: str, sigma: float, keys: Sequence[bytes], noise: WindowNoise) -> Ints:
    """The noise of a closing measurement, by its address."""
    labels = noise.labels(f"closing/{name}/{strategy.plan.digest().hex()}", keys)
    last = strategy.plan.triggers
    draws: Ints = noise.normal(labels, last, last, sigma=sigma, bits=20)[:, 0]
    return draws


def stream_noise(strategy: Any, keys: Sequence[bytes], noise: WindowNoise) -> Ints:
    """int64[k, T]: the noise of y, in units of the grid, by its address."""
    selector = strategy.selector
    labels = noise.labels(f"selection/{strategy.plan.digest().hex()}", keys)
    return noise.normal(labels, 1, strategy.plan.triggers, sigma=selector.sigma, bits=selector.noise_bits)


def column_squares(factorization: Any) -> list[Fraction]:
    """|C e_t|^2 for t = 1..T: column t holds the first T - t + 1 coefficients."""
    totals = accumulate(n * n for n in factorization.numerators)
    return [Fraction(total, 1 << (2 * factorization.bits)) for total in totals][::-1]


@dataclass
class Filter:
    """The matched filter of the last trigger in fractions: M = sum f_s (C x + z)_s / steady.

    gains: by the trigger r of arrival, what weight 1 at r adds to M. height: the most that one user adds; heights: by
    rank. variance: of the noise. slack: by how much rounding of the noise to its grid can move M.
    """

    weights: list[int]
    steady: Fraction
    gains: list[Fraction]
    height: Fraction
    heights: list[Fraction]
    variance: Fraction
    slack: Fraction

    @classmethod
    def of(cls, strategy: Any) -> "Filter":
        selector = strategy.selector
        c = [Fraction(n, 1 << selector.factorization.bits) for n in selector.factorization.numerators]
        f, T = selector._filter.tolist(), len(c)
        raw = [sum((f[s] * c[s - r] for s in range(r, T)), Fraction(0)) for r in range(T)]
        steady = sum(raw, Fraction(0)) / T
        heights = [
            max(gain * Fraction(int(w), ONE) for gain, w in zip(raw, row, strict=True)) / steady
            for row in strategy.bounding.weights.tolist()
        ]
        return cls(
            weights=f,
            steady=steady,
            gains=[gain / steady for gain in raw],
            height=heights[0],
            heights=heights,
            variance=Fraction(selector.sigma) ** 2 * sum(x * x for x in f) / steady**2,
            slack=Fraction(sum(f), 2 << selector.noise_bits) / steady,
        )

    def of_key(self, strategy: Any, weight: Sequence[int], z: Sequence[int]) -> Fraction:
        """M of one key. weight: by trigger, in units of 2^-20; z: its noise, on the grid of y."""
        moved = sum((gain * Fraction(w, ONE) for gain, w in zip(self.gains, weight, strict=True)), Fraction(0))
        noise = sum(f * n for f, n in zip(self.weights, z, strict=True))
        return moved + Fraction(noise, 1 << strategy.selector.noise_bits) / self.steady


def failures_at(strategy: Any, filtered: Filter, level: Any, scale: int = 1) -> list[Any]:
    """By the number k of a user's keys at the boundary, mpf: how probably any of them reaches a level, by the union bound.

    Of minimum_users others every one adds the most that anybody can. The user has w(k) on each key, and one rank on each.
    """
    described = strategy.describe()
    weight = Fraction(described["closing"]["filter_weight"])
    others = described["minimum_users"] * (1 + weight * filtered.height)
    variance = Fraction(described["closing"]["unknown_sigma"]) ** 2 + weight**2 * filtered.variance
    slack = Fraction(1, 1 << 21) + weight * filtered.slack
    most = described["closing"]["keys"]
    heights = [*filtered.heights, *[Fraction(0)] * most][:most]
    out = []
    with mpmath.workdps(60):
        std = mpmath.sqrt(exactly(variance))
        for k in range(1, most + 1):
            own = Fraction(math.isqrt(ONE**2 // k), ONE)
            tops = [exactly(others + own + weight * height + slack) for height in heights[:k]]
            out.append(mpmath.fsum(mpmath.erfc((level - top) / std / mpmath.sqrt(2)) / 2 for top in tops))
    return out


def level(strategy: Any, filtered: Filter) -> Any:
    """mpf: where the dearest user's keys pass with half of what delta has for selection, by bisection from `describe` alone."""
    with mpmath.workdps(60):
        share = mpmath.mpf(strategy.guarantee.delta_selection) / 2
        low, high = mpmath.mpf(0), mpmath.mpf(10) ** 6
        for _ in range(90):
            middle = (low + high) / 2
            if max(failures_at(strategy, filtered, middle)) > share:
                low = middle
            else:
                high = middle
        return high


def exactly(value: Fraction) -> Any:
    """As mpf, of the working precision."""
    return mpmath.mpf(value.numerator) / value.denominator


def lists_of(users: Ints, weight: Ints, public_weight: Ints | None = None, unit: Ints | None = None) -> ListSums:
    none = np.zeros(len(users), np.int64)
    return ListSums(
        users=users,
        weight=weight,
        public_weight=none if public_weight is None else public_weight,
        unit=none if unit is None else unit,
    )


def sums_of(lists: ListWeights, users: Sequence[Ints], unit: Ints) -> ListSums:
    """What these users' lists of keys 0..k-1 add to each key, where unit is int64[k]."""
    key = np.concatenate([*users, np.zeros(0, np.int64)])
    weight, public = lists.weigh(np.cumsum([0, *map(len, users)]), unit[key])
    totals = [np.bincount(key, weights=w, minlength=len(unit)).astype(np.int64) for w in (weight > 0, weight, public)]
    return ListSums(users=totals[0], weight=totals[1], public_weight=totals[2], unit=unit)


def before_the_end(strategy: Any, users: Ints, weight: Ints) -> FactoredStates:
    """States after T - 1. users: int64[k], whom the stream has seen; weight: int64[k, T], of which the last column is not used."""
    states: FactoredStates = strategy.empty(len(users))
    earlier = weight[:, :-1]
    at = np.nonzero(earlier)
    history = Histories(
        indptr=offsets(np.count_nonzero(earlier, axis=1)), when=(at[1] + 1).astype(np.int32), weight=earlier[at]
    )
    return replace(states, users=users, history=history)


def at_the_end(
    strategy: Any,
    lists: ListSums,
    *,
    users: Ints | None = None,
    weight: Ints | None = None,
    sums: Ints | None = None,
    declared: Bools | None = None,
    noise: WindowNoise | None = None,
    stream: bool = False,
) -> Step[FactoredStates]:
    """The last trigger of keys 0, 1, ... stream: only what the stream does.

    users, weight: as for `before_the_end`, the weight of the last trigger among them, which the users before bring.
    """
    size = len(lists.unit)
    users = np.zeros(size, np.int64) if users is None else users
    weight = np.zeros((size, strategy.plan.triggers), np.int64) if weight is None else weight
    increments = Increments(
        users=users * 0,
        weight=weight[:, -1],
        sums=np.zeros((size, len(strategy.plan.columns)), np.int64) if sums is None else sums,
        lists=lists,
    )
    states = before_the_end(strategy, users, weight)
    public = np.zeros(size, np.bool_) if declared is None else declared
    step = Factored.step if stream else type(strategy).step
    result: Step[FactoredStates] = step(
        strategy, strategy.plan.triggers, names(size), states, increments, noise or window(), public
    )
    return result
