r"""The server's causal filter of interval means: one filter across thresholds, and the test that refuses its answer.

An interval may hold reports under several thetas. Their plain sums add up, and so do the variances of their noise. The noise
of a report is theta^2 v(f) with f its fraction of theta. v is estimated from the reports of all intervals so far, for each
perturber apart: from one interval alone it would depend on that interval's estimate, and averages would be drawn to the low
ones. theta follows the level (level.py), so the fractions stay much the same.

Source of the test: Hausman, "Specification tests in econometrics", Econometrica 46 (1978). If the filter's models are
right, its answer F is efficient and the plain sum P is not, so that Var(P - F) = Var(P) - Var(F). If they are wrong, P is
still unbiased for the clipped values. So the filter's answer is refused where

    (P - F)^2 > 9 (Var(P) - Var(F)).

All of it is post-processing of reports: no privacy cost.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Any, Self

from susurrus.mechanisms.kalman import Filtered, IntervalBank
from susurrus.mechanisms.local.estimate import Estimate, Totals, combine, estimate
from susurrus.mechanisms.local.hybrid import Hybrid

DEVIATIONS = 3.0
"""The test's bound on |P - F|, in standard deviations: right models are refused once in 370 times."""

Part = tuple[Totals, float, Hybrid]
"""Reports of one interval under one threshold: their totals, theta, and the perturber."""


def hausman(plain: Estimate, variance: float, filtered: Filtered) -> Filtered:
    """The filter's answer, or the plain sum with its own error where the two differ more than the filter's models allow.

    `variance`: of the plain sum's noise, as the filter was told.
    """
    if (plain.sum - filtered.sum) ** 2 <= DEVIATIONS**2 * (variance - filtered.standard_error**2):
        return filtered
    return Filtered(plain.sum, plain.standard_error)


class MeanFilter:
    """The bank of filters, and the totals that its noise is estimated from, by the perturber's alpha."""

    def __init__(self) -> None:
        self._bank = IntervalBank()
        self._pooled: defaultdict[float, Totals] = defaultdict(Totals)

    def state(self) -> dict[str, Any]:
        """Return what a successor needs to go on; open ranges are not part of it."""
        pooled = [[alpha, *astuple(totals)] for alpha, totals in self._pooled.items()]
        return {"bank": self._bank.state(), "pooled": pooled}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """Return the filter as `state` left it, bit for bit."""
        found = cls()
        found._bank = IntervalBank.restored(state["bank"])
        found._pooled.update({float(alpha): Totals(*numbers) for alpha, *numbers in state["pooled"]})
        return found

    def take(self, parts: Iterable[Part], *, open_range: bool = False) -> tuple[Estimate, float, Filtered | None]:
        """Take in one interval: its plain sum, the variance of its noise, and the filter's answer before the test.

        There is no answer without reports or noise. open_range: as in IntervalBank.step.
        """
        parts = [part for part in parts if part[0].count]
        plain = combine(estimate(*part) for part in parts)
        variance = 0.0
        for totals, theta, perturber in parts:
            self._pooled[perturber.alpha] += totals
            pooled = self._pooled[perturber.alpha]
            variance += theta**2 * estimate(pooled, 1.0, perturber).variance / pooled.count * totals.count
        if not variance > 0:
            return plain, 0.0, None
        answer = self._bank.step(float(plain.count), plain.mean, variance / plain.count**2, open_range=open_range)
        return plain, variance, answer

    def read(self, opened: int) -> Filtered:
        """Return the sum of an open range as of the last interval taken, before the test."""
        return self._bank.read(opened)

    def level(self) -> tuple[float, float]:
        """Return the level of the clipped values' mean after the last interval taken, and its standard error."""
        return self._bank.level()
