"""The audit of shares that follow the output: how much of a window had lasted decides how the next one divides its budget.

    window 1 ──its last rows──▶ kappa ──▶ one of eleven plans of window 2, each with noise of its own

Flow: `SCENARIOS` → `Sharing.play` (audit_scenarios.play_window under each trial's plan) → audit_statistics.
What is counted, and which plan follows, is decided by agents/histogram/window_plans.py. Each trial is one release partition. The
attack has all rows of both windows and kappa. Argument: docs/guarantees/closing.md, "Shares that follow the output".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from audit_in_a_row import STRATEGY, Floats, Partition, Seen, claim_of, services_in_a_row
from audit_inputs import REAL, USERS, Input, Scenario, make, plan_of
from audit_scenarios import play_window
from audit_statistics import Outputs

from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.histogram.persistence import LEAST_ROW, SHARES
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.spend import Budget
from susurrus.topics import lasting_rows

DEFECTS = {
    "shares from exact counts": "the shares of a window follow the users of the keys of the window before, and not their rows",
    "shares not pinned": "a window that is played again finds other shares, and is published under these, too",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """A pair of neighbouring inputs of two windows. All keys of window 1 are remembered from a window before it.

    one: of window 1, and what both are played under. following: records of window 2. The user is in one of them.
    """

    one: Scenario
    following: Callable[[bool], Input]
    exposes: tuple[str, ...]
    trials: int | None = None

    @property
    def claim(self) -> Budget:
        """Of a user who is in one window."""
        return claim_of(self.one, 1)

    def play(self, *, present: bool, trials: int, seed: int, defect: str = REAL) -> Seen:
        """Run `trials` independent copies of both windows."""
        plan = plan_of(self.one, STRATEGY)
        services = services_in_a_row(self.one, plan)
        source = NoiseSource(seed.to_bytes(32, "little"), epoch=b"%d" % present, config=plan.digest(), pipeline="audit")
        zero = services.ledger.first_window
        one = services.calendar.following(zero)
        two = services.calendar.following(one)
        every = np.ones((trials, self.one.keys), np.bool_)
        given = self.one.build(present)
        first = play_window(self.one, services.strategy_of(one), given, source.window(one), trials, remembered=every)
        exact = np.bincount(np.asarray(given.key, np.int64), minlength=self.one.keys).astype(np.float64)
        kappas, named = np.zeros(trials, np.int64), np.zeros_like(every)
        assert first.errors is not None
        for trial in range(trials):
            names = [b"%d" % (trial * self.one.keys + key) for key in range(self.one.keys)]
            partition = Partition(services, names)
            published, errors = first.published[trial, :, -1], first.errors[trial, :, -1]
            rows = partition.rows(published, first.estimates[trial, :, -1], errors)
            partition.hand_on(one, rows)
            named[trial] = partition.which(partition.remembered(two).keys)
            counted = partition.rows(published, exact, errors) if defect == "shares from exact counts" else rows
            kappas[trial] = _decided(services, one, two, counted, frozenset(names))
        noise = source.window(two)
        second = self._by_plan(services, two, noise, present, named, kappas)
        numbers = [first.features(), second, kappas[:, None].astype(np.float64)]
        if defect == "shares not pinned":
            again = [
                self._by_plan(services, two, noise, present, named, np.full(trials, kappa))
                for kappa in range(len(SHARES))
            ]
            numbers.append(np.mean(again, axis=0))
        events = {f"kappa is {kappa / 10:g}": kappas == kappa for kappa in range(len(SHARES))}
        return Seen(numbers=np.concatenate(numbers, axis=1), events=events)

    def _by_plan(
        self,
        services: HistogramServices,
        window: WindowIndex,
        noise: WindowNoise,
        present: bool,
        named: Any,
        kappas: Any,
    ) -> Floats:
        """float64[N, features]: window 2 of each trial, under the plan of its kappa."""
        seen: Floats | None = None
        for kappa in np.unique(kappas).tolist():
            at = np.flatnonzero(kappas == kappa)
            strategy = services.strategy_of(window, kappa)
            # All trials are played, so that each has the noise of its own keys.
            played: Outputs = play_window(
                self.one, strategy, self.following(present), noise, len(kappas), remembered=named
            )
            if seen is None:
                seen = np.zeros_like(played.features())
            seen[at] = played.features()[at]
        assert seen is not None
        return seen


def _decided(
    services: HistogramServices, before: WindowIndex, window: WindowIndex, rows: Any, public: frozenset[bytes]
) -> int:
    """kappa in tenths, as release decides it from what it has told of the window before. public: keys when that began."""
    plans = WindowPlans(services, 0, {})
    [told] = plans.tell(before, services.calendar.last_interval(before), rows, public)
    record = lasting_rows.decode(told.messages[0]["value"])
    index = SimpleNamespace(lasted=lambda interval: (record.known, record.rows))
    deciding = WindowPlans(replace(services, published_keys=index), 0, {})  # type: ignore[arg-type]
    assert deciding.decide([window]) is None
    return deciding.persistence_of(window)


def crowd(present: bool, *, others: int) -> Input:
    """So many users bring the key, and the user."""
    return make([(1 + other, 0, 1) for other in range(others)] + [(0, 0, 1)] * present)


def _one(what: str, *, others: int, user: bool) -> Scenario:
    return Scenario(
        what=what,
        keys=1,
        users=1 + others,
        build=partial(crowd, others=others) if user else lambda _: crowd(False, others=others),
        plan={
            "epsilon": 1.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 1,
            "ranked_keys": 1,
            "keys": 1,
            "gaussian_delta_fraction": 0.95,
            "discovery_share": float(SHARES[0].discovery),
        },
        remember=1,
    )


SCENARIOS = {
    "a row that counts for the shares": Sharing(
        one=_one("a remembered key of which one user decides whether it counts", others=LEAST_ROW - 1, user=True),
        following=lambda _: make([]),
        exposes=("shares from exact counts",),
    ),
    "a window under other shares": Sharing(
        one=_one("a user of a window whose shares follow the one before", others=LEAST_ROW, user=False),
        following=partial(crowd, others=LEAST_ROW),
        exposes=("shares not pinned",),
    ),
}
