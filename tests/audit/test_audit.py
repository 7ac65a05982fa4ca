"""The audit itself: its bounds are valid, the real code stands in every scenario, every planted defect is caught."""

from dataclasses import replace

import audit
import numpy as np
import pytest
from audit_pipeline import play_pipeline
from audit_scenarios import DEFECTS, REAL, SCENARIOS, L, play
from audit_statistics import Outputs, clopper_pearson, epsilon_bound, lower_bound
from scipy import stats

SHARED = ("boundary, many triggers", "spread", "several partitions", "popular keys touched")
"""Here `closing` does what `adaptive` does, last trigger or not; the whole audit plays them all the same."""
EVERY = [case for case in audit.cases(audit.STRATEGIES) if not (case[0] == "closing" and case[1] in SHARED)]


def test_clopper_pearson_against_binomial_tails():
    for hits, trials in [(0, 50), (1, 50), (17, 50), (50, 50)]:
        lower, upper = clopper_pearson(hits, trials, 0.99)
        if hits:
            assert stats.binom.sf(hits - 1, trials, lower) == pytest.approx(0.01)
        if hits < trials:
            assert stats.binom.cdf(hits, trials, upper) == pytest.approx(0.01)
    assert clopper_pearson(0, 50, 0.99)[0] == 0
    assert clopper_pearson(50, 50, 0.99)[1] == 1


def test_a_bound_from_nothing_is_nothing():
    assert epsilon_bound(5, 1000, 0, 1000, 0.05, 0.99) == 0.0


def gaussian_pair(mu: float, trials: int) -> tuple[Outputs, Outputs]:
    rng = np.random.default_rng(0)
    shown = np.ones((trials, 1, 1), np.bool_)
    noise = rng.normal(size=(2, trials, 1, 1))
    return Outputs(published=shown, estimates=noise[0] + mu), Outputs(published=shown, estimates=noise[1])


@pytest.mark.parametrize(("claimed", "caught"), [(1.0, False), (0.7, True)])
def test_an_overclaim_is_caught_and_the_truth_stands(claimed, caught):
    """N(0,1) against N(0.8,1) is (1, 0.0437)-DP, exactly."""
    mu, epsilon = 0.8, 1.0
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert (lower_bound(*gaussian_pair(mu, 100_000), delta).epsilon > claimed) is caught


def test_every_defect_has_a_scenario_made_for_it():
    assert set(DEFECTS) == {defect for scenario in SCENARIOS.values() for defect in scenario.exposes}


@pytest.mark.statistical
@pytest.mark.parametrize(("strategy", "scenario", "defect"), EVERY, ids=["-".join(case) for case in EVERY])
def test_real_code_stands_and_planted_defects_fall(strategy, scenario, defect):
    row = audit.audit(strategy, scenario, defect, trials=audit.SHORT_TRIALS, seed=0)
    assert row["refuted"] is (defect != REAL), row


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("scenario", "defect"),
    [
        ("boundary", REAL),
        ("boundary", "no plus one"),
        ("burst", REAL),
        ("burst", "noise scale"),
        ("several partitions", REAL),
        ("several partitions", "by-user order"),
        ("published twice", REAL),
        ("published twice", "noise reused"),
    ],
)
def test_the_pipeline_stands_and_falls_like_the_mechanism(scenario, defect):
    row = audit.audit("toeplitz", scenario, defect, trials=audit.PIPELINE_TRIALS, seed=0, pipeline=True)
    assert row["refuted"] is (defect != REAL), row


def test_the_pipeline_publishes_what_the_mechanism_would():
    """Same inputs, hardly any noise: both count the same records. (Their noise has different addresses.)"""
    scenario = replace(SCENARIOS["over the caps"], plan={**SCENARIOS["over the caps"].plan, "epsilon": 5000.0})
    for present in (True, False):
        rows = [run(scenario, "toeplitz", present=present, trials=3, seed=0).estimates for run in (play, play_pipeline)]
        assert np.abs(rows[0] - rows[1]).max() < L / 2, "a record more or less"
        assert (rows[0].max() > L / 2) == present
