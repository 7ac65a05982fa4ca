"""The cap that a user needs, against the pipeline's own caps: under it all is kept, under a smaller one something is lost."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.needs import needs_of
from susurrus.agents.planning.sample import Sample
from susurrus.mechanisms.histogram.bounding import UserKeys
from susurrus.mechanisms.histogram.record_order import RecordOrder
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics.wire.partitioner import placements
from tests.agents.planning.test_sample import START, settings_with

HOUR = 3_600_000
COUNT = [{"name": "n"}]


def sample_of(records: list[tuple[int, int, int]], values: Any = None, *, timed: bool = True) -> Sample:
    """records: (user, key, time in hours); sorted by user and time, as they come."""
    records = sorted(records, key=lambda record: (record[0], record[2]))
    n = len(records)
    user, key, time = (np.array(column, np.int64) for column in zip(*records, strict=True))
    return Sample(
        user=user,
        key=key.astype(np.int32),
        time=START + time * HOUR,
        values=np.zeros((n, 0), np.int64) if values is None else np.array(values).reshape(n, -1),
        users=len(set(user.tolist())),
        key_names=[b"%d" % code for code in range(40)],
        read=n,
        dropped={},
        timed=timed,
    )


def kept(sample: Sample, settings: HistogramSettings, user: int, window: int) -> int:
    """How many records of a user and window the pipeline keeps, trigger by trigger."""
    bounding = build_strategy(settings.plan()).bounding
    rows = (sample.user == user) & (settings.calendar.window_of(sample.time) == window)
    key, time = sample.key[rows], sample.time[rows]
    trigger = (time - settings.calendar.window_start(window)) // settings.window.trigger_every + 1  # type: ignore[arg-type]
    turn = RecordOrder(b"susurrus tune").priorities(0, np.zeros(40, np.uint32), placements(sample.key_names))
    state, total = UserKeys.empty(1), 0
    for number in range(1, settings.triggers + 1):
        now = np.flatnonzero(trigger == number)
        now = now[np.argsort(turn[key[now]], kind="stable")]
        public = None if bounding.lag is None else np.zeros(len(now), np.bool_)
        outcome = bounding.close(np.zeros(len(now), np.int32), key[now], np.array([number], np.int32), state, public)
        state, total = outcome.state, total + int(outcome.kept.sum())
    return total


def with_cap(cap: int, strategy: str, bounds: dict[str, Any], columns: Any) -> HistogramSettings:
    return settings_with(
        bounds={"max_records_per_user": cap, **bounds},
        columns=columns,
        privacy={"strategy": strategy},
        window={"length": "1d", "trigger_every": "6h"},
    )


@pytest.mark.parametrize(
    ("strategy", "bounds", "columns"),
    [
        ("toeplitz", {}, COUNT),
        ("toeplitz", {"max_records_per_key": 2, "max_keys_per_user": 2}, COUNT),
        ("closing", {}, COUNT),
        ("closing", {"max_records_per_key": 3}, [*COUNT, {"name": "u", "kind": "users"}]),
    ],
)
@given(
    records=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 47)), min_size=1, max_size=14
    ).filter(lambda records: {user for user, _, _ in records} == set(range(len({r[0] for r in records}))))
)
def test_the_need_is_the_smallest_cap_that_loses_nothing(
    strategy: str, bounds: dict[str, Any], columns: Any, records: list[tuple[int, int, int]]
) -> None:
    sample = sample_of(records)
    wide = with_cap(64, strategy, bounds, columns)
    found = needs_of(sample, wide, build_strategy(wide.plan()).bounding)
    windows = wide.calendar.window_of(sample.time)
    pairs = sorted(set(zip(sample.user.tolist(), windows.tolist(), strict=True)))
    assert found.user.tolist() == [user for user, _ in pairs]
    for (user, window), need in zip(pairs, found.records.tolist(), strict=True):
        everything = kept(sample, wide, user, window)
        least = max(need, bounds.get("max_records_per_key", 1))
        assert kept(sample, with_cap(least, strategy, bounds, columns), user, window) == everything
        if need > least - 1 >= bounds.get("max_records_per_key", 1):
            assert kept(sample, with_cap(need - 1, strategy, bounds, columns), user, window) < everything
    assert len(found.by) == sum(kept(sample, wide, user, window) for user, window in pairs)


def test_late_records_need_less_of_a_ledger_and_records_without_times_the_most() -> None:
    settings = with_cap(32, "closing", {}, COUNT)
    bounding = build_strategy(settings.plan()).bounding

    def need(hour: int, *, timed: bool = True) -> int:
        sample = sample_of([(0, key, hour) for key in range(40)], timed=timed)
        return int(needs_of(sample, settings, bounding).records[0])

    assert need(0) == 40
    assert need(23) < need(7) < 40
    assert need(23, timed=False) == 40


def test_sizes_are_those_of_records_that_could_count() -> None:
    settings = settings_with()
    sample = sample_of([(0, 0, 1), (0, 0, 2), (0, 1, 3), (1, 0, 4)], [-5, 7, 9, 2])
    found = needs_of(sample, settings, build_strategy(settings.plan()).bounding)
    assert found.by.tolist() == [0, 0, 1]
    assert found.sizes[:, 0].tolist() == [5, 9, 2]
