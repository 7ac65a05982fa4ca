"""The audit of windows that add up what each measured of a key that none of them has published (`keys.evidence_windows`).

    windows in a row, with or without the user ──release's own table of evidence──▶ which keys each window publishes, and their rows

Flow: `SCENARIOS` → `Evident.play` (audit_scenarios.play_window, with the evidence of the windows before) → audit_statistics.
What is kept from window to window, and which keys are tested with it, is decided by agents/histogram/evidence.py. The attack has
the rows of all windows, and what found and calibrates them. In one scenario it chooses the user's keys by what the windows before
have published. Argument: docs/guarantees/evidence.md, whose traps are the defects.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from audit_in_a_row import STRATEGY, Floats, Seen, claim_of, services_in_a_row
from audit_inputs import REAL, USERS, Input, Scenario, make, plan_of
from audit_memory import Memory as Store
from audit_scenarios import play_window
from audit_statistics import Outputs

from susurrus.agents.histogram.evidence import EvidenceOf, EvidenceTable
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit
from susurrus.mechanisms.arrays import Bools
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.evidence_memory import ClosingRows, EvidenceTest, PastRows
from susurrus.mechanisms.histogram.evidence_states import EvidenceStates, MeasuredWindow
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.spend import Budget

DEFECTS = {
    "evidence kept": "what windows have measured of a key counts on after the key has been published",
    "gate of one window": "evidence: a key is tested where enough users bring it today, whoever brought it before",
    "tested with a record": "evidence: a key is tested in windows in which somebody brings it",
    "sum from the first record": "evidence: the sum begins with the window in which somebody brings the key first",
    "one height": "evidence: the sum of windows must exceed what the users of one of them may add",
}
CHUNK_KEYS = 400_000
"""So many keys are played at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evident:
    """A pair of neighbouring inputs of windows in a row. Every window begins without public keys.

    one: what all windows are played under; its input is that of the first one. following: records of the others. active: so many
    windows the user is in, which the claim is for. picks: of the last window's keys only one comes. The window before has
    published it, and of all such keys its closing statistic was highest.
    """

    one: Scenario
    following: tuple[Callable[[bool], Input], ...]
    exposes: tuple[str, ...]
    active: int = 1
    picks: bool = False
    trials: int | None = None

    @property
    def claim(self) -> Budget:
        """Of a user who is in `active` windows."""
        return claim_of(self.one, self.active)

    def play(self, *, present: bool, trials: int, seed: int, defect: str = REAL) -> Seen:
        """Run `trials` independent copies of all windows."""
        size = max(1, CHUNK_KEYS // self.one.keys)
        with _planted(defect):
            parts = [
                self._some(present, min(size, trials - begin), seed, number)
                for number, begin in enumerate(range(0, trials, size))
            ]
        return Seen.stacked(parts)

    def _some(self, present: bool, trials: int, seed: int, number: int) -> Seen:
        plan = plan_of(self.one, STRATEGY)
        strategy = build_strategy(plan)
        assert isinstance(strategy, Closing)
        assert strategy.look is not None
        weight, picked = strategy.look.filter_weight, None
        services = services_in_a_row(self.one, plan)
        source = NoiseSource(
            seed.to_bytes(32, "little"), epoch=b"%d/%d" % (present, number), config=plan.digest(), pipeline="audit"
        )
        store = Store(REAL)
        table = EvidenceTable(services, store, source, WindowPlans(services, 0, {}))  # type: ignore[arg-type]
        numbers: list[Floats] = []
        events: dict[str, Bools] = {}
        for at, build in enumerate((self.one.build, *self.following)):
            window = WindowIndex(services.ledger.first_window + at)
            evidence = table.of(window, strategy)
            comes = picked if at == len(self.following) else None
            noise = source.window(window)
            outputs = play_window(self.one, strategy, build(present), noise, trials, comes=comes, evidence=evidence)
            commit = Commit(position=Offset(0), meta={})
            evidence.changes(commit)
            store.write(commit)
            closing, matched, new = _found(outputs)
            picked = _best(np.where(new, closing, -np.inf)) if self.picks else None
            low = (closing + weight * matched < strategy.look.level) & (
                matched < strategy.look.selector.matched_std[-1]
            )
            numbers += [each.sum(axis=1, keepdims=True) for each in (closing, matched, new)]
            events[f"window {at} publishes something"] = outputs.published.any(axis=(1, 2))
            events[f"window {at} publishes what it alone does not find"] = (new & low).any(axis=1)
        return Seen(numbers=np.concatenate(numbers, axis=1), events=events)


def _found(outputs: Outputs) -> tuple[Floats, Floats, Bools]:
    """(closing statistics, filters, whether the last trigger was the first to publish the key), [N, keys] each."""
    trials, keys, _ = outputs.published.shape
    assert outputs.evidence is not None
    # By key: what calibration has changed, the closing statistic, the filter.
    _, closing, matched = outputs.evidence.reshape(trials, keys, 3).transpose(2, 0, 1)
    return closing, matched, outputs.published[:, :, -1] & ~outputs.published[:, :, -2]


def _best(score: npt.NDArray[Any]) -> Bools:
    """bool[N, keys]: of each trial one key, with the highest score."""
    best: Bools = np.arange(score.shape[1]) == score.argmax(axis=1)[:, None]
    return best


def crowd(present: bool, *, keys: int, others: int, user: bool) -> Input:
    """Each key has `others` users of its own, at the last of two triggers. user: the user brings all keys, too."""
    rows = [(1 + key * others + other, key, 2) for key in range(keys) for other in range(others)]
    return make(rows + [(0, key, 2) for key in range(keys) if present and user])


def _one(
    what: str,
    *,
    keys: int,
    others: int,
    epsilon: float,
    windows: int,
    user: bool,
    minimum: int = 0,
    later: int = 0,
    measured: int = 1,
) -> Scenario:
    """later: others of each key in the windows that follow, if there are more of them. measured: of a user's keys, so many are."""
    return Scenario(
        what=what,
        keys=keys,
        users=1 + keys * max(others, later),
        build=partial(crowd, keys=keys, others=others, user=user),
        plan={
            "epsilon": epsilon,
            "triggers": 2,
            "columns": USERS,
            "max_records": measured,
            "gaussian_delta_fraction": 0.05,
            "minimum_users": minimum,
            "evidence_windows": windows,
            "ranked_keys": 1,
            "keys": measured,
            "filter_weight": 0.0,
            "discovery_share": 0.02,
            "unknown_share": 0.95,
            "public_share": 0.01,
        },
    )


def _again(*, others: int, user: bool, keys: int = 1) -> Callable[[bool], Input]:
    return partial(crowd, keys=keys, others=others, user=user)


MANY = 64
"""Keys of which the user brings all."""
FOUND = 150
"""Keys of which some are found by luck."""

SCENARIOS = {
    "keys of the days before": Evident(
        one=_one(
            "keys that others bring in three windows, and the user alone in the fourth",
            keys=MANY,
            others=10,
            epsilon=0.5,
            windows=4,
            user=False,
            measured=MANY,
        ),
        following=(*(_again(others=10, user=False, keys=MANY),) * 2, _again(others=0, user=True, keys=MANY)),
        trials=1_000,
        exposes=("gate of one window", "tested with a record"),
    ),
    "first with keys": Evident(
        one=_one(
            "keys that the user brings alone, and others a window later",
            keys=MANY,
            others=0,
            later=13,
            epsilon=0.5,
            windows=2,
            user=True,
            measured=MANY,
        ),
        following=(_again(others=13, user=False, keys=MANY),),
        trials=4_000,
        exposes=("sum from the first record",),
    ),
    "one user too few in four windows": Evident(
        one=_one(
            "a key that one user too few brings in all of four windows, and the user in the last",
            keys=1,
            others=5,
            epsilon=1.5,
            windows=4,
            user=False,
            minimum=5,
        ),
        following=(*(_again(others=5, user=False),) * 2, _again(others=5, user=True)),
        exposes=("one height",),
    ),
    "keys that were found": Evident(
        one=_one(
            "keys that are found a window after others brought them, of which the user brings the luckiest",
            keys=FOUND,
            others=8,
            epsilon=0.5,
            windows=2,
            user=False,
        ),
        following=(_again(others=0, user=False), _again(others=0, user=True, keys=FOUND)),
        picks=True,
        trials=2_500,
        exposes=("evidence kept",),
    ),
}

_AFTER, _OPENED, _PAST, _FOUND = EvidenceStates.after, EvidenceOf.opened, EvidenceStates.past, EvidenceTest.found


def _kept(states: EvidenceStates, rows: ClosingRows, published: Bools) -> EvidenceStates:
    return _AFTER(states, rows, np.zeros_like(published))


def _nothing_opened(_: EvidenceOf) -> Iterator[bytes]:
    return iter(())


def _from_the_first(states: EvidenceStates, keys: list[bytes], windows: list[MeasuredWindow | None]) -> PastRows:
    past = _PAST(states, keys, windows)
    weighed = states.flags & 1 != 0
    begun = np.logical_or.accumulate(weighed[:, ::-1], axis=1)[:, ::-1]
    return replace(past, in_play=past.in_play & begun)


def _gate_of_one(
    test: EvidenceTest, alone: Bools, values: npt.NDArray[np.float64], opened: Bools, past: PastRows, **given: float
) -> Bools:
    return _FOUND(test, alone, values, opened, replace(past, opened=np.zeros_like(past.opened)), **given)


def _one_height(
    test: EvidenceTest, alone: Bools, values: npt.NDArray[np.float64], opened: Bools, past: PastRows, **given: float
) -> Bools:
    return _FOUND(test, alone, values, opened, replace(past, heights=np.zeros_like(past.heights)), **given)


_PLANTS = {
    "evidence kept": (EvidenceStates, "after", _kept),
    "gate of one window": (EvidenceTest, "found", _gate_of_one),
    "tested with a record": (EvidenceOf, "opened", _nothing_opened),
    "sum from the first record": (EvidenceStates, "past", _from_the_first),
    "one height": (EvidenceTest, "found", _one_height),
}


@contextmanager
def _planted(defect: str) -> Iterator[None]:
    if defect not in _PLANTS:
        yield
        return
    with patch.object(*_PLANTS[defect]):
        yield
