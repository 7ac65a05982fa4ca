"""The audit of two windows in a row, of which the second remembers keys of the first: what both reveal together.

    a public window 0 ──list──▶ window 1, with or without the user ──list, last rows──▶ window 2, with or without the user

Flow: `SCENARIOS` → `InARow.play` (audit_scenarios.play_window with the list's keys public) → audit_statistics.
What a window hands on, how rows are smoothed and which of them are shown is decided by the stages' own classes
(agents/histogram/remembered.py and shown_rows.py). Each trial is one release partition, so that a fit is of its rows alone.
The attack has all rows of both windows, shown or not, the lists, and what calibration would use; it knows what all others brought.
All windows but those of one scenario have fewer rows than a calibration needs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import audit_remembering
import numpy as np
import numpy.typing as npt
from audit_in_a_row import STRATEGY, Bools, Floats, Partition, Seen, claim_of, services_in_a_row
from audit_inputs import REAL, TIGHT, USERS, Input, Scenario, make, plan_of
from audit_scenarios import play_window
from audit_statistics import Outputs

from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.table import SortedRows
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.histogram.last_look import LastLook
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.smoothing import LEAST_ROWS, LEAST_SHOWN, Smoothing
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.spend import Budget

DEFECTS = {
    **audit_remembering.DEFECTS,
    "list before the last commit": "the list is made of the rows before the last trigger and the exact increments since",
    "another list on the same noise": "a window whose list has changed is played again under the noise of its first run",
    "fitted to exact counts": "the fit of smoothed rows is to exact counts",
    "fitted to keys without a row": "keys that somebody brings count in the fit of smoothed rows, published or not",
    "calibrated with exact lists": "rows of the last trigger are calibrated with the exact sums of the users' lists",
    "list before late records": "the list enters a trigger early, made of the rows so far and the exact increments of late records",
}
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class InARow:
    """A pair of neighbouring inputs of two windows.

    one: of window 1, and what both are played under. All its keys but the last `unknown` ones are remembered from window 0, with
    rows of `before` users. following: records of window 2. active: the windows that the user is in, which the claim is for. react:
    in window 2, only keys that its list names are brought. forgotten: so many keys are not on the list of a second run of window
    2. fitted: rows are so many that they are smoothed.
    """

    one: Scenario
    following: Callable[[bool], Input]
    exposes: tuple[str, ...]
    before: int = 100
    unknown: int = 0
    active: int = 1
    react: bool = False
    forgotten: int = 0
    fitted: bool = False
    trials: int | None = None

    @property
    def claim(self) -> Budget:
        """Of a user who is in `active` windows."""
        return claim_of(self.one, self.active)

    def play(self, *, present: bool, trials: int, seed: int, defect: str = REAL) -> Seen:
        """Run `trials` independent copies of the two windows."""
        return _Play(self, present, trials, seed, defect).seen()


CALIBRATED = 216
"""More rows than a calibration needs, also if some keys are forgotten."""
EACH = 8
"""Of them, so many are a user's. No cap cuts that."""


def crowd(present: bool, *, keys: int, others: int, trigger: int) -> Input:
    """The user brings all keys at this trigger. So many others bring all of them at the first one."""
    rows = [(1 + other, key, 1) for other in range(others) for key in range(keys)]
    return make(rows + [(0, key, trigger) for key in range(keys) if present])


def shared(present: bool, *, others: int) -> Input:
    """Each of many keys has so many users, who bring `EACH` keys in a row. The user brings the first ones."""
    owners = [(1 + other * CALIBRATED // EACH, key) for other in range(others) for key in range(CALIBRATED)]
    rows = [(first + key // EACH, key, 1) for first, key in owners]
    return make(rows + [(0, key, 1) for key in range(EACH) if present])


def alone(present: bool, *, key: int) -> Input:
    """The user brings a key that nobody else has. Nobody brings any other."""
    return make([(0, key, 1)] * present)


def _one(
    what: str,
    *,
    keys: int,
    others: int,
    epsilon: float,
    trigger: int = 1,
    triggers: int = 2,
    late: int = 0,
    **plan: Any,
) -> Scenario:
    return Scenario(
        what=what,
        keys=keys,
        users=1 + others,
        build=partial(crowd, keys=keys, others=others, trigger=trigger),
        plan={**TIGHT, "epsilon": epsilon, "triggers": triggers, "columns": USERS, "max_records": keys, **plan},
        remember=1,
        late=late,
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
    "one row too few to be fitted": InARow(
        one=replace(
            _one(
                "one remembered key too few for a fit, and a key that nobody else has",
                keys=LEAST_ROWS,
                others=0,
                epsilon=1.0,
            ),
            build=partial(alone, key=LEAST_ROWS - 1),
        ),
        following=lambda present: make([]),
        unknown=1,
        trials=1_000,
        exposes=("fitted to keys without a row",),
    ),
    "rows that are calibrated": InARow(
        one=replace(
            _one(
                "a user of some of the rows that are calibrated together",
                keys=CALIBRATED,
                others=10 * CALIBRATED // EACH,
                epsilon=2.0,
                max_records=EACH,
                discovery_share=0.02,
                unknown_share=0.01,
                public_share=0.5,
            ),
            build=partial(shared, others=10),
        ),
        following=lambda _: shared(False, others=10),
        trials=300,
        exposes=("calibrated with exact lists",),
    ),
    "records that are late": InARow(
        one=_one(
            "a user whose records are late, and decide what is remembered",
            keys=6,
            others=0,
            epsilon=1.0,
            trigger=3,
            triggers=3,
            late=1,
        ),
        following=lambda present: make([]),
        exposes=("list before late records",),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Of N trials. public: bool[N, keys, T], keys with a row. estimates, newest: float64[N, keys, T], as they are measured, and
    smoothed where they are. shown: bool[N, keys, T]. last: the rows of the last trigger, by trial. smoothed: bool[N], whether any
    row is. outputs: with the evidence.
    """

    outputs: Outputs
    public: Bools
    estimates: Floats
    newest: Floats
    shown: Bools
    last: list[SortedRows]
    smoothed: Bools


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
        services = services_in_a_row(self._one, plan)
        self._indices = [services.ledger.first_window]
        for _ in range(2):
            self._indices.append(services.calendar.following(self._indices[-1]))
        K = self._one.keys
        names = [[b"%d" % (trial * K + key) for key in range(K)] for trial in range(trials)]
        self._partitions = [Partition(services, mine) for mine in names]

    def seen(self) -> Seen:
        """Play all of it."""
        windows, (zero, one, two) = self._windows, self._indices
        K = self._one.keys
        every = np.arange(K) < K - windows.unknown
        for partition in self._partitions:
            partition.hand_on(zero, partition.rows(every, np.full(K, windows.before), np.full(K, self._errors[-1])))
        with _planted(self._defect):
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
            "a row is smoothed": np.any([each.smoothed for each in (first, second)], axis=0),
        }
        events |= {
            f"window {number} calibrates rows": each.outputs.calibrated
            for number, each in enumerate((first, second), 1)
            if each.outputs.calibrated is not None
        }
        seen = [self._numbers(first), self._numbers(second), named]
        if windows.fitted:
            events["smoothed as the others' counts would"] = self._as_without(second)
        if windows.forgotten:
            with _planted(self._defect):
                accepted, difference = self._second_run(two, named, second)
            events["a window is published twice"] = accepted
            seen.append(difference)
        return Seen(np.concatenate([each.reshape(self._trials, -1) for each in seen], axis=1), events)

    def _named(self, window: WindowIndex) -> Bools:
        """bool[N, keys]: the window's lists."""
        return np.stack([each.which(each.remembered(window).keys) for each in self._partitions])

    def _outputs(self, window: WindowIndex, given: Input, named: Bools, comes: Bools | None) -> Outputs:
        noise = self._source.window(window)
        enters = self._partitions[0].memory.enters
        return play_window(
            self._one, self._mechanism, given, noise, self._trials, remembered=named, enters=enters, comes=comes
        )

    def _play(self, window: WindowIndex, build: Callable[[bool], Input], comes: Bools | None) -> _Window:
        outputs = self._outputs(window, build(self._present), self._named(window), comes)
        exact = _users(build(self._present), self._one)
        public, estimates, errors = outputs.published, outputs.estimates, outputs.errors
        assert errors is not None
        newest, shown, last = estimates.copy(), np.zeros_like(public), []
        smoothed = np.zeros(self._trials, np.bool_)
        for at, partition in enumerate(self._partitions):
            for number in range(len(self._errors)):
                there = public[at, :, number]
                rows = partition.rows(there, estimates[at, :, number], errors[at, :, number])
                given = rows
                if self._defect == "shown by exact counts":
                    given = partition.rows(there, exact[number], errors[at, :, number])
                first = there & ~public[at, :, :number].any(axis=1)
                hidden = int(((exact[number] > 0) & ~there).sum())
                with self._fitted(exact[number], partition.at(partition.remembered(window).keys), hidden):
                    whole, shown[at, :, number] = partition.show(window, number + 1, given, first)
                smoothed[at] |= whole.smoothed is not None
                if given is rows:
                    newest[at, partition.at(whole.keys), number] = whole.newest[0][:, 0]
            last.append(rows if given is not rows else whole)
        return _Window(
            outputs=outputs,
            public=public,
            estimates=estimates,
            newest=newest,
            shown=shown,
            last=last,
            smoothed=smoothed,
        )

    @contextmanager
    def _fitted(self, exact: Ints, at: list[int], hidden: int) -> Iterator[None]:
        """Plants the defects of fits. exact: of all keys. at: those of the list. hidden: how many others came and have no row."""

        def to_exact_counts(_: Floats, *given: Floats) -> Smoothing | None:
            return _FIT(exact[at].astype(np.float64), *given)

        def with_hidden_keys(*given: Floats) -> Smoothing | None:
            return _FIT(*(np.append(each, np.ones(hidden)) for each in given))

        planted = {"fitted to exact counts": to_exact_counts, "fitted to keys without a row": with_hidden_keys}
        if self._defect not in planted:
            yield
            return
        with patch.object(Smoothing, "fit", planted[self._defect]):
            yield

    def _hand_on(self, window: WindowIndex, played: _Window) -> None:
        """Make the lists of the next window."""
        exact = _users(self._one.build(self._present), self._one)
        for at, partition in enumerate(self._partitions):
            public, rows = played.public[at, :, -1], played.last[at]
            errors = np.full(len(public), self._errors[-1])
            if self._defect == "list from exact counts":
                rows = partition.rows(public, exact[-1], errors)
            elif self._defect in ("list before the last commit", "list before late records"):
                rows = partition.rows(public, played.estimates[at, :, -2] + exact[-1] - exact[-2], errors)
            partition.hand_on(window, rows)

    def _numbers(self, window: _Window) -> Floats:
        """float64[N, ...]: what the attack's score adds up; of many keys, their sums."""
        outputs = window.outputs
        evidence = outputs.evidence if outputs.evidence is not None else np.zeros((self._trials, 0))
        columns = [window.estimates, window.newest, window.public, window.shown]
        if self._one.keys > _MANY:
            kinds = evidence.reshape(self._trials, self._one.keys, -1)
            columns = [each.sum(axis=1) for each in (*columns, kinds)]
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

        Both ask the publication, which finds in the ledger the digest of the trigger at which the first run's list entered.
        """
        fewer = named.copy()
        fewer[:, : self._windows.forgotten] = False
        accepted = np.zeros(self._trials, np.bool_)
        for trial, partition in enumerate(self._partitions):
            remembered = partition.remembered(window)
            shorter = remembered.take(fewer[trial, partition.at(remembered.keys)])
            partition.publish(window, remembered)
            accepted[trial] = partition.accepts(window, shorter)
        again = self._outputs(window, self._windows.following(self._present), fewer, None)
        difference = played.outputs.features() - again.features()
        return accepted, np.where(accepted[:, None], difference, 0.0)


_FIT, _DRAWN, _ENTERS = Smoothing.fit, LastLook._drawn, Memory.enters.fget
_MANY = 32
"""Of more keys than that, the attack's score has sums."""


def _without_noise(look: LastLook, mechanism: str, *given: Any) -> Any:
    drawn = _DRAWN(look, mechanism, *given)
    return drawn * 0 if mechanism == look._public_mechanism else drawn


@contextmanager
def _planted(defect: str) -> Iterator[None]:
    """Plants what changes both windows."""
    with ExitStack() as stack:
        if defect == "calibrated with exact lists":
            stack.enter_context(patch.object(LastLook, "_drawn", _without_noise))
        if defect == "another list on the same noise":
            stack.enter_context(patch.object(Remembered, "digest", lambda _: bytes(32)))
        if defect == "list before late records":
            stack.enter_context(patch.object(Memory, "enters", property(lambda memory: _ENTERS(memory) - 1)))
        yield


def _users(given: Input, scenario: Scenario) -> Ints:
    """int64[T, keys]: exact counts through every trigger. Each user brings a key once."""
    counts = np.zeros((scenario.plan["triggers"], scenario.keys), np.int64)
    np.add.at(counts, (np.asarray(given.trigger, np.intp) - 1, np.asarray(given.key, np.intp)), 1)
    return np.cumsum(counts, axis=0)
