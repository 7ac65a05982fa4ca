"""Whole lists and the ledger against the rule written as a loop, and which records may be dropped before anyone bounds them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram import bounding as bounding_module
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, Bounded, Bounding, UserKeys
from susurrus.mechanisms.histogram.factorization import power
from susurrus.mechanisms.histogram.value_ledger import ValueLedger

TRIGGERS, USERS = 4, 3
WEIGHTS = np.array([[100, 200, 300, 400], [70, 140, 210, 280], [50, 100, 150, 200]], np.int64)

Row = tuple[int, int]
"""(user, key)."""


@dataclass
class Member:
    """What one user brought: per key the roots of its kept records, in order of first occurrence; keys that took a rank."""

    keys: dict[int, list[int]] = field(default_factory=dict)
    ranked: list[int] = field(default_factory=list)


def charged(ledger: ValueLedger, roots: list[int]) -> int:
    """What one key's kept records cost."""
    return ledger.measured * sum(roots) ** 2 + ledger.counting * roots[0] ** 2 if roots else 0


def loop(
    rows: list[Row], members: list[Member], bounding: Bounding, trigger: int, public: set[int], longest: int
) -> list[tuple[bool, bool, bool, int]]:
    """(kept, first, listed, weight) of each row of one interval; members are updated."""
    ledger, out = bounding.ledger, []
    assert ledger is not None
    came: list[set[int]] = [set() for _ in members]
    for user, key in rows:
        mine, root = members[user], int(ledger.roots[trigger - 1])
        within = len(came[user]) < longest
        came[user].add(key)
        listed = key not in mine.keys and len(mine.keys) < longest
        weight = 0
        if listed:
            mine.keys[key] = []
            if key not in public:
                mine.ranked.append(key)
                rank = len(mine.ranked) - 1
                weight = int(WEIGHTS[rank, trigger - 1]) if rank < len(WEIGHTS) else 0
        kept = first = False
        if key in mine.keys and within and len(mine.keys[key]) < bounding.max_records_per_key:
            others = sum(charged(ledger, roots) for name, roots in mine.keys.items() if name != key)
            if others + charged(ledger, [*mine.keys[key], root]) <= ledger.limit:
                kept, first = True, not mine.keys[key]
                mine.keys[key].append(root)
        out.append((kept, first, listed, weight))
    return out


def as_state(members: list[Member], ledger: ValueLedger) -> dict[str, list[Any]]:
    """The fields of `UserKeys`."""
    entries = [(key, roots, member) for member in members for key, roots in member.keys.items()]
    return {
        "indptr": np.cumsum([0] + [len(member.keys) for member in members]).tolist(),
        "key": [key for key, _, _ in entries],
        "count": [len(roots) for _, roots, _ in entries],
        "unranked": [key not in member.ranked for key, _, member in entries],
        "kept": [sum(map(len, member.keys.values())) for member in members],
        "spent": [sum(roots) for _, roots, _ in entries],
        "charged": [sum(charged(ledger, roots) for roots in member.keys.values()) for member in members],
    }


def columns(rows: list[Row]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    user, key = (np.array([row[i] for row in rows], np.int32) for i in range(2))
    return user, key


def close(rows: list[Row], bounding: Bounding, state: UserKeys, trigger: int, public: set[int]) -> Bounded:
    user, key = columns(rows)
    known = None if bounding.lag is None else np.isin(key, sorted(public))
    return bounding.close(user, key, np.full(USERS, trigger, np.int32), state, known)


def whole(capacity: int, most: int, measured: int, counting: int, exponents: tuple[float, ...] = (0.5,)) -> Bounding:
    ledger = ValueLedger(
        [power(TRIGGERS, exponent, 20) for exponent in exponents],
        capacity=capacity,
        measured=measured,
        counting=counting,
    )
    return Bounding(
        max_records=capacity, max_records_per_key=most, weights=WEIGHTS, lag=1, ledger=ledger, whole_lists=True
    )


KINDS = st.sampled_from([(1, 0), (0, 1), (1, 1), (2, 1), (3, 0)])
WHOLE = st.builds(
    lambda capacity, most, kind, exponents: whole(capacity, most, *kind, exponents),
    st.integers(1, 5),
    st.integers(1, 4),
    KINDS,
    st.sampled_from([(0.5,), (0.5, 0.3)]),
)
ROWS = st.lists(st.tuples(st.integers(0, USERS - 1), st.integers(0, 6)), max_size=25)
BATCHES = st.lists(ROWS, min_size=1, max_size=TRIGGERS)
PUBLIC = st.lists(st.sets(st.integers(0, 6)), min_size=TRIGGERS, max_size=TRIGGERS)
LONGEST = st.sampled_from([1, 2, 3, 1 << 16])


def by_user(batch: list[Row]) -> list[Row]:
    return sorted(batch, key=lambda row: row[0])


@given(batches=BATCHES, bounding=WHOLE, public=PUBLIC, longest=LONGEST)
def test_equals_the_rule_written_as_a_loop(
    batches: list[list[Row]], bounding: Bounding, public: list[set[int]], longest: int
) -> None:
    members, state = [Member() for _ in range(USERS)], UserKeys.empty(USERS)
    assert bounding.ledger is not None
    with patch.object(bounding_module, "MAX_LISTED_KEYS", longest):
        for trigger, batch in enumerate(map(by_user, batches), start=1):
            got = close(batch, bounding, state, trigger, public[trigger - 1])
            wanted = loop(batch, members, bounding, trigger, public[trigger - 1], longest)
            fields = (got.kept.tolist(), got.first.tolist(), got.listed.tolist(), got.weight.tolist())
            assert list(zip(*fields, strict=True)) == wanted
            state = got.state
            for name, values in as_state(members, bounding.ledger).items():
                assert getattr(state, name).tolist() == values, name


@given(batches=BATCHES, bounding=WHOLE, public=PUBLIC, longest=LONGEST, gone=st.integers(0, USERS - 1))
def test_once_the_public_keys_are_fixed_a_user_leaves_every_other_record_as_it_was(
    batches: list[list[Row]], bounding: Bounding, public: list[set[int]], longest: int, gone: int
) -> None:
    states = [UserKeys.empty(USERS)] * 2
    with patch.object(bounding_module, "MAX_LISTED_KEYS", longest):
        for trigger, batch in enumerate(map(by_user, batches), start=1):
            stay = np.array([user != gone for user, _ in batch], np.bool_)
            everyone = close(batch, bounding, states[0], trigger, public[trigger - 1])
            without = close([row for row in batch if row[0] != gone], bounding, states[1], trigger, public[trigger - 1])
            for name in ("kept", "first", "listed", "weight"):
                assert getattr(everyone, name)[stay].tolist() == getattr(without, name).tolist()
            states = [everyone.state, without.state]


@given(
    batches=BATCHES, capacities=st.tuples(st.integers(1, 2), st.integers(3, 9)), public=PUBLIC, most=st.integers(1, 3)
)
def test_what_the_ledger_keeps_decides_neither_about_lists_nor_about_weights(
    batches: list[list[Row]], capacities: tuple[int, int], public: list[set[int]], most: int
) -> None:
    """So ranks and lists have one order: that of all distinct keys."""
    tight, wide = (whole(capacity, most, 1, 1) for capacity in capacities)
    states = [UserKeys.empty(USERS)] * 2
    for trigger, batch in enumerate(map(by_user, batches), start=1):
        one, other = (
            close(batch, bounding, state, trigger, public[trigger - 1])
            for bounding, state in zip((tight, wide), states, strict=True)
        )
        assert one.listed.tolist() == other.listed.tolist()
        assert one.weight.tolist() == other.weight.tolist()
        assert one.state.key.tolist() == other.state.key.tolist()
        states = [one.state, other.state]


# ---- dropping records early --------------------------------------------------------------------------------------------

Arriving = Callable[[Bounding, npt.NDArray[np.int32], npt.NDArray[np.int32]], npt.NDArray[np.bool_]]


def differs(bounding: Bounding, arriving: Arriving, batches: list[list[Row]], cuts: list[list[bool]]) -> bool:
    """Whether what is dropped early, of each interval in parts that end at the cuts, changes what becomes of any record."""
    early = late = UserKeys.empty(USERS)
    for trigger, (batch, cut) in enumerate(zip(map(by_user, batches), cuts, strict=False), start=1):
        part = np.cumsum(cut[: len(batch)])
        stays = np.zeros(len(batch), np.bool_)
        for number in np.unique(part):
            rows = np.flatnonzero(part == number)
            stays[rows] = arriving(bounding, *columns([batch[i] for i in rows.tolist()]))
        public = {0, 3}
        everything = close(batch, bounding, late, trigger, public)
        left = close(
            [row for row, stay in zip(batch, stays.tolist(), strict=True) if stay], bounding, early, trigger, public
        )
        for name in ("kept", "first", "listed", "weight"):
            outcome = getattr(everything, name)
            if outcome[~stays].any() or outcome[stays].tolist() != getattr(left, name).tolist():
                return True
        early, late = left.state, everything.state
        for name in UserKeys.__dataclass_fields__:
            if getattr(early, name).tolist() != getattr(late, name).tolist():
                return True
    return False


def plain(capacity: int, most: int, max_keys: int | None) -> Bounding:
    return Bounding(max_records=capacity, max_records_per_key=min(capacity, most), max_keys=max_keys)


PLAIN = st.builds(plain, st.integers(1, 6), st.integers(1, 3), st.none() | st.integers(1, 3))
BUSY = st.lists(
    st.lists(st.tuples(st.integers(0, USERS - 1), st.integers(0, 3)), max_size=40), min_size=1, max_size=TRIGGERS
)
CUTS = st.lists(st.lists(st.booleans(), min_size=40, max_size=40), min_size=TRIGGERS, max_size=TRIGGERS)


@given(batches=BUSY, cuts=CUTS, bounding=WHOLE | PLAIN, longest=LONGEST)
def test_what_is_dropped_early_changes_nothing_with_any_history_and_any_fetches(
    batches: list[list[Row]], cuts: list[list[bool]], bounding: Bounding, longest: int
) -> None:
    with patch.object(bounding_module, "MAX_LISTED_KEYS", longest):
        assert not differs(bounding, Bounding.arriving, batches, cuts)


def new_keys_beyond_the_cap(bounding: Bounding, user: Any, key: Any) -> Any:
    """Broken: what a plain cap of so many records with distinct keys would keep."""
    return plain(bounding.max_records, bounding.max_records, bounding.max_records).close(
        user, key, np.ones(USERS, np.int32), UserKeys.empty(USERS)
    ).kept | ~Bounding.arriving(bounding, user, key)


def by_total(bounding: Bounding, user: Any, key: Any) -> Any:
    """Broken: the rule of caps C and m."""
    return plain(bounding.max_records, bounding.max_records_per_key, None).arriving(user, key)


def by_empty_ledger(bounding: Bounding, user: Any, key: Any) -> Any:
    """Broken: what the ledger would reject of a user without history, though its key stands on the list."""
    public = np.zeros(len(key), np.bool_)
    result = bounding.close(user, key, np.full(USERS, TRIGGERS, np.int32), UserKeys.empty(USERS), public)
    return result.kept | result.listed


def beyond_so_many_keys(bounding: Bounding, user: Any, key: Any) -> Any:
    """Broken: one key too early."""
    with patch.object(bounding_module, "MAX_LISTED_KEYS", bounding_module.MAX_LISTED_KEYS - 1):
        return Bounding.arriving(bounding, user, key)


@pytest.mark.parametrize(
    ("arriving", "most", "longest", "caught"),
    [
        (Bounding.arriving, 1, 1 << 16, False),
        (Bounding.arriving, 3, 1 << 16, False),
        (Bounding.arriving, 3, 3, False),
        (new_keys_beyond_the_cap, 1, 1 << 16, True),
        (by_total, 1, 1 << 16, True),
        (by_total, 3, 1 << 16, True),
        (beyond_so_many_keys, 3, 3, True),
    ],
)
def test_more_must_not_be_dropped_early(arriving: Arriving, most: int, longest: int, caught: bool) -> None:
    dice = np.random.default_rng(7)
    found = 0
    with patch.object(bounding_module, "MAX_LISTED_KEYS", longest):
        for _ in range(80):
            with patch.object(bounding_module, "MAX_LISTED_KEYS", 1 << 16):
                bounding = whole(int(dice.integers(1, 13)), most, 1, int(dice.integers(2)))
            batches = [
                list(
                    map(
                        tuple,
                        dice.integers(
                            0, (USERS, dice.integers(2, 7)), size=(dice.integers(dice.choice([6, 40])), 2)
                        ).tolist(),
                    )
                )
                for _ in range(TRIGGERS)
            ]
            cuts = [(dice.random(40) < 0.2).tolist() for _ in range(TRIGGERS)]
            found += differs(bounding, arriving, batches, cuts)
    assert (found > 0) == caught


@pytest.mark.parametrize("most", [1, 3])
def test_what_the_ledger_rejects_without_history_it_may_keep_with_one(most: int) -> None:
    """Where records of one key become dearer: history keeps the third of one key out, which leaves room for another's second."""
    bounding = whole(8, most, 1, 0)
    batches = [[(0, 4), (0, 5)], [], [], [(0, key) for key in (1, 1, 1, 2, 2)]]
    cuts = [[False] * 5] * TRIGGERS
    assert differs(bounding, by_empty_ledger, batches, cuts) == (most > 1)
    assert not differs(bounding, Bounding.arriving, batches, cuts)


def test_a_key_of_a_full_list_behind_as_many_others_of_one_interval_does_not_count_in_any_fetch() -> None:
    """Its ledger has room, and its list holds the key. Whether the others came in the same fetch must not decide about it."""
    bounding = whole(6, 1, 1, 0)
    history, late = [(0, key) for key in (9, 1, 2)], [(0, key) for key in (4, 5, 6, 9)]
    with patch.object(bounding_module, "MAX_LISTED_KEYS", 3):
        state = close(history, bounding, UserKeys.empty(USERS), 1, set()).state
        state = UserKeys(**{name: getattr(state, name).copy() for name in UserKeys.__dataclass_fields__})
        state.count[:], state.kept[:], state.charged[:], state.spent[:] = 0, 0, 0, 0
        assert close(late[-1:], bounding, state, 2, set()).kept.tolist() == [True]
        assert close(late, bounding, state, 2, set()).kept.tolist() == [False] * 4
        assert bounding.arriving(*columns(late)).tolist() == [True, True, True, False]


def test_the_weight_of_every_key_is_one_without_ranks() -> None:
    ledger = ValueLedger([power(TRIGGERS, 0.5, 20)], capacity=1, measured=1, counting=0)
    bounding = Bounding(max_records=1, max_records_per_key=1, ledger=ledger, whole_lists=True)
    got = close([(0, 1), (0, 2), (0, 1)], bounding, UserKeys.empty(USERS), 1, set())
    assert got.weight.tolist() == [WEIGHT_ONE, WEIGHT_ONE, 0]
    assert got.kept.tolist() == [True, False, False]


def test_ledgers_and_whole_lists_go_together_and_without_a_cap_on_keys() -> None:
    ledger = ValueLedger([power(TRIGGERS, 0.5, 20)], capacity=3, measured=1, counting=0)
    for fields in ({"ledger": ledger}, {"whole_lists": True}, {"ledger": ledger, "whole_lists": True, "max_keys": 2}):
        with pytest.raises(ValueError, match="go together"):
            Bounding(max_records=3, max_records_per_key=1, **fields)  # type: ignore[arg-type]
    with (
        patch.object(bounding_module, "MAX_LISTED_KEYS", 2),
        pytest.raises(ValueError, match="more keys than a list holds"),
    ):
        Bounding(max_records=3, max_records_per_key=1, ledger=ledger, whole_lists=True)
