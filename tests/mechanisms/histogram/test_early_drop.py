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


def test_parts_of_an_interval_drop_only_what_the_whole_would(bounding: Bounding) -> None:
    """However the interval is fetched: the same records are kept, keys listed, ledgers charged."""
    rng, dropped = np.random.default_rng(2), 0
    for _ in range(400):
        state = UserKeys.empty(1)
        for trigger in sorted(rng.integers(1, T + 1, 3).tolist()):
            key = rng.integers(0, rng.integers(5, 60), rng.integers(1, 90)).tolist()
            cuts = sorted(rng.integers(0, len(key), rng.integers(0, 3)).tolist())
            arrived = []
            for begin, end in zip([0, *cuts], [*cuts, len(key)], strict=True):
                part = np.array(key[begin:end], np.int32)
                arrived += [begin + int(i) for i in np.flatnonzero(bounding.arriving(part * 0, part))]
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
