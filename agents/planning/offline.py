"""The whole mechanism without Kafka: bounding, increments per trigger, strategy steps, errors against the true counts.

Flow: workload → spool.py (Bounding.close on every user, compact columns per trigger) → `run` (Strategy.step per trigger,
states in memory) → checkpoints, by default at the end of each quarter of the window. The classes are the ones
that the agents call. Two things differ from a worker: where state is kept, and that by default published keys are stepped at the
checkpoints instead of at every trigger. This gives the same rows at the checkpoints (a test compares them).
Where ranks wait for the output (closing), `spool` applies the caps and `run` weighs, trigger by trigger.
With closing, users' whole lists are measured at the last trigger (`list_sums`), from the same spool, and the rows are
calibrated together then. Its caps are a ledger, which depends on the trigger of every record (`within_ledger`).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from susurrus.agents.planning.evidence import Evidence
from susurrus.agents.planning.spool import Progress, Spool, silent, totals
from susurrus.agents.planning.states import StateTable
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.strategy import Increments, Step, Strategy
from susurrus.mechanisms.histogram.user_lists import ListSums, ListWeights
from susurrus.mechanisms.noise import NoiseSource, WindowNoise

STEP_KEYS = 65_536
LIST_USERS = 1_000_000
"""Users whose lists are weighed at once."""
NOISE_MEMORY_BYTES = 1 << 30
"""What remembered noise of published keys may take: at T = 1000, 80,000 keys need a third of it, a worker's 64 MB do not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Errors of everything published so far against the true, uncapped counts. The error of an unpublished key is its count."""

    trigger: int
    keys: int
    linf: int
    l1: int
    l2: float


@dataclass(slots=True)
class LatestEstimates:
    """What a reader of the `latest` topic holds: the last published estimates of every key, [keys, columns] each."""

    estimates: npt.NDArray[np.int64]
    std_errors: npt.NDArray[np.float64]
    known: npt.NDArray[np.bool_]
    direct: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]] | None = None
    """Estimates and errors of rows' own streams, where the rows are calibrated; None at a trigger without calibration."""

    @classmethod
    def nothing(cls, keys: int, columns: int = 1) -> Self:
        """The state before the first release."""
        return cls(np.zeros((keys, columns), np.int64), np.zeros((keys, columns)), np.zeros(keys, np.bool_))

    @property
    def estimate(self) -> npt.NDArray[np.int64]:
        """int64[keys]: of the first column, to be written, too."""
        first: npt.NDArray[np.int64] = self.estimates[:, 0]
        return first

    @property
    def std_error(self) -> npt.NDArray[np.float64]:
        """float64[keys]: of the first column."""
        first: npt.NDArray[np.float64] = self.std_errors[:, 0]
        return first

    def checkpoint(self, trigger: int, truth: npt.NDArray[np.int64]) -> Checkpoint:
        error = np.abs(np.where(self.known, self.estimate, 0) - truth)
        squares = float(np.sqrt(np.sum(error.astype(np.float64) ** 2)))
        return Checkpoint(
            trigger=trigger, keys=int(self.known.sum()), linf=int(error.max(initial=0)), l1=int(error.sum()), l2=squares
        )


@dataclass(slots=True)
class OfflineRun:
    """Outcome of `run`: checkpoints, the published values at the end, seconds of mechanism time.

    rows: by trigger, what a worker publishes. states: of all keys at the end.
    """

    checkpoints: list[Checkpoint]
    published: LatestEstimates
    step_seconds: float = 0.0
    stepped: int = 0
    trigger_seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    states: StateTable | None = None


class Ranks:
    """Weights of a strategy with feedback, trigger by trigger: the ranks every user took so far, and since when keys are known.

    `taken`: int64[users]. `since`: int32[keys], the first trigger a key was published at, T + lag + 1 if it never was.
    """

    def __init__(self, bounding: Bounding, users: int, keys: int, triggers: int) -> None:
        assert bounding.lag is not None
        self.bounding, self.lag = bounding, bounding.lag
        self.taken = np.zeros(users, np.int64)
        self.since = np.full(keys, triggers + bounding.lag + 1, np.int32)

    def weigh(
        self,
        trigger: int,
        user: npt.NDArray[np.int32],
        key: npt.NDArray[np.int32],
        listed: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.int64]:
        """int64[n]: selection weights of the rows of `trigger`; `listed`: the record that put its key on the user's list."""
        ranked = listed & (self.since[key] > trigger - self.lag)
        weight = self.bounding.weigh(ranked, user, np.full(len(user), trigger, np.int32), self.taken)
        who, ranks = np.unique(user[ranked], return_counts=True)
        self.taken[who] += ranks
        return weight

    def published(self, trigger: int, codes: npt.NDArray[np.int64]) -> None:
        """Notes that these keys were published at `trigger`."""
        self.since[codes] = np.minimum(self.since[codes], trigger)


def list_sums(lists: ListWeights, spooled: Spool, unit: npt.NDArray[np.int64]) -> ListSums:
    """What all users' lists add to every key; unit: int64[keys]."""
    totals = np.zeros((len(spooled.key_names), 3), np.int64)
    for begin in range(0, spooled.users, LIST_USERS):
        ends = (begin, min(begin + LIST_USERS, spooled.users))
        found = []
        for rows, by in zip(spooled.rows, spooled.by, strict=True):
            for (key, first), user in zip(rows, by, strict=True):
                some = slice(*np.searchsorted(user, ends))
                listed = first[some] != 0
                found.append((user[some][listed], key[some][listed]))
        if not found:
            continue
        user, key = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(user, kind="stable")  # parts come by trigger, so a user's keys stay in order
        indptr = np.searchsorted(user[order], np.arange(ends[0], ends[1] + 1)).astype(np.int64)
        totals += lists.add_up(indptr, key[order].astype(np.int64), unit)
    return ListSums.of(totals, unit)


def window_noise(seed: int, digest: bytes, window: int = 0) -> WindowNoise:
    """Noise of a benchmark run: the secret is public here, made from the seed, so that runs can be repeated.

    window: its number, of several in a row.
    """
    secret = blake2b(b"susurrus benchmark" + seed.to_bytes(8, "little"), digest_size=32).digest()
    noise = NoiseSource(secret, epoch=b"benchmark", config=digest, pipeline="benchmark").window(WindowIndex(window))
    noise.memory_bytes = NOISE_MEMORY_BYTES
    return noise


def run(
    strategy: Strategy[Any],
    spooled: Spool,
    noise: WindowNoise,
    *,
    every_trigger: bool = False,
    released: Callable[[int, npt.NDArray[np.int64], Step[Any]], None] | None = None,
    declared: npt.NDArray[np.bool_] | None = None,
    remembered: npt.NDArray[np.bool_] | None = None,
    evidence: Evidence | None = None,
    checked: Callable[[int, LatestEstimates], None] | None = None,
    progress: Progress = silent,
) -> OfflineRun:
    """Steps `strategy` over all triggers: of one "count" column, or of the columns that the spool measured.

    every_trigger: step published keys at every trigger, as a worker does, instead of at checkpoints only. Keys that
    are not due at every trigger once they are published go on being stepped when touched or due. released: called with
    (trigger, key codes, step) for every chunk. declared: bool[keys]. remembered: bool[keys], public from the window's beginning
    as if published at a trigger 0; all rows of theirs are among what is published, shown to readers or not. evidence: of earlier
    windows, for plans that add it up; it is told of this one. checked: called with (trigger, what is published) at each checkpoint.
    """
    T, keys = spooled.triggers, len(spooled.key_names)
    names = np.empty(keys, dtype=object)
    names[:] = spooled.key_names
    ends = spooled.ends
    table = StateTable(strategy, keys)
    due = np.full(keys, T + 1, np.int32)
    columns = strategy.plan.width
    users, weight = (np.zeros(keys, np.int64) for _ in range(2))
    sums = np.zeros((keys, columns), np.int64)
    published = LatestEstimates.nothing(keys, columns)
    if declared is None:
        declared = np.zeros(keys, np.bool_)
    result = OfflineRun([], published, states=table)
    ranks = None
    if strategy.bounding.lag is not None:
        ranks = Ranks(strategy.bounding, spooled.users, keys, T)
        ranks.since[declared] = -ranks.lag
    if remembered is not None:
        if ranks is not None:
            ranks.since[remembered & ~declared] = 0
        declared = declared | remembered
    due[declared] = 0
    # Keys public at the last trigger are weighed by what was published of them by then.
    unit = np.zeros(keys, np.int64)
    weighed = T - (strategy.bounding.lag or 0) if strategy.lists is not None else 0
    for trigger in range(1, T + 1):
        touched = np.zeros(0, np.int64)
        parts = list(spooled.trigger(trigger))
        if parts:
            key = np.concatenate([part for part, _ in parts])
            w = np.concatenate([part for _, part in parts])
            kept = w >= 0
            if ranks is not None:
                w = ranks.weigh(trigger, np.concatenate(spooled.by[trigger - 1]), key, w != 0)
            touched, at = np.unique(key, return_inverse=True)
            if spooled.adds is None:
                sums[touched, 0] += np.bincount(at, weights=kept).astype(np.int64)
            else:
                sums[touched] += totals(at, np.concatenate(spooled.adds[trigger - 1]), len(touched))
            users[touched] += np.bincount(at, weights=w > 0).astype(np.int64)
            weight[touched] += np.bincount(at, weights=w).astype(np.int64)
        lists = list_sums(strategy.lists, spooled, unit) if strategy.lists is not None and trigger == T else None
        if lists is not None:
            touched = np.union1d(touched, np.flatnonzero(lists.users))
            if evidence is not None:
                touched = np.union1d(touched, evidence.tested)
        if not every_trigger and trigger not in ends and trigger != weighed:
            touched = touched[due[touched] != 0]
            codes = np.union1d(touched, np.flatnonzero(due == trigger))
        else:
            codes = np.union1d(touched, np.flatnonzero((due == trigger) | (due == 0)))
        begin = time.perf_counter()
        new: list[tuple[npt.NDArray[np.int64], Step[Any]]] = []
        once = 0
        for start in range(0, len(codes), STEP_KEYS):
            chunk = codes[start : start + STEP_KEYS]
            named = list(names[chunk])
            increments = Increments(
                users=users[chunk],
                weight=weight[chunk],
                sums=sums[chunk],
                lists=None if lists is None else lists.take(chunk),
                past=None if lists is None or evidence is None else evidence.past(chunk, named),
            )
            step = strategy.step(Trigger(trigger), named, table.get(chunk), increments, noise, declared[chunk])
            if evidence is not None:
                evidence.measured(chunk, step)
            if step.pooled_rows is not None:
                new.append((chunk, step))
            elif released is not None:
                released(trigger, chunk, step)
            table.put(chunk, step.states)
            due[chunk] = step.due
            shown = chunk[step.published]
            once += int((step.due[step.published] != 0).sum())
            published.estimates[shown] = step.estimates[step.published]
            published.std_errors[shown] = step.std_errors[step.published]
            published.known[shown] = True
            if ranks is not None:
                ranks.published(trigger, shown)
        if new:
            published.direct = published.estimates.copy(), published.std_errors.copy()
        for chunk, step in calibrated(strategy, new):
            shown = chunk[step.published]
            once += int((step.due[step.published] != 0).sum())
            published.estimates[shown] = step.estimates[step.published]
            published.std_errors[shown] = step.std_errors[step.published]
            if released is not None:
                released(trigger, chunk, step)
        if trigger == weighed and strategy.lists is not None:
            unit[published.known] = strategy.lists.row_units(published.estimates[published.known])
        result.rows.append(int((due == 0).sum()) + once)
        seconds = time.perf_counter() - begin
        result.step_seconds += seconds
        result.trigger_seconds.append(seconds)
        result.stepped += len(codes)
        users[codes] = weight[codes] = 0
        sums[codes] = 0
        if trigger in ends:
            result.checkpoints.append(published.checkpoint(trigger, spooled.truth[ends.index(trigger)]))
            if checked is not None:
                checked(trigger, published)
        progress(f"{strategy.plan.strategy}, triggers", trigger, T)
    if evidence is not None:
        evidence.end(strategy, noise, published.known)
    return result


def calibrated(
    strategy: Strategy[Any], steps: list[tuple[npt.NDArray[np.int64], Step[Any]]]
) -> Iterator[tuple[npt.NDArray[np.int64], Step[Any]]]:
    """(key codes, step) of the last trigger, with the rows of all chunks calibrated together."""
    if not steps:
        return
    rows = [step.pooled_rows for _, step in steps if step.pooled_rows is not None]
    evidence = np.concatenate([each.evidence for each in rows])
    estimates = np.concatenate([step.estimates[each.index] for (_, step), each in zip(steps, rows, strict=True)])
    errors = np.concatenate([step.std_errors[each.index] for (_, step), each in zip(steps, rows, strict=True)])
    estimates, errors = strategy.calibrate(estimates, errors, evidence, evidence)
    begin = 0
    for (chunk, step), each in zip(steps, rows, strict=True):
        part = slice(begin, begin := begin + len(each.index))
        step.estimates[each.index], step.std_errors[each.index] = estimates[part], errors[part]
        yield chunk, step


def as_rows(found: list[Checkpoint]) -> list[dict[str, Any]]:
    """Checkpoints for JSON."""
    return [asdict(row) for row in found]
