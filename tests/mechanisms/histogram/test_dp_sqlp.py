"""dp-sqlp: its accounting against dp-accounting, its predictions against testing every trigger, its trees' noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from susurrus.mechanisms.histogram import tree
from susurrus.mechanisms.histogram.dp_sqlp import GRID, DpSqlp, nearest_prefix
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from tests.samples import samples

COUNT = (Column(name="visits", kind="count"),)


def make_plan(**changes) -> Plan:
    fields = {
        "strategy": "dp-sqlp",
        "triggers": 10,
        "epsilon": 6.0,
        "delta": 1e-9,
        "columns": COUNT,
        "max_records": 4,
        **changes,
    }
    return plan_of(**fields)


def noise_of(plan: Plan, number: int = 0):
    source = NoiseSource(bytes(32), epoch=b"test", config=plan.digest(), pipeline="test")
    return source.window(number)


def increments(users, columns: int = 1) -> Increments:
    users = np.asarray(users, np.int64)
    return Increments(users=users, weight=users << 20, sums=np.repeat(users[:, None], columns, axis=1))


# Accounting


@pytest.mark.parametrize(("triggers", "C", "L"), [(1, 1, 1), (10, 4, 7), (100, 32, 1)])
def test_noise_pays_for_the_claim(triggers, C, L):
    """Sensitivities from the definition of the trees, delta from PLDs: within the claim, and not by much."""
    columns = (Column(name="visits", kind="count"), Column(name="bytes", kind="sum", bound=L))
    mechanism = DpSqlp(make_plan(triggers=triggers, max_records=C, columns=columns))
    in_blocks = [
        sum(1 for level in range(20) if -(-leaf >> level) << level <= triggers) for leaf in range(1, triggers + 1)
    ]
    most = max(in_blocks)
    selection = math.sqrt(C * most) / mechanism.selection_sigma
    values = math.sqrt(
        sum((C * c.bound) ** 2 * most / s**2 for c, s in zip(columns, mechanism.value_sigma, strict=True))
    )
    assert math.hypot(selection, values) <= mechanism.guarantee.mu * (1 + 1e-9)

    def delta(mu: float, epsilon: float) -> float:
        pld = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3)
        return pld.get_delta_for_epsilon(epsilon)

    total = delta(selection, 3.0) + delta(values, 3.0) + mechanism.guarantee.delta_selection
    assert 0.9e-9 < total < 1.01e-9  # the PLD rounds up
    assert delta(mechanism.guarantee.mu, 6.0) <= mechanism.guarantee.delta_gaussian


@pytest.mark.parametrize(("triggers", "mu"), [(1, 0), (100, 0), (1000, 50)])
def test_thresholds_fail_with_the_probability_charged_for_all_triggers_together(triggers, mu):
    mechanism = DpSqlp(make_plan(triggers=triggers, minimum_users=mu, max_records=32))
    std = np.sqrt([float(tree.prefix_variance(i)) for i in range(1, triggers + 1)]) * mechanism.selection_sigma
    tau = mechanism.thresholds / GRID - (mu + 1)
    total = stats.norm.sf(tau / std).sum()
    assert 0.99 * mechanism.beta < total <= mechanism.beta
    assert 32 * mechanism.beta == pytest.approx(mechanism.guarantee.delta_selection)


def test_without_discovery_everything_goes_to_values():
    mechanism = DpSqlp(make_plan(discover=False))
    assert mechanism.guarantee.delta_selection == 0
    pld = privacy_loss_distribution.from_gaussian_mechanism(1 / mechanism.guarantee.mu)
    assert pld.get_delta_for_epsilon(6.0) == pytest.approx(1e-9, rel=0.01)


# Steps


def arrivals(seed: int, keys: int, triggers: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rate = rng.choice([0.0, 0.3, 3.0, 30.0], keys)
    return rng.poisson(rate[None, :] * (rng.random((triggers, keys)) < 0.4))


def run_all(mechanism: DpSqlp, counts: np.ndarray, *, lazily: bool, declared=None):
    """(published, estimates) per trigger; lazily: only keys with news or due are stepped, through pack and unpack."""
    triggers, keys = counts.shape
    names = [b"%d" % key for key in range(keys)]
    noise = noise_of(mechanism.plan)
    declared = np.zeros(keys, bool) if declared is None else declared
    stored = mechanism.pack(mechanism.empty(keys))
    due = np.where(declared, 0, triggers + 1)
    published = np.zeros((triggers, keys), bool)
    estimates = np.zeros((triggers, keys), np.int64)
    for t in range(1, triggers + 1):
        new = counts[t - 1]
        wanted = (new > 0) | (due == t) | (due == 0) if lazily else np.ones(keys, bool)
        for rows in np.array_split(np.flatnonzero(wanted), 3 if lazily else 1):
            states = mechanism.unpack([stored[row] for row in rows])
            step = mechanism.step(t, [names[r] for r in rows], states, increments(new[rows]), noise, declared[rows])
            packed = mechanism.pack(step.states)
            for i, row in enumerate(rows):
                assert step.changed[i] or packed[i] == stored[row]
                stored[row] = packed[i]
            due[rows] = step.due
            published[t - 1, rows] = step.published
            estimates[t - 1, rows] = step.estimates[:, 0]
    return published, estimates


def by_the_paper(mechanism: DpSqlp, counts: np.ndarray):
    """Algorithms 2 and 4 word by word for one key at a time: every key is tested at every trigger, with fractions."""
    plan, triggers, keys = mechanism.plan, *counts.shape
    noise = noise_of(plan)
    published = np.zeros((triggers, keys), bool)
    estimates = np.zeros((triggers, keys), np.int64)
    for key in range(keys):
        select = noise.labels(f"dp-sqlp.select/{plan.digest().hex()}", [b"%d" % key])
        value = noise.labels(f"dp-sqlp.value.visits/{plan.digest().hex()}", [b"%d" % key])
        start = users = released = 0
        for t in range(1, triggers + 1):
            users += int(counts[t - 1, key])
            if users <= plan.minimum_users:
                continue
            first = start * tree.nodes(triggers)
            nodes = noise.normal(select, first, first + 2 * triggers, sigma=mechanism.selection_sigma)[0]
            noisy = users * GRID + tree.prefix_noise_exact(nodes, t - start)
            if noisy >= int(mechanism.thresholds[t - start - 1]):
                released, users, start = released + users, 0, t
                nodes = noise.normal(value, 0, 2 * triggers, sigma=mechanism.value_sigma[0])[0]
                published[t - 1, key] = True
                estimates[t - 1, key] = released + round(tree.prefix_noise_exact(nodes, t) / GRID)
    return published, estimates


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32), st.sampled_from([0, 3]), st.sampled_from([1, 7, 16]))
def test_predicting_releases_equals_testing_every_key_at_every_trigger(seed, mu, triggers):
    mechanism = DpSqlp(make_plan(triggers=triggers, minimum_users=mu, epsilon=20.0, delta=1e-2))
    counts = arrivals(seed, 25, triggers)
    expected = by_the_paper(mechanism, counts)
    for lazily in (False, True):
        got = run_all(mechanism, counts, lazily=lazily)
        assert np.array_equal(got[0], expected[0])
        assert np.array_equal(got[1], expected[1])


def test_untouched_keys_are_released_later_and_rounds_restart():
    """The equality above would be empty if nothing were ever released without news, or twice."""
    mechanism = DpSqlp(make_plan(triggers=16, epsilon=20.0, delta=1e-2))
    counts = arrivals(1, 300, 16)
    published, _ = run_all(mechanism, counts, lazily=True)
    assert (published & (counts == 0)).sum() > 5
    assert (published.sum(axis=0) > 1).sum() > 20


def test_a_declared_key_is_published_at_every_trigger_from_the_first():
    mechanism = DpSqlp(make_plan())
    counts = np.zeros((10, 4), np.int64)
    counts[3, 1] = 5
    declared = np.array([True, True, False, False])
    published, estimates = run_all(mechanism, counts, lazily=True, declared=declared)
    assert published[:, :2].all()
    assert not published[:, 2:].any()
    noise = noise_of(mechanism.plan)
    labels = noise.labels(f"dp-sqlp.value.visits/{mechanism.plan.digest().hex()}", [b"1"])
    nodes = noise.normal(labels, 0, 20, sigma=mechanism.value_sigma[0])[0]
    for t in (1, 3, 4, 10):
        exact = (5 if t >= 4 else 0) + round(tree.prefix_noise_exact(nodes, t) / GRID)
        assert estimates[t - 1, 1] == exact


def test_no_discovery_selects_nothing():
    mechanism = build_strategy(make_plan(discover=False))
    assert isinstance(mechanism, DpSqlp)
    published, _ = run_all(mechanism, np.full((10, 5), 10**6), lazily=True)
    assert not published.any()


def test_state_of_another_layout_is_refused():
    mechanism = DpSqlp(make_plan())
    row = mechanism.pack(mechanism.empty(1))[0]
    for wrong in (row[:-1], b"\x07" + row[1:], b""):
        with pytest.raises(ValueError, match="layout"):
            mechanism.unpack([wrong])


def test_near_ties_are_decided_exactly():
    """Nodes made so that the prefix is a half-integer up to less than float64 can see."""
    bits = 20
    half = GRID // 2
    nodes = np.array([[half, 0, 0], [half + 1, 0, 0], [half - 1, 0, 0], [-half, 0, 0], [3 * half, 0, 0]], np.int64)
    assert nearest_prefix(nodes, 1, bits).tolist() == [0, 1, 0, 0, 2]
    rng = np.random.default_rng(5)
    nodes = rng.integers(-(2**30), 2**30, (200, tree.nodes(13)))
    expected = [round(tree.prefix_noise_exact(row, 13) / Fraction(GRID)) for row in nodes]
    assert nearest_prefix(nodes, 13, bits).tolist() == expected


@pytest.mark.statistical
@pytest.mark.parametrize("t", [1, 6, 16])
def test_published_noise_has_the_stated_size(t):
    """Three-sided: the stated standard error fits, 10 % less or more does not."""
    mechanism = DpSqlp(make_plan(triggers=16))
    names = [b"%d" % key for key in range(samples(20_000))]
    declared = np.ones(len(names), bool)
    step = mechanism.step(
        t, names, mechanism.empty(len(names)), increments(np.zeros(len(names))), noise_of(mechanism.plan), declared
    )
    smooth = np.random.default_rng(t).uniform(-0.5, 0.5, len(names))  # undoes the rounding to integers
    sample, size = step.estimates[:, 0] + smooth, math.hypot(step.std_errors[0, 0], math.sqrt(1 / 12))
    p = {scale: stats.kstest(sample / (size * scale), "norm").pvalue for scale in (0.9, 1.0, 1.1)}
    assert p[1.0] > 1e-6 > max(p[0.9], p[1.1]), p
