"""Several groupings: what the levels cost together, and that a step of all is the levels' own steps."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.dp_sqlp import DpSqlp
from susurrus.mechanisms.histogram.factored import Factored, budget_of
from susurrus.mechanisms.histogram.levels import Levels, default_shares, level_of
from susurrus.mechanisms.histogram.plan import Column, Level, Plan
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.toeplitz import Toeplitz
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource

CAPS = (("country", 3, True), ("city", 12, True), ("total", 1, False))
USERS = (Column(name="n", kind="users"),)
COLUMNS = (Column(name="n", kind="count"), Column(name="spend", kind="sum", bound=100))


def plan_of_levels(strategy=Toeplitz, *, columns=USERS, per_key=1, caps=CAPS, triggers=8, epsilon=2.0, delta=1e-6):
    shares = default_shares([most for _, most, _ in caps], [None] * len(caps))
    levels = tuple(
        Level(
            name=name,
            strategy=(strategy if discover else Toeplitz).name,
            parameters=(strategy if discover else Toeplitz).Parameters().within(most),
            max_records=most,
            max_records_per_key=min(per_key, most),
            discover=discover,
            share=share,
        )
        for (name, most, discover), share in zip(caps, shares, strict=True)
    )
    return Plan(
        strategy=strategy.name,
        parameters=strategy.Parameters(),
        columns=columns,
        triggers=triggers,
        epsilon=epsilon,
        delta=delta,
        max_records=max(most for _, most, _ in caps),
        levels=levels,
    )


def noise():
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline="p").window(0)


def cost_of(level: Factored) -> Fraction:
    """The squared shift of the costliest user of a `toeplitz` level in standard deviations, from published constants alone."""
    plan = level.plan
    users = next((value for value in level.values if value.mechanism == "users"), None)
    most = Fraction(0)
    for keys in range(1, plan.max_records + 1):
        # Brute force over how records are put on keys: as uneven as the caps allow.
        left, square = plan.max_records - keys, 0
        for _ in range(keys):
            more = min(left, plan.max_records_per_key - 1)
            left -= more
            square += (1 + more) ** 2
        per_key = Fraction(0) if users is None else _per_record(users, 1) * keys
        others = sum(
            (
                _per_record(level.values[source], column.bound) * square
                for column, source in zip(plan.columns, level.source, strict=True)
                if level.values[source] is not users
            ),
            Fraction(0),
        )
        most = max(most, per_key + others)
    return most


def _per_record(value, bound) -> Fraction:
    c = [Fraction(n, 1 << value.factorization.bits) for n in value.factorization.numerators]
    return sum((x * x for x in c), Fraction(0)) * bound * bound / Fraction(value.sigma) ** 2


@pytest.mark.parametrize(("columns", "per_key"), [(USERS, 1), (COLUMNS, 1), (COLUMNS, 3)])
def test_the_costliest_user_of_all_levels_together_costs_what_epsilon_allows(columns, per_key):
    strategy = build_strategy(plan_of_levels(columns=columns, per_key=per_key))
    assert isinstance(strategy, Levels)
    together = sum(map(cost_of, strategy.levels))
    mu = strategy.guarantee.mu
    assert float(together) <= mu * mu
    if per_key == 1:
        assert float(together) == pytest.approx(mu * mu, rel=1e-6)  # a user can be the costliest at all levels
    # The Gaussian of this shift, by another accountant's arithmetic.
    curve = from_gaussian_mechanism(1 / math.sqrt(together), value_discretization_interval=1e-4)
    assert curve.get_delta_for_epsilon(2.0) <= strategy.guarantee.delta_gaussian * 1.01


def test_levels_that_are_accounted_as_one_level_would_exceed_the_budget():
    plan = plan_of_levels()
    broken = [build_strategy(replace(level, part=replace(level.part, share=1.0))) for level in plan.level_plans()]
    together = sum(cost_of(level) for level in broken)
    assert math.sqrt(together) > 1.7 * budget_of(plan).mu


@pytest.mark.parametrize("strategy", [Toeplitz, Closing])
def test_parts_of_delta_add_up(strategy):
    plan = plan_of_levels(strategy)
    levels = build_strategy(plan).levels
    whole = budget_of(plan)
    assert sum(level.guarantee.mu**2 for level in levels) <= whole.mu**2
    assert sum(level.guarantee.delta_selection for level in levels) <= whole.delta_selection
    assert [level.guarantee.delta_selection > 0 for level in levels] == [True, True, False]
    assert levels[2].selector is None  # the empty set has one key, which everybody knows
    for level in levels[:2]:
        # beta / (2 T) is the upper tail of the quantile: K beta is no more than the level's part
        beta = math.erfc(level.selector.quantile / math.sqrt(2)) / 2 * 2 * plan.triggers
        stream = level.guarantee.delta_selection * (0.5 if strategy is Closing else 1)
        assert beta * level.describe()["keys_per_user"] <= stream
    assert whole.delta_gaussian + whole.delta_selection <= plan.delta


def test_without_selection_all_of_delta_is_gaussian():
    plan = plan_of_levels(caps=(("country", 3, False), ("total", 1, False)))
    assert budget_of(plan).delta_selection == 0
    assert all(level.guarantee.delta_selection == 0 for level in build_strategy(plan).levels)
    assert budget_of(plan).delta_gaussian == pytest.approx(plan.delta, rel=1e-4)


def test_no_two_levels_share_an_address_of_noise():
    strategy = build_strategy(plan_of_levels(caps=(("a", 3, True), ("b", 3, True))))
    first, second = strategy.levels
    assert first.plan.max_records == second.plan.max_records  # same constants, but for the name
    assert not set(first._value_mechanisms) & set(second._value_mechanisms)
    assert first._selection_mechanism != second._selection_mechanism


@pytest.mark.parametrize(
    "columns", [USERS, (*USERS, Column(name="q", kind="cells", buckets=3))], ids=["users", "cells"]
)
@pytest.mark.parametrize("strategy", [Toeplitz, Closing])
def test_a_step_is_the_steps_of_the_levels(strategy, columns):
    plan = plan_of_levels(strategy, columns=columns, epsilon=20.0, triggers=4)
    whole = build_strategy(plan)
    keys = [b'["b","DE","Berlin"]', b'["a","DE"]', b'["c"]', b'["b","FR","Paris"]', b'["a","FR"]']
    rng = np.random.default_rng(1)
    states, own = whole.empty(len(keys)), None
    for trigger in range(1, 5):
        users = rng.integers(200, 400, len(keys))
        lists = (
            ListSums(users=users, weight=users << 20, public_weight=users * 0, unit=users * 0) if trigger == 4 else None
        )
        given = Increments(users=users, weight=users << 20, sums=np.tile(users[:, None], plan.width), lists=lists)
        declared = np.array([False, False, True, False, False])
        step = whole.step(trigger, keys, states, given, noise(), declared)
        for place, level in enumerate(level_of(keys).tolist()):
            index = np.array([place])
            alone = whole.levels[level].step(
                trigger, [keys[place]], states.take(index), given.take(index), noise(), declared[index]
            )
            assert step.published[place] == alone.published[0]
            assert step.estimates[place].tolist() == alone.estimates[0].tolist()
            assert step.std_errors[place].tolist() == alone.std_errors[0].tolist()
            assert whole.pack(step.states.take(index)) == whole.levels[level].pack(alone.states)
        states = step.states
    assert step.published.all()
    if strategy is Closing:
        own = step.pooled_rows
        assert own.index.tolist() == sorted(own.index.tolist())
        assert (own.evidence[:, 0] == level_of([keys[i] for i in own.index.tolist()])).all()


def test_where_windows_add_up_every_step_of_a_last_trigger_has_closing_rows():
    """Also one of keys of a level alone that measures no lists: nobody has weighed them."""
    plan = replace(plan_of_levels(Closing, epsilon=20.0, triggers=4), evidence_windows=2)
    whole, keys = build_strategy(plan), [b'["c"]', b'["a","DE"]']
    users = np.array([300, 300])
    for trigger in (3, 4):
        lists = None
        if trigger == 4:
            lists = ListSums(users=users, weight=users << 20, public_weight=users * 0, unit=users * 0)
        given = Increments(users=users, weight=users << 20, sums=users[:, None], lists=lists)
        for rows, weighed in (([0], [0]), ([0, 1], [0, 300])):
            index, declared = np.array(rows), np.array([True, False])[rows]
            some = [keys[row] for row in rows]
            step = whole.step(trigger, some, whole.empty(len(rows)), given.take(index), noise(), declared)
            assert (step.closing is None) == (trigger == 3)
            if step.closing is not None:
                assert step.closing.users.tolist() == weighed


def test_rows_are_calibrated_with_those_of_their_level_only():
    strategy = build_strategy(plan_of_levels(Closing, triggers=4))
    rng = np.random.default_rng(2)
    level, users = rng.integers(0, 2, 400), rng.integers(100, 900, 400)
    again = users * (3 + level) << 18  # the levels' ratios differ
    direct = users + rng.integers(-60, 60, 400)
    evidence = np.stack((level, direct, again, users * 0, np.full(400, 1 << 20)), axis=1)
    estimates, errors = evidence[:, 1:2].copy(), np.full((400, 1), 9.0)
    together = strategy.calibrate(estimates, errors, evidence, evidence)
    for level in (0, 1):
        rows = evidence[:, 0] == level
        alone = strategy.levels[level].calibrate(estimates[rows], errors[rows], evidence[rows, 1:], evidence[rows, 1:])
        assert together[0][rows].tolist() == alone[0].tolist()
        assert together[1][rows].tolist() == alone[1].tolist()
    assert (together[0] != estimates).any()


def test_default_parts_give_the_least_squared_error_along_a_path():
    caps = [1, 8, 36]

    def error(shares):
        return sum(most / share for most, share in zip(caps, shares, strict=True))

    found = default_shares(caps, [None] * 3)
    assert sum(found) == pytest.approx(1)
    rng = np.random.default_rng(3)
    assert error(found) <= min(error(rng.dirichlet([1, 1, 1])) for _ in range(5000))


def test_given_parts_stand_and_the_others_have_the_rest():
    assert default_shares([1, 4, 4], [0.2, None, None]) == pytest.approx((0.2, 0.4, 0.4))
    assert default_shares([1, 4], [0.25, 0.75]) == (0.25, 0.75)
    with pytest.raises(ConfigurationError, match="nothing is left"):
        default_shares([1, 4], [1.0, None])
    with pytest.raises(ConfigurationError, match="must add up to 1"):
        default_shares([1, 4], [0.25, 0.5])


def test_a_level_ranks_no_more_keys_than_a_user_has_there():
    few, many = (Closing.Parameters().within(most) for most in (3, 100))
    assert (few.ranked_keys, few.keys) == (3, 3)
    assert many == Closing.Parameters()


def test_refusals_say_which_level():
    with pytest.raises(ConfigurationError, match='level "country": strategy="dp-sqlp": does not go'):
        build_strategy(plan_of_levels(DpSqlp))
    plan = plan_of_levels()
    with pytest.raises(ConfigurationError, match="shares add up to"):
        replace(plan, levels=tuple(replace(level, share=0.6) for level in plan.levels))
    with pytest.raises(ConfigurationError, match="repeat"):
        replace(plan, levels=(plan.levels[0], plan.levels[0]))
    with pytest.raises(ValueError, match="too short"):
        level_of([b"1"])
    step = build_strategy(plan)
    with pytest.raises(ValueError, match="names a level that there is not"):
        step.row_units([b'["z",1]'], np.zeros((1, 1), np.int64))


def test_a_plan_without_levels_says_nothing_of_them():
    plan = plan_of_levels()
    alone = replace(plan, levels=())
    assert "levels" not in alone.published()
    assert "part" not in alone.published()
    assert [level["name"] for level in plan.published()["levels"]] == ["country", "city", "total"]
    assert len({level.digest() for level in plan.level_plans()} | {plan.digest(), alone.digest()}) == 5
