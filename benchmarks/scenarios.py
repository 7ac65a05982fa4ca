#!/usr/bin/env python3
"""Strategies beside each other on days of different kinds, and whether their error bars hold: JSON lines.

    python benchmarks/scenarios.py --retail retail.dat.gz --seeds 0,1,2 --out docs/results/scenarios.jsonl
    python benchmarks/scenarios.py --only day,drift --users 100000 --out /tmp/scenarios.jsonl

Flow: workload → spool → offline.run, observed by `Rows` → errors at every quarter as in table1.py, and at the middle and at
the end of the window the coverage of nominal 95 % intervals, estimate ± 1.96 std_error, by classes of rows (`coverage`).
results.py renders the tables. The noise secret of a benchmark is public: nothing printed here is private.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pairs import read_pairs
from progress import Lines
from scenario_workloads import Bursts, Drift, LateKeys, LongLists, Zipf
from sweep import hold
from table1 import NO_LAST_LOOK, VALUE_CAP, plan_named

from susurrus.agents.planning.offline import as_rows, run, window_noise
from susurrus.agents.planning.spool import checkpoints, spool
from susurrus.agents.planning.workload import Workload, ZipfMandelbrotDay
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Step, Strategy

STRATEGIES = ("toeplitz", NO_LAST_LOOK, "closing")
DEVIATIONS = 1.96
"""Standard errors on either side of an estimate that hold the truth in 95 of 100 cases if the errors are normal."""
SMALL, LARGE = 50, 500
"""Rows are classed by their true count: below the one, above the other, between them."""
NASA = Path(__file__).resolve().parents[1] / "agents" / "data" / "nasa-http-1995-08-01.tsv.gz"

Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workload and the promise to keep on it. workload: of the number of users and the seed; files have users of their own."""

    name: str
    workload: Callable[[int, int], Workload]
    users: int = 1_000_000
    epsilon: float = 6.0
    delta: float = 1e-9


def scenarios(nasa: Path, retail: Path | None) -> list[Scenario]:
    """All of them; retail, which is not shipped, only where its file is given."""

    def day(users: int, seed: int) -> Workload:
        return ZipfMandelbrotDay(users=users, seed=seed)

    def zipf(name: str, exponent: float, keys: int = 1_000_000) -> Scenario:
        return Scenario(
            name=name,
            workload=lambda users, seed: Zipf(name=name, exponent=exponent, keys=keys, users=users, seed=seed),
        )

    def different(kind: type[LateKeys | Bursts | Drift | LongLists]) -> Scenario:
        return Scenario(name=kind().name, workload=lambda users, seed: kind(users=users, seed=seed))

    def web_log(users: int, seed: int) -> Workload:
        return read_pairs(nasa, header=True, columns=(0, 4), time_column=2)

    found = [
        Scenario(name="day", workload=day),
        Scenario(name="day-epsilon-1", workload=day, epsilon=1.0),
        Scenario(name="day-epsilon-2", workload=day, epsilon=2.0),
        Scenario(name="day-100k-users", workload=day, users=100_000),
        zipf("zipf-1.1", 1.1),
        zipf("zipf-1.7", 1.7),
        zipf("flat", 0.0, keys=100_000),
        *(different(kind) for kind in (LateKeys, Bursts, Drift, LongLists)),
        Scenario(name="nasa", workload=web_log, delta=1e-6),
    ]
    if retail is not None:
        file = retail
        found.append(Scenario(name="retail", workload=lambda users, seed: read_pairs(file, baskets=True, seed=seed)))
    return found


class Rows:
    """What a run published at certain triggers; `observe` is the callback of `offline.run`.

    at: by trigger, (published, estimate, std_error, kept), of all keys; `kept` is what the same caps would publish without noise.
    direct: by trigger, (given, estimate, std_error) of the stream alone, where rows are calibrated. since: int64[keys], the first
    trigger at which each key was published.
    """

    def __init__(self, strategy: Strategy[Any], keys: int, triggers: list[int]) -> None:
        """Sees what the strategy calibrates: that pair is the direct one."""
        self.since = np.full(keys, np.iinfo(np.int64).max)
        self.at = {t: (np.zeros(keys, np.bool_), np.zeros(keys), np.zeros(keys), np.zeros(keys)) for t in triggers}
        self.direct = {t: (np.zeros(keys, np.bool_), np.zeros(keys), np.zeros(keys)) for t in triggers}
        self._pair: tuple[Int64, Floats] | None = None
        calibrate = strategy.calibrate

        def seen(
            estimates: Int64, std_errors: Floats, evidence: npt.NDArray[Any], pooled: npt.NDArray[Any]
        ) -> tuple[Int64, Floats]:
            self._pair = estimates.copy(), std_errors.copy()
            return calibrate(estimates, std_errors, evidence, pooled)

        strategy.calibrate = seen  # type: ignore[method-assign]

    def observe(self, trigger: int, codes: Int64, step: Step[Any]) -> None:
        """Of a chunk, right after its rows were calibrated."""
        shown = np.flatnonzero(step.published)
        key = codes[shown]
        self.since[key] = np.minimum(self.since[key], trigger)
        if trigger not in self.at:
            return
        columns = (True, step.estimates[shown, 0], step.std_errors[shown, 0], step.states.sums[shown, 0])
        for held, values in zip(self.at[trigger], columns, strict=True):
            held[key] = values
        if step.pooled_rows is not None and self._pair is not None:
            # All chunks are calibrated at once, and come here one after the other.
            key = codes[step.pooled_rows.index]
            for held, values in zip(
                self.direct[trigger], (True, *(each[: len(key), 0] for each in self._pair)), strict=True
            ):
                held[key] = values
            estimates, std_errors = self._pair
            self._pair = estimates[len(key) :], std_errors[len(key) :]


def coverage(rows: Rows, truth: dict[int, Int64], lists: Floats) -> list[dict[str, Any]]:
    """An object per trigger, pair of columns ("row", or "direct" of the stream alone) and class of rows.

    truth: by trigger, int64[keys], records of each key so far, capped or not. lists: float64[keys], from `list_lengths`.
    `kept`, `true`: share of the rows whose interval holds the kept and the true count. `kept_bias`, `true_bias`: mean error in
    standard errors, above 0 where estimates are too high.
    """
    found = []
    for trigger, (published, estimate, std_error, kept) in rows.at.items():
        pairs = {"row": (published, estimate, std_error), "direct": rows.direct[trigger]}
        for pair, (given, values, errors) in pairs.items():
            key = np.flatnonzero(given)
            counts = {"kept": kept[key], "true": truth[trigger][key]}
            scores = {name: (values[key] - count) / errors[key] for name, count in counts.items()}
            for label, some in classes(rows.since[key] == trigger, truth[trigger][key], lists[key]):
                if not some.any():
                    continue
                line = {"trigger": trigger, "pair": pair, "class": label, "rows": int(some.sum())}
                for name, score in scores.items():
                    line[name] = round(float((np.abs(score[some]) <= DEVIATIONS).mean()), 5)
                    line[name + "_bias"] = round(float(score[some].mean()), 4)
                found.append({**line, "std_error": round(float(errors[key][some].mean()), 3)})
    return found


def classes(new: Mask, count: Int64, lists: Floats) -> Iterator[tuple[str, Mask]]:
    """(label, bool[n]) of every class of n rows; each also of the new rows, first published now, and of the old ones alone."""
    middle, far = np.quantile(lists, (0.5, 0.9)) if len(lists) else (0.0, 0.0)
    groups = {
        "all": np.ones(len(new), np.bool_),
        f"below {SMALL}": count < SMALL,
        f"{SMALL} to {LARGE}": (count >= SMALL) & (count <= LARGE),
        f"above {LARGE}": count > LARGE,
        "short lists": lists <= middle,
        "long lists": lists > middle,
        "longest tenth": lists > far,
    }
    for prefix, some in (("", np.ones(len(new), np.bool_)), ("new, ", new), ("old, ", ~new)):
        for label, group in groups.items():
            yield prefix + label, some & group


def list_lengths(workload: Workload) -> Floats:
    """float64[keys]: how many distinct keys the users of each key have in the window, in the mean over these users."""
    keys = len(workload.key_names)
    total, users = np.zeros(keys), np.zeros(keys)
    for records in workload.chunks():
        pair = np.unique(records.user.astype(np.int64) << 32 | records.key)
        user, key = pair >> 32, pair & ((1 << 32) - 1)
        total += np.bincount(key, weights=np.bincount(user)[user], minlength=keys)
        users += np.bincount(key, minlength=keys)
    return total / np.maximum(users, 1)


def measure(
    workload: Workload,
    strategy: str,
    lists: Floats,
    *,
    triggers: int,
    seed: int,
    epsilon: float,
    delta: float,
    changed: Callable[[Step[Any]], Step[Any]] = lambda step: step,
) -> dict[str, Any]:
    """Errors and coverage of one strategy as a JSON object. changed: what to make of every step; tests break it."""
    begin = time.perf_counter()
    C = VALUE_CAP.get(strategy, 32)
    column = Column(name="visits", kind="count")
    plan = plan_named(strategy, triggers=triggers, epsilon=epsilon, delta=delta, columns=(column,), max_records=C)
    mechanism = build_strategy(plan)
    spooled = spool(workload, mechanism.bounding, triggers, progress=Lines())
    ends = checkpoints(triggers)
    rows = Rows(mechanism, len(spooled.key_names), sorted({-(-triggers // 2), triggers}))
    outcome = run(
        mechanism,
        spooled,
        window_noise(seed, plan.digest()),
        released=lambda trigger, codes, step: rows.observe(trigger, codes, changed(step)),
        progress=Lines(),
    )
    return {
        "strategy": strategy,
        "workload": workload.name,
        "micro_batches": triggers,
        "users": spooled.users,
        "records": spooled.records,
        "kept_records": spooled.kept,
        "seed": seed,
        "max_records": C,
        "epsilon": epsilon,
        "delta": delta,
        "checkpoints": as_rows(outcome.checkpoints),
        "coverage": coverage(rows, {trigger: spooled.truth[ends.index(trigger)] for trigger in rows.at}, lists),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="one JSON line per run is appended")
    parser.add_argument("--only", metavar="NAMES", help="of scenarios, separated by commas; default all")
    parser.add_argument("--strategies", default=";".join(STRATEGIES), help="separated by semicolons")
    parser.add_argument("--users", type=int, help="of synthetic days; default 1,000,000, or what the name says")
    parser.add_argument("--seeds", default="0", help="of data and noise, separated by commas")
    parser.add_argument("--micro-batches", type=int, default=100, help="T, triggers in the window")
    parser.add_argument("--nasa", type=Path, default=NASA, metavar="FILE", help="default: the shipped one")
    parser.add_argument("--retail", type=Path, metavar="FILE", help="retail.dat of the FIMI repository; may be .gz")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    chosen = scenarios(options.nasa, options.retail)
    if options.only is not None:
        names = options.only.split(",")
        unknown = set(names) - {scenario.name for scenario in chosen}
        if unknown:
            known = ", ".join(scenario.name for scenario in chosen)
            print(f"--only={','.join(sorted(unknown))}: choose of {known} (retail needs --retail)", file=sys.stderr)
            return 2
        chosen = [scenario for scenario in chosen if scenario.name in names]
    for scenario in chosen:
        for seed in map(int, options.seeds.split(",")):
            workload = hold(scenario.workload(options.users or scenario.users, seed))
            lists = list_lengths(workload)
            for strategy in options.strategies.split(";"):
                print(f"{scenario.name}, {strategy}, seed {seed}", file=sys.stderr)
                row = measure(
                    workload,
                    strategy,
                    lists,
                    triggers=options.micro_batches,
                    seed=seed,
                    epsilon=scenario.epsilon,
                    delta=scenario.delta,
                )
                with options.out.open("a") as out:
                    out.write(json.dumps({"scenario": scenario.name, **row}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
