"""ToPL: the error of range sums from locally private reports, beside the paper's variants.

    python benchmarks/topl.py                                       a synthetic series shaped like basket sizes
    python benchmarks/topl.py --data pos.npz --bound 1638 --json    one JSON object a line
    python benchmarks/topl.py --synthetic trend                     trend, shift, burst, bimodal, zeros ...: where
    filters fail

The setting of the paper's evaluation: the first m values are phase 1 reports (Square Wave), the next n phase 2
reports; 200 random range queries over the n positions; a series too short for m + n is reflected as the authors' code
does it. The error of a query is against the sum of the raw (unclipped) values. `topl` is our default, `topl-plain`
the same without its filter; `topl-hm`, `topl-pm` and `topl-sr` are the paper's: linear Square Wave, EM, trailing
zeros removed, the authors' objective (which overweights noise 16 times) and the hybrid, piecewise or stochastic
rounding perturber. `-ems` smooths, `-untrimmed` keeps the tail, `-corrected` weighs noise and truncation as
docs/guarantees/topl.md derives.
"""

import argparse
import itertools
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.kalman import filter_ranges
from susurrus.mechanisms.local.estimate import Totals, estimate
from susurrus.mechanisms.local.hybrid import EPSILON_STAR, Hybrid, hybrid_alpha
from susurrus.mechanisms.local.randomness import Words
from susurrus.mechanisms.local.reconstruction import Transition, maximise
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
PAPER = {"hm": None, "pm": 1.0, "sr": 0.0}
METHODS = (
    "topl",
    "topl-plain",
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
        Transition(wave, np.linspace(0.0, 1.0, BUCKETS + 1), BUCKETS),
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


def our_threshold(setting: Setting, epsilon: float, words: Words) -> tuple[float, Hybrid]:
    """theta and perturber of the default."""
    wave = SquareWave(epsilon, setting.bound, "log")
    counts = wave.bucket_counts(wave.randomise(setting.one, words), 256)
    chosen = choose_threshold(fit_distribution(wave, counts), epsilon, setting.two.size)
    return chosen.theta, Hybrid(epsilon, chosen.alpha)


def filtered_answers(
    setting: Setting, codes: npt.NDArray[np.int64], theta: float, perturber: Hybrid, plain: Floats
) -> Floats:
    """The filter's answers, on intervals; a query's ends are rounded to intervals and the answer scaled to its length."""
    pieces = [Totals.of(codes[i : i + setting.interval]) for i in range(0, codes.size, setting.interval)]
    intervals = [estimate(piece, theta, perturber) for piece in pieces]
    pooled = [estimate(total, theta, perturber) for total in itertools.accumulate(pieces)]
    rounded = np.rint(setting.queries / setting.interval).astype(np.int64)
    some = rounded[:, 1] > rounded[:, 0]
    answers = filter_ranges(
        np.array([s.count for s in intervals], dtype=np.float64),
        np.array([s.mean for s in intervals]),
        np.array([p.variance / p.count / s.count for p, s in zip(pooled, intervals, strict=True)]),
        rounded[some],
    )
    out = plain.copy()
    asked = setting.queries[:, 1] - setting.queries[:, 0]
    length = asked / np.maximum(1, (rounded[:, 1] - rounded[:, 0]) * setting.interval)
    out[some] = [a.sum for a in answers] * length[some]
    return out


def one_round(name: str, setting: Setting, epsilon: float, words: Words) -> tuple[float, float]:
    """(mean squared error of the queries, theta) of one round."""
    ours = name in ("topl", "topl-plain")
    if ours:
        theta, perturber = our_threshold(setting, epsilon, words)
    else:
        theta, perturber = paper_threshold(name, setting, epsilon, words)
    codes = perturber.randomise(setting.two / theta, words)
    total = np.concatenate(([0.0], np.cumsum(perturber.decode(codes)))) * theta
    answers = total[setting.queries[:, 1]] - total[setting.queries[:, 0]]
    if name == "topl":
        answers = filtered_answers(setting, codes, theta, perturber, answers)
    return float(np.mean((answers - setting.truth()) ** 2)), theta


def seeded_words(rng: np.random.Generator) -> Words:
    """Repeatable randomness, for the benchmark only: a device uses the operating system's."""
    return lambda n: rng.integers(0, 2**64, n, dtype=np.uint64)


def measure(
    name: str, series: Floats, bound: float, epsilon: float, args: argparse.Namespace
) -> dict[str, float | str]:
    """All rounds of one method and epsilon; every round draws its own queries and noise, the same for every method."""
    errors, thetas = [], []
    started = time.perf_counter()
    for number in range(args.rounds):
        rng = np.random.default_rng((args.seed, number, round(epsilon * 1e6)))
        queries = np.sort(rng.integers(0, args.values, (args.queries, 2)), axis=1)
        setting = Setting(series[: args.m], series[args.m :], bound, queries, args.interval)
        error, theta = one_round(name, setting, epsilon, seeded_words(rng))
        errors.append(error)
        thetas.append(theta)
    return {
        "method": name,
        "epsilon": epsilon,
        "mse": float(np.mean(errors)),
        "mse_median": float(np.median(errors)),
        "mse_standard_error": float(np.std(errors, ddof=1) / math.sqrt(len(errors))) if len(errors) > 1 else math.nan,
        "theta_mean": float(np.mean(thetas)),
        "rounds": args.rounds,
        "seconds": time.perf_counter() - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="npz file with `values`; without it a synthetic series")
    parser.add_argument("--bound", type=float, help="public bound B of the values (required with --data)")
    parser.add_argument("--synthetic", choices=SYNTHETIC, default="baskets")
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
    if args.data is not None:
        if args.bound is None:
            parser.error("--data needs --bound: the public bound of its values")
        series = reflect(np.clip(np.load(args.data)["values"].astype(np.float64), 0, args.bound), args.m + args.values)
        bound = args.bound
    else:
        series, bound = synthetic(args.synthetic, args.m + args.values, args.m)
    if not args.json:
        print(f"{'method':24s} {'epsilon':>7s} {'mse':>9s} {'median':>9s} {'s.e.':>9s} {'theta':>8s} {'s':>6s}")
    for epsilon in args.epsilon:
        for name in args.methods:
            row = measure(name, series, bound, epsilon, args)
            if args.json:
                print(json.dumps(row))
            else:
                print(
                    f"{name:24s} {epsilon:7.2f} {row['mse']:9.2e} {row['mse_median']:9.2e} "
                    f"{row['mse_standard_error']:9.1e} {row['theta_mean']:8.1f} {row['seconds']:6.1f}"
                )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
