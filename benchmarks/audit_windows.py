"""The audit of two windows in a row, of which the second remembers keys of the first: what both reveal together.

    a public window 0 ──list──▶ window 1, with or without the user ──list, last rows──▶ window 2, with or without the user

Flow: `SCENARIOS` → `play_windows` (audit_scenarios.play_window with the list's keys public) → audit_statistics.
What a window hands on, how rows are smoothed and which of them are shown is decided by the stages' own classes
(agents/histogram/remembered.py and shown_rows.py). Each trial is one release partition, so that a fit is of its rows alone.
The attack has all rows of both windows, shown or not, the lists, and what calibration would use; it knows what all others brought.
Windows have fewer rows than a calibration needs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import audit_remembering
import numpy as np
import numpy.typing as npt
from audit_inputs import REAL, TIGHT, USERS, Input, Scenario, make, plan_of
from audit_memory import Memory as Store
from audit_pipeline import services_of, settings_of
from audit_scenarios import play_window
from audit_statistics import Outputs

from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.shown_rows import ShownRows
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.smoothing import LEAST_SHOWN, Smoothing
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.spend import Budget, Spend

DEFECTS = {
    **audit_remembering.DEFECTS,
    "list before the last commit": "the list is made of the rows before the last trigger and the exact increments since",
    "another list on the same noise": "a window whose list has changed is played again under the noise of its first run",
    "fitted to exact counts": "the fit of smoothed rows is to exact counts",
}
STRATEGY = "closing"
"""The one that remembers."""

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class InARow:
    """A pair of neighbouring inputs of two windows.

    one: of window 1, and what both are played under. All its keys are remembered from window 0, with rows of `before` users.
    following: records of window 2. active: the windows that the user is in, which the claim is for. react: in window 2, only keys
    that its list names are brought. forgotten: so many keys are not on the list of a second run of window 2. fitted: rows are so
    many that they are smoothed.
    """

    one: Scenario
    following: Callable[[bool], Input]
    exposes: tuple[str, ...]
    before: int = 100
    active: int = 1
    react: bool = False
    forgotten: int = 0
    fitted: bool = False
    trials: int | None = None

    @property
    def claim(self) -> Budget:
        """Of a user who is in `active` windows."""
        plan = plan_of(self.one, STRATEGY)
        if self.active == 1:
            return Budget(epsilon=plan.epsilon, delta=plan.delta)
        delta = plan.delta * self.active
        spent = Spend().plus(build_strategy(plan).guarantee, self.active)
        return Budget(epsilon=spent.epsilon_total(delta), delta=delta)


def crowd(present: bool, *, keys: int, others: int, trigger: int) -> Input:
    """The user brings all keys at this trigger. So many others bring all of them at the first one."""
    rows = [(1 + other, key, 1) for other in range(others) for key in range(keys)]
    return make(rows + [(0, key, trigger) for key in range(keys) if present])


def _one(what: str, *, keys: int, others: int, epsilon: float, trigger: int = 1) -> Scenario:
    return Scenario(
        what=what,
        keys=keys,
        users=1 + others,
        build=partial(crowd, keys=keys, others=others, trigger=trigger),
        plan={**TIGHT, "epsilon": epsilon, "triggers": 2, "columns": USERS, "max_records": keys},
        remember=1,
    )


FITTED = 48
"""More rows than a fit needs, also if some keys are forgotten."""

SCENARIOS = {
    "keys at the threshold of memory": InARow(
        one=_one(
            "a user who alone brings keys of yesterday, at the last trigger", keys=6, others=0, epsilon=1.0, trigger=2
        ),
        following=lambda present: make([]),
        exposes=("list from exact counts", "list before the last commit"),
    ),
    "a user who comes again": InARow(
        one=_one("a user of both windows, who brings today what is remembered", keys=2, others=0, epsilon=1.0),
        following=partial(crowd, keys=2, others=0, trigger=1),
        active=2,
        react=True,
        exposes=("list from exact counts",),
    ),
    "a window that runs twice": InARow(
        one=_one(
            "a list so long that its weights are scaled, if none of its keys is forgotten",
            keys=8,
            others=24,
            epsilon=1.0,
        ),
        following=partial(crowd, keys=8, others=24, trigger=1),
        active=2,
        forgotten=2,
        trials=4_000,
        exposes=("another list on the same noise",),
    ),
    "a key that few bring again": InARow(
        one=_one(
            "a remembered key that one user too few brings for its row to be shown", keys=1, others=12, epsilon=1.0
        ),
        following=partial(crowd, keys=1, others=2, trigger=1),
        active=2,
        exposes=("shown by exact counts",),
    ),
    "rows that are fitted": InARow(
        one=_one("a user of all rows that are fitted together", keys=FITTED, others=20, epsilon=1.5),
        following=partial(crowd, keys=FITTED, others=20, trigger=1),
        before=20,
        active=2,
        trials=400,
        fitted=True,
        exposes=("fitted to exact counts",),
    ),
}


@dataclass(frozen=True, slots=True)
class TwoWindows:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Of N trials. public: bool[N, keys, T], keys with a row. estimates, newest: float64[N, keys, T], as they are measured, and
    smoothed where they are. shown: bool[N, keys, T]. last: the rows of the last trigger, by trial. outputs: with the evidence.
    """

    outputs: Outputs
    public: Bools
    estimates: Floats
    newest: Floats
    shown: Bools
    last: list[SortedRows]


def play_windows(name: str, *, present: bool, trials: int, seed: int, defect: str = REAL) -> TwoWindows:
    """Run `trials` independent copies of the two windows."""
    return _Play(SCENARIOS[name], present, trials, seed, defect).seen()


class _Partition:
    """One trial: what its release partition remembers and shows."""

    def __init__(self, services: HistogramServices, names: list[bytes]) -> None:
        self._store, self._names = Store(REAL), names
        self._memory = Memory(services, self._store)  # type: ignore[arg-type]
        self._display = ShownRows(self._store, self._memory, frozenset())  # type: ignore[arg-type]
        self._order = sorted(range(len(names)), key=names.__getitem__)
        self._place = {name: at for at, name in enumerate(names)}

    def rows(self, public: Bools, estimates: Floats, error: float) -> SortedRows:
        """Rows of the public keys, of the one column. estimates: float64[keys]."""
        at = [key for key in self._order if public[key]]
        return SortedRows(
            keys=[self._names[key] for key in at],
            estimates=estimates[at].astype(np.int64)[:, None],
            std_errors=np.full((len(at), 1), error),
            direct=None,
        )

    def show(self, window: WindowIndex, trigger: int, rows: SortedRows) -> tuple[SortedRows, Bools]:
        """(the rows with smoothed numbers, which keys are shown: bool[keys])."""
        commit = Commit(position=Offset(0), meta={})
        whole, display = self._display.of(window, Trigger(trigger), rows, (), commit)
        self._store.write(commit)
        return whole, self.which(display.rows.keys)

    def hand_on(self, window: WindowIndex, rows: SortedRows) -> None:
        """Make the list of the window after this one."""
        commit = Commit(position=Offset(0), meta={})
        self._memory.hand_on(window, rows, commit)
        self._store.write(commit)

    def remembered(self, window: WindowIndex) -> Remembered:
        """The window's list."""
        return self._memory.of(window)

    def which(self, keys: list[bytes]) -> Bools:
        """bool[keys], by number."""
        found = np.zeros(len(self._names), np.bool_)
        found[[self._place[key] for key in keys]] = True
        return found

    def at(self, keys: list[bytes]) -> list[int]:
        """Their numbers."""
        return [self._place[key] for key in keys]


class _Play:
    def __init__(self, windows: InARow, present: bool, trials: int, seed: int, defect: str) -> None:
        self._windows, self._one, self._defect, self._trials = windows, windows.one, defect, trials
        self._present = present
        plan = plan_of(self._one, STRATEGY)
        self._mechanism = build_strategy(plan)
        self._errors = self._mechanism.standard_errors()[:, 0]
        self._source = NoiseSource(
            seed.to_bytes(32, "little"),
            epoch=b"present" if present else b"absent",
            config=plan.digest(),
            pipeline="audit",
        )
        services = services_of(
            self._one, plan, settings_of(self._one, plan, "audit", 1), [[_RECORD]], None, bytes(16), REAL
        )
        self._indices = [services.ledger.first_window]
        for _ in range(2):
            self._indices.append(services.calendar.following(self._indices[-1]))
        K = self._one.keys
        names = [[b"%d" % (trial * K + key) for key in range(K)] for trial in range(trials)]
        self._partitions = [_Partition(services, mine) for mine in names]

    def seen(self) -> TwoWindows:
        """Play all of it."""
        windows, (zero, one, two) = self._windows, self._indices
        every = np.ones(self._one.keys, np.bool_)
        for partition in self._partitions:
            partition.hand_on(zero, partition.rows(every, np.full(len(every), windows.before), self._errors[-1]))
        first = self._play(one, self._one.build, None)
        self._hand_on(one, first)
        named = self._named(two)
        second = self._play(two, windows.following, named if windows.react else None)
        others, least = _users(self._one.build(False), self._one), self._one.remember
        assert least is not None
        large = first.newest[:, :, -1] >= least
        hoped = first.estimates[:, :, -2] + others[-1] - others[-2] >= least
        visible = second.public & (second.newest >= np.maximum(LEAST_SHOWN, self._errors))
        events = {
            "a key is remembered": named.any(axis=1),
            "a list against the last rows": (named != large).any(axis=1),
            "a list against the rows before, and the others": (named != hoped).any(axis=1),
            "a row is shown": second.shown.any(axis=(1, 2)),
            "rows are shown against their size": (second.shown != visible).any(axis=(1, 2)),
        }
        seen = [self._numbers(first), self._numbers(second), named]
        if windows.fitted:
            events["smoothed as the others' counts would"] = self._as_without(second)
        if windows.forgotten:
            accepted, difference = self._second_run(two, named, second)
            events["a window is published twice"] = accepted
            seen.append(difference)
        return TwoWindows(np.concatenate([each.reshape(self._trials, -1) for each in seen], axis=1), events)

    def _named(self, window: WindowIndex) -> Bools:
        """bool[N, keys]: the window's lists."""
        return np.stack([each.which(each.remembered(window).keys) for each in self._partitions])

    def _outputs(self, window: WindowIndex, given: Input, named: Bools, comes: Bools | None) -> Outputs:
        noise = self._source.window(window)
        return play_window(self._one, self._mechanism, given, noise, self._trials, remembered=named, comes=comes)

    def _play(self, window: WindowIndex, build: Callable[[bool], Input], comes: Bools | None) -> _Window:
        outputs = self._outputs(window, build(self._present), self._named(window), comes)
        exact = _users(build(self._present), self._one)
        public, estimates = outputs.published, outputs.estimates
        newest, shown, last = estimates.copy(), np.zeros_like(public), []
        for at, partition in enumerate(self._partitions):
            for number, error in enumerate(self._errors):
                there = public[at, :, number]
                rows = partition.rows(there, estimates[at, :, number], error)
                given = rows
                if self._defect == "shown by exact counts":
                    given = partition.rows(there, exact[number], error)
                with self._fitted(exact[number], partition.at(partition.remembered(window).keys)):
                    whole, shown[at, :, number] = partition.show(window, number + 1, given)
                if given is rows:
                    newest[at, partition.at(whole.keys), number] = whole.newest[0][:, 0]
            last.append(rows if given is not rows else whole)
        return _Window(outputs=outputs, public=public, estimates=estimates, newest=newest, shown=shown, last=last)

    @contextmanager
    def _fitted(self, exact: Ints, at: list[int]) -> Iterator[None]:
        """Plants "fitted to exact counts"."""
        if self._defect != "fitted to exact counts":
            yield
            return
        with patch.object(Smoothing, "fit", lambda direct, *given: _FIT(exact[at].astype(np.float64), *given)):
            yield

    def _hand_on(self, window: WindowIndex, played: _Window) -> None:
        """Make the lists of the next window."""
        exact = _users(self._one.build(self._present), self._one)
        for at, partition in enumerate(self._partitions):
            public, rows = played.public[at, :, -1], played.last[at]
            if self._defect == "list from exact counts":
                rows = partition.rows(public, exact[-1], self._errors[-1])
            elif self._defect == "list before the last commit":
                rows = partition.rows(public, played.estimates[at, :, -2] + exact[-1] - exact[-2], self._errors[-1])
            partition.hand_on(window, rows)

    def _numbers(self, window: _Window) -> Floats:
        """float64[N, ...]: what the attack's score adds up; of many keys, their sums."""
        outputs = window.outputs
        evidence = outputs.evidence if outputs.evidence is not None else np.zeros((self._trials, 0))
        columns = [window.estimates, window.newest, window.public, window.shown]
        if self._windows.fitted:
            columns = [each.sum(axis=1) for each in (*columns, evidence[:, :, None])]
        else:
            columns.append(evidence)
        return np.concatenate([each.reshape(self._trials, -1).astype(np.float64) for each in columns], axis=1)

    def _as_without(self, window: _Window) -> Bools:
        """bool[N]: whether the smoothed rows of window 2 are those of a fit to what all but the user brought."""
        found = np.zeros(self._trials, np.bool_)
        others = _users(self._windows.following(False), self._one).astype(np.float64)
        for trial, partition in enumerate(self._partitions):
            remembered = partition.remembered(self._indices[-1])
            at = partition.at(remembered.keys)
            variance = np.full(len(at), self._errors[-1] ** 2)
            memory = remembered.estimates[:, 0], remembered.variances[:, 0]
            fit = _FIT(others[-1][at], variance, *memory)
            if fit is not None:
                rows, _ = fit.rows(window.estimates[trial, at, -1], variance, *memory)
                found[trial] = np.array_equal(np.rint(rows), window.newest[trial, at, -1])
        return found

    def _second_run(self, window: WindowIndex, named: Bools, played: _Window) -> tuple[Bools, Floats]:
        """(bool[N], whether a run with shorter lists is published, too; float64[N, ...], its rows' difference to the first run's).

        A list is pinned by its digest, so a run with another one is refused.
        """
        fewer = named.copy()
        fewer[:, : self._windows.forgotten] = False
        accepted = np.zeros(self._trials, np.bool_)
        for trial, partition in enumerate(self._partitions):
            remembered = partition.remembered(window)
            shorter = remembered.take(fewer[trial, partition.at(remembered.keys)])
            refused = self._defect != "another list on the same noise" and shorter.digest() != remembered.digest()
            accepted[trial] = not refused
        again = self._outputs(window, self._windows.following(self._present), fewer, None)
        difference = played.outputs.features() - again.features()
        return accepted, np.where(accepted[:, None], difference, 0.0)


_FIT = Smoothing.fit
_RECORD = SimpleNamespace(offset=0)
"""So that the topic is not empty."""


def _users(given: Input, scenario: Scenario) -> Ints:
    """int64[T, keys]: exact counts through every trigger. Each user brings a key once."""
    counts = np.zeros((scenario.plan["triggers"], scenario.keys), np.int64)
    np.add.at(counts, (np.asarray(given.trigger, np.intp) - 1, np.asarray(given.key, np.intp)), 1)
    return np.cumsum(counts, axis=0)
