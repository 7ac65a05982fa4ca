"""Blocks of by-user, compiled and in Python: the same bytes, and the same words where something is wrong."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import by_user
from susurrus.topics.by_user import ByUserBlock, by_partition, decode
from susurrus.topics.compiled import compiled
from susurrus.topics.wire.partitioner import partition

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")


def in_python(*arguments: Any) -> list[tuple[int, list[bytes]]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(by_user, "compiled", None)
        return by_partition(*arguments)


def block_of(n: int, users: int, keys: int, columns: int, draw: np.random.Generator, spread: int) -> ByUserBlock:
    high = 2**spread
    return ByUserBlock(
        source=3,
        offset=np.sort(draw.choice(10 * n + 1, n, replace=False)).astype(np.int64),
        interval=draw.integers(0, high, n),
        window=np.full(n, 1_700_000_000_000),
        user=draw.integers(-1, users, n).astype(np.int32),
        users=[b'"user %d%s"' % (i, b"x" * int(draw.integers(0, 300))) for i in range(users)],
        key=draw.integers(0, keys, n).astype(np.int32),
        keys=[b"%d" % i for i in range(keys)],
        values=draw.integers(-high, high, (n, columns)),
    )


@given(
    n=st.integers(1, 200),
    users=st.integers(1, 50),
    keys=st.integers(1, 50),
    columns=st.integers(0, 3),
    partitions=st.integers(1, 9),
    max_bytes=st.sampled_from([10**6, 3_000, 700]),
    spread=st.integers(0, 62),
    seed=st.integers(0, 2**32),
)
def test_the_bytes_are_the_same(
    n: int, users: int, keys: int, columns: int, partitions: int, max_bytes: int, spread: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    block = block_of(n, users, keys, columns, draw, spread)
    rows = np.flatnonzero((block.user >= 0) & (draw.random(n) < 0.9))
    arguments = block, rows, partition(block.users, partitions), max_bytes
    packed = by_user._packed(*arguments)
    assert packed == in_python(*arguments)
    assert (
        sorted(o for _, blocks in packed for one in blocks for o in decode(one).offset) == block.offset[rows].tolist()
    )


def test_extremes_of_int64() -> None:
    draw = np.random.default_rng(1)
    block = block_of(3, 2, 2, 2, draw, 3)
    block.user[:] = 1
    block.values[:] = [[-(2**63), 0], [2**63 - 1, 255], [0, 256]]
    arguments = block, np.arange(3), np.array([0, 5], np.int32), 10**6
    assert by_user._packed(*arguments) == in_python(*arguments)


@pytest.mark.parametrize("bits", [0, 8, 16, 32, 63])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_column_is_as_wide_as_its_widest_value(bits: int, more: int) -> None:
    """A width that is one too small would write another value for the widest, which only a value of just this size shows."""
    block = block_of(4, 2, 2, 2, np.random.default_rng(1), 3)
    block.user[:] = 1
    spread = min(2**63 - 1, 2**bits + more)
    block.values[:, 0] = [0, 1, spread, 0]
    block.values[:, 1] = [-(2**63), 1 - 2**63, spread - 2**63, -(2**63)]
    arguments = block, np.arange(4), np.array([0, 5], np.int32), 10**6
    packed = by_user._packed(*arguments)
    assert packed == in_python(*arguments)
    [(_, [data])] = packed
    assert decode(data).values.tolist() == block.values.tolist()


def test_what_is_wrong_is_said_as_ever() -> None:
    block = block_of(3, 2, 2, 1, np.random.default_rng(1), 3)
    block.user[:] = 1
    with pytest.raises(ValueError, match=r"one row takes \d+ bytes, more than max_bytes=50"):
        by_partition(block, np.arange(3), np.zeros(2, np.int32), 50)
    for wrong in ({"rows": np.array([7])}, {"partitions": np.zeros(1, np.int32)}):
        chosen = {"rows": np.arange(3), "partitions": np.zeros(2, np.int32)} | wrong
        with pytest.raises(ValueError, match="do not fit"):
            by_user._packed(block, chosen["rows"], chosen["partitions"], 10**6)
