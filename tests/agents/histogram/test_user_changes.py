"""Rows of changes are read as they were written, take few bytes, and are refused where they are damaged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram import user_changes
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.user_table import Changes, UserTable
from susurrus.topics.wire import varints
from susurrus.topics.wire.packing import MalformedRecord

NUMBERS = st.integers(0, 200) | st.integers(0, 2**32 - 1)


@given(values=st.lists(NUMBERS), behind=st.binary(max_size=4))
def test_numbers_of_any_length_are_read_as_they_were_written(values: list[int], behind: bytes) -> None:
    data = b"?" + varints.encode(values)
    found, at = varints.decode(data + behind, 1, len(values))
    assert (found.tolist(), at) == (values, len(data))
    assert len(data) == 1 + sum(max(1, -(-value.bit_length() // 7)) for value in values)
    if values:
        with pytest.raises(MalformedRecord):
            varints.decode(data[:-1], 1, len(values))


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_numbers_beyond_32_bits_are_not_written(value: int) -> None:
    with pytest.raises(ValueError, match="must be in"):
        varints.encode([3, value])


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01"])
def test_numbers_beyond_32_bits_are_not_read(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        varints.decode(data, 0, 1)


ADDED = st.just(1) | st.integers(0, 300)


@given(data=st.data(), known=st.integers(0, 2000), names=st.lists(st.binary(min_size=1, max_size=300), max_size=5))
def test_changes_are_read_as_they_were_written(data: st.DataObject, known: int, names: list[bytes]) -> None:
    lag = data.draw(st.booleans())
    codes = np.array(data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300)), np.uint32)
    rows = sorted(
        data.draw(st.lists(st.tuples(st.integers(0, known + 5), st.integers(0, len(codes) - 1), ADDED), max_size=40)),
        key=lambda row: row[0],
    )
    user, key, added = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    public = np.array(data.draw(st.lists(st.booleans(), min_size=len(codes), max_size=len(codes))), np.bool_)
    changes = Changes(user=user, key=key.astype(np.int32), added=added)
    row = user_changes.encode(known, names, changes, codes, public if lag else None, 1 << 16)
    found = user_changes.decode(row)
    assert (found.known, found.names, found.root) == (known, names, 1 << 16)
    assert found.user.tolist() == user.tolist()
    assert found.code.tolist() == codes[key].tolist()
    assert found.added.tolist() == added.tolist()
    assert found.unranked.tolist() == (public[key].tolist() if lag else [False] * len(key))
    for end in (0, len(row) - 1):
        with pytest.raises(MalformedRecord):
            user_changes.decode(row[:end])
    with pytest.raises(MalformedRecord):
        user_changes.decode(row + b"\0")


@given(st.data())
def test_a_damaged_row_is_refused_or_says_something_that_is_possible(data: st.DataObject) -> None:
    changes = Changes(user=np.array([0, 0, 3]), key=np.array([0, 1, 1], np.int32), added=np.array([1, 2, 0]))
    row = bytearray(
        user_changes.encode(2, [b"u", b"v"], changes, np.array([7, 9], np.uint32), np.array([True, False]), 0)
    )
    row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = user_changes.decode(bytes(row))
    except MalformedRecord:
        return
    assert len(found.user) == len(found.code) == len(found.added) == len(found.unranked)


def test_a_record_of_a_known_user_with_a_frequent_key_takes_two_bytes() -> None:
    dice = np.random.default_rng(0)
    number = 5000
    user = np.sort(dice.choice(40_000, number, replace=False))
    key = np.minimum(dice.zipf(2.0, number), 1000).astype(np.int32) - 1
    changes = Changes(user=user, key=key, added=np.ones(number, np.int64))
    row = user_changes.encode(40_000, [], changes, np.arange(1000, dtype=np.uint32), None, 0)
    assert len(row) < 2.2 * number + 4 * 1000


def test_changes_of_users_that_never_entered_are_refused() -> None:
    table = UserTable(Bounding(max_records=1, max_records_per_key=1))
    changes = Changes(user=np.array([0]), key=np.array([0], np.int32), added=np.array([1]))
    found = user_changes.decode(user_changes.encode(0, [], changes, np.array([7], np.uint32), None, 0))
    with pytest.raises(MalformedRecord, match="never entered"):
        found.apply(table)
