"""Shares by weight: against exact fractions, in the ledger, and by composing all mechanisms with dp-accounting."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.dp_sqlp import DpSqlp
from susurrus.mechanisms.histogram.plan import MAX_WEIGHT, MIN_WEIGHT, Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.shares import ledger_weights
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.mechanisms.histogram.tree import levels
from susurrus.mechanisms.histogram.value_ledger import MOST_USERS, ValueLedger
from tests.mechanisms.histogram.test_value_ledger import FINE, RECORDS, admitted, cost

VISITS, USERS = Column(name="visits", kind="count"), Column(name="users", kind="users")
BYTES, TIME = (Column(name=name, kind="sum", bound=50) for name in ("bytes", "time"))
WEIGHTS = st.sampled_from([0.01, 0.1, 0.5, 1.0, 1.5, 3.0, 10.0, 100.0])
STRATEGIES: dict[str, dict[str, Any]] = {
    "toeplitz": {"strategy": "toeplitz"},
    "declared keys": {"strategy": "toeplitz", "discover": False},
    "closing": {"strategy": "closing"},
    "dp-sqlp": {"strategy": "dp-sqlp", "discover": False},
}


def built(name: str, *columns: Column, **changes: Any) -> Strategy[Any]:
    fields: dict[str, Any] = {"triggers": 4, "epsilon": 2.0, "delta": 1e-6, "max_records": 4, **STRATEGIES[name]}
    return build_strategy(plan_of(columns=columns, **fields | changes))


def squared_costs(strategy: Any) -> list[float]:
    """What one record of the largest size at the first trigger costs of mu^2 in each mechanism, each of them once."""
    if isinstance(strategy, DpSqlp):
        # All of a user's records may be in one leaf.
        size = strategy.plan.max_records
        return [
            (size * column.bound / sigma) ** 2 * levels(strategy.plan.triggers)
            for column, sigma in zip(strategy.plan.columns, strategy.value_sigma, strict=True)
        ]
    found = {}
    for column, source in zip(strategy.plan.columns, strategy.source, strict=True):
        value = strategy.values[source]
        found[source] = column.bound**2 * value.factorization.col2 / value.sigma**2
    return [found[source] for source in sorted(found)]


@pytest.mark.parametrize("name", STRATEGIES)
@given(weights=st.lists(WEIGHTS, min_size=4, max_size=4))
@settings(max_examples=15, deadline=None)
def test_costs_are_in_the_ratio_of_the_shares_and_add_up_to_what_equal_ones_do(name: str, weights: list[float]) -> None:
    pairs = zip((VISITS, USERS, BYTES, TIME), weights, strict=True)
    columns = [replace(column, weight=weight) for column, weight in pairs]
    # Several records per key, so that the count is a column of its own; one for dp-sqlp, whose worst case is another.
    more = {} if name == "dp-sqlp" else {"max_records_per_key": 2}
    strategy = built(name, *columns, **more)
    equal = built(name, VISITS, USERS, BYTES, TIME, **more)
    shares = type(strategy).shares(strategy.plan)
    assert sum(shares) == pytest.approx(1)
    order = list(range(4)) if name == "dp-sqlp" else [1, 0, 2, 3]  # the users' mechanism comes first
    costs = squared_costs(strategy)
    if name in ("closing", "dp-sqlp"):
        assert [one / sum(costs) for one in costs] == pytest.approx([shares[place] for place in order])
        assert sum(costs) == pytest.approx(sum(squared_costs(equal)))
    else:
        # Of the columns with a mechanism of their own; the users' cost is per key.
        own = [shares[place] / (1 - shares[1]) for place in order[1:]]
        assert [one / sum(costs[1:]) for one in costs[1:]] == pytest.approx(own)
    by_weight = [Fraction(weight) for weight in (weights[0], weights[2], weights[3])]
    own = [shares[0], shares[2], shares[3]]
    expected = [float(weight / sum(by_weight)) for weight in by_weight]
    assert [share / sum(own) for share in own] == pytest.approx(expected)
    # `unit_variances` says the same as the noise.
    units = type(strategy).unit_variances(strategy.plan)
    found = [
        (error**2 - 1 / 12) / column.bound**2 / unit
        for error, column, unit in zip(strategy.standard_errors()[-1], columns, units, strict=True)
    ]
    # Large noise is on coarser grids; so are the scales of the columns of toeplitz, which "declared keys" is, too.
    assert found == pytest.approx([found[0]] * 4, rel=5e-3 if STRATEGIES[name]["strategy"] == "toeplitz" else 1e-4)


@pytest.mark.parametrize("name", STRATEGIES)
def test_equal_weights_are_no_weights(name: str) -> None:
    """Of whatever size; and a plan with the default says nothing of weights."""
    plain = built(name, VISITS, BYTES)
    same = built(name, replace(VISITS, weight=7.0), replace(BYTES, weight=7.0))
    assert np.array_equal(plain.standard_errors(), same.standard_errors())
    assert plain.plan.digest() != same.plan.digest()
    assert "weight" not in plain.plan.published()["columns"][0]


@pytest.mark.parametrize("name", ["declared keys", "closing"])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.1, 3.0, 10.0), (100.0, 0.5, 1.5)])
def test_all_mechanisms_together_keep_the_promise(name: str, weights: tuple[float, ...]) -> None:
    """A user with the most keys, in all mechanisms at once: by dp-accounting's loss distribution of their composition."""
    columns = [replace(column, weight=weight) for column, weight in zip((USERS, BYTES, TIME), weights, strict=True)]
    strategy = built(name, *columns)
    # The values of `closing` have a part of the budget, which is scaled to all of it.
    part = strategy.plan.parameters.value_share if name == "closing" else 1.0  # type: ignore[attr-defined]
    costs = [one * strategy.plan.max_records / part for one in squared_costs(strategy)]

    def epsilon(mechanisms: list[float]) -> float:
        accountant = PLDAccountant(value_discretization_interval=1e-3)
        for one in mechanisms:
            accountant.compose(GaussianDpEvent(noise_multiplier=one**-0.5))
        return float(accountant.get_epsilon(strategy.guarantee.delta_gaussian))

    assert strategy.plan.epsilon - 0.02 <= epsilon(costs) <= strategy.plan.epsilon + 0.02
    # A weight that counts in one column and not in the sum of the weights: one mechanism costs twice as much.
    assert epsilon([*costs[:-1], 2 * costs[-1]]) > strategy.plan.epsilon + 0.02 or costs[-1] < 0.05 * sum(costs)


@given(records=RECORDS, ratio=st.sampled_from([(1, 2), (3, 1), (8, 7), (20, 1), (1, 1)]), most=st.integers(2, 4))
def test_no_user_shifts_all_values_by_more_than_the_ledger_with_weights_allows(
    records: list[tuple[int, int]], ratio: tuple[int, int], most: int
) -> None:
    measured, counting = ratio
    ledger = ValueLedger([FINE], capacity=3, measured=measured, counting=counting)
    kept, charged = admitted(ledger, most, records)
    exact = measured * cost(kept, [FINE], None, [1] * len(kept)) + counting * cost(kept, [], FINE, [1] * len(kept))
    assert exact <= Fraction(charged, 1 << 2 * ledger.bits) <= 3 * (measured + counting)


def test_a_first_record_that_is_dearer_than_the_second_would_be_charged_too_little() -> None:
    """The ledger would keep the second one as a cheap one, though the first is not kept. So it is refused."""
    ledger = ValueLedger([FINE], capacity=3, measured=1, counting=MOST_USERS + 1)
    Bounding(max_records=3, max_records_per_key=1, ledger=ledger, whole_lists=True)
    with pytest.raises(ValueError, match="must be at most 2 times"):
        admitted(ledger, 2, [])
    strategy = built("closing", replace(USERS, weight=100.0), BYTES, max_records_per_key=2)
    assert ledger_weights(strategy.plan) == (1, MOST_USERS)
    assert ledger_weights(replace(strategy.plan, max_records_per_key=1)) == (1, 100)


@given(weights=st.lists(WEIGHTS, min_size=3, max_size=3))
def test_the_ledgers_integers_are_close_to_the_weights(weights: list[float]) -> None:
    columns = [replace(column, weight=weight) for column, weight in zip((USERS, BYTES, TIME), weights, strict=True)]
    plan = plan_of("closing", columns=tuple(columns), triggers=4, epsilon=2.0, delta=1e-6, max_records=4)
    measured, counting = ledger_weights(plan)
    assert measured / counting == pytest.approx((weights[1] + weights[2]) / weights[0], rel=0.07)
    assert min(measured, counting) <= 8


@pytest.mark.parametrize("weight", [0.0, MIN_WEIGHT / 2, MAX_WEIGHT * 2, float("nan")])
def test_weights_out_of_range_are_refused(weight: float) -> None:
    with pytest.raises(ConfigurationError, match=r"columns.visits.weight=.*only ratios matter"):
        built("toeplitz", replace(VISITS, weight=weight))
