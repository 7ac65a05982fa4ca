"""The index of users' names against a dictionary: names of all lengths, also such that share a hash or differ by a zero byte."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram import name_index
from susurrus.mechanisms.histogram.name_index import NameIndex, Names

SHORT = st.binary(min_size=1, max_size=3)
NAMES = st.one_of(
    SHORT,
    st.builds(lambda name, zeros: name + bytes(zeros), SHORT, st.integers(0, 20)),
    st.builds(lambda name, many: name * many, SHORT, st.integers(1, 12)),
    st.just(b""),
)


def columns_of(names: list[bytes], noise: bytes) -> Names:
    """The names among other bytes, as a record has them."""
    start = np.cumsum([len(noise)] + [len(name) + len(noise) for name in names])[: len(names)]
    data = noise + b"".join(name + noise for name in names) + b"\xff" * name_index.WORD_BYTES
    return Names(data=data, start=start.astype(np.int64), length=np.array(list(map(len, names)), np.int64))


def few(words: Any, length: Any) -> Any:
    """Broken as a hash: it has two values."""
    return length.astype(np.uint64) % np.uint64(2) << np.uint64(63)


@pytest.mark.parametrize("hashing", ["mixed", "few"])
def test_names_have_the_numbers_in_which_they_came(hashing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if hashing == "few":
        monkeypatch.setattr(name_index._Words, "mixed", few)

    @given(batches=st.lists(st.lists(NAMES, max_size=40), max_size=6), noise=st.binary(max_size=3))
    def check(batches: list[list[bytes]], noise: bytes) -> None:
        index, numbers = NameIndex(), dict[bytes, int]()
        for batch in batches:
            names = columns_of(batch, noise)
            assert names.listed() == batch
            assert index.find(names).tolist() == [numbers.get(name, -1) for name in batch]
            wanted = [numbers.setdefault(name, len(numbers)) for name in batch]
            assert index.enter(names).tolist() == wanted
            assert index.names == list(numbers)
            assert index.enter(Names.of(batch)).tolist() == wanted
            assert len(index) == len(numbers)

    check()


@pytest.mark.parametrize("form", [b'"u%d"', b'"%036d"', b'["%d","a second part of the key"]'])
def test_many_names_are_found_and_others_are_not(form: bytes) -> None:
    names, others = [form % number for number in range(0, 60_000, 2)], [form % number for number in range(1, 60_000, 2)]
    index = NameIndex()
    for start in range(0, len(names), 7_000):
        index.enter(Names.of(names[start : start + 7_000]))
    assert np.array_equal(index.find(Names.of(names)), np.arange(len(names)))
    assert np.all(index.find(Names.of(others)) == -1)
    assert index.size > sum(map(len, names)) * 2


def test_the_seed_of_hashes_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names.of([b'"%d"' % (number % 700) for number in range(2_000)])
    found, slots = [], []
    for seed in (1, 2):
        monkeypatch.setattr(name_index, "_SEED", seed)
        index = NameIndex()
        found.append(index.enter(names).tolist())
        slots.append(index._slots._slots.tolist())
    assert found[0] == found[1]
    assert slots[0] != slots[1]
