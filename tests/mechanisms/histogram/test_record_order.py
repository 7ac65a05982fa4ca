"""The order of one trigger's records: the hash against whole numbers, and what a burst loses to the caps against an even spread."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.bounding import Bounding, UserKeys
from susurrus.mechanisms.histogram.record_order import RecordOrder, in_order
from susurrus.topics.wire.partitioner import placements
from tests.reference import priority

SECRET = b"\x5a" * 32
USERS, KEYS, CAP = 3_000, 40, 10


@given(
    secret=st.binary(max_size=40),
    window=st.integers(-(2**40), 2**40),
    users=st.lists(st.binary(max_size=12), min_size=1, max_size=5),
    keys=st.lists(st.binary(max_size=12), min_size=1, max_size=5),
)
def test_the_hash_is_that_of_whole_numbers(secret: bytes, window: int, users: list[bytes], keys: list[bytes]) -> None:
    names = [(user, key) for user in users for key in keys]
    found = RecordOrder(secret).priorities(
        window, placements([user for user, _ in names]), placements([key for _, key in names])
    )
    assert found.tolist() == [priority(secret, window, *name) for name in names]


def test_it_is_pinned() -> None:
    """Another order would be another choice of records in a window that runs."""
    found = RecordOrder(bytes(range(32))).priorities(
        7, np.array([1, 1, 2**32 - 1], np.uint32), np.array([5, 6, 0], np.uint32)
    )
    assert found.tolist() == [1419012375, 673995626, 2859931397]


@given(rows=st.lists(st.tuples(st.sampled_from([0, 1, 2**31 - 1]), st.sampled_from([0, 1, 2**32 - 1])), max_size=30))
def test_rows_are_by_user_then_priority_then_as_they_come(rows: list[tuple[int, int]]) -> None:
    user, turn = np.array([row[0] for row in rows], np.int32), np.array([row[1] for row in rows], np.uint32)
    assert in_order(user, turn).tolist() == sorted(range(len(rows)), key=rows.__getitem__)


# ---- what a burst loses ------------------------------------------------------------------------------------------------

Order = Callable[[int, Any, Any], Any]


def hashed(window: int, users: Any, keys: Any) -> Any:
    return RecordOrder(SECRET).priorities(window, users, keys)


def by_offset(window: int, users: Any, keys: Any) -> Any:
    """Broken: the order of the log, as it was."""
    return np.zeros(len(users), np.uint32)


def without_the_user(window: int, users: Any, keys: Any) -> Any:
    """Broken: all users lose the same keys, only others than before."""
    return hashed(window, np.zeros_like(users), keys)


def without_the_window(window: int, users: Any, keys: Any) -> Any:
    """Broken: a user loses the same keys in every window."""
    return hashed(0, users, keys)


def kept_of_sorted_baskets(order: Order, window: int) -> Any:
    """bool[USERS, KEYS]: what is kept where every user brings the same basket, sorted, and a quarter fits."""
    users = placements([b'"u%d"' % user for user in range(USERS)])
    keys = placements([b'"k%02d"' % key for key in range(KEYS)])
    user, key = np.repeat(np.arange(USERS, dtype=np.int32), KEYS), np.tile(np.arange(KEYS, dtype=np.int32), USERS)
    rows = in_order(user, order(window, users[user], keys[key]))
    caps = Bounding(max_records=CAP, max_records_per_key=1)
    closed = caps.close(user[rows], key[rows], np.ones(USERS, np.int32), UserKeys.empty(USERS))
    kept = np.zeros(USERS * KEYS, np.bool_)
    kept[rows] = closed.kept
    return kept.reshape(USERS, KEYS)


def evenly_spread(order: Order) -> bool:
    """Whether each key is kept by a quarter of the users, each pair of keys, of windows and of users as if chosen apart."""
    one, other = kept_of_sorted_baskets(order, 11), kept_of_sorted_baskets(order, 12)
    assert (one.sum(axis=1) == CAP).all()
    share = CAP / KEYS
    counts = one.sum(axis=0)
    # Of a sample without replacement the columns are not independent: the chi-square's terms are larger by KEYS / (KEYS - 1).
    chi_square = ((counts - USERS * share) ** 2).sum() / (USERS * share * (1 - share)) * (KEYS - 1) / KEYS
    pairs = (one.T.astype(np.int64) @ one)[np.triu_indices(KEYS, 1)]
    of_pair = CAP * (CAP - 1) / (KEYS * (KEYS - 1))
    worst = np.abs(pairs - USERS * of_pair).max() / np.sqrt(USERS * of_pair * (1 - of_pair))
    # Keys that a user keeps in both windows, and that neighbouring users keep.
    overlaps = [(one & other).sum() / USERS, (one[1:] & one[:-1]).sum() / (USERS - 1)]
    spread = np.sqrt(CAP * share * (1 - share) * (KEYS - CAP) / (KEYS - 1) / USERS)
    limits = [abs(overlap - CAP * share) < 5 * spread for overlap in overlaps]
    # 39 degrees of freedom: above 90 with probability 1e-5; of 780 pairs none is 5 standard deviations off but with 5e-4.
    return bool(chi_square < 90 and worst < 5 and all(limits))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("order", "even"), [(hashed, True), (by_offset, False), (without_the_user, False), (without_the_window, False)]
)
def test_what_a_burst_of_sorted_baskets_loses_is_spread_over_its_keys(order: Order, even: bool) -> None:
    assert evenly_spread(order) == even
