#!/usr/bin/env python3
"""Rows of remembered keys are hidden by numbers that are in them: how far off single numbers are by that, and sums over many.

    python benchmarks/hidden_rows.py --users 100000 --drift 0.1 --days 4 --seeds 8 --out hidden.jsonl
    python benchmarks/hidden_rows.py --retail retail.dat.gz --out hidden.jsonl

Flow: days in a row as in benchmarks/days.py → at each quarter of the last day, rows of remembered keys by the key's true count →
a JSON line per seed and quarter. The true counts are those of all records; so rows that nothing selects, which are all rows of
remembered keys, shown or hidden, are off by what the caps cut, and by nothing else on average.

The noise secret of a benchmark is public: nothing printed here is private.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from days import VARIANTS, write
from days_workloads import Days, retail, synthetic
from progress import Lines

from susurrus.agents.planning.in_a_row import WindowRows, WindowsInARow
from susurrus.agents.planning.spool import checkpoints, spool
from susurrus.mechanisms.arrays import Bools
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of

SIZES = (0, 1, 10, 30, 100, 300)
"""Where classes of keys begin, by the true count at the trigger."""


def classes(true: npt.NDArray[np.int64]) -> Iterator[tuple[str, Bools]]:
    """(name, bool[keys])."""
    yield "all", np.ones(len(true), np.bool_)
    for least, end in zip(SIZES, (*SIZES[1:], None), strict=True):
        name = f"{least} or more" if end is None else f"{least} to {end - 1}" if end - 1 > least else f"{least}"
        yield name, (true >= least) & (true < (np.inf if end is None else end))


def sums(rows: WindowRows, some: Bools, true: npt.NDArray[np.int64]) -> dict[str, float]:
    """Of these rows: how many, their true sum, and what adding each number gives, with the error that independent rows have."""
    return {
        "rows": int(some.sum()),
        "true": int(true[some].sum()),
        "direct": float(rows.own[some, 0].sum()),
        "direct_error": float(np.sqrt((rows.own_errors[some, 0] ** 2).sum())),
        "shown": float(rows.estimates[some, 0].sum()),
        "shown_error": float(np.sqrt((rows.std_errors[some, 0] ** 2).sum())),
    }


def seen(rows: WindowRows, remembered: Bools, true: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Rows of remembered keys by size: those that are shown, and all of them; and sums over all rows of a release."""
    smoothed = rows.public & remembered & rows.smoothed[:, 0]
    return {
        "sizes": {
            name: {"shown": sums(rows, smoothed & rows.shown & of, true), "all": sums(rows, smoothed & of, true)}
            for name, of in classes(true)
        },
        "release": {"shown": sums(rows, rows.shown, true), "all": sums(rows, rows.public, true)},
    }


def measure(days: Days, *, triggers: int, seed: int, partitions: int, max_records: int) -> Iterator[dict[str, Any]]:
    """A row for each quarter of the last day."""
    plan = plan_of(
        "closing",
        triggers=triggers,
        epsilon=6.0,
        delta=1e-9,
        columns=(Column(name="visits", kind="count"),),
        max_records=max_records,
        max_records_per_key=1,
    )
    windows = WindowsInARow(plan, days.names, partitions=partitions, **VARIANTS["and moves shares"])
    for number, workload in enumerate(days, 1):
        spooled = spool(workload, build_strategy(plan).bounding, triggers, ends=checkpoints(triggers), progress=Lines())
        remembered = windows.memory.keys
        found: list[dict[str, Any]] = []

        def look(trigger: int, rows: WindowRows) -> None:
            true = spooled.truth[spooled.ends.index(trigger)]  # noqa: B023
            found.append({"trigger": trigger, **seen(rows, remembered, true)})  # noqa: B023

        windows.next(spooled, seed, checked=look if number == len(days.each) else None, progress=Lines())
        for row in found:
            yield {
                "workload": days.name,
                "users": spooled.users,
                "seed": seed,
                "day": number,
                "partitions": partitions,
                "micro_batches": triggers,
                **row,
            }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=100_000, help="of a synthetic day")
    parser.add_argument("--drift", type=float, default=0.1, help="share of the keys that swap places, every day")
    parser.add_argument("--retail", type=Path, help="retail.dat of the FIMI repository; not shipped")
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8, help="how many, from --first on; of the data and of the noise")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--micro-batches", type=int, default=100, help="T, triggers in the window")
    parser.add_argument("--partitions", type=int, default=8, help="of the release: each fits its own rows")
    parser.add_argument("--max-records", type=int, default=36, help="C")
    parser.add_argument("--out", type=Path, help="appends JSON lines; by default standard output")
    options = parser.parse_args(argv)
    for seed in range(options.first, options.first + options.seeds):
        if options.retail is not None:
            days = retail(options.retail, seed)
        else:
            days = synthetic(options.users, drift=options.drift, days=options.days, seed=seed)
        rows = measure(
            days,
            triggers=options.micro_batches,
            seed=seed,
            partitions=options.partitions,
            max_records=options.max_records,
        )
        write(rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
