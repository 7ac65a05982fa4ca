"""Simulated days of which each remembers what the day before has published, for the tests of smoothed rows.

Counts of users are Poisson by Zipf's law. Every day a share of the keys changes places. Rows have the noise of a stream over a
hundred triggers, and at a day's end a second measurement; keys are found at the end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.smoothing import Smoothing, rates, shown

Floats = npt.NDArray[np.float64]
QUARTERS = (0.25, 0.5, 0.75, 1.0)
NOISE_STD = 24.5
REMEMBER = 6


Given = tuple[Floats, Floats, Floats, Floats]
"""direct, variance, value and its variance, as `Smoothing.fit` has them."""
Smooth = Callable[[Floats, Floats, Floats, Floats], tuple[Floats, Floats]]

Told = Callable[..., tuple[Floats, Floats]]
"""(fit or None, *given) -> rates and the variances of their errors, for the next day."""


@dataclass(frozen=True, slots=True)
class Quarter:
    """The remembered rows of a quarter of a day."""

    quarter: int
    truth: Floats
    given: Given
    estimates: Floats
    errors: Floats

    @property
    def direct(self) -> Floats:
        return self.given[0]


def smoothed(*given: Floats) -> tuple[Floats, Floats]:
    """As a release has them: fitted together, rounded; direct rows where there are too few."""
    return _published(Smoothing.fit(*given), *given)


def told_rates(fitted: Smoothing | None, *given: Floats) -> tuple[Floats, Floats]:
    """What the next day is told."""
    return rates(given[0], np.sqrt(given[1])) if fitted is None else fitted.rates(*given)


def _published(fitted: Smoothing | None, *given: Floats) -> tuple[Floats, Floats]:
    if fitted is None:
        return given[0], np.sqrt(given[1])
    estimates, errors = fitted.rows(*given)
    return np.rint(estimates), np.sqrt(errors * errors + 1 / 12)


def days(
    keys: int,
    changing: float,
    number: int,
    seed: int,
    *,
    bursts: bool = False,
    told: Told = told_rates,
    noise: float = 1.0,
    records: int = 4,
) -> Iterator[Quarter]:
    """The quarters of all days but the first. changing: the share of keys that swap places each day. bursts: some keys have a
    multiple of their users on a day. told: what the next day is told. noise: a factor of it. records: per key."""
    rng = np.random.default_rng(seed)
    law = 1 / np.arange(1, keys + 1) ** 1.05
    average = rng.permutation(records * keys * law / law.sum())
    value, value_variance, remembered = np.zeros(keys), np.zeros(keys), np.zeros(0, np.intp)
    for day in range(number):
        some = rng.choice(keys, int(changing * keys), replace=False)
        average[some] = average[rng.permutation(some)]
        factor = np.where(rng.random(keys) < 0.03, rng.lognormal(1.5, 1, keys), 1.0) if bursts else np.ones(keys)
        truths = np.cumsum(rng.poisson(average * factor / 4, (4, keys)), axis=0).astype(np.float64)
        for quarter, share in enumerate(QUARTERS):
            truth, std = (
                truths[quarter],
                noise * NOISE_STD * np.sqrt((1 + np.log(100 * share) / np.pi) / (1 + np.log(100) / np.pi)),
            )
            direct, variance = np.rint(truth + rng.normal(0, std, keys)), np.full(keys, std**2 + 1 / 12)
            if share == 1:
                direct, variance = _calibrated(truth, direct, std, noise, rng)
            if day:
                given = (direct[remembered], variance[remembered], value[remembered], value_variance[remembered])
                fitted = Smoothing.fit(*given)
                estimates, errors = _published(fitted, *given)
                yield Quarter(quarter, truth[remembered], given, estimates, errors)
        found = 0.6 * truth + rng.normal(0, 2.9, keys) > 25
        keeps = np.zeros(keys, np.bool_)
        found[remembered] = False
        value[found], value_variance[found] = told(None, direct[found], variance[found])
        keeps[found] = direct[found] >= REMEMBER
        if day:
            value[remembered], value_variance[remembered] = told(fitted, *given)
            keeps[remembered] = estimates >= REMEMBER
        remembered = np.flatnonzero(keeps)


def _calibrated(
    truth: Floats, direct: Floats, std: float, noise: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The mean of a row and its second measurement, whose factor differs from key to key."""
    around = (12.0 * noise) ** 2 + (0.05 * truth) ** 2
    again = truth * np.exp(rng.normal(0, 0.05, len(truth))) + rng.normal(0, 12 * noise, len(truth))
    weight = around / (around + std * std)
    return np.rint(again + weight * (direct - again)), weight * std * std + 1 / 12


def covered(quarter: Quarter) -> npt.NDArray[np.bool_]:
    """bool[n]: whether ± 1.96 errors, and half a unit, hold the truth."""
    inside: npt.NDArray[np.bool_] = np.abs(quarter.estimates - quarter.truth) <= 1.96 * quarter.errors + 0.5
    return inside


def published_l1(quarter: Quarter) -> tuple[float, float]:
    """Sum of absolute errors of these keys: of smoothed rows, where those that are not shown count as 0, and of direct ones."""
    seen = np.where(shown(quarter.estimates.astype(np.int64), quarter.errors), quarter.estimates, 0)
    return float(np.abs(seen - quarter.truth).sum()), float(np.abs(quarter.direct - quarter.truth).sum())
