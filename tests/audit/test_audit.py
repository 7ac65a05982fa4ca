"""The audit itself: its bounds are valid, the real code stands in every scenario, every planted defect is caught."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import audit
import audit_evidence
import audit_local
import audit_periods
import audit_shares
import audit_stream_defects
import audit_streams
import audit_tune
import audit_windows
import numpy as np
import pytest
from audit_inputs import ALONE
from audit_pipeline import play_pipeline
from audit_scenarios import DEFECTS, REAL, SCENARIOS, L, play
from audit_statistics import Outputs, clopper_pearson, epsilon_bound, lower_bound
from scipy import stats

from tests.samples import samples

SHARED = ("boundary, many triggers", "spread", "several partitions", "popular keys touched")
"""Here `closing` does what its stream does alone, last trigger or not; the whole audit plays them all the same."""
PIPELINE = audit.PIPELINE_STRATEGIES
FEW_TRIALS = 12_000
"""They show most planted defects. A campaign plays more."""
MOST_TRIALS = 60_000
"""A test may take three minutes."""
MORE_TRIALS = {
    ("dp-sqlp", "boundary"): audit.SHORT_TRIALS,
    ("closing", "burst"): audit.SHORT_TRIALS,
    ("closing", "long list, all public"): audit.SHORT_TRIALS,
}
FEWER_TRIALS = {
    "many keys at the end": 4_000,
    "keys that others bring first": 6_000,
    "keys that others bring second": 6_000,
    "a key without a rank": 3_000,
    "lists shared with others": 4_000,
    "one row too few": 500,
}
"""Of inputs with many records or keys, whose defects have a large effect."""
LOOKS = (16, 2)
"""After which parts of its trials a defect is looked at, beside the end: one over these. What the first look does not refute, the
second mostly does, and a look between them would cost more than it saves."""
LEAST_TRIALS = 100
"""Of a look before the end. Fewer would refute hardly any claim."""
EVERY = [case for case in audit.cases(audit.STRATEGIES) if not (case[0] == "closing" and case[1] in SHARED)]


def verdict(row_of: Callable[..., dict[str, Any]], *case: str, trials: int, **given: Any) -> dict[str, Any]:
    """The audit's row of a case, whose last part is a defect.

    The real code plays all trials, and is looked at once: each look more would be one more chance to find against it by luck. That
    a defect is found is what its test claims, and most are found with a fraction of the trials. So a defect is looked at several
    times, and the first look that refutes it ends its test. One that no look refutes has played all trials, as ever.
    """
    early = [trials // part for part in LOOKS if case[-1] != REAL and trials // part >= LEAST_TRIALS]
    row: dict[str, Any] = {}
    for look in (*early, trials):
        row = row_of(*case, trials=look, seed=0, **given)
        if row["refuted"]:
            break
    return row


@pytest.mark.parametrize(
    ("defect", "needs", "played"),
    [
        (REAL, 1, [8_000]),
        (REAL, 9_000, [8_000]),
        ("any", 1, [500]),
        ("any", 501, [500, 4_000]),
        ("any", 9_000, [500, 4_000, 8_000]),
    ],
)
def test_a_defect_is_played_until_it_is_found_and_the_real_code_to_the_end(defect, needs, played):
    seen = []

    def row_of(*_: str, trials: int, seed: int) -> dict[str, Any]:
        seen.append(trials)
        return {"refuted": trials >= needs}

    assert verdict(row_of, "scenario", defect, trials=8_000) == {"refuted": played[-1] >= needs}
    assert seen == played


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
    of_streams = {defect for scenario in audit_streams.SCENARIOS.values() for defect in scenario.exposes}
    assert set(audit_stream_defects.DEFECTS) == of_streams
    assert set(audit_local.DEFECTS) == {defect for case in audit_local.CASES.values() for defect in case.exposes}
    assert set(audit_periods.DEFECTS) == {
        defect for case in audit_periods.SCENARIOS.values() for defect in case.exposes
    }
    assert set(audit_tune.DEFECTS) == {defect for case in audit_tune.SCENARIOS.values() for defect in case.exposes}
    for module in (audit_windows, audit_shares, audit_evidence):
        assert set(module.DEFECTS) == {defect for case in module.SCENARIOS.values() for defect in case.exposes}
    played = {
        (name, defect) for _, name, defect in (*audit.cases(audit.STRATEGIES), *audit.cases(PIPELINE, pipeline=True))
    }
    wanted = {(name, defect) for name, scenario in SCENARIOS.items() for defect in (REAL, *scenario.exposes)}
    assert played == wanted


@pytest.mark.statistical
@pytest.mark.parametrize(("strategy", "scenario", "defect"), EVERY, ids=["-".join(case) for case in EVERY])
def test_real_code_stands_and_planted_defects_fall(strategy, scenario, defect):
    trials = MORE_TRIALS.get((strategy, scenario), FEWER_TRIALS.get(scenario, FEW_TRIALS))
    row = verdict(audit.audit, strategy, scenario, defect, trials=min(samples(trials), MOST_TRIALS))
    assert row["refuted"] is (defect != REAL), row


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("strategy", "scenario", "defect", "trials"),
    [
        ("toeplitz", "boundary", REAL, 8_000),
        ("toeplitz", "boundary", "no plus one", 8_000),
        ("toeplitz", "burst", REAL, 8_000),
        ("toeplitz", "burst", "noise scale", 8_000),
        ("toeplitz", "several partitions", REAL, 2_000),
        ("toeplitz", "several partitions", "by-user order", 2_000),
        ("toeplitz", "published twice", REAL, 2_000),
        ("toeplitz", "published twice", "noise reused", 2_000),
        ("toeplitz", "published twice", "epoch by name", 2_000),
        ("toeplitz", "keys that begin alike", REAL, 1_000),
        ("toeplitz", "keys that begin alike", "noise by prefix", 1_000),
        ("toeplitz", "fetches shared with others", REAL, 1_000),
        ("toeplitz", "fetches shared with others", "dropped too early", 1_000),
        ("toeplitz", "a topic that grows", REAL, 1_000),
        ("toeplitz", "a topic that grows", "growth at a tick", 1_000),
        ("toeplitz", "a schema registered late", REAL, 1_000),
        ("toeplitz", "a schema registered late", "unknown id kept", 1_000),
        ("toeplitz", "a field of another type", REAL, 1_000),
        ("toeplitz", "a field of another type", "kinds in one number", 1_000),
        ("toeplitz", "a public table", REAL, 1_000),
        ("toeplitz", "a public table", "lookup remembers", 1_000),
        ("toeplitz", "items of one record", REAL, 1_000),
        ("toeplitz", "items of one record", "items as one", 1_000),
        ("toeplitz", "several topics", REAL, 1_000),
        ("toeplitz", "several topics", "caps for each topic", 1_000),
        ("toeplitz", "several levels", REAL, 2_000),
        ("toeplitz", "several levels", "levels as one", 2_000),
        (ALONE, "published twice", REAL, 1_000),
        (ALONE, "published twice", "epoch by name", 1_000),
        (ALONE, "several partitions", "by-user order", 1_000),
        (ALONE, "one key after another", REAL, 300),
        ("closing", "keys that begin alike", REAL, 1_000),
        ("closing", "keys that begin alike", "noise by prefix", 1_000),
        ("closing", "over the caps", REAL, 8_000),
        ("closing", "over the caps", "cap lost", 8_000),
        ("closing", "long list", REAL, 1_000),
        ("closing", "long list", "list not scaled", 1_000),
        ("closing", "long list, all public", REAL, 1_000),
        ("closing", "repeats of one key", REAL, 1_000),
        ("closing", "repeats of one key", "repeats at the price of one", 1_000),
        ("closing", "lists shared with others", REAL, 1_000),
        ("closing", "lists shared with others", "dropped too early", 1_000),
        ("closing", "a key without a rank", REAL, 500),
        ("closing", "a key without a rank", "only behind the stream's gate", 500),
        ("closing", "many keys at the end", REAL, 1_000),
        ("closing", "many keys at the end", "no gate at the end", 1_000),
        ("closing", "many keys at the end", "gate before the cut", 1_000),
        ("closing", "a list of the next window", REAL, 250),
        ("closing", "a list of the next window", "list from exact counts", 250),
        ("closing", "lists of two levels", REAL, 250),
        ("closing", "lists of two levels", "list from exact counts", 250),
        ("closing", "a remembered row that is hidden", REAL, 250),
        ("closing", "a remembered row that is hidden", "shown by exact counts", 250),
    ],
)
def test_the_pipeline_stands_and_falls_like_the_mechanism(strategy, scenario, defect, trials):
    row = verdict(audit.audit, strategy, scenario, defect, trials=trials, pipeline=True)
    assert row["refuted"] is (defect != REAL), row


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("method", "scenario", "defect"),
    [
        ("tops", "a value of the holdout", REAL),
        ("tops", "a value of the holdout", "threshold noise reused"),
        ("tops", "a value of a tree", REAL),
        ("tops", "a counted value", REAL),
        ("tops", "a counted value", "count not charged"),
        ("tops", "a counted value", "theta follows within a tree"),
        ("tops-paper", "a value of a tree", REAL),
        ("tops-paper", "a value of a tree", "tree noise reused"),
        ("tops-paper", "a value of a tree", "leaves without noise"),
        ("tops-paper", "a value of a tree", "layer at full epsilon"),
        ("tops", "a value below the lower clip", REAL),
        ("tops", "a value below the lower clip", "lower clip's noise halved"),
        ("tops", "a value below the lower clip", "lower clip not charged"),
        ("pak", "a value of pak's holdout", REAL),
        ("pak", "a value of pak's holdout", "both parts at full epsilon"),
        ("pak", "a value beside pak's quantile", REAL),
        ("pak", "a value beside pak's quantile", "scale of the local sensitivity"),
        ("pak", "a value beside pak's quantile", "block not clipped"),
        ("pak", "a value of pak's tree", REAL),
        ("pak", "a value of pak's tree", "tree noise reused"),
        ("pak", "a value of pak's tree", "a level not charged"),
    ],
)
def test_streams_stand_and_fall(method, scenario, defect):
    trials = audit_streams.SCENARIOS[scenario].trials or 600
    row = verdict(audit.audit_stream, method, scenario, defect, trials=trials)
    assert row["refuted"] is (defect != REAL), row


def test_values_that_were_written_for_another_rank_are_refused(monkeypatch):
    """With another rank a defect does not show, and nobody would know why."""
    name = "a value beside pak's quantile"
    monkeypatch.setitem(audit_streams.SCENARIOS, name, replace(audit_streams.SCENARIOS[name], rank=81))
    with pytest.raises(AssertionError, match="rank=80, but its values are written for 81"):
        audit_streams.play_streams(name, "pak", replaced=False, trials=1, seed=0)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "defect"),
    [(name, defect) for name, case in audit_local.CASES.items() for defect in (REAL, *case.exposes)],
)
def test_reports_stand_and_fall(name, defect):
    row = verdict(audit.audit_report, name, defect, trials=audit.REPORT_TRIALS)
    assert row["refuted"] is (defect != REAL), row


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "defect"),
    [(name, defect) for name, case in audit_tune.SCENARIOS.items() for defect in (REAL, *case.exposes)],
)
def test_answers_of_tune_stand_and_fall(name, defect):
    row = verdict(audit.audit_answer, name, defect, trials=8_000)
    assert row["refuted"] is (defect != REAL), row


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "defect"),
    [(name, defect) for name, case in audit_periods.SCENARIOS.items() for defect in (REAL, *case.exposes)],
)
def test_periods_of_a_budget_that_renews_stand_and_fall(name, defect):
    row = verdict(audit.audit_period, name, defect, trials=audit.PERIOD_TRIALS)
    assert row["refuted"] is (defect != REAL), row


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "defect"),
    [(name, defect) for name, case in audit.IN_A_ROW.items() for defect in (REAL, *case.exposes)],
)
def test_windows_in_a_row_stand_and_fall(name, defect):
    trials = audit.IN_A_ROW[name].trials or min(samples(4_000), 20_000)
    row = verdict(audit.audit_in_a_row, name, defect, trials=trials)
    assert row["refuted"] is (defect != REAL), row


def test_windows_in_a_row_list_and_show_what_was_brought():
    """Hardly any noise: a key of 12 users is remembered. Its row in the next window is shown where 3 come, and not where 2 do."""
    few = audit_windows.SCENARIOS["a key that few bring again"]
    quiet = replace(few, one=replace(few.one, plan={**few.one.plan, "epsilon": 5000.0}))
    for present in (True, False):
        seen = quiet.play(present=present, trials=5, seed=0)
        assert seen.events["a key is remembered"].all()
        assert (seen.events["a row is shown"] == present).all()
        assert not seen.events["rows are shown against their size"].any()


@pytest.mark.parametrize("defect", [REAL, "another list on the same noise"])
def test_a_second_run_with_another_list_is_refused(defect):
    twice = audit_windows.SCENARIOS["a window that runs twice"]
    seen = twice.play(present=True, trials=50, seed=0, defect=defect)
    assert (seen.events["a window is published twice"] == (defect != REAL)).all()


@pytest.mark.parametrize("name", [name for name, case in audit_local.CASES.items() if case.calls == (2,)])
def test_the_enumerated_distribution_is_the_one_the_window_states(name):
    """Every code with the probability that exact_probabilities says: nothing is left out, nothing comes twice."""
    with audit_local.small_machine():
        window = audit_local.WindowMechanism(audit_local.EPSILON, audit_local._WIDTH, audit_local._CELLS)
        inner, outer = window.exact_probabilities()
        for position in range(window.positions + 1):
            found = audit_local.exact_distribution(audit_local.CASES[name].report, position / window.positions, (2,))
            total = sum(found.values())
            for code in range(window.cells):
                wanted = inner if position <= code < position + window.width else outer
                assert Fraction(found[code], total) == wanted


@pytest.mark.parametrize("strategy", PIPELINE)
def test_the_pipeline_publishes_what_the_mechanism_would(strategy):
    """Same inputs, hardly any noise: both count the same records. (Their noise has different addresses.)"""
    scenario = replace(SCENARIOS["over the caps"], plan={**SCENARIOS["over the caps"].plan, "epsilon": 5000.0})
    for present in (True, False):
        rows = [run(scenario, strategy, present=present, trials=3, seed=0).estimates for run in (play, play_pipeline)]
        assert np.abs(rows[0] - rows[1]).max() < L / 2, "a record more or less"
        assert (rows[0].max() > L / 2) == present


@pytest.mark.parametrize("run", [play, play_pipeline])
def test_a_key_that_fails_has_no_part_in_a_calibration(run):
    """199 rows and a failed key: nothing is calibrated. The planted defect calibrates exactly where the user is."""
    for defect in (REAL, "calibrated by failures"):
        for present in (True, False):
            seen = run(SCENARIOS["one row too few"], "closing", present=present, trials=3, seed=1, defect=defect)
            assert (seen.published.sum(axis=(1, 2)) == 199).all()
            assert (seen.calibrated == (present and defect != REAL)).all()
