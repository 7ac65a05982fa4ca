"""PAK against the plain binary tree, on synthetic streams shaped like the paper's two data sets.

    python benchmarks/pak.py                     both streams, table
    python benchmarks/pak.py --json              one JSON object a line
    python benchmarks/pak.py --plot DIRECTORY    improvement and outlier-error ratio over the steps, as PNG

`trips`: minutes per train trip, B = 1440, mode about 25, n = 25 million.  `baskets`: dollars per shopping basket, B = 3000,
n = 150,000.  epsilon = 1, delta = 2^-20, m = 50,000, parameters from the optimiser alone.  The plain tree adds Lap(B H / epsilon)
to every node.  Improvement: mean absolute error of the plain tree's running sum over PAK's, with the values that clipping cut off.
Outlier-error ratio: what clipping cut off, as a share of the mean absolute noise.  The paper reports improvements of 3.5 and 9.
"""

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import plots

from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.stream.addresses import GRID
from susurrus.mechanisms.stream.pak import Pak, tree_noise
from susurrus.mechanisms.stream.pak_parameters import build, holdout_for_accuracy, holdout_for_stream

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
CHUNK = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A stream: gamma distributed values in whole units, at most ``bound``.  paper: the improvement it reports."""

    name: str
    bound: int
    length: int
    shape: float
    scale: float
    paper: float

    def chunk(self, rng: np.random.Generator, count: int) -> Ints:
        """Return int64[count] values."""
        return np.minimum(np.rint(rng.gamma(self.shape, self.scale, count)), self.bound).astype(np.int64)


SHAPES = (
    Shape(name="trips", bound=1440, length=25_000_000, shape=3.5, scale=10.0, paper=3.5),
    Shape(name="baskets", bound=3000, length=150_000, shape=1.6, scale=35.0, paper=9.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the report: errors at one step, over the rounds."""

    stream: str
    step: int
    improvement: float
    improvement_standard_error: float
    outlier_ratio: float
    pak_mae: float
    plain_mae: float
    theta_mean: float
    paper: float
    rounds: int
    seconds: float


def steps_of(shape: Shape, holdout: int, count: int = 24) -> Ints:
    """Return the steps looked at: geometric from just after the holdout to n, the last one n."""
    return np.unique(np.rint(np.geomspace(holdout + 1, shape.length, count)).astype(np.int64))


def data_of(shape: Shape, holdout: int, steps: Ints, number: int) -> tuple[Ints, Ints]:
    """Return the held-out values and, per step, how often each value has occurred: int64[steps, bound + 1]."""
    rng = np.random.default_rng(number)
    head = shape.chunk(rng, holdout)
    counts = np.bincount(head, minlength=shape.bound + 1)
    histograms, done = [], holdout
    for step in steps.tolist():
        while done < step:
            part = shape.chunk(rng, min(CHUNK, step - done))
            counts = counts + np.bincount(part, minlength=shape.bound + 1)
            done += len(part)
        histograms.append(counts)
    return head, np.array(histograms)


def one_draw(
    shape: Shape, mechanism: Pak, steps: Ints, data: tuple[Ints, Ints], number: int
) -> tuple[int, Floats, Floats, Floats]:
    """Return theta and, per step, the noise of PAK, the cut-off mass, the noise of the plain tree."""
    head, histograms = data
    noise = NoiseSource(b"benchmark" * 4, epoch=b"%d" % number, config=b"pak", pipeline=shape.name).window(0)
    state = mechanism.start()
    mechanism.collect(state, head)
    block = mechanism.open(state, noise, b"s")
    theta = state.theta
    block_noise = int(block.sum[0]) - int(np.minimum(head, theta).sum())
    cut = histograms @ np.maximum(np.arange(shape.bound + 1) - theta, 0)
    scale = theta * mechanism.levels / mechanism.epsilon
    after = steps - mechanism.holdout
    ours = [block_noise + tree_noise(noise, b"s", 0, int(i), int(i), mechanism.levels, scale)[0] / GRID for i in after]
    levels = shape.length.bit_length()
    plain_scale = shape.bound * levels / mechanism.epsilon
    plain = [tree_noise(noise, b"plain", 0, int(i), int(i), levels, plain_scale)[0] / GRID for i in steps]
    return theta, np.array(ours), cut.astype(np.float64), np.array(plain)


def evaluate(shape: Shape, arguments: argparse.Namespace) -> list[Result]:
    """Return one result per step."""
    started = time.perf_counter()
    mechanism = build(
        bound=shape.bound,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        holdout=arguments.holdout,
        horizon=shape.length,
        exact=arguments.exact,
    )
    steps = steps_of(shape, arguments.holdout)
    drawn = []
    for number in range(arguments.rounds):
        if number % arguments.draws == 0:
            data = data_of(shape, arguments.holdout, steps, number)
        drawn.append(one_draw(shape, mechanism, steps, data, number))
    rounds = arguments.rounds
    theta = float(np.mean([entry[0] for entry in drawn]))
    ours, cut, plain = (np.array([entry[i] for entry in drawn]) for i in (1, 2, 3))
    error, plain_error = np.abs(ours - cut), np.abs(plain)
    pak_mae, plain_mae = error.mean(axis=0), plain_error.mean(axis=0)
    relative = np.sqrt((error.std(axis=0) / pak_mae) ** 2 + (plain_error.std(axis=0) / plain_mae) ** 2) / math.sqrt(
        rounds
    )
    seconds = (time.perf_counter() - started) / rounds
    return [
        Result(
            stream=shape.name,
            step=int(step),
            improvement=float(plain_mae[i] / pak_mae[i]),
            improvement_standard_error=float(relative[i] * plain_mae[i] / pak_mae[i]),
            outlier_ratio=float(cut[:, i].mean() / np.abs(ours[:, i]).mean()),
            pak_mae=float(pak_mae[i]),
            plain_mae=float(plain_mae[i]),
            theta_mean=theta,
            paper=shape.paper,
            rounds=rounds,
            seconds=seconds,
        )
        for i, step in enumerate(steps.tolist())
    ]


def plot(results: dict[str, list[Result]], directory: Path) -> None:
    """Draw improvement (one file) and outlier-error ratio (another) over the steps."""
    pyplot = plots.pyplot()
    directory.mkdir(parents=True, exist_ok=True)
    for name, label in (
        ("improvement", "error of the plain tree / error of PAK"),
        ("outlier_ratio", "cut-off / noise"),
    ):
        figure, axes = pyplot.subplots(figsize=(7, 4.5))
        for stream, rows in results.items():
            axes.plot([row.step for row in rows], [getattr(row, name) for row in rows], marker="o", label=stream)
        axes.set(xlabel="step", ylabel=label, xscale="log")
        axes.legend()
        figure.tight_layout()
        figure.savefig(directory / f"pak-{name.replace('_', '-')}.png", dpi=120)
        pyplot.close(figure)


def main() -> None:
    """Parse options, run, print, plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=2.0**-20)
    parser.add_argument("--holdout", type=int, default=50_000, help="m")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--draws", type=int, default=100, help="rounds that share one stream of values")
    parser.add_argument("--exact", action="store_true", help="the largest valid smoothness instead of the textbook's")
    parser.add_argument("--stream", choices=[shape.name for shape in SHAPES], nargs="+")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="DIRECTORY")
    arguments = plots.parse(parser)
    results: dict[str, list[Result]] = {}
    for shape in SHAPES:
        if arguments.stream and shape.name not in arguments.stream:
            continue
        rows = results[shape.name] = evaluate(shape, arguments)
        if arguments.json:
            for row in rows:
                print(json.dumps(asdict(row)), flush=True)
            continue
        average = float(np.mean([row.improvement for row in rows]))
        last = rows[-1]
        print(
            f"{shape.name:8} B {shape.bound}  theta {last.theta_mean:.0f}  improvement at n {last.improvement:.2f}"
            f" +- {last.improvement_standard_error:.2f}, mean over steps {average:.2f}  (paper {shape.paper})"
            f"  outlier-error ratio at n {last.outlier_ratio:.3f}  {last.seconds:.1f} s a round, {last.rounds} rounds"
        )
        first = holdout_for_accuracy(epsilon=0.85 * arguments.epsilon, delta=arguments.delta, tail=0.00425)
        second = holdout_for_stream(epsilon=arguments.epsilon, delta=arguments.delta, horizon=shape.length)
        print(f"{'':8} m by the heuristics: {first:,} for the accuracy of tau, {second:,} for the error at n")
    if arguments.plot is not None:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
