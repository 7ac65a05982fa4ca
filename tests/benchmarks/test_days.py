"""Days in a row: the data are what they say, and the command's figures are those of rows that can be counted by hand."""

import json
from collections import Counter

import days
import numpy as np
from days_workloads import RETAIL_BASKETS, nasa, retail, synthetic

from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.planning.in_a_row import WindowRows
from susurrus.agents.planning.spool import spool
from susurrus.agents.planning.workload import DAY_MS
from susurrus.mechanisms.histogram.bounding import Bounding


def counts(workload) -> np.ndarray:
    total = np.zeros(len(workload.key_names), np.int64)
    for chunk in workload.chunks():
        total += np.bincount(chunk.key, minlength=len(total))
    return total


def test_keys_persist_by_name_and_users_do_not():
    same = [counts(day) for day in synthetic(20_000, drift=0, days=3, seed=1, keys=500)]
    assert not np.array_equal(same[0], same[1])
    assert np.corrcoef(same[0], same[2])[0, 1] > 0.8
    other = [counts(day) for day in synthetic(20_000, drift=1, days=2, seed=1, keys=500)]
    assert abs(np.corrcoef(*other)[0, 1]) < 0.3


def test_retail_is_cut_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "retail.dat"
    path.write_text("".join(f"{number % 5} 9\n" for number in range(7 * RETAIL_BASKETS + 3)))
    found = list(retail(path, seed=1))
    assert [day.users for day in found] == [RETAIL_BASKETS] * 7
    assert found[0].key_names == [b"0", b"1", b"2", b"3", b"4", b"9"]
    assert counts(found[6])[5] == RETAIL_BASKETS


def test_the_web_log_keeps_its_times_and_hosts():
    found = nasa()
    total = sum(counts(day) for day in found)
    visits = WebLog().visits
    expected = Counter(visit.url.encode() for visit in visits)
    assert total.sum() > 0.99 * expected.total()
    assert all(total[code] <= expected[name] for code, name in enumerate(found.names))
    (records,) = found.each[0].chunks()
    assert records.time.max() < DAY_MS
    assert records.users == len({visit.host for visit in visits if visit.time < visits[0].time + 7740})


def test_figures_are_of_what_readers_see_against_uncapped_counts():
    law = synthetic(40, drift=0, days=1, seed=2, keys=5)
    spooled = spool(law.each[0], Bounding(max_records=1, max_records_per_key=1), 4)
    true = spooled.truth[-1]
    before = np.array([true[0], 3 * true[1] + 1, 0, 0, 0])
    estimates = np.array([true[0] + 0.4 * true[0], 0, 50, true[3], -7.0])
    rows = WindowRows(
        public=np.ones(5, np.bool_),
        shown=np.array([True, True, True, False, True]),
        smoothed=np.array([True, True, False, True, False])[:, None],
        direct=estimates[:, None] + 30,
        direct_errors=np.full((5, 1), 10.0),
        estimates=estimates[:, None],
        std_errors=np.full((5, 1), 5.0),
        own=estimates[:, None] + 30,
        own_errors=np.full((5, 1), 10.0),
        rates=np.zeros((5, 1)),
        rate_variances=np.zeros((5, 1)),
    )
    found = days.seen(4, rows, days.Truth(spooled, before), np.array([True, True, False, False, False]))
    shown = np.array([estimates[0], 0, 50, 0, -7])
    off = np.abs(shown - true)
    assert (found["rows"], found["shown"]) == (5, 4)
    assert found["usable"] == sum(off[k] <= true[k] / 2 for k in (0, 1, 2, 4))
    assert found["records"] == true.sum()
    assert found["l1"] == round(off.sum())
    assert found["l2"] == round(float(np.sqrt((off**2).sum())), 1)
    smoothed = [off[k] <= 10.3 for k in (0, 1)]
    assert found["smoothed"]["all"] == [2, sum(smoothed)]
    assert found["smoothed"]["persisting"] == [1, smoothed[0]]
    assert found["smoothed"]["changed"] == [1, smoothed[1]]
    direct = [abs(estimates[k] + 30 - true[k]) <= 20.1 for k in (0, 1, 2, 4)]
    assert found["direct"]["all"] == [4, sum(direct)]
    assert found["direct"]["new"] == [2, direct[2] + direct[3]]
    assert found["direct"]["large"] == [0, 0]


def test_command_writes_a_row_for_each_day_and_variant(tmp_path):
    out = tmp_path / "days.jsonl"
    days.main(["--users", "3000", "--days", "2", "--micro-batches", "8", "--seed", "3", "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["day"], row["variant"]) for row in rows] == [(d, v) for d in (1, 2) for v in days.VARIANTS]
    for row in rows:
        assert [at["trigger"] for at in row["checkpoints"]] == [2, 4, 6, 8]
        assert row["checkpoints"][-1]["l1"] == row["records"], "nothing is above any threshold"
