"""The table of a window's users: its two programs against each other, against `Bounding.close` and against a loop."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.compiled import compiled
from susurrus.mechanisms.histogram import bounding as bounding_module
from susurrus.mechanisms.histogram import value_ledger
from susurrus.mechanisms.histogram.bounding import Bounding, UserKeys
from susurrus.mechanisms.histogram.compiled_user_table import CompiledUserTable, user_table
from susurrus.mechanisms.histogram.factorization import power
from susurrus.mechanisms.histogram.name_index import Names
from susurrus.mechanisms.histogram.per_key import segment_sums
from susurrus.mechanisms.histogram.user_table import Closed, Lists, UserTable

TRIGGERS = 4
WEIGHTS = np.array([[100, 200, 300, 400], [70, 140, 210, 280], [50, 100, 150, 200]], np.int64)
TABLES: list[Any] = [
    UserTable,
    pytest.param(CompiledUserTable, marks=pytest.mark.skipif(compiled is None, reason="not built")),
]


def ledger(capacity: int, measured: int, counting: int) -> value_ledger.ValueLedger:
    return value_ledger.ValueLedger([power(TRIGGERS, 0.5, 20)], capacity=capacity, measured=measured, counting=counting)


def configured(
    records: int,
    per_key: int,
    max_keys: int | None,
    weighted: bool,
    lag: bool,
    columns: tuple[int, int] | None,
    weights: Any = WEIGHTS,
) -> Bounding:
    caps: dict[str, Any] = {
        "max_records": records,
        "max_records_per_key": min(records, per_key),
        "weights": weights if weighted else None,
        "lag": 1 if lag else None,
    }
    if columns is None:
        return Bounding(**caps, max_keys=max_keys)
    return Bounding(**caps, ledger=ledger(records, *columns), whole_lists=True)


BOUNDINGS = st.builds(
    configured,
    st.integers(1, 7),
    st.integers(1, 3),
    st.none() | st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.none() | st.sampled_from([(1, 0), (1, 1), (0, 1), (2, 1), (8, 7), (1, 2), (20, 3)]),
)
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=40)
BATCHES = st.lists(ROWS, min_size=1, max_size=TRIGGERS)
CODES = st.lists(st.sampled_from([3, 4, 5, 2**31, 2**32 - 1, 2**32 - 2]), min_size=8, max_size=8)
"""Of eight keys, of which some collide."""


def columns_of(closed: Closed) -> dict[str, list[int]]:
    changes = {name: getattr(closed.changes, name).tolist() for name in ("user", "key", "added")}
    return {name: getattr(closed, name).tolist() for name in ("kept", "first", "weight")} | changes


def lists_of(table: UserTable) -> dict[str, list[int]]:
    lists = table.lists(np.arange(len(table)))
    return {name: getattr(lists, name).tolist() for name in ("indptr", "code", "count", "unranked", "spent", "charged")}


def names_of(rows: list[tuple[int, int]]) -> list[bytes]:
    return [b'"%d"' % user for user, _ in rows]


def public_of(batch: int, bounding: Bounding) -> Any:
    return None if bounding.lag is None else np.arange(8) % (batch + 2) == 0


def priorities(names: Sequence[bytes], key: Any, several: int = 5) -> Any:
    """uint32[n], a function of user and key with few values, of which some are the largest: keys share one."""
    mixed = [crc32(b"%s %d" % (name, of)) % several for name, of in zip(names, key.tolist(), strict=True)]
    return np.array(mixed, np.uint32) * np.uint32((2**32 - 1) // (several - 1))


def turns(rows: list[tuple[int, int]]) -> list[int]:
    """The rows by priority; those of one as they are."""
    of_row = priorities(names_of(rows), np.array([key for _, key in rows], np.int32)).tolist()
    return sorted(range(len(rows)), key=of_row.__getitem__)


def close(table: UserTable, rows: list[tuple[int, int]], codes: Any, batch: int) -> Closed:
    key, names = np.array([key for _, key in rows], np.int32), names_of(rows)
    public = public_of(batch, table.bounding)
    return table.close(table.enter(names), key, codes, priorities(names, key), batch + 1, public)


def user_keys(lists: Lists, found: Any) -> UserKeys:
    """The lists as `Bounding.close` takes them, with places in found, ascending codes, as keys."""
    places = {code: at for at, code in enumerate(found.tolist())}
    return UserKeys(
        indptr=lists.indptr,
        key=np.array([places.get(code, -1 - at) for at, code in enumerate(lists.code.tolist())], np.int32),
        count=lists.count,
        unranked=lists.unranked,
        kept=segment_sums(lists.count.astype(np.int64), lists.indptr),
        spent=lists.spent,
        charged=lists.charged,
    )


@pytest.mark.skipif(compiled is None, reason="not built")
@given(bounding=BOUNDINGS, batches=BATCHES, codes=CODES, longest=st.sampled_from([1, 2, 3, 1 << 16]))
def test_both_programs_have_the_same_results_and_the_same_state(
    bounding: Bounding, batches: list[list[tuple[int, int]]], codes: list[int], longest: int
) -> None:
    tables = UserTable(bounding), CompiledUserTable(bounding)
    found = np.array(codes, np.uint32)
    with patch.object(bounding_module, "MAX_LISTED_KEYS", longest):
        for batch, rows in enumerate(batches):
            one, other = (columns_of(close(table, rows, found, batch)) for table in tables)
            assert one == other
            assert lists_of(tables[0]) == lists_of(tables[1])
            assert tables[0].names(0) == tables[1].names(0)


@pytest.mark.parametrize("make", TABLES)
@given(bounding=BOUNDINGS, batches=BATCHES, codes=CODES)
def test_the_table_is_bounding_with_a_state_in_columns(
    make: Any, bounding: Bounding, batches: list[list[tuple[int, int]]], codes: list[int]
) -> None:
    """Against `Bounding.close` with its own state carried along, all users in every batch."""
    table = make(bounding)
    table.enter([b'"%d"' % user for user in range(6)])
    every = np.arange(6)
    found, code_of = np.unique(np.array(codes, np.uint32), return_inverse=True)
    for batch, rows in enumerate(batches):
        state = user_keys(table.lists(every), found)
        order = sorted(turns(rows), key=lambda row: rows[row][0])
        user = np.array([rows[row][0] for row in order], np.int32)
        key = np.array([rows[row][1] for row in order], np.int64)
        public = public_of(batch, bounding)
        wanted = bounding.close(
            user,
            code_of[key].astype(np.int32),
            np.full(6, batch + 1, np.int32),
            state,
            None if public is None else public[key],
        )
        got = close(table, rows, np.array(codes, np.uint32), batch)
        for name in ("kept", "first", "weight"):
            assert getattr(got, name)[order].tolist() == getattr(wanted, name).tolist(), name
        after = table.lists(every)
        for name in ("indptr", "count", "unranked", "charged"):
            assert getattr(after, name).tolist() == getattr(wanted.state, name).tolist(), name
        if bounding.ledger is not None and bounding.max_records_per_key > 1 and bounding.ledger.measured:
            assert after.spent.tolist() == wanted.state.spent.tolist()
        known = wanted.state.key >= 0
        assert after.code[known].tolist() == found[wanted.state.key[known]].tolist()


@pytest.mark.parametrize("make", TABLES)
@given(caps=st.tuples(st.integers(1, 6), st.integers(1, 3), st.none() | st.integers(1, 4)), batches=BATCHES)
def test_the_table_keeps_what_the_rule_written_as_a_loop_keeps(
    make: Any, caps: tuple[int, int, int | None], batches: list[list[tuple[int, int]]]
) -> None:
    records, per_key, most = caps
    per_key = min(records, per_key)
    table = make(Bounding(max_records=records, max_records_per_key=per_key, max_keys=most))
    brought: list[dict[int, int]] = [{} for _ in range(6)]
    for batch, rows in enumerate(batches):
        wanted = [(False, False)] * len(rows)
        for row in turns(rows):
            user, key = rows[row]
            mine = brought[user]
            kept = mine.get(key, 0) < per_key and sum(mine.values()) < records
            kept = kept and (key in mine or most is None or len(mine) < most)
            wanted[row] = kept, kept and key not in mine
            if kept:
                mine[key] = mine.get(key, 0) + 1
        got = close(table, rows, np.arange(8, dtype=np.uint32), batch)
        assert list(zip(got.kept.tolist(), got.first.tolist(), strict=True)) == wanted


@pytest.mark.parametrize("make", TABLES)
@given(bounding=BOUNDINGS, batches=BATCHES, codes=CODES)
def test_the_changes_of_all_intervals_rebuild_the_table_and_so_do_its_lists(
    make: Any, bounding: Bounding, batches: list[list[tuple[int, int]]], codes: list[int]
) -> None:
    table, rebuilt = make(bounding), UserTable(bounding)
    found = np.array(codes, np.uint32)
    for batch, rows in enumerate(batches):
        before = len(table)
        changes = close(table, rows, found, batch).changes
        assert np.all(np.diff(changes.user) >= 0)
        assert rebuilt.enter(table.names(before)).tolist() == list(range(before, len(table)))
        public = public_of(batch, bounding)
        rebuilt.apply(
            changes.user,
            found[changes.key],
            np.zeros(len(changes.user), np.bool_) if public is None else public[changes.key],
            changes.added,
            0 if bounding.ledger is None else int(bounding.ledger.roots[batch]),
        )
        assert lists_of(rebuilt) == lists_of(table)
    moved = make(bounding)
    users = np.arange(len(table))
    moved.enter(table.names(0))
    moved.fill(users, table.lists(users))
    assert lists_of(moved) == lists_of(table)
    rows = [(user, key) for key in range(8) for user in range(6)]
    assert columns_of(close(moved, rows, found, 3)) == columns_of(close(table, rows, found, 3))


MANY = {
    "caps": configured(8, 2, None, False, False, None),
    "ranks": configured(8, 2, None, True, True, None),
    "keys": configured(20, 3, 5, True, False, None),
    "ledger": configured(8, 2, None, True, True, (1, 1)),
    "ledger of users": configured(90, 1, None, True, True, (0, 1)),
    "long lists": configured(300, 1, None, True, True, None),
}


@pytest.mark.skipif(compiled is None, reason="not built")
@pytest.mark.parametrize("case", MANY)
def test_a_hundred_thousand_rows_in_four_intervals_have_the_same_results(case: str) -> None:
    bounding = MANY[case]
    dice = np.random.default_rng(5)
    tables = UserTable(bounding), CompiledUserTable(bounding)
    codes = dice.integers(0, 1 << 32, 3000).astype(np.uint32)
    codes[:40] = codes[40:80]
    for batch in range(TRIGGERS):
        user = np.minimum(dice.zipf(1.3, 25_000), 8_000)
        key = (np.minimum(dice.zipf(1.2, 25_000), 3_000) - 1).astype(np.int32)
        names = [b'"%d"' % number for number in user.tolist()]
        public = None if bounding.lag is None else dice.random(3000) < 0.2
        priority = priorities(names, key, 1 << 20)
        one, other = (table.close(table.enter(names), key, codes, priority, batch + 1, public) for table in tables)
        assert columns_of(one) == columns_of(other)
        assert 100 < int(one.kept.sum()) < 25_000
    assert lists_of(tables[0]) == lists_of(tables[1])
    assert tables[0].names(0) == tables[1].names(0)


@pytest.mark.parametrize("make", TABLES)
def test_the_table_says_what_it_takes(make: Any) -> None:
    table = make(MANY["caps"])
    sizes = []
    for start in range(0, 4000, 1000):
        names = [b'"%d"' % user for user in range(start, start + 1000)]
        table.close(table.enter(names), np.zeros(1000, np.int32), np.zeros(1, np.uint32), np.zeros(1000, np.uint32), 1)
        sizes.append(table.size)
    assert sizes == sorted(sizes)
    assert sizes[-1] > 4000 * 20


@pytest.mark.parametrize("make", TABLES)
@given(names=st.lists(st.binary(max_size=20), max_size=30), order=st.randoms(use_true_random=False))
def test_names_are_entered_as_columns_in_any_order(make: Any, names: list[bytes], order: Any) -> None:
    rows = order.choices(range(len(names)), k=2 * len(names)) if names else []
    columns, wanted = Names.of(names), list(dict.fromkeys(names[row] for row in rows))
    table = make(Bounding(max_records=8, max_records_per_key=1))
    given_rows = np.array(rows, np.intp)
    some = Names(data=columns.data, start=columns.start[given_rows], length=columns.length[given_rows])
    assert table.enter_names(some).tolist() == [wanted.index(names[row]) for row in rows]
    assert table.names(0) == wanted


@pytest.mark.skipif(compiled is None, reason="not built")
@pytest.mark.parametrize(("start", "length"), [(0, 11), (10, 2), (-1, 1), (0, -1), (11, 0), (1, (1 << 63) - 1)])
def test_names_outside_their_data_are_refused(start: int, length: int) -> None:
    table = CompiledUserTable(Bounding(max_records=8, max_records_per_key=1))
    names = Names(data=bytes(10), start=np.array([0, start]), length=np.array([1, length]))
    with pytest.raises(ValueError, match="outside the data"):
        table.enter_names(names)
    assert len(table) == 0


def test_the_compiled_table_is_taken_where_it_was_built_and_counts_far_enough() -> None:
    for records, wanted in [(1, CompiledUserTable if compiled is not None else UserTable), (1 << 31, UserTable)]:
        assert type(user_table(Bounding(max_records=records, max_records_per_key=1))) is wanted


@pytest.mark.parametrize("make", TABLES)
def test_public_keys_are_given_exactly_where_there_is_a_lag(make: Any) -> None:
    one = np.zeros(1, np.uint32)
    for bounding, public in [(MANY["caps"], np.zeros(1, np.bool_)), (MANY["ranks"], None)]:
        table = make(bounding)
        with pytest.raises(ValueError, match="exactly where there is a lag"):
            table.close(table.enter([b'"u"']), np.zeros(1, np.int32), one, one, 1, public)
