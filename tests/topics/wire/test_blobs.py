"""Byte strings as columns, against lists of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.wire.blobs import PADDING, BlobColumns, some_of
from susurrus.topics.wire.packing import Kind, Reader, pack_blobs

BLOBS = st.lists(st.binary(max_size=12), max_size=30)


def read(blobs: list[bytes], behind: bytes = b"") -> BlobColumns:
    reader = Reader(bytes((Kind.BLOCK, 1)) + pack_blobs(blobs) + behind, Kind.BLOCK, 1)
    found = reader.blob_columns(len(blobs))
    assert reader.left == len(behind)
    return found


@given(blobs=BLOBS, behind=st.binary(max_size=20), data=st.data())
def test_they_are_read_as_they_were_written_and_taken_as_from_a_list(
    blobs: list[bytes], behind: bytes, data: st.DataObject
) -> None:
    found = read(blobs, behind)
    assert found == blobs
    assert list(found) == found.listed() == blobs
    assert [found[at] for at in range(len(found))] == blobs
    assert found.data[-PADDING:] == bytes(PADDING)
    rows = np.array(data.draw(st.lists(st.integers(0, max(len(blobs) - 1, 0)), max_size=20 * bool(blobs))), np.int64)
    wanted = [blobs[row] for row in rows.tolist()]
    assert some_of(found, rows) == wanted
    assert isinstance(some_of(found, rows), BlobColumns)
    assert some_of(blobs, rows) == wanted
    assert found[2:7] == blobs[2:7]


def test_they_are_equal_to_the_same_byte_strings_only() -> None:
    found = read([b"a", b"", b"bc"])
    assert found == read([b"a", b"", b"bc"], b"behind")
    for other in ([b"a", b"b", b"c"], [b"a", b""], [b"a", b"", b"bc", b""], 3):
        assert found != other
