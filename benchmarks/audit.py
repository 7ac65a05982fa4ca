#!/usr/bin/env python3
"""Audit from outside: a lower bound on ε from what neighbouring inputs publish, for the code and for broken code.

    python benchmarks/audit.py            every strategy, scenario and planted defect, and the pipeline: a few minutes
    python benchmarks/audit.py --short    one strategy, fewer trials, no pipeline: some ten seconds
    python benchmarks/audit.py --json     one object a line

Flow: audit_scenarios.play (real bounding and strategy code, thousands of independent trials with and without one user)
or audit_pipeline.play_pipeline (the same inputs as JSON through route, bound and release, fewer trials)
→ audit_statistics.lower_bound (Clopper-Pearson, at the claimed δ). The exit status is 0 if no bound of the real code
exceeds its claim and every planted defect exceeds it. A bound below the claim proves nothing; one above refutes it.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from audit_pipeline import play_pipeline
from audit_scenarios import DEFECTS, REAL, SCENARIOS, plan_of, play
from audit_statistics import CONFIDENCE, lower_bound

STRATEGIES = ("toeplitz", "weighted", "adaptive", "closing", "dp-sqlp")
TRIALS = 50_000
SHORT_TRIALS = 20_000
PIPELINE_TRIALS = 8_000


def cases(strategies: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """(strategy, scenario, defect): the real thing in every scenario, each defect in the scenarios made for it."""
    for strategy in strategies:
        for name, scenario in SCENARIOS.items():
            if scenario.only and strategy not in scenario.only:
                continue
            yield strategy, name, REAL
            for defect in scenario.exposes:
                yield strategy, name, defect


def audit(strategy: str, name: str, defect: str, *, trials: int, seed: int, pipeline: bool = False) -> dict[str, Any]:
    """One row: the claim, the bound, and whether that is as it should be."""
    scenario = SCENARIOS[name]
    plan = plan_of(scenario, strategy)
    run = play_pipeline if pipeline else play
    begin = time.perf_counter()
    with_user, without = (
        run(scenario, strategy, present=present, trials=trials, seed=seed, defect=defect) for present in (True, False)
    )
    verdict = lower_bound(with_user, without, plan.delta)
    refuted = verdict.epsilon > plan.epsilon
    return {
        "through": "pipeline" if pipeline else "mechanism",
        "strategy": strategy,
        "scenario": name,
        "defect": defect,
        "claimed_epsilon": plan.epsilon,
        "delta": plan.delta,
        "epsilon_lower_bound": round(verdict.epsilon, 3),
        "event": verdict.event,
        "refuted": refuted,
        "as_expected": refuted == (defect != REAL),
        "trials": trials,
        "confidence": CONFIDENCE,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def show(row: dict[str, Any]) -> None:
    """A row for people."""
    sign = "> " if row["refuted"] else "<="
    mark = "" if row["as_expected"] else "   UNEXPECTED"
    what = "real" if row["defect"] == REAL else f"broken: {row['defect']}"
    print(
        f"{row['through']:<9} {row['strategy']:<9} {row['scenario']:<24} {what:<28} "
        f"ε ≥ {row['epsilon_lower_bound']:6.3f} {sign} {row['claimed_epsilon']:g}   ({row['event']}){mark}",
        flush=True,
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, action="append", help="default: all; repeatable")
    parser.add_argument("--trials", type=int, help=f"per input; default {TRIALS}, through the pipeline a sixth")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--through", choices=("mechanism", "pipeline", "both"), default="both")
    parser.add_argument("--short", action="store_true", help=f"toeplitz, {SHORT_TRIALS} trials, no pipeline")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    strategies = tuple(options.strategy or (STRATEGIES[:1] if options.short else STRATEGIES))
    trials = options.trials or (SHORT_TRIALS if options.short else TRIALS)
    through = "mechanism" if options.short else options.through
    plans = [(case, trials, False) for case in cases(strategies) if through != "pipeline"]
    if through != "mechanism":
        smaller = PIPELINE_TRIALS if options.trials is None else max(1, options.trials // 6)
        plans += [(case, smaller, True) for case in cases(strategies[:1])]
    good = True
    if not options.json:
        print(f"lower bounds on ε at the claimed δ, each with confidence {CONFIDENCE:.2%}")
    for case, size, pipeline in plans:
        row = audit(*case, trials=size, seed=options.seed, pipeline=pipeline)
        good &= row["as_expected"]
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            show(row)
    if not options.json:
        print("all as expected." if good else "NOT as expected.", "Defects:")
        for name, what in DEFECTS.items():
            print(f"  {name:<20} {what}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
