"""The placement of users and keys is part of the format: pinned."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.wire.partitioner import partition

VECTORS = {
    b"": 0,
    b"null": 1645001824,
    b"true": 587414510,
    b"0": 985228334,
    b'"ann"': 1449251557,
    b'"199.72.81.55"': 1181034972,
    b'["/index.html",200]': 687965475,
    b"\xf0\x9f\x8c\x8a" * 100: 868734261,
}


def murmur_finaliser(value):
    """By hand, on Python integers: MurmurHash3's fmix32 over CRC-32."""
    h = zlib.crc32(value)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@pytest.mark.parametrize("value", VECTORS)
def test_pinned(value):
    assert partition([value], 2**31 - 1).tolist() == [VECTORS[value]]


@given(st.lists(st.binary()), st.integers(1, 2**31 - 1))
def test_is_the_finalised_checksum(values, partitions):
    assert partition(values, partitions).tolist() == [murmur_finaliser(v) % partitions for v in values]


@pytest.mark.parametrize("partitions", [2, 7, 8, 64])
def test_similar_names_spread_evenly(partitions):
    counts = np.bincount(partition([b'"user-%05d"' % i for i in range(20_000)], partitions), minlength=partitions)
    expected = 20_000 / partitions
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < partitions + 6 * (2 * partitions) ** 0.5  # six standard deviations


def test_no_partitions_are_refused():
    with pytest.raises(ValueError, match="partitions=0"):
        partition([b"a"], 0)
