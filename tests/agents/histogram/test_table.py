"""Increments of an interval against dictionaries, and a digest that tells every two inputs apart."""

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram.publication import input_digest
from susurrus.agents.histogram.table import Gathered, Rows, gather, joined_evidence
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.histogram.strategy import PooledRows, Step
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


def step_of(published: list[bool], numbers: Any, pooled: PooledRows | None = None) -> Step[Any]:
    """With standard errors of half the estimates."""
    return Step(
        states=None,
        changed=np.ones(len(published), np.bool_),
        due=np.zeros(len(published), np.int32),
        published=np.array(published, np.bool_),
        estimates=numbers,
        std_errors=numbers / 2,
        pooled_rows=pooled,
    )


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=4), st.booleans(), st.integers(-9, 9)), unique_by=lambda r: r[0]),
       st.integers(1, 5))  # fmt: skip
def test_published_rows_come_out_in_key_order_whatever_the_chunks(rows: Any, size: int) -> None:
    collected = Rows(1)
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        numbers = np.array([[n] for _, _, n in part], np.int64)
        collected.add([k for k, _, _ in part], step_of([p for _, p, _ in part], numbers))
    found = collected.sorted()
    wanted = sorted((key, number) for key, published, number in rows if published)
    assert list(zip(found.keys, found.estimates[:, 0].tolist(), strict=True)) == wanted
    assert found.std_errors[:, 0].tolist() == [number / 2 for _, number in wanted]
    assert found.estimates.dtype == np.int64
    assert found.direct is None
    assert collected.evidence.shape == (0, 0)


class Halved:
    """What a table asks of a strategy: each pooled row is half of itself plus the sum of all evidence."""

    def calibrate(self, estimates: Any, std_errors: Any, evidence: Any, pooled: Any) -> Any:
        assert evidence[:, 0].tolist() == estimates[:, 0].tolist()
        return estimates // 2 + pooled.sum(), std_errors / 3


POOLED_ROW = st.tuples(
    st.binary(min_size=1, max_size=4), st.sampled_from(["hidden", "alone", "pooled"]), st.integers(-9, 9)
)


@given(st.lists(POOLED_ROW, unique_by=lambda row: row[0]), st.lists(st.integers(-9, 9), max_size=3), st.integers(1, 5))
def test_pooled_rows_are_calibrated_with_all_evidence_and_the_direct_pair_stays_beside_them(
    rows: Any, others: list[int], size: int
) -> None:
    collected = Rows(1)
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        numbers = np.array([[n] for _, _, n in part], np.int64)
        pooled = np.flatnonzero([fate == "pooled" for _, fate, _ in part])
        step = step_of(
            [fate != "hidden" for _, fate, _ in part], numbers, PooledRows(index=pooled, evidence=numbers[pooled])
        )
        collected.add([key for key, _, _ in part], step)
    mine = [number for _, fate, number in rows if fate == "pooled"]
    assert collected.evidence.reshape(-1).tolist() == mine
    collected.calibrate(Halved(), joined_evidence([collected.evidence, np.array(others, np.int64).reshape(-1, 1)]))  # type: ignore[arg-type]
    total = sum(mine) + sum(others)
    found = collected.sorted()
    shown = sorted(row for row in rows if row[1] != "hidden")
    assert found.keys == [key for key, _, _ in shown]
    assert found.direct is not None
    assert found.direct[0][:, 0].tolist() == [number for _, _, number in shown]
    assert found.direct[1][:, 0].tolist() == [number / 2 for _, _, number in shown]
    assert found.estimates[:, 0].tolist() == [n // 2 + total if fate == "pooled" else n for _, fate, n in shown]
    assert found.std_errors[:, 0].tolist() == [n / 2 / (3 if fate == "pooled" else 1) for _, fate, n in shown]
