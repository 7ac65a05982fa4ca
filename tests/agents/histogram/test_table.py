"""Increments of an interval against dictionaries, and a digest that tells every two inputs apart."""

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram.publication import input_digest
from susurrus.agents.histogram.table import Gathered, Rows, gather
from susurrus.mechanisms.calendar import WindowStart
from susurrus.topics.bounded import BoundedBlock

COLUMNS = 2
KEY = b"\x17" * 32
ROW = st.tuples(
    st.sampled_from([0, 1000, 2000]), st.sampled_from([b"1", b'"a"', b'"b"', b'"ab"', b"null"]),
    *[st.integers(-(2**40), 2**40)] * 4,
)  # fmt: skip
BLOCKS = st.lists(st.lists(ROW, max_size=6, unique_by=lambda row: row[:2]), max_size=4)


def block_of(partition: int, rows: list[Any]) -> BoundedBlock:
    columns = np.array([row[2:] for row in rows], np.int64).reshape(len(rows), 4)
    return BoundedBlock(
        partition=partition,
        interval=7,
        window=np.array([row[0] for row in rows], np.int64),
        keys=[row[1] for row in rows],
        users=columns[:, 0],
        weight=columns[:, 1],
        sums=columns[:, 2:],
    )


@given(BLOCKS)
def test_gathering_adds_up_what_every_partition_sent_for_a_key(blocks: list[Any]) -> None:
    wanted: dict[int, dict[bytes, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0] * 4))
    for rows in blocks:
        for window, key, *numbers in rows:
            total = wanted[window][key]
            total[:] = [a + b for a, b in zip(total, numbers, strict=True)]
    found = gather([block_of(p, rows) for p, rows in enumerate(blocks)], COLUMNS)
    assert list(found) == sorted(wanted)
    for window, news in found.items():
        assert news.keys == sorted(wanted[window])
        assert news.index == {key: row for row, key in enumerate(news.keys)}
        table = np.column_stack([news.users, news.weight, news.sums]).tolist()
        assert dict(zip(news.keys, table, strict=True)) == wanted[window]


@given(BLOCKS, st.randoms())
def test_neither_order_nor_partition_of_the_blocks_changes_the_digest(blocks: list[Any], dice: Any) -> None:
    shuffled = list(blocks)
    dice.shuffle(shuffled)
    one = gather([block_of(p, rows) for p, rows in enumerate(blocks)], COLUMNS)
    other = gather([block_of(p, rows) for p, rows in enumerate(shuffled)], COLUMNS)
    assert list(one) == list(other)
    assert [input_digest(one[w], KEY) for w in one] == [input_digest(other[w], KEY) for w in other]


def news(rows: dict[bytes, tuple[int, int, int, int]]) -> Gathered:
    found = gather([block_of(0, [(0, key, *numbers) for key, numbers in rows.items()])], COLUMNS)
    return found.get(WindowStart(0), Gathered.nothing(COLUMNS))


@given(
    st.dictionaries(st.binary(min_size=1, max_size=3), st.tuples(*[st.integers(-3, 3)] * 4), max_size=3),
    st.dictionaries(st.binary(min_size=1, max_size=3), st.tuples(*[st.integers(-3, 3)] * 4), max_size=3),
)
def test_different_inputs_have_different_digests(one: Any, other: Any) -> None:
    assert (input_digest(news(one), KEY) == input_digest(news(other), KEY)) == (one == other)


def test_the_digest_is_not_fooled_by_bytes_that_move_between_keys_or_columns() -> None:
    same = {
        input_digest(news(rows), KEY)
        for rows in (
            {},
            {b"ab": (1, 0, 0, 0)},
            {b"a": (1, 0, 0, 0), b"b": (0, 0, 0, 0)},
            {b"ab": (0, 1, 0, 0)},
            {b"ab": (0, 0, 1, 0)},
            {b"ab": (0, 0, 0, 1)},
            {b"ab": (256, 0, 0, 0)},
        )
    }
    assert len(same) == 7


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=4), st.booleans(), st.integers(-9, 9)), unique_by=lambda r: r[0]),
       st.integers(1, 5))  # fmt: skip
def test_published_rows_come_out_in_key_order_whatever_the_chunks(rows: Any, size: int) -> None:
    collected = Rows(1)
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        numbers = np.array([[n] for _, _, n in part], np.int64)
        collected.add([k for k, _, _ in part], np.array([p for _, p, _ in part], np.bool_), numbers, numbers / 2)
    keys, estimates, errors = collected.sorted()
    wanted = sorted((key, number) for key, published, number in rows if published)
    assert list(zip(keys, estimates[:, 0].tolist(), strict=True)) == wanted
    assert errors[:, 0].tolist() == [number / 2 for _, number in wanted]
    assert estimates.dtype == np.int64
