"""The eleven plans of `closing`: each costs what the first one costs, and bounds users by the same constants."""

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.persistence import (
    FIRST,
    LASTING,
    SHARES,
    TENTHS,
    persistence_of,
    persistence_with,
    shares_at,
)
from susurrus.mechanisms.histogram.plan import Column, Level, Plan
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from tests.mechanisms.histogram.closing_cases import PAID, USERS, VISITS, drawn, names, plan, stream_noise, window
from tests.mechanisms.histogram.test_closing_accounting import check_costs, check_delta
from tests.reference import NO_LAST_LOOK

CELLS = Column(name="seconds", kind="cells", buckets=16)
PLANS = {
    "one column": plan(),
    "a day": plan((USERS,), triggers=100, epsilon=6.0, delta=1e-9, max_records=36, minimum_users=8),
    "columns": plan((USERS, PAID, CELLS), max_records=20, max_records_per_key=3, minimum_users=2, lag=2),
    # The noise of its sums crosses a power of two between the first share and the last one.
    "large sums": plan((USERS, Column(name="bytes", kind="sum", bound=49_316)), triggers=96, epsilon=6.0, delta=1e-9),
    "few keys": plan(max_records=3, keys=2, ranked_keys=2, triggers=2),
    "own weights": plan(prior=(1.0, 0.5, 0.1), filter_weight=0.3, gamma=0.6),
}


@pytest.fixture(params=PLANS.values(), ids=PLANS.keys(), scope="module")
def eleven(request: pytest.FixtureRequest) -> list[Any]:
    return [build_strategy(request.param.at_persistence(persistence)) for persistence in range(TENTHS + 1)]


def bounds_of(strategy: Any) -> dict[str, Any]:
    """Every constant by which records and lists are weighed, as values that can be compared."""
    bounding, ledger, lists = strategy.bounding, strategy.bounding.ledger, strategy.lists
    return {
        **{name: value for name, value in vars(bounding).items() if name not in ("weights", "ledger")},
        "weights": bounding.weights.tolist(),
        "ledger": {name: value for name, value in vars(ledger).items() if name != "roots"},
        "roots": ledger.roots.tolist(),
        "lists": {name: value for name, value in vars(lists).items() if name != "_unknown"},
        "unknown": lists._unknown.tolist(),
        "units": lists.row_units(np.arange(0, 5000, 7)[:, None].repeat(strategy.plan.width, axis=1)).tolist(),
        "coefficients": [value.factorization.numerators for value in strategy.values],
        "selection": strategy.selector.factorization.numerators,
    }


class TestMeasure:
    def test_it_is_rounded_down_to_tenths_in_integers(self) -> None:
        for rows in range(60):
            for known in range(rows + 1):
                tenths = persistence_of(known, rows)
                if rows:
                    assert Fraction(tenths, 10) <= Fraction(known, rows) < Fraction(tenths + 1, 10)
                else:
                    assert tenths == 0
        # Float64 would round the first one up.
        assert persistence_of(3 * 10**16 - 1, 10**17) == 2
        assert persistence_of(3 * 10**16, 10**17) == 3

    @pytest.mark.parametrize(("known", "rows"), [(1, 0), (-1, 5), (6, 5)])
    def test_impossible_counts_are_refused(self, known: int, rows: int) -> None:
        with pytest.raises(ValueError, match=f"known={known}, rows={rows}"):
            persistence_of(known, rows)

    def test_a_kappa_that_there_is_not_is_refused(self) -> None:
        for persistence in (-1, 11):
            with pytest.raises(ValueError, match=f"persistence={persistence}"):
                shares_at(persistence)


class TestShares:
    def test_each_four_add_up_to_one_in_fractions(self) -> None:
        assert [sum(shares) for shares in SHARES] == [1] * 11
        assert all(share > 0 for shares in SHARES for share in shares)

    def test_the_ends_are_those_that_were_studied_and_the_steps_are_equal(self) -> None:
        assert tuple(map(float, FIRST)) == (0.40, 0.42, 0.13, 0.05)
        assert tuple(map(float, LASTING)) == (0.25, 0.35, 0.28, 0.12)
        assert (SHARES[0], SHARES[10]) == (FIRST, LASTING)
        for earlier, later in itertools.pairwise(SHARES):
            for first, last, before, after in zip(FIRST, LASTING, earlier, later, strict=True):
                assert after - before == (last - first) / 10

    def test_the_first_plan_is_the_one_that_runs_without_memory(self) -> None:
        """Its digest is in addresses: a pipeline that remembers nothing must not change."""
        for given in PLANS.values():
            assert given.at_persistence(0) == given
            assert given.at_persistence(0).digest() == given.digest()
        assert Closing.Parameters().persistence == 0

    def test_shares_are_recognised_by_their_numbers(self) -> None:
        for persistence in range(11):
            parameters = Closing.Parameters().at_persistence(persistence)
            assert parameters.persistence == persistence
            assert parameters.value_share == pytest.approx(float(SHARES[persistence].values), abs=1e-15)
        assert persistence_with(0.41, 0.13, 0.05) is None

    def test_other_shares_stay_as_they_are(self) -> None:
        for given in (
            plan(unknown_share=0.2),
            plan(discovery_share=0.5, **NO_LAST_LOOK),
            plan_of("toeplitz", **COMMON),
        ):
            assert not given.follows_persistence
            assert given.at_persistence(7) == given

    def test_levels_have_one_kappa_and_only_those_with_default_shares_follow_it(self) -> None:
        given = leveled()
        assert given.follows_persistence
        moved = given.at_persistence(6)
        assert [level.name for level in moved.levels] == ["a", "b", "c"]
        assert moved.levels[0].parameters == Closing.Parameters(keys=10).at_persistence(6)
        assert moved.levels[1:] == given.levels[1:]
        assert not replace(given, levels=given.levels[1:]).follows_persistence
        first, last = build_strategy(given), build_strategy(moved)
        assert first.guarantee == last.guarantee
        for before, after in zip(first.by_level, last.by_level, strict=True):
            assert before.guarantee == after.guarantee


COMMON: dict[str, Any] = {"columns": (VISITS,), "triggers": 3, "epsilon": 2.0, "delta": 1e-6, "max_records": 8}


def leveled() -> Plan:
    own = Closing.Parameters(unknown_share=0.2)
    parameters = Closing.Parameters()
    levels = (
        Level(name="a", strategy="closing", parameters=Closing.Parameters(keys=10), max_records=8, share=0.5),
        Level(name="b", strategy="closing", parameters=own, max_records=8, share=0.25),
        Level(
            name="c",
            strategy="toeplitz",
            parameters=plan_of("toeplitz", **COMMON).parameters,
            max_records=8,
            discover=False,
            share=0.25,
        ),
    )
    return Plan(strategy="closing", parameters=parameters, levels=levels, **COMMON)


class TestPromise:
    def test_each_of_the_eleven_costs_what_the_first_one_costs(self, eleven: list[Any]) -> None:
        """By fractions and Gaussian tails of 60 digits, from `describe`."""
        for strategy in eleven:
            check_costs(strategy)
            check_delta(strategy)
            assert strategy.guarantee == eleven[0].guarantee

    def test_bounding_is_the_same_in_all_eleven(self, eleven: list[Any]) -> None:
        first = bounds_of(eleven[0])
        for strategy in eleven[1:]:
            assert bounds_of(strategy) == first

    def test_a_grid_for_each_plan_would_admit_records_by_other_costs(self) -> None:
        """The planted defect: shares just beside those of the family, whose coefficients therefore have a grid of their own."""
        given = PLANS["large sums"]
        lasting = given.at_persistence(10)
        beside = replace(lasting.parameters_as(Closing.Parameters), discovery_share=0.25 + 1e-12)
        first, own = build_strategy(given), build_strategy(replace(lasting, parameters=beside))
        assert bounds_of(own)["coefficients"] != bounds_of(first)["coefficients"]
        # Records that the first plan's ledger admits would cost more than the share of the values, at most triggers.
        dearer = own.bounding.ledger.roots > first.bounding.ledger.roots
        assert dearer.sum() > 10

    def test_noise_of_each_plan_has_an_address_of_its_own(self, eleven: list[Any]) -> None:
        assert len({strategy.plan.digest() for strategy in eleven}) == 11
        keys, noise = names(50), window()
        for draw in (
            lambda each: stream_noise(each, keys, noise)[:, 0] / each.selector.sigma,
            lambda each: drawn(each, "unknown", each.look.unknown_sigma, keys, noise) / each.look.unknown_sigma,
            lambda each: drawn(each, "public", each.look.public_sigma, keys, noise) / each.look.public_sigma,
        ):
            normal = np.array([draw(strategy) for strategy in eleven])
            correlation = np.corrcoef(normal)
            assert np.abs(correlation - np.eye(11)).max() < 0.6  # 4 standard deviations of 50 independent draws
        used = [set(strategy._value_mechanisms) | {strategy._selection_mechanism} for strategy in eleven]
        assert sum(map(len, used)) == len(set.union(*used))

    def test_the_last_trigger_gains_what_discovery_gives(self, eleven: list[Any]) -> None:
        """Noise follows the shares: less at the end, more in the stream, step by step."""
        for earlier, later in itertools.pairwise(eleven):
            assert later.look.unknown_sigma < earlier.look.unknown_sigma
            assert later.look.public_sigma < earlier.look.public_sigma
            assert later.selector.sigma > earlier.selector.sigma
            for before, after in zip(earlier.values, later.values, strict=True):
                assert after.sigma > before.sigma
