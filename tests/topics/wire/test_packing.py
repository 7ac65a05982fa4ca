"""The building blocks: every column and list survives, every damage is a MalformedRecord."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import changelog
from susurrus.topics.wire.packing import (
    Kind,
    MalformedRecord,
    Reader,
    blobs_size,
    column_size,
    kind_of,
    pack_blobs,
    pack_column,
    pack_scalar,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
COLUMNS = st.one_of(st.lists(INT64), st.lists(st.integers(0, 300)), st.integers(0, 40).map(lambda n: [7] * n))


def written(*parts):
    return b"".join((bytes((Kind.BLOCK, 1)), *parts))


@given(COLUMNS)
def test_a_column_survives_and_its_size_is_known(values):
    column = np.array(values, np.int64)
    data = written(pack_column(column))
    reader = Reader(data, Kind.BLOCK, 1)
    assert reader.column(len(values)).tolist() == values
    reader.finish()
    assert len(data) == 2 + column_size(column)


@given(st.lists(st.binary(max_size=40)))
def test_byte_strings_survive_and_their_size_is_known(blobs):
    data = written(pack_blobs(blobs))
    reader = Reader(data, Kind.BLOCK, 1)
    assert reader.blobs(len(blobs)) == blobs
    reader.finish()
    assert len(data) == 2 + blobs_size(blobs)


@pytest.mark.parametrize(("spread", "width"), [(0, 0), (255, 1), (256, 2), (65535, 2), (65536, 4), (2**32, 8)])
def test_a_column_takes_the_narrowest_width(spread, width):
    assert column_size(np.array([-5, -5 + spread])) == 9 + 2 * width


def test_columns_of_int32_are_taken_too():
    data = written(pack_column(np.array([-(2**31), 2**31 - 1], np.int32)))
    assert Reader(data, Kind.BLOCK, 1).column(2).tolist() == [-(2**31), 2**31 - 1]


def test_a_decoded_column_is_writable():
    for values in ([1, 1], [1, 2]):
        column = Reader(written(pack_column(np.array(values))), Kind.BLOCK, 1).column(2)
        column += 1
        assert column.tolist() == [v + 1 for v in values]


def test_a_scalar_outside_int64_is_not_written():
    with pytest.raises(ValueError, match="position=9223372036854775808: must be in"):
        changelog.encode(changelog.ChangelogRecord(2**63, ""))


def test_a_column_that_leaves_int64_is_malformed():
    data = written(pack_scalar(2**63 - 1), b"\x01\x00\x01")
    with pytest.raises(MalformedRecord, match="int64"):
        Reader(data, Kind.BLOCK, 1).column(2)


def test_an_unknown_width_is_malformed():
    with pytest.raises(MalformedRecord, match="width=3"):
        Reader(written(pack_scalar(0), b"\x03"), Kind.BLOCK, 1).column(0)


@pytest.mark.parametrize("lengths", [[-1, 1], [2**62, 2**62, 2**62, 2**62], [5]])
def test_lengths_that_cannot_be_are_malformed(lengths):
    data = written(pack_column(np.array(lengths)), b"abcd")
    with pytest.raises(MalformedRecord):
        Reader(data, Kind.BLOCK, 1).blobs(len(lengths))


@pytest.mark.parametrize("count", [-1, 9, 2**62])
def test_a_count_that_cannot_follow_is_malformed(count):
    with pytest.raises(MalformedRecord, match="impossible"):
        Reader(written(pack_scalar(count), b"12345678"), Kind.BLOCK, 1).count()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x09\x01", b"{}"])
def test_an_unknown_kind_is_malformed(data):
    with pytest.raises(MalformedRecord):
        kind_of(data)


def test_another_version_says_what_to_do():
    with pytest.raises(MalformedRecord, match="upgrade the readers"):
        Reader(b"\x01\x02", Kind.BLOCK, 1)


def test_bytes_after_the_end_are_malformed():
    with pytest.raises(MalformedRecord, match="1 bytes follow"):
        Reader(b"\x01\x01x", Kind.BLOCK, 1).finish()
