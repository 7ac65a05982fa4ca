"""The offline harness: its shortcuts change nothing, its workload follows its distribution, its rows hold what they promise."""

import math

import numpy as np
import pytest

from susurrus.agents.planning.offline import run, window_noise
from susurrus.agents.planning.spool import checkpoints, spool
from susurrus.agents.planning.states import StateTable
from susurrus.agents.planning.workload import (
    DAY_MS,
    FileWorkload,
    UserRecords,
    ZipfMandelbrotDay,
    sort_records,
    zipf_mandelbrot,
)
from susurrus.mechanisms.histogram.bounding import UserKeys
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListSums
from tests.agents.planning.ordered import ordered
from tests.reference import NO_LAST_LOOK

STRATEGIES = ["toeplitz", "closing", "dp-sqlp"]
ONE = 1 << 20


def make_plan(strategy: str, triggers: int = 12, **changes) -> Plan:
    fields = {
        "epsilon": 12.0,
        "delta": 1e-3,
        "columns": (Column(name="visits", kind="count"),),
        "max_records": 5,
        **changes,
    }
    return plan_of(strategy=strategy, triggers=triggers, **fields)


def small_day(seed: int = 1, users: int = 4000, keys: int = 200) -> ZipfMandelbrotDay:
    return ZipfMandelbrotDay(users=users, keys=keys, seed=seed)


def test_workload_is_the_papers():
    per_user = zipf_mandelbrot(100_000, 26, 6.738)
    assert ((np.arange(100_000) + 1) * per_user).sum() == pytest.approx(5.905, abs=1e-3)
    (records,) = ZipfMandelbrotDay(users=200_000, seed=3).chunks()
    assert len(records.user) / 200_000 == pytest.approx(5.905, rel=0.01)
    share = np.bincount(records.key, minlength=3)[:3] / len(records.key)
    assert share == pytest.approx(zipf_mandelbrot(1_000_000, 1000, 1.4)[:3], rel=0.15)
    assert (np.diff(records.user.astype(np.int64) * DAY_MS + records.time) >= 0).all()
    quarters = np.bincount(records.trigger(4), minlength=5)
    assert quarters[0] == 0
    assert quarters[1:] / len(records.key) == pytest.approx([0.25] * 4, abs=0.005)


def test_workload_does_not_depend_on_the_number_of_triggers_and_follows_the_seed():
    (a,), (b,), (c,) = (list(small_day(seed).chunks()) for seed in (1, 1, 2))
    assert np.array_equal(a.key, b.key)
    assert len(a.key) != len(c.key) or not np.array_equal(a.key, c.key)


@pytest.mark.parametrize("strategy", ["toeplitz", "dp-sqlp"])
def test_bounding_a_day_at_once_equals_bounding_each_trigger_with_its_state(strategy):
    T = 6
    bounding = build_strategy(make_plan(strategy, T, max_records_per_key=2)).bounding
    day = small_day(users=600, keys=40)
    whole = spool(day, bounding, T)
    (records,) = ordered(day.chunks(), T)
    state, trigger = UserKeys.empty(records.users), records.trigger(T)
    for number in range(1, T + 1):
        now = trigger == number
        closed = bounding.close(records.user[now], records.key[now], np.full(records.users, number, np.int32), state)
        state = closed.state
        key = np.concatenate([key for key, _ in whole.trigger(number)])
        weight = np.concatenate([weight for _, weight in whole.trigger(number)])
        assert np.array_equal(key, records.key[now][closed.kept])
        assert np.array_equal(weight, closed.weight[closed.kept])
    assert whole.kept < whole.records, "the caps were never reached"


def user_lists(chunks: list[UserRecords]) -> list[list[int]]:
    """Every user's distinct keys, in order, kept or not."""
    lists = []
    for records in chunks:
        mine: list[list[int]] = [[] for _ in range(records.users)]
        for user, key in zip(records.user.tolist(), records.key.tolist(), strict=True):
            if key not in mine[user]:
                mine[user].append(key)
        lists += mine
    return lists


def slow_unit(estimate: int) -> int:
    """The largest u with u / 2^20 <= (estimate / 60)^(-1/3), at most 2^20, in integers."""
    unit = int(ONE * (60 / max(estimate, 60)) ** (1 / 3)) + 2
    while unit**3 * max(estimate, 60) > 60 * ONE**3:
        unit -= 1
    return unit


def slow_list_sums(lists: list[list[int]], units: dict[int, int], plan: Plan, keys: int) -> tuple[ListSums, set[str]]:
    """The closing measurement, user by user: at most 1 is the squared norm of a user's weights on keys that are not
    public, at most 6 that of the others. Also which of its rules were needed."""
    users, weight, public_weight = ([0] * keys for _ in range(3))
    needed = set()
    for mine in lists:
        unknown = [key for key in mine if key not in units]
        if len(unknown) > plan.parameters.keys:
            needed.add("too many keys")
        unknown = unknown[: plan.parameters.keys]
        each = ONE
        if len(unknown) > 1:
            needed.add("unknown scaled")
            each = math.isqrt(ONE**2 // len(unknown))
        for key in unknown:
            users[key] += 1
            weight[key] += each
        public = [key for key in mine if key in units]
        square, scale = sum(units[key] ** 2 for key in public), 1.0
        if square > 6 * ONE**2:
            needed.add("public scaled")
            scale = math.sqrt(6 * ONE**2 / square) * (1 - 1e-12)
        for key in public:
            if units[key] < ONE:
                needed.add("popular")
            public_weight[key] += math.floor(units[key] * scale)
    unit = [units.get(key, 0) for key in range(keys)]
    columns = [np.array(column, np.int64) for column in (users, weight, public_weight, unit)]
    return ListSums(users=columns[0], weight=columns[1], public_weight=columns[2], unit=columns[3]), needed


@pytest.mark.parametrize(
    ("lag", "keys", "needed", "changes"),
    [
        (1, 2000, set(), NO_LAST_LOOK),
        (3, 2000, set(), {"max_records_per_key": 2, **NO_LAST_LOOK}),
        (1, 2000, {"unknown scaled", "too many keys", "public scaled"}, {"max_records": 20}),
        (
            3,
            2000,
            {"unknown scaled", "too many keys", "public scaled"},
            {"max_records": 16, "keys": 3},
        ),
        (3, 300, {"public scaled", "popular"}, {"max_records": 16}),
        (
            11,
            250,
            {"unknown scaled", "too many keys", "public scaled"},
            {"max_records": 16, "minimum_users": 2},
        ),
        (12, 2000, {"unknown scaled", "too many keys"}, {"max_records": 12}),
        (40, 2000, {"unknown scaled"}, {"max_records": 12, "keys": 4000}),
    ],
)
def test_a_run_whose_ranks_wait_equals_bounding_each_trigger_with_its_state_and_public_keys(
    lag, keys, needed, changes, monkeypatch
):
    """And a last look measures the users' lists, weighing every list by itself."""
    T = 12
    mechanism = build_strategy(make_plan("closing", T, lag=lag, ranked_keys=3, **changes))
    monkeypatch.setattr("susurrus.agents.planning.workload.CHUNK_USERS", 1500)
    monkeypatch.setattr("susurrus.agents.planning.offline.LIST_USERS", 700)
    day = small_day(keys=keys)
    noise = window_noise(0, mechanism.plan.digest())
    found = np.full(keys, T + lag + 1)

    def released(trigger, codes, step):
        found[codes[step.published]] = np.minimum(found[codes[step.published]], trigger)

    offline = run(mechanism, spool(day, mechanism.bounding, T), noise, released=released)
    chunks = ordered(day.chunks(), T)
    state = [UserKeys.empty(records.users) for records in chunks]
    since = np.full(len(day.key_names), T + lag + 1)
    table, nothing = StateTable(mechanism, len(since)), np.zeros(len(since), np.bool_)
    unranked, units, met = 0, {}, set()
    for trigger in range(1, T + 1):
        users, weight, count = (np.zeros(len(since), np.int64) for _ in range(3))
        for number, records in enumerate(chunks):
            now = records.trigger(T) == trigger
            key = records.key[now]
            closed = mechanism.bounding.close(
                records.user[now],
                key,
                np.full(records.users, trigger, np.int32),
                state[number],
                since[key] <= trigger - lag,
            )
            state[number] = closed.state
            users += np.bincount(key[closed.weight > 0], minlength=len(since))
            weight += np.bincount(key, weights=closed.weight, minlength=len(since)).astype(np.int64)
            count += np.bincount(key[closed.kept], minlength=len(since))
        every = np.arange(len(since))
        lists = None
        if mechanism.lists is not None and trigger == T:
            mine = user_lists(chunks)
            lists, met = slow_list_sums(mine, units, mechanism.plan, len(since))
        given = Increments(users=users, weight=weight, sums=count[:, None], lists=lists)
        step = mechanism.step(trigger, day.key_names, table.get(every), given, noise, nothing)
        table.put(every, step.states)
        if trigger == T - lag:
            units = {key: slow_unit(int(step.estimates[key, 0])) for key in np.flatnonzero(step.published).tolist()}
        since[step.published] = np.minimum(since[step.published], trigger)
        unranked = sum(int(held.unranked.sum()) for held in state)
    assert np.array_equal(found, since)
    estimates, std_errors = step.estimates, step.std_errors
    if mechanism.lists is not None:
        rows, evidence = step.pooled_rows.index, step.pooled_rows.evidence
        calibrated = mechanism.calibrate(estimates[rows], std_errors[rows], evidence, evidence[::-1])
        estimates[rows], std_errors[rows] = calibrated
    assert np.array_equal(offline.published.estimate, estimates[:, 0])
    assert np.array_equal(offline.published.std_error, std_errors[:, 0])
    assert (unranked > 0) == (lag < T)
    assert len(np.unique(since)) >= 5, "keys must become public at several triggers"
    assert met == needed, "every rule of the lists' weights must be met somewhere"


@pytest.mark.parametrize(
    ("strategy", "changes"),
    [*((strategy, {}) for strategy in STRATEGIES), *(("closing", {"lag": lag}) for lag in (3, 5, 11, 12, 40))],
)
def test_stepping_published_keys_at_checkpoints_only_gives_the_same_rows(strategy, changes, monkeypatch):
    mechanism = build_strategy(make_plan(strategy, **changes))
    spooled = spool(small_day(), mechanism.bounding, 12)
    noise = window_noise(0, mechanism.plan.digest())
    lazy = run(mechanism, spooled, noise)
    monkeypatch.setattr("susurrus.agents.planning.offline.STEP_KEYS", 37)
    full = run(mechanism, spooled, noise, every_trigger=True)
    assert lazy.checkpoints == full.checkpoints
    assert lazy.checkpoints[-1].keys > 20
    assert np.array_equal(lazy.published.estimate, full.published.estimate)
    assert np.array_equal(lazy.published.std_error, full.published.std_error)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_reader_of_the_latest_rows_is_near_the_truth_within_the_error_bars(strategy):
    mechanism = build_strategy(make_plan(strategy))
    day = FileWorkload(
        name="one key each",
        records=sort_records(
            np.arange(6000, dtype=np.int32), np.repeat(np.arange(3, dtype=np.int32), 2000),
            np.linspace(0, DAY_MS - 1, 6000).astype(np.int32), 6000,
        ),
        key_names=[b"0", b"1", b"2"],
    )  # fmt: skip
    outcome = run(mechanism, spool(day, mechanism.bounding, 12), window_noise(0, mechanism.plan.digest()))
    assert outcome.published.known.all()
    slack = 60 if strategy == "dp-sqlp" else 0  # rows of dp-sqlp are as old as their last release
    assert (np.abs(outcome.published.estimate - 2000) < 5 * outcome.published.std_error + slack).all()


def test_state_table_returns_what_was_put_through_merges():
    mechanism = build_strategy(make_plan("dp-sqlp"))
    table, expected = StateTable(mechanism, 50), np.zeros(50, np.int64)
    rng = np.random.default_rng(0)
    for turn in range(60):
        codes = np.sort(rng.choice(50, rng.integers(1, 20), replace=False))
        states = table.get(codes)
        assert np.array_equal(states.users, expected[codes])
        states.users[:] = turn
        table.put(codes, states)
        expected[codes] = turn
    every = np.arange(50)[::-1]
    assert np.array_equal(table.get(every).users, expected[every])


def test_checkpoints_end_each_quarter():
    assert checkpoints(100) == [25, 50, 75, 100]
    assert checkpoints(3) == [1, 2, 3]
    assert checkpoints(1) == [1]


def test_records_file_by_trigger_with_the_last_millisecond_in_the_last():
    zero = np.zeros(3, np.int32)
    records = UserRecords(user=zero, key=zero, time=np.array([0, DAY_MS // 2, DAY_MS - 1], np.int32), users=1)
    assert records.trigger(2).tolist() == [1, 2, 2]
