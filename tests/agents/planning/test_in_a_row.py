"""Windows in a row: what the first leaves to the second, and what that changes there."""

from hashlib import blake2b

import numpy as np
import pytest

from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.planning.evidence import Evidence
from susurrus.agents.planning.in_a_row import WindowsInARow
from susurrus.agents.planning.offline import Ranks, run, window_noise
from susurrus.agents.planning.spool import spool
from susurrus.agents.planning.workload import FileWorkload, ZipfMandelbrotDay, sort_records
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.record_order import RecordOrder
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.smoothing import Smoothing, rates
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics.wire.partitioner import partition, placements
from tests.agents.planning.settings import BEGIN, HOUR, settings
from tests.reference import expected

T = 8
USERS, KEYS = 4000, 200


def make_plan(**changes) -> Plan:
    fields = {"epsilon": 3.0, "delta": 1e-4, "columns": (Column(name="visits", kind="count"),), "max_records": 5}
    return plan_of(strategy="closing", triggers=T, **fields | changes)


def day(seed: int) -> ZipfMandelbrotDay:
    return ZipfMandelbrotDay(users=USERS, keys=KEYS, seed=seed)


def rows_of(windows: WindowsInARow, spooled, seed: int = 5) -> dict[int, object]:
    found = {}
    windows.next(spooled, seed, checked=lambda trigger, rows: found.update({trigger: rows}))
    return found


def test_a_remembered_key_is_one_that_was_published_at_trigger_0():
    """With a lag of 1 it is like a declared key at all triggers; with 2 it has no rank from trigger 2 on."""
    strategy = build_strategy(make_plan())
    spooled = spool(day(1), strategy.bounding, T)
    some = np.arange(KEYS) % 3 == 0
    noise = [window_noise(2, strategy.plan.digest()) for _ in range(3)]
    remembered, declared, neither = (
        run(strategy, spooled, noise[0], remembered=some),
        run(strategy, spooled, noise[1], declared=some),
        run(strategy, spooled, noise[2]),
    )
    assert remembered.checkpoints == declared.checkpoints != neither.checkpoints
    assert np.array_equal(remembered.published.estimates, declared.published.estimates)

    slow = build_strategy(make_plan(lag=2))
    seen: dict[int, list[int]] = {}
    weigh = Ranks.weigh

    class Watched(Ranks):
        def weigh(self, trigger, user, key, listed):
            weight = weigh(self, trigger, user, key, listed)
            seen[trigger] = weight[some[key] & listed].tolist()
            return weight

    spooled = spool(day(1), slow.bounding, T)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("susurrus.agents.planning.offline.Ranks", Watched)
        run(slow, spooled, window_noise(2, slow.plan.digest()), remembered=some)
    assert any(seen[1]), "bound does not know yet"
    assert all(not any(seen[trigger]) for trigger in range(2, T + 1))


def test_rows_of_at_least_so_many_users_are_remembered_and_have_rows_from_the_beginning():
    strategy = build_strategy(make_plan())
    spools = [spool(day(seed), strategy.bounding, T) for seed in (1, 2)]
    windows = WindowsInARow(strategy.plan, spools[0].key_names, remember=40, smoothed=False, follows=False)
    first = rows_of(windows, spools[0])
    assert np.array_equal(first[T].shown, first[T].public)
    alone = run(strategy, spools[0], window_noise(5, strategy.plan.digest()))
    assert np.array_equal(first[T].estimates, alone.published.estimates)
    expected = alone.published.known & (alone.published.estimate >= 40)
    assert np.array_equal(windows.memory.keys, expected)
    assert 0 < expected.sum() < alone.published.known.sum()
    drawn = np.maximum(alone.published.estimates, 1)
    assert np.array_equal(windows.memory.rates, np.maximum(alone.published.estimates, 0))
    assert windows.memory.variances == pytest.approx(alone.published.std_errors**2 + drawn)

    second = rows_of(windows, spools[1])
    assert np.array_equal(second[T // 4].public & expected, expected)
    again = run(strategy, spools[1], window_noise(5, strategy.plan.digest(), 1), remembered=expected)
    assert np.array_equal(second[T].estimates, again.published.estimates)
    assert not np.array_equal(
        run(strategy, spools[1], window_noise(5, strategy.plan.digest(), 0), remembered=expected).published.estimates,
        again.published.estimates,
    ), "each window has noise of its own"


def test_rows_have_their_own_numbers_where_the_last_trigger_calibrates_them(monkeypatch):
    strategy = build_strategy(make_plan())
    spooled = spool(day(1), strategy.bounding, T)
    windows = WindowsInARow(strategy.plan, spooled.key_names, remember=0, follows=False)
    # So few rows would stay as they are.
    monkeypatch.setattr(type(strategy), "calibrate", lambda _, estimates, errors, *__: (estimates + 7, errors / 2))
    for trigger, rows in rows_of(windows, spooled).items():
        some = rows.public
        assert some.any()
        added, share = (7, 2) if trigger == T else (0, 1)
        assert np.array_equal(rows.own[some] + added, rows.direct[some])
        assert np.array_equal(rows.own_errors[some] / share, rows.direct_errors[some])


def test_nothing_is_remembered_with_0():
    strategy = build_strategy(make_plan())
    spools = [spool(day(seed), strategy.bounding, T) for seed in (1, 2)]
    windows = WindowsInARow(strategy.plan, spools[0].key_names, remember=0)
    for number, spooled in enumerate(spools):
        rows = rows_of(windows, spooled)
        alone = run(strategy, spooled, window_noise(5, strategy.plan.digest(), number))
        assert np.array_equal(rows[T].estimates, alone.published.estimates)
        assert np.array_equal(rows[T].public, alone.published.known)
        assert not windows.memory.keys.any()


def test_a_spool_has_the_checkpoints_it_is_asked_for():
    strategy = build_strategy(make_plan())
    every = spool(day(1), strategy.bounding, T, ends=range(1, T + 1))
    quarters = spool(day(1), strategy.bounding, T)
    (records,) = day(1).chunks()
    for end, truth in zip(every.ends, every.truth, strict=True):
        assert np.array_equal(truth, np.bincount(records.key[records.trigger(T) <= end], minlength=KEYS))
    runs = [run(strategy, each, window_noise(3, strategy.plan.digest())).checkpoints for each in (every, quarters)]
    assert [each for each in runs[0] if each.trigger in quarters.ends] == runs[1]


def test_remembered_rows_are_smoothed_in_each_partition_and_shown_where_they_mean_something():
    strategy = build_strategy(make_plan(max_records=20))
    spools = [spool(ZipfMandelbrotDay(users=20_000, keys=2000, seed=seed), strategy.bounding, T) for seed in (1, 2)]
    names = spools[0].key_names
    windows = WindowsInARow(strategy.plan, names, remember=6, partitions=3, follows=False)
    first = rows_of(windows, spools[0])
    assert not first[T].smoothed.any()
    assert np.array_equal(first[T].estimates, first[T].direct)
    memory = windows.memory
    assert memory.keys.sum() > 300
    places, hidden = partition(names, 3), 0
    for at, rows in rows_of(windows, spools[1]).items():
        assert np.array_equal(rows.smoothed[:, 0], memory.keys)
        for place in range(3):
            some = np.flatnonzero(memory.keys & (places == place))
            given = (
                rows.direct[some, 0],
                rows.direct_errors[some, 0] ** 2,
                *rates(first[T].estimates[some, 0], first[T].std_errors[some, 0]),
            )
            fit = Smoothing.fit(*given)
            assert fit is not None
            estimates, errors = fit.rows(*given)
            assert np.array_equal(rows.estimates[some, 0], np.rint(estimates)), at
            assert rows.std_errors[some, 0] == pytest.approx(np.sqrt(errors**2 + 1 / 12), rel=1e-12)
            told, variances = fit.rates(*given)
            assert np.array_equal(rows.rates[some, 0], told)
            assert np.array_equal(rows.rate_variances[some, 0], variances)
        size = np.maximum(3, rows.std_errors[:, 0])
        assert np.array_equal(rows.shown, rows.public & (~memory.keys | (rows.estimates[:, 0] >= size)))
        hidden += (rows.public & ~rows.shown).sum()
        new = rows.public & ~memory.keys
        assert np.array_equal(rows.estimates[new], rows.direct[new])
    assert hidden
    assert new.any()
    assert np.array_equal(windows.memory.keys, rows.public & (rows.estimates[:, 0] >= 6))
    assert np.array_equal(windows.memory.rates, rows.rates)
    assert np.array_equal(windows.memory.variances, rows.rate_variances)


def test_shares_follow_how_many_rows_of_a_window_were_known_at_its_beginning():
    plan = make_plan(max_records=20)
    spools = [
        spool(ZipfMandelbrotDay(users=20_000, keys=2000, seed=seed), build_strategy(plan).bounding, T)
        for seed in (1, 2)
    ]
    windows = WindowsInARow(plan, spools[0].key_names, remember=6)
    rows_of(windows, spools[0])
    assert windows.persistence == 0
    known = windows.memory.keys
    second = rows_of(windows, spools[1])
    large = second[T].public & (second[T].estimates[:, 0] >= 15)
    assert windows.persistence == 10 * (large & known).sum() // large.sum()
    assert 0 < windows.persistence < 10
    assert windows.strategy.plan == plan.at_persistence(windows.persistence)


def test_keys_without_news_need_not_be_looked_at_unless_their_gate_has_opened(monkeypatch):
    """The shortcut of the harness: stepping every key at every last trigger publishes the same."""
    plan = make_plan(evidence_windows=4)
    bounding = build_strategy(plan).bounding
    spools = [spool(ZipfMandelbrotDay(users=700, keys=300, seed=seed), bounding, T) for seed in range(4)]

    def published() -> list[np.ndarray]:
        windows = WindowsInARow(plan, spools[0].key_names, remember=0)
        return [rows_of(windows, spooled)[T].estimates for spooled in spools]

    some = published()
    monkeypatch.setattr(Evidence, "tested", property(lambda self: np.arange(len(spools[0].key_names))))
    assert all(np.array_equal(a, b) for a, b in zip(some, published(), strict=True))
    alone = WindowsInARow(make_plan(), spools[0].key_names, remember=0)
    by_itself = [(rows_of(alone, spooled)[T].estimates != 0).sum() for spooled in spools]
    assert sum((each != 0).sum() for each in some[1:]) > 1.1 * sum(by_itself[1:]), "several windows find more"


def test_the_stages_show_the_same():
    """Against the slow reference, to which tests of the stages compare what they publish: the same keys, estimates and noise."""
    given = settings(
        keys={"remember": 6},
        topics={"bounded_partitions": 2},
        input={"user": "u", "key": ["k"]},
        clock={"kind": "producer"},
        start={"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
    )
    secret, epoch = b"s" * 32, "ab" * 16
    keys, users, day_ms = 300, 900, 24 * HOUR
    names = [b"%d" % code for code in range(keys)]
    rng = np.random.default_rng(7)
    events, workloads = [], []
    for number in range(3):
        user = np.repeat(np.arange(users, dtype=np.int32), 6)
        popular = np.minimum(rng.geometric(0.012, len(user)) - 1, keys - 1)
        key = np.where(rng.random(len(user)) < 0.1 * number, (popular + 150) % keys, popular).astype(np.int32)
        time = rng.integers(0, day_ms, len(user), dtype=np.int32)
        order = np.argsort(time, kind="stable")
        begin = BEGIN + number * day_ms
        events += [
            (0, number * len(user) + place, begin + int(time[row]), {"u": int(user[row]), "k": int(key[row])})
            for place, row in enumerate(order.tolist())
        ]
        records = sort_records(user[order], key[order], time[order], users)
        workloads.append(FileWorkload(name="given", records=records, key_names=names))
    wanted = expected(given, events, secret=secret, epoch=epoch)

    plans = b"".join(plan.digest() for plan in given.plans())
    config = blake2b(given.config_digest() + plans, digest_size=32, person=b"susurrus-digest").digest()
    source = NoiseSource(secret, epoch=bytes.fromhex(epoch), config=config, pipeline=given.pipeline.name)
    strategy = HistogramPipeline(given).strategy
    windows = WindowsInARow(strategy.plan, names, remember=6, partitions=2)
    hashes = placements(names)
    smoothed = hidden = 0
    for number, workload in enumerate(workloads):
        index = given.calendar.window_at(BEGIN + number * day_ms)

        def priorities(chunk, before, index=index):
            return RecordOrder(secret).priorities(
                index, placements([b"%d" % u for u in range(users)])[chunk.user], hashes[chunk.key]
            )

        seen = {}
        spooled = spool(workload, strategy.bounding, 12, priorities=priorities)
        windows.next(
            spooled,
            0,
            noise=source.window(index),
            checked=lambda trigger, rows, seen=seen: seen.update({trigger: rows}),
        )
        for trigger, rows in seen.items():
            theirs = {
                key: row
                for (start, at, key), row in wanted.items()
                if (start, at) == (BEGIN + number * day_ms, trigger)
            }
            ours = {names[code]: rows.direct[code].astype(int).tolist() for code in np.flatnonzero(rows.shown).tolist()}
            assert ours == theirs, (number, trigger)
            smoothed += rows.smoothed.sum()
            hidden += (rows.public & ~rows.shown).sum()
    assert smoothed > 500
    assert hidden > 10
    assert windows.persistence, "shares followed what had lasted"
