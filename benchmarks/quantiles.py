#!/usr/bin/env python3
"""Quantiles of one key beside Google's quantile tree at the same ε and δ: errors, and what our intervals hold.

    python benchmarks/quantiles.py             the table of docs/quantiles.md; half a minute
    python benchmarks/quantiles.py --json      one object a line

The tree is written here after its publication (Google's differential privacy library: height 4, branching 16, Gaussian noise). A
record enters one node of each level, so the norm is 2; a quantile is found from the root down, by the noisy counts of the
children, of which those with less than 0.75 % are left out. It is a mechanism of one release. Ours is measured as one release and
as the last of 96. All see the logarithms of the same log-normal values (median 90, standard deviation 1) in 1 to 60,000.
"""

import argparse
import json
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import gaussian_mu
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.histogram.quantiles import borders_of, quantile
from susurrus.mechanisms.noise import NoiseSource

Floats = npt.NDArray[np.float64]

LOWER, UPPER = 1.0, 60_000.0
MEDIAN, DEVIATION = 90.0, 1.0
HEIGHT, BRANCHING, NEGLIGIBLE = 4, 16, 0.0075
BUCKETS: Final = 32
TRIALS: Final = 400
SIZES: Final = (100, 300, 1_000, 3_000, 10_000)
SHARES: Final = (0.5, 0.95)
PROMISES: Final = ((1.0, 1e-6, 1), (6.0, 1e-9, 8))
"""(ε, δ, records of one user, each of another key)."""


def tree(positions: Floats, share: float, sigma: float, rng: np.random.Generator) -> float:
    """The quantile of positions in [0, 1], from a tree with noise of deviation sigma at each node."""
    first, width, rank = 0, BRANCHING**HEIGHT, share
    leaves = np.minimum((positions * width).astype(np.int64), width - 1)
    for _ in range(HEIGHT):
        width //= BRANCHING
        here = leaves[(leaves >= first) & (leaves < first + BRANCHING * width)]
        counts = np.bincount((here - first) // width, minlength=BRANCHING) + sigma * rng.standard_normal(BRANCHING)
        counts = np.maximum(counts, 0)
        counts[counts < NEGLIGIBLE * counts.sum()] = 0
        total = counts.sum()
        if total <= 0:
            width *= BRANCHING
            break
        shares = np.cumsum(counts) / total
        child = min(int(np.searchsorted(shares, rank - 1e-6)), BRANCHING - 1)
        part = counts[child] / total
        rank = min(1.0, max(0.0, (rank - (shares[child] - part)) / part)) if part > 0 else 0.5
        first += child * width
    return (first + rank * width) / BRANCHING**HEIGHT


def value_at(position: float) -> float:
    """The inverse of the logarithmic position."""
    return LOWER * (UPPER / LOWER) ** position


def rows() -> Iterator[dict[str, Any]]:
    """One for each promise, number of records and quantile."""
    borders = borders_of(LOWER, UPPER, BUCKETS, "log")
    for epsilon, delta, records in PROMISES:
        cost = gaussian_mu(epsilon, delta) ** 2 / records
        ours = {T: Cells("x", triggers=T, buckets=BUCKETS, cost=cost) for T in (1, 96)}
        sigma = math.sqrt(HEIGHT / cost)
        for n in SIZES:
            rng = np.random.default_rng(n)
            values = np.clip(np.exp(math.log(MEDIAN) + DEVIATION * rng.standard_normal(n)), LOWER, UPPER)
            counts = (values[:, None] <= borders[1:]).sum(axis=0)
            positions = np.log(values / LOWER) / math.log(UPPER / LOWER)
            for share in SHARES:
                true = float(np.sort(values)[math.ceil(share * n) - 1])
                row: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "records": records, "n": n, "share": share}
                found = [value_at(tree(positions, share, sigma, rng)) for _ in range(TRIALS)]
                row["tree"] = _error(np.array(found), true)
                for triggers, cells in ours.items():
                    noise = NoiseSource(b"q" * 32, epoch=b"e", config=b"c", pipeline=f"{n}").window(0)
                    drawn = cells.noise(triggers, "x", [b"%d" % i for i in range(TRIALS)], noise)
                    scale = np.full(TRIALS, cells.std[-1, -1])
                    rows_of = quantile(counts + drawn, scale, borders, share)
                    row[f"ours_{triggers}"] = _error(rows_of.estimate, true)
                    row[f"held_{triggers}"] = float(((rows_of.lower <= true) & (true <= rows_of.upper)).mean())
                    row[f"factor_{triggers}"] = float(np.median(rows_of.upper / rows_of.lower))
                yield row


def _error(found: Floats, true: float) -> float:
    """The median factor by which estimates are off."""
    return float(np.exp(np.median(np.abs(np.log(found / true)))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    promise = None
    for row in rows():
        if options.json:
            print(json.dumps(row))
            continue
        if promise != (promise := (row["epsilon"], row["delta"], row["records"])):
            many = "one key of a user" if row["records"] == 1 else f"{row['records']} keys of a user"
            print(f"\nε = {row['epsilon']:g}, δ = {row['delta']:g}, {many}\n")
            print(
                "| records | quantile | tree, 1 release | ours, 1 release | ours, last of 96 | its interval | holds |"
            )
            print("|---|---|---|---|---|---|---|")
        print(
            f"| {row['n']:,} | {row['share']:g} | × {row['tree']:.2f} | × {row['ours_1']:.2f} | × {row['ours_96']:.2f} "
            f"| × {row['factor_96']:.1f} | {row['held_96']:.1%} |"
        )


if __name__ == "__main__":
    main()
