#!/usr/bin/env python3
"""Audit from outside: a lower bound on ε from the output for neighbouring inputs, for the real code and for broken code.

    python benchmarks/audit.py                     everything; about an hour
    python benchmarks/audit.py --through pipeline  one of them: mechanism, pipeline, stream, report, tune, period, windows
                                                   (repeatable)
    python benchmarks/audit.py --short             one strategy, fewer trials, mechanism only: some ten seconds
    python benchmarks/audit.py --json              one object a line

Flow: audit_scenarios.play (real bounding and strategy code, thousands of independent trials with and without one user),
audit_pipeline.play_pipeline (the same inputs as JSON or Avro through route, bound and release, fewer trials) or
audit_streams.play_streams (values through the stream stage, with one of them replaced)
→ audit_statistics.lower_bound (Clopper-Pearson, at the claimed δ). audit_local measures what one locally private report reveals,
audit_tune what an answer of `susurrus tune` does, audit_periods what all windows do that a period of `budget.per` touches,
audit_windows what a window and the next one do, which remembers keys of it, audit_shares what a window does whose shares follow the
one before, audit_evidence what windows do that add up.
The exit status is 0 if no bound of the real code exceeds its claim and every planted defect exceeds it. A bound below the
claim proves nothing; one above refutes it.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import audit_evidence
import audit_local
import audit_periods
import audit_shares
import audit_stream_defects
import audit_streams
import audit_tune
import audit_windows
from audit_in_a_row import STRATEGY
from audit_inputs import ALONE
from audit_pipeline import play_pipeline
from audit_scenarios import DEFECTS, MECHANISM_ONLY, PIPELINE_ONLY, REAL, SCENARIOS, plan_of, play
from audit_statistics import CONFIDENCE, Verdict, lower_bound

STRATEGIES = ("toeplitz", ALONE, "closing", "dp-sqlp")
TRIALS = 50_000
SHORT_TRIALS = 20_000
PIPELINE_STRATEGIES = ("toeplitz", ALONE, "closing")
PIPELINE_TRIALS = 8_000
STREAM_TRIALS = 2_000
REPORT_TRIALS = 200_000
TUNE_TRIALS = 20_000
PERIOD_TRIALS = 20_000
WINDOWS_TRIALS = 10_000
THROUGH = ("mechanism", "pipeline", "stream", "report", "tune", "period", "windows")
EVERY_DEFECT = (
    DEFECTS
    | audit_stream_defects.DEFECTS
    | audit_local.DEFECTS
    | audit_tune.DEFECTS
    | audit_periods.DEFECTS
    | audit_windows.DEFECTS
    | audit_shares.DEFECTS
    | audit_evidence.DEFECTS
)
IN_A_ROW = {**audit_windows.SCENARIOS, **audit_shares.SCENARIOS, **audit_evidence.SCENARIOS}
"""Of windows in a row."""


def cases(strategies: tuple[str, ...], *, pipeline: bool = False) -> Iterator[tuple[str, str, str]]:
    """(strategy, scenario, defect): the real code in every scenario, and each defect in the scenarios made for it."""
    for strategy in strategies:
        for name, scenario in SCENARIOS.items():
            if (scenario.only and strategy not in scenario.only) or (
                scenario.mechanism_only if pipeline else scenario.pipeline_only
            ):
                continue
            yield strategy, name, REAL
            for defect in scenario.exposes:
                if defect not in (MECHANISM_ONLY if pipeline else PIPELINE_ONLY):
                    yield strategy, name, defect


def audit(strategy: str, name: str, defect: str, *, trials: int, seed: int, pipeline: bool = False) -> dict[str, Any]:
    """One row: the claim, the bound, and whether the bound is on the expected side of the claim."""
    scenario = SCENARIOS[name]
    plan = plan_of(scenario, strategy)
    run = play_pipeline if pipeline else play
    begin = time.perf_counter()
    with_user, without = (
        run(scenario, strategy, present=present, trials=trials, seed=seed, defect=defect) for present in (True, False)
    )
    verdict = lower_bound(with_user, without, plan.delta)
    return {
        "through": "pipeline" if pipeline else "mechanism",
        "strategy": strategy,
        "scenario": name,
        "defect": defect,
        "claimed_epsilon": plan.epsilon,
        "delta": plan.delta,
        **_outcome(verdict, plan.epsilon, defect),
        "trials": trials,
        "confidence": CONFIDENCE,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def audit_stream(method: str, name: str, defect: str, *, trials: int, seed: int) -> dict[str, Any]:
    """Like `audit`, for a private stream, whose claim is per event, and of ToPS without δ."""
    begin = time.perf_counter()
    claim = audit_streams.promise(name, method)
    one, other = (
        audit_streams.play_streams(name, method, replaced=replaced, trials=trials, seed=seed, defect=defect)
        for replaced in (True, False)
    )
    return {
        "through": "stream",
        "strategy": method,
        "scenario": name,
        "defect": defect,
        "claimed_epsilon": claim.epsilon,
        "delta": claim.delta,
        **_outcome(lower_bound(one, other, claim.delta), claim.epsilon, defect),
        "trials": trials,
        "confidence": CONFIDENCE,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def audit_report(name: str, defect: str, *, trials: int, seed: int) -> dict[str, Any]:
    """Like `audit`, for one locally private report. Where all words are enumerated, the bound is the distribution's ε itself."""
    begin = time.perf_counter()
    case = audit_local.CASES[name]
    if case.calls:
        verdict, refuted = audit_local.enumerate_case(case, defect)
        outcome = _outcome(verdict, audit_local.EPSILON, defect, refuted=refuted) | {"trials": 0, "confidence": 1.0}
    else:
        verdict = audit_local.sample_case(case, defect, trials=trials, seed=seed)
        outcome = _outcome(verdict, audit_local.EPSILON, defect) | {"trials": trials, "confidence": CONFIDENCE}
    return {
        "through": "report",
        "strategy": "topl",
        "scenario": name,
        "defect": defect,
        "claimed_epsilon": audit_local.EPSILON,
        "delta": 0.0,
        **outcome,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def audit_answer(name: str, defect: str, *, trials: int, seed: int) -> dict[str, Any]:
    """Like `audit`, for one answer of `susurrus tune`, whose claim is its part of epsilon, without δ."""
    begin = time.perf_counter()
    one, other = (
        audit_tune.play_tune(name, replaced=replaced, trials=trials, seed=seed, defect=defect)
        for replaced in (False, True)
    )
    claim = audit_tune.SCENARIOS[name].claim
    return {
        "through": "tune",
        "strategy": "tune",
        "scenario": name,
        "defect": defect,
        "claimed_epsilon": claim,
        "delta": 0.0,
        **_outcome(lower_bound(one, other, 0.0), claim, defect),
        "trials": trials,
        "confidence": CONFIDENCE,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def audit_period(name: str, defect: str, *, trials: int, seed: int) -> dict[str, Any]:
    """Like `audit`, for all windows that one period touches, whose claim is the total of the period."""
    begin = time.perf_counter()
    with_user, without = (
        audit_periods.play_periods(name, present=present, trials=trials, seed=seed, defect=defect)
        for present in (True, False)
    )
    claim = audit_periods.periods_of(name).budget
    return {
        "through": "period",
        "strategy": "toeplitz",
        "scenario": name,
        "defect": defect,
        "claimed_epsilon": round(claim.epsilon, 3),
        "delta": claim.delta,
        **_outcome(lower_bound(with_user, without, claim.delta), claim.epsilon, defect),
        "trials": trials,
        "confidence": CONFIDENCE,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def audit_in_a_row(name: str, defect: str, *, trials: int, seed: int) -> dict[str, Any]:
    """Like `audit`, for windows that use what those before have left. The claim is for the windows that the user is in."""
    begin, windows = time.perf_counter(), IN_A_ROW[name]
    with_user, without = (
        windows.play(present=present, trials=trials, seed=seed, defect=defect) for present in (True, False)
    )
    claim = windows.claim
    return {
        "through": "windows",
        "strategy": STRATEGY,
        "scenario": name,
        "defect": defect,
        "claimed_epsilon": round(claim.epsilon, 3),
        "delta": claim.delta,
        **_outcome(lower_bound(with_user, without, claim.delta), claim.epsilon, defect),
        "trials": trials,
        "confidence": CONFIDENCE,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def _outcome(verdict: Verdict, claim: float, defect: str, *, refuted: bool | None = None) -> dict[str, Any]:
    refuted = verdict.epsilon > claim if refuted is None else refuted
    return {
        "epsilon_lower_bound": round(verdict.epsilon, 3) if math.isfinite(verdict.epsilon) else None,
        "event": verdict.event,
        "refuted": refuted,
        "as_expected": refuted == (defect != REAL),
    }


def show(row: dict[str, Any]) -> None:
    """Print a row as text."""
    sign = "> " if row["refuted"] else "<="
    mark = "" if row["as_expected"] else "   UNEXPECTED"
    what = "real" if row["defect"] == REAL else f"broken: {row['defect']}"
    bound = "  none" if row["epsilon_lower_bound"] is None else f"{row['epsilon_lower_bound']:6.3f}"
    print(
        f"{row['through']:<9} {row['strategy']:<10} {row['scenario']:<32} {what:<32} "
        f"ε ≥ {bound} {sign} {row['claimed_epsilon']:g}   ({row['event']}){mark}",
        flush=True,
    )


Run = Callable[[], dict[str, Any]]


def runs(
    strategies: tuple[str, ...], through: tuple[str, ...], trials: int | None, seed: int, *, short: bool
) -> Iterator[tuple[str, Run]]:
    """(scenario, function that makes its row) for everything that is asked for. trials: of the mechanism; the others get a part."""
    whole = trials or (SHORT_TRIALS if short else TRIALS)
    share = whole / TRIALS if trials else 1.0

    def part(usual: int) -> int:
        return max(2, int(usual * share))

    if "mechanism" in through:
        for case in cases(strategies):
            size = min(whole, SCENARIOS[case[1]].trials or whole)
            yield case[1], partial(audit, *case, trials=size, seed=seed)
    if "pipeline" in through:
        playing = tuple(strategy for strategy in PIPELINE_STRATEGIES if strategy in strategies)
        for case in cases(playing, pipeline=True):
            size = part(SCENARIOS[case[1]].pipeline_trials or PIPELINE_TRIALS)
            yield case[1], partial(audit, *case, trials=size, seed=seed, pipeline=True)
    if "stream" in through:
        for method in audit_streams.METHODS:
            for name, scenario in audit_streams.SCENARIOS.items():
                for defect in (REAL, *scenario.exposes) if method in scenario.methods else ():
                    size = part(scenario.trials or STREAM_TRIALS)
                    yield name, partial(audit_stream, method, name, defect, trials=size, seed=seed)
    if "report" in through:
        for name, report in audit_local.CASES.items():
            for defect in (REAL, *report.exposes):
                yield name, partial(audit_report, name, defect, trials=part(REPORT_TRIALS), seed=seed)
    if "tune" in through:
        for name, answer in audit_tune.SCENARIOS.items():
            for defect in (REAL, *answer.exposes):
                yield name, partial(audit_answer, name, defect, trials=part(TUNE_TRIALS), seed=seed)
    if "period" in through:
        for name, period in audit_periods.SCENARIOS.items():
            for defect in (REAL, *period.exposes):
                yield name, partial(audit_period, name, defect, trials=part(PERIOD_TRIALS), seed=seed)
    if "windows" in through:
        for name, windows in IN_A_ROW.items():
            for defect in (REAL, *windows.exposes):
                size = part(windows.trials or WINDOWS_TRIALS)
                yield name, partial(audit_in_a_row, name, defect, trials=size, seed=seed)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, action="append", help="default: all; repeatable")
    parser.add_argument(
        "--trials", type=int, help=f"per input; default {TRIALS}, elsewhere than in the mechanism a share"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--through", choices=THROUGH, action="append", help="default: all; repeatable")
    parser.add_argument("--scenario", action="append", help="default: all; repeatable")
    parser.add_argument("--short", action="store_true", help=f"toeplitz, {SHORT_TRIALS} trials, mechanism only")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    strategies = tuple(options.strategy or (STRATEGIES[:1] if options.short else STRATEGIES))
    through = THROUGH[:1] if options.short else tuple(options.through or THROUGH)
    good = True
    if not options.json:
        print(
            f"lower bounds on ε at the claimed δ, each with confidence {CONFIDENCE:.2%}; of enumerated distributions, ε itself"
        )
    for name, run in runs(strategies, through, options.trials, options.seed, short=options.short):
        if options.scenario and name not in options.scenario:
            continue
        row = run()
        good &= row["as_expected"]
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            show(row)
    if not options.json:
        print("all as expected." if good else "NOT as expected.", "Defects:")
        for name, what in EVERY_DEFECT.items():
            print(f"  {name:<24} {what}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
