"""The forecast of a later window: what it repeats, what it assumes, and that it is the harness's own figure."""

import numpy as np
import pytest

from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.planning.in_a_row import WindowsInARow
from susurrus.agents.planning.later import CHURN, WINDOWS, RedrawnWorkload, churn_of, later_forecast, swapped
from susurrus.agents.planning.law import Law
from susurrus.agents.planning.spool import spool
from susurrus.agents.planning.windows import windows_of
from susurrus.agents.planning.workload import DAY_MS, FileWorkload, sort_records
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.planning.settings import BEGIN, HOUR, sample, settings

REMEMBERS = {"keys": {"remember": 6}}


def window(counts: list[int]) -> FileWorkload:
    """So many users of each key, with one record each."""
    key = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    user = np.arange(len(key), dtype=np.int32)
    time = np.random.default_rng(1).integers(0, DAY_MS, len(key), dtype=np.int32)
    names = [b"%d" % code for code in range(len(counts))]
    return FileWorkload(name="given", records=sort_records(user, key, time, len(key)), key_names=names)


def test_a_share_of_the_keys_swaps_places_every_day():
    place = np.arange(1000, dtype=np.int32)
    found = swapped(place, 0.1, np.random.default_rng(1))
    assert sorted(found) == sorted(place)
    assert 80 <= (found != place).sum() <= 100
    assert np.array_equal(place, swapped(place, 0, np.random.default_rng(1)))


def test_drawn_users_have_all_of_their_records():
    rng = np.random.default_rng(2)
    user = np.repeat(np.arange(50, dtype=np.int32), 4)
    records = sort_records(
        user, user * 4 + rng.integers(0, 4, 200, dtype=np.int32), rng.integers(0, DAY_MS, 200, dtype=np.int32), 50
    )
    given = FileWorkload(name="given", records=records, key_names=[b"%d" % code for code in range(200)])
    (drawn,) = RedrawnWorkload(given, 1).chunks()
    assert drawn.users == 50
    seen = set()
    for number in range(50):
        mine = drawn.user == number
        (origin,) = set((drawn.key[mine] // 4).tolist())
        seen.add(origin)
        theirs = records.user == origin
        assert drawn.key[mine].tolist() == records.key[theirs].tolist()
        assert drawn.time[mine].tolist() == records.time[theirs].tolist()
    assert 20 < len(seen) < 45, "with replacement"


def test_churn_is_how_many_large_keys_have_another_share_in_the_next_window():
    large = [100] * 20
    assert churn_of([window([*large, 5])]) is None
    assert churn_of([window([60] * 9)] * 2) is None, "too few keys"
    assert churn_of([window([*large, 5]), window([*large, 0])]) == 0
    assert churn_of([window(large), window([200] * 20)]) == 0, "shares count, not sizes"
    gone = [0, 30, *[100] * 17, 300]
    assert churn_of([window(large), window(gone)]) == 3 / 20


def test_it_is_what_seven_windows_in_a_row_show():
    given = settings(**REMEMBERS)
    law = Law(users=3000, keys=300)
    found = later_forecast(given, [law], churn=0.0)
    assert found is not None
    strategy = HistogramPipeline(given).strategy
    windows = WindowsInARow(strategy.plan, law.key_names, remember=6, partitions=given.topics.bounded_partitions)
    rows: list[dict[int, tuple[int, float]]] = []
    for seed in range(WINDOWS):
        spooled = spool(Law(users=3000, keys=300, seed=seed), strategy.bounding, 12)
        seen = {}
        remembered = windows.memory.keys.sum()

        def look(trigger, of, spooled=spooled, seen=seen):
            true = spooled.truth[spooled.ends.index(trigger)]
            off = np.abs(np.where(of.shown, of.estimates[:, 0], 0) - true)
            seen[trigger] = (int((of.shown & (2 * off <= true) & (true > 0)).sum()), off.sum() / true.sum())

        windows.next(spooled, 0, checked=look)
        rows.append(seen)
    for views, expected in ((found.first, rows[0]), (found.later, rows[-1])):
        assert {view.trigger: (view.usable, view.relative) for view in views} == pytest.approx(expected)
    assert found.remembered == remembered > 0
    assert found.later[0].usable > found.first[0].usable, "memory is worth something"
    assert not found.measured


def test_what_is_assumed_is_said():
    given = settings(**REMEMBERS)
    law = Law(users=500, keys=50)
    found = later_forecast(given, [law])
    assert found is not None
    assert (found.churn, found.measured, found.window, found.column) == (CHURN, False, WINDOWS, "count")
    same = [window([100] * 20), window([100] * 20)]
    measured = later_forecast(given, same)
    assert measured is not None
    assert (measured.churn, measured.measured) == (0, True)
    told = later_forecast(given, same, churn=0.5)
    assert told is not None
    assert (told.churn, told.measured) == (0.5, False)
    with pytest.raises(ConfigurationError, match=r"churn=1\.5"):
        later_forecast(given, same, churn=1.5)


def test_evidence_alone_makes_windows_differ_too():
    given = settings(keys={"remember": 0, "evidence_windows": 4})
    found = later_forecast(given, [Law(users=3000, keys=300)], churn=0.0)
    assert found is not None
    assert found.remembered == 0
    assert found.later[-1].usable > found.first[-1].usable
    assert found.later[0].shown < found.later[-1].shown


def test_there_is_none_where_nothing_is_remembered_or_known():
    law = Law(users=500, keys=50)
    assert later_forecast(settings(keys={"remember": 0}), [law]) is None
    assert later_forecast(settings(privacy={"strategy": "toeplitz"}), [law]) is None
    assert later_forecast(settings(**REMEMBERS), []) is None


def test_other_columns_and_declared_keys_are_part_of_it():
    rng = np.random.default_rng(3)
    user = np.repeat(np.arange(900), 4)
    data = sample(
        user,
        rng.geometric(0.2, len(user)) - 1,
        BEGIN + rng.integers(0, 24 * HOUR, len(user)),
        np.ones((len(user), 1), int),
    )
    given = settings(
        columns=[
            {"name": "bytes", "kind": "sum", "field": "b", "bound": 50.0, "lower": 0.0, "grid": 1.0},
            {"name": "people", "kind": "users"},
        ],
        keys={"remember": 6, "declared": ["key-0", "never"]},
    )
    found = later_forecast(given, [window.workload for window in windows_of(data, given)], churn=0.0)
    assert found is not None
    assert found.column == "people"
    assert 0 < found.first[-1].relative < 0.2
    assert 0 < found.later[-1].relative < 0.2
    assert found.first[-1].shown >= 2, "declared keys are shown"
    assert 3 < found.remembered < 25
