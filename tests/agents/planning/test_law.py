"""The synthetic law has the size, the popularity and the times that it says, and the same data every time."""

import numpy as np
import pytest

from susurrus.agents.planning.law import Law
from susurrus.agents.planning.workload import DAY_MS
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.raw import ValueField


@pytest.mark.parametrize("mean", [1, 1.5, 5.905, 40])
def test_users_have_so_many_records_on_average(mean):
    (records,) = Law(users=40_000, records_per_user=mean).chunks()
    assert records.users == 40_000
    assert np.bincount(records.user, minlength=40_000).min() >= 1
    assert len(records.key) / 40_000 == pytest.approx(mean, rel=0.03)


def test_keys_follow_a_zipf_law():
    (records,) = Law(users=50_000, zipf=1.2, shift=3, keys=200).chunks()
    found = np.bincount(records.key, minlength=200) / len(records.key)
    law = (np.arange(1, 201) + 3.0) ** -1.2
    assert found[:20] == pytest.approx((law / law.sum())[:20], rel=0.1)


def test_times_follow_the_profile_and_leave_room_for_late_records():
    for profile, night in (("uniform", 0.25), ("day", 0.069)):
        (records,) = Law(users=20_000, profile=profile, occupied=0.5).chunks()
        assert records.time.max() < DAY_MS / 2
        assert (records.time < DAY_MS / 8).mean() == pytest.approx(night, abs=0.01)
        assert (np.diff(records.user.astype(np.int64) * DAY_MS + records.time) >= 0).all()


def test_values_lie_within_their_bounds():
    fields = (ValueField("a", 100.0, 1.0), ValueField("b", 10.0, 1.0, lower=4.0))
    (records,) = Law(users=2_000, fields=fields).chunks()
    assert (records.values.min(axis=0).tolist(), records.values.max(axis=0).tolist()) == ([0, 4], [100, 10])


def test_the_data_follow_the_seed(monkeypatch):
    monkeypatch.setattr("susurrus.agents.planning.law.CHUNK_USERS", 300)
    (first, *_), (again, *_), (other, *_) = (list(Law(users=900, seed=seed).chunks()) for seed in (1, 1, 2))
    assert np.array_equal(first.key, again.key)
    assert len(first.key) != len(other.key) or not np.array_equal(first.key, other.key)
    assert len(list(Law(users=900).chunks())) == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"users": 0}, "users=0"),
        ({"users": 5, "records_per_user": 0.5}, "records_per_user=0.5: must be at least 1"),
        ({"users": 5, "records_per_user": 1e6}, "at most 1000"),
        ({"users": 5, "zipf": float("nan")}, "zipf=nan"),
    ],
)
def test_an_impossible_law_is_refused(wrong, said):
    with pytest.raises(ConfigurationError, match=said):
        Law(**wrong)
