"""What a user's kept records cost, in exact fractions from |C dx|^2, against what the ledger charges for them."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.bounding import Bounding, UserKeys
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.factorization import Factorization, power
from susurrus.mechanisms.histogram.value_ledger import ValueLedger

TRIGGERS = 5
STEEP, FINE = power(TRIGGERS, 0.3, 8), power(TRIGGERS, 0.5, 20)

Record = tuple[int, int]
"""(trigger, key)."""


def shifts(factorization: Factorization, triggers: list[int], values: list[int]) -> Fraction:
    """|C dx|^2 / |C e_1|^2 of values that one key gains at these triggers, row by row."""
    rows = [0] * factorization.triggers
    for trigger, value in zip(triggers, values, strict=True):
        for row, coefficient in enumerate(
            factorization.numerators[: factorization.triggers - trigger + 1], trigger - 1
        ):
            rows[row] += value * coefficient
    one = sum(numerator**2 for numerator in factorization.numerators)
    return Fraction(sum(row * row for row in rows), one)


def cost(kept: list[Record], columns: list[Factorization], users: Factorization | None, values: list[int]) -> Fraction:
    """Of one user's kept records in all mechanisms, in units of a record of the largest size at the first trigger.

    values: of the records, -1 to 1, in every column; users: of the column that counts them.
    """
    total = Fraction(0)
    for key in {key for _, key in kept}:
        triggers = [trigger for trigger, name in kept if name == key]
        mine = [value for value, (_, name) in zip(values, kept, strict=True) if name == key]
        total += sum((shifts(column, triggers, mine) for column in columns), Fraction(0))
        if users is not None:
            total += shifts(users, triggers[:1], [1])
    return total


def admitted(ledger: ValueLedger, most: int, records: list[Record]) -> tuple[list[Record], int]:
    """(kept records, charged) of one user's records, whose triggers do not decrease."""
    bounding = Bounding(max_records=ledger.capacity, max_records_per_key=most, ledger=ledger, whole_lists=True)
    state, kept = UserKeys.empty(1), []
    for trigger, some in itertools.groupby(sorted(records, key=lambda record: record[0]), key=lambda record: record[0]):
        batch = list(some)
        key = np.array([name for _, name in batch], np.int32)
        result = bounding.close(np.zeros(len(batch), np.int32), key, np.array([trigger], np.int32), state)
        state = result.state
        kept += [record for record, keeps in zip(batch, result.kept.tolist(), strict=True) if keeps]
    return kept, int(state.charged[0])


class PerRecord(ValueLedger):
    """The broken ledger: every record is charged its cc_t, also where others of its key were kept."""

    def admit(self, user: Any, root: Any, pair: Any, repeat: Any, *rest: Any) -> Any:
        return super().admit(user, root, np.arange(len(pair)), repeat * 0, np.zeros(len(pair), np.int64), *rest[1:])


RECORDS = st.lists(st.tuples(st.integers(1, TRIGGERS), st.integers(0, 4)), max_size=30)


@given(records=RECORDS, signs=st.lists(st.integers(-1, 1), min_size=30, max_size=30), data=st.data())
def test_all_values_together_never_shift_by_more_than_is_charged(
    records: list[Record], signs: list[int], data: st.DataObject
) -> None:
    columns = data.draw(st.lists(st.sampled_from([STEEP, FINE]), max_size=2))
    users = data.draw(st.sampled_from([STEEP, FINE]) if not columns else st.sampled_from([None, STEEP, FINE]))
    capacity, most = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    every = [*columns, *([users] if users is not None else [])]
    ledger = ValueLedger(every, capacity=capacity, measured=len(columns), counting=int(users is not None))
    kept, charged = admitted(ledger, most, records)
    unit = 1 << 2 * ledger.bits
    for values in ([1] * len(kept), signs[: len(kept)]):
        assert cost(kept, columns, users, values) <= Fraction(charged, unit)
    assert charged <= ledger.limit == capacity * len(every) * unit
    if most == 1 and len(set(every)) == 1:
        # What is charged beyond it is the grid's rounding.
        exact = cost(kept, columns, users, [1] * len(kept))
        assert Fraction(charged, unit) <= exact + len(kept) * len(every) * (
            Fraction(2, 1 << ledger.bits) + Fraction(1, unit)
        )


@pytest.mark.parametrize("kind", [ValueLedger, PerRecord])
@pytest.mark.parametrize("columns", [1, 2])
def test_repeats_of_one_key_are_charged_for_moving_the_same_rows(kind: type[ValueLedger], columns: int) -> None:
    """Forty records of one key at the first trigger shift a count 1,600 times as much as one, not forty times."""
    ledger = kind([FINE] * columns, capacity=40, measured=columns, counting=0)
    kept, charged = admitted(ledger, 40, [(1, 0)] * 40)
    truth = cost(kept, [FINE] * columns, None, [1] * len(kept))
    holds = truth <= 40 * columns and truth <= Fraction(charged, 1 << 2 * ledger.bits)
    assert holds == (kind is ValueLedger)
    assert len(kept) == (6 if kind is ValueLedger else 40)


def test_with_one_record_per_key_both_charge_the_same_for_any_user() -> None:
    dice = np.random.default_rng(1)
    for _ in range(50):
        records = [(int(t), int(k)) for t, k in dice.integers((1, 0), (TRIGGERS + 1, 20), size=(40, 2))]
        outcomes = [
            admitted(kind([FINE], capacity=5, measured=0, counting=1), 1, records) for kind in (ValueLedger, PerRecord)
        ]
        assert outcomes[0] == outcomes[1]
        assert len(outcomes[0][0]) >= 5


def test_what_does_not_fit_is_skipped_and_what_comes_later_may_fit() -> None:
    """So with several records per key whether one is kept depends on what was kept before, and nothing but that."""
    ledger = ValueLedger([FINE], capacity=4, measured=1, counting=0)
    a, b, c = (1, 0), (1, 1), (1, 2)
    assert admitted(ledger, 2, [c, a, a, b])[0] == [c, a, b]
    assert admitted(ledger, 2, [a, a, b])[0] == [a, a]
    unit = 1 << 2 * ledger.bits
    assert admitted(ledger, 2, [c, a, a, b])[1] == 3 * unit
    assert admitted(ledger, 2, [a, a, b])[1] == 4 * unit


def test_a_key_that_did_not_fit_may_fit_at_a_later_trigger() -> None:
    ledger = ValueLedger([FINE], capacity=6, measured=0, counting=1)
    early, late = [(3, key) for key in range(9)], [(5, key) for key in range(9)]
    assert admitted(ledger, 1, early)[0] == early[:6]
    assert int(ledger.roots[4]) ** 2 <= ledger.limit - admitted(ledger, 1, early)[1] < int(ledger.roots[2]) ** 2
    assert admitted(ledger, 1, early + late)[0] == [*early[:6], late[6]]


@pytest.mark.parametrize("bits", [8, 20])
@pytest.mark.parametrize("triggers", [1, 2, 100])
def test_roots_are_the_smallest_that_are_not_below_the_cost(bits: int, triggers: int) -> None:
    factorization = power(triggers, 0.5, bits)
    ledger = ValueLedger([factorization], capacity=36, measured=1, counting=1)
    assert ledger.bits == 16
    for root, square in zip(ledger.roots.tolist(), factorization.column_squares, strict=True):
        wanted = square / factorization.column_squares[0] * (1 << 32)
        assert (root - 1) ** 2 < wanted <= root**2
    assert ledger.roots[0] == 1 << 16


def test_the_dearest_of_several_factorizations_is_charged() -> None:
    both = ValueLedger([STEEP, FINE], capacity=3, measured=2, counting=0)
    each = [ValueLedger([one], capacity=3, measured=2, counting=0).roots for one in (STEEP, FINE)]
    assert both.roots.tolist() == np.maximum(*each).tolist()
    assert not np.array_equal(*each)


@pytest.mark.parametrize(("measured", "counting", "most"), [(0, 1, 1), (1, 0, 3), (1, 1, 3), (2, 1, 2)])
def test_no_user_keeps_more_records_than_the_most_there_are(measured: int, counting: int, most: int) -> None:
    ledger = ValueLedger([FINE], capacity=7, measured=measured, counting=counting)
    # Each a key of its own, at the last trigger, when a record costs least.
    assert len(admitted(ledger, most, [(TRIGGERS, key) for key in range(99)])[0]) == ledger.most_records > 7
    dice = np.random.default_rng(2)
    for _ in range(30):
        records = [(int(t), int(k)) for t, k in dice.integers((1, 0), (TRIGGERS + 1, 20), size=(60, 2))]
        assert len(admitted(ledger, most, records)[0]) <= ledger.most_records


@pytest.mark.parametrize("trigger", [1, TRIGGERS])
def test_the_costs_of_a_million_records_do_not_overflow(trigger: int) -> None:
    """The largest capacity there is, and one user who brings more than that in one interval."""
    capacity = 1 << 20
    ledger = ValueLedger([FINE], capacity=capacity, measured=1, counting=1)
    assert ledger.limit == capacity << (2 * ledger.bits + 1) <= 1 << 42
    n = capacity + 1000
    zeros = np.zeros(n, np.int64)
    root = np.full(n, ledger.roots[trigger - 1])
    kept, costs = ledger.admit(
        zeros.astype(np.int32), root, np.arange(n), zeros, zeros, np.zeros(1, np.int64), np.ones(n, np.bool_)
    )
    assert kept[:capacity].all()
    assert not kept[capacity:].any()
    total = sum(costs.tolist())
    assert total == 2 * capacity * int(root[0]) ** 2
    assert (total == ledger.limit) == (trigger == 1)
    # One key alone: the next record of the key would cost more than is left.
    kept, costs = ledger.admit(
        zeros.astype(np.int32), root, zeros, np.arange(n), zeros[:1], np.zeros(1, np.int64), np.ones(n, np.bool_)
    )
    r, records = int(root[0]), int(kept.sum())
    assert kept[:records].all()
    assert (records**2 + 1) * r**2 == sum(costs.tolist()) <= ledger.limit < ((records + 1) ** 2 + 1) * r**2


@pytest.mark.parametrize(("measured", "counting"), [(0, 0), (2, -1), (-1, 1)])
def test_a_ledger_without_columns_is_refused(measured: int, counting: int) -> None:
    with pytest.raises(ValueError, match="columns to measure"):
        ValueLedger([FINE], capacity=1, measured=measured, counting=counting)


@pytest.mark.parametrize("triggers", [1, 2, 3, 10, 100, 2048])
def test_how_many_records_a_user_can_keep_is_bounded_before_any_noise_is_known(triggers: int) -> None:
    """For the room of sums, which the configuration is checked for before a strategy is built."""
    for bits in range(8, 21, 4):
        most = ValueLedger([power(triggers, 0.5, bits)], capacity=40, measured=1, counting=1).most_records
        assert 40 <= most <= Closing.longest(triggers, 40) < 1.5 * most + 41
    assert math.isclose(Closing.longest(triggers, 80), 2 * Closing.longest(triggers, 40), abs_tol=2)
