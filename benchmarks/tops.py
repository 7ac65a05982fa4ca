"""ToPS: mean squared error of random range sums, beside the paper's variants, and the coverage of the error bars.

    python benchmarks/tops.py                                       a synthetic series shaped like basket sizes
    python benchmarks/tops.py --data pos.npz --bound 1638 --json    one JSON object a line
    python benchmarks/tops.py --structured                          trends, shifts, bursts, alternation: over plain ToPS
    python benchmarks/tops.py --web --baskets retail.dat.gz         the shipped web log, and a file with a basket a line
    python benchmarks/tops.py --plot tops.png                       the errors over epsilon, as a plot

The setting of the paper's section 5: the first m values give theta, the next r are released, and 200 random ranges are
asked. A short series is reflected as the authors' program does it. Errors are against sums of the raw (unclipped)
values; coverage is of the sums of clipped values, which error bars are of.

    tops            filter, adaptive split, a range that follows (the default of pipelines)
    tops-paper      as published; mean smoother and the leaf that the smoother deserves (``choose_smoothing``)
    tops-recent     as published; smoother "recent" and the paper's rule for s: "plain" in the structured table
    tops-authors    the same with the s of the authors' program, which searches real numbers and rounds
    nm-binary       Noisy Max threshold, binary tree
    ss-hierarchy    smooth-sensitivity threshold, hierarchy
    pak             PAK's shifted threshold (clipped to B), binary tree
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import plots
import series as shapes

from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream.hierarchy import choose_smoothing
from susurrus.mechanisms.stream.pak import tree_noise
from susurrus.mechanisms.stream.quantile import SmoothQuantile
from susurrus.mechanisms.stream.range_sums import ReleasedStream
from susurrus.mechanisms.stream.smoothers import Smoother
from susurrus.mechanisms.stream.stream_state import UNCOUNTED, StreamState
from susurrus.mechanisms.stream.table import TopsTable
from susurrus.mechanisms.stream.tops import Tops

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Answer = Callable[[Ints, Ints], tuple[Floats, Floats]]
COMPARED = ("tops-recent", "tops-authors", "tops")
METHODS = ("tops", "tops-paper", "nm-binary", "ss-hierarchy", "pak")
REFERENCE = {0.02: 7.4e8, 0.05: 2.0e8, 0.1: 1.4e8}
"""ToPS on pos by the authors' own program in these settings."""
QUERIES = 200
NOMINAL = 1.959964
"""Standard errors of a nominal 95 %."""


@dataclass(frozen=True)
class Result:
    """One line of the report."""

    method: str
    series: str
    epsilon: float
    mse: float
    mae: float
    mmse: float
    mmae: float
    mse_standard_error: float
    theta_mean: float
    rounds: int
    coverage: float
    coverage_standard_error: float
    square: float
    fitting: float
    coverage_fitting: float
    seconds: float
    leaf: int


def authors_smoothing(range_limit: int, epsilon: float, fanout: int = 16) -> int:
    """Return s as the authors' program finds it: the minimum over real numbers, rounded."""
    s = np.linspace(0, math.log(range_limit, fanout) - 1, 10_001)
    cost = (fanout - 1) * (math.log(range_limit, fanout) - s) ** 3 * 2 / epsilon**2 + fanout ** (2 * s) / 36
    return round(float(s[np.argmin(cost)]))


@dataclass(frozen=True)
class Released:
    """A round's answers (estimates and standard errors), and the running sums of the clipped values, which errors are of."""

    answer: Answer
    clipped: Ints | None = None
    fits: Callable[[Ints, Ints], npt.NDArray[np.bool_]] | None = None


class Runner:
    """One method at one epsilon on one series: what it releases in a round, as an answerer of range sums."""

    def __init__(
        self, method: str, epsilon: float, *, bound: int, holdout: int, range_limit: int, smoothing: int | None
    ) -> None:
        self.method, self.epsilon, self.holdout, self.range_limit = method, epsilon, holdout, range_limit
        common = {"bound": bound, "epsilon": epsilon, "holdout": holdout, "range_limit": range_limit}
        if method == "tops":
            self.mechanism = Tops.of(**common, smoothing=smoothing)
        elif method == "tops-paper":
            s = (
                choose_smoothing(range_limit=range_limit, epsilon=epsilon, for_mean=True)
                if smoothing is None
                else smoothing
            )
            self.mechanism = Tops.of(**common, smoothing=s, smoother=Smoother.MEAN, adaptive=False)
        else:
            if method == "tops-authors":
                smoothing = authors_smoothing(range_limit, epsilon)
            self.mechanism = Tops.of(**common, smoothing=smoothing, smoother=Smoother.RECENT, adaptive=False)
        if method in ("ss-hierarchy", "pak"):
            # The constants of the authors' comparison: p = 0.5 %, lambda = 0.85, beta_tail = 0.3 * 0.02, delta = n^-2.
            self.quantile = SmoothQuantile(
                bound=bound,
                epsilon=epsilon,
                delta=(holdout + range_limit) ** -2.0,
                holdout=holdout,
                tail=0.85 * 0.005,
                beta_tail=0.3 * 0.02,
            )

    def release(self, values: Ints, noise: WindowNoise) -> tuple[float, "Released"]:
        """Release one round: the mean theta, and what answers ranges [first, last) after the holdout."""
        if self.method in ("nm-binary", "pak"):
            theta = self._one_theta(values, noise)
            clipped = np.minimum(values[self.holdout :], theta)
            levels = self.range_limit.bit_length()
            drawn = tree_noise(noise, b"s", 0, 1, self.range_limit, levels, theta * levels / self.epsilon) / 256
            running = np.concatenate(([0.0], np.cumsum(clipped) + drawn))
            return theta, Released(lambda first, last: (running[last] - running[first], np.full(len(first), np.nan)))
        table, taken = TopsTable(self.mechanism), values
        row = table.add(b"s", None, None)
        if self.method == "ss-hierarchy":
            theta, taken = self._one_theta(values, noise), values[self.holdout :]
            table.states[row] = StreamState(first_theta=theta)
            table.hot[row] = self.holdout, theta, 0, 0, UNCOUNTED
        leaves = table.step(np.full(len(taken), row), taken, noise).releases
        released = ReleasedStream.of(self.mechanism, **leaves.for_ranges())
        answer = released.filtered if self.method == "tops" else released.plain
        whole = np.repeat(np.arange(len(released.trees)), self.mechanism.base.values)[: len(values) - self.holdout]
        clipped = np.clip(values[self.holdout :], released.lower[whole], released.theta[whole])
        return float(leaves.theta.mean()), Released(
            answer, np.concatenate(([0], np.cumsum(clipped))), released.fits if self.method == "tops" else None
        )

    def _one_theta(self, values: Ints, noise: WindowNoise) -> int:
        if self.method in ("ss-hierarchy", "pak"):
            return int(self.quantile.release(values[None, : self.holdout], noise, [b"s"])[0])
        counts = self.mechanism.threshold.count(values[: self.holdout])[None]
        return int(self.mechanism.threshold.release(counts, noise, [b"s"])[0])


def evaluate(
    method: str,
    name: str,
    values: Ints,
    epsilon: float,
    *,
    bound: int,
    holdout: int,
    range_limit: int,
    rounds: int,
    smoothing: int | None,
) -> Result:
    """Return the errors of ``rounds`` rounds; queries and noise are seeded by the round."""
    runner = Runner(method, epsilon, bound=bound, holdout=holdout, range_limit=range_limit, smoothing=smoothing)
    prefix = np.concatenate(([0], np.cumsum(values[holdout:])))
    errors, thetas, scores, fits, started = [], [], [], [], time.perf_counter()
    for number in range(rounds):
        noise = NoiseSource(b"benchmark" * 4, epoch=b"%d" % number, config=method.encode(), pipeline=name).window(0)
        theta, released = runner.release(values, noise)
        ranges = np.sort(np.random.default_rng(number).integers(0, range_limit + 1, (QUERIES, 2)), axis=1)
        ranges = ranges[ranges[:, 0] < ranges[:, 1]]
        first, last = ranges.T
        estimate, claimed = released.answer(first, last)
        error = estimate - (prefix[last] - prefix[first])
        if released.clipped is not None:
            scores.append((estimate - (released.clipped[last] - released.clipped[first])) / claimed)
            fits.append(released.fits(first, last) if released.fits else np.ones(len(first), dtype=bool))
        mean_error = error / (last - first)
        errors.append([(error**2).mean(), np.abs(error).mean(), (mean_error**2).mean(), np.abs(mean_error).mean()])
        thetas.append(theta)
    table = np.array(errors)
    mse, mae, mmse, mmae = table.mean(axis=0).tolist()
    spread = float(table[:, 0].std(ddof=1) / math.sqrt(rounds)) if rounds > 1 else math.nan
    seconds = (time.perf_counter() - started) / rounds
    score = np.concatenate(scores) if scores else np.full(1, np.nan)
    fit = np.concatenate(fits) if fits else np.ones(1, dtype=bool)
    # The ranges of a round share its noise: a round is one observation.
    by_round = [float((np.abs(each) < NOMINAL).mean()) for each in scores]
    covered = np.where(np.isnan(score), np.nan, np.abs(score) < NOMINAL)
    return Result(
        method,
        name,
        epsilon,
        mse,
        mae,
        mmse,
        mmae,
        spread,
        float(np.mean(thetas)),
        rounds,
        float(covered.mean()),
        float(np.std(by_round, ddof=1) / math.sqrt(rounds)) if rounds > 1 and by_round else math.nan,
        float((score**2).mean()),
        float(fit.mean()),
        float(covered[fit].mean()) if fit.any() else math.nan,
        seconds,
        runner.mechanism.base.leaf,
    )


def report(result: Result, as_json: bool) -> None:
    """Print one line."""
    if as_json:
        print(json.dumps(asdict(result)), flush=True)
        return
    reference = REFERENCE.get(result.epsilon)
    note = f"  {result.mse / reference:5.2f} of the reference" if reference and result.series == "pos" else ""
    print(
        f"{result.series:18} {result.method:13} eps {result.epsilon:<5} MSE {result.mse:9.3g}"
        f" +- {result.mse_standard_error:7.2g}"
        f"  MAE {result.mae:9.3g}  MMSE {result.mmse:9.3g}  MMAE {result.mmae:9.3g}  theta {result.theta_mean:7.1f}"
        f"  covered {result.coverage:5.3f} +- {result.coverage_standard_error:5.3f} z2 {result.square:5.2f}"
        f"  fits {result.fitting:4.2f} {result.coverage_fitting:5.3f}"
        f"  {result.seconds:5.2f} s{note}",
        flush=True,
    )


def plot(results: list[Result], path: Path) -> None:
    """Draw MSE over epsilon, one line per method."""
    pyplot = plots.pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for method in dict.fromkeys(result.method for result in results):
        rows = [result for result in results if result.method == method]
        axes.errorbar(
            [row.epsilon for row in rows],
            [row.mse for row in rows],
            [row.mse_standard_error for row in rows],
            label=method,
            marker="o",
        )
    axes.set(
        xlabel="epsilon",
        ylabel="mean squared error of a random range",
        yscale="log",
        xscale="log",
        title=results[0].series,
    )
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def compared(series: dict[str, tuple[Ints, int]], arguments: argparse.Namespace) -> list[Result]:
    """`tops`, plain ToPS and the authors' s on every series (values and bound by name)."""
    results = []
    for name, (values, bound) in series.items():
        for epsilon in arguments.epsilon:
            found = [
                evaluate(
                    method,
                    name,
                    values,
                    epsilon,
                    bound=bound,
                    holdout=arguments.holdout,
                    range_limit=arguments.range_limit,
                    rounds=arguments.rounds,
                    smoothing=arguments.smoothing,
                )
                for method in COMPARED
            ]
            results += found
            for result in found:
                report(result, arguments.json)
            if not arguments.json:
                plain, authors, ours = (result.mse for result in found)
                print(f"{name:18} tops / plain {ours / plain:.2f}   tops / authors {ours / authors:.2f}", flush=True)
    return results


def main() -> None:
    """Parse options, run, print, plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="npz file with `values`; without it a synthetic series")
    parser.add_argument("--bound", type=int, default=shapes.BOUND, help="public upper bound B of a value")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.02, 0.05, 0.1])
    parser.add_argument("--method", nargs="+", choices=[*METHODS, "tops-recent", "tops-authors"], default=list(METHODS))
    parser.add_argument("--holdout", type=int, default=65_536, help="m")
    parser.add_argument("--range-limit", type=int, default=2**20, help="r, and how many values are released")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--smoothing", type=int, help="s; by default each method's own rule")
    parser.add_argument(
        "--structured",
        nargs="*",
        metavar="NAME",
        help=f"compare on structured series instead; all, or of: {', '.join(shapes.STRUCTURES)}",
    )
    parser.add_argument("--web", action="store_true", help="compare on series of the shipped web log instead")
    parser.add_argument(
        "--baskets", type=Path, help="compare on the sizes of the baskets of a gzipped file, one a line"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, help="write a PNG")
    arguments = plots.parse(parser)
    length = arguments.holdout + arguments.range_limit
    chosen: dict[str, tuple[Ints, int]] = {}
    if arguments.structured is not None:
        names = arguments.structured or shapes.STRUCTURES
        chosen |= {name: (shapes.structured(name, length), shapes.BOUND) for name in names}
    if arguments.web:
        for name in shapes.WEB_COLUMNS:
            values, bound = shapes.web(name)
            chosen[name] = shapes.reflected(values, length), bound
    if arguments.baskets is not None:
        name = arguments.baskets.name.split(".")[0]
        chosen[name] = shapes.reflected(shapes.baskets(arguments.baskets), length), arguments.bound
    if chosen:
        compared(chosen, arguments)
        return
    if arguments.data is None:
        name, values = "synthetic", shapes.shaped(length)
    else:
        name = arguments.data.stem
        values = shapes.reflected(np.load(arguments.data)["values"].astype(np.int64), length)
    results = []
    for method in arguments.method:
        for epsilon in arguments.epsilon:
            result = evaluate(
                method,
                name,
                values,
                epsilon,
                bound=arguments.bound,
                holdout=arguments.holdout,
                range_limit=arguments.range_limit,
                rounds=arguments.rounds,
                smoothing=arguments.smoothing,
            )
            results.append(result)
            report(result, arguments.json)
    if arguments.plot is not None:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
