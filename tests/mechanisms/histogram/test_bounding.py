"""The vectorised caps against the rule spelled out as a loop, and what removing one user may change."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, Bounded, Bounding, UserKeys

WEIGHTS = np.array([[100, 200, 300], [70, 140, 210], [50, 100, 150]], np.int64)


def loop(rows: list[tuple[int, int]], history: list[dict[int, int]], caps: dict[str, Any]) -> list[tuple[bool, bool]]:
    """(kept, first) of each row; `history` maps key to kept records, in order, and is updated."""
    out = []
    for user, key in rows:
        seen = history[user]
        kept = (
            seen.get(key, 0) < caps["max_records_per_key"]
            and sum(seen.values()) < caps["max_records"]
            and (key in seen or caps["max_keys"] is None or len(seen) < caps["max_keys"])
        )
        first = kept and key not in seen
        out.append((kept, first))
        if kept:
            seen[key] = seen.get(key, 0) + 1
    return out


def as_state(history: list[dict[int, int]]) -> UserKeys:
    keys = sum(map(len, history))
    return UserKeys(
        indptr=np.cumsum([0] + [len(seen) for seen in history]).astype(np.int64),
        key=np.array([key for seen in history for key in seen], np.int32),
        count=np.array([count for seen in history for count in seen.values()], np.int32),
        unranked=np.zeros(keys, np.bool_),
        kept=np.array([sum(seen.values()) for seen in history], np.int64),
        spent=np.zeros(keys, np.int64),
        charged=np.zeros(len(history), np.int64),
    )


def close(rows: list[tuple[int, int]], state: UserKeys, caps: dict[str, Any], triggers: Any = None) -> Bounded:
    user = np.array([u for u, _ in rows], np.int32)
    key = np.array([k for _, k in rows], np.int32)
    trigger = np.ones(len(state.kept), np.int32) if triggers is None else np.asarray(triggers, np.int32)
    return Bounding(**caps).close(user, key, trigger, state)


CAPS = st.tuples(st.integers(1, 7), st.integers(1, 3), st.none() | st.integers(1, 4)).map(
    lambda c: {"max_records": c[0], "max_records_per_key": min(c[0], c[1]), "max_keys": c[2]}
)
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=25), min_size=1, max_size=4)


@given(batches=BATCHES, caps=CAPS)
def test_equals_the_rule_written_as_a_loop(batches: list[list[tuple[int, int]]], caps: dict[str, Any]) -> None:
    history: list[dict[int, int]] = [{} for _ in range(4)]
    state = UserKeys.empty(4)
    for batch in batches:
        rows = sorted(batch, key=lambda row: row[0])
        expected = loop(rows, history, caps)
        got = close(rows, state, caps)
        assert list(zip(got.kept.tolist(), got.first.tolist(), strict=True)) == expected
        assert got.weight.tolist() == [WEIGHT_ONE * first for _, first in expected]
        state = got.state
        want = as_state(history)
        for field in ("indptr", "key", "count", "kept"):
            assert getattr(state, field).tolist() == getattr(want, field).tolist(), field


@given(batch=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=40), caps=CAPS, gone=st.integers(0, 3))
def test_removing_a_user_leaves_every_other_record_as_it_was(
    batch: list[tuple[int, int]], caps: dict[str, Any], gone: int
) -> None:
    rows = sorted(batch, key=lambda row: row[0])
    others = [row for row in rows if row[0] != gone]
    everyone, without = close(rows, UserKeys.empty(4), caps), close(others, UserKeys.empty(4), caps)
    stay = np.array([user != gone for user, _ in rows], np.bool_)
    for field in ("kept", "first", "weight"):
        assert getattr(everyone, field)[stay].tolist() == getattr(without, field).tolist()


PUBLIC = st.lists(st.sets(st.integers(0, 5)), min_size=4, max_size=4)
"""Keys that are public at each trigger: any sets, also such as no output could lead to."""


def close_with_public(
    rows: list[tuple[int, int]], state: UserKeys, caps: dict[str, Any], public: set[int], trigger: int
) -> Bounded:
    user, key = (np.array([row[i] for row in rows], np.int32) for i in range(2))
    known = np.isin(key, sorted(public))
    bounding = Bounding(**caps, weights=WEIGHTS, lag=1)
    return bounding.close(user, key, np.full(len(state.kept), trigger, np.int32), state, known)


@given(batches=BATCHES, caps=CAPS, public=PUBLIC)
def test_public_keys_take_no_rank_as_in_the_rule_written_as_a_loop(
    batches: list[list[tuple[int, int]]], caps: dict[str, Any], public: list[set[int]]
) -> None:
    history: list[dict[int, int]] = [{} for _ in range(4)]
    ranks: list[dict[int, int]] = [{} for _ in range(4)]  # per user: key -> rank, for keys that took one
    state = UserKeys.empty(4)
    for trigger, batch in enumerate(batches[:3], start=1):
        rows = sorted(batch, key=lambda row: row[0])
        got = close_with_public(rows, state, caps, public[trigger], trigger)
        for i, ((user, key), (kept, first)) in enumerate(zip(rows, loop(rows, history, caps), strict=True)):
            weight = 0
            if first and key not in public[trigger]:
                rank = ranks[user][key] = len(ranks[user])
                weight = int(WEIGHTS[rank, trigger - 1]) if rank < len(WEIGHTS) else 0
            outcome = (bool(got.kept[i]), bool(got.first[i]), int(got.weight[i]))
            assert outcome == (kept, first, weight)
        state = got.state
        want = as_state(history)
        for field in ("indptr", "key", "count", "kept"):
            assert getattr(state, field).tolist() == getattr(want, field).tolist(), field
        assert state.unranked.tolist() == [key not in ranks[user] for user in range(4) for key in history[user]]


@given(batches=BATCHES, caps=CAPS, public=PUBLIC, gone=st.integers(0, 3))
def test_once_the_public_keys_are_fixed_a_user_leaves_every_other_record_as_it_was(
    batches: list[list[tuple[int, int]]], caps: dict[str, Any], public: list[set[int]], gone: int
) -> None:
    states = [UserKeys.empty(4), UserKeys.empty(4)]
    for trigger, batch in enumerate(batches[:3], start=1):
        rows = sorted(batch, key=lambda row: row[0])
        stay = np.array([user != gone for user, _ in rows], np.bool_)
        others = [row for row in rows if row[0] != gone]
        everyone = close_with_public(rows, states[0], caps, public[trigger], trigger)
        without = close_with_public(others, states[1], caps, public[trigger], trigger)
        for field in ("kept", "first", "weight"):
            assert getattr(everyone, field)[stay].tolist() == getattr(without, field).tolist()
        states = [everyone.state, without.state]


@given(batches=BATCHES, caps=CAPS, public=PUBLIC)
def test_which_records_are_kept_does_not_depend_on_what_is_public(
    batches: list[list[tuple[int, int]]], caps: dict[str, Any], public: list[set[int]]
) -> None:
    states = [UserKeys.empty(4), UserKeys.empty(4)]
    for trigger, batch in enumerate(batches[:3], start=1):
        rows = sorted(batch, key=lambda row: row[0])
        some = close_with_public(rows, states[0], caps, public[trigger], trigger)
        none = close(rows, states[1], caps)
        assert some.kept.tolist() == none.kept.tolist()
        assert some.first.tolist() == none.first.tolist()
        states = [some.state, none.state]


@given(batch=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=40), public=st.sets(st.integers(0, 5)))
def test_weighing_apart_from_the_caps_gives_the_same(batch: list[tuple[int, int]], public: set[int]) -> None:
    """`weigh` is for callers that bounded before they knew what is public."""
    caps = {"max_records": 40, "max_records_per_key": 2, "max_keys": None}
    rows = sorted(batch, key=lambda row: row[0])
    half = close_with_public([row for row in rows if row[1] < 3], UserKeys.empty(4), caps, public, 1)
    rest = [row for row in rows if row[1] >= 3]
    got = close_with_public(rest, half.state, caps, public, 2)
    user, key = (np.array([row[i] for row in rest], np.int32) for i in range(2))
    owner = np.repeat(np.arange(4), np.diff(half.state.indptr))
    taken = np.bincount(owner[~half.state.unranked], minlength=4)
    ranked = got.first & ~np.isin(key, sorted(public))
    bounding = Bounding(**caps, weights=WEIGHTS, lag=1)
    weight = bounding.weigh(ranked, user, np.full(len(user), 2, np.int32), taken)
    assert weight.tolist() == got.weight.tolist()


def test_a_rank_once_taken_stays_taken_when_its_key_is_public_later() -> None:
    caps = {"max_records": 9, "max_records_per_key": 1, "max_keys": None}
    first = close_with_public([(0, 1)], UserKeys.empty(1), caps, set(), 1)
    second = close_with_public([(0, 2), (0, 3)], first.state, caps, {1, 2}, 2)
    third = close_with_public([(0, 1), (0, 4)], second.state, caps, {1, 2, 3}, 3)
    assert first.weight.tolist() == [100]
    assert second.weight.tolist() == [0, 140]
    assert third.weight.tolist() == [0, 150]
    assert third.state.unranked.tolist() == [False, True, False, False]


@pytest.mark.parametrize(("lag", "public"), [(None, np.zeros(1, np.bool_)), (1, None)])
def test_public_keys_are_given_exactly_where_there_is_a_lag(lag: int | None, public: Any) -> None:
    bounding = Bounding(max_records=1, max_records_per_key=1, weights=WEIGHTS, lag=lag)
    one = np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="public"):
        bounding.close(one, one, one + 1, UserKeys.empty(1), public)


def test_keys_unknown_to_the_batch_may_be_negative() -> None:
    state = UserKeys(
        indptr=np.array([0, 2]),
        key=np.array([-7, -3], np.int32),
        count=np.array([1, 2], np.int32),
        unranked=np.zeros(2, np.bool_),
        kept=np.array([3]),
        spent=np.zeros(2, np.int64),
        charged=np.zeros(1, np.int64),
    )
    got = close([(0, 4), (0, 4)], state, {"max_records": 5, "max_records_per_key": 1, "max_keys": None})
    assert got.kept.tolist() == [True, False]
    assert got.state.key.tolist() == [-7, -3, 4]
    assert got.state.count.tolist() == [1, 2, 1]


def test_weights_follow_rank_and_the_trigger_of_the_user() -> None:
    caps = {"max_records": 9, "max_records_per_key": 1, "max_keys": None, "weights": WEIGHTS}
    got = close([(0, 1), (0, 2), (0, 1), (0, 3), (0, 4), (1, 1)], UserKeys.empty(2), caps, triggers=[1, 3])
    assert got.weight.tolist() == [100, 70, 0, 50, 0, 300]
    assert got.first.tolist() == [True, True, False, True, True, True]


def test_empty_batch_keeps_the_state() -> None:
    state = as_state([{1: 2}, {}])
    got = close([], state, {"max_records": 5, "max_records_per_key": 2, "max_keys": 2})
    assert got.state.key.tolist() == [1]
    assert got.state.kept.tolist() == [2, 0]


@pytest.mark.parametrize("user", [[1, 0], [0, 2], [-1, 0]])
def test_unsorted_or_unknown_users_are_refused(user: list[int]) -> None:
    with pytest.raises(ValueError, match="user"):
        close([(u, 0) for u in user], UserKeys.empty(2), {"max_records": 1, "max_records_per_key": 1})
