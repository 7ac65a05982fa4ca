"""The audit of a budget that renews: what all windows that one period touches reveal together of a user who is in each of them.

Neighbours differ in all records of that user in these windows. Their claim is `[budget]`, for the period.
Flow: `SCENARIOS` (windows that ask to begin) → the rule of mechanisms/periods.py, or a broken one → `play_periods` (the strategy's
rows of every window that begins, in thousands of trials side by side) → audit_statistics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.periods import ChargedSpan, Periods
from susurrus.mechanisms.spend import Budget, Spend

REAL = "none"
DEFECTS = {
    "periods of the calendar": "the total is for each period that begins a whole number of lengths after the first",
    "a window too few": "a period of so many windows' length is taken to touch so many windows, and not one more",
}
_OTHERS = 5
"""Users who are in every window, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodScenario:
    """length: of the period, in windows. room: windows that the budget has room for in one period."""

    what: str
    length: int
    room: int
    exposes: tuple[str, ...]


SCENARIOS = {
    "the end of a period and the next": PeriodScenario(
        what="windows that would begin at the end of a month and at the begin of the next",
        length=6,
        room=3,
        exposes=("periods of the calendar",),
    ),
    "windows that a period touches": PeriodScenario(
        what="a period as long as a window touches two of them", length=1, room=1, exposes=("a window too few",)
    ),
}
_STRATEGY = build_strategy(
    plan_of(
        "toeplitz",
        triggers=1,
        epsilon=1.5,
        delta=0.01,
        columns=(Column(name="visits", kind="count", bound=1),),
        max_records=1,
        discover=False,
    )
)


def periods_of(name: str) -> Periods:
    """The claim: what so many windows, as there is room for, cost together."""
    scenario, guarantee = SCENARIOS[name], _STRATEGY.guarantee
    delta = 0.05
    epsilon = Spend().plus(guarantee, scenario.room).epsilon_total(delta)
    return Periods(Budget(epsilon=epsilon, delta=delta), scenario.length)


@dataclass(frozen=True, slots=True)
class PeriodRows:
    """Published numbers of N trials: float64[N, windows]."""

    rows: npt.NDArray[np.float64]

    def features(self) -> npt.NDArray[np.float64]:
        """float64[N, windows]."""
        return self.rows

    def flags(self) -> npt.NDArray[np.bool_]:
        """None: every key is declared."""
        return np.zeros((len(self.rows), 0), np.bool_)

    def names(self) -> list[str]:
        """None."""
        return []


def play_periods(name: str, *, present: bool, trials: int, seed: int, defect: str = REAL) -> PeriodRows:
    """The rows of the period that holds most windows. A trial is a declared key with users of its own."""
    begun = _begun(name, defect)
    length = SCENARIOS[name].length
    touched = max(([one for one in begun if last - length < one + 1 and one <= last] for last in begun), key=len)
    source = NoiseSource(
        b"%32d" % seed, epoch=b"present" if present else b"absent ", config=bytes(32), pipeline="audit"
    )
    keys = [b'"%d"' % trial for trial in range(trials)]
    users = np.full(trials, _OTHERS + present, np.int64)
    columns = []
    for window in touched:
        step = _STRATEGY.step(
            1,
            keys,
            _STRATEGY.empty(trials),
            Increments(users=users, weight=users << 20, sums=users[:, None].copy()),
            source.window(WindowIndex(window)),
            np.ones(trials, np.bool_),
        )
        columns.append(step.estimates[:, 0].astype(np.float64))
    return PeriodRows(np.stack(columns, axis=1))


def _begun(name: str, defect: str) -> list[int]:
    """Which of the windows 0, 1, … begin. Some are not asked for, so that the room is used where it hurts most."""
    scenario, periods = SCENARIOS[name], periods_of(name)
    asked = range(scenario.length - scenario.room, 4 * scenario.length + 2)
    rule = _RULES[defect]
    begun: list[int] = []
    for window in asked:
        if rule(periods, begun, window):
            begun.append(window)
    return begun


def _span(window: int) -> ChargedSpan:
    return ChargedSpan(window, window + 1, _STRATEGY.guarantee)


def _by_the_rule(periods: Periods, begun: Sequence[int], window: int) -> bool:
    return periods.allows(map(_span, begun), _span(window))


def _by_calendar(periods: Periods, begun: Sequence[int], window: int) -> bool:
    held = sum(one // periods.length == window // periods.length for one in begun)
    return periods.budget.allows(Spend().plus(_STRATEGY.guarantee, held + 1))


def _without_the_last(periods: Periods, begun: Sequence[int], window: int) -> bool:
    held = sum(one > window - periods.length for one in begun)
    return periods.budget.allows(Spend().plus(_STRATEGY.guarantee, held + 1))


_RULES: dict[str, Callable[[Periods, Sequence[int], int], bool]] = {
    REAL: _by_the_rule,
    "periods of the calendar": _by_calendar,
    "a window too few": _without_the_last,
}
