#!/usr/bin/env python3
"""Audit from outside: a lower bound on ε from what neighbouring inputs publish, for the code and for broken code.

    python benchmarks/audit.py            every strategy, every scenario, every planted defect: one to two minutes
    python benchmarks/audit.py --short    fewer trials, one strategy: what the tests run
    python benchmarks/audit.py --json     one object a line

Flow: audit_scenarios.play (real bounding and strategy code, thousands of independent trials with and without one user)
→ audit_statistics.lower_bound (Clopper-Pearson, at the claimed δ). The exit status is 0 if no bound of the real code
exceeds its claim and every planted defect exceeds it. A bound below the claim proves nothing; one above refutes it.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from audit_scenarios import DEFECTS, REAL, SCENARIOS, plan_of, play
from audit_statistics import CONFIDENCE, lower_bound

STRATEGIES = ("toeplitz", "weighted", "dp-sqlp")
TRIALS = 100_000
SHORT_TRIALS = 20_000


def cases(strategies: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """(strategy, scenario, defect): the real thing in every scenario, each defect in the scenarios made for it."""
    for strategy in strategies:
        for name, scenario in SCENARIOS.items():
            yield strategy, name, REAL
            for defect in scenario.exposes:
                yield strategy, name, defect


def audit(strategy: str, name: str, defect: str, *, trials: int, seed: int) -> dict[str, Any]:
    """One row: the claim, the bound, and whether that is as it should be."""
    scenario = SCENARIOS[name]
    plan = plan_of(scenario, strategy)
    begin = time.perf_counter()
    runs = [
        play(scenario, strategy, present=present, trials=trials, seed=seed, defect=defect) for present in (True, False)
    ]
    verdict = lower_bound(*runs, plan.delta)
    refuted = verdict.epsilon > plan.epsilon
    return {
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, action="append", help="default: all; repeatable")
    parser.add_argument("--trials", type=int, help=f"per input; default {TRIALS}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help=f"toeplitz only, {SHORT_TRIALS} trials")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    strategies = tuple(options.strategy or (STRATEGIES[:1] if options.short else STRATEGIES))
    trials = options.trials or (SHORT_TRIALS if options.short else TRIALS)
    good = True
    if not options.json:
        print(f"lower bounds on ε at the claimed δ, {CONFIDENCE:.2%} confidence, {trials} trials per input")
    for strategy, name, defect in cases(strategies):
        row = audit(strategy, name, defect, trials=trials, seed=options.seed)
        good &= row["as_expected"]
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        sign = ">" if row["refuted"] else "<="
        mark = "" if row["as_expected"] else "   UNEXPECTED"
        what = "real" if defect == REAL else f"broken: {defect}"
        print(
            f"{strategy:<9} {name:<24} {what:<28} ε ≥ {row['epsilon_lower_bound']:6.3f} {sign:>2} "
            f"{row['claimed_epsilon']:g}   ({row['event']}){mark}",
            flush=True,
        )
    if not options.json:
        print("all as expected" if good else "NOT as expected", "· defects:", "; ".join(DEFECTS))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
