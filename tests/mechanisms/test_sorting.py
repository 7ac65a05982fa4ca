"""Orders and groups of rows, against Python's sort and dictionaries."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.sorting import group_starts, groups_of, in_order_of

NUMBERS = st.sampled_from([0, 1, 2, 65_535, 65_536, 65_537, 2**31 - 1])
WIDE = st.sampled_from([0, 1, 2**16, 2**32 - 1, 2**32, 2**48 + 1, 2**63 - 1])
ROWS = st.lists(st.tuples(NUMBERS, WIDE, st.sampled_from([0, 255])), max_size=40)


def columns(rows: list[tuple[int, int, int]]) -> tuple[Any, Any, Any]:
    types = np.int32, np.int64, np.uint8
    return tuple(np.array([row[at] for row in rows], of) for at, of in enumerate(types))  # type: ignore[return-value]


@given(rows=ROWS)
def test_rows_are_by_all_columns_and_else_as_they_come(rows: list[tuple[int, int, int]]) -> None:
    assert in_order_of(*columns(rows)).tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert in_order_of(columns(rows)[1]).tolist() == sorted(range(len(rows)), key=lambda row: rows[row][1])


@given(rows=ROWS, counted=st.integers(0, 2**40 - 1))
def test_rows_that_agree_are_one_group(rows: list[tuple[int, int, int]], counted: int) -> None:
    groups = groups_of(*columns(rows))
    places = {row: at for at, row in enumerate(sorted(set(rows)))}
    assert len(groups) == len(places)
    assert groups.of_row.tolist() == [places[row] for row in rows]
    assert groups.first.tolist() == [rows.index(row) for row in places]
    assert groups.earlier().tolist() == [rows[:at].count(row) for at, row in enumerate(rows)]
    some = [bool(counted >> at & 1) for at in range(len(rows))]
    wanted = [sum(some[i] for i in range(at) if rows[i] == row) for at, row in enumerate(rows)]
    assert groups.earlier(np.array(some, np.bool_)).tolist() == wanted


@given(lengths=st.lists(st.integers(1, 4), max_size=12))
def test_groups_that_stand_together_begin_at_their_first_row(lengths: list[int]) -> None:
    group = np.repeat(np.arange(len(lengths))[::-1], lengths)
    assert group_starts(group).tolist() == [group.tolist().index(of) for of in group.tolist()]
