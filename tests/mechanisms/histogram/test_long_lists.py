"""Users whose lists have thousands of keys: the two programs of the table against each other, and against the rule as a loop.

A long list has an index in the compiled program, moves to larger places as it grows, and is read and written by parts. The cases
of test_user_table.py have eight keys.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.compiled import compiled
from susurrus.mechanisms.histogram import bounding as bounding_module
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.compiled_user_table import CompiledUserTable
from susurrus.mechanisms.histogram.user_table import Closed, UserTable
from tests.mechanisms.histogram.test_user_table import TABLES, TRIGGERS, columns_of, configured, lists_of, priorities

USERS = 5
RANKS = 300
WEIGHTS = np.arange(RANKS * TRIGGERS, 0, -1, dtype=np.int64).reshape(RANKS, TRIGGERS)
INDEXED = 48
"""Keys from which on the compiled program has an index of a list."""


@dataclass(frozen=True)
class Case:
    """Records of few users and many keys. keys: from which all records are drawn; skew: how much more often the first of them."""

    bounding: Bounding
    seed: int
    rows: int
    keys: int
    skew: float
    colliding: int
    longest: int = 1 << 16

    def codes(self) -> Any:
        """uint32[keys]: the first keys share the codes of others."""
        codes = np.random.default_rng(self.seed).integers(0, 1 << 32, self.keys).astype(np.uint32)
        codes[: self.colliding] = codes[self.keys - self.colliding :][: self.colliding]
        return codes

    def batches(self) -> list[tuple[list[bytes], Any, Any]]:
        """(users, key, public) of each interval. The first user has half of all records, the last ones few."""
        dice = np.random.default_rng([self.seed, 1])
        found = []
        for _ in range(TRIGGERS):
            user = np.minimum(dice.geometric(0.5, self.rows) - 1, USERS - 1)
            key = (self.keys * dice.random(self.rows) ** self.skew).astype(np.int32)
            public = None if self.bounding.lag is None else dice.random(self.keys) < 0.2
            found.append(([b'"%d"' % number for number in user.tolist()], key, public))
        return found


CASES = st.builds(
    Case,
    st.builds(
        partial(configured, weights=WEIGHTS),
        st.integers(100, 200),
        st.integers(1, 10),
        st.none() | st.integers(INDEXED - 1, 160),
        st.booleans(),
        st.booleans(),
        st.none() | st.sampled_from([(1, 0), (1, 1), (0, 1), (2, 1)]),
    ),
    seed=st.integers(0, 1 << 32),
    rows=st.integers(200, 4_000),
    keys=st.integers(60, 4_000),
    skew=st.sampled_from([1.0, 2.0, 4.0]),
    colliding=st.integers(0, 30),
    longest=st.sampled_from([40, 1_000, 1 << 16]),
)


def close(table: UserTable, batch: tuple[list[bytes], Any, Any], codes: Any, trigger: int) -> Closed:
    names, key, public = batch
    return table.close(table.enter(names), key, codes, priorities(names, key, 1_000), trigger, public)


def moved(table: UserTable, dice: np.random.Generator) -> UserTable:
    """A table with the same lists, filled in parts: as users come back to a window whose table was written down."""
    other = type(table)(table.bounding)
    other.enter(table.names(0))
    users = dice.permutation(len(table))
    for part in np.array_split(users, 3):
        other.fill(part, table.lists(part))
    return other


@pytest.mark.skipif(compiled is None, reason="not built")
@settings(max_examples=100, deadline=None)
@given(case=CASES)
def test_long_lists_are_the_same_in_both_programs_also_written_down_and_read_again(case: Case) -> None:
    dice = np.random.default_rng(case.seed)
    definition: UserTable = UserTable(case.bounding)
    tested: UserTable = CompiledUserTable(case.bounding)
    rebuilt = CompiledUserTable(case.bounding)
    codes = case.codes()
    with patch.object(bounding_module, "MAX_LISTED_KEYS", case.longest):
        for trigger, batch in enumerate(case.batches(), 1):
            known = len(tested)
            one, other = close(definition, batch, codes, trigger), close(tested, batch, codes, trigger)
            assert columns_of(one) == columns_of(other)
            assert lists_of(definition) == lists_of(tested)
            rebuilt.enter(tested.names(known))
            changes, public, total = other.changes, batch[2], case.bounding.ledger
            rebuilt.apply(
                changes.user,
                codes[changes.key],
                np.zeros(len(changes.user), np.bool_) if public is None else public[changes.key],
                changes.added,
                0 if total is None else int(total.roots[trigger - 1]),
            )
            assert lists_of(rebuilt) == lists_of(definition)
            if dice.random() < 0.5:
                definition, tested = moved(definition, dice), moved(tested, dice)
                assert lists_of(definition) == lists_of(tested)


@pytest.mark.parametrize("make", TABLES)
@pytest.mark.parametrize("most", [None, 47, 48, 49, 50, 120])
def test_every_key_of_a_long_list_keeps_its_own_count(make: Any, most: int | None) -> None:
    """The rule as a loop. The keys of a list come again in every order, each up to its own number of times."""
    records, per_key = 200, 10
    case = Case(configured(records, per_key, most, False, False, None), 3, rows=1_500, keys=90, skew=1.0, colliding=7)
    table, codes = make(case.bounding), case.codes()
    brought: dict[bytes, dict[int, int]] = {}
    lengths = []
    for trigger, batch in enumerate(case.batches(), 1):
        wanted = [(False, False)] * len(batch[0])
        for row in np.argsort(priorities(batch[0], batch[1], 1_000), kind="stable").tolist():
            user, key = batch[0][row], int(batch[1][row])
            mine, code = brought.setdefault(user, {}), int(codes[key])
            kept = mine.get(code, 0) < per_key and sum(mine.values()) < records
            kept = kept and (code in mine or most is None or len(mine) < most)
            wanted[row] = kept, kept and code not in mine
            if kept:
                mine[code] = mine.get(code, 0) + 1
        got = close(table, batch, codes, trigger)
        assert list(zip(got.kept.tolist(), got.first.tolist(), strict=True)) == wanted
        lists = table.lists(np.arange(len(table)))
        held = [dict(zip(*pair, strict=True)) for pair in _by_user(lists)]
        assert held == [brought[name] for name in table.names(0)]
        lengths.append(int(np.diff(lists.indptr).max()))
    assert max(lengths) > 60 if most in (None, 120) else max(lengths) == most
    assert len({count for mine in brought.values() for count in mine.values()}) > 3


def _by_user(lists: Any) -> list[tuple[list[int], list[int]]]:
    parts = np.split(lists.code, lists.indptr[1:-1]), np.split(lists.count, lists.indptr[1:-1])
    return [(code.tolist(), count.tolist()) for code, count in zip(*parts, strict=True)]
