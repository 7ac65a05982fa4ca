"""The index of (user, key) pairs against a dictionary, with pairs that want the same slots."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.pair_index import PairIndex
from susurrus.mechanisms.histogram.slots import Slots

PAIRS = st.one_of(
    st.integers(0, 200),
    st.builds(lambda user, code: user << 32 | code, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1)),
)


def alike(self: Slots, mixed: Any) -> Any:
    """Broken as a hash: all pairs begin at one of three slots."""
    return (mixed % np.uint64(3)).astype(np.intp) * (len(self._slots) - 1) // 2


@pytest.fixture(params=["mixed", "alike"])
def hashing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "alike":
        monkeypatch.setattr(Slots, "_first", alike)


@pytest.mark.usefixtures("hashing")
def test_pairs_have_the_places_in_which_they_came() -> None:
    @given(batches=st.lists(st.lists(PAIRS, max_size=60), max_size=6))
    def check(batches: list[list[int]]) -> None:
        index, places = PairIndex(), dict[int, int]()
        for batch in batches:
            found = index.find(np.array(batch, np.int64))
            assert found.tolist() == [places.get(pair, -1) for pair in batch]
            new = [pair for pair in dict.fromkeys(batch) if pair not in places]
            assert index.enter(np.array(new, np.int64)).tolist() == list(range(len(places), len(places) + len(new)))
            places.update(zip(new, range(len(places), len(places) + len(new)), strict=True))
            assert index.pairs.tolist() == list(places)
            assert len(index) == len(places)
        every = np.array(list(places), np.int64)
        assert index.find(every).tolist() == list(range(len(places)))
        assert index.find(every + (1 << 62)).tolist() == [-1] * len(places)

    check()


def test_it_holds_many_pairs_and_says_what_they_take() -> None:
    dice = np.random.default_rng(3)
    even = dice.permutation(np.unique(dice.integers(0, 1 << 62, 200_000))) * 2
    index = PairIndex()
    for part in np.array_split(even, 7):
        index.enter(part)
    assert np.array_equal(index.find(even), np.arange(len(even)))
    assert np.all(index.find(even + 1) == -1)
    assert 16 * len(even) <= index.size <= 40 * len(even)
