#!/usr/bin/env python3
"""The choice of C, DP-SQLP's Figure 9: keys and errors against the records kept per user, as JSON lines and a plot.

    python benchmarks/sweep.py --caps 4,8,16,24,32,40,50,64 --strategy toeplitz --strategy dp-sqlp --plot sweep.png
    python benchmarks/sweep.py --data retail.dat --baskets --caps 4,8,16,32

Flow: the workload once into memory → for every C and strategy table1.measure → one JSON object a line, and the plot.
A public C must not be chosen by looking at the data to protect: use a synthetic workload or data that are public.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import plots
from table1 import NO_LAST_LOOK, STRATEGIES, add_data_arguments, add_run_arguments, load, measure

from susurrus.agents.planning.workload import UserRecords, Workload

PANELS = (("keys", "keys published"), ("linf", "ℓ∞"), ("l1", "ℓ1"), ("l2", "ℓ2"))


@dataclass(frozen=True, slots=True)
class InMemory:
    """A workload whose chunks are made once."""

    name: str
    users: int
    key_names: list[bytes]
    held: list[UserRecords]

    def chunks(self) -> Iterator[UserRecords]:
        return iter(self.held)


def hold(workload: Workload) -> InMemory:
    return InMemory(workload.name, workload.users, workload.key_names, list(workload.chunks()))


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Four panels over C, one line per strategy, each point the best of the values of m."""
    pyplot = plots.pyplot()
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.5), sharex=True)
    for axis, (field, title) in zip(axes.flat, PANELS, strict=True):
        for strategy in dict.fromkeys(row["strategy"] for row in rows):
            caps = sorted({row["max_records"] for row in rows if row["strategy"] == strategy})
            best = max if field == "keys" else min  # over the values of m
            line = [
                (C, best(row[field] for row in rows if (row["strategy"], row["max_records"]) == (strategy, C)))
                for C in caps
            ]
            axis.plot(*zip(*line, strict=True), marker="o", markersize=3.5, label=strategy)
        axis.set_title(title)
        axis.grid(alpha=0.3)
        if field != "keys":
            axis.set_yscale("log")
    for axis in axes[1]:
        axis.set_xlabel("C, records kept per user")
    axes[0][0].legend()
    row = rows[0]
    figure.suptitle(
        f"{row['workload']}: {row['users']:,} users, {row['records']:,} records, T = {row['micro_batches']}, "
        f"ε = {row['epsilon']:g}, δ = {row['delta']:g}"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caps", default="4,8,16,24,32,40,50,64", help="values of C")
    parser.add_argument("--per-key", default="1", help="values of m, records kept per user and key, for each C")
    parser.add_argument("--strategy", choices=STRATEGIES, action="append", help="default toeplitz; repeatable")
    add_run_arguments(parser)
    parser.add_argument("--plot", type=Path, help="PNG to write")
    add_data_arguments(parser)
    options = plots.parse(parser, argv)
    workload = hold(load(options))
    rows = []
    for strategy in options.strategy or ["toeplitz"]:
        for C, m in product(map(int, options.caps.split(",")), map(int, options.per_key.split(","))):
            # The last look measures users, and a count of records is one of users at m = 1 only.
            if m > C or (m > 1 and strategy not in ("toeplitz", NO_LAST_LOOK)):
                continue
            row = measure(
                workload,
                strategy,
                triggers=options.micro_batches,
                seed=options.seed,
                epsilon=options.epsilon,
                delta=options.delta,
                max_records=C,
                # Its values have sensitivity C·L however a user's records lie, so it need not drop repeats.
                max_records_per_key=C if strategy == "dp-sqlp" else m,
            )
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.plot:
        plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
