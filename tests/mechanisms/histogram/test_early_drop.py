"""Early drops where lists are as long as they may be: what route drops, `close` would drop, whatever the user brought before."""

import numpy as np
import pytest

from susurrus.mechanisms.histogram import bounding as module
from susurrus.mechanisms.histogram.bounding import Bounding, UserKeys
from susurrus.mechanisms.histogram.factorization import power
from susurrus.mechanisms.histogram.value_ledger import ValueLedger

LONGEST, T = 16, 100


@pytest.fixture
def bounding(monkeypatch: pytest.MonkeyPatch) -> Bounding:
    """Lists of 16 keys, so that few records are enough."""
    monkeypatch.setattr(module, "MAX_LISTED_KEYS", LONGEST)
    return Bounding(
        max_records=3,
        max_records_per_key=2,
        weights=np.full((2, T), 1 << 20),
        lag=1,
        ledger=ValueLedger([power(T, 0.5, 20)], capacity=3, measured=1, counting=1),
        whole_lists=True,
    )


def brought(
    bounding: Bounding, key: list[int], trigger: int, state: UserKeys
) -> tuple[list[bool], list[bool], UserKeys]:
    """(kept, listed, state) of one user's records."""
    size = len(key)
    got = bounding.close(
        np.zeros(size, np.int32), np.array(key, np.int32), np.array([trigger]), state, np.zeros(size, np.bool_)
    )
    return got.kept.tolist(), got.listed.tolist(), got.state


def test_a_listed_key_behind_too_many_others_of_its_interval_is_not_kept(bounding: Bounding) -> None:
    """The list is full, the others enter neither it nor the ledger, which has room: history alone would keep the record."""
    roomy = 0
    for first in range(1, T):
        _, _, state = brought(bounding, list(range(LONGEST)), first, UserKeys.empty(1))
        assert len(state.key) == LONGEST
        roomy += brought(bounding, [12], T, state)[0] == [True]
        late = [*range(LONGEST, 2 * LONGEST), 12]
        assert brought(bounding, late, T, state)[0] == [False] * len(late)
    assert roomy > 10


@pytest.mark.parametrize("plain", [False, True])
def test_any_parts_of_an_interval_drop_only_what_the_whole_would(bounding: Bounding, plain: bool) -> None:
    """Whatever shares a fetch: the same records are kept, keys listed, ledgers charged. Records of other parts stand in between."""
    if plain:
        bounding = Bounding(max_records=9, max_records_per_key=2, weights=bounding.weights, lag=1)
    rng, dropped = np.random.default_rng(2), 0
    for _ in range(400):
        state = UserKeys.empty(1)
        for trigger in sorted(rng.integers(1, T + 1, 3).tolist()):
            key = rng.integers(0, rng.integers(5, 60), rng.integers(1, 90)).tolist()
            fetch = rng.integers(0, rng.integers(1, 4), len(key))
            arrived = []
            for rows in (np.flatnonzero(fetch == number) for number in range(3)):
                part = np.array(key, np.int32)[rows]
                arrived += rows[bounding.arriving(part * 0, part)].tolist()
            arrived.sort()
            dropped += len(key) - len(arrived)
            kept, listed, after = brought(bounding, key, trigger, state)
            kept_then, listed_then, state = brought(bounding, [key[i] for i in arrived], trigger, state)
            assert kept_then == [kept[i] for i in arrived]
            assert listed_then == [listed[i] for i in arrived]
            assert sum(kept_then) == sum(kept)
            assert sum(listed_then) == sum(listed)
            for field in ("key", "count", "spent", "charged", "kept"):
                assert getattr(after, field).tolist() == getattr(state, field).tolist()
    assert dropped > 1000


@pytest.mark.parametrize("plain", [False, True])
def test_route_must_have_the_order_of_bound(bounding: Bounding, plain: bool) -> None:
    """Broken: what is dropped early is found in the order of the log. Then what shares a fetch decides what is kept."""
    if plain:
        bounding = Bounding(max_records=9, max_records_per_key=2, weights=bounding.weights, lag=1)
    rng, changed = np.random.default_rng(3), 0
    for _ in range(50):
        key, order = rng.integers(0, 60, 90).astype(np.int32), rng.permutation(60)
        by_key = np.argsort(order[key], kind="stable")
        kept, _, _ = brought(bounding, key[by_key].tolist(), 1, UserKeys.empty(1))
        arriving = bounding.arriving(key * 0, key)
        changed += bool(np.array(kept)[~arriving[by_key]].any())
    assert changed > 10
