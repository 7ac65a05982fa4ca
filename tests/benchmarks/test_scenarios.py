"""The comparison of strategies: its days are what they are named after, its coverage sees error bars that are too short."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scenario_tables
import scenarios
import tables
from scenario_workloads import HOUR_MS, Bursts, Drift, LateKeys, LongLists, Zipf
from sweep import hold

from susurrus.agents.planning.spool import spool
from susurrus.agents.planning.workload import (
    DAY_MS,
    FileWorkload,
    UserRecords,
    ZipfMandelbrotDay,
    sort_records,
    zipf_mandelbrot,
)
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of

DAYS = [
    Zipf(name="zipf-1.7", exponent=1.7, users=900, keys=500),
    Zipf(name="flat", exponent=0.0, users=900, keys=500),
    *(kind(users=900, keys=500) for kind in (LateKeys, Bursts, Drift, LongLists)),
]


def whole(day) -> UserRecords:
    """All chunks as one."""
    chunks = list(day.chunks())
    starts = np.cumsum([0, *(records.users for records in chunks)])
    columns = {name: np.concatenate([getattr(records, name) for records in chunks]) for name in ("key", "time")}
    user = np.concatenate([records.user + start for records, start in zip(chunks, starts, strict=False)])
    return UserRecords(user=user, **columns, users=int(starts[-1]))


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_days_follow_the_seed_and_are_sorted(day, monkeypatch):
    monkeypatch.setattr("susurrus.agents.planning.workload.CHUNK_USERS", 400)
    first, again, other = whole(day), whole(day), whole(replace(day, seed=1))
    for name in ("user", "key", "time"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert len(first.key) != len(other.key) or not np.array_equal(first.key, other.key)
    assert first.users == 900
    assert len(day.key_names) == len(set(day.key_names)) == 500
    assert (np.diff(first.user.astype(np.int64) * DAY_MS + first.time) >= 0).all()
    assert (first.time.min(), first.key.min()) >= (0, 0)
    assert first.time.max() < DAY_MS
    assert first.key.max() < 500


def test_a_zipf_law_holds_for_users_and_a_user_has_a_key_once():
    records = whole(Zipf(name="zipf", exponent=1.1, users=40_000, keys=300))
    pairs = np.unique(records.user.astype(np.int64) * 300 + records.key)
    assert len(pairs) == len(records.key)
    law = zipf_mandelbrot(300, 1, 1.1)
    # Of a user with n draws, a key has a record unless all n miss it; the paper's law of n is known.
    draws = zipf_mandelbrot(100_000, 26, 6.738)[:400]
    expected = [1 - np.sum(draws * (1 - p) ** np.arange(1, 401)) for p in law]
    found = np.bincount(records.key, minlength=300) / 40_000
    assert found == pytest.approx(np.array(expected), abs=5 * np.sqrt(0.25 / 40_000))
    assert found[0] > 20 * found[50]


def test_a_flat_law_has_no_popular_keys():
    records = whole(Zipf(name="flat", exponent=0.0, users=20_000, keys=50))
    counts = np.bincount(records.key, minlength=50)
    assert counts.max() < 1.1 * counts.min()


def test_late_keys_exist_from_their_hour_on_only():
    day = LateKeys(users=20_000, keys=200)
    records, begins = whole(day), day.begins()
    late = begins > 0
    assert 60 < late.sum() < 140
    assert set(begins[late] // HOUR_MS) <= set(range(1, 24))
    assert (begins % HOUR_MS == 0).all()
    assert (records.time >= begins[records.key]).all()
    early = np.bincount(records.key[records.time < HOUR_MS], minlength=200)
    assert (early[late] == 0).all()
    assert (early[~late] > 0).mean() > 0.95
    day_after = np.bincount(records.key, minlength=200)
    assert (day_after[late] > 0).all(), "they have as many records as others"


def test_bursts_last_minutes():
    day = Bursts(users=20_000, keys=200)
    records = whole(day)
    _, length = day.bursts()
    first, last = np.full(200, DAY_MS), np.zeros(200, np.int64)
    np.minimum.at(first, records.key, records.time)
    np.maximum.at(last, records.key, records.time)
    short = length < DAY_MS
    assert 60 < short.sum() < 140
    assert (last - first)[short].max() < 5 * 60_000
    assert (last - first)[~short].min() > DAY_MS // 2
    assert np.ptp(first[short]) > DAY_MS // 2, "at different times"


def test_popularity_drifts_from_one_order_to_another():
    day = Drift(users=200_000, keys=5_000)
    records, evening = whole(day), day.evening()
    risen, fallen = evening[:500], np.setdiff1d(np.arange(500), evening[:500])
    risen = np.setdiff1d(risen, np.arange(500))
    hour = records.time // HOUR_MS
    shares = [
        [np.isin(records.key[hour == h], some).mean() / len(some) for h in (0, 12, 23)] for some in (risen, fallen)
    ]
    assert shares[0][0] * 1.3 < shares[0][1] < shares[0][2] / 1.1
    assert shares[1][2] * 1.3 < shares[1][1] < shares[1][0] / 1.1


def test_long_lists_have_dozens_of_distinct_keys():
    records = whole(LongLists(users=3_000, keys=400))
    pairs = np.unique(records.user.astype(np.int64) * 400 + records.key)
    assert len(pairs) == len(records.key)
    lengths = np.bincount(records.user)
    assert (lengths.min(), lengths.max(), len(lengths)) == (30, 60, 3_000)


def test_list_lengths_are_means_over_the_users_of_a_key():
    user, key = np.array([0, 0, 0, 1, 2, 2], np.int32), np.array([0, 1, 1, 0, 1, 3], np.int32)
    records = sort_records(user, key, np.arange(6, dtype=np.int32), 3)
    lists = scenarios.list_lengths(FileWorkload(name="lists", records=records, key_names=[b"0", b"1", b"2", b"3"]))
    assert lists.tolist() == [1.5, 2.0, 0.0, 2.0]


def test_classes_divide_the_rows():
    new = np.array([True, False, False, True, False])
    found = dict(scenarios.classes(new, np.array([10, 50, 500, 501, 49]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])))
    assert found["below 50"].tolist() == [True, False, False, False, True]
    assert found["50 to 500"].tolist() == [False, True, True, False, False]
    assert found["above 500"].tolist() == [False, False, False, True, False]
    assert found["short lists"].tolist() == [True, True, True, False, False]
    assert found["longest tenth"].tolist() == [False] * 4 + [True]
    assert found["new, long lists"].tolist() == [False, False, False, True, False]
    assert found["old, all"].tolist() == (~new).tolist()
    assert all(not mask.any() for _, mask in scenarios.classes(new[:0], np.zeros(0, np.int64), np.zeros(0)))


@pytest.fixture(scope="module")
def day():
    return hold(ZipfMandelbrotDay(users=30_000, keys=700))


def measured(day, strategy, changed=lambda step: step, **changes):
    lists = scenarios.list_lengths(day)
    return scenarios.measure(
        day, strategy, lists, **{"triggers": 8, "seed": 3, "epsilon": 6.0, "delta": 1e-6, "changed": changed, **changes}
    )


def by_class(row, trigger, pair="row"):
    return {one["class"]: one for one in row["coverage"] if (one["trigger"], one["pair"]) == (trigger, pair)}


@pytest.mark.parametrize("strategy", scenarios.STRATEGIES)
def test_the_intervals_of_a_sound_strategy_hold_and_those_of_half_the_error_do_not(strategy, day):
    """Nearly every key is published long before the middle, so that none is there because of its noise."""
    sound = measured(day, strategy)
    broken = measured(day, strategy, lambda step: replace(step, std_errors=step.std_errors / 2))
    pair = "direct" if strategy == "closing" else "row"
    for trigger in (4, 8):
        found = by_class(sound, trigger, pair if trigger == 8 else "row")["all"]
        assert found["rows"] > 600
        assert found["kept"] == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / 600))
        assert abs(found["kept_bias"]) < 0.25
        # 1.96 / 2 standard deviations hold two in three.
        wrong = by_class(broken, trigger)["all"]
        assert wrong["kept"] < 0.75
    assert sound["checkpoints"] == broken["checkpoints"]


@pytest.mark.parametrize("chunk", [65_536, 37])
def test_the_direct_pair_is_the_streams_own(day, chunk, monkeypatch):
    """Beside calibrated rows, whose errors are smaller: the same standard error for all, however the keys are divided."""
    monkeypatch.setattr("susurrus.agents.planning.offline.STEP_KEYS", chunk)
    plan = plan_of(
        strategy="closing", triggers=8, epsilon=6.0, delta=1e-6, max_records=36, columns=(Column(name="visits", kind="count"),)
    )  # fmt: skip
    expected = build_strategy(plan).values[0].std[-1]
    row = measured(day, "closing")
    direct, calibrated = by_class(row, 8, "direct"), by_class(row, 8)
    assert set(direct) == set(calibrated)
    assert {one["rows"] for one in direct.values()} == {one["rows"] for one in calibrated.values()}
    assert all(one["std_error"] == pytest.approx(expected, abs=1e-3) for one in direct.values())
    assert calibrated["all"]["std_error"] < 0.95 * expected
    assert not by_class(row, 4, "direct")


def test_both_truths_are_the_workloads(day):
    """Without noise, kept intervals hold exactly the kept counts, and what the caps drop is missing from the true ones."""
    row = measured(day, "toeplitz", lambda step: replace(step, estimates=step.states.sums))
    (records,) = day.chunks()
    plan = plan_of(
        strategy="toeplitz", triggers=8, epsilon=6.0, delta=1e-6, max_records=32, columns=(Column(name="visits", kind="count"),)
    )  # fmt: skip
    spooled = spool(day, build_strategy(plan).bounding, 8)
    kept = np.bincount(np.concatenate([key for parts in spooled.rows for key, _ in parts]), minlength=700)
    true = np.bincount(records.key, minlength=700)
    found = by_class(row, 8)["all"]
    assert (found["kept"], found["kept_bias"]) == (1.0, 0.0)
    assert found["rows"] > 650
    assert (kept < true).any()
    score = (kept - true) / found["std_error"]
    assert found["true_bias"] == pytest.approx(score.mean(), rel=0.05)
    assert found["true_bias"] < 0


def test_the_command_appends_lines_that_become_tables(tmp_path, monkeypatch, capsys):
    out = tmp_path / "scenarios.jsonl"
    for seeds in ("0,1", "1"):
        arguments = ["--out", str(out), "--only", "nasa,zipf-1.1", "--seeds", seeds, "--users", "2000"]
        assert scenarios.main([*arguments, "--micro-batches", "8", "--strategies", "closing;toeplitz"]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 12
    assert {line["scenario"] for line in lines} == {"nasa", "zipf-1.1"}
    assert all(len(line["checkpoints"]) == 4 for line in lines)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    errors = list(scenario_tables.errors())[2:]
    assert [line.split(" | ")[:3] for line in errors] == [
        ["| zipf-1.1, 2,000 users", "toeplitz", "2"],
        ["| zipf-1.1, 2,000 users", "closing", "2"],
        ["| nasa, 2,365 users", "toeplitz", "2"],
        ["| nasa, 2,365 users", "closing", "2"],
    ]
    shares = list(scenario_tables.coverage("end"))[2:]
    assert [line.split(" | ")[1] for line in shares] == ["toeplitz", "closing", "closing, direct"] * 2
    number = sum(one["rows"] for line in lines[:8] for one in line["coverage"] if one["class"] == "all" and
                 (line["scenario"], line["strategy"], one["trigger"]) == ("nasa", "toeplitz", 8))  # fmt: skip
    assert f"| {number} |" in shares[3]
    assert scenarios.main(["--out", str(out), "--only", "retail"]) == 2
    assert "--retail" in capsys.readouterr().err


def test_shares_of_all_seeds_are_weighted_by_their_rows():
    row = {"scenario": "a", "users": 5, "strategy": "toeplitz", "records": 10, "kept_records": 9, "micro_batches": 4}
    one = {"trigger": 4, "pair": "row", "class": "all"}
    rows = [
        {**row, "seed": 0, "coverage": [{**one, "rows": 300, "kept": 0.9, "true": 0.8}]},
        {**row, "seed": 1, "coverage": [{**one, "rows": 100, "kept": 0.5, "true": 0.4}]},
    ]
    found = scenario_tables.classes_of(rows, "end", "row")
    assert scenario_tables.shares(found["all"]) == "80.0 / 70.0"
    assert scenario_tables.shares([rows[1]["coverage"][0]]) == "(50.0 / 40.0)"
    assert scenario_tables.shares([{**one, "rows": 19, "kept": 0.5, "true": 0.4}]) == ""
