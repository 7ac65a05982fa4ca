"""Any records, through the caps of all levels: what one user moves at all of them together."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.levels import Levels
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.toeplitz import Toeplitz
from tests.mechanisms.histogram.test_guarantee import PUBLIC, RECORDS, cost_of_a_user
from tests.mechanisms.histogram.test_levels import COLUMNS, USERS, plan_of_levels

PARENTS = (lambda key: key % 3, lambda key: key, lambda key: 0)
"""The key of a record at each level: its country, itself, the total."""
Records = list[tuple[int, int, int, int]]


def built(strategy: Any, columns: Any, per_key: int) -> Levels:
    found = build_strategy(plan_of_levels(strategy, columns=columns, per_key=per_key, triggers=6))
    assert isinstance(found, Levels)
    return found


STRATEGIES = {
    "toeplitz": built(Toeplitz, USERS, 1),
    "toeplitz, records": built(Toeplitz, COLUMNS, 3),
    "closing": built(Closing, USERS, 1),
}


def cost_at_all_levels(strategy: Levels, records: Records, user: int, public: list[set[int]]) -> Fraction:
    """Public keys are any at every level, as an adversary would wish."""
    return sum(
        (
            cost_of_a_user(level, [(t, u, of(key), value) for t, u, key, value in records], user, public)
            for level, of in zip(strategy.levels, PARENTS, strict=True)
        ),
        Fraction(0),
    )


@settings(max_examples=40, deadline=None)
@given(records=RECORDS, user=st.integers(0, 4), public=PUBLIC)
@pytest.mark.parametrize("name", STRATEGIES)
def test_removing_one_user_moves_all_levels_together_at_most_by_mu(
    name: str, records: Records, user: int, public: list[set[int]]
) -> None:
    strategy = STRATEGIES[name]
    assert cost_at_all_levels(strategy, records, user, public) <= Fraction(strategy.guarantee.mu) ** 2


def test_levels_that_are_accounted_as_one_level_are_moved_by_more() -> None:
    """The planted defect: each level has the noise that it would have alone."""
    broken: Any = built(Toeplitz, USERS, 1)
    plans = broken.plan.level_plans()
    broken.levels = [build_strategy(replace(level, part=replace(level.part, share=1.0))) for level in plans]
    worst = find(
        st.tuples(RECORDS, PUBLIC),
        lambda given: (
            cost_at_all_levels(broken, given[0], given[0][0][1], given[1]) > Fraction(broken.guarantee.mu) ** 2
        ),
    )
    assert len(worst[0]) <= 4  # few records are enough
