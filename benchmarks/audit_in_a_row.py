"""What the audits of windows in a row have in common: the claim, the services of their stages, and what is seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from audit_inputs import REAL, Scenario, plan_of
from audit_memory import Memory as Store
from audit_pipeline import services_of, settings_of

from susurrus.agents.histogram.publication import Publication
from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.shown_rows import Display, ShownRows
from susurrus.agents.histogram.table import Gathered, SortedRows
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.errors import ReplayMismatch
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.spend import Budget, Spend

STRATEGY = "closing"
"""The one that remembers."""

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the attack sees of N trials. numbers: float64[N, features]. events: by name, bool[N]."""

    numbers: Floats
    events: dict[str, Bools]

    def features(self) -> Floats:
        """float64[N, features]."""
        return self.numbers

    def flags(self) -> Bools:
        """bool[N, events]."""
        return np.stack(list(self.events.values()), axis=1)

    def names(self) -> list[str]:
        """Of the events."""
        return list(self.events)

    @classmethod
    def stacked(cls, parts: Sequence[Self]) -> Self:
        """The trials of one after those of the other."""
        events = {name: np.concatenate([part.events[name] for part in parts]) for name in parts[0].events}
        return cls(numbers=np.concatenate([part.numbers for part in parts]), events=events)


class Partition:
    """One trial: what its release partition remembers and shows."""

    def __init__(self, services: HistogramServices, names: list[bytes]) -> None:
        self._store, self._names, self._services = Store(REAL), names, services
        self._founded = list(services.ledger.rows)  # type: ignore[attr-defined]
        self.memory = Memory(services, self._store)  # type: ignore[arg-type]
        self._display = ShownRows(self._store, self.memory, frozenset())  # type: ignore[arg-type]
        self._order = sorted(range(len(names)), key=names.__getitem__)
        self._place = {name: at for at, name in enumerate(names)}

    def rows(self, public: Bools, estimates: Floats, errors: Floats) -> SortedRows:
        """Rows of the public keys, of the one column. estimates, errors: float64[keys]."""
        at = [key for key in self._order if public[key]]
        return SortedRows(
            keys=[self._names[key] for key in at],
            estimates=estimates[at].astype(np.int64)[:, None],
            std_errors=errors[at][:, None],
            direct=None,
        )

    def show(self, window: WindowIndex, trigger: int, rows: SortedRows, first: Bools) -> tuple[SortedRows, Bools]:
        """(the rows with smoothed numbers, which keys are shown: bool[keys]). first: bool[keys], without a row before."""
        commit = Commit(position=Offset(0), meta={})
        new = [name for name, row in zip(self._names, first.tolist(), strict=True) if row]
        whole, display = self._display.of(window, Trigger(trigger), rows, new, commit)
        self._store.write(commit)
        return whole, self.which(display.rows.keys)

    def hand_on(self, window: WindowIndex, rows: SortedRows) -> None:
        """Make the list of the window after this one."""
        commit = Commit(position=Offset(0), meta={})
        self.memory.hand_on(window, rows, commit)
        self._store.write(commit)

    def remembered(self, window: WindowIndex) -> Remembered:
        """The window's list."""
        return self.memory.of(window)

    def publish(self, window: WindowIndex, remembered: Remembered) -> None:
        """Publish the trigger at which the list enters, without rows. Nothing else has been published, by any trial."""
        self._write([])
        commit, enters = Commit(position=Offset(0), meta={}), self.memory.enters
        none = self.rows(np.zeros(len(self._names), np.bool_), np.zeros(0), np.zeros(0))
        display = Display(rows=none, withdrawn=[])
        self._publication(window).publish(window, enters, self._nothing(), none, display, commit, remembered)
        self._write([message for output in commit.outputs for message in self._in_ledger(output)])

    def _in_ledger(self, output: Output) -> list[dict[str, Any]]:
        return list(output.messages) if output.topic == self._services.ledger.topic else []

    def _write(self, messages: list[dict[str, Any]]) -> None:
        """Put these into a ledger that was just founded."""
        ledger = self._services.ledger
        written = [(message["key"], message["value"]) for message in messages]
        ledger.rows = [*self._founded, *written]  # type: ignore[attr-defined]
        ledger.refresh()

    def accepts(self, window: WindowIndex, remembered: Remembered) -> bool:
        """Whether that trigger may be published again with this list."""
        try:
            return self._publication(window).is_public(window, self.memory.enters, self._nothing(), remembered)
        except ReplayMismatch:
            return False

    def _publication(self, window: WindowIndex) -> Publication:
        """As after a restart."""
        plans = WindowPlans(self._services, 0, {"persistence": [(window, 0)]})
        return Publication(self._services, 0, Store(REAL), plans)  # type: ignore[arg-type]

    def _nothing(self) -> Gathered:
        return Gathered.nothing(self._services.strategy.plan.width)

    def which(self, keys: list[bytes]) -> Bools:
        """bool[keys], by number."""
        found = np.zeros(len(self._names), np.bool_)
        found[[self._place[key] for key in keys]] = True
        return found

    def at(self, keys: list[bytes]) -> list[int]:
        """Their numbers."""
        return [self._place[key] for key in keys]


def claim_of(scenario: Scenario, active: int) -> Budget:
    """Of a user who is in so many windows of the scenario's plan."""
    plan = plan_of(scenario, STRATEGY)
    if active == 1:
        return Budget(epsilon=plan.epsilon, delta=plan.delta)
    delta = plan.delta * active
    spent = Spend().plus(build_strategy(plan).guarantee, active)
    return Budget(epsilon=spent.epsilon_total(delta), delta=delta)


def services_in_a_row(scenario: Scenario, plan: Plan) -> HistogramServices:
    """Of stages that play these windows. Their noise is the audit's own."""
    services = services_of(scenario, plan, settings_of(scenario, plan, "audit", 1), [[_RECORD]], None, bytes(16), REAL)
    return replace(services, strategy=build_strategy(plan))  # theirs shows evidence in place of calibrated rows


_RECORD = SimpleNamespace(offset=0)
"""So that the topic is not empty."""
