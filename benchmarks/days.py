#!/usr/bin/env python3
"""Days in a row: what a pipeline shows when it remembers what it published yesterday, beside one that forgets it.

    python benchmarks/days.py --users 100000 --drift 0.1 --out days.jsonl
    python benchmarks/days.py --retail retail.dat.gz --partitions 1 --out days.jsonl
    python benchmarks/days.py --nasa

Flow: a day's workload → caps, once → for each variant agents/planning/in_a_row.py, with the stages' own classes → what readers
see after each quarter against the true, uncapped counts. A JSON object for each variant and day, as soon as it is there.

Usable rows are shown, of a key that has come, and at most half of its count off. ℓ1 and ℓ2 are over all keys; a key that is not
shown counts with all it has. A standard error covers a row that is off by at most 1.96 times as much and 0.5. The noise secret of a
benchmark is public: nothing printed here is private.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from days_workloads import Days, nasa, retail, synthetic
from progress import Lines

from susurrus.agents.planning.in_a_row import WindowRows, WindowsInARow
from susurrus.agents.planning.spool import Spool, checkpoints, spool
from susurrus.mechanisms.arrays import Bools
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of

VARIANTS: dict[str, dict[str, Any]] = {
    "forgets": {"remember": 0},
    "remembers keys": {"remember": 6, "smoothed": False, "follows": False},
    "and smooths": {"remember": 6, "follows": False},
    "and moves shares": {"remember": 6},
    "and adds evidence": {"remember": 6, "evidence_windows": 4},
}
"""Arguments of WindowsInARow, and the plan's evidence_windows. Each variant has what those before it have."""
LARGE = 100
"""Users in a whole window from which on a key is called large."""


class Truth:
    """What a day held. whole: int64[keys], at its end. before: the same of the day before, or None."""

    def __init__(self, spooled: Spool, before: npt.NDArray[np.int64] | None) -> None:
        self.spooled, self.whole, self.before = spooled, spooled.truth[-1].copy(), before
        self.ends = spooled.ends

    def at(self, trigger: int) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self.spooled.truth[self.ends.index(trigger)]
        return found

    def classes(self, remembered: Bools) -> Iterator[tuple[str, Bools]]:
        """(name, bool[keys]). Keys that are remembered are gone if nobody comes, and persist within a factor of two."""
        now, before = self.whole, self.whole if self.before is None else self.before
        persists = remembered & (now > 0) & (now <= 2 * before) & (before <= 2 * now)
        yield "all", np.ones(len(now), np.bool_)
        yield "persisting", persists
        yield "changed", remembered & (now > 0) & ~persists
        yield "gone", remembered & (now == 0)
        yield "new", ~remembered
        yield "small", now < LARGE
        yield "large", now >= LARGE


def seen(trigger: int, rows: WindowRows, truth: Truth, remembered: Bools) -> dict[str, Any]:
    """What readers have at a trigger, of the first column."""
    true = truth.at(trigger)
    estimate, error = rows.estimates[:, 0], rows.std_errors[:, 0]
    off = np.abs(np.where(rows.shown, estimate, 0) - true)
    return {
        "trigger": trigger,
        "records": int(true.sum()),
        "rows": int(rows.public.sum()),
        "shown": int(rows.shown.sum()),
        "usable": int((rows.shown & (true > 0) & (off <= true / 2)).sum()),
        "l1": round(float(off.sum())),
        "l2": round(float(np.sqrt((off.astype(np.float64) ** 2).sum())), 1),
        "smoothed": covered(rows.shown & rows.smoothed[:, 0], estimate, error, true, truth, remembered),
        "direct": covered(rows.shown, rows.direct[:, 0], rows.direct_errors[:, 0], true, truth, remembered),
    }


def covered(some: Bools, estimate: Any, error: Any, true: Any, truth: Truth, remembered: Bools) -> dict[str, list[int]]:
    """By class of keys: how many of these rows there are, and of how many the 95 % interval holds the truth."""
    holds = np.abs(estimate - true) <= 1.96 * error + 0.5
    return {name: [int((some & of).sum()), int((some & of & holds).sum())] for name, of in truth.classes(remembered)}


def measure(
    days: Days,
    *,
    triggers: int,
    seed: int,
    partitions: int,
    epsilon: float,
    delta: float,
    max_records: int,
    variants: list[str],
    hours: bool = False,
) -> Iterator[dict[str, Any]]:
    """A row for each day and variant. hours: whether it also says what readers have at every 24th of the window."""
    quarters = checkpoints(triggers)
    every = [-(-triggers * hour // 24) for hour in range(1, 25)] if hours else []
    plan = plan_of(
        "closing",
        triggers=triggers,
        epsilon=epsilon,
        delta=delta,
        columns=(Column(name="visits", kind="count"),),
        max_records=max_records,
        max_records_per_key=1,
    )
    rows = {}
    for name in variants:
        own = dict(VARIANTS[name])
        adds = replace(plan, evidence_windows=own.pop("evidence_windows", 1))
        rows[name] = WindowsInARow(adds, days.names, partitions=partitions, **own)
    before = None
    for number, workload in enumerate(days, 1):
        begin = time.perf_counter()
        spooled = spool(
            workload, build_strategy(plan).bounding, triggers, ends=sorted({*quarters, *every}), progress=Lines()
        )
        truth = Truth(spooled, before)
        before = truth.whole
        for name, windows in rows.items():
            found: list[dict[str, Any]] = []
            hourly: list[dict[str, Any]] = []
            remembered, persistence = windows.memory.keys, windows.persistence

            def look(trigger: int, seen_by_readers: WindowRows) -> None:
                now = seen(trigger, seen_by_readers, truth, remembered)  # noqa: B023
                if trigger in quarters:
                    found.append(now)  # noqa: B023
                if trigger in every:
                    names = ("trigger", "records", "shown", "usable", "l1")
                    hourly.append({name: now[name] for name in names})  # noqa: B023

            windows.next(spooled, seed, checked=look, progress=Lines())
            yield {
                "workload": days.name,
                "users": spooled.users,
                "records": spooled.records,
                "seed": seed,
                "micro_batches": triggers,
                "partitions": partitions,
                "max_records": max_records,
                "epsilon": epsilon,
                "delta": delta,
                "day": number,
                "variant": name,
                "remembered": int(remembered.sum()),
                "persistence": persistence,
                "checkpoints": found,
                **({"hours": hourly} if hours else {}),
                "seconds": round(time.perf_counter() - begin, 1),
                "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
            begin = time.perf_counter()


def write(rows: Iterable[dict[str, Any]], out: Path | None) -> None:
    """Append each row to a file as soon as it is there, as a line of JSON; without a file, print it."""
    for row in rows:
        text = json.dumps(row) + "\n"
        if out is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with out.open("a") as file:
                file.write(text)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000_000, help="of a synthetic day")
    parser.add_argument("--drift", type=float, default=0.1, help="share of the keys that swap places, every day")
    parser.add_argument(
        "--retail", type=Path, help="retail.dat of the FIMI repository, in place of the law; not shipped"
    )
    parser.add_argument("--nasa", action="store_true", help="the web log of the demonstration, in place of the law")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0, help="of the data and of the noise")
    parser.add_argument("--micro-batches", type=int, default=100, help="T, triggers in the window")
    parser.add_argument("--partitions", type=int, default=8, help="of the release: each fits its own rows")
    parser.add_argument("--max-records", type=int, default=36, help="C")
    parser.add_argument("--epsilon", type=float, default=6.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="names, separated by commas")
    parser.add_argument("--hours", action="store_true", help="also what readers have at every 24th of a window")
    parser.add_argument("--out", type=Path, help="appends JSON lines; by default standard output")
    options = parser.parse_args(argv)
    if options.nasa:
        days = nasa()
    elif options.retail is not None:
        days = retail(options.retail, options.seed)
    else:
        days = synthetic(options.users, drift=options.drift, days=options.days, seed=options.seed)
    rows = measure(
        days,
        triggers=options.micro_batches,
        seed=options.seed,
        partitions=options.partitions,
        epsilon=options.epsilon,
        delta=options.delta,
        max_records=options.max_records,
        variants=options.variants.split(","),
        hours=options.hours,
    )
    write(rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
