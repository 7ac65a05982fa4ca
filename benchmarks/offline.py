"""The whole mechanism without Kafka: bounding, increments per trigger, strategy steps, errors against the true counts.

Flow: workload → `spool` (Bounding.close on every user, compact columns per trigger) → `run` (Strategy.step per trigger,
states in memory) → checkpoints at a quarter, half, three quarters and the end of the window. The classes are the ones
that the agents call. Two things differ from a worker: where state is kept, and that by default published keys are stepped at the
checkpoints instead of at every trigger. This gives the same rows at the checkpoints (a test compares them).
Where ranks wait for the output (adaptive, closing), `spool` applies the caps and `run` weighs, trigger by trigger.
With closing, users' whole lists are measured at the last trigger (`list_sums`), from the same spool, and the rows are
calibrated together then. Its caps are a ledger, which depends on the trigger of every record (`within_ledger`).
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from workload import Records, Workload

from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, Bounding, UserKeys
from susurrus.mechanisms.histogram.strategy import Increments, Step, Strategy
from susurrus.mechanisms.histogram.user_lists import ListSums, ListWeights, public_units
from susurrus.mechanisms.noise import NoiseSource, WindowNoise

STEP_KEYS = 65_536
MERGE_PARTS = 8
UNKEPT = -WEIGHT_ONE
"""Weight of a record in a `Spool` that is not kept, though it put its key on the user's list."""
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


def checkpoints(triggers: int) -> list[int]:
    """The triggers that end each quarter of the window."""
    return sorted({-(-triggers * quarter // 4) for quarter in (1, 2, 3, 4)})


class Progress:
    """One line on stderr that is rewritten; silent when stderr is not a terminal, except for a line a stage."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.start, self.shown = what, total, time.monotonic(), 0.0
        self.terminal = sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        last = done >= self.total
        if last or now - self.shown > (0.2 if self.terminal else 20):
            self.shown = now
            end = "\n" if last or not self.terminal else ""
            begin = "\r" if self.terminal else ""
            print(
                f"{begin}{self.what}: {done}/{self.total}, {now - self.start:.0f} s",
                end=end,
                file=sys.stderr,
                flush=True,
            )


@dataclass(slots=True)
class Spool:
    """Kept records by trigger, and the truth.

    `rows[t - 1]`: list of (key int32[n], weight int32[n]), one pair per chunk of users; weight is the selection weight
    in 2^-20 units for the first kept record of a (user, key), 0 for a repeat. `by[t - 1]`: list of user int32[n], not
    decreasing from chunk to chunk, aligned with `rows`, only where ranks wait for the output; weights are then 2^20,
    0 or UNKEPT, and `run` replaces them. `truth[c]`: int64[keys], records of each key up to checkpoint c, capped or not.
    `records`, `kept`: totals.
    """

    triggers: int
    key_names: list[bytes]
    rows: list[list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]]
    by: list[list[npt.NDArray[np.int32]]]
    truth: npt.NDArray[np.int64]
    users: int = 0
    records: int = 0
    kept: int = 0

    def trigger(self, number: int) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        yield from self.rows[number - 1]


def spool(workload: Workload, bounding: Bounding, triggers: int) -> Spool:
    """Caps every user's records in order of time and files them by trigger.

    `Bounding.close` is called once per chunk of users with the whole day instead of once per trigger with a state: a
    record's fate depends on its own user's earlier records only, so the two agree (tests/benchmarks compares them);
    the weight then comes from the record's own trigger. The caps never depend on which keys are public, but ranks may
    (`Bounding.lag`), and those are left to `run`.
    """
    caps = bounding
    if bounding.lag is not None and bounding.ledger is None:
        caps = Bounding(max_records=bounding.max_records, max_records_per_key=bounding.max_records_per_key)
    names = workload.key_names
    ends = checkpoints(triggers)
    rows, by = ([[] for _ in range(triggers)] for _ in range(2))
    result = Spool(triggers, names, rows, by, np.zeros((len(ends), len(names)), np.int64))
    progress = Progress("reading and bounding, users", workload.users)
    for records in workload.chunks():
        trigger = records.trigger(triggers)
        if bounding.ledger is None:
            bounded = caps.close(
                records.user, records.key, np.ones(records.users, np.int32), UserKeys.empty(records.users)
            )
            filed = bounded.kept
            weight = caps.weigh(bounded.first, records.user, trigger, np.zeros(records.users, np.int64))
        else:
            bounded_kept, listed = within_ledger(bounding, records, trigger)
            filed = bounded_kept | listed
            weight = np.where(listed, np.where(bounded_kept, WEIGHT_ONE, UNKEPT), 0)
        for quarter, end in enumerate(ends):
            lower = ends[quarter - 1] if quarter else 0
            seen = records.key[(trigger > lower) & (trigger <= end)]
            result.truth[quarter:] += np.bincount(seen, minlength=len(names))
        kept = np.flatnonzero(filed)
        kept = kept[np.argsort(trigger[kept].astype(np.uint16), kind="stable")]
        key, weights = records.key[kept], weight[kept].astype(np.int32)
        user = records.user[kept] + np.int32(result.users)
        cuts = np.searchsorted(trigger[kept], np.arange(1, triggers + 2))
        for number in range(triggers):
            part = slice(cuts[number], cuts[number + 1])
            if part.stop > part.start:
                result.rows[number].append((key[part], weights[part]))
                if bounding.lag is not None:
                    result.by[number].append(user[part])
        result.users += records.users
        result.records += len(records.key)
        result.kept += int((weights >= 0).sum())
        progress(result.users)
    return result


def within_ledger(
    bounding: Bounding, records: Records, trigger: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """(kept, listed), bool[n] each: what `Bounding.close` decides trigger by trigger, for whole days of users at once.

    Nearly all users keep everything. The others go through the rule record by record.
    """
    ledger = bounding.ledger
    assert ledger is not None
    n = len(records.key)
    pair = records.user.astype(np.int64) << 32 | records.key
    order = np.argsort(pair, kind="stable")
    begins = np.ones(n, np.bool_)
    begins[1:] = pair[order][1:] != pair[order][:-1]
    first = np.flatnonzero(begins)
    begin = first[np.cumsum(begins) - 1]
    listed, earlier, before = np.zeros(n, np.bool_), np.empty(n, np.int64), np.empty(n, np.int64)
    listed[order] = begins
    earlier[order] = np.arange(n) - begin
    root = ledger.roots[trigger - 1]
    spent = np.concatenate(([0], np.cumsum(root[order])))
    before[order] = spent[:-1] - spent[begin]
    kept = earlier < bounding.max_records_per_key
    cost = ledger.measured * (2 * before + root) * root + np.where(listed, ledger.counting * root * root, 0)
    total = np.bincount(records.user, weights=np.where(kept, cost, 0), minlength=records.users)
    starts = np.searchsorted(records.user, np.arange(records.users + 1))
    for user in np.flatnonzero(total > ledger.limit).tolist():
        charged, roots, counts = 0, {}, {}
        for row in range(starts[user], starts[user + 1]):
            key, r = int(records.key[row]), int(root[row])
            held, count = roots.get(key, 0), counts.get(key, 0)
            dear = ledger.measured * (2 * held + r) * r + (0 if count else ledger.counting * r * r)
            kept[row] = count < bounding.max_records_per_key and charged + dear <= ledger.limit
            if kept[row]:
                charged, roots[key], counts[key] = charged + dear, held + r, count + 1
    return kept, listed


class StateTable:
    """States of all keys, found by key code: an append-only list of parts, merged when there are many.

    Uses only what every strategy's KeyStates offers (take, concatenate), so ragged histories need no special case.
    """

    def __init__(self, strategy: Strategy, keys: int) -> None:
        self.strategy = strategy
        self.part = np.full(keys, -1, np.int32)
        self.row = np.zeros(keys, np.int64)
        self.parts: list[Any] = []
        self.codes: list[npt.NDArray[np.int64]] = []

    def get(self, codes: npt.NDArray[np.int64]) -> Any:
        """States aligned with `codes`; empty ones for keys never seen."""
        where = self.part[codes]
        order = np.argsort(where, kind="stable")
        found = []
        for part in np.unique(where):
            rows = self.row[codes[where == part]]
            found.append(self.strategy.empty(len(rows)) if part < 0 else self.parts[part].take(rows))
        if not found:
            return self.strategy.empty(0)
        back = np.empty(len(codes), np.int64)
        back[order] = np.arange(len(codes))
        return type(found[0]).concatenate(found).take(back)

    def put(self, codes: npt.NDArray[np.int64], states: Any) -> None:
        """Replaces the states of `codes` (distinct)."""
        self.part[codes] = len(self.parts)
        self.row[codes] = np.arange(len(codes))
        self.parts.append(states)
        self.codes.append(codes)
        if len(self.parts) > MERGE_PARTS:
            self._merge()

    def _merge(self) -> None:
        """Joins all parts but the largest when that is still much larger than they are, else all of them."""
        sizes = [len(codes) for codes in self.codes]
        start = 1 if sizes[0] > 2 * sum(sizes[1:]) else 0
        live = [
            (codes[alive], states.take(np.flatnonzero(alive)))
            for number, (codes, states) in enumerate(zip(self.codes, self.parts, strict=True))
            if number >= start
            for alive in [self.part[codes] == number]
        ]
        codes = np.concatenate([codes for codes, _ in live])
        states = type(self.parts[0]).concatenate([states for _, states in live])
        self.parts, self.codes = [*self.parts[:start], states], [*self.codes[:start], codes]
        self.part[codes] = start
        self.row[codes] = np.arange(len(codes))


@dataclass(slots=True)
class Published:
    """What a reader of the `latest` topic holds: the last published estimate of every key."""

    estimate: npt.NDArray[np.int64]
    std_error: npt.NDArray[np.float64]
    known: npt.NDArray[np.bool_]

    def checkpoint(self, trigger: int, truth: npt.NDArray[np.int64]) -> Checkpoint:
        error = np.abs(np.where(self.known, self.estimate, 0) - truth)
        squares = float(np.sqrt(np.sum(error.astype(np.float64) ** 2)))
        return Checkpoint(
            trigger=trigger, keys=int(self.known.sum()), linf=int(error.max(initial=0)), l1=int(error.sum()), l2=squares
        )


@dataclass(slots=True)
class Run:
    """Outcome of `run`: checkpoints, the published values at the end, seconds of mechanism time."""

    checkpoints: list[Checkpoint]
    published: Published
    step_seconds: float = 0.0
    stepped: int = 0
    trigger_seconds: list[float] = field(default_factory=list)


class Ranks:
    """Weights of an adaptive strategy, trigger by trigger: the ranks every user took so far, and since when keys are known.

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
        """These keys were published at `trigger`."""
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
        totals += lists.add_up(indptr, key[order], unit)
    return ListSums.of(totals, unit)


def window_noise(seed: int, digest: bytes) -> WindowNoise:
    """Noise of a benchmark run: the secret is public here, made from the seed, so that runs can be repeated."""
    secret = blake2b(b"susurrus benchmark" + seed.to_bytes(8, "little"), digest_size=32).digest()
    noise = NoiseSource(secret, epoch=b"benchmark", config=digest, pipeline="benchmark").window(0)
    noise.memory_bytes = NOISE_MEMORY_BYTES
    return noise


def run(
    strategy: Strategy,
    spooled: Spool,
    noise: WindowNoise,
    *,
    every_trigger: bool = False,
    released: Callable[[int, npt.NDArray[np.int64], Step], None] | None = None,
) -> Run:
    """Steps `strategy` (one "count" column) over all triggers.

    every_trigger: step published keys at every trigger, as a worker does, instead of at checkpoints only. Strategies
    whose published keys go on being selected (dp-sqlp) are always stepped when touched or due. released: called with
    (trigger, key codes, step) for every chunk.
    """
    T, keys = spooled.triggers, len(spooled.key_names)
    names = np.empty(keys, dtype=object)
    names[:] = spooled.key_names
    ends = checkpoints(T)
    lazy = not every_trigger and strategy.plan.strategy != "dp-sqlp"
    table = StateTable(strategy, keys)
    due = np.full(keys, T + 1, np.int32)
    users, weight, count = (np.zeros(keys, np.int64) for _ in range(3))
    published = Published(np.zeros(keys, np.int64), np.zeros(keys), np.zeros(keys, np.bool_))
    result = Run([], published)
    ranks = None
    if strategy.bounding.lag is not None:
        ranks = Ranks(strategy.bounding, spooled.users, keys, T)
    # Keys public at the last trigger are weighed by what was published of them by then.
    unit = np.zeros(keys, np.int64)
    weighed = T - (strategy.bounding.lag or 0) if strategy.lists is not None else 0
    progress = Progress(f"{strategy.plan.strategy}, triggers", T)
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
            count[touched] += np.bincount(at, weights=kept).astype(np.int64)
            users[touched] += np.bincount(at, weights=w > 0).astype(np.int64)
            weight[touched] += np.bincount(at, weights=w).astype(np.int64)
        lists = list_sums(strategy.lists, spooled, unit) if strategy.lists is not None and trigger == T else None
        if lists is not None:
            touched = np.union1d(touched, np.flatnonzero(lists.users))
        if lazy and trigger not in ends and trigger != weighed:
            touched = touched[due[touched] != 0]
            codes = np.union1d(touched, np.flatnonzero(due == trigger))
        else:
            codes = np.union1d(touched, np.flatnonzero((due == trigger) | (due == 0)))
        begin = time.perf_counter()
        new: list[tuple[npt.NDArray[np.int64], Step]] = []
        for start in range(0, len(codes), STEP_KEYS):
            chunk = codes[start : start + STEP_KEYS]
            increments = Increments(
                users=users[chunk],
                weight=weight[chunk],
                sums=count[chunk][:, None],
                lists=None if lists is None else lists.take(chunk),
            )
            step = strategy.step(
                trigger, list(names[chunk]), table.get(chunk), increments, noise, np.zeros(len(chunk), np.bool_)
            )
            if step.pooled_rows is not None:
                new.append((chunk, step))
            elif released is not None:
                released(trigger, chunk, step)
            table.put(chunk, step.states)
            due[chunk] = step.due
            shown = chunk[step.published]
            published.estimate[shown] = step.estimates[step.published, 0]
            published.std_error[shown] = step.std_errors[step.published, 0]
            published.known[shown] = True
            if ranks is not None:
                ranks.published(trigger, shown)
        for chunk, step in calibrated(strategy, new):
            shown = chunk[step.published]
            published.estimate[shown] = step.estimates[step.published, 0]
            published.std_error[shown] = step.std_errors[step.published, 0]
            if released is not None:
                released(trigger, chunk, step)
        if trigger == weighed:
            unit[published.known] = public_units(published.estimate[published.known])
        seconds = time.perf_counter() - begin
        result.step_seconds += seconds
        result.trigger_seconds.append(seconds)
        result.stepped += len(codes)
        users[codes] = weight[codes] = count[codes] = 0
        if trigger in ends:
            result.checkpoints.append(published.checkpoint(trigger, spooled.truth[ends.index(trigger)]))
        progress(trigger)
    return result


def calibrated(
    strategy: Strategy, steps: list[tuple[npt.NDArray[np.int64], Step]]
) -> Iterator[tuple[npt.NDArray[np.int64], Step]]:
    """(key codes, step) of the last trigger, with the rows of all chunks calibrated together."""
    if not steps:
        return
    rows = [step.pooled_rows for _, step in steps]
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
