#!/usr/bin/env python3
"""DP-SQLP's Table 1 for our strategies, its own and two baselines: keys published and ℓ∞, ℓ1, ℓ2 of what a reader sees.

    python benchmarks/table1.py --micro-batches 100 --strategy toeplitz
    python benchmarks/table1.py --strategy dp-sqlp --data pairs.tsv --max-records 50 --json

Flow: workload → spool → offline.run → errors against the true, uncapped counts at every quarter of the window.
The default is the paper's workload (10M users, 59M records) at ε = 6, δ = 1e-9, C = 32: minutes, about 3 GB.
Progress goes to stderr. The noise secret of a benchmark is public: nothing printed here is private.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from baselines import run_baseline
from pairs import read_pairs
from progress import Lines

from susurrus.agents.planning.offline import as_rows, run, window_noise
from susurrus.agents.planning.spool import spool
from susurrus.agents.planning.workload import FileWorkload, Workload, ZipfMandelbrotDay
from susurrus.mechanisms.histogram import registry
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of

NO_LAST_LOOK = "closing, no last look"
VARIANTS = {NO_LAST_LOOK: ("closing", {"discovery_share": 0.5, "unknown_share": 0.0, "public_share": 0.0})}
"""(strategy, parameters) of what has a row of its own beside the strategies with their defaults."""
STRATEGIES = (*registry.STRATEGIES, *VARIANTS, "baseline1", "baseline2")
VALUE_CAP = {"closing": 36, NO_LAST_LOOK: 36}
"""C for values where it differs from 32: a ledger, which wants to be larger than a cap."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=STRATEGIES, default="toeplitz")
    add_run_arguments(parser)
    parser.add_argument(
        "--max-records",
        type=int,
        help="C; default 32, and 36 for closing",
    )
    parser.add_argument("--max-records-per-key", type=int, default=1)
    parser.add_argument(
        "--every-trigger", action="store_true", help="step published keys at every trigger, as workers do"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    add_data_arguments(parser)
    return parser.parse_args(argv)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--micro-batches", type=int, default=100, help="T, triggers in the window")
    parser.add_argument("--users", type=int, default=10_000_000, help="of the synthetic day")
    parser.add_argument("--seed", type=int, default=0, help="of the data and of the noise")
    parser.add_argument("--epsilon", type=float, default=6.0)
    parser.add_argument("--delta", type=float, default=1e-9)


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("own data instead of the synthetic day")
    group.add_argument("--data", type=Path, metavar="FILE", help="(user, key) pairs, one a line; may be .gz")
    group.add_argument("--baskets", action="store_true", help="a line is one user, its items are the keys")
    group.add_argument("--header", action="store_true", help="skip the first line")
    group.add_argument("--columns", default="0,1", help="positions of user and key, from 0")
    group.add_argument("--time-column", type=int, help="position of a numeric time, stretched over the day")


def load(options: argparse.Namespace) -> Workload:
    """The workload that the command line names."""
    if options.data is None:
        return ZipfMandelbrotDay(users=options.users, seed=options.seed)
    user, key = (int(column) for column in options.columns.split(","))
    found: FileWorkload = read_pairs(
        options.data,
        baskets=options.baskets,
        header=options.header,
        columns=(user, key),
        time_column=options.time_column,
        seed=options.seed,
    )
    return found


def measure(
    workload: Workload,
    strategy: str,
    *,
    triggers: int,
    seed: int,
    epsilon: float = 6.0,
    delta: float = 1e-9,
    max_records: int | None = None,
    max_records_per_key: int = 1,
    every_trigger: bool = False,
) -> dict[str, Any]:
    """One row of the table as a JSON object."""
    begin = time.perf_counter()
    C = max_records or VALUE_CAP.get(strategy, 32)
    details: dict[str, Any] = {}
    if strategy.startswith("baseline"):
        spooled = spool(workload, Bounding(max_records=C, max_records_per_key=1), triggers, progress=Lines())
        found, _ = run_baseline(
            spooled, repeated=strategy == "baseline1", max_records=C, epsilon=epsilon, delta=delta, seed=seed
        )
    else:
        plan = plan_named(
            strategy,
            triggers=triggers,
            epsilon=epsilon,
            delta=delta,
            columns=(Column(name="visits", kind="count"),),
            max_records=C,
            max_records_per_key=max_records_per_key,
        )
        mechanism = build_strategy(plan)
        spooled = spool(workload, mechanism.bounding, triggers, progress=Lines())
        outcome = run(
            mechanism,
            spooled,
            window_noise(seed, plan.digest()),
            every_trigger=every_trigger,
            progress=Lines(),
        )
        found = outcome.checkpoints
        details = {"step_seconds": round(outcome.step_seconds, 1), "keys_stepped": outcome.stepped}
    end = found[-1]
    return {
        "strategy": strategy,
        "workload": workload.name,
        "micro_batches": triggers,
        "users": spooled.users,
        "records": spooled.records,
        "kept_records": spooled.kept,
        "seed": seed,
        "max_records": C,
        "max_records_per_key": max_records_per_key,
        "keys": end.keys,
        "linf": end.linf,
        "l1": end.l1,
        "l2": round(end.l2, 1),
        "epsilon": epsilon,
        "delta": delta,
        "checkpoints": as_rows(found),
        "seconds": round(time.perf_counter() - begin, 1),
        **details,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def plan_named(name: str, **constants: Any) -> Plan:
    """The plan of a strategy with its defaults, or of a variant. constants: as for `plan_of`."""
    strategy, own = VARIANTS.get(name, (name, {}))
    return plan_of(strategy, **constants, **own)


def print_table(row: dict[str, Any]) -> None:
    """Print the quarters of a row as text."""
    print(
        f"{row['strategy']} on {row['workload']}: {row['users']:,} users, {row['records']:,} records, T = "
        f"{row['micro_batches']}, C = {row['max_records']}, ε = {row['epsilon']:g}, δ = {row['delta']:g}"
    )
    print(f"{'trigger':>8} {'keys':>9} {'ℓ∞':>9} {'ℓ1':>13} {'ℓ2':>12}")
    for line in row["checkpoints"]:
        print(f"{line['trigger']:>8} {line['keys']:>9,} {line['linf']:>9,} {line['l1']:>13,} {line['l2']:>12,.0f}")
    print(f"{row['seconds']:.0f} s, peak memory {row['peak_memory_bytes'] / 2**30:.1f} GiB")


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    row = measure(
        load(options),
        options.strategy,
        triggers=options.micro_batches,
        seed=options.seed,
        epsilon=options.epsilon,
        delta=options.delta,
        max_records=options.max_records,
        max_records_per_key=options.max_records_per_key,
        every_trigger=options.every_trigger,
    )
    if options.json:
        print(json.dumps(row))
    else:
        print_table(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
