#!/usr/bin/env python3
"""Other noise for S, the users' lists at the last trigger: what it would change in the level of the joint test, and in S.

    python benchmarks/last_look_noise.py            the table of docs/decisions/0048-delta-at-the-last-trigger.md
    python benchmarks/last_look_noise.py --json     the same, a JSON object a line; ten minutes

Nothing of this is in the product. Strategy `closing` with its default shares at T = 100, one column that counts users. The rest of
the budget stays Gaussian, mu sqrt(1 - f). Each candidate has the same delta_G and the same delta_T as today's Gaussian.

*Additive noise.* k keys of weight 1 / sqrt(k) each get independent noise of one density. An observer picks k when the privacy loss
L of the rest is known, so

    delta_G = E[ max over k of delta_k(epsilon - L) ],    L ~ N(m^2 / 2, m^2),    m = mu sqrt(1 - f),

delta_k the profile of k keys' noise. It is convex in e^-L, and e^-L is a martingale, so to leave budget unspent does not help.

*Yes or no.* A key is named with probability p(x + lambda M_T), x its weight, and S is not released: the primitive of Harrison and
Manurangsi (arXiv 2603.09167). p grows as fast as w^2 rho of Renyi divergence of one order allow, w a user's weight.

- Neighbours fixed: G(l) is the delta of the rest with a further loss l, and any tangent of its logarithm, which is concave, gives
  delta_G <= G(l) exp((order - 1) (rho - l)), order - 1 = (log G)'(l).
- Picked: an observer picks the keys, by what others bring, when L is known. Then delta_k above is of a pair of distributions
  that dominates the names at all sums of others' weights, k times. For k = 1 that is what an observer can reach who knows all of L.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from last_look_densities import BUDGETS, KEYS, LOSSES, STEP, Floats, Setting, additive, profile, total
from scipy.optimize import brentq
from tables import table

from susurrus.mechanisms.accounting import delta_gaussian

FIXED, PICKED = 1.0, 2.5
"""Orders of names, the best that were tried, relative to epsilon / mu^2 + 1/2, which matters most where all is Gaussian."""
FLOOR = 0.05
"""What a key that no noise lifts is named with, as a share of delta_T / keys."""
RESOLUTION, FARTHEST = 16, 100
"""Of the grid on which probabilities of names are solved, points per user and users."""


def log_moment(p: Floats, q: Floats, order: float) -> Floats:
    """(order - 1) times the Renyi divergence of yes with probability p from yes with probability q."""
    found: Floats = np.logaddexp(
        order * np.log(p) + (1 - order) * np.log(q), order * np.log1p(-p) + (1 - order) * np.log1p(-q)
    )
    return found


def most(p: Floats, order: float, allowed: Floats) -> Floats:
    """The most that may be named instead of p, in either direction, by log moments `allowed`; rounded down."""
    low, high = p.copy(), np.full_like(p, 1 - 1e-12)
    for _ in range(32):
        # Geometric far below, arithmetic near 1.
        middle = np.where(high > 4 * low, np.sqrt(low * high), (low + high) / 2)
        fits = np.maximum(log_moment(middle, p, order), log_moment(p, middle, order)) <= allowed
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def names(order: float, rho: float, floor: float) -> Floats:
    """p on 0, 1 / RESOLUTION, ... users, which is `floor` up to 0: the largest for users that weigh 1, 1 / sqrt(2), ... 1 / 4."""
    weights = 1 / np.sqrt(np.arange(1, 17))
    # A weight that is no multiple of the grid is rounded up as a distance, which only asks for more.
    back, allowed = np.ceil(weights * RESOLUTION - 1e-9).astype(np.int64), (order - 1) * rho * weights**2
    found = np.full(FARTHEST * RESOLUTION + 1, floor)
    for i in range(1, len(found)):
        before = np.where(i > back, found[np.maximum(i - back, 0)], floor)
        found[i] = min(float(most(before, order, allowed).min()), 1 - 1e-9)
        if found[i] > 1 - 1e-4:
            found[i:] = found[i]
            break
    return found


def renyi_budget(setting: Setting, order: float) -> float:
    """rho: what S may have of this order's divergence, so that all have today's delta_G; for neighbours that are fixed."""
    m = setting.rest

    def log_delta(loss: float) -> float:
        return math.log(delta_gaussian(m, setting.epsilon - loss))

    def slope(loss: float) -> float:
        return (log_delta(loss + 1e-4) - log_delta(loss - 1e-4)) / 2e-4 - (order - 1)

    # From where log G falls below -450 to where it is almost level.
    loss = float(brentq(slope, setting.epsilon - 30 * m, setting.epsilon + 10))
    return loss + (math.log(setting.delta_g) - log_delta(loss)) / (order - 1)


def dominating(p: Floats, keys: int, *, removed: bool) -> tuple[Floats, float]:
    """Return losses like `Noise.losses`, of a pair that dominates the names of one of so many keys with and without a user.

    The largest profile over all sums of the others, on a grid, and a line in e^epsilon between its points.
    """
    back = math.ceil(RESOLUTION / math.sqrt(keys) - 1e-9)
    low = p[: np.searchsorted(p, p[-1]) + 1]
    high = p[np.minimum(np.arange(len(low)) + back, len(p) - 1)]
    first, second = (low, high) if removed else (high, low)
    every, top = 8, LOSSES // 4
    ratios = np.exp(np.arange(-top, top + 1, every) * STEP)
    largest = np.zeros(len(ratios))
    for at in range(0, len(low), 256):
        a, b = first[at : at + 256, None], second[at : at + 256, None]
        each = np.maximum(a - ratios * b, 0) + np.maximum((1 - a) - ratios * (1 - b), 0)
        largest = np.maximum(largest, each.max(axis=0))
    # What the other distribution has above each point is the slope there.
    slopes = np.concatenate(([1.0], -np.diff(largest) / np.diff(ratios), [0.0]))
    mass = ratios * -np.diff(slopes)
    mass[0] += 1 - largest[-1] - mass.sum()
    found = np.zeros(LOSSES)
    found[np.arange(-top, top + 1, every) % LOSSES] = mass
    return found, float(largest[-1])


def delta_of_names(p: Floats, setting: Setting, keys: tuple[int, ...] = KEYS) -> float:
    """delta_G with these names where an observer picks, in the worse of both directions."""
    return max(
        total([profile(*dominating(p, k, removed=removed), k) for k in keys], setting) for removed in (False, True)
    )


def fixed_names(setting: Setting, order: float) -> Floats:
    """The names with the largest rho at today's delta_G, for neighbours that are fixed."""
    return names(order, max(renyi_budget(setting, order), 1e-9), floor_of(setting))


def picked_names(setting: Setting, order: float, keys: tuple[int, ...] = KEYS) -> Floats:
    """The same where an observer picks."""
    low, high = 0.0, order / setting.sigma**2
    for _ in range(6):
        middle = (low + high) / 2
        fits = delta_of_names(names(order, middle, floor_of(setting)), setting, keys) <= setting.delta_g
        low, high = (middle, high) if fits else (low, middle)
    return names(order, low, floor_of(setting))


def floor_of(setting: Setting) -> float:
    """What a key is named with that no noise lifts."""
    return FLOOR * setting.delta_t / len(setting.filter_heights)


class YesOrNo:
    """A key is named with probability p(x + lambda M_T - shift), the shift the least at which one user's keys keep to delta_T."""

    def __init__(self, p: Floats, setting: Setting, *, order: float, filter_weight: float) -> None:
        """p: by `names`."""
        self.p, self.setting, self.order, self.filter_weight = p, setting, order, filter_weight
        self.std = filter_weight * setting.filter_std
        self.shift = least(lambda shift: self.risk(shift) <= setting.delta_t, -5.0, FARTHEST)

    def named(self, means: Floats) -> Floats:
        """Return the probabilities with the stream's noise around these means, less the shift."""
        normals = np.linspace(-9, 9, 721)
        mass = np.exp(-(normals**2) / 2)
        # Rounded up to the grid: between two of its points, p is at most that of the upper one.
        place = np.ceil((means[:, None] + self.std * normals) * RESOLUTION - 1e-9).astype(np.int64)
        found: Floats = self.p[np.clip(place, 0, len(self.p) - 1)] @ (mass / mass.sum())
        return found

    def risk(self, shift: float) -> float:
        """What one user's keys at the boundary are named with, for the worst number of them."""
        return max(float(self.named(own - shift).sum()) for own in self.setting.own(self.filter_weight))

    def users(self, share: float) -> float:
        """That come steadily and have one such key each, so that it is named with this probability."""
        gain = 1 + self.filter_weight
        return least(lambda users: float(self.named(np.array([users * gain - self.shift]))[0]) >= share, 0.0, FARTHEST)


def yes_or_no(setting: Setting) -> Iterator[tuple[str, YesOrNo]]:
    """For fixed neighbours; for an observer who picks among users of one key each; and of any number of keys."""
    usual = setting.epsilon / setting.mu**2 + 0.5
    solved = {
        "neighbours fixed": (FIXED * usual, fixed_names(setting, FIXED * usual)),
        "picked, one key at most": (PICKED * usual, picked_names(setting, PICKED * usual, (1,))),
        "picked": (PICKED * usual, picked_names(setting, PICKED * usual)),
    }
    for name, (order, p) in solved.items():
        yield f"yes or no, {name}", YesOrNo(p, setting, order=order, filter_weight=setting.filter_weight)


def least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """From where on it holds, which it does at `high`."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def results() -> Iterator[dict[str, Any]]:
    for epsilon, delta in BUDGETS:
        setting = Setting.of(epsilon, delta)
        what = {"epsilon": epsilon, "delta": delta}
        for name, noise in additive(setting):
            scale = noise.scale(setting)
            level = noise.level(scale, setting)
            users = [
                (level + needed) / (1 + setting.filter_weight) for needed in (0.0, -noise.lowest(0.05, scale, setting))
            ]
            yield {**what, "noise": name, "std": scale * noise.std, "level": level, "half": users[0], "most": users[1]}
        for name, found in yes_or_no(setting):
            users = {"half": found.users(0.5), "most": found.users(0.95)}
            picked = delta_of_names(found.p, setting, keys=(1,)) / setting.delta_g
            yield {
                **what,
                "noise": name,
                "order": found.order,
                "lambda": found.filter_weight,
                **users,
                "picked": picked,
            }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    found = []
    for row in results():
        found.append(row)
        if options.json:
            print(json.dumps(row), flush=True)
    if options.json:
        return 0
    heads = ["ε, δ", "noise", "std of S", "level", "users for 1/2", "users for .95"]
    for line in table(heads, [list(_cells(row, found)) for row in found]):
        print(line)
    return 0


def _cells(row: dict[str, Any], rows: list[dict[str, Any]]) -> Iterator[str]:
    first = next(other for other in rows if other["epsilon"] == row["epsilon"])
    yield f"{row['epsilon']:g}, {row['delta']:g}"
    yield row["noise"]
    for name in ("std", "level", "half", "most"):
        yield f"{row[name]:.2f} ({row[name] / first[name] - 1:+.1%})" if name in row else ""


if __name__ == "__main__":
    sys.exit(main())
