"""ToPL: the error of range sums from locally private reports, beside the paper's variants.

    python benchmarks/topl.py                                       a synthetic series shaped like basket sizes
    python benchmarks/topl.py --data pos.npz --bound 1638 --json    one JSON object a line
    python benchmarks/topl.py --synthetic trend                     trend, shift, burst, bimodal, zeros ...: where
    filters fail
    python benchmarks/topl.py --synthetic all                       all of them

The setting of the paper's evaluation: the first m values are phase 1 reports (Square Wave), the next n phase 2
reports; 200 random range queries over the n positions; a series too short for m + n is reflected as the authors' code
does it. The error of a query is against the sum of the raw (unclipped) values. `topl` is our default: theta follows
the level, and the filter's answers pass Hausman's test. `topl-plain` is the same with plain sums, `topl-filter` without
the test, `topl-fixed` with the theta of phase 1 throughout. `topl-hm`, `topl-pm` and `topl-sr` are the paper's: linear
Square Wave, EM, trailing zeros removed, the authors' objective (which overweights noise 16 times) and the hybrid,
piecewise or stochastic rounding perturber. `-ems` smooths, `-untrimmed` keeps the tail, `-corrected` weighs noise and
truncation as docs/guarantees/topl.md derives.
"""

import argparse
import itertools
import json
import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from expectation_maximisation import maximise

from susurrus.mechanisms.local.estimate import Estimate, Totals, combine
from susurrus.mechanisms.local.filter import MeanFilter, hausman
from susurrus.mechanisms.local.hybrid import EPSILON_STAR, Hybrid, hybrid_alpha
from susurrus.mechanisms.local.level import LevelFollower
from susurrus.mechanisms.local.randomness import Words
from susurrus.mechanisms.local.reconstruction import Transition
from susurrus.mechanisms.local.shape import fit_distribution
from susurrus.mechanisms.local.threshold import (
    Distribution,
    choose_threshold,
    expected_squared_error,
)
from susurrus.mechanisms.local.wave import SquareWave

Floats = npt.NDArray[np.float64]
EPSILONS = (0.2, 0.6, 1.0, 2.0)
BUCKETS = 1024
OURS = ("topl", "topl-plain", "topl-filter", "topl-fixed")
PAPER = {"hm": None, "pm": 1.0, "sr": 0.0}
METHODS = (
    "topl",
    "topl-plain",
    "topl-filter",
    "topl-fixed",
    "topl-hm",
    "topl-pm",
    "topl-sr",
    "topl-hm-ems",
    "topl-hm-untrimmed",
    "topl-hm-ems-untrimmed",
    "topl-hm-corrected",
    "topl-hm-ems-corrected",
)
SYNTHETIC = (
    "baskets",
    "exponential",
    "normal",
    "uniform",
    "bimodal",
    "zeros",
    "trend",
    "shift",
    "burst",
    "alternation",
)


def reflect(values: Floats, length: int) -> Floats:
    """The series continued backwards and again until it is `length` long, as in the authors' synopsis_generate."""
    while values.size < length:
        values = np.append(values, values[length - values.size : 0 : -1])
    return values[:length]


def synthetic(kind: str, length: int, phase_one: int) -> tuple[Floats, float]:
    """(values, public bound) of a made-up series; the moving ones move in phase 2."""
    rng = np.random.default_rng(20_211_115)
    when = np.clip((np.arange(length) - phase_one) / max(1, length - phase_one), 0.0, 1.0)
    baskets = np.floor(np.exp(rng.normal(1.66, 0.83, length))) + 1
    shapes: dict[str, tuple[Floats, float]] = {
        "baskets": (baskets, 1638.0),
        "exponential": (rng.exponential(20.0, length), 1000.0),
        "normal": (rng.normal(200.0, 20.0, length), 2000.0),
        "uniform": (rng.uniform(0.0, 100.0, length), 100.0),
        "bimodal": (
            np.where(rng.random(length) < 0.1, rng.normal(300, 20, length), rng.exponential(10, length)),
            1000.0,
        ),
        "zeros": (np.where(rng.random(length) < 0.8, 0.0, rng.exponential(30.0, length)), 1000.0),
        "trend": (baskets * (0.5 + 1.5 * when), 1638.0),
        "shift": (baskets * np.where((when > 0.3) & (when < 0.6), 2.0, 0.7), 1638.0),
        "burst": (baskets * np.where(np.sin(when * 300.0) > 0.98, 4.0, 1.0), 1638.0),
        "alternation": (baskets * np.where(np.floor(when * 200) % 2 == 0, 0.6, 1.4), 1638.0),
    }
    values, bound = shapes[kind]
    return np.clip(values, 0.0, bound), bound


@dataclass
class Setting:
    """One series, split, with its queries and their true answers."""

    one: Floats
    two: Floats
    bound: float
    queries: npt.NDArray[np.int64]
    interval: int

    def truth(self) -> Floats:
        total = np.concatenate(([0.0], np.cumsum(self.two)))
        return np.asarray(total[self.queries[:, 1]] - total[self.queries[:, 0]])


def authors_objective(distribution: Distribution, thetas: Floats, epsilon: float, values: int) -> Floats:
    """The released `exact_mse`: worst-case noise on an interval of length 2 theta, squared length expected at n^2 /
    24.
    """
    odd = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    root = math.exp(epsilon / 2)
    worst = odd**2
    if epsilon > EPSILON_STAR:
        worst = (root + 3) / (3 * root * (root - 1)) + (math.exp(epsilon) + 1) ** 2 / (root * math.expm1(epsilon) ** 2)
    return worst * thetas**2 * values / 3 + values**2 / 24 * distribution.excess(thetas) ** 2


def remove_trailing_zeros(frequencies: Floats, *, share: float = 1e-4, run: int = 5) -> Floats:
    """Cut an EM estimate's spurious tail: buckets below `share` count as empty, all from the first `run` empty ones
    on go to 0.

    The paper's post-processing; kept for comparison, it also cuts a real second mode. The rest is scaled to sum 1.
    """
    kept = np.where(frequencies < share * frequencies.sum(), 0.0, frequencies)
    empty = np.convolve(kept == 0, np.ones(run), mode="valid") == run
    if empty.any():
        kept[int(np.argmax(empty)) :] = 0.0
    total = kept.sum()
    return kept / total if total > 0 else np.asarray(frequencies / frequencies.sum())


def paper_threshold(name: str, setting: Setting, epsilon: float, words: Words) -> tuple[float, Hybrid]:
    """theta and perturber of one of the paper's variants."""
    parts = name.split("-")[1:]
    alpha = PAPER[parts[0]]
    perturber = Hybrid(epsilon, hybrid_alpha(epsilon) if alpha is None else alpha)
    wave = SquareWave(epsilon, setting.bound)
    codes = wave.randomise(setting.one, words)
    smoothing = "ems" in parts
    frequencies = maximise(
        Transition(wave, np.linspace(0.0, 1.0, BUCKETS + 1), BUCKETS).dense(),
        wave.bucket_counts(codes, BUCKETS),
        smoothing=smoothing,
        tolerance=1e-3 if smoothing else 1e-3 * math.exp(epsilon),
    )
    if "untrimmed" not in parts:
        frequencies = remove_trailing_zeros(frequencies)
    edges = np.linspace(0.0, setting.bound, frequencies.size + 1)
    distribution = Distribution(edges, frequencies)
    if "corrected" in parts:
        errors = expected_squared_error(distribution, edges[1:], perturber, setting.two.size)
    else:
        errors = authors_objective(distribution, edges[1:], epsilon, setting.two.size)
    return float(edges[1:][np.argmin(errors)]), perturber


def our_threshold(setting: Setting, epsilon: float, words: Words) -> tuple[float, LevelFollower, Hybrid]:
    """theta, what follows the level from there, and the perturber of the default."""
    wave = SquareWave(epsilon, setting.bound, "log")
    counts = wave.bucket_counts(wave.randomise(setting.one, words), 256)
    distribution = fit_distribution(wave, counts)
    chosen = choose_threshold(distribution, epsilon, setting.two.size)
    perturber = Hybrid(epsilon, chosen.alpha)
    return chosen.theta, LevelFollower(distribution, perturber, setting.two.size), perturber


DELAY = 2
"""A theta that is chosen at the end of interval k is in force from interval k + 2, and the next one is chosen there at the
earliest: clients take it up while an interval runs.
"""


@dataclass
class Ours:
    """One round of the default: theta of each interval and the answers to the queries."""

    thetas: Floats
    plain: Floats
    filtered: Floats
    tested: Floats


def our_round(setting: Setting, epsilon: float, words: Words, *, follow: bool) -> Ours:
    """Perturb and estimate interval by interval, with the server's own code.

    A query's ends are rounded to intervals for the filter, and its answer scaled to the query's length.
    """
    theta, follower, perturber = our_threshold(setting, epsilon, words)
    queries, length = setting.queries, setting.interval
    rounded = np.rint(queries / length).astype(np.int64)
    opened = np.unique(rounded[:, 0])
    means, running, answers = MeanFilter(), [(Estimate(0, 0.0, 0.0), 0.0)], {}
    decoded, thetas, newest, chosen = [], [], theta, -DELAY
    for interval, start in enumerate(range(0, setting.two.size, length)):
        if interval >= chosen + DELAY:
            theta = newest
        codes = perturber.randomise(setting.two[start : start + length] / theta, words)
        decoded.append(perturber.decode(codes) * theta)
        thetas.append(theta)
        parts = [(Totals.of(codes), theta, perturber)]
        plain, variance, answer = means.take(parts, open_range=interval in opened)
        assert answer is not None
        running.append((combine((running[-1][0], plain)), running[-1][1] + variance))
        for query in np.flatnonzero(rounded[:, 1] == interval + 1).tolist():
            if rounded[query, 0] <= interval:
                answers[query] = means.read(int(np.searchsorted(opened, rounded[query, 0])))
        if follow:
            follower.take(theta, *means.level())
            if interval >= chosen + DELAY and (proposal := follower.proposal(theta)):
                newest, chosen = proposal.theta, interval
    total = np.concatenate(([0.0], np.cumsum(np.concatenate(decoded))))
    plain_answers = total[queries[:, 1]] - total[queries[:, 0]]
    filtered, tested = plain_answers.copy(), plain_answers.copy()
    for query, answer in answers.items():
        first, last = rounded[query].tolist()
        scale = (queries[query, 1] - queries[query, 0]) / ((last - first) * length)
        (before, noise_before), (after, noise_after) = running[first], running[last]
        sums = Estimate(after.count - before.count, after.sum - before.sum, after.variance - before.variance)
        filtered[query] = answer.sum * scale
        if hausman(sums, noise_after - noise_before, answer) is answer:
            tested[query] = filtered[query]
    return Ours(np.array(thetas), plain_answers, filtered, tested)


def one_round(names: list[str], setting: Setting, epsilon: float, words: Words) -> dict[str, tuple[Floats, float]]:
    """(answers to the queries, mean theta) of one round, by method. Several names share a run: they follow the level."""
    if not names:
        return {}
    [name, *_] = names
    if name in OURS:
        ours = our_round(setting, epsilon, words, follow=name != "topl-fixed")
        chosen = {
            "topl": ours.tested,
            "topl-plain": ours.plain,
            "topl-filter": ours.filtered,
            "topl-fixed": ours.tested,
        }
        return {name: (chosen[name], float(ours.thetas.mean())) for name in names}
    theta, perturber = paper_threshold(name, setting, epsilon, words)
    codes = perturber.randomise(setting.two / theta, words)
    total = np.concatenate(([0.0], np.cumsum(perturber.decode(codes)))) * theta
    return {name: (total[setting.queries[:, 1]] - total[setting.queries[:, 0]], theta)}


def seeded_words(rng: np.random.Generator) -> Words:
    """Repeatable randomness, for the benchmark only: a device uses the operating system's."""
    return lambda n: rng.integers(0, 2**64, n, dtype=np.uint64)


@dataclass
class Measured:
    """The rounds of one method: mean squared errors, mean thetas, seconds."""

    errors: list[float] = field(default_factory=list)
    thetas: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def row(self, reference: "Measured | None") -> dict[str, float]:
        """Mean, median and standard error; the ratio of the means to the reference's, from the same rounds (delta method)."""
        errors = np.array(self.errors)
        n, mean = errors.size, float(errors.mean())
        row = {
            "mse": mean,
            "mse_median": float(np.median(errors)),
            "mse_standard_error": float(errors.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan,
        }
        if reference is not None:
            others = np.array(reference.errors)
            ratio = mean / float(others.mean())
            residuals = (errors - ratio * others) / others.mean()
            row["ratio"] = ratio
            row["ratio_standard_error"] = float(residuals.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
        return {**row, "theta_mean": float(np.mean(self.thetas)), "rounds": n, "seconds": self.seconds}


def measure(series: Floats, bound: float, epsilon: float, args: argparse.Namespace) -> dict[str, Measured]:
    """All rounds of one epsilon; every round draws its own queries and noise, the same for every method."""
    found = {name: Measured() for name in args.methods}
    for number in range(args.rounds):
        for names in (
            [name for name in OURS[:3] if name in found],
            *([name] for name in args.methods if name not in OURS[:3]),
        ):
            rng = np.random.default_rng((args.seed, number, round(epsilon * 1e6)))
            queries = np.sort(rng.integers(0, args.values, (args.queries, 2)), axis=1)
            setting = Setting(series[: args.m], series[args.m :], bound, queries, args.interval)
            started = time.perf_counter()
            answers = one_round(names, setting, epsilon, seeded_words(rng))
            for name, (answer, theta) in answers.items():
                found[name].errors.append(float(np.mean((answer - setting.truth()) ** 2)))
                found[name].thetas.append(theta)
                found[name].seconds += time.perf_counter() - started
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="npz file with `values`; without it a synthetic series")
    parser.add_argument("--bound", type=float, help="public bound B of the values (required with --data)")
    parser.add_argument("--synthetic", choices=(*SYNTHETIC, "all"), default="baskets")
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--m", type=int, default=65_536, help="phase 1 reports")
    parser.add_argument("--values", type=int, default=2**20, help="phase 2 reports")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--interval", type=int, default=1024, help="phase 2 reports per interval of the filter")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    length = args.m + args.values
    if args.data is not None:
        if args.bound is None:
            parser.error("--data needs --bound: the public bound of its values")
        values = np.load(args.data)["values"].astype(np.float64)
        chosen = {"": (reflect(np.clip(values, 0, args.bound), length), args.bound)}
    else:
        kinds = SYNTHETIC if args.synthetic == "all" else (args.synthetic,)
        chosen = {kind: synthetic(kind, length, args.m) for kind in kinds}
    if not args.json:
        print(
            f"{'series':12s} {'method':24s} {'eps':>4s} {'mse':>9s} {'median':>9s} {'s.e.':>9s} {'ratio':>14s} {'theta':>8s}"
        )
    for (kind, (series, bound)), epsilon in itertools.product(chosen.items(), args.epsilon):
        found = measure(series, bound, epsilon, args)
        for name, measured in found.items():
            row = measured.row(found.get("topl-hm"))
            if args.json:
                print(json.dumps({**({"series": kind} if kind else {}), "method": name, "epsilon": epsilon, **row}))
            else:
                ratio = f"{row['ratio']:7.2g} ±{row['ratio_standard_error']:6.1g}" if "ratio" in row else ""
                print(
                    f"{kind:12s} {name:24s} {epsilon:4.1f} {row['mse']:9.2e} {row['mse_median']:9.2e} "
                    f"{row['mse_standard_error']:9.1e} {ratio:>14s} {row['theta_mean']:8.1f}"
                )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
