"""release against a step over every key at every trigger; what is published once is never published again."""

import functools
import json
import math
import random
import weakref
from collections import defaultdict
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import window_keys
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.publication import chain_key
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import Refusal, ReplayMismatch
from susurrus.mechanisms.histogram.calibration import LEAST_ROWS
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.topics import bounded, histogram, progress, published_keys
from susurrus.topics import ledger as ledger_codec
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.partitioner import partition as partition_of
from susurrus.topics.wire.timestamps import parse_time
from tests.agents.cycles import no_cycles
from tests.agents.released import settings
from tests.agents.stages import EPOCH, SECRET, WINDOW, Runner, Written, number_of, services_of, tick_behind
from tests.reference import NO_LAST_LOOK
from tests.slow_memory import InternalRow, Numbers, SlowMemory, kappa_of

HOUR = 3_600_000
INTERVALS, LATE = 4, 2
TRIGGERS = INTERVALS + LATE
SOURCES = 2
WINDOWS = 3
LAST = WINDOWS * INTERVALS + LATE - 1
FAR = WINDOW + 1000 * HOUR

Row = tuple[int, int, int, bytes, int, int]
"""(by-user partition, interval, window, key, users, sum)."""


Lists = dict[tuple[int, int, bytes], tuple[int, int, int]]
"""(by-user partition, window, key) -> users, weight, public weight at the window's last trigger."""


COLUMNS = [
    {"name": "visits", "kind": "count"},
    {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
]


def services(*, charged: bool = True, **sections: Any) -> Services:
    configured = settings(
        start={"from": "earliest", "first_window": WINDOW, "epoch": EPOCH},
        window={
            "length": INTERVALS * HOUR, "trigger_every": HOUR, "allowed_lateness": LATE * HOUR, "origin": WINDOW,
            **sections.pop("window", {}),
        },
        bounds={"max_records_per_user": 2},
        columns=[*COLUMNS, *sections.pop("columns", [])],
        privacy={"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz", **sections.pop("privacy", {})},
        topics={"by_user_partitions": SOURCES, "bounded_partitions": 1, **sections.pop("topics", {})},
        **{"clock": {"kind": "replay", "until": FAR}, **sections},
    )  # fmt: skip
    return services_of(configured, charged=charged)


def random_rows(seed: int, *, keys: int = 12) -> list[Row]:
    dice = random.Random(seed)
    rows: dict[tuple[int, int, int, bytes], Row] = {}
    for _ in range(150):
        interval = dice.randrange(LAST + 1)
        window = dice.choice(
            [
                w
                for w in (interval // INTERVALS, interval // INTERVALS - 1)
                if 0 <= w < WINDOWS and interval - w * INTERVALS < TRIGGERS
            ]
        )
        key = b'"k%d"' % int(dice.expovariate(4 / keys))
        source = dice.randrange(SOURCES)
        rows[source, interval, window, key] = (
            source,
            interval,
            window,
            key,
            dice.randrange(1, 40),
            dice.randrange(-300, 300),
        )
    return list(rows.values())


def random_lists(seed: int, *, keys: int = 14) -> Lists:
    """Of keys with and without increments, and of some that only the feedback names; all sums of small weights."""
    dice = random.Random(seed)
    lists: Lists = {}
    for _ in range(60):
        place = (dice.randrange(SOURCES), dice.randrange(WINDOWS), b'"k%d"' % dice.randrange(keys))
        users = dice.choice([0, 1, 5, 40, 200])
        lists[place] = (users, users * dice.randrange(1 << 18, 1 << 20), dice.randrange(100 << 20))
    return lists


def lists_of(services: Services, seed: int) -> Lists:
    """Random ones where the strategy measures lists."""
    return {} if services.strategy.lists is None else random_lists(seed)


@functools.cache
def source_of(value: bytes) -> int:
    return bounded.decode(value).partition


def log_of(rows: list[Row], digest: bytes, seed: int = 0, last: int = LAST, lists: Lists | None = None) -> list[bytes]:
    """bounded as two by-user partitions write it in turn: for every interval its blocks, if any, then the tick."""
    dice = random.Random(seed)
    intervals = [0] * SOURCES
    log = []
    while min(intervals) <= last:
        source = dice.choice([s for s in range(SOURCES) if intervals[s] <= last])
        interval = intervals[source]
        mine = [row for row in rows if row[:2] == (source, interval)]
        if mine:
            users = np.array([row[4] for row in mine], np.int64)
            log.append(
                bounded.encode(
                    BoundedBlock(
                        partition=source,
                        interval=interval,
                        window=np.array([WINDOW + row[2] * INTERVALS * HOUR for row in mine], np.int64),
                        keys=[row[3] for row in mine],
                        users=users,
                        weight=users << 20,
                        sums=np.array([[row[4], row[5]] for row in mine], np.int64),
                    )
                )
            )
        for window in range(WINDOWS):
            found = {key: row for (of, w, key), row in (lists or {}).items() if (of, w) == (source, window)}
            if found and interval == window * INTERVALS + TRIGGERS - 1:
                zeros = np.zeros(len(found), np.int64)
                block = BoundedBlock(
                    partition=source,
                    interval=interval,
                    window=zeros + WINDOW + window * INTERVALS * HOUR,
                    keys=list(found),
                    users=zeros,
                    weight=zeros,
                    sums=np.zeros((len(found), 2), np.int64),
                    lists=np.array(list(found.values()), np.int64),
                )
                mine.append((source, interval, window, b"", 0, 0))
                log.append(bounded.encode(block))
        if mine or dice.random() < 0.7 or interval == last:  # a partition without records may skip ticks
            log.append(tick_behind(log, source, interval, digest, source_of=source_of))
        intervals[source] += 1
    return log


Published = dict[tuple[int, int, bytes], list[int]]
"""(window start, trigger, key) -> estimates in grid units."""


def slow_unit(estimate: int) -> int:
    """What a record weighs on a public key with this estimate."""
    return math.floor((1 << 20) * (max(estimate, 60) / 60) ** (-1 / 3))


Units = dict[tuple[int, bytes], int]
"""(window start, key) -> unit of a key that was published when the last trigger looks back."""


def slow(
    services: Services,
    rows: list[Row],
    lists: Lists | None = None,
    *,
    units: Units | None = None,
    errors: dict[tuple[int, bytes], float] | None = None,
) -> Published:
    """Every key at every trigger.

    units, errors: where given, they are filled with the units known and the standard errors of visits at last triggers.
    """
    strategy, columns = services.strategy, len(services.strategy.plan.columns)
    source = NoiseSource(
        SECRET, epoch=bytes.fromhex(EPOCH), config=services.config_digest, pipeline=services.settings.pipeline.name
    )
    result: Published = {}
    declared = set(services.settings.declared_keys)
    known: Units = {} if units is None else units
    remembering = SlowMemory.of(services.settings, strategy.plan, declared)
    follows, lasted = services.settings.follows_persistence, dict[int, int]()  # window -> kappa that follows from it
    for window in range(WINDOWS + 1):
        if follows:
            complete = [of for of in lasted if of * INTERVALS + TRIGGERS - 1 < window * INTERVALS]
            strategy = build_strategy(services.strategy.plan.at_persistence(lasted[complete[-1]] if complete else 0))
        noise, handed_on = source.window(window), set(remembering.handed_on)
        states: dict[bytes, bytes] = {}
        found: set[bytes] = set()
        for trigger in [t for w, t in PLACES if w == window]:
            internal: dict[bytes, InternalRow] = {}
            users: dict[bytes, int] = defaultdict(int)
            sums: dict[bytes, int] = defaultdict(int)
            for _, interval, of, key, number, paid in rows:
                if of == window and interval - window * INTERVALS + 1 == trigger:
                    users[key] += number
                    sums[key] += paid
            start, closing = WINDOW + window * INTERVALS * HOUR, None
            pooled: dict[bytes, tuple[Any, Any, Any]] = {}
            measured: dict[bytes, list[int]] = defaultdict(lambda: [0, 0, 0])
            if trigger == TRIGGERS and strategy.lists is not None:
                for (_, of, key), row in (lists or {}).items():
                    if of == window:
                        measured[key] = [a + b for a, b in zip(measured[key], row, strict=True)]
            entering = handed_on if trigger == LATE + 1 else set()
            for key in sorted({*states, *users, *declared, *measured, *entering}):
                if trigger == TRIGGERS and strategy.lists is not None:
                    no_row = handed_on if TRIGGERS - strategy.plan.parameters.lag == LATE else set()
                    public = (1 << 20) * (key in declared or key in no_row)
                    numbers = np.array([[*measured[key], known.get((start, key), public)]], np.int64).T
                    closing = ListSums(users=numbers[0], weight=numbers[1], public_weight=numbers[2], unit=numbers[3])
                step = strategy.step(
                    trigger,
                    [key],
                    strategy.unpack([states[key]]) if key in states else strategy.empty(1),
                    Increments(
                        users=np.array([users[key]], np.int64),
                        weight=np.array([users[key] << 20], np.int64),
                        sums=np.array([[users[key], sums[key]]], np.int64).reshape(1, columns),
                        lists=closing,
                    ),
                    noise,
                    np.array([key in declared or key in entering]),
                )
                states[key] = strategy.pack(step.states)[0]
                if step.published[0]:
                    internal[key] = step.estimates[0].tolist(), step.std_errors[0].tolist()
                    if strategy.lists is not None and trigger == TRIGGERS - strategy.plan.parameters.lag:
                        known[start, key] = slow_unit(int(step.estimates[0, 0]))
                    if errors is not None and trigger == TRIGGERS:
                        errors[start, key] = float(step.std_errors[0, 0])
                if step.pooled_rows is not None and len(step.pooled_rows.index):
                    pooled[key] = step.estimates, step.std_errors, step.pooled_rows.evidence
            every = [evidence for *_, evidence in reversed(pooled.values())]
            for key, row in pooled.items():
                if len(pooled) < LEAST_ROWS:
                    continue
                estimates, std_errors = strategy.calibrate(*row, np.concatenate(every))
                internal[key] = estimates[0].tolist(), std_errors[0].tolist()
                if errors is not None:
                    errors[start, key] = float(std_errors[0, 0])
            if trigger <= LATE:
                found |= internal.keys() & handed_on
                smoothed, hidden = dict[bytes, Numbers](), set[bytes]()
            else:
                smoothed = remembering.smoothed(internal)
                hidden = remembering.hidden(internal, smoothed, found)
            result |= {(start, trigger, key): row for key, (row, _) in internal.items() if key not in hidden}
        if trigger == TRIGGERS:
            remembering.hand_on(internal, smoothed)
            lasted[window] = kappa_of(remembering.lasted)
    return result


def published(runner: Runner, topic: str = "histogram") -> Published:
    found: Published = {}
    for _, _, _, value, stamp in runner.to(topic):
        if value is None:
            assert topic == "latest"
            continue
        row = histogram.decode_row(value)
        name = (row.window, row.trigger, json.dumps(row.key).encode())
        assert name not in found
        assert stamp == row.window + row.trigger * HOUR
        found[name] = [round(row.values["visits"].estimate), round(row.values["paid"].estimate)]
    return found


def withdrawn(runner: Runner) -> set[tuple[int, int, bytes]]:
    """(window start, trigger, key) of records of `latest` without a value."""
    found = set()
    for _, _, key, value, stamp in runner.to("latest"):
        if value is None:
            of = json.loads(key or b"")
            start = parse_time(of["window"])
            found.add((start, (stamp - start) // HOUR, json.dumps(of["key"]).encode()))
    return found


def said(runner: Runner) -> list[tuple[int, int, int]]:
    """(window start, trigger, rows) in log order."""
    records = [progress.decode(value or b"") for _, _, _, value, _ in runner.to("progress")]
    return [(record.window, record.trigger, record.rows) for record in records]


# The last window has begun when the one before it takes its last late records.
PLACES = [(w, t) for w in range(WINDOWS + 1) for t in range(1, TRIGGERS + 1) if w * INTERVALS + t - 1 <= LAST]
ALL_TRIGGERS = {(WINDOW + w * INTERVALS * HOUR, t) for w, t in PLACES}


def run(
    services: Services,
    log: list[bytes],
    directory: Path,
    *,
    seed: int | None = None,
    spill_above: int | None = None,
    kind: type[Runner] = Runner,
) -> Runner:
    """In one go, or (with a seed) in random fetches, with restarts after any number of commits."""
    runner = kind(ReleaseStage, services, directory)
    dice = random.Random(seed)
    while seed is not None and runner.next < len(log):
        if spill_above is not None:
            runner.stage._max_rows = spill_above  # type: ignore[attr-defined]
        runner.feed(log, runner.next + dice.randrange(1, 6))
        runner.commit(dice.choice([0, 1, 2, 100]), now=FAR)
        if dice.random() < 0.3:
            runner.restart()
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    runner.close()
    return runner


CASES: dict[str, dict[str, Any]] = {
    "toeplitz": {},
    "dp-sqlp": {"privacy": {"strategy": "dp-sqlp"}},
    "declared": {"keys": {"declared": ["k0", "k2", "never seen"]}},
    "declared only": {"keys": {"declared": ["k0", "k2", "never seen"], "discover": False}},
    "gate": {"keys": {"minimum_users": 60}},
    "closing": {"privacy": {"strategy": "closing"}},
    "closing, lag": {"privacy": {"strategy": "closing", "closing": {"lag": 3}}},
    "closing, declared": {"privacy": {"strategy": "closing"}, "keys": {"declared": ["k0", "k2", "never seen"]}},
    "closing, gate": {"privacy": {"strategy": "closing"}, "keys": {"minimum_users": 60}},
    "closing, remembers": {"privacy": {"strategy": "closing"}, "keys": {"remember": 6}},
    "closing, remembers all": {
        "privacy": {"strategy": "closing"},
        "keys": {"remember": 1, "declared": ["k1", "nobody"]},
    },
    "closing, remembers, looks back at its entry": {
        "privacy": {"strategy": "closing", "closing": {"lag": TRIGGERS - LATE}},
        "keys": {"remember": 6},
    },
    "closing, remembers, lag": {
        "privacy": {"strategy": "closing", "closing": {"lag": TRIGGERS}},
        "keys": {"remember": 6},
    },
    "no last look, remembers": {
        "privacy": {"strategy": "closing", "closing": NO_LAST_LOOK},
        "keys": {"remember": 6, "declared": ["k1"]},
    },
    "closing, lag of the whole window": {
        "privacy": {"strategy": "closing", "closing": {"lag": TRIGGERS}},
        "keys": {"declared": ["k0", "k2", "never seen"]},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_the_skip_index_publishes_what_a_step_over_every_key_publishes(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_keys, "_CHUNK", 3)
    ours = services(**CASES[case])
    rows, lists = random_rows(3), lists_of(ours, 3)
    runner = run(ours, log_of(rows, ours.config_digest, lists=lists), tmp_path / "s", seed=3)
    wanted = slow(ours, rows, lists)
    assert len(wanted) > 10
    assert published(runner) == published(runner, "latest") == wanted
    assert {name[:2] for name in said(runner)} == ALL_TRIGGERS
    for window, trigger, number in said(runner):
        assert number == sum(name[:2] == (window, trigger) for name in wanted)
    if ours.strategy.repeats:
        assert withdrawn(runner) == {
            (window, trigger, key)
            for window, trigger, key in {(w, t + 1, k) for w, t, k in wanted} - wanted.keys()
            if (window, trigger) in ALL_TRIGGERS
        }


@pytest.mark.parametrize("strategy", ["toeplitz", "dp-sqlp", "closing"])
def test_what_a_window_keeps_in_memory_goes_with_its_last_trigger_and_does_not_wait_for_the_collector(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker runs Python's garbage collector so rarely that cycles would keep the remembered noise of hundreds of windows."""
    of_windows: list[weakref.ref[WindowNoise]] = []
    window_of = NoiseSource.window

    def noted(source: NoiseSource, window: WindowIndex) -> WindowNoise:
        noise = window_of(source, window)
        of_windows.append(weakref.ref(noise))
        return noise

    monkeypatch.setattr(NoiseSource, "window", noted)
    ours = services(privacy={"strategy": strategy})
    log = log_of(random_rows(3), ours.config_digest, lists=lists_of(ours, 3))
    with no_cycles():
        runner = run(ours, log, tmp_path / "s")
        kept = [noise() for noise in of_windows if noise() is not None]
    assert len(published(runner)) > 10
    assert len(of_windows) == WINDOWS + 1
    assert len(kept) == 1, "only the last window is still open"


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
@pytest.mark.parametrize("seed", range(5))
def test_a_restart_after_any_commit_publishes_the_same_bytes(seed: int, strategy: str, tmp_path: Path) -> None:
    rows = random_rows(seed)
    runs = []
    for number, choice in enumerate((None, seed)):
        ours = services(privacy={"strategy": strategy})
        spill = 8 if number and seed > 2 else None
        log = log_of(rows, ours.config_digest, seed, lists=lists_of(ours, seed))
        runs.append(run(ours, log, tmp_path / str(number), seed=choice, spill_above=spill))
    undisturbed, disturbed = runs
    topics = ("histogram", "latest", "progress", "ledger", "published-keys")
    for topic in topics:
        assert disturbed.to(topic) == undisturbed.to(topic)
    assert len(undisturbed.to("histogram")) > 10
    if seed > 2:
        assert any(commit.meta["spilled"] for commit in disturbed.commits)


@pytest.mark.parametrize("fate", ["lost", "twice"])
@pytest.mark.parametrize("seed", range(4))
def test_increments_that_are_lost_or_come_twice_are_refused_before_their_interval_is_published(
    fate: str, seed: int, tmp_path: Path
) -> None:
    """Kafka lost what it had acknowledged, in bounded or in bound's changelog: bound's next tick tells."""
    ours = services()
    log = log_of(random_rows(seed), ours.config_digest, seed)
    at = random.Random(seed).choice([at for at, value in enumerate(log) if kind_of(value) is Kind.BLOCK])
    block = bounded.decode(log[at])
    log[at : at + 1] = [log[at]] * (2 if fate == "twice" else 0)
    with pytest.raises(Refusal, match=rf"offset=\d+: source={block.partition} says records=\d+, and records=\d+ came"):
        run(ours, log, tmp_path / "s", seed=seed)
    runner = Runner(ReleaseStage, ours, tmp_path / "t")
    for end in range(1, len(log) + 1):
        try:
            runner.feed(log, end)
        except Refusal:
            break
        runner.commit(now=FAR)
    assert runner.stage.report()["interval"] < block.interval
    runner.close()


@pytest.mark.parametrize("seed", range(2))
def test_every_interval_tells_bound_which_keys_are_new_and_how_many_there_are(seed: int, tmp_path: Path) -> None:
    """In the transaction that publishes them, also at an interval that publishes nothing; and without a lag nothing is written."""
    ours = services(
        privacy={"strategy": "closing", "closing": NO_LAST_LOOK}, keys={"declared": ["k3", "nobody"], "remember": 0}
    )
    rows = random_rows(seed)
    runner = run(ours, log_of(rows, ours.config_digest), tmp_path / "s", seed=seed)
    index, known = ours.published_keys, []
    assert index is not None
    index.clear()
    since: dict[tuple[int, bytes], int] = {}
    for start, trigger, key in sorted(published(runner), key=lambda row: row[1]):
        since.setdefault((start, key), (start - WINDOW) // HOUR + trigger - 1)
    assert len(since) > 10
    for offset, (_, partition, _, value, _) in enumerate(runner.to("published-keys")):
        block = published_keys.decode(value or b"")
        known += [(window, key, block.interval) for window, key in zip(block.window.tolist(), block.keys, strict=True)]
        assert (partition, block.partition) == (0, 0)
        index.take(value or b"", offset)
        for window in block.totals:  # refuses where its keys are not as many as it should have
            mine = [key for (start, key), interval in since.items() if start == window and interval <= block.interval]
            assert (
                index.known(window, block.interval, mine).all()
                or block.interval == (window - WINDOW) // HOUR + TRIGGERS - 1
            )
        assert index.complete(block.interval)
    assert sorted(known) == sorted((*place, interval) for place, interval in since.items())
    assert sum(name.endswith("published-keys") for name, *_ in runner.written) == LAST + 1
    for commit in runner.commits:
        topics = [output.topic for output in commit.outputs]
        assert ("t.page-views.progress" not in topics) or ("t.page-views.published-keys" in topics)
    plain = run(services(), log_of(rows, services().config_digest), tmp_path / "p", seed=seed)
    assert plain.to("published-keys") == []


@pytest.mark.parametrize("lag", [1, 2, TRIGGERS - 1, TRIGGERS, TRIGGERS + 1])
def test_closing_tells_a_unit_of_every_key_published_when_the_last_trigger_looks_back(lag: int, tmp_path: Path) -> None:
    """Also of one published for the first time at that very interval, and of none other; a longer lag tells none."""
    ours = services(
        privacy={"strategy": "closing", "closing": {"lag": lag}}, keys={"declared": ["k3", "nobody"], "remember": 0}
    )
    rows, lists = random_rows(5), random_lists(5)
    runner = run(ours, log_of(rows, ours.config_digest, lists=lists), tmp_path / "s", seed=lag)
    rows_of = published(runner)
    wanted = {
        (start, key): slow_unit(estimate[0])
        for (start, trigger, key), estimate in rows_of.items()
        if trigger == TRIGGERS - lag
    }
    assert (wanted == {}) == (lag >= TRIGGERS)
    index, found, since = ours.published_keys, {}, {}
    assert index is not None
    index.clear()
    for offset, (_, _, _, value, _) in enumerate(runner.to("published-keys")):
        if kind_of(value or b"") is Kind.EVIDENCE:
            continue
        block = published_keys.decode(value or b"")
        units = np.zeros(len(block), np.int64) if block.units is None else block.units
        for start, key, unit in zip(block.window.tolist(), block.keys, units.tolist(), strict=True):
            assert since.setdefault((start, key), block.interval) == block.interval or unit > 0
            if unit:
                assert (start, key) not in found
                assert block.interval == (start - WINDOW) // HOUR + TRIGGERS - 1 - lag
                found[start, key] = unit
        index.take(value or b"", offset)
        for start in range(WINDOW, WINDOW + LAST * HOUR, INTERVALS * HOUR):
            # What bound asks once release has got as far; refused where keys lack a unit.
            if block.interval == (start - WINDOW) // HOUR + TRIGGERS - 1 - lag:
                keys = [b'"nobody"', b'"unheard of"', *sorted({key for _, key in since})]
                assert index.units(start, block.interval, keys).tolist() == [
                    wanted.get((start, key), 0) for key in keys
                ]
    assert found == wanted
    if lag <= 2:
        assert len(set(wanted.values())) > 2  # not all are popular or all rare
    if lag == TRIGGERS - 1:
        assert {key for _, key in wanted} >= {b'"nobody"', b'"k3"'}
    # Each window's last trigger was measured with these units: the slow reference keeps its own.
    known: Units = {}
    errors: dict[tuple[int, bytes], float] = {}
    assert rows_of == slow(ours, rows, lists, units=known, errors=errors)
    assert known == wanted
    last = {
        (row.window, json.dumps(row.key).encode()): row.values["visits"].std_error
        for row in (histogram.decode_row(value or b"") for _, _, _, value, _ in runner.to("histogram"))
        if row.trigger == TRIGGERS
    }
    assert last == pytest.approx(errors)
    assert len(last) > 10


def test_closing_tells_that_no_key_has_a_unit_where_nothing_is_published(tmp_path: Path) -> None:
    ours = services(privacy={"strategy": "closing"})
    runner = run(ours, log_of([], ours.config_digest), tmp_path / "s")
    index = ours.published_keys
    assert index is not None
    index.clear()
    closings = 0
    for offset, (_, _, _, value, _) in enumerate(runner.to("published-keys")):
        index.take(value or b"", offset)
        closings += kind_of(value or b"") is Kind.BLOCK
        if closings == TRIGGERS - 1:
            assert index.units(WINDOW, TRIGGERS - 2, [b'"k"']).tolist() == [0]
    assert closings == LAST + 1


def test_units_are_kept_from_when_they_are_told_until_the_last_trigger(tmp_path: Path) -> None:
    lag = 3
    ours = services(privacy={"strategy": "closing", "closing": {"lag": lag}}, keys={"declared": ["k3", "nobody"]})
    log = log_of(random_rows(5), ours.config_digest, lists=random_lists(5))
    units: Units = {}
    slow(ours, random_rows(5), random_lists(5), units=units)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    seen = set()
    while runner.commit(1, now=FAR):
        closed = runner.commits[-1].meta["closed"]
        stored = {
            (WINDOW + number_of(name[1:]) * INTERVALS * HOUR, name[9:]): int.from_bytes(value, "little")
            for name, value in runner.state().items()
            if name[:1] == b"w"
        }
        assert stored == {
            (start, key): unit
            for (start, key), unit in units.items()
            if TRIGGERS - lag <= closed - (start - WINDOW) // HOUR + 1 < TRIGGERS
        }
        seen |= stored.keys()
    assert seen == units.keys()
    assert len({start for start, _ in seen}) == WINDOWS
    runner.close()


@pytest.mark.parametrize("earlier", [0, 1], ids=["never seen before", "seen before"])
def test_a_key_that_only_lists_name_at_the_last_trigger_is_published_by_them(earlier: int, tmp_path: Path) -> None:
    ours = services(privacy={"strategy": "closing"}, keys={"remember": 0})
    rows: list[Row] = [(0, 0, 0, b'"found at the end"', 1, 7)] * earlier
    lists: Lists = {(source, 0, b'"found at the end"'): (500, 500 << 20, 0) for source in range(SOURCES)}
    lists[0, 0, b'"too rare"'] = (1, 1 << 20, 0)
    runner = run(ours, log_of(rows, ours.config_digest, lists=lists), tmp_path / "s")
    found = published(runner)
    assert list(found) == [(WINDOW, TRIGGERS, b'"found at the end"')]
    assert found == slow(ours, rows, lists)
    without = run(
        services(privacy={"strategy": "closing"}, keys={"remember": 0}),
        log_of(rows, ours.config_digest),
        tmp_path / "w",
    )
    assert published(without) == {}


def test_rows_of_a_trigger_are_in_key_order(tmp_path: Path) -> None:
    ours = services()
    runner = run(ours, log_of(random_rows(1, keys=30), ours.config_digest), tmp_path / "s")
    order = [(row.trigger + row.window // HOUR, row.window, json.dumps(row.key)) for row in
             (histogram.decode_row(value or b"") for _, _, _, value, _ in runner.to("histogram"))]  # fmt: skip
    assert order == sorted(order)
    assert len(order) > 20


# ---- the digest chain ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upto", [3, 9, LAST + 1])
def test_a_replay_of_the_same_data_publishes_nothing_twice_and_goes_on_where_it_stopped(
    upto: int, tmp_path: Path
) -> None:
    """All state is lost, and the ledger's mark with it; only what has been published is known."""
    rows = random_rows(2)
    ours = services()
    log = log_of(rows, ours.config_digest)
    undisturbed = run(services(), log, tmp_path / "a")
    runner = Runner(ReleaseStage, ours, tmp_path / "b")
    runner.feed(log, len(log))
    runner.commit(upto, now=FAR)
    before = len(runner.written)
    runner.restart(empty=True)
    runner.feed(log, len(log))
    runner.commit(upto, now=FAR)
    assert len(runner.written) == before
    runner.commit(now=FAR)
    runner.close()
    for topic in ("histogram", "latest", "progress"):
        assert runner.to(topic) == undisturbed.to(topic)


@pytest.mark.parametrize("changed", ["a user more", "a key less", "a record moved to the next trigger"])
def test_a_replay_of_different_data_is_refused_before_anything_is_published(changed: str, tmp_path: Path) -> None:
    ours = services()
    rows = sorted(random_rows(2), key=lambda row: row[1])
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    log = log_of(rows, ours.config_digest)
    runner.feed(log, len(log))
    runner.commit(6, now=FAR)
    before: Written = list(runner.written)
    source, interval, window, key, users, paid = rows[0]
    assert interval < 6
    others = {
        "a user more": [(source, interval, window, key, users + 1, paid), *rows[1:]],
        "a key less": rows[1:],
        "a record moved to the next trigger": [(source, interval + 1, window, b'"moved"', users, paid), *rows[1:]],
    }[changed]
    runner.restart(empty=True)
    log = log_of(others, ours.config_digest)
    runner.feed(log, len(log))
    with pytest.raises(ReplayMismatch, match=r"was published from different data.*run `susurrus ledger new-epoch`"):
        runner.commit(now=FAR)
    assert runner.written == before
    runner.close()


@pytest.mark.parametrize("column", range(3))
@pytest.mark.parametrize("change", ["another number", "another key", "none"])
def test_a_replay_with_other_lists_is_refused_before_anything_is_published(
    change: str, column: int, tmp_path: Path
) -> None:
    ours = services(privacy={"strategy": "closing"})
    rows, lists = random_rows(2), random_lists(2)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    log = log_of(rows, ours.config_digest, lists=lists)
    runner.feed(log, len(log))
    runner.commit(TRIGGERS + 1, now=FAR)  # the last trigger takes two
    assert said(runner)[-1][:2] == (WINDOW + INTERVALS * HOUR, TRIGGERS - INTERVALS)
    before: Written = list(runner.written)
    place = next(place for place in lists if place[1] == 0)
    numbers = list(lists.pop(place))
    numbers[column] += 1
    if change == "another number":
        lists[place] = (numbers[0], numbers[1], numbers[2])
    elif change == "another key":
        lists[place[0], 0, b'"moved"'] = (numbers[0], numbers[1], numbers[2])
    runner.restart(empty=True)
    log = log_of(rows, ours.config_digest, lists=lists)
    runner.feed(log, len(log))
    with pytest.raises(
        ReplayMismatch, match=rf"trigger={TRIGGERS} of window={WINDOW} was published from different data"
    ):
        runner.commit(now=FAR)
    # The replay sends bound the same feedback again, and publishes nothing.
    known = [row for row in runner.written[len(before) :] if row[0] != ours.topic("published-keys")]
    assert known == []
    runner.close()


def test_the_chain_also_covers_earlier_triggers_of_the_window(tmp_path: Path) -> None:
    """Trigger 2 has the same input, trigger 1 had not: the totals differ, so the replay must not pass at trigger 2."""
    ours = services()
    first: list[Row] = [(0, 0, 0, b'"k"', 10, 0), (0, 1, 0, b'"k"', 5, 0)]
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    log = log_of(first, ours.config_digest, last=1)
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    for key in [key for key in ours.ledger.records if key.endswith(b"/1")]:  # type: ignore[attr-defined]
        del ours.ledger.records[key]  # type: ignore[attr-defined]
    runner.restart(empty=True)
    log = log_of([(0, 0, 0, b'"k"', 11, 0), first[1]], ours.config_digest, last=1)
    runner.feed(log, len(log))
    with pytest.raises(ReplayMismatch, match="trigger=2"):
        runner.commit(now=FAR)
    runner.close()


def links(runner: Runner) -> list[str]:
    """Of the chain, in the order in which they were written to the ledger."""
    records = [ledger_codec.decode(key or b"", value) for _, _, key, value, _ in runner.to("ledger") if value]
    return [record.digest for record in records if isinstance(record, ledger_codec.Digest)]


def guessed(rows: list[Row], config_digest: bytes, key: bytes = b"") -> str:
    """The first link, as whoever has a guess of the exact input makes it; ``key``: of both hashes."""
    block = blake2b(digest_size=32, key=key, person=b"susurrus-input")
    names = sorted(row[3] for row in rows)
    block.update(len(names).to_bytes(8, "big"))
    block.update(np.array([len(name) for name in names], np.int64).tobytes() + b"".join(names))
    table = {row[3]: (row[4], row[4] << 20, (row[4], row[5])) for row in rows}
    for column in range(3):
        block.update(np.array([table[name][column] for name in names], "<i8").tobytes())
    link = b"\0" * 32 + config_digest + ordered(1) + block.digest()
    return blake2b(link, digest_size=32, key=key).hexdigest()


def test_whoever_reads_the_ledger_cannot_confirm_a_guess_of_the_exact_input(tmp_path: Path) -> None:
    """With everything but the secret, the right guess looks like any other; whoever has it can make the very link."""
    rows: list[Row] = [(0, 0, 0, b'"rare"', 1, 7), (1, 0, 0, b'"k"', 3, -2)]
    found = {}
    for name, secret in (("ours", SECRET), ("again", SECRET), ("another", b"\x5b" * 32)):
        ours = replace(services(), secret=secret)
        ours.ledger.topic = ours.topic("ledger")
        runner = run(ours, log_of(rows, ours.config_digest, last=2), tmp_path / name)
        found[name] = links(runner)
    assert len(found["ours"]) == 3
    assert found["again"] == found["ours"]  # a replay can be compared
    assert set(found["another"]).isdisjoint(found["ours"])
    epoch, digest = bytes.fromhex(EPOCH), ours.config_digest
    for key in (b"", b"\0" * 32, epoch, digest, chain_key(b"\x5b" * 32, epoch), chain_key(SECRET, b"\0" * 16)):
        assert guessed(rows, digest, key) != found["ours"][0]
    assert guessed(rows, digest, chain_key(SECRET, epoch)) == found["ours"][0]


def test_digests_are_never_public(tmp_path: Path) -> None:
    ours = services()
    runner = run(ours, log_of(random_rows(2), ours.config_digest), tmp_path / "s")
    links = [
        json.loads(value or b"{}")["digest"].encode()
        for *_, value, _ in runner.written
        if b'"digest"' in (value or b"")
    ]
    assert len(links) == len(ALL_TRIGGERS)
    for _, _, key, value, _ in runner.to("histogram", "latest", "progress"):
        assert not any(link in (key or b"") + (value or b"") for link in links)


# ---- declared keys, empty triggers, the end of a window -----------------------------------------------------------------


def test_declared_keys_are_published_from_the_first_trigger_on_without_data(tmp_path: Path) -> None:
    ours = services(keys={"declared": ["a", "b"], "discover": False})
    runner = run(ours, log_of([(0, 1, 0, b'"x"', 1000, 5)], ours.config_digest), tmp_path / "s")
    assert set(published(runner)) == {
        (window, trigger, key) for window, trigger in ALL_TRIGGERS for key in (b'"a"', b'"b"')
    }


def test_declared_keys_are_published_by_the_partition_they_belong_to(tmp_path: Path) -> None:
    names = [f"key {n}" for n in range(20)]
    found: dict[bytes, int] = {}
    for number in range(3):
        ours = services(keys={"declared": names, "discover": False}, topics={"bounded_partitions": 3})
        runner = Runner(ReleaseStage, ours, tmp_path / str(number), number)
        log = log_of([], ours.config_digest)
        runner.feed(log, len(log))
        runner.commit(now=FAR)
        runner.close()
        for _, _, key in published(runner):
            assert found.setdefault(key, number) == number
    keys = [json.dumps(name).encode() for name in names]
    assert [found[key] for key in keys] == partition_of(keys, 3).tolist()
    assert set(found.values()) == {0, 1, 2}


def test_every_public_record_carries_its_triggers_time_and_not_the_moment_it_was_made(tmp_path: Path) -> None:
    ours = services(keys={"declared": ["k0"]})
    runner = run(ours, log_of(random_rows(7), ours.config_digest), tmp_path / "s")
    public = runner.to("histogram", "latest", "progress")
    assert {topic for topic, *_ in public} == {ours.topic(name) for name in ("histogram", "latest", "progress")}
    for topic, _, _, value, stamp in public:
        assert value is not None
        if topic == ours.topic("progress"):
            row = progress.decode(value)
            window, trigger = row.window, row.trigger
        else:
            window, trigger = histogram.decode_row(value).window, histogram.decode_row(value).trigger
        assert stamp == window + trigger * HOUR


def test_an_empty_trigger_still_says_that_it_is_complete(tmp_path: Path) -> None:
    ours = services()
    runner = run(ours, log_of([], ours.config_digest), tmp_path / "s")
    assert runner.to("histogram", "latest") == []
    assert set(said(runner)) == {(window, trigger, 0) for window, trigger in ALL_TRIGGERS}
    assert runner.stage.counters == {"triggers": len(ALL_TRIGGERS), "rows": 0, "skipped": 0}


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
def test_a_windows_state_is_gone_when_its_last_trigger_is_published(strategy: str, tmp_path: Path) -> None:
    ours = services(privacy={"strategy": strategy}, keys={"declared": ["k0", "never seen"]})
    log = log_of(random_rows(4), ours.config_digest, lists=lists_of(ours, 4))
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    most = 0
    while runner.commit(1, now=FAR):
        windows = {int.from_bytes(key[1:9], "big") - (1 << 63) for key in runner.state()}
        closed = runner.commits[-1].meta["closed"]
        assert all(w * INTERVALS + TRIGGERS - 1 > closed for w in windows)
        most = max(most, len(windows))
    assert most == 2
    assert {key[1:9] for key in runner.state()} == {ordered(WINDOWS)}
    runner.close()


# ---- what touches no public partition -----------------------------------------------------------------------------------


def public(runner: Runner, commit: int) -> set[str]:
    return {output.topic.rpartition(".")[2] for output in runner.commits[commit].outputs} & {
        "histogram",
        "latest",
        "progress",
    }


def test_a_window_is_charged_in_a_commit_of_its_own_before_anything_of_it_is_published(tmp_path: Path) -> None:
    ours = services(charged=False)
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    runner.commit(2, now=FAR)
    assert [output.topic for output in runner.commits[0].outputs] == ["charges"]
    assert public(runner, 0) == set()
    assert "progress" in public(runner, 1)
    runner.close()


def test_only_partition_0_charges_and_the_others_wait_for_it(tmp_path: Path) -> None:
    ours = services(charged=False, topics={"bounded_partitions": 2})
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(ReleaseStage, ours, tmp_path / "s", 1)
    runner.feed(log, len(log))
    assert runner.commit(now=FAR) == 0
    assert "release-0" in str(runner.stage.stall(FAR))
    ours.ledger.charged = True  # type: ignore[attr-defined]
    assert runner.commit(now=FAR) > 0
    runner.close()


def test_a_charge_that_cannot_be_read_yet_is_not_written_again(tmp_path: Path) -> None:
    """Some other pipeline's open transaction hides it: waiting, also over restarts, and one charge only."""
    ours = services(charged=False)
    visible = False
    ours.ledger.is_charged = lambda window: visible  # type: ignore[method-assign]
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    for _ in range(3):
        runner.commit(now=FAR)
        runner.restart()
        runner.feed(log, len(log))
    assert [row[0] for row in runner.written] == ["charges"]
    visible = True
    runner.commit(now=FAR)
    assert {row[:2] for row in said(runner)} == ALL_TRIGGERS
    assert [row[0] for row in runner.written].count("charges") == 1
    runner.close()


def test_a_spill_touches_no_public_topic(tmp_path: Path) -> None:
    ours = services()
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.stage._max_rows = 1  # type: ignore[attr-defined]
    runner.feed(log, 4)
    while runner.commit(1, now=FAR):
        pass
    assert runner.commits[-1].meta["spilled"]
    assert runner.commits[-1].outputs == []
    runner.close()


def test_a_live_trigger_is_published_no_earlier_than_its_time_plus_the_pad(tmp_path: Path) -> None:
    ours = services(clock={"kind": "broker"}, window={"publication_pad": 60_000})
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    due = WINDOW + HOUR + 60_000
    assert runner.commit(now=due - 1) == 0
    assert "publication_pad" in str(runner.stage.stall(due))
    assert runner.commit(now=due) == 1
    assert [row[:2] for row in said(runner)] == [(WINDOW, 1)]
    runner.close()
